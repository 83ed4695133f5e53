/* Stepping a batch on the CPU with one or more threads. */
#ifndef REMATCH_PURSUIT_BATCH_H
#define REMATCH_PURSUIT_BATCH_H

#include "bots.h"
#include "rules.h"
#include "thread_slices.h"

/* The first action, as 2 * row + seat, that is not finite; FINE if all are. It is called before anything moves,
 * so that a rejected step leaves the world unchanged. */
static int invalid_action(const Derived *derived, const Batch *batch, int games) {
    const long count = (long)games * derived->controls;
    for (int s = 0; s < 2; s++) {
        const float *action = batch->action[s];
        int32_t invalid = 0;
        for (long n = 0; n < count; n++) invalid |= !(action[n] - action[n] == 0.0f);
        if (!invalid) continue;
        for (long n = 0; n < count; n++)
            if (!(action[n] - action[n] == 0.0f)) return (int)(n / derived->controls) * 2 + s;
    }
    return FINE;
}

static Answer step_range(const Rules *rules, const Derived *derived, Batch *batch, int from, int to) {
    Answer answer = {STARTED, 0};
    for (int row = from; row < to; row += LANES) {
        int failed_row = 0;
        int verdict = step(rules, derived, batch, row, to - row < LANES ? to - row : LANES, &failed_row);
        if (verdict != STARTED && answer.verdict == STARTED) {
            answer.verdict = verdict;
            answer.row = failed_row;
        }
    }
    return answer;
}

static void observe_all(const Rules *rules, const Derived *derived, Batch *batch, int games) {
    for (int row = 0; row < games; row += LANES)
        observe(rules, derived, batch, row, games - row < LANES ? games - row : LANES);
}

/* Start every game from `next`, with this episode number. */
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
} StepArguments;

static Answer step_slice(const void *world, int from, int to) {
    const StepArguments *arguments = (const StepArguments *)world;
    return step_range(arguments->rules, arguments->derived, arguments->batch, from, to);
}

static Answer step_all(const Rules *rules, const Derived *derived, Batch *batch, int games, int threads) {
    const StepArguments arguments = {rules, derived, batch};
    return in_shares(step_slice, &arguments, games, threads);
}

#endif
