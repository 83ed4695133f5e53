/* Filling the tables and stepping a whole batch on the CPU, on one or more threads. */
#ifndef REMATCH_LATTICE_BATCH_H
#define REMATCH_LATTICE_BATCH_H

#include <pthread.h>

#include "rules.h"

enum { MOST_THREADS = 64, FINE = -1 };

typedef struct { int verdict, row; } Answer; /* row: the first game in trouble */

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
    int from, to;
    Answer answer;
} Share;

static void *step_share(void *argument) {
    Share *share = (Share *)argument;
    share->answer = step_range(share->rules, share->tables, share->batch, share->from, share->to);
    return 0;
}

/* Neighbouring shares, one per thread; the first runs here. A thread that cannot be made runs here too. */
static Answer step_all(const Rules *rules, const Tables *tables, Batch *batch, int games, int threads) {
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads <= 1) return step_range(rules, tables, batch, 0, games);
    Share share[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    int started[MOST_THREADS];
    for (int t = threads - 1; t >= 0; t--) {
        Share mine = {rules, tables, batch, (int)((long)games * t / threads),
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
