/* The tiles of a minibatch by a block whose warps share each tile (ppo_gradient.h): every card can compute these. */
#ifndef REMATCH_PPO_TILES_H
#define REMATCH_PPO_TILES_H

#include "ppo_gradient.h"
#include "work.h"

enum { GROUPS = 64, ADDERS = 8, ADD_LANES = 8, WORKERS = 1 }; /* see ppo.h */

/* What a block has of its tiles. */
typedef struct {
    Tile tile;
    RowData data[2];  /* of this tile and of the next */
    int row[3][TILE]; /* of this tile, of the next and of the one after it */
} Tiles;

/* Where a worker is: its tile, the next one, and how many it had before. */
typedef struct { Work work, next; int turn; } Course;

/* --- the sums of a chain of tiles ----------------------------------------------------------------------- */

/* The sums of this warp, in the order of the floats; warp: from 0 to 7. */
template <int M, int N> DEVICE void store_matrix(float *out, int warp, const Sums *sums) {
    float *at = out + warp * (M * N * 128) + (threadIdx.x & 31) * 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float *sum = sums->matrix[m][n];
            store_four(at + (m * N + n) * 128, {sum[0], sum[1], sum[2], sum[3]});
        }
}

/* The sums of the head, [OUTPUTS][WIDTH2]. */
DEVICE void store_head(float *out, int column, const Sums *sums) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < HEADS / 16; m++)
#pragma unroll
        for (int n = 0; n < HEAD_TILES; n++)
#pragma unroll
            for (int part = 0; part < 2; part++) {
                const int line = 16 * m + 8 * part + lane / 4;
                if (line < OUTPUTS) store_pair(out + line * WIDTH2 + column + 8 * n + 2 * (lane % 4), sums->head[m][n][2 * part], sums->head[m][n][2 * part + 1]);
            }
}

template <int M> DEVICE void store_row_sums(float *out, int rows, int row, const float (*sum)[4]) {
    const int lane = threadIdx.x & 31;
    if (lane % 4) return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
            int line = row + 16 * m + 8 * part + lane / 4;
            if (line < rows) out[line] = sum[m][2 * part];
        }
}

DEVICE void add_sums(Sums *to, const Sums *tile) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) to->matrix[m][n][i] += tile->matrix[m][n][i];
#pragma unroll
    for (int m = 0; m < HEADS / 16; m++)
#pragma unroll
        for (int n = 0; n < HEAD_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) to->head[m][n][i] += tile->head[m][n][i];
#pragma unroll
    for (int m = 0; m < BIASES; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) to->bias[m][i] += tile->bias[m][i];
}

/* Write the sums of a chain of tiles to its place; `log_std` is that of thread a. */
DEVICE void store_sums(const UpdateArguments *u, int chain, const Sums *sums, float log_std) {
    const int warp = threadIdx.x >> 5, group = warp & 1, side = (warp & 7) >> 1;
    float *out = u->partial + (long long)chain * WEIGHTS;
    if (warp < 8) {
        store_matrix<W1_ROWS, W1_TILES>(out + W1_AT, warp, sums);
        if (side == 0) store_row_sums<W1_ROWS>(out + B1_AT, WIDTH1, group * (WIDTH1 / 2), sums->bias);
    } else {
        store_matrix<W2_ROWS, W2_TILES>(out + W2_AT, warp - 8, sums);
        store_head(out + HEAD_AT, (warp - 8) * 8 * HEAD_TILES, sums);
        if (side == 0) store_row_sums<W2_ROWS>(out + B2_AT, WIDTH2, group * (WIDTH2 / 2), sums->bias);
        if (warp == 15) store_row_sums<HEADS / 16>(out + HEAD_BIAS_AT, OUTPUTS, 0, sums->bias);
    }
    const int i = LOG_STD_AT + threadIdx.x;
    if (i < WEIGHTS) out[i] = i < WEIGHTS_END ? log_std : 0.0f;
}

/* --- one tile ------------------------------------------------------------------------------------------- */

/* Start the copies of a tile's inputs and of the data of its rows. */
DEVICE void copy_rows(const UpdateArguments *u, half_float *x, const int *rows, RowData *data) {
    enum { PARTS = INPUTS / 8 }; /* of 16 bytes */
#pragma unroll 3
    for (int i = threadIdx.x; i < TILE * PARTS; i += THREADS) {
        const int row = rows[i / PARTS];
        half_float *to = x + i / PARTS * X_STRIDE + i % PARTS * 8;
        if (row >= 0) copy_16_ahead(to, u->inputs + (long long)row * INPUTS + i % PARTS * 8);
        else store_four((float *)to, {0.0f, 0.0f, 0.0f, 0.0f});
    }
    for (int i = threadIdx.x; i < TILE * RECORD / 4; i += THREADS) {
        const int row = rows[i / (RECORD / 4)];
        if (row >= 0) copy_16_ahead(data->number + 4 * i, u->records + (long long)row * RECORD + i % (RECORD / 4) * 4);
    }
}

/* Compute a tile, the `turn`-th of this block; meanwhile copy the next one, and find the rows of the one after it. */
DEVICE void compute_tile(const UpdateArguments *u, const Weights *weights, Tiles *tiles, int turn, Work work, Work after_next, Sums *sums) {
    wait_for_copies();
    __syncthreads(); /* its inputs are there, and the tile before it is done */
    if (threadIdx.x < TILE) copy_order(u, tiles->row[(turn + 2) % 3], after_next, threadIdx.x);
    copy_rows(u, tiles->tile.x[(turn + 1) & 1], tiles->row[(turn + 1) % 3], tiles->data + ((turn + 1) & 1));
    if (threadIdx.x < 64 * STRIPS)
        learn_strip(u, weights, &tiles->tile, turn, tiles->data + (turn & 1), tiles->row[turn % 3], 1.0f / (float)work.size);
    __syncthreads();
    add_gradients(&tiles->tile, turn, sums);
}

/* The statistics of a tile to memory; thread a adds what its rows add to the gradient of log_std. */
DEVICE float add_row_sums(const UpdateArguments *u, const Tile *tile, Work work) {
    const int s = (int)threadIdx.x - 64;
    float total = 0.0f;
    if (s >= 0 && s < ROW_STATS && has_rows(work)) {
        for (int n = 0; n < STRIPS; n++) total += tile->sums[n].stat[s];
        u->tile_stats[((long long)work.number * tiles_of(u->minibatch) + work.tile) * ROW_STATS + s] = total;
    }
    if (DISCRETE || threadIdx.x >= ACTIONS) return 0.0f;
    total = 0.0f;
    for (int n = 0; n < STRIPS; n++) total += tile->sums[n].log_std[threadIdx.x];
    return total;
}

/* --- a minibatch ------------------------------------------------------------------------------------------ */

DEVICE Share own_share(int chains, int count) { return {(int)blockIdx.x, (int)gridDim.x, chains, count}; }

/* Find the rows of the first two tiles. */
DEVICE Course first_course(const UpdateArguments *u, Tiles *tiles, Share share) {
    const Work work = first_work(u, share), next = next_work(u, share, work);
    if (threadIdx.x < TILE) copy_order(u, tiles->row[0], work, threadIdx.x);
    if (threadIdx.x < TILE) copy_order(u, tiles->row[1], next, threadIdx.x);
    wait_for_copies();
    return {work, next, 0};
}

/* Start the copies of the first tile, after a barrier. */
DEVICE void copy_first_rows(const UpdateArguments *u, Tiles *tiles) { copy_rows(u, tiles->tile.x[0], tiles->row[0], tiles->data); }

/* All tiles of this worker; the sums of each chain to memory. A worker without a tile computes one without rows. */
DEVICE void compute_minibatch(const UpdateArguments *u, const Weights *weights, Tiles *tiles, Share share, Course *course) {
    const int number = course->work.number;
    Sums sums = {};
    float log_std = 0.0f;
    do {
        const Work work = course->work, next = course->next, after_next = next_work(u, share, next);
        Sums tile = {};
        compute_tile(u, weights, tiles, course->turn++, work, after_next, &tile);
        add_sums(&sums, &tile);
        log_std += add_row_sums(u, &tiles->tile, work);
        if (chain_ends(share, work, next)) {
            if (has_rows(work)) store_sums(u, work.tile & (share.chains - 1), &sums, log_std);
            sums = {};
            log_std = 0.0f;
        }
        course->work = next, course->next = after_next;
    } while (course->work.number == number && course->work.size > 0);
}

#endif
