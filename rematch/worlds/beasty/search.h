/* The player `search` (card-game specification, section 4): deal what the seat cannot see anew, play every legal
 * action out with an outcome player in all seats, add up how the games end. Two players with empty decks know
 * each other's hands: from there on alpha-beta is exact. */
#ifndef REMATCH_BEASTY_SEARCH_H
#define REMATCH_BEASTY_SEARCH_H

#include "bots.h"

enum { EXACT = 1000000 }; /* what a solved value is multiplied by: above any sum of playouts */

RM_FN int decks_empty(const Rules *rules, const Table *table) {
    uint32_t left = 0;
    for (int p = 0; p < rules->players; p++) left |= table->deck[p];
    return left == 0;
}

/* Two players, empty decks: the difference of scores, own less other's, that best play by both leads to.
 * Its sign is who wins, for the best difference is never a worse result. */
static int solve(const Rules *rules, const Table *table, int low, int high) {
    const int me = table->turn[0];
    if (is_over(rules, table)) return score_of(rules, table, me) - score_of(rules, table, 1 - me);
    for (uint64_t left = legal(rules, table); left && low < high; left &= left - 1) {
        Table then = *table;
        turn(rules, &then, lowest_bit(left));
        const int value = -solve(rules, &then, -high, -low);
        if (value > low) low = value;
    }
    return low;
}

/* The action that a bot takes, equals by luck; the two outcome players compiled apart, for they play most. */
static int hopeful(const Rules *rules, const Table *table, int bot, Luck *luck) {
    double score[ACTIONS];
    const uint64_t all = legal(rules, table);
    uint64_t among = all;
    if (!(all & (all - 1))) return lowest_bit(all);
    if (bot == NOISY) {
        const Chance chance = {luck_word(luck), 0, RM_STREAM_BOT, 0};
        among = scored(rules, table, NOISY, &chance, score);
    } else if (bot == OUTCOME) among = scored(rules, table, OUTCOME, 0, score);
    else if (bot == DISTILLED) among = scored(rules, table, DISTILLED, 0, score);
    else among = scored(rules, table, bot, 0, score);
    if (!(among & (among - 1))) return lowest_bit(among);
    return weighted(rules, line_of(table), among, (uint32_t)(luck_word(luck) >> 32));
}

/* What a game that is over is worth to a seat: the reward, and a little for the difference of scores. */
static double worth(const Rules *rules, const Table *table, int seat) {
    float outcome[MOST_PLAYERS] = {0}, reward[MOST_PLAYERS] = {0};
    int best = -1;
    judge(rules, table, outcome, reward);
    for (int p = 0; p < rules->players; p++)
        if (p != seat && score_of(rules, table, p) > best) best = score_of(rules, table, p);
    return (double)reward[seat] + 0.01 * (double)(score_of(rules, table, seat) - best);
}

/* How a game ends for a seat that plays on like bots[0] among others like bots[1]. */
static double played_out(const Rules *rules, Table *table, int seat, const int *bots, Luck *luck) {
    while (!is_over(rules, table)) turn(rules, table, hopeful(rules, table, bots[table->turn[0] != seat], luck));
    return worth(rules, table, seat);
}

RM_FN int is_solvable(const Rules *rules, const Table *table) {
    return rules->players == 2 && decks_empty(rules, table);
}

/* What a search goes through: completions from .. to - 1 of what a seat cannot see, dealt by a key. */
typedef struct { uint64_t key; int from, to; } Deals;

/* Completion number c, and the luck of the playouts that follow it. */
static Luck dealt(const Rules *rules, const Deals *deals, int c, Table *table) {
    const rm_quad random = rm_philox(deals->key, (uint32_t)c, 0, RM_STREAM_BOT, 0);
    Luck cards = {(uint64_t)random.w[0] << 32 | random.w[1]};
    const Luck luck = {(uint64_t)random.w[2] << 32 | random.w[3]};
    completed(rules, table, table->turn[0], &cards);
    return luck;
}

/* Add the worth of every action in `among` over the deals to sum [ACTIONS]. All actions meet the same deals and
 * the same luck, so that they differ by themselves alone. Solved positions need no completions. */
static void search(const Rules *rules, const Table *table, uint64_t among, const int *bots, const Deals *deals,
                   double *sum) {
    const int seat = table->turn[0];
    if (is_solvable(rules, table)) {
        for (uint64_t left = among; left; left &= left - 1) {
            Table then = *table;
            turn(rules, &then, lowest_bit(left));
            sum[lowest_bit(left)] = -(double)EXACT * solve(rules, &then, -EXACT, EXACT);
        }
        return;
    }
    for (int c = deals->from; c < deals->to; c++) {
        Table sample = *table;
        const Luck start = dealt(rules, deals, c, &sample);
        for (uint64_t left = among; left; left &= left - 1) {
            Table then = sample;
            Luck luck = start;
            turn(rules, &then, lowest_bit(left));
            sum[lowest_bit(left)] += played_out(rules, &then, seat, bots, &luck);
        }
    }
}

/* The mean of those sums, as what a player may expect: a solved difference d of scores is sign(d) + d / 100, as
 * `worth` has it. */
static void search_values(const Rules *rules, const Table *table, uint64_t among, const Deals *deals, double *sum) {
    const int solved = is_solvable(rules, table), count = deals->to - deals->from;
    for (; among; among &= among - 1) {
        double *value = sum + lowest_bit(among);
        if (solved) {
            const double d = *value / EXACT;
            *value = (double)((d > 0) - (d < 0)) + 0.01 * d;
        } else {
            *value /= count;
        }
    }
}

/* The legal action of the largest sum, the first among equals. */
RM_FN int best_of(uint64_t all, const double *sum) {
    int best = lowest_bit(all);
    for (; all; all &= all - 1)
        if (sum[lowest_bit(all)] > sum[best]) best = lowest_bit(all);
    return best;
}

#endif
