/* The order in which an update visits its rows, and the records of those rows. */
#ifndef REMATCH_SHUFFLE_H
#define REMATCH_SHUFFLE_H

#include "ppo_loss.h"

DEVICE unsigned mix(unsigned x) {
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

/* A random permutation of 0 .. count - 1 without memory: four rounds of a Feistel network on `bits` bits, repeated until the
 * number is below `count` (Black and Rogaway 2002, "cycle walking"). */
DEVICE unsigned permuted(unsigned i, unsigned count, int bits, rm_quad key) {
    do {
        int low = bits - bits / 2; /* bits of the right part */
        for (int round = 0; round < 4; round++) {
            const unsigned left = i >> low, right = i & ((1u << low) - 1u);
            low = bits - low;
            i = right << low | (left ^ (mix(right ^ key.w[round]) & ((1u << low) - 1u)));
        }
    } while (i >= count);
    return i;
}

/* The record of one row. */
DEVICE void write_record(const UpdateArguments *u, int row) {
    float record[RECORD] = {u->logp[row], (float)(((double)u->advantage[row] - u->scaling[0]) * u->scaling[1]), u->target[row], u->value[row]};
    if (DISCRETE) record[R_ACTION] = (float)u->choice[row];
    for (int a = 0; a < ACTIONS; a++) {
        if (!DISCRETE) record[R_ACTION + a] = u->action[(long long)row * ACTIONS + a];
        if (u->magnet) record[R_MAGNET + a] = u->magnet[(long long)row * ACTIONS + a];
    }
    for (int n = 0; n < RECORD; n += 4) store_four(u->records + (long long)row * RECORD + n, {record[n], record[n + 1], record[n + 2], record[n + 3]});
}

/* The rows to learn from in the order of every epoch: order [epochs][capacity]; their records. */
extern "C" __global__ void shuffle(const UpdateArguments *roles) {
    const UpdateArguments *u = roles + blockIdx.y;
    if (!u->active) return;
    const int count = *u->count;
    int bits = 2;
    while (bits < 31 && 1 << bits < count) bits++;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) write_record(u, u->index[i]);
    for (int epoch = 0; epoch < u->epochs; epoch++) {
        const rm_quad key = rm_philox(u->key, (uint32_t)epoch, (uint32_t)u->iteration, 17, 0);
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
            u->order[(long long)epoch * u->capacity + i] = u->index[permuted(i, count, bits, key)];
    }
}

#endif
