/* Steps a batch in consecutive slices, one per thread. All native worlds use it. CPU only. */
#ifndef REMATCH_THREAD_SLICES_H
#define REMATCH_THREAD_SLICES_H

#include <pthread.h>

enum { MAX_THREADS = 64, FINE = -1 };

typedef struct { int verdict, row; } Answer; /* verdict 0: success; row: the first game that failed */
typedef Answer (*StepRange)(const void *world, int from, int to);

typedef struct {
    StepRange step;
    const void *world;
    int from, to;
    Answer answer;
} Slice;

static void *run_slice(void *argument) {
    Slice *slice = (Slice *)argument;
    slice->answer = slice->step(slice->world, slice->from, slice->to);
    return 0;
}

/* The first slice runs in the calling thread, and so does every slice whose thread cannot be created. */
static Answer in_shares(StepRange step, const void *world, int games, int threads) {
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads <= 1) return step(world, 0, games);
    Slice slice[MAX_THREADS];
    pthread_t thread[MAX_THREADS];
    int started[MAX_THREADS];
    for (int t = threads - 1; t >= 0; t--) {
        Slice next = {step, world, (int)((long)games * t / threads), (int)((long)games * (t + 1) / threads), {0, 0}};
        slice[t] = next;
        started[t] = t > 0 && pthread_create(&thread[t], 0, run_slice, &slice[t]) == 0;
        if (!started[t]) run_slice(&slice[t]);
    }
    Answer answer = slice[0].answer;
    for (int t = 1; t < threads; t++) {
        if (started[t]) pthread_join(thread[t], 0);
        if (answer.verdict == 0) answer = slice[t].answer;
    }
    return answer;
}

#endif
