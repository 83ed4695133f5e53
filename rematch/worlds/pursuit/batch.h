/* Stepping a whole batch on the CPU, on one or more threads. */
#ifndef REMATCH_PURSUIT_BATCH_H
#define REMATCH_PURSUIT_BATCH_H

#include <pthread.h>

#include "bots.h"
#include "rules.h"

enum { MOST_THREADS = 64, FINE = -1 };

typedef struct { int verdict, row; } Answer; /* row: the first game in trouble */

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
    int from, to;
    Answer answer;
} Share;

static void *step_share(void *argument) {
    Share *share = (Share *)argument;
    share->answer = step_range(share->rules, share->derived, share->batch, share->from, share->to);
    return 0;
}

/* Neighbouring shares, one per thread; the first runs here. A thread that cannot be made runs here too. */
static Answer step_all(const Rules *rules, const Derived *derived, Batch *batch, int games, int threads) {
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads <= 1) return step_range(rules, derived, batch, 0, games);
    Share share[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    int started[MOST_THREADS];
    for (int t = threads - 1; t >= 0; t--) {
        Share mine = {rules, derived, batch, (int)((long)games * t / threads),
                      (int)((long)games * (t + 1) / threads), {STARTED, 0}};
        share[t] = mine;
        started[t] = t > 0 && pthread_create(&thread[t], 0, step_share, &share[t]) == 0;
        if (!started[t]) step_share(&share[t]);
    }
    Answer answer = share[0].answer;
    for (int t = 1; t < threads; t++) {
        if (started[t]) pthread_join(thread[t], 0);
        if (answer.verdict == STARTED) answer = share[t].answer;
    }
    return answer;
}

#endif
