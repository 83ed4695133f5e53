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

/* A position on the path of `solve`: its actions that are not solved yet, and the window. */
typedef struct { Table table; uint64_t remaining; int low, high; } SolveLevel;
enum { SOLVE_LEVELS = 2 * (SPECIES - DECK) + 1 }; /* turns after the decks are empty, and the position itself */

RM_FN int difference(const Rules *rules, const Table *table) {
    const int me = table->turn[0];
    return score_of(rules, table, me) - score_of(rules, table, 1 - me);
}

/* Alpha-beta for two players with empty decks: the score of the player to move minus that of the other under
 * best play. Its sign gives the winner. A loop, because threads of a GPU have small stacks. */
RM_LARGE_FN int solve(const Rules *rules, const Table *table, int low, int high) {
    SolveLevel path[SOLVE_LEVELS];
    if (has_ended(rules, table)) return difference(rules, table);
    path[0].table = *table, path[0].remaining = legal(rules, table), path[0].low = low, path[0].high = high;
    for (int depth = 0;;) {
        SolveLevel *level = path + depth;
        int value;
        if (level->remaining && level->low < level->high) {
            SolveLevel *child = level + 1;
            child->table = level->table;
            turn(rules, &child->table, lowest_bit(level->remaining));
            level->remaining &= level->remaining - 1;
            if (!has_ended(rules, &child->table)) {
                child->remaining = legal(rules, &child->table);
                child->low = -level->high, child->high = -level->low;
                depth++;
                continue;
            }
            value = -difference(rules, &child->table);
        } else {
            if (depth == 0) return level->low;
            value = -level->low;
            level = path + --depth;
        }
        if (value > level->low) level->low = value;
    }
}

/* The action of a bot, ties at random. Constant arguments make the compiler specialize the outcome bots, which
 * play most. */
RM_LARGE_FN int choose_action(const Rules *rules, const Table *table, int bot, SplitMix *generator) {
    double score[ACTIONS];
    const uint64_t all = legal(rules, table);
    uint64_t candidates = all;
    if (!(all & (all - 1))) return lowest_bit(all);
    if (bot == NOISY) {
        const BotKey bot_key = {splitmix_next(generator), 0, RM_STREAM_BOT, 0};
        candidates = score_actions(rules, table, NOISY, &bot_key, score);
    }
#ifndef __CUDACC__
    else if (bot == OUTCOME) candidates = score_actions(rules, table, OUTCOME, 0, score);
    else if (bot == DISTILLED) candidates = score_actions(rules, table, DISTILLED, 0, score);
#endif
    else candidates = score_actions(rules, table, bot, 0, score);
    if (!(candidates & (candidates - 1))) return lowest_bit(candidates);
    return sample_weighted(rules, line_of(table), candidates, (uint32_t)(splitmix_next(generator) >> 32));
}

/* The value of an ended game for a seat: the reward plus 0.01 times the difference of scores. */
RM_LARGE_FN double final_value(const Rules *rules, const Table *table, int seat) {
    float outcome[MOST_PLAYERS] = {0}, reward[MOST_PLAYERS] = {0};
    int best = -1;
    final_result(rules, table, outcome, reward);
    for (int p = 0; p < rules->players; p++)
        if (p != seat && score_of(rules, table, p) > best) best = score_of(rules, table, p);
    return (double)reward[seat] + 0.01 * (double)(score_of(rules, table, seat) - best);
}

/* The final value for a seat when it plays like bots[0] and the others like bots[1]. */
RM_LARGE_FN double play_out(const Rules *rules, Table *table, int seat, const int *bots, SplitMix *generator) {
    while (!has_ended(rules, table))
        turn(rules, table, choose_action(rules, table, bots[table->turn[0] != seat], generator));
    return final_value(rules, table, seat);
}

/* The action that a policy takes with these logits: one of the legal actions, at random. */
RM_LARGE_FN int sample_logits(const float *logits, uint64_t all, SplitMix *generator) {
    double highest = -1e30, total = 0.0;
    const double uniform = (double)(splitmix_next(generator) >> 11) * (1.0 / 9007199254740992.0);
    for (uint64_t remaining = all; remaining; remaining &= remaining - 1)
        if ((double)logits[lowest_bit(remaining)] > highest) highest = (double)logits[lowest_bit(remaining)];
    for (uint64_t remaining = all; remaining; remaining &= remaining - 1)
        total += exp((double)logits[lowest_bit(remaining)] - highest);
    double left = uniform * total;
    for (;; all &= all - 1) {
        left -= exp((double)logits[lowest_bit(all)] - highest);
        if (left < 0.0 || !(all & (all - 1))) return lowest_bit(all);
    }
}

/* One turn of a leaf of a search. In a leaf, `slot` has the number of the bot that plays a seat, or -1: the policy
 * plays it, from its logits; `seed` has the state of the random numbers. */
RM_LARGE_FN void leaf_turn(const Rules *rules, Game *leaf, const float *logits) {
    SplitMix generator = {leaf->seed[0]};
    const int bot = leaf->slot[leaf->table.turn[0]];
    const int action = bot < 0 ? sample_logits(logits, legal(rules, &leaf->table), &generator)
                               : choose_action(rules, &leaf->table, bot, &generator);
    turn(rules, &leaf->table, action);
    leaf->seed[0] = generator.state;
}

RM_FN int is_solvable(const Rules *rules, const Table *table) {
    return rules->players == 2 && decks_empty(rules, table);
}

/* Key and numbers from .. to - 1 of the completions of a search: samples of the hidden cards. */
typedef struct { uint64_t key; int from, to; } Completions;

/* Deal completion number c; returns the generator of its playouts. */
RM_LARGE_FN SplitMix deal_completion(const Rules *rules, const Completions *completions, int c, Table *table) {
    const rm_quad random = rm_philox(completions->key, (uint32_t)c, 0, RM_STREAM_BOT, 0);
    SplitMix cards = {(uint64_t)random.w[0] << 32 | random.w[1]};
    const SplitMix generator = {(uint64_t)random.w[2] << 32 | random.w[3]};
    redeal_hidden(rules, table, table->turn[0], &cards);
    return generator;
}

/* Add the values of all candidates over the completions to sum [ACTIONS]. All actions use the same
 * completions and random numbers, so their differences vary less. Solved positions need no completions. */
RM_LARGE_FN void search(const Rules *rules, const Table *table, uint64_t candidates, const int *bots,
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
RM_LARGE_FN void search_values(const Rules *rules, const Table *table, uint64_t candidates,
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
