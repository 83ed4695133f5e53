/* The actor-critic network of one role on tiles of TILE rows: two hidden layers that policy and value share.
 *
 * A program is compiled for one network: OBS columns of observation, FOURIER octaves, WIDTH1 and WIDTH2 units, ACTIONS,
 * DISCRETE, RELU. Weights are floats in the order W1 [WIDTH1][INPUTS], b1, W2 [WIDTH2][WIDTH1], b2, head
 * [OUTPUTS][WIDTH2], its bias, log_std; the last row of the head is the value. Tiles hold bfloat16 numbers. Acting and
 * learning use the same functions, so that a policy has the same probabilities in both. The readable network is
 * agents/networks/mlp.py; tests compare every row with it. */
#ifndef REMATCH_NETWORK_H
#define REMATCH_NETWORK_H

#include "warp.h"

enum { TILE = 128, THREADS = 512, SIDES = THREADS / 128 }; /* warps: four groups of rows, SIDES groups of columns */
enum { FEATURES = OBS * (1 + 2 * FOURIER), INPUTS = (FEATURES + 15) / 16 * 16, OUTPUTS = ACTIONS + 1 };
enum { HEADS = (OUTPUTS + 15) / 16 * 16 }; /* rows of the head, with padding */
enum { X_STRIDE = INPUTS + 8, H1_STRIDE = WIDTH1 + 8, H2_STRIDE = WIDTH2 + 8, D_STRIDE = HEADS + 8 };
enum { EACH = (TILE * OBS + THREADS - 1) / THREADS }; /* observed numbers of a tile that a thread loads */
enum { W1_AT = 0, B1_AT = W1_AT + WIDTH1 * INPUTS, W2_AT = B1_AT + WIDTH1, B2_AT = W2_AT + WIDTH2 * WIDTH1,
       HEAD_AT = B2_AT + WIDTH2, HEAD_BIAS_AT = HEAD_AT + OUTPUTS * WIDTH2, LOG_STD_AT = HEAD_BIAS_AT + OUTPUTS,
       WEIGHTS_END = LOG_STD_AT + (DISCRETE ? 0 : ACTIONS), WEIGHTS = (WEIGHTS_END + 3) / 4 * 4 };

/* Shared memory of a block: one network and one tile. */
typedef struct {
    half_float w1[WIDTH1 * X_STRIDE];    /* [unit][input] */
    half_float w2[WIDTH2 * H1_STRIDE];   /* [unit][input] */
    half_float head[HEADS * H2_STRIDE];  /* [output][unit], then zeros */
    half_float x[TILE * X_STRIDE];       /* inputs of the tile */
    half_float h1[TILE * H1_STRIDE];     /* first hidden layer; then its gradient */
    half_float h2[TILE * H2_STRIDE];     /* second hidden layer; then its gradient */
    half_float back[TILE * D_STRIDE];    /* gradient of the outputs, then zeros */
    float b1[WIDTH1], b2[WIDTH2], head_bias[OUTPUTS], log_std[ACTIONS];
    float out[TILE * OUTPUTS];           /* outputs of the head */
    int row[TILE];                       /* rows of the arrays that the tile was read from; -1: none */
} Tile;

/* A matrix of weights into shared memory, four numbers at a time; all loads start before the first one is used. */
template <int ROWS, int COLUMNS> DEVICE void load_matrix(half_float *out, int stride, const float *weights) {
    enum { FOURS = ROWS * COLUMNS / 4, EACH = (FOURS + THREADS - 1) / THREADS };
    Four number[EACH];
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int i = threadIdx.x + n * THREADS;
        if (i < FOURS) number[n] = load_four(weights + 4 * i);
    }
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int i = threadIdx.x + n * THREADS;
        if (i >= FOURS) continue;
        unsigned *place = (unsigned *)(out + 4 * i / COLUMNS * stride + 4 * i % COLUMNS);
        place[0] = two_halves(number[n].x, number[n].y);
        place[1] = two_halves(number[n].z, number[n].w);
    }
}

DEVICE void load_weights(Tile *tile, const float *weights) {
    load_matrix<WIDTH1, INPUTS>(tile->w1, X_STRIDE, weights + W1_AT);
    load_matrix<WIDTH2, WIDTH1>(tile->w2, H1_STRIDE, weights + W2_AT);
    for (int i = threadIdx.x; i < WIDTH1; i += THREADS) tile->b1[i] = load_fresh(weights + B1_AT + i);
    for (int i = threadIdx.x; i < WIDTH2; i += THREADS) tile->b2[i] = load_fresh(weights + B2_AT + i);
    for (int i = threadIdx.x; i < HEADS * WIDTH2; i += THREADS)
        tile->head[i / WIDTH2 * H2_STRIDE + i % WIDTH2] = i < OUTPUTS * WIDTH2 ? to_half(load_fresh(weights + HEAD_AT + i)) : 0;
    for (int i = threadIdx.x; i < OUTPUTS; i += THREADS) tile->head_bias[i] = load_fresh(weights + HEAD_BIAS_AT + i);
    if (!DISCRETE)
        for (int i = threadIdx.x; i < ACTIONS; i += THREADS) tile->log_std[i] = load_fresh(weights + LOG_STD_AT + i);
}

/* sin(pi x) on [-1/2, 1/2], as in fused.h. */
DEVICE float sine_half(float x) {
    float q = x * x;
    return x * (3.14159265f + q * (-5.16771278f + q * (2.55016404f + q * (-0.59926453f + q * 0.08214589f))));
}

/* The inputs of one number: itself, then sin and cos of 2^k pi x for k < FOURIER; OBS numbers lie between two of them. */
DEVICE void write_inputs(half_float *x, float number) {
    x[0] = to_half(number);
    if (FOURIER == 0) return;
    float turn = number * 0.5f;
    float y = number - 2.0f * rintf(turn); /* to [-1, 1] */
    float a = fabsf(y), folded = sine_half(a > 0.5f ? 1.0f - a : a);
    float sine = y < 0.0f ? -folded : folded, cosine = sine_half(0.5f - a);
    for (int k = 0; k < FOURIER; k++) {
        x[(1 + 2 * k) * OBS] = to_half(sine);
        x[(2 + 2 * k) * OBS] = to_half(cosine);
        float doubled = 2.0f * sine * cosine;
        cosine = cosine * cosine - sine * sine;
        sine = doubled;
    }
}

/* The observed numbers of this thread, of the rows [TILE] of observations [.][OBS]; all loads start at once. */
DEVICE void load_numbers(float number[EACH], const int *rows, const float *obs) {
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int i = threadIdx.x + n * THREADS, row = i < TILE * OBS ? rows[i / OBS] : -1;
        number[n] = row < 0 ? 0.0f : obs[(long long)row * OBS + i % OBS];
    }
}

/* Fill `x` from the numbers of all threads. */
DEVICE void store_inputs(Tile *tile, const float number[EACH]) {
    enum { PADDING = INPUTS - FEATURES };
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int i = threadIdx.x + n * THREADS;
        if (i < TILE * OBS) write_inputs(tile->x + i / OBS * X_STRIDE + i % OBS, number[n]);
    }
    for (int i = threadIdx.x; i < TILE * PADDING; i += THREADS)
        tile->x[i / (PADDING ? PADDING : 1) * X_STRIDE + FEATURES + i % (PADDING ? PADDING : 1)] = 0;
}

DEVICE float activation(float x) { return RELU ? fmaxf(x, 0.0f) : tanh_near(x); }

/* y [TILE][UNITS] = activation(x [TILE][depth] w^T + bias). */
template <int UNITS>
DEVICE void dense_layer(const half_float *x, int x_stride, int depth, const half_float *w, int w_stride,
                        const float *bias, half_float *y, int y_stride) {
    enum { N = UNITS / 8 / SIDES };
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int row = (warp & 3) * 32, column = (warp >> 2) * (8 * N);
    float sum[2][N][4] = {};
    warp_multiply<2, N, false, false>(sum, x, x_stride, row, w, w_stride, column, depth);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int c = column + 8 * n + 2 * (lane % 4);
        const float low = bias[c], high = bias[c + 1];
#pragma unroll
        for (int m = 0; m < 2; m++)
            for (int part = 0; part < 2; part++)
                *(unsigned *)(y + (row + 16 * m + 8 * part + lane / 4) * y_stride + c) =
                    two_halves(activation(sum[m][n][2 * part] + low), activation(sum[m][n][2 * part + 1] + high));
    }
}

/* The outputs of the head: eight warps, 16 rows each. */
DEVICE void head_layer(Tile *tile) {
    enum { N = HEADS / 8 };
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (warp >= TILE / 16) return;
    float sum[1][N][4] = {};
    warp_multiply<1, N, false, false>(sum, tile->h2, H2_STRIDE, warp * 16, tile->head, H2_STRIDE, 0, WIDTH2);
#pragma unroll
    for (int n = 0; n < N; n++)
        for (int i = 0; i < 4; i++) {
            int line = warp * 16 + 8 * (i / 2) + lane / 4, o = 8 * n + 2 * (lane % 4) + i % 2;
            if (o < OUTPUTS) tile->out[line * OUTPUTS + o] = sum[0][n][i] + tile->head_bias[o];
        }
}

/* From `x` to `out`. The weights must be loaded. */
DEVICE void forward(Tile *tile) {
    __syncthreads();
    dense_layer<WIDTH1>(tile->x, X_STRIDE, INPUTS, tile->w1, X_STRIDE, tile->b1, tile->h1, H1_STRIDE);
    __syncthreads();
    dense_layer<WIDTH2>(tile->h1, H1_STRIDE, WIDTH1, tile->w2, H1_STRIDE, tile->b2, tile->h2, H2_STRIDE);
    __syncthreads();
    head_layer(tile);
    __syncthreads();
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
