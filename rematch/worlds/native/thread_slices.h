/* A batch stepped in neighbouring shares, one per thread: what every native world does the same way. CPU only. */
#ifndef REMATCH_SHARES_H
#define REMATCH_SHARES_H

#include <pthread.h>

enum { MOST_THREADS = 64, FINE = -1 };

typedef struct { int verdict, row; } Answer; /* verdict 0 is well; row: the first game in trouble */
typedef Answer (*StepRange)(const void *world, int from, int to);

typedef struct {
    StepRange step;
    const void *world;
    int from, to;
    Answer answer;
} Share;

static void *step_share(void *argument) {
    Share *share = (Share *)argument;
    share->answer = share->step(share->world, share->from, share->to);
    return 0;
}

/* The first share runs here. A thread that cannot be made runs here too. */
static Answer in_shares(StepRange step, const void *world, int games, int threads) {
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads <= 1) return step(world, 0, games);
    Share share[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    int started[MOST_THREADS];
    for (int t = threads - 1; t >= 0; t--) {
        Share mine = {step, world, (int)((long)games * t / threads), (int)((long)games * (t + 1) / threads), {0, 0}};
        share[t] = mine;
        started[t] = t > 0 && pthread_create(&thread[t], 0, step_share, &share[t]) == 0;
        if (!started[t]) step_share(&share[t]);
    }
    Answer answer = share[0].answer;
    for (int t = 1; t < threads; t++) {
        if (started[t]) pthread_join(thread[t], 0);
        if (answer.verdict == 0) answer = share[t].answer;
    }
    return answer;
}

#endif
