/* After an update: the sums of the statistics, the magnet's step towards the policy, and the weights for the host. */
#ifndef REMATCH_FINISH_H
#define REMATCH_FINISH_H

#include "ppo.h"

enum { FINISH_THREADS = 256 };

/* The sum of a statistic over the tiles of all minibatches, by one warp. */
DEVICE double total_stat(const UpdateArguments *u, int s, int updates) {
    const int count = *u->count, per_epoch = (count + u->minibatch - 1) / u->minibatch, tiles = tiles_of(u->minibatch);
    double total = 0.0;
    for (int i = threadIdx.x & 31; i < updates * tiles; i += 32) {
        const int at = i / tiles % per_epoch * u->minibatch;
        if (i % tiles * TILE < minibatch_size(u, count, at)) total += (double)u->tile_stats[(long long)i * ROW_STATS + s];
    }
    for (int step = 16; step; step >>= 1) total += __shfl_xor_sync(0xFFFFFFFFu, total, step);
    return total;
}

/* grid (blocks, learners) */
extern "C" __global__ void __launch_bounds__(FINISH_THREADS) finish(const UpdateArguments *learners) {
    const UpdateArguments *u = learners + blockIdx.y;
    if (!u->active) return;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < WEIGHTS; i += gridDim.x * blockDim.x) {
        const float weight = u->weights[i];
        u->new_weights[i] = weight;
        if (u->magnet_weights && *u->count > 0) u->magnet_weights[i] += u->magnet_rate * (weight - u->magnet_weights[i]);
    }
    const int s = (int)threadIdx.x >> 5;
    if (blockIdx.x || s >= ROW_STATS) return;
    const double total = total_stat(u, s, (int)u->numbers[STAT_UPDATES]);
    if (threadIdx.x & 31) return;
    u->numbers[s] = total;
    if (s) return;
    u->numbers[ADAM_STEPS] = *u->updates;
    u->numbers[FAILED] = *u->failed;
}

#endif
