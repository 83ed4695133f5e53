/* Acting in float: the policies of evaluated matches, as they are deployed. The formulas, and the order of the sums, are those
 * of fused.h; a block computes some rows of one seat. Slower than act.h, whose numbers between the layers are bfloat16. */
#ifndef REMATCH_ACT_FLOAT_H
#define REMATCH_ACT_FLOAT_H

#include "act.h"

enum { FLOAT_THREADS = 128, FLOAT_ROWS = 32 };
/* Odd strides: neighbouring units lie in different banks. */
enum { F1_STRIDE = FEATURES | 1, F2_STRIDE = WIDTH1 | 1, F3_STRIDE = WIDTH2 | 1 };

/* One seat of one match. */
typedef struct {
    const float *weights;       /* [P] as in a policy's file */
    const float *obs;           /* [rows][OBS] */
    const unsigned char *mask;  /* [rows][ACTIONS] or NULL */
    const unsigned char *acting; /* [rows][all_seats] */
    float *action;              /* [rows][ACTIONS], continuous */
    int32_t *choice;            /* [rows], discrete */
    const long long *step;
    uint64_t key;
    int32_t w1, b1, w2, b2, head, head_bias, log_std; /* places in `weights` */
    int32_t rows, all_seats, seat, greedy;
} FloatArguments;

typedef struct {
    float w1[WIDTH1 * F1_STRIDE], w2[WIDTH2 * F2_STRIDE], head[ACTIONS * F3_STRIDE];
    float x[FLOAT_ROWS * FEATURES], h1[FLOAT_ROWS * WIDTH1], h2[FLOAT_ROWS * WIDTH2], out[FLOAT_ROWS * ACTIONS];
} FloatMemory;

/* e^x and tanh x as in fused.h. */
DEVICE float exp_near(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    const float p = 1.0f + r * (1.0f + r * (0.5f + r * (0.16666667f + r * (0.041666668f + r * (0.0083333338f + r * 0.0013888889f)))));
    return p * __uint_as_float((__float_as_uint(shifted) + 127u) << 23);
}

DEVICE float float_activation(float x) {
    if (RELU) return x > 0.0f ? x : 0.0f;
    const float c = x < -10.0f ? -10.0f : x > 10.0f ? 10.0f : x;
    return 1.0f - 2.0f / (exp_near(2.0f * c) + 1.0f);
}

DEVICE void float_inputs(float *x, float number) {
    x[0] = number;
    const float y = number - 2.0f * rintf(number * 0.5f), a = fabsf(y), folded = sine_half(a > 0.5f ? 1.0f - a : a);
    float sine = y < 0.0f ? -folded : folded, cosine = sine_half(0.5f - a);
    for (int k = 0; k < FOURIER; k++) {
        x[(1 + 2 * k) * OBS] = sine;
        x[(2 + 2 * k) * OBS] = cosine;
        const float doubled = 2.0f * sine * cosine;
        cosine = cosine * cosine - sine * sine;
        sine = doubled;
    }
}

/* y [FLOAT_ROWS][UNITS] = activation(w x + b); a thread computes one unit of several rows. */
template <int UNITS, int DEPTH> DEVICE void float_layer(const float *w, int stride, const float *bias, const float *x, float *y) {
    enum { EACH = FLOAT_ROWS * UNITS / FLOAT_THREADS };
    const int unit = (int)threadIdx.x % UNITS, first = (int)threadIdx.x / UNITS * EACH;
    float sum[EACH];
#pragma unroll
    for (int r = 0; r < EACH; r++) sum[r] = bias[unit];
#pragma unroll 4
    for (int k = 0; k < DEPTH; k++) {
        const float weight = w[unit * stride + k];
#pragma unroll
        for (int r = 0; r < EACH; r++) sum[r] = fmaf(x[(first + r) * DEPTH + k], weight, sum[r]);
    }
#pragma unroll
    for (int r = 0; r < EACH; r++) y[(first + r) * UNITS + unit] = float_activation(sum[r]);
}

DEVICE void load_rows(float *to, int stride, const float *from, int rows, int columns) {
    for (int i = threadIdx.x; i < rows * columns; i += FLOAT_THREADS) to[i / columns * stride + i % columns] = from[i];
}

DEVICE void float_gaussian(const FloatArguments *a, const float *mean, int row, uint64_t step) {
    float normal[2] = {0.0f, 0.0f};
    for (int d = 0; d < ACTIONS; d++) {
        if (!(d & 1) && !a->greedy) {
            const rm_quad words = rm_philox(a->key, (uint32_t)row, (uint32_t)step, RM_STREAM_ACT | (uint32_t)d << 8, (uint32_t)(step >> 32));
            normals(words.w[0], words.w[1], &normal[0], &normal[1]);
        }
        a->action[(long long)row * ACTIONS + d] = mean[d] + normal[d & 1] * expf(a->weights[a->log_std + d]);
    }
}

DEVICE void float_choice(const FloatArguments *a, const float *logits, int row, uint64_t step) {
    float logp[ACTIONS];
    log_softmax(logits, a->mask ? a->mask + (long long)row * ACTIONS : 0, logp);
    int choice = -1;
    float remaining = a->greedy ? 0.0f : rm_unit(rm_philox(a->key, (uint32_t)row, (uint32_t)step, RM_STREAM_ACT, (uint32_t)(step >> 32)).w[0]);
    for (int c = 0; c < ACTIONS; c++) {
        if (!(logp[c] > -INFINITY)) continue;
        if (a->greedy) {
            if (choice < 0 || logp[c] > logp[choice]) choice = c;
            continue;
        }
        choice = c;
        remaining -= expf(logp[c]);
        if (remaining < 0.0f) break;
    }
    a->choice[row] = choice < 0 ? 0 : choice;
}

/* grid (blocks of rows, seats) */
extern "C" __global__ void __launch_bounds__(FLOAT_THREADS) act_float(const FloatArguments *seats) {
    SHARED_MEMORY;
    FloatMemory *memory = (FloatMemory *)shared_memory;
    const FloatArguments *a = seats + blockIdx.y;
    const int first = blockIdx.x * FLOAT_ROWS;
    if (first >= a->rows) return;
    load_rows(memory->w1, F1_STRIDE, a->weights + a->w1, WIDTH1, FEATURES);
    load_rows(memory->w2, F2_STRIDE, a->weights + a->w2, WIDTH2, WIDTH1);
    load_rows(memory->head, F3_STRIDE, a->weights + a->head, ACTIONS, WIDTH2);
    for (int i = threadIdx.x; i < FLOAT_ROWS * OBS; i += FLOAT_THREADS) {
        const int row = first + i / OBS;
        float_inputs(memory->x + i / OBS * FEATURES + i % OBS, row < a->rows ? a->obs[(long long)row * OBS + i % OBS] : 0.0f);
    }
    __syncthreads();
    float_layer<WIDTH1, FEATURES>(memory->w1, F1_STRIDE, a->weights + a->b1, memory->x, memory->h1);
    __syncthreads();
    float_layer<WIDTH2, WIDTH1>(memory->w2, F2_STRIDE, a->weights + a->b2, memory->h1, memory->h2);
    __syncthreads();
    for (int i = threadIdx.x; i < FLOAT_ROWS * ACTIONS; i += FLOAT_THREADS) {
        const float *h = memory->h2 + i / ACTIONS * WIDTH2, *w = memory->head + i % ACTIONS * F3_STRIDE;
        float sum = a->weights[a->head_bias + i % ACTIONS];
        for (int k = 0; k < WIDTH2; k++) sum = fmaf(h[k], w[k], sum);
        memory->out[i] = sum;
    }
    __syncthreads();
    const int row = first + (int)threadIdx.x;
    if (threadIdx.x >= FLOAT_ROWS || row >= a->rows || !a->acting[(long long)row * a->all_seats + a->seat]) return;
    const uint64_t step = (uint64_t)*a->step;
    if (DISCRETE) float_choice(a, memory->out + threadIdx.x * ACTIONS, row, step);
    else float_gaussian(a, memory->out + threadIdx.x * ACTIONS, row, step);
}

#endif
