/* The layers of network.h for 64 rows by a warpgroup (warpgroup.h): a warp has 16 of the rows, from the inputs to the outputs. */
#ifndef REMATCH_GROUP_NETWORK_H
#define REMATCH_GROUP_NETWORK_H

#include "network.h"
#include "warpgroup.h"

enum { X_SIZE = INPUTS / 8 * X_STEP, ROW_STEP = 64, H_STEP = GROUP_ROWS * 8 }; /* steps between blocks: of inputs and hidden layers */

/* Matrices of `Weights` as right factors: forward [output][k], backward [k][output]. */
template <int ROWS> DEVICE Factor forward_factor(const half_float *w) { return {w, ROWS * 8, ROW_STEP}; }
template <int ROWS> DEVICE Factor backward_factor(const half_float *w) { return {w, ROW_STEP, ROWS * 8}; }

/* Rows of a warpgroup as a factor of a sum over them. */
DEVICE Factor over_rows(const half_float *h, int step) { return {h, ROW_STEP, step}; }

template <int UNITS> DEVICE void start_layer(float (*sum)[4], const float *bias) {
#pragma unroll
    for (int n = 0; n < UNITS / 8; n++) start_from_bias(sum[n], bias, 8 * n);
}

template <int UNITS> DEVICE void finish_layer(const float (*sum)[4], Strip<UNITS> &y) {
    wait_for_products();
#pragma unroll
    for (int j = 0; j < UNITS / 16; j++) activate(y.pair[j], sum[2 * j], sum[2 * j + 1]);
}

/* x: inputs in blocks. */
DEVICE void first_group_layer(const Weights *weights, const half_float *x, Strip<WIDTH1> &y) {
    float sum[WIDTH1 / 8][4];
    start_layer<WIDTH1>(sum, weights->b1);
    begin_products();
    multiply<WIDTH1, false, false, INPUTS>(sum, {x, X_STEP, ROW_STEP}, forward_factor<WIDTH1>(weights->w1), true);
    finish_layer<WIDTH1>(sum, y);
}

DEVICE void second_group_layer(const Weights *weights, const Strip<WIDTH1> &x, Strip<WIDTH2> &y) {
    float sum[WIDTH2 / 8][4];
    start_layer<WIDTH2>(sum, weights->b2);
    begin_products();
    multiply<WIDTH2, false, WIDTH1>(sum, x.pair, forward_factor<WIDTH2>(weights->w2), true);
    finish_layer<WIDTH2>(sum, y);
}

/* The outputs of this warp's rows into out [.][OUTPUTS]; OUTPUTS is at most 8. */
DEVICE void group_head_layer(const Weights *weights, const Strip<WIDTH2> &x, float *out) {
    const int lane = threadIdx.x & 31, first = (threadIdx.x % GROUP) / 32 * STRIP;
    float sum[1][4];
    begin_products();
    multiply<8, false, WIDTH2>(sum, x.pair, forward_factor<HEADS>(weights->head), false);
    wait_for_products();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int line = first + lane / 4 + 8 * (i / 2), o = 2 * (lane % 4) + i % 2;
        if (o < OUTPUTS) out[line * OUTPUTS + o] = sum[0][i] + weights->head_bias[o];
    }
}

#endif
