/* The gradient of the PPO loss (agents/learners/ppo.py) of a tile of TILE rows.
 *
 * Each strip of a tile belongs to two warps, which compute half of the units each: forward, the loss of each row, and back
 * through the layers. What the gradients of the weights need goes to shared memory; then all warps share those products. */
#ifndef REMATCH_PPO_GRADIENT_H
#define REMATCH_PPO_GRADIENT_H

#include "ppo_loss.h"

enum { THREADS = 512, STRIPS = TILE / STRIP, HALF1 = WIDTH1 / 2, HALF2 = WIDTH2 / 2 };
/* The gradients of both matrices are shared by 8 warps each: two groups of rows, four sides of columns. */
enum { W1_ROWS = WIDTH1 / 32, W1_TILES = INPUTS / 32, W2_ROWS = WIDTH2 / 32, W2_TILES = WIDTH1 / 32 };
enum { ROW_TILES = W1_ROWS > W2_ROWS ? W1_ROWS : W2_ROWS, COLUMN_TILES = W1_TILES > W2_TILES ? W1_TILES : W2_TILES };
enum { BIASES = ROW_TILES > HEADS / 16 ? ROW_TILES : HEADS / 16, HEAD_TILES = WIDTH2 / 64 };

/* Shared memory of a tile; gradients are those of the sums that the layers' activations were computed from. */
typedef struct {
    half_float x[2][TILE * X_STRIDE];                       /* inputs of this tile and of the next */
    half_float h1[TILE * H1_STRIDE], h2[TILE * H2_STRIDE];  /* hidden layers */
    half_float d1[TILE * H1_STRIDE], d2[TILE * H2_STRIDE];  /* their gradients */
    half_float back[TILE * D_STRIDE];                       /* gradient of the outputs, then zeros */
    float out[TILE * OUTPUTS];                              /* outputs of the head */
    RowSums sums[STRIPS];                                   /* of the rows of each strip */
} Tile;

/* Sums of one thread. Warps 0 to 7: `matrix` and `bias` of the first layer; 8 to 15: of the second layer, and `head`; warp
 * 15: `bias` of the head. */
typedef struct { float matrix[ROW_TILES][COLUMN_TILES][4], head[HEADS / 16][HEAD_TILES][4], bias[BIASES][4]; } Sums;


/* --- one strip ----------------------------------------------------------------------------------------- */

/* The sum over the first 16 lanes of a warp, in lane 0. */
DEVICE float strip_sum(float x) {
#pragma unroll
    for (int step = STRIP / 2; step; step >>= 1) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
}

/* The sums of a strip into row `number` of the tile's sums. */
DEVICE void store_strip_sums(Tile *tile, int number, const RowSums *sums) {
    for (int s = 0; s < ROW_STATS; s++) {
        const float total = strip_sum(sums->stat[s]);
        if ((threadIdx.x & 31) == 0) tile->sums[number].stat[s] = total;
    }
    for (int a = 0; a < ACTIONS && !DISCRETE; a++) {
        const float total = strip_sum(sums->log_std[a]);
        if ((threadIdx.x & 31) == 0) tile->sums[number].log_std[a] = total;
    }
}

template <int UNITS> DEVICE void store_strip(half_float *h, int stride, int row, const Strip<UNITS> &strip) {
    const int lane = threadIdx.x & 31;
    half_float *at = h + (row + lane / 4) * stride + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < UNITS / 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) *(unsigned *)(at + 16 * j + 8 * (i / 2) + (i & 1) * 8 * stride) = strip.pair[j][i];
}

DEVICE float slope(float h) { return RELU ? (h > 0.0f ? 1.0f : 0.0f) : 1.0f - h * h; }

DEVICE unsigned times_slope(float low, float high, unsigned pair) {
    return two_halves(low * slope(to_float((half_float)pair)), high * slope(to_float((half_float)(pair >> 16))));
}

/* y = (d w) * slope(h): from the gradient d of a layer's sums to that of the sums of the layer before it, with outputs h;
 * its units from `unit` on. w [DEPTH][.]. */
template <int DEPTH, int UNITS>
DEVICE void layer_back(const Strip<DEPTH> &d, const half_float *w, int stride, int unit, const Strip<UNITS> &h, Strip<UNITS> &y) {
#pragma unroll
    for (int j = 0; j < UNITS / 16; j++) {
        float sum[2][4] = {};
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            unsigned right[4];
            load_b<true>(right, w, stride, 16 * k, unit + 16 * j);
            multiply_add(sum[0], d.pair[k], right);
            multiply_add(sum[1], d.pair[k], right + 2);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) y.pair[j][i] = times_slope(sum[i / 2][2 * (i & 1)], sum[i / 2][2 * (i & 1) + 1], h.pair[j][i]);
    }
}

template <int UNITS> DEVICE void load_strip(Strip<UNITS> &strip, const half_float *h, int stride, int row) {
#pragma unroll
    for (int k = 0; k < UNITS / 16; k++) load_a<false>(strip.pair[k], h, stride, row, 16 * k);
}

/* This warp's half of a strip, into the arrays of the tile. `turn`: which of the inputs. The two warps of a strip wait for
 * each other where one needs the units of the other. */
DEVICE void learn_strip(const UpdateArguments *u, const Weights *weights, Tile *tile, int turn, const RowData *data, const int *rows, float scale) {
    const int lane = threadIdx.x & 31, number = threadIdx.x >> 6, first = number * STRIP, half = threadIdx.x >> 5 & 1;
    const int unit1 = half * HALF1, unit2 = half * HALF2;
    Strip<HALF1> h1, d1;
    Strip<HALF2> h2, d2;
    RowSums sums = {};
    first_layer(weights, tile->x[turn & 1], first, unit1, h1);
    store_strip(tile->h1 + unit1, H1_STRIDE, first, h1);
    pair_barrier(number);
    Strip<WIDTH1> whole1;
    load_strip(whole1, tile->h1, H1_STRIDE, first);
    second_layer(weights, whole1, unit2, h2);
    store_strip(tile->h2 + unit2, H2_STRIDE, first, h2);
    pair_barrier(number);
    if (half == 0) {
        Strip<WIDTH2> whole2;
        load_strip(whole2, tile->h2, H2_STRIDE, first);
        head_layer(weights, whole2, tile->out + first * OUTPUTS);
        __syncwarp();
        const int line = first + lane;
        if (lane < STRIP) sums = loss_gradient(u, weights, data, line, rows[line], tile->out + line * OUTPUTS, tile->back + line * D_STRIDE, scale);
    }
    pair_barrier(number);
    if (half == 0) store_strip_sums(tile, number, &sums);
    Strip<HEADS> back;
    load_strip(back, tile->back, D_STRIDE, first);
    layer_back(back, weights->head, H2_STRIDE, unit2, h2, d2);
    store_strip(tile->d2 + unit2, H2_STRIDE, first, d2);
    pair_barrier(number);
    Strip<WIDTH2> whole_d2;
    load_strip(whole_d2, tile->d2, H2_STRIDE, first);
    layer_back(whole_d2, weights->w2, H1_STRIDE, unit1, h1, d1);
    store_strip(tile->d1 + unit1, H1_STRIDE, first, d1);
}

/* --- gradients of the weights, all warps ------------------------------------------------------------------ */

DEVICE void add_gradients(const Tile *tile, int turn, Sums *sums) {
    const int warp = threadIdx.x >> 5, group = warp & 1, side = (warp & 7) >> 1;
    if (warp < 8) {
        multiply_transposed<W1_ROWS, W1_TILES, TILE>(sums->matrix, tile->d1, H1_STRIDE, group * (WIDTH1 / 2), tile->x[turn & 1], X_STRIDE, side * 8 * W1_TILES, side == 0,
                                                     sums->bias);
        return;
    }
    multiply_transposed<W2_ROWS, W2_TILES, TILE>(sums->matrix, tile->d2, H2_STRIDE, group * (WIDTH2 / 2), tile->h1, H1_STRIDE, side * 8 * W2_TILES, side == 0, sums->bias);
    multiply_transposed<HEADS / 16, HEAD_TILES, TILE>(sums->head, tile->back, D_STRIDE, 0, tile->h2, H2_STRIDE, (warp - 8) * 8 * HEAD_TILES, warp == 15, sums->bias);
}

#endif
