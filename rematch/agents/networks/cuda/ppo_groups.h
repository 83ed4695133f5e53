/* The tiles of a minibatch by warpgroups (warpgroup.h): each of a block's two computes tiles of 64 rows of its own.
 *
 * A warp has 16 rows of a tile: forward, the loss of each row, and back through the layers, with its numbers in registers.
 * What the gradients of the weights need goes to shared memory; they are products over the 64 rows, which the warpgroup adds to
 * sums in its registers. */
#ifndef REMATCH_PPO_GROUPS_H
#define REMATCH_PPO_GROUPS_H

#include "group_network.h"
#include "work.h"

enum { THREADS = 256, WORKERS = THREADS / GROUP, GROUPS = 128, ADDERS = 16, ADD_LANES = 4 }; /* see ppo.h */
enum { ROW_VALUES = ROW_STATS + ACTIONS + OUTPUTS, VALUE_STRIDE = ROW_VALUES | 1 }; /* what a row adds to sums that are no products */
enum { BIAS_BLOCK = FEATURES / 8 }; /* of the inputs: it has the column of ones */

/* What a warpgroup has of its tiles, in blocks of 8 x 8; gradients are those of the sums that activations were computed from. */
typedef struct {
    half_float x[2][X_SIZE];                                  /* inputs of this tile and of the next */
    half_float h1[TILE * WIDTH1], h2[TILE * WIDTH2];          /* hidden layers */
    half_float d1[TILE * WIDTH1], d2[TILE * WIDTH2];          /* their gradients */
    half_float back[TILE * BACKS];                            /* gradient of the outputs, then zeros */
    float out[TILE * OUTPUTS];                                /* outputs of the head */
    float value[TILE * VALUE_STRIDE], warp_value[TILE / STRIP][ROW_VALUES]; /* of each row; their sums over each warp's rows */
    RowData data[2];                                          /* of this tile and of the next */
    int row[3][TILE];                                         /* of this tile, of the next and of the one after it */
} GroupTile;
typedef struct { GroupTile group[WORKERS]; } Tiles;

/* Where a warpgroup is: its tile, the next one, and how many it had before. */
typedef struct { Work work, next; int turn; } Course;

/* Sums of one thread: of the gradients of both matrices and the head [unit][.], of the second layer's biases (one column), and
 * of a number that no product adds. */
typedef struct { float w1[INPUTS / 8][4], w2[WIDTH1 / 8][4], head[1][4], b2[1][4], value; } Sums;

DEVICE int own_group() { return threadIdx.x / GROUP; }
DEVICE int group_thread() { return threadIdx.x % GROUP; }

/* --- one tile ------------------------------------------------------------------------------------------- */

/* Start the copies of a tile's inputs and of the data of its rows. Two threads copy the inputs of a row, so that each finds
 * its place once; side by side they read 32 bytes at once. */
DEVICE void copy_rows(const UpdateArguments *u, half_float *x, const int *rows, RowData *data) {
    enum { PARTS = INPUTS / 8, EACH = GROUP / TILE }; /* parts of 16 bytes; threads of a row */
    const int line = group_thread() / EACH, first = group_thread() % EACH, own = rows[line];
    const half_float *from = u->inputs + (long long)own * INPUTS + 8 * first;
    half_float *to = x + x_place(line, 8 * first);
#pragma unroll
    for (int part = 0; part < PARTS; part += EACH) {
        if (own >= 0) copy_16_ahead(to + part * X_STEP, from + part * 8);
        else store_four((float *)(to + part * X_STEP), {0.0f, 0.0f, 0.0f, 0.0f});
    }
    for (int i = group_thread(); i < TILE * RECORD / 4; i += GROUP) {
        const int row = rows[i / (RECORD / 4)];
        if (row >= 0) copy_16_ahead(data->number + 4 * i, u->records + (long long)row * RECORD + i % (RECORD / 4) * 4);
    }
}

/* This warp's rows of a layer into blocks. */
template <int UNITS> DEVICE void store_rows(half_float *h, const Strip<UNITS> &strip) {
    const int lane = threadIdx.x & 31;
    half_float *at = h + group_thread() / 32 * (STRIP / 8 * ROW_STEP) + 2 * lane;
#pragma unroll
    for (int j = 0; j < UNITS / 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) *(unsigned *)(at + (2 * j + i / 2) * H_STEP + (i & 1) * ROW_STEP) = strip.pair[j][i];
}

DEVICE float slope(float h) { return RELU ? (h > 0.0f ? 1.0f : 0.0f) : 1.0f - h * h; }

/* From the gradient of a layer's outputs h to that of the sums they were computed from. */
template <int UNITS> DEVICE void times_slope(const float (*sum)[4], const Strip<UNITS> &h, Strip<UNITS> &d) {
#pragma unroll
    for (int j = 0; j < UNITS / 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = sum[2 * j + i / 2] + 2 * (i & 1);
            const unsigned bits = h.pair[j][i];
            d.pair[j][i] = two_halves(pair[0] * slope(__uint_as_float(bits << 16)), pair[1] * slope(__uint_as_float(bits & 0xFFFF0000u)));
        }
}

/* From the outputs of this warp's rows to the gradient at them, and the sums of what the rows add to statistics. */
DEVICE void learn_rows(const UpdateArguments *u, const Weights *weights, GroupTile *tile, const RowData *data, const int *rows, float scale) {
    const int lane = threadIdx.x & 31, warp = group_thread() / 32, line = warp * STRIP + lane;
    if (lane < STRIP) {
        const int number = rows[line];
        float *out = tile->out + line * OUTPUTS, *value = tile->value + line * VALUE_STRIDE;
        const RowSums sums = loss_gradient(u, weights, data, line, number, out, tile->back + line * BACKS, scale);
#pragma unroll
        for (int s = 0; s < ROW_STATS; s++) value[s] = sums.stat[s];
#pragma unroll
        for (int a = 0; a < ACTIONS; a++) value[ROW_STATS + a] = sums.log_std[a];
#pragma unroll
        for (int o = 0; o < OUTPUTS; o++) value[ROW_STATS + ACTIONS + o] = number < 0 ? 0.0f : out[o];
    }
    __syncwarp();
    if (lane >= ROW_VALUES) return;
    float total = 0.0f;
#pragma unroll
    for (int r = 0; r < STRIP; r++) total += tile->value[(warp * STRIP + r) * VALUE_STRIDE + lane];
    tile->warp_value[warp][lane] = total;
}

/* The sums over the rows of a tile: statistics to memory, the others to the thread's sum. */
DEVICE void add_row_values(const UpdateArguments *u, const GroupTile *tile, Work work, Sums *sums) {
    const int n = group_thread();
    if (n >= ROW_VALUES) return;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < TILE / STRIP; w++) total += tile->warp_value[w][n];
    if (n >= ROW_STATS) sums->value += total;
    else if (has_rows(work)) u->tile_stats[((long long)work.number * tiles_of(u->minibatch) + work.tile) * ROW_STATS + n] = total;
}

template <int COLUMNS> DEVICE void add_to(float (*to)[4], const float (*sum)[4]) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) to[n][i] += sum[n][i];
}

/* The gradients of the matrices and of the biases from what the tile has in shared memory. */
DEVICE void add_products(const GroupTile *tile, const half_float *x, Sums *sums) {
    float w1[INPUTS / 8][4], w2[WIDTH1 / 8][4], b2[1][4];
    const Factor d1 = over_rows(tile->d1, H_STEP), d2 = over_rows(tile->d2, H_STEP), inputs = over_rows(x, X_STEP);
    begin_products();
    multiply<WIDTH1, true, true, TILE>(w2, d2, over_rows(tile->h1, H_STEP), false);
    multiply<8, true, true, TILE>(b2, d2, across(inputs, 8 * BIAS_BLOCK), false);
    multiply_wide<INPUTS, true, true, TILE>(w1, d1, inputs);
    wait_for_products();
    add_to<WIDTH1>(sums->w2, w2);
    add_to<8>(sums->b2, b2);
    add_to<INPUTS>(sums->w1, w1);
}

/* Back through the head and the second layer; the gradient of the head. */
DEVICE void go_back(const Weights *weights, GroupTile *tile, const Strip<WIDTH1> &h1, const Strip<WIDTH2> &h2, Sums *sums) {
    Strip<WIDTH1> d1;
    Strip<WIDTH2> d2;
    float head[1][4];
    {
        float sum[WIDTH2 / 8][4];
        const half_float *own = tile->back + group_thread() / 32 * (STRIP * BACKS) + 2 * (threadIdx.x & 31);
        const unsigned back[4] = {*(const unsigned *)own, *(const unsigned *)(own + ROW_STEP), 0, 0}; /* columns from 8 on are zeros */
        begin_products();
        multiply_16<WIDTH2, true>(sum, back, backward_factor<HEADS>(weights->head), false);
        multiply<8, true, true, TILE>(head, over_rows(tile->h2, H_STEP), over_rows(tile->back, 0), false);
        wait_for_products();
        times_slope<WIDTH2>(sum, h2, d2);
    }
    add_to<8>(sums->head, head);
    store_rows(tile->d2, d2);
    float sum[WIDTH1 / 8][4];
    begin_products();
    multiply<WIDTH1, true, WIDTH2>(sum, d2.pair, backward_factor<WIDTH2>(weights->w2), false);
    wait_for_products();
    times_slope<WIDTH1>(sum, h1, d1);
    store_rows(tile->d1, d1);
}

/* Compute a tile; meanwhile copy the next one, and find the rows of the one after it. */
DEVICE void compute_tile(const UpdateArguments *u, const Weights *weights, GroupTile *tile, int turn, Work work, Work after_next, Sums *sums) {
    wait_for_copies();
    show_to_tensor_cores();
    group_barrier(own_group()); /* its inputs are there, and the tile before it is done */
    if (group_thread() < TILE) copy_order(u, tile->row[(turn + 2) % 3], after_next, group_thread());
    copy_rows(u, tile->x[(turn + 1) & 1], tile->row[(turn + 1) % 3], tile->data + ((turn + 1) & 1));
    Strip<WIDTH1> h1;
    Strip<WIDTH2> h2;
    first_group_layer(weights, tile->x[turn & 1], h1);
    store_rows(tile->h1, h1);
    second_group_layer(weights, h1, h2);
    store_rows(tile->h2, h2);
    group_head_layer(weights, h2, tile->out);
    __syncwarp();
    learn_rows(u, weights, tile, tile->data + (turn & 1), tile->row[turn % 3], 1.0f / (float)work.size);
    show_to_tensor_cores();
    group_barrier(own_group()); /* layers and gradients at the outputs are there */
    add_row_values(u, tile, work, sums);
    go_back(weights, tile, h1, h2, sums);
    show_to_tensor_cores();
    group_barrier(own_group()); /* gradients of the layers are there */
    add_products(tile, tile->x[turn & 1], sums);
}

/* --- the sums of a chain of tiles ----------------------------------------------------------------------- */

template <int COLUMNS> DEVICE void store_matrix(float *out, const float (*sum)[4]) {
    float *at = out + group_thread() / 32 * (COLUMNS * 16) + (threadIdx.x & 31) * 4;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) store_four(at + n * 128, {sum[n][0], sum[n][1], sum[n][2], sum[n][3]});
}

/* Write the sums to the place of their chain. */
DEVICE void store_sums(const UpdateArguments *u, int chain, Sums *sums) {
    const int lane = threadIdx.x & 31, unit = group_thread() / 32 * STRIP + lane / 4, column = 2 * (lane % 4);
    float *out = u->partial + (long long)chain * WEIGHTS;
#pragma unroll
    for (int i = 0; i < 4; i++) { /* the column of ones has the gradient of the biases */
        const int line = unit + 8 * (i / 2);
        if (column + i % 2 == FEATURES % 8) {
            out[B1_AT + line] = sums->w1[BIAS_BLOCK][i];
            out[B2_AT + line] = sums->b2[0][i];
            sums->w1[BIAS_BLOCK][i] = 0.0f;
        }
        if (column + i % 2 < OUTPUTS) out[HEAD_AT + (column + i % 2) * WIDTH2 + line] = sums->head[0][i];
    }
    store_matrix<INPUTS>(out + W1_AT, sums->w1);
    store_matrix<WIDTH1>(out + W2_AT, sums->w2);
    const int n = group_thread() - ROW_STATS, a = n, o = n - ACTIONS;
    if (!DISCRETE && a >= 0 && a < ACTIONS) out[LOG_STD_AT + a] = sums->value;
    if (o >= 0 && o < OUTPUTS) out[HEAD_BIAS_AT + o] = sums->value;
    if (group_thread() < WEIGHTS - WEIGHTS_END) out[WEIGHTS_END + group_thread()] = 0.0f;
}

/* --- a minibatch ------------------------------------------------------------------------------------------ */

DEVICE Share own_share(int chains, int count) { return {(int)blockIdx.x * WORKERS + own_group(), (int)gridDim.x * WORKERS, chains, count}; }

/* Find the rows of the first two tiles. */
DEVICE Course first_course(const UpdateArguments *u, Tiles *tiles, Share share) {
    GroupTile *tile = tiles->group + own_group();
    const Work work = first_work(u, share), next = next_work(u, share, work);
    if (group_thread() < TILE) copy_order(u, tile->row[0], work, group_thread());
    if (group_thread() < TILE) copy_order(u, tile->row[1], next, group_thread());
    wait_for_copies();
    return {work, next, 0};
}

/* Start the copies of the first tile, after a barrier. */
DEVICE void copy_first_rows(const UpdateArguments *u, Tiles *tiles) {
    GroupTile *tile = tiles->group + own_group();
    copy_rows(u, tile->x[0], tile->row[0], tile->data);
}

/* All tiles of this warpgroup; the sums of each chain to memory. One without a tile computes one without rows. */
DEVICE void compute_minibatch(const UpdateArguments *u, const Weights *weights, Tiles *tiles, Share share, Course *course) {
    const int number = course->work.number;
    GroupTile *tile = tiles->group + own_group();
    Sums sums = {};
    show_to_tensor_cores();
    __syncthreads(); /* the weights are there */
    do {
        const Work work = course->work, next = course->next, after_next = next_work(u, share, next);
        compute_tile(u, weights, tile, course->turn++, work, after_next, &sums);
        if (chain_ends(share, work, next)) {
            if (has_rows(work)) store_sums(u, work.tile & (share.chains - 1), &sums);
            sums = {};
        }
        course->work = next, course->next = after_next;
    } while (course->work.number == number && course->work.size > 0);
}

#endif
