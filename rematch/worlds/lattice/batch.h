/* Filling the tables, and stepping a batch on the CPU with one or more threads. */
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

/* The first action, as 2 * row + seat, that is not 0, 1 or 2; FINE if all are. It is called before anything moves,
 * so that a rejected step leaves the world unchanged. */
static int invalid_action(const Batch *batch, int games) {
    for (int s = 0; s < 2; s++) {
        const int32_t *action = batch->action[s];
        int32_t invalid = 0;
        for (int row = 0; row < games; row++) invalid |= (uint32_t)action[row] >= ACTIONS;
        for (int row = 0; invalid && row < games; row++)
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

/* Start every game from `next`, with this episode number; without observations if one fails. */
static Answer start_all(const Rules *rules, const Tables *tables, Batch *batch, int games, uint32_t episode) {
    for (int row = 0; row < games; row++) {
        Answer answer = {restart(rules, tables, batch, row, episode), row};
        if (answer.verdict != STARTED) return answer;
    }
    observe_all(rules, tables, batch, games);
    Answer success = {STARTED, 0};
    return success;
}

typedef struct {
    const Rules *rules;
    const Tables *tables;
    Batch *batch;
} StepArguments;

static Answer step_slice(const void *world, int from, int to) {
    const StepArguments *arguments = (const StepArguments *)world;
    return step_range(arguments->rules, arguments->tables, arguments->batch, from, to);
}

static Answer step_all(const Rules *rules, const Tables *tables, Batch *batch, int games, int threads) {
    const StepArguments arguments = {rules, tables, batch};
    return in_shares(step_slice, &arguments, games, threads);
}

#endif
