/* After an update: the sums of the statistics, the magnet's step towards the policy, and the weights for the host. */
#ifndef REMATCH_FINISH_H
#define REMATCH_FINISH_H

#include "ppo.h"

enum { FINISH_THREADS = 256 };

typedef struct { double warp[FINISH_THREADS / 32]; } FinishMemory;

/* The sum of a statistic over the tiles of all minibatches, by a block: in all threads. */
DEVICE double total_stat(const UpdateArguments *u, FinishMemory *memory, int s, int updates) {
    enum { EACH = 4 }; /* loads that start at once */
    const int count = *u->count, per_epoch = (count + u->minibatch - 1) / u->minibatch, tiles = tiles_of(u->minibatch);
    double total = 0.0;
    for (int first = threadIdx.x; first < updates * tiles; first += EACH * FINISH_THREADS) {
        float stat[EACH];
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            const int i = first + n * FINISH_THREADS, number = i / tiles, tile = i - number * tiles;
            const bool used = number < updates && tile * TILE < minibatch_size(u, count, number % per_epoch * u->minibatch);
            stat[n] = used ? u->tile_stats[(long long)i * ROW_STATS + s] : 0.0f;
        }
#pragma unroll
        for (int n = 0; n < EACH; n++) total += (double)stat[n];
    }
#pragma unroll
    for (int step = 16; step; step >>= 1) total += __shfl_xor_sync(0xFFFFFFFFu, total, step);
    if ((threadIdx.x & 31) == 0) memory->warp[threadIdx.x >> 5] = total;
    __syncthreads();
    total = 0.0;
    for (int w = 0; w < FINISH_THREADS / 32; w++) total += memory->warp[w];
    return total;
}

/* grid (ROW_STATS blocks or more, learners) */
extern "C" __global__ void __launch_bounds__(FINISH_THREADS) finish(const UpdateArguments *learners) {
    SHARED_MEMORY;
    const UpdateArguments *u = learners + blockIdx.y;
    if (!u->active) return;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < WEIGHTS; i += gridDim.x * blockDim.x) {
        const float weight = u->weights[i];
        u->new_weights[i] = weight;
        if (u->magnet_weights && *u->count > 0) u->magnet_weights[i] += u->magnet_rate * (weight - u->magnet_weights[i]);
    }
    const int s = blockIdx.x;
    if (s >= ROW_STATS) return;
    const double total = total_stat(u, (FinishMemory *)shared_memory, s, (int)u->numbers[STAT_UPDATES]);
    if (threadIdx.x) return;
    u->numbers[s] = total;
    if (s) return;
    u->numbers[ADAM_STEPS] = *u->updates;
    u->numbers[FAILED] = *u->failed;
}

#endif
