/* The gradient of the PPO loss (agents/learners/ppo.py) of one tile: the loss of each row, then back through the layers. */
#ifndef REMATCH_PPO_GRADIENT_H
#define REMATCH_PPO_GRADIENT_H

#include "act.h"

enum { STAT_POLICY, STAT_VALUE, STAT_ENTROPY, STAT_KL, STAT_CLIPPED, STAT_MAGNET, STAT_NORM, STAT_CLIPPED_NORM, STAT_UPDATES, STATS };
enum { BAD_GRADIENT = 1 }; /* values of `failed` */
/* Columns of the first layer's gradient that a warp sums, and their number for all: the last warps share some columns. */
enum { BIASES = (WIDTH1 > WIDTH2 ? WIDTH1 : WIDTH2) / 64 > HEADS / 16 ? (WIDTH1 > WIDTH2 ? WIDTH1 : WIDTH2) / 64 : HEADS / 16 };
enum { W1_TILES = (INPUTS / 8 + SIDES - 1) / SIDES, W2_TILES = WIDTH1 / 8 / SIDES };

typedef struct {
    float *weights, *first, *second; /* [WEIGHTS] and Adam's moments */
    float *partial;                  /* [blocks][WEIGHTS] sums of each block */
    double *block_sums;              /* [blocks][2] squares of a share of the gradient; KL divergence of a minibatch */
    double *stats;                   /* [blocks][STATS] sums over minibatches */
    const float *obs;                /* [M][OBS] */
    const float *action;             /* [M][ACTIONS] */
    const int32_t *choice;           /* [M] */
    const unsigned char *mask;       /* [M][ACTIONS] or NULL */
    const float *logp, *advantage, *target, *value; /* [M] */
    const float *magnet;             /* [M][ACTIONS] its means or logits, or NULL */
    const float *magnet_log_std;     /* [ACTIONS] */
    const int32_t *index;            /* [count] rows that are learned from */
    const int32_t *count;
    const double *scaling;           /* mean and 1 / (deviation + 1e-8) of the advantages of those rows */
    unsigned *barrier;
    int32_t *updates, *failed;       /* steps of Adam so far */
    uint64_t key;                    /* of the order of rows */
    int32_t iteration, epochs, minibatch;
    float lr, clip, value_clip, value_weight, entropy_weight, magnet_weight, max_norm, target_kl, log_std_low, log_std_high;
} UpdateArguments;

/* The observations of a tile and what its loss needs, copied from the rollout while the tile before it is computed. */
typedef struct {
    float action[TILE * ACTIONS], magnet[TILE * ACTIONS], logp[TILE], advantage[TILE], target[TILE], value[TILE];
    int32_t choice[TILE];
} RowData;

/* What the loss of one row needs. */
typedef struct { const float *action, *magnet; float logp, advantage, target, value; int choice; } Row;

/* The sums of one thread over the tiles of a minibatch. */
typedef struct {
    float w1[WIDTH1 / 64][W1_TILES][4], w2[WIDTH2 / 64][W2_TILES][4], head[HEADS / 16][1][4];
    float bias[BIASES][4], log_std[ACTIONS], kl; /* `bias`: of b2 in the warps of side 0, of b1 in side 1, of the head in warp 15 */
} Sums;

/* --- the loss of one row ----------------------------------------------------------------------------- */

/* d loss / d log-probability of the taken action (eq. 7). */
DEVICE float surrogate(const UpdateArguments *u, Sums *sums, float *stat, const Row *row, float logp, float advantage) {
    float log_ratio = logp - row->logp, ratio = expf(log_ratio);
    float low = 1.0f - u->clip, high = 1.0f + u->clip;
    float bounded = ratio < low ? low : ratio > high ? high : ratio;
    float plain = ratio * advantage, clipped = bounded * advantage;
    stat[STAT_POLICY] -= plain < clipped ? plain : clipped;
    sums->kl += (ratio - 1.0f) - log_ratio;
    stat[STAT_CLIPPED] += ratio < low || ratio > high ? 1.0f : 0.0f;
    return plain <= clipped || !(ratio == ratio) ? -plain : 0.0f;
}

DEVICE float value_gradient(const UpdateArguments *u, float *stat, const Row *row, float v) {
    float target = row->target, error = v - target, gradient = 2.0f * error, loss = error * error;
    if (u->value_clip > 0.0f) {
        float old = row->value, moved = v - old, c = u->value_clip;
        float clipped = old + (moved < -c ? -c : moved > c ? c : moved) - target;
        if (clipped * clipped > loss) {
            loss = clipped * clipped;
            gradient = moved > -c && moved < c ? 2.0f * clipped : 0.0f;
        }
    }
    stat[STAT_VALUE] += loss;
    return u->value_weight * gradient;
}

DEVICE void gaussian_gradient(const UpdateArguments *u, const Tile *tile, Sums *sums, float *stat, const Row *row, float *out, float advantage, float scale) {
    float logp = 0.0f;
    for (int a = 0; a < ACTIONS; a++) {
        float z = (row->action[a] - out[a]) * expf(-tile->log_std[a]);
        logp += -0.5f * z * z - tile->log_std[a] - HALF_LOG_2PI;
        stat[STAT_ENTROPY] += tile->log_std[a] + 0.5f + HALF_LOG_2PI;
    }
    float g = surrogate(u, sums, stat, row, logp, advantage);
    for (int a = 0; a < ACTIONS; a++) {
        float inv = expf(-tile->log_std[a]), mean = out[a];
        float z = (row->action[a] - mean) * inv;
        float dm = g * z * inv, ds = g * (z * z - 1.0f) - u->entropy_weight;
        if (u->magnet) { /* KL(policy || magnet) of two Gaussians */
            float other = u->magnet_log_std[a], inv_var = expf(-2.0f * other), var = expf(2.0f * tile->log_std[a]);
            float distance = mean - row->magnet[a];
            stat[STAT_MAGNET] += other - tile->log_std[a] + 0.5f * (var + distance * distance) * inv_var - 0.5f;
            dm += u->magnet_weight * distance * inv_var;
            ds += u->magnet_weight * (var * inv_var - 1.0f);
        }
        out[a] = dm * scale;
        sums->log_std[a] += ds * scale;
    }
}

DEVICE void choice_gradient(const UpdateArguments *u, Sums *sums, float *stat, const Row *row, const unsigned char *mask, float *out, float advantage, float scale) {
    float logp[ACTIONS], other[ACTIONS], entropy = 0.0f, magnet_kl = 0.0f;
    log_softmax(out, mask, logp);
    if (u->magnet) log_softmax(row->magnet, mask, other);
    int taken = row->choice;
    float g = surrogate(u, sums, stat, row, logp[taken], advantage);
    for (int a = 0; a < ACTIONS; a++) {
        if (mask && !mask[a]) continue;
        float p = expf(logp[a]);
        entropy -= p * logp[a];
        if (u->magnet) magnet_kl += p * (logp[a] - other[a]);
    }
    for (int a = 0; a < ACTIONS; a++) {
        if (mask && !mask[a]) { out[a] = 0.0f; continue; }
        float p = expf(logp[a]);
        float d = g * ((a == taken ? 1.0f : 0.0f) - p) + u->entropy_weight * p * (logp[a] + entropy);
        if (u->magnet) d += u->magnet_weight * p * (logp[a] - other[a] - magnet_kl);
        out[a] = d * scale;
    }
    stat[STAT_ENTROPY] += entropy;
    stat[STAT_MAGNET] += magnet_kl;
}

/* --- one tile ------------------------------------------------------------------------------------------ */

/* From `out` to `back`, the gradient of the mean loss. `stat` adds up over the whole iteration, as means of minibatches. */
DEVICE void loss_gradient(const UpdateArguments *u, Tile *tile, const RowData *data, const int *rows, Sums *sums, float *total, float scale) {
    if (threadIdx.x >= TILE) return;
    const int line = threadIdx.x;
    const Row row_data = {data->action + line * ACTIONS, data->magnet + line * ACTIONS, data->logp[line], data->advantage[line],
                          data->target[line], data->value[line], data->choice[line]}, *row = &row_data;
    float *out = tile->out + threadIdx.x * OUTPUTS, stat[STAT_MAGNET + 1] = {};
    half_float *back = tile->back + threadIdx.x * D_STRIDE;
    const int number = rows[threadIdx.x];
    for (int o = 0; o < HEADS; o++) back[o] = 0;
    if (number < 0) return;
    float advantage = (float)(((double)row->advantage - u->scaling[0]) * u->scaling[1]);
    float value = out[ACTIONS];
    if (DISCRETE) choice_gradient(u, sums, stat, row, u->mask ? u->mask + (long long)number * ACTIONS : 0, out, advantage, scale);
    else gaussian_gradient(u, tile, sums, stat, row, out, advantage, scale);
    out[ACTIONS] = value_gradient(u, stat, row, value) * scale;
    for (int o = 0; o < OUTPUTS; o++) back[o] = to_half(out[o]);
    for (int s = 0; s <= STAT_MAGNET; s++) total[s] += stat[s] * scale;
}

DEVICE float slope(float h) { return RELU ? (h > 0.0f ? 1.0f : 0.0f) : 1.0f - h * h; }

/* h [TILE][UNITS] <- sum * slope(h): from the gradient of a layer's outputs to that of its inputs. */
template <int N> DEVICE void store_back(half_float *h, int stride, int row, int column, const float (&sum)[2][N][4]) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
            for (int part = 0; part < 2; part++) {
                half_float *at = h + (row + 16 * m + 8 * part + lane / 4) * stride + column + 8 * n + 2 * (lane % 4);
                *(unsigned *)at = two_halves(sum[m][n][2 * part] * slope(to_float(at[0])), sum[m][n][2 * part + 1] * slope(to_float(at[1])));
            }
}

DEVICE int w1_column(int side) {
    const int column = side * 8 * W1_TILES, last = INPUTS - 8 * W1_TILES;
    return column < last ? column : last;
}

/* From `back` through all layers; adds the gradients of the weights. */
DEVICE void backward(Tile *tile, Sums *sums) {
    enum { N1 = WIDTH1 / 8 / SIDES, N2 = WIDTH2 / 8 / SIDES };
    const int warp = threadIdx.x >> 5, group = warp & 3, side = warp >> 2;
    float back2[2][N2][4] = {}, back1[2][N1][4] = {};
    warp_multiply<2, N2, false, true>(back2, tile->back, D_STRIDE, group * 32, tile->head, H2_STRIDE, side * 8 * N2, HEADS);
    if (warp * 8 < WIDTH2) warp_multiply<HEADS / 16, 1, true, true>(sums->head, tile->back, D_STRIDE, 0, tile->h2, H2_STRIDE, warp * 8, TILE);
    if (warp == 15) warp_row_sums<HEADS / 16, true>(*(float (*)[HEADS / 16][4])sums->bias, tile->back, D_STRIDE, 0, TILE);
    __syncthreads();
    store_back(tile->h2, H2_STRIDE, group * 32, side * 8 * N2, back2);
    __syncthreads();
    warp_multiply<WIDTH2 / 64, W2_TILES, true, true>(sums->w2, tile->h2, H2_STRIDE, group * (WIDTH2 / 4), tile->h1, H1_STRIDE, side * 8 * W2_TILES, TILE);
    warp_multiply<2, N1, false, true>(back1, tile->h2, H2_STRIDE, group * 32, tile->w2, H1_STRIDE, side * 8 * N1, WIDTH2);
    if (side == 0) warp_row_sums<WIDTH2 / 64, true>(*(float (*)[WIDTH2 / 64][4])sums->bias, tile->h2, H2_STRIDE, group * (WIDTH2 / 4), TILE);
    __syncthreads();
    store_back(tile->h1, H1_STRIDE, group * 32, side * 8 * N1, back1);
    __syncthreads();
    warp_multiply<WIDTH1 / 64, W1_TILES, true, true>(sums->w1, tile->h1, H1_STRIDE, group * (WIDTH1 / 4), tile->x, X_STRIDE, w1_column(side), TILE);
    if (side == 1) warp_row_sums<WIDTH1 / 64, true>(*(float (*)[WIDTH1 / 64][4])sums->bias, tile->h1, H1_STRIDE, group * (WIDTH1 / 4), TILE);
}

#endif
