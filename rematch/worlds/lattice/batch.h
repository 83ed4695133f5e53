/* Filling the tables and stepping a whole batch on the CPU, on one or more threads. */
#ifndef REMATCH_LATTICE_BATCH_H
#define REMATCH_LATTICE_BATCH_H

#include "rules.h"
#include "thread_slices.h"

static void fill_tables(const Rules *rules, Tables *t) {
    t->reach = roots_below(rules->radius, 1) - 1;
    for (int state = 0; state < HEADINGS * rules->n * rules->n; state++) fill_state(rules, t, state);
    fill_squares(rules, t);
    fill_pairs(rules, t);
}

/* The first game (2 * row + seat) whose action is none of the three; FINE if all are. Checked before anything
 * moves, so that a refused step leaves the world as it was. */
static int unsound_action(const Batch *batch, int games) {
    for (int s = 0; s < 2; s++) {
        const int32_t *action = batch->action[s];
        int32_t bad = 0;
        for (int row = 0; row < games; row++) bad |= (uint32_t)action[row] >= ACTIONS;
        for (int row = 0; bad && row < games; row++)
            if ((uint32_t)action[row] >= ACTIONS) return 2 * row + s;
    }
    return FINE;
}

static void observe_all(const Rules *rules, const Tables *tables, Batch *batch, int games) {
    for (int row = 0; row < games; row++) observe(rules, tables, batch, row);
}

static Answer step_range(const Rules *rules, const Tables *tables, Batch *batch, int from, int to) {
    Answer answer = {STARTED, 0};
    for (int row = from; row < to; row++) {
        int verdict = step(rules, tables, batch, row);
        if (verdict != STARTED && answer.verdict == STARTED) {
            answer.verdict = verdict;
            answer.row = row;
        }
    }
    return answer;
}

/* Begin every game from `next` as its given episode; nobody looks where that fails. */
static Answer start_all(const Rules *rules, const Tables *tables, Batch *batch, int games, uint32_t episode) {
    for (int row = 0; row < games; row++) {
        Answer answer = {restart(rules, tables, batch, row, episode), row};
        if (answer.verdict != STARTED) return answer;
    }
    observe_all(rules, tables, batch, games);
    Answer fine = {STARTED, 0};
    return fine;
}

typedef struct {
    const Rules *rules;
    const Tables *tables;
    Batch *batch;
} Whole;

static Answer step_share_of(const void *world, int from, int to) {
    const Whole *whole = (const Whole *)world;
    return step_range(whole->rules, whole->tables, whole->batch, from, to);
}

static Answer step_all(const Rules *rules, const Tables *tables, Batch *batch, int games, int threads) {
    const Whole whole = {rules, tables, batch};
    return in_shares(step_share_of, &whole, games, threads);
}

#endif
