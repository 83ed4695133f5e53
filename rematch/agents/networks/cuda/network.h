/* The actor-critic network of one role: two hidden layers that policy and value share.
 *
 * A program is compiled for one network: OBS columns of observation, FOURIER octaves, WIDTH1 and WIDTH2 units, ACTIONS,
 * DISCRETE, RELU, and with WARPGROUPS for a card on which four warps multiply together (group_network.h). Else a warp computes a strip of 16 rows, or some of the units of a strip; numbers between the layers are
 * bfloat16. Acting and learning use the same functions, so that a policy has the same probabilities in both. The readable network is
 * agents/networks/mlp.py; tests compare every row with it.
 *
 * Weights exist twice: as floats, which Adam changes, and as `Weights`, the bytes that a block copies to its shared memory.
 * The order of the floats is W1, W2 (see MatrixPlace), b1, b2, head [OUTPUTS][WIDTH2], its bias, log_std; the last row of the
 * head is the value. */
#ifndef REMATCH_NETWORK_H
#define REMATCH_NETWORK_H

#include "warp.h"

enum { STRIP = 16, GROUP_ROWS = 64 }; /* rows of a warp, of a warpgroup */
enum { FEATURES = OBS * (1 + 2 * FOURIER), INPUTS = (FEATURES + WARPGROUPS + 31) / 32 * 32, PADDING = INPUTS - FEATURES, OUTPUTS = ACTIONS + 1 };
enum { HEADS = (OUTPUTS + 15) / 16 * 16 }; /* rows of the head, with padding */
enum { SPARE = WARPGROUPS ? 0 : 8 }; /* so that rows of a matrix begin in different banks; blocks (warpgroup.h) need none */
enum { X_STRIDE = INPUTS + SPARE, H1_STRIDE = WIDTH1 + SPARE, H2_STRIDE = WIDTH2 + SPARE, D_STRIDE = HEADS + 8 };
enum { W1_AT = 0, W2_AT = W1_AT + WIDTH1 * INPUTS, B1_AT = W2_AT + WIDTH2 * WIDTH1, B2_AT = B1_AT + WIDTH1,
       HEAD_AT = B2_AT + WIDTH2, HEAD_BIAS_AT = HEAD_AT + OUTPUTS * WIDTH2, LOG_STD_AT = HEAD_BIAS_AT + OUTPUTS,
       WEIGHTS_END = LOG_STD_AT + (DISCRETE ? 0 : ACTIONS), WEIGHTS = (WEIGHTS_END + 3) / 4 * 4 };

/* The weights of one network as the layers read them. */
typedef struct {
    half_float w1[WIDTH1 * X_STRIDE];    /* [unit][input] */
    half_float w2[WIDTH2 * H1_STRIDE];   /* [unit][input] */
    half_float head[HEADS * H2_STRIDE];  /* [output][unit], then zeros */
    float b1[WIDTH1], b2[WIDTH2], head_bias[(OUTPUTS + 3) / 4 * 4], log_std[(ACTIONS + 3) / 4 * 4];
    float inv_std[(ACTIONS + 3) / 4 * 4], variance[(ACTIONS + 3) / 4 * 4]; /* of a Gaussian policy, from log_std */
} Weights;

/* A strip between two layers: in [j] columns 16 j to 16 j + 15, as the tensor cores take them as the left factor. */
template <int UNITS> struct Strip { unsigned pair[UNITS / 16][4]; };

/* The floats of a matrix [ROWS][COLUMNS] have the order [warp][tile][lane][4], so that a lane stores at once four sums of its
 * gradient: those of rows `row` and `row` + 8, columns `column` and the next. Its gradient is computed by 8 warps, two groups
 * of rows and four sides of columns, each with tiles of 16 x 8; with WARPGROUPS by 4 warps of 16 rows, tile after tile. */
typedef struct { int row, column; } MatrixPlace;

template <int ROWS, int COLUMNS> DEVICE MatrixPlace matrix_place(int i) { /* i: a multiple of 4 */
    const int lane = i % 128 / 4, line = lane / 4, pair = lane % 4 * 2;
    if (WARPGROUPS) return {i / (COLUMNS * 16) * 16 + line, i / 128 % (COLUMNS / 8) * 8 + pair};
    enum { ROW_TILES = ROWS / 32, COLUMN_TILES = COLUMNS / 32, TILES = ROW_TILES * COLUMN_TILES };
    const int tile = i / 128 % TILES, warp = i / 128 / TILES;
    return {warp % 2 * (ROWS / 2) + tile / COLUMN_TILES * 16 + line, warp / 2 * (COLUMNS / 4) + tile % COLUMN_TILES * 8 + pair};
}

/* Where a number of a matrix [ROWS][.] lies in `Weights`: row after row, or with WARPGROUPS in blocks of 8 x 8, the blocks of
 * a column below each other. */
template <int ROWS> DEVICE int place_in(int row, int column, int stride) {
    return WARPGROUPS ? (column / 8 * (ROWS / 8) + row / 8) * 64 + row % 8 * 8 + column % 8 : row * stride + column;
}

template <int ROWS, int COLUMNS> DEVICE void place_in_matrix(half_float *out, int stride, int i, Four number) {
    const MatrixPlace place = matrix_place<ROWS, COLUMNS>(i);
    *(unsigned *)(out + place_in<ROWS>(place.row, place.column, stride)) = two_halves(number.x, number.y);
    *(unsigned *)(out + place_in<ROWS>(place.row + 8, place.column, stride)) = two_halves(number.z, number.w);
}

/* Four floats from place i on (a multiple of 4) to their places in `Weights`. */
DEVICE void place_weights(Weights *to, int i, Four number) {
    if (i < W2_AT) return place_in_matrix<WIDTH1, INPUTS>(to->w1, X_STRIDE, i, number);
    if (i < B1_AT) return place_in_matrix<WIDTH2, WIDTH1>(to->w2, H1_STRIDE, i - W2_AT, number);
    const float each[4] = {number.x, number.y, number.z, number.w};
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const int at = i + n;
        if (at < B2_AT) to->b1[at - B1_AT] = each[n];
        else if (at < HEAD_AT) to->b2[at - B2_AT] = each[n];
        else if (at < HEAD_BIAS_AT) to->head[place_in<HEADS>((at - HEAD_AT) / WIDTH2, (at - HEAD_AT) % WIDTH2, H2_STRIDE)] = to_half(each[n]);
        else if (at < LOG_STD_AT) to->head_bias[at - HEAD_BIAS_AT] = each[n];
        else if (at < WEIGHTS_END) {
            to->log_std[at - LOG_STD_AT] = each[n];
            to->inv_std[at - LOG_STD_AT] = expf(-each[n]);
            to->variance[at - LOG_STD_AT] = expf(2.0f * each[n]);
        }
    }
}

/* Copy `Weights` to shared memory by COUNT threads; all loads start before the first store. */
template <int COUNT> DEVICE void load_weights(Weights *to, const Weights *from) {
    enum { FOURS = sizeof(Weights) / 16, EACH = (FOURS + COUNT - 1) / COUNT };
    Four number[EACH];
#pragma unroll
    for (int n = 0; n < EACH; n++)
        if ((int)threadIdx.x + n * COUNT < FOURS) number[n] = load_four((const float *)from + 4 * (threadIdx.x + n * COUNT));
#pragma unroll
    for (int n = 0; n < EACH; n++)
        if ((int)threadIdx.x + n * COUNT < FOURS) store_four((float *)to + 4 * (threadIdx.x + n * COUNT), number[n]);
}

/* The `Weights` of several networks from their floats [.][WEIGHTS]; what is padding must be zero. grid (blocks, networks). */
extern "C" __global__ void pack(const float *weights, Weights *to) {
    for (int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x); i < WEIGHTS; i += 4 * gridDim.x * blockDim.x)
        place_weights(to + blockIdx.y, i, load_four(weights + (long long)blockIdx.y * WEIGHTS + i));
}

/* sin(pi x) on [-1/2, 1/2], as in fused.h. */
DEVICE float sine_half(float x) {
    float q = x * x;
    return x * (3.14159265f + q * (-5.16771278f + q * (2.55016404f + q * (-0.59926453f + q * 0.08214589f))));
}

/* A number of the inputs of some rows: row after row, or with WARPGROUPS in blocks, which have a spare row between columns of
 * blocks so that neighbouring blocks of a row begin in different banks. */
enum { X_STEP = GROUP_ROWS * 8 + 8 }; /* from a block to the next one along a row */
DEVICE int x_place(int row, int column) { return WARPGROUPS ? column / 8 * X_STEP + row * 8 + column % 8 : row * X_STRIDE + column; }

/* The inputs of the number in `column`: itself, then sin and cos of 2^k pi x for k < FOURIER; OBS numbers lie between two. */
DEVICE void write_inputs(half_float *x, int row, int column, float number) {
    x[x_place(row, column)] = to_half(number);
    if (FOURIER == 0) return;
    float turn = number * 0.5f;
    float y = number - 2.0f * rintf(turn); /* to [-1, 1] */
    float a = fabsf(y), folded = sine_half(a > 0.5f ? 1.0f - a : a);
    float sine = y < 0.0f ? -folded : folded, cosine = sine_half(0.5f - a);
    for (int k = 0; k < FOURIER; k++) {
        x[x_place(row, column + (1 + 2 * k) * OBS)] = to_half(sine);
        x[x_place(row, column + (2 + 2 * k) * OBS)] = to_half(cosine);
        float doubled = 2.0f * sine * cosine;
        cosine = cosine * cosine - sine * sine;
        sine = doubled;
    }
}

/* The inputs of ROWS rows from their numbers [ROWS][OBS], by COUNT threads. Behind them zeros; with WARPGROUPS a one comes
 * first, with which the gradient of the biases is a product too. */
template <int ROWS, int COUNT> DEVICE void write_all_inputs(half_float *x, const float *number) {
    const int thread = threadIdx.x % COUNT;
#pragma unroll 2
    for (int i = thread; i < ROWS * OBS; i += COUNT) write_inputs(x, i / OBS, i % OBS, number[i]);
#pragma unroll 1
    for (int i = thread; i < ROWS * PADDING; i += COUNT) {
        const int column = i % (PADDING ? PADDING : 1);
        x[x_place(i / (PADDING ? PADDING : 1), FEATURES + column)] = WARPGROUPS && column == 0 ? 0x3F80 : 0;
    }
}

DEVICE float activation(float x) { return RELU ? fmaxf(x, 0.0f) : tanh_near(x); }

DEVICE void start_from_bias(float sum[4], const float *bias, int column) {
    const int c = column + 2 * (threadIdx.x % 4);
    sum[0] = sum[2] = bias[c];
    sum[1] = sum[3] = bias[c + 1];
}

DEVICE void activate(unsigned pair[4], const float low[4], const float high[4]) {
    pair[0] = two_halves(activation(low[0]), activation(low[1]));
    pair[1] = two_halves(activation(low[2]), activation(low[3]));
    pair[2] = two_halves(activation(high[0]), activation(high[1]));
    pair[3] = two_halves(activation(high[2]), activation(high[3]));
}

/* Units `unit` to `unit` + UNITS - 1 of the first layer of a strip, from x [.][X_STRIDE]. */
template <int UNITS> DEVICE void first_layer(const Weights *weights, const half_float *x, int row, int unit, Strip<UNITS> &y) {
    float sum[UNITS / 8][4];
#pragma unroll
    for (int n = 0; n < UNITS / 8; n++) start_from_bias(sum[n], weights->b1, unit + 8 * n);
#pragma unroll 2
    for (int k = 0; k < INPUTS; k += 16) {
        unsigned left[4], right[4];
        load_a<false>(left, x, X_STRIDE, row, k);
#pragma unroll
        for (int j = 0; j < UNITS / 16; j++) {
            load_b<false>(right, weights->w1, X_STRIDE, k, unit + 16 * j);
            multiply_add(sum[2 * j], left, right);
            multiply_add(sum[2 * j + 1], left, right + 2);
        }
    }
#pragma unroll
    for (int j = 0; j < UNITS / 16; j++) activate(y.pair[j], sum[2 * j], sum[2 * j + 1]);
}

template <int UNITS> DEVICE void second_layer(const Weights *weights, const Strip<WIDTH1> &x, int unit, Strip<UNITS> &y) {
#pragma unroll
    for (int j = 0; j < UNITS / 16; j++) {
        float sum[2][4];
        start_from_bias(sum[0], weights->b2, unit + 16 * j);
        start_from_bias(sum[1], weights->b2, unit + 16 * j + 8);
#pragma unroll
        for (int k = 0; k < WIDTH1 / 16; k++) {
            unsigned right[4];
            load_b<false>(right, weights->w2, H1_STRIDE, 16 * k, unit + 16 * j);
            multiply_add(sum[0], x.pair[k], right);
            multiply_add(sum[1], x.pair[k], right + 2);
        }
        activate(y.pair[j], sum[0], sum[1]);
    }
}

/* The outputs of a strip into out [.][OUTPUTS], from its first row on. */
DEVICE void head_layer(const Weights *weights, const Strip<WIDTH2> &x, float *out) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int j = 0; j < HEADS / 16; j++) {
        float sum[2][4] = {};
#pragma unroll
        for (int k = 0; k < WIDTH2 / 16; k++) {
            unsigned right[4];
            load_b<false>(right, weights->head, H2_STRIDE, 16 * k, 16 * j);
            multiply_add(sum[0], x.pair[k], right);
            if (16 * j + 8 < OUTPUTS) multiply_add(sum[1], x.pair[k], right + 2);
        }
        for (int i = 0; i < 8; i++) {
            const int line = lane / 4 + 8 * (i % 4 / 2), o = 16 * j + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            if (o < OUTPUTS) out[line * OUTPUTS + o] = sum[i / 4][i % 4] + weights->head_bias[o];
        }
    }
}

/* Logarithms of the action probabilities of one row; -inf where the mask forbids an action. */
DEVICE void log_softmax(const float *logits, const unsigned char *mask, float *logp) {
    float largest = -INFINITY, sum = 0.0f;
    for (int a = 0; a < ACTIONS; a++)
        if ((!mask || mask[a]) && logits[a] > largest) largest = logits[a];
    for (int a = 0; a < ACTIONS; a++)
        if (!mask || mask[a]) sum += expf(logits[a] - largest);
    float total = largest + logf(sum);
    for (int a = 0; a < ACTIONS; a++) logp[a] = !mask || mask[a] ? logits[a] - total : -INFINITY;
}

#define HALF_LOG_2PI 0.918938533f

#endif
