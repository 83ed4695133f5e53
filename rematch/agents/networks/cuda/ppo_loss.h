/* The PPO loss (agents/learners/ppo.py) of one row, its gradient at the outputs, and the arguments of an update. */
#ifndef REMATCH_PPO_LOSS_H
#define REMATCH_PPO_LOSS_H

#include "act.h"

enum { STAT_POLICY, STAT_VALUE, STAT_ENTROPY, STAT_KL, STAT_CLIPPED, STAT_MAGNET, ROW_STATS };
/* The numbers that an update gives the host: the sums of the row statistics, as means of minibatches, and these. */
enum { STAT_NORM = ROW_STATS, STAT_CLIPPED_NORM, STAT_UPDATES, COUNT, RESIDUAL_VARIANCE, TARGET_VARIANCE, ADAM_STEPS, FAILED, NUMBERS };
enum { BAD_GRADIENT = 1 }; /* values of `failed` */
typedef struct {
    float *weights, *first, *second; /* [WEIGHTS] and Adam's moments */
    Weights *packed;                 /* of `weights` */
    float *magnet_weights;           /* [WEIGHTS] or NULL */
    float *partial;                  /* [GROUPS][WEIGHTS] sums of the gradient */
    double *chunk_sums;              /* [CHUNKS] squares of parts of the gradient */
    float *tile_stats;               /* [minibatches][tiles][ROW_STATS] sums over the rows of each tile */
    double *block_moments;           /* [blocks of select.h][MOMENTS] */
    int32_t *block_counts;           /* [blocks of select.h] */
    double *numbers;                 /* [NUMBERS] results */
    float *new_weights;              /* [WEIGHTS] copy of the weights for the host */
    const half_float *inputs;        /* [M][INPUTS] */
    const float *action;             /* [M][ACTIONS] */
    const int32_t *choice;           /* [M] */
    const unsigned char *mask;       /* [M][ACTIONS] or NULL */
    const float *logp, *advantage, *target, *value; /* [M] */
    const float *magnet;             /* [M][ACTIONS] its means or logits, or NULL */
    const float *magnet_log_std;     /* [ACTIONS] */
    const float *magnet_inv_var;     /* [ACTIONS] in shared memory; set by the kernel */
    float *records;                  /* [M][RECORD] what the loss of a row needs, side by side */
    const int32_t *counts;           /* [M] 1 where a row is learned from */
    int32_t *index, *count;          /* [count] rows that are learned from */
    int32_t *order;                  /* [epochs][capacity] those rows in the order of each epoch */
    double *scaling;                 /* mean and 1 / (deviation + 1e-8) of the advantages of those rows */
    unsigned *barrier;
    int32_t *updates, *failed;       /* steps of Adam so far */
    uint64_t key;                    /* of the order of rows */
    int32_t active;                  /* 0: this learner learns nothing in this launch */
    int32_t iteration, epochs, minibatch, capacity;
    float lr, clip, value_clip, value_weight, entropy_weight, magnet_weight, magnet_rate, max_norm, target_kl, log_std_low, log_std_high;
} UpdateArguments;

/* What the loss of one row needs: a record of floats. The advantage is normalised; `action` is the choice of a discrete one. */
enum { R_LOGP, R_ADVANTAGE, R_TARGET, R_VALUE, R_ACTION, R_MAGNET = R_ACTION + (DISCRETE ? 1 : ACTIONS), RECORD = (R_MAGNET + ACTIONS + 3) / 4 * 4 };

typedef struct { float number[TILE * RECORD]; } RowData;

enum { BACKS = WARPGROUPS ? 8 : HEADS }; /* gradients of the outputs of a row, then zeros */

/* What one row adds to the statistics and to the gradient of log_std. */
typedef struct { float stat[ROW_STATS], log_std[ACTIONS]; } RowSums;

/* --- the loss of one row ----------------------------------------------------------------------------- */

/* d loss / d log-probability of the taken action (eq. 7). */
DEVICE float surrogate(const UpdateArguments *u, float *stat, const float *row, float logp) {
    const float advantage = row[R_ADVANTAGE];
    float log_ratio = logp - row[R_LOGP], ratio = expf(log_ratio);
    float low = 1.0f - u->clip, high = 1.0f + u->clip;
    float bounded = ratio < low ? low : ratio > high ? high : ratio;
    float plain = ratio * advantage, clipped = bounded * advantage;
    stat[STAT_POLICY] -= plain < clipped ? plain : clipped;
    stat[STAT_KL] += (ratio - 1.0f) - log_ratio;
    stat[STAT_CLIPPED] += ratio < low || ratio > high ? 1.0f : 0.0f;
    return plain <= clipped || !(ratio == ratio) ? -plain : 0.0f;
}

DEVICE float value_gradient(const UpdateArguments *u, float *stat, const float *row, float v) {
    float target = row[R_TARGET], error = v - target, gradient = 2.0f * error, loss = error * error;
    if (u->value_clip > 0.0f) {
        float old = row[R_VALUE], moved = v - old, c = u->value_clip;
        float clipped = old + (moved < -c ? -c : moved > c ? c : moved) - target;
        if (clipped * clipped > loss) {
            loss = clipped * clipped;
            gradient = moved > -c && moved < c ? 2.0f * clipped : 0.0f;
        }
    }
    stat[STAT_VALUE] += loss;
    return u->value_weight * gradient;
}

DEVICE void gaussian_gradient(const UpdateArguments *u, const Weights *weights, RowSums *sums, const float *row, float *out, float scale) {
    float logp = 0.0f, *stat = sums->stat;
    for (int a = 0; a < ACTIONS; a++) {
        float z = (row[R_ACTION + a] - out[a]) * weights->inv_std[a];
        logp += -0.5f * z * z - weights->log_std[a] - HALF_LOG_2PI;
        stat[STAT_ENTROPY] += weights->log_std[a] + 0.5f + HALF_LOG_2PI;
    }
    float g = surrogate(u, stat, row, logp);
    for (int a = 0; a < ACTIONS; a++) {
        float inv = weights->inv_std[a], mean = out[a];
        float z = (row[R_ACTION + a] - mean) * inv;
        float dm = g * z * inv, ds = g * (z * z - 1.0f) - u->entropy_weight;
        if (u->magnet) { /* KL(policy || magnet) of two Gaussians */
            float other = u->magnet_log_std[a], inv_var = u->magnet_inv_var[a], var = weights->variance[a];
            float distance = mean - row[R_MAGNET + a];
            stat[STAT_MAGNET] += other - weights->log_std[a] + 0.5f * (var + distance * distance) * inv_var - 0.5f;
            dm += u->magnet_weight * distance * inv_var;
            ds += u->magnet_weight * (var * inv_var - 1.0f);
        }
        out[a] = dm * scale;
        sums->log_std[a] = ds * scale;
    }
}

DEVICE void choice_gradient(const UpdateArguments *u, float *stat, const float *row, const unsigned char *mask, float *out, float scale) {
    float logp[ACTIONS], other[ACTIONS], entropy = 0.0f, magnet_kl = 0.0f;
    log_softmax(out, mask, logp);
    if (u->magnet) log_softmax(row + R_MAGNET, mask, other);
    int taken = (int)row[R_ACTION];
    float g = surrogate(u, stat, row, logp[taken]);
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

/* From `out` to `back` of one row, the gradient of the mean loss. `number` is the row of the rollout; below 0: none. */
DEVICE RowSums loss_gradient(const UpdateArguments *u, const Weights *weights, const RowData *data, int line, int number, float *out, half_float *back, float scale) {
    RowSums sums = {};
    for (int o = 0; o < BACKS; o += 2) *(unsigned *)(back + o) = 0;
    if (number < 0) return sums;
    const float *row = data->number + line * RECORD, value = out[ACTIONS];
    if (DISCRETE) choice_gradient(u, sums.stat, row, u->mask ? u->mask + (long long)number * ACTIONS : 0, out, scale);
    else gaussian_gradient(u, weights, &sums, row, out, scale);
    out[ACTIONS] = value_gradient(u, sums.stat, row, value) * scale;
    for (int o = 0; o < OUTPUTS; o++) back[o] = to_half(out[o]);
    for (int s = 0; s < ROW_STATS; s++) sums.stat[s] *= scale;
    return sums;
}

#endif
