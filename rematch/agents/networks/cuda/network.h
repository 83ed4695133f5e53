/* The actor-critic network of one role: two hidden layers that policy and value share.
 *
 * A program is compiled for one network: OBS columns of observation, FOURIER octaves, WIDTH1 and WIDTH2 units, ACTIONS,
 * DISCRETE, RELU. Weights are floats in the order W1 [WIDTH1][INPUTS], b1, W2 [WIDTH2][WIDTH1], b2, head
 * [OUTPUTS][WIDTH2], its bias, log_std; the last row of the head is the value. A warp computes a strip of 16 rows; numbers
 * between the layers are bfloat16 and stay in its registers. Acting and learning use the same functions, so that a policy
 * has the same probabilities in both. The readable network is agents/networks/mlp.py; tests compare every row with it. */
#ifndef REMATCH_NETWORK_H
#define REMATCH_NETWORK_H

#include "warp.h"

enum { STRIP = 16 }; /* rows of a warp */
enum { FEATURES = OBS * (1 + 2 * FOURIER), INPUTS = (FEATURES + 15) / 16 * 16, PADDING = INPUTS - FEATURES, OUTPUTS = ACTIONS + 1 };
enum { HEADS = (OUTPUTS + 15) / 16 * 16 }; /* rows of the head, with padding */
enum { X_STRIDE = INPUTS + 8, H1_STRIDE = WIDTH1 + 8, H2_STRIDE = WIDTH2 + 8, D_STRIDE = HEADS + 8 };
enum { W1_AT = 0, B1_AT = W1_AT + WIDTH1 * INPUTS, W2_AT = B1_AT + WIDTH1, B2_AT = W2_AT + WIDTH2 * WIDTH1,
       HEAD_AT = B2_AT + WIDTH2, HEAD_BIAS_AT = HEAD_AT + OUTPUTS * WIDTH2, LOG_STD_AT = HEAD_BIAS_AT + OUTPUTS,
       WEIGHTS_END = LOG_STD_AT + (DISCRETE ? 0 : ACTIONS), WEIGHTS = (WEIGHTS_END + 3) / 4 * 4 };

/* The weights of one network in shared memory. */
typedef struct {
    half_float w1[WIDTH1 * X_STRIDE];    /* [unit][input] */
    half_float w2[WIDTH2 * H1_STRIDE];   /* [unit][input] */
    half_float head[HEADS * H2_STRIDE];  /* [output][unit], then zeros */
    float b1[WIDTH1], b2[WIDTH2], head_bias[(OUTPUTS + 3) / 4 * 4], log_std[(ACTIONS + 3) / 4 * 4];
} Weights;

/* A strip between two layers: in [j] columns 16 j to 16 j + 15, as the tensor cores take them as the left factor. */
template <int UNITS> struct Strip { unsigned pair[UNITS / 16][4]; };

DEVICE void store_halves(half_float *out, Four number) {
    ((unsigned *)out)[0] = two_halves(number.x, number.y);
    ((unsigned *)out)[1] = two_halves(number.z, number.w);
}

/* Four weights from place i on (a multiple of 4) to their places in shared memory. */
DEVICE void place_weights(Weights *to, int i, Four number) {
    const float each[4] = {number.x, number.y, number.z, number.w};
    if (i < B1_AT) store_halves(to->w1 + i / INPUTS * X_STRIDE + i % INPUTS, number);
    else if (i < W2_AT) for (int n = 0; n < 4; n++) to->b1[i - B1_AT + n] = each[n];
    else if (i < B2_AT) store_halves(to->w2 + (i - W2_AT) / WIDTH1 * H1_STRIDE + (i - W2_AT) % WIDTH1, number);
    else if (i < HEAD_AT) for (int n = 0; n < 4; n++) to->b2[i - B2_AT + n] = each[n];
    else if (i < HEAD_BIAS_AT) store_halves(to->head + (i - HEAD_AT) / WIDTH2 * H2_STRIDE + (i - HEAD_AT) % WIDTH2, number);
    else
        for (int n = 0; n < 4; n++) {
            if (i + n < LOG_STD_AT) to->head_bias[i + n - HEAD_BIAS_AT] = each[n];
            else if (i + n < WEIGHTS_END) to->log_std[i + n - LOG_STD_AT] = each[n];
        }
}

/* All weights into shared memory by COUNT threads; all loads start before the first one is used. */
template <int COUNT> DEVICE void load_weights(Weights *to, const float *weights) {
    enum { FOURS = WEIGHTS / 4, EACH = (FOURS + COUNT - 1) / COUNT };
    Four number[EACH];
#pragma unroll
    for (int n = 0; n < EACH; n++)
        if ((int)threadIdx.x + n * COUNT < FOURS) number[n] = load_four(weights + 4 * (threadIdx.x + n * COUNT));
#pragma unroll
    for (int n = 0; n < EACH; n++)
        if ((int)threadIdx.x + n * COUNT < FOURS) place_weights(to, 4 * (threadIdx.x + n * COUNT), number[n]);
}

/* The rows of the head that are padding. */
template <int COUNT> DEVICE void clear_padding(Weights *to) {
    for (int i = threadIdx.x; i < (HEADS - OUTPUTS) * WIDTH2; i += COUNT) to->head[(OUTPUTS + i / WIDTH2) * H2_STRIDE + i % WIDTH2] = 0;
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

/* Inputs of LINES rows into x [LINES][X_STRIDE], by COUNT threads of which this one has number `thread`: rows of
 * observations [.][OBS]; a row below 0 has zeros. All loads start before the first number is used. */
template <int LINES, int COUNT> DEVICE void load_inputs(half_float *x, const int *rows, const float *obs, int thread) {
    enum { EACH = (LINES * OBS + COUNT - 1) / COUNT, BATCH = EACH < 12 ? EACH : 12 };
    for (int from = 0; from < EACH; from += BATCH) {
        float number[BATCH];
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const int i = thread + (from + n) * COUNT, row = i < LINES * OBS ? rows[i / OBS] : -1;
            number[n] = row < 0 ? 0.0f : load_constant(obs + (long long)row * OBS + i % OBS);
        }
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const int i = thread + (from + n) * COUNT;
            if (i < LINES * OBS) write_inputs(x + i / OBS * X_STRIDE + i % OBS, number[n]);
        }
    }
    for (int i = thread; i < LINES * PADDING; i += COUNT)
        x[i / (PADDING ? PADDING : 1) * X_STRIDE + FEATURES + i % (PADDING ? PADDING : 1)] = 0;
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

/* The first layer of a strip, from x [.][X_STRIDE]. */
DEVICE void first_layer(const Weights *weights, const half_float *x, int row, Strip<WIDTH1> &y) {
    float sum[WIDTH1 / 8][4];
#pragma unroll
    for (int n = 0; n < WIDTH1 / 8; n++) start_from_bias(sum[n], weights->b1, 8 * n);
#pragma unroll 2
    for (int k = 0; k < INPUTS; k += 16) {
        unsigned left[4], right[4];
        load_a<false>(left, x, X_STRIDE, row, k);
#pragma unroll
        for (int j = 0; j < WIDTH1 / 16; j++) {
            load_b<false>(right, weights->w1, X_STRIDE, k, 16 * j);
            multiply_add(sum[2 * j], left, right);
            multiply_add(sum[2 * j + 1], left, right + 2);
        }
    }
#pragma unroll
    for (int j = 0; j < WIDTH1 / 16; j++) activate(y.pair[j], sum[2 * j], sum[2 * j + 1]);
}

DEVICE void second_layer(const Weights *weights, const Strip<WIDTH1> &x, Strip<WIDTH2> &y) {
#pragma unroll
    for (int j = 0; j < WIDTH2 / 16; j++) {
        float sum[2][4];
        start_from_bias(sum[0], weights->b2, 16 * j);
        start_from_bias(sum[1], weights->b2, 16 * j + 8);
#pragma unroll
        for (int k = 0; k < WIDTH1 / 16; k++) {
            unsigned right[4];
            load_b<false>(right, weights->w2, H1_STRIDE, 16 * k, 16 * j);
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
