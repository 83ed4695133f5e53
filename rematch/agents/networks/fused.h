/* A small actor-critic network in plain C: acting, and the whole PPO gradient of a minibatch.
 *
 * Samples are computed in blocks of 64, so that the activations of a block stay in the L1 and L2 caches:
 * gather, forward, loss, backward, then the next block. All products use the one tiled kernel `matmul`.
 * Gradients are summed per chunk of blocks and the chunks added in order, so that no result depends on the
 * number of threads; the output of a row depends on that row alone.
 *
 * The readable reference of this file is agents/networks/mlp.py with agents/learners/ppo.py; tests compare every gradient. */
#ifndef REMATCH_FUSED_H
#define REMATCH_FUSED_H

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../worlds/native/random.h"
#include "fused_math.h"

enum { BLOCK = 64, MAX_LAYERS = 8, CHUNKS = 16, MAX_THREADS = 64, PAD = 16 };

/* --- the network's shape ------------------------------------------------------------------------- */

/* One layer; weight and bias are offsets into packed weights. The gradient of the weights is summed as [in_pad][out_pad], or
 * `turned`, [out_pad][in_pad]: whichever leaves out more of the padding. */
typedef struct { int in, in_pad, out, out_pad, weight, bias, turned; } Dense;

typedef struct {
    int obs, fourier;                    /* observation columns; octaves of sine and cosine added to each number */
    int privileged;                      /* columns that only the critic reads, after those of the observation */
    int actions, discrete, shared, relu, layers;
    int width[MAX_LAYERS];
    const int *categories;               /* [obs + privileged] number of categories of a column; 0: a number */
    const int *first_row;                /* [obs + privileged] first row of that column in the table */
    /* derived by net_plan, those with [2] for each tower: */
    int columns[2];                      /* input columns */
    int numbers[2], categorical[2];      /* input columns of either kind */
    int rows[2];                         /* rows of the table: the sum of all categories */
    int inputs[2];                       /* numbers * (1 + 2 * fourier) */
    int towers;                          /* 1: actor and critic share the trunk; 2: one tower each */
    int input_sets;                      /* 1: both towers have the same inputs; 2: the critic also reads privileged columns */
    int packed;                          /* floats of packed weights: layers, log_std, then a table per tower */
    int log_std;                         /* its offset when packed */
    int layers_size;                     /* packed floats before the tables */
    int table[2];                        /* offsets of the tables, [rows][out_pad of the first layer] */
    long flat_table[2];                  /* their offsets in flat weights, [rows][width[0]] */
    Dense dense[2][MAX_LAYERS + 1];      /* per tower: the hidden layers, then the head */
} Net;

static inline int padded(int n) { return (n + PAD - 1) / PAD * PAD; }
static inline int fours(int n) { return (n + 3) / 4 * 4; }

/* Packed: per layer weight [in_pad][out_pad] and bias [out_pad], zero where padded. A categorical column
 * adds the table row of its category to the first layer: the product with a one-hot vector, without the zeros. */
static void net_plan(Net *net) {
    net->towers = net->shared ? 1 : 2;
    net->input_sets = net->privileged ? 2 : 1;
    for (int t = 0; t < 2; t++) {
        net->columns[t] = net->obs + (t ? net->privileged : 0);
        net->numbers[t] = net->categorical[t] = net->rows[t] = 0;
        for (int c = 0; c < net->columns[t]; c++) {
            if (net->categories[c]) net->categorical[t]++;
            else net->numbers[t]++;
            net->rows[t] += net->categories[c];
        }
        net->inputs[t] = net->numbers[t] * (1 + 2 * net->fourier);
    }
    int at = 0;
    for (int t = 0; t < net->towers; t++)
        for (int l = 0; l <= net->layers; l++) {
            Dense *d = &net->dense[t][l];
            d->in = l ? net->width[l - 1] : net->inputs[t];
            if (l < net->layers) d->out = net->width[l];
            else d->out = net->shared ? net->actions + 1 : t == 0 ? net->actions : 1;
            d->in_pad = padded(d->in);
            d->out_pad = padded(d->out);
            d->turned = fours(d->out) * d->in_pad < fours(d->in) * d->out_pad;
            d->weight = at;
            at += d->in_pad * d->out_pad;
            d->bias = at;
            at += d->out_pad;
        }
    net->log_std = at;
    at += net->discrete ? 0 : padded(net->actions);
    net->layers_size = at;
    for (int t = 0; t < net->towers; t++) net->table[t] = at, at += net->rows[t] * net->dense[t][0].out_pad;
    net->packed = at;
    long tower = 0; /* flat floats of the first tower: its layers, then the policy head */
    for (int l = 0; l < net->layers; l++) tower += (long)net->width[l] * (net->dense[0][l].in + 1);
    tower += (long)net->rows[0] * net->width[0] + (long)net->actions * (net->width[net->layers - 1] + 1);
    net->flat_table[0] = (long)net->width[0] * (net->inputs[0] + 1);
    net->flat_table[1] = tower + (long)net->width[0] * (net->inputs[1] + 1);
}

/* Moves one layer between flat (torch's order: weight [out][in], bias [out]) and packed. */
static const float *pack_rows(const Dense *d, int first, int rows, const float *flat, float *packed) {
    transpose(rows, d->in, flat, d->in, packed + d->weight + first, d->out_pad);
    flat += rows * d->in;
    for (int o = 0; o < rows; o++) packed[d->bias + first + o] = flat[o];
    return flat + rows;
}

/* The reverse, for gradients. */
static float *unpack_rows(const Dense *d, int first, int rows, const float *grad, float *flat) {
    if (d->turned)
        for (long o = 0; o < rows; o++) memcpy(flat + o * d->in, grad + d->weight + (first + o) * d->in_pad, sizeof(float) * (size_t)d->in);
    else
        transpose(d->in, rows, grad + d->weight + first, d->out_pad, flat, d->in);
    flat += rows * d->in;
    for (int o = 0; o < rows; o++) flat[o] = grad[d->bias + first + o];
    return flat + rows;
}

static const float *pack_tower(const Net *net, int t, const float *flat, float *packed) {
    int width = net->width[0], wide = net->dense[t][0].out_pad;
    for (int l = 0; l < net->layers; l++) {
        flat = pack_rows(&net->dense[t][l], 0, net->width[l], flat, packed);
        if (l) continue;
        for (long r = 0; r < net->rows[t]; r++, flat += width) {
            float *row = packed + net->table[t] + r * wide;
            memcpy(row, flat, sizeof(float) * (size_t)width);
            memset(row + width, 0, sizeof(float) * (size_t)(wide - width));
        }
    }
    return flat;
}

/* Flat order: policy tower, policy head, (value tower,) value head, log_std; a tower's table follows its first layer. */
static void net_pack(const Net *net, const float *flat, float *packed) {
    int top = net->layers, A = net->actions;
    memset(packed, 0, sizeof(float) * (size_t)net->layers_size);
    flat = pack_tower(net, 0, flat, packed);
    flat = pack_rows(&net->dense[0][top], 0, A, flat, packed);
    if (!net->shared) flat = pack_tower(net, 1, flat, packed);
    flat = pack_rows(&net->dense[net->towers - 1][top], net->shared ? A : 0, 1, flat, packed);
    if (!net->discrete) memcpy(packed + net->log_std, flat, sizeof(float) * (size_t)A);
}

static float *unpack_tower(const Net *net, int t, const float *grad, float *flat) {
    for (int l = 0; l < net->layers; l++) {
        flat = unpack_rows(&net->dense[t][l], 0, net->width[l], grad, flat);
        if (!l) flat += (size_t)net->rows[t] * (size_t)net->width[0];
    }
    return flat;
}

/* The reverse of net_pack for a gradient, without the tables. */
static void net_unpack(const Net *net, const float *grad, float *flat) {
    int top = net->layers, A = net->actions;
    flat = unpack_tower(net, 0, grad, flat);
    flat = unpack_rows(&net->dense[0][top], 0, A, grad, flat);
    if (!net->shared) flat = unpack_tower(net, 1, grad, flat);
    flat = unpack_rows(&net->dense[net->towers - 1][top], net->shared ? A : 0, 1, grad, flat);
    if (!net->discrete) memcpy(flat, grad + net->log_std, sizeof(float) * (size_t)A);
}

/* --- one block ------------------------------------------------------------------------------------- */

typedef struct {
    float *input[2];                      /* [BLOCK][in_pad] of each tower; the same pointer if both have the same inputs */
    int32_t *table_rows[2];               /* [BLOCK][categorical] rows of the table; -1: no such category */
    float *first_back[2];                 /* [BLOCK][out_pad] output of `backward`: d loss / d first layer, or NULL */
    float *out[2][MAX_LAYERS + 1];        /* [BLOCK][out_pad] activations, then the heads */
    float *back[2];                       /* two [BLOCK][widest] buffers of the backward pass */
    float *head_back[2];                  /* [BLOCK][head out_pad] */
    float *memory;
} Block;

/* Memory for `rows` rows, a multiple of 4 and at most BLOCK, with that of the backward pass where it `learns`. */
static int block_make(const Net *net, Block *b, int rows, int learns) {
    size_t widest = PAD, total = 0, count = (size_t)rows;
    for (int t = 0; t < net->towers; t++)
        for (int l = 0; l <= net->layers; l++) {
            total += (size_t)net->dense[t][l].out_pad;
            if ((size_t)net->dense[t][l].out_pad > widest) widest = (size_t)net->dense[t][l].out_pad;
        }
    if (learns) total += 2 * widest;
    for (int t = 0; t < net->towers && learns; t++) total += (size_t)net->dense[t][net->layers].out_pad;
    for (int e = 0; e < net->input_sets; e++) total += (size_t)net->dense[e][0].in_pad + (size_t)net->categorical[e];
    if (posix_memalign((void **)&b->memory, 64, sizeof(float) * count * total)) return 0;
    memset(b->memory, 0, sizeof(float) * count * total);
    float *at = b->memory;
    for (int e = 0; e < net->input_sets; e++) b->input[e] = at, at += rows * net->dense[e][0].in_pad;
    for (int t = 0; t < net->towers; t++)
        for (int l = 0; l <= net->layers; l++) b->out[t][l] = at, at += rows * net->dense[t][l].out_pad;
    for (int t = 0; t < net->towers && learns; t++) b->head_back[t] = at, at += rows * net->dense[t][net->layers].out_pad;
    for (int i = 0; i < 2 && learns; i++) b->back[i] = at, at += count * widest;
    for (int e = 0; e < net->input_sets; e++) b->table_rows[e] = (int32_t *)at, at += rows * net->categorical[e];
    if (net->input_sets == 1) b->input[1] = b->input[0], b->table_rows[1] = b->table_rows[0];
    b->first_back[0] = b->first_back[1] = NULL;
    return 1;
}

/* y += the table rows of the categories of one sample; NaN for an unknown category. */
static inline void add_table_rows(int categorical, const float *table, int wide, const int32_t *table_rows, float *y) {
    for (int k = 0; k < categorical; k++) {
        if (table_rows[k] < 0) {
            for (int n = 0; n < wide; n++) y[n] = NAN;
            return;
        }
        const float *row = table + (size_t)table_rows[k] * (size_t)wide;
        for (int n = 0; n < wide; n += LANES) *(vec *)(y + n) += *(const vec *)(row + n);
    }
}

/* Computes the first `rows` rows of a block, rounded up to a multiple of 4, for the first `towers` towers. */
static void forward(const Net *net, const float *packed, Block *b, int rows, int towers) {
    rows = fours(rows);
    for (int t = 0; t < towers; t++) {
        const float *x = b->input[t];
        for (int l = 0; l <= net->layers; l++) {
            const Dense *d = &net->dense[t][l];
            float *y = b->out[t][l];
            if (is_few(d->out, d->in)) matmul_few(rows, d->in, x, d->in_pad, packed + d->weight, packed + d->bias, y);
            else matmul(rows, d->out_pad, d->in, x, d->in_pad, 1, packed + d->weight, d->out_pad, packed + d->bias, 0, y, d->out_pad, 0);
            if (!l && net->categorical[t])
                for (int r = 0; r < rows; r++)
                    add_table_rows(net->categorical[t], packed + net->table[t], d->out_pad, b->table_rows[t] + r * net->categorical[t], y + r * d->out_pad);
            if (l < net->layers) activate(net->relu, rows * d->out_pad, y);
            x = y;
        }
    }
}

static inline const float *policy_out(const Net *net, const Block *b, int row) {
    return b->out[0][net->layers] + row * net->dense[0][net->layers].out_pad;
}

static inline float value_out(const Net *net, const Block *b, int row) {
    int t = net->towers - 1;
    return b->out[t][net->layers][row * net->dense[t][net->layers].out_pad + (net->shared ? net->actions : 0)];
}

/* Sums over the rows of the block of B[row][n]; a sum waits for its last addition, so four run side by side. */
static void add_rows(long columns, const float *B, float *sums, int mode) {
    for (long n = 0; n < columns; n += 4 * LANES) {
        long vectors = columns - n < 4 * LANES ? (columns - n) / LANES : 4;
        vec sum[4];
        for (long c = 0; c < vectors; c++) sum[c] = mode == CONTINUE ? *(const vec *)(sums + n + c * LANES) : (vec){0};
        if (vectors == 4)
            for (long r = 0; r < BLOCK; r++)
#pragma GCC unroll 4
                for (long c = 0; c < 4; c++) sum[c] += *(const vec *)(B + r * columns + n + c * LANES);
        else
            for (long c = 0; c < vectors; c++)
                for (long r = 0; r < BLOCK; r++) sum[c] += *(const vec *)(B + r * columns + n + c * LANES);
        for (long c = 0; c < vectors; c++) {
            vec *out = (vec *)(sums + n + c * LANES);
            if (mode == ADD) sum[c] = *out + sum[c];
            *out = sum[c];
        }
    }
}

/* Sums the weight gradients of this block into `grad` (packed); head_back contains d loss / d head. */
static void backward(const Net *net, const float *transposed, Block *b, float *grad, int mode) {
    for (int t = 0; t < net->towers; t++) {
        const float *dy = b->head_back[t];
        for (int l = net->layers; l >= 0; l--) {
            const Dense *d = &net->dense[t][l];
            const float *x = l ? b->out[t][l - 1] : b->input[t];
            float *sum = grad + d->weight;
            const float *start = mode == CONTINUE ? sum : NULL;
            if (d->turned) matmul(fours(d->out), d->in_pad, BLOCK, dy, 1, d->out_pad, x, d->in_pad, start, d->in_pad, sum, d->in_pad, mode == ADD);
            else matmul(fours(d->in), d->out_pad, BLOCK, x, 1, d->in_pad, dy, d->out_pad, start, d->out_pad, sum, d->out_pad, mode == ADD);
            add_rows(d->out_pad, dy, grad + d->bias, mode);
            if (!l && b->first_back[t]) memcpy(b->first_back[t], dy, sizeof(float) * BLOCK * (size_t)d->out_pad);
            if (!l) break;
            float *dx = b->back[l & 1];
            matmul(BLOCK, d->in_pad, d->out, dy, d->out_pad, 1, transposed + d->weight, d->in_pad, NULL, 0, dx, d->in_pad, 0);
            activate_back(net->relu, BLOCK * d->in_pad, x, dx);
            dy = dx;
        }
    }
}

/* Zeros where `backward` writes nothing, so that whole gradients can be added. */
static void clear_padding(const Net *net, float *grad) {
    for (int t = 0; t < net->towers; t++)
        for (int l = 0; l <= net->layers; l++) {
            const Dense *d = &net->dense[t][l];
            long written = d->turned ? (long)fours(d->out) * d->in_pad : (long)fours(d->in) * d->out_pad;
            memset(grad + d->weight + written, 0, sizeof(float) * (size_t)((long)d->in_pad * d->out_pad - written));
        }
    memset(grad + net->log_std, 0, sizeof(float) * (size_t)(net->layers_size - net->log_std));
}

/* Weights as [out_pad][in_pad], for the backward pass; e^-log_std in place of log_std. */
static void net_transpose(const Net *net, const float *packed, float *transposed) {
    for (int t = 0; t < net->towers; t++)
        for (int l = 1; l <= net->layers; l++) {
            const Dense *d = &net->dense[t][l];
            transpose(d->in_pad, d->out_pad, packed + d->weight, d->out_pad, transposed + d->weight, d->in_pad);
        }
    if (!net->discrete)
        for (int a = 0; a < net->actions; a++) transposed[net->log_std + a] = expf(-packed[net->log_std + a]);
}

/* sin(pi x) on [-1/2, 1/2]: Taylor to x^9, within 4e-6 at the ends. */
static inline float sine_half(float x) {
    float q = x * x;
    return x * (3.14159265f + q * (-5.16771278f + q * (2.55016404f + q * (-0.59926453f + q * 0.08214589f))));
}

/* One input row: the numbers, then sin and cos of 2^k pi x for k < fourier (Tancik et al. 2020): angles given as
 * x = angle / pi become continuous, small distances become large. Each octave follows by doubling the angle. Categorical
 * columns become rows of the table. Input set e = 1 also contains the privileged columns. */
static inline void gather_inputs(const Net *net, Block *b, int e, int row, const float *obs, const float *privileged) {
    float *x = b->input[e] + row * net->dense[e][0].in_pad;
    int n = net->numbers[e];
    if (!net->categorical[e]) {
        copy_floats(x, obs, net->obs);
        if (e) copy_floats(x + net->obs, privileged, net->privileged);
    } else {
        int32_t *table_rows = b->table_rows[e] + row * net->categorical[e];
        for (int c = 0, at = 0; c < net->columns[e]; c++) {
            float v = c < net->obs ? obs[c] : privileged[c - net->obs];
            if (!net->categories[c]) x[at++] = v;
            else *table_rows++ = v >= 0.0f && v < (float)net->categories[c] ? net->first_row[c] + (int32_t)v : -1;
        }
    }
    if (!net->fourier) return;
    float *sine = x + n, *cosine = sine + n;
    for (int i = 0; i < n; i++) {
        float turn = x[i] * 0.5f;
        float y = x[i] - 2.0f * ((turn + 12582912.0f) - 12582912.0f); /* to [-1, 1] */
        float a = y < 0 ? -y : y, folded = sine_half(a > 0.5f ? 1.0f - a : a);
        sine[i] = y < 0 ? -folded : folded;
        cosine[i] = sine_half(0.5f - a);
    }
    for (int k = 1; k < net->fourier; k++, sine += 2 * n, cosine += 2 * n)
        for (int i = 0; i < n; i++) {
            sine[2 * n + i] = 2.0f * sine[i] * cosine[i];
            cosine[2 * n + i] = cosine[i] * cosine[i] - sine[i] * sine[i];
        }
}

/* One row of a block; privileged may be NULL where the value is not needed. */
static inline void gather(const Net *net, Block *b, int row, const float *obs, const float *privileged) {
    gather_inputs(net, b, 0, row, obs, NULL);
    if (net->input_sets == 2 && privileged) gather_inputs(net, b, 1, row, obs, privileged);
}

static inline void gather_zeros(const Net *net, Block *b, int row) {
    for (int e = 0; e < net->input_sets; e++) {
        memset(b->input[e] + row * net->dense[e][0].in_pad, 0, sizeof(float) * (size_t)net->inputs[e]);
        memset(b->table_rows[e] + row * net->categorical[e], 0, sizeof(int32_t) * (size_t)net->categorical[e]);
    }
}

/* --- distributions --------------------------------------------------------------------------------- */

static const float HALF_LOG_2PI = 0.918938533f;

/* Masked log-softmax of one row; illegal actions get -inf. Returns 0 where no action is legal. */
static inline int log_softmax(int n, const float *logits, const uint8_t *mask, float *logp) {
    float max = -INFINITY, sum = 0;
    for (int a = 0; a < n; a++)
        if ((!mask || mask[a]) && logits[a] > max) max = logits[a];
    for (int a = 0; a < n; a++)
        if (!mask || mask[a]) sum += expf(logits[a] - max);
    float lse = max + logf(sum);
    for (int a = 0; a < n; a++) logp[a] = (!mask || mask[a]) ? logits[a] - lse : -INFINITY;
    return sum > 0;
}

#include "fused_act.h"
#include "fused_ppo.h"
#endif
