/* Stepping a whole batch on the CPU, on one or more threads. */
#ifndef REMATCH_PURSUIT_BATCH_H
#define REMATCH_PURSUIT_BATCH_H

#include "bots.h"
#include "rules.h"
#include "thread_slices.h"

/* The first game (2 * row + seat) whose action is not a finite number; FINE if all are. Checked before
 * anything moves, so that a refused step leaves the world as it was. */
static int unsound_action(const Derived *derived, const Batch *batch, int games) {
    const long count = (long)games * derived->controls;
    for (int s = 0; s < 2; s++) {
        const float *action = batch->action[s];
        int32_t bad = 0;
        for (long n = 0; n < count; n++) bad |= !(action[n] - action[n] == 0.0f);
        if (!bad) continue;
        for (long n = 0; n < count; n++)
            if (!(action[n] - action[n] == 0.0f)) return (int)(n / derived->controls) * 2 + s;
    }
    return FINE;
}

static Answer step_range(const Rules *rules, const Derived *derived, Batch *batch, int from, int to) {
    Answer answer = {STARTED, 0};
    for (int row = from; row < to; row += LANES) {
        int stuck = 0;
        int verdict = step(rules, derived, batch, row, to - row < LANES ? to - row : LANES, &stuck);
        if (verdict != STARTED && answer.verdict == STARTED) {
            answer.verdict = verdict;
            answer.row = stuck;
        }
    }
    return answer;
}

static void observe_all(const Rules *rules, const Derived *derived, Batch *batch, int games) {
    for (int row = 0; row < games; row += LANES)
        observe(rules, derived, batch, row, games - row < LANES ? games - row : LANES);
}

/* Begin every game from `next` as its given episode. */
static Answer start_all(const Rules *rules, const Derived *derived, Batch *batch, int games, uint32_t episode) {
    Answer answer = {STARTED, 0};
    for (int row = 0; row < games; row++) {
        int verdict = restart(rules, derived, batch, row, episode);
        if (verdict != STARTED && answer.verdict == STARTED) {
            answer.verdict = verdict;
            answer.row = row;
        }
    }
    return answer;
}

typedef struct {
    const Rules *rules;
    const Derived *derived;
    Batch *batch;
} Whole;

static Answer step_share_of(const void *world, int from, int to) {
    const Whole *whole = (const Whole *)world;
    return step_range(whole->rules, whole->derived, whole->batch, from, to);
}

static Answer step_all(const Rules *rules, const Derived *derived, Batch *batch, int games, int threads) {
    const Whole whole = {rules, derived, batch};
    return in_shares(step_share_of, &whole, games, threads);
}

#endif
