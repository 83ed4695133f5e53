/* The player `search`: resample the hidden cards, play every legal action out with a bot in all seats, and
 * sum the final values. Two players with empty decks know each other's hands: alpha-beta is exact. */
#ifndef REMATCH_BEASTY_SEARCH_H
#define REMATCH_BEASTY_SEARCH_H

#include "bots.h"

enum { EXACT = 1000000 }; /* factor of a solved value: larger than any sum of playouts */

RM_FN int decks_empty(const Rules *rules, const Table *table) {
    uint32_t remaining = 0;
    for (int p = 0; p < rules->players; p++) remaining |= table->deck[p];
    return remaining == 0;
}

/* Alpha-beta for two players with empty decks: the score of the player to move minus that of the other under
 * best play. Its sign gives the winner. */
static int solve(const Rules *rules, const Table *table, int low, int high) {
    const int me = table->turn[0];
    if (has_ended(rules, table)) return score_of(rules, table, me) - score_of(rules, table, 1 - me);
    for (uint64_t remaining = legal(rules, table); remaining && low < high; remaining &= remaining - 1) {
        Table child = *table;
        turn(rules, &child, lowest_bit(remaining));
        const int value = -solve(rules, &child, -high, -low);
        if (value > low) low = value;
    }
    return low;
}

/* The action of a bot, ties at random. Constant arguments make the compiler specialize the outcome bots, which
 * play most. */
static int choose_action(const Rules *rules, const Table *table, int bot, SplitMix *generator) {
    double score[ACTIONS];
    const uint64_t all = legal(rules, table);
    uint64_t candidates = all;
    if (!(all & (all - 1))) return lowest_bit(all);
    if (bot == NOISY) {
        const BotKey bot_key = {splitmix_next(generator), 0, RM_STREAM_BOT, 0};
        candidates = score_actions(rules, table, NOISY, &bot_key, score);
    } else if (bot == OUTCOME) candidates = score_actions(rules, table, OUTCOME, 0, score);
    else if (bot == DISTILLED) candidates = score_actions(rules, table, DISTILLED, 0, score);
    else candidates = score_actions(rules, table, bot, 0, score);
    if (!(candidates & (candidates - 1))) return lowest_bit(candidates);
    return sample_weighted(rules, line_of(table), candidates, (uint32_t)(splitmix_next(generator) >> 32));
}

/* The value of an ended game for a seat: the reward plus 0.01 times the difference of scores. */
static double final_value(const Rules *rules, const Table *table, int seat) {
    float outcome[MOST_PLAYERS] = {0}, reward[MOST_PLAYERS] = {0};
    int best = -1;
    final_result(rules, table, outcome, reward);
    for (int p = 0; p < rules->players; p++)
        if (p != seat && score_of(rules, table, p) > best) best = score_of(rules, table, p);
    return (double)reward[seat] + 0.01 * (double)(score_of(rules, table, seat) - best);
}

/* The final value for a seat when it plays like bots[0] and the others like bots[1]. */
static double play_out(const Rules *rules, Table *table, int seat, const int *bots, SplitMix *generator) {
    while (!has_ended(rules, table))
        turn(rules, table, choose_action(rules, table, bots[table->turn[0] != seat], generator));
    return final_value(rules, table, seat);
}

RM_FN int is_solvable(const Rules *rules, const Table *table) {
    return rules->players == 2 && decks_empty(rules, table);
}

/* Key and numbers from .. to - 1 of the completions of a search: samples of the hidden cards. */
typedef struct { uint64_t key; int from, to; } Completions;

/* Deal completion number c; returns the generator of its playouts. */
static SplitMix deal_completion(const Rules *rules, const Completions *completions, int c, Table *table) {
    const rm_quad random = rm_philox(completions->key, (uint32_t)c, 0, RM_STREAM_BOT, 0);
    SplitMix cards = {(uint64_t)random.w[0] << 32 | random.w[1]};
    const SplitMix generator = {(uint64_t)random.w[2] << 32 | random.w[3]};
    redeal_hidden(rules, table, table->turn[0], &cards);
    return generator;
}

/* Add the values of all candidates over the completions to sum [ACTIONS]. All actions use the same
 * completions and random numbers, so their differences vary less. Solved positions need no completions. */
static void search(const Rules *rules, const Table *table, uint64_t candidates, const int *bots,
                   const Completions *completions, double *sum) {
    const int seat = table->turn[0];
    if (is_solvable(rules, table)) {
        for (uint64_t remaining = candidates; remaining; remaining &= remaining - 1) {
            Table child = *table;
            turn(rules, &child, lowest_bit(remaining));
            sum[lowest_bit(remaining)] = -(double)EXACT * solve(rules, &child, -EXACT, EXACT);
        }
        return;
    }
    for (int c = completions->from; c < completions->to; c++) {
        Table sample = *table;
        const SplitMix start = deal_completion(rules, completions, c, &sample);
        for (uint64_t remaining = candidates; remaining; remaining &= remaining - 1) {
            Table child = sample;
            SplitMix generator = start;
            turn(rules, &child, lowest_bit(remaining));
            sum[lowest_bit(remaining)] += play_out(rules, &child, seat, bots, &generator);
        }
    }
}

/* Turn sums into means. A solved difference d of scores becomes sign(d) + d / 100, as in `final_value`. */
static void search_values(const Rules *rules, const Table *table, uint64_t candidates,
                          const Completions *completions, double *sum) {
    const int solved = is_solvable(rules, table), count = completions->to - completions->from;
    for (; candidates; candidates &= candidates - 1) {
        double *value = sum + lowest_bit(candidates);
        if (solved) {
            const double d = *value / EXACT;
            *value = (double)((d > 0) - (d < 0)) + 0.01 * d;
        } else {
            *value /= count;
        }
    }
}

/* The action with the largest sum; the first one in a tie. */
RM_FN int best_of(uint64_t all, const double *sum) {
    int best = lowest_bit(all);
    for (; all; all &= all - 1)
        if (sum[lowest_bit(all)] > sum[best]) best = lowest_bit(all);
    return best;
}

#endif
