/* The rows that a learner learns from, in ascending order, and the moments of their advantages and values. All sums have a
 * fixed order. Four kernels, grid (blocks, learners) each: count_rows, scan_rows, list_rows, scale_rows; the second and the
 * fourth have one block per learner. */
#ifndef REMATCH_SELECT_H
#define REMATCH_SELECT_H

#include "ppo_loss.h"

enum { SELECT_THREADS = 256, SELECT_ROWS = 4096 }; /* rows of a block */
enum { ADVANTAGE, TARGET, RESIDUAL, MOMENTS }; /* residual: target - value */

typedef struct { double warp[SELECT_THREADS / 32][MOMENTS], mean[MOMENTS]; int count[SELECT_THREADS / 32]; } SelectMemory;

/* Add x [MOMENTS] of all threads: in thread 0. Threads wait for each other. */
DEVICE void add_moments(SelectMemory *memory, double x[MOMENTS]) {
#pragma unroll
    for (int m = 0; m < MOMENTS; m++) {
#pragma unroll
        for (int step = 16; step; step >>= 1) x[m] += __shfl_xor_sync(0xFFFFFFFFu, x[m], step);
        if ((threadIdx.x & 31) == 0) memory->warp[threadIdx.x >> 5][m] = x[m];
    }
    __syncthreads();
    for (int m = 0; m < MOMENTS; m++) {
        x[m] = 0.0;
        for (int w = 0; w < SELECT_THREADS / 32; w++) x[m] += memory->warp[w][m];
    }
    __syncthreads();
}

DEVICE double moment_of(const UpdateArguments *u, int row, int m) {
    if (m == ADVANTAGE) return (double)u->advantage[row];
    return m == TARGET ? (double)u->target[row] : (double)u->target[row] - (double)u->value[row];
}

/* The sum over all threads of a block; in all threads. */
DEVICE int add_counts(SelectMemory *memory, int count) {
#pragma unroll
    for (int step = 16; step; step >>= 1) count += __shfl_xor_sync(0xFFFFFFFFu, count, step);
    if ((threadIdx.x & 31) == 0) memory->count[threadIdx.x >> 5] = count;
    __syncthreads();
    count = 0;
    for (int w = 0; w < SELECT_THREADS / 32; w++) count += memory->count[w];
    __syncthreads();
    return count;
}

extern "C" __global__ void __launch_bounds__(SELECT_THREADS) count_rows(const UpdateArguments *learners) {
    SHARED_MEMORY;
    SelectMemory *memory = (SelectMemory *)shared_memory;
    const UpdateArguments *u = learners + blockIdx.y;
    if (!u->active) return;
    double sum[MOMENTS] = {};
    int count = 0;
    for (int i = threadIdx.x; i < SELECT_ROWS; i += SELECT_THREADS) {
        const int row = blockIdx.x * SELECT_ROWS + i;
        if (row >= u->capacity || !u->counts[row]) continue;
        count++;
        for (int m = 0; m < MOMENTS; m++) sum[m] += moment_of(u, row, m);
    }
    add_moments(memory, sum);
    count = add_counts(memory, count);
    if (threadIdx.x) return;
    u->block_counts[blockIdx.x] = count;
    for (int m = 0; m < MOMENTS; m++) u->block_moments[(long long)blockIdx.x * MOMENTS + m] = sum[m];
}

/* Counts become the places of each block's first row; `numbers` [COUNT] and the means, into `scaling` and `numbers`. */
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) scan_rows(const UpdateArguments *learners) {
    SHARED_MEMORY;
    SelectMemory *memory = (SelectMemory *)shared_memory;
    const UpdateArguments *u = learners + blockIdx.y;
    if (!u->active) return;
    const int blocks = (u->capacity + SELECT_ROWS - 1) / SELECT_ROWS, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double sum[MOMENTS] = {};
    int before = 0;
    for (int first = 0; first < blocks; first += SELECT_THREADS) {
        const int b = first + threadIdx.x, count = b < blocks ? u->block_counts[b] : 0;
        int place = count;
#pragma unroll
        for (int step = 1; step < 32; step <<= 1) {
            const int left = __shfl_up_sync(0xFFFFFFFFu, place, step);
            if (lane >= step) place += left;
        }
        if (lane == 31) memory->count[warp] = place;
        __syncthreads();
        int all = 0;
        for (int w = 0; w < SELECT_THREADS / 32; w++) {
            if (w < warp) place += memory->count[w];
            all += memory->count[w];
        }
        if (b < blocks) {
            u->block_counts[b] = before + place - count;
            for (int m = 0; m < MOMENTS; m++) sum[m] += u->block_moments[(long long)b * MOMENTS + m];
        }
        before += all;
        __syncthreads();
    }
    add_moments(memory, sum);
    if (threadIdx.x) return;
    const double n = before > 0 ? (double)before : 1.0;
    *u->count = before;
    u->numbers[COUNT] = before;
    u->scaling[0] = sum[ADVANTAGE] / n;
    u->numbers[TARGET_VARIANCE] = sum[TARGET] / n; /* the means, until scale_rows */
    u->numbers[RESIDUAL_VARIANCE] = sum[RESIDUAL] / n;
}

extern "C" __global__ void __launch_bounds__(SELECT_THREADS) list_rows_to_learn(const UpdateArguments *learners) {
    SHARED_MEMORY;
    SelectMemory *memory = (SelectMemory *)shared_memory;
    const UpdateArguments *u = learners + blockIdx.y;
    if (!u->active) return;
    const double mean[MOMENTS] = {u->scaling[0], u->numbers[TARGET_VARIANCE], u->numbers[RESIDUAL_VARIANCE]};
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double sum[MOMENTS] = {};
    int place = u->block_counts[blockIdx.x];
    for (int i = threadIdx.x; i < SELECT_ROWS; i += SELECT_THREADS) {
        const int row = blockIdx.x * SELECT_ROWS + i;
        const bool chosen = row < u->capacity && u->counts[row];
        const unsigned votes = __ballot_sync(0xFFFFFFFFu, chosen);
        if (lane == 0) memory->count[warp] = __popc(votes);
        __syncthreads();
        int own = place + __popc(votes & ((1u << lane) - 1u));
        for (int w = 0; w < SELECT_THREADS / 32; w++) {
            if (w < warp) own += memory->count[w];
            place += memory->count[w];
        }
        if (chosen) {
            u->index[own] = row;
            for (int m = 0; m < MOMENTS; m++) {
                const double distance = moment_of(u, row, m) - mean[m];
                sum[m] += distance * distance;
            }
        }
        __syncthreads();
    }
    add_moments(memory, sum);
    if (threadIdx.x) return;
    for (int m = 0; m < MOMENTS; m++) u->block_moments[(long long)blockIdx.x * MOMENTS + m] = sum[m];
}

extern "C" __global__ void __launch_bounds__(SELECT_THREADS) scale_rows(const UpdateArguments *learners) {
    SHARED_MEMORY;
    SelectMemory *memory = (SelectMemory *)shared_memory;
    const UpdateArguments *u = learners + blockIdx.y;
    if (!u->active) return;
    const int blocks = (u->capacity + SELECT_ROWS - 1) / SELECT_ROWS;
    double sum[MOMENTS] = {};
    for (int b = threadIdx.x; b < blocks; b += SELECT_THREADS)
        for (int m = 0; m < MOMENTS; m++) sum[m] += u->block_moments[(long long)b * MOMENTS + m];
    add_moments(memory, sum);
    if (threadIdx.x) return;
    const double n = *u->count > 0 ? (double)*u->count : 1.0;
    u->scaling[1] = 1.0 / (sqrt(sum[ADVANTAGE] / n) + 1e-8);
    u->numbers[TARGET_VARIANCE] = sum[TARGET] / n;
    u->numbers[RESIDUAL_VARIANCE] = sum[RESIDUAL] / n;
    *u->barrier = 0;
    *u->failed = 0;
}

#endif
