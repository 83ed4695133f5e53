/* A minibatch of PPO on the GPU, all but the network, which torch computes: its rows, the gradient of the loss with respect to
 * the network's output, a step of Adam. The readable versions are ppo_loss.py and adam.py; tests compare every row. All sums
 * have a fixed order. */
#include "../../networks/cuda/advantages.h"
#include "../../networks/cuda/warp.h"

enum { MAX_COLUMNS = 8 };
enum { POLICY_LOSS, VALUE_LOSS, ENTROPY, MAGNET_KL, KL, CLIP_FRACTION, MEANS }; /* of MEANS in torch_ppo.py */
enum { LR, ENTROPY_WEIGHT, TEMPERATURE };                                       /* places in `settings` */
#define HALF_LOG_2PI 0.91893853f

/* --- the rows of a minibatch --------------------------------------------------------------------------------- */

typedef struct { const unsigned char *from; unsigned char *to; long long bytes; } Column; /* bytes of a row */

typedef struct {
    const long long *order, *count, *position; /* order [epochs][size]; decisions to learn from; number of the minibatch */
    float *share;                              /* [minibatch] of each row in the means: 0 behind the last row */
    Column column[MAX_COLUMNS];
    int32_t columns, epochs, size, minibatch;
} RowArguments;

/* One block per row. Rows behind the last one repeat the first. */
extern "C" __global__ void gather_rows(const RowArguments *a) {
    const long long count = *a->count, per_epoch = count > a->minibatch ? (count + a->minibatch - 1) / a->minibatch : 1;
    const long long epoch = *a->position / per_epoch, place = *a->position % per_epoch * a->minibatch;
    const long long rest = epoch < a->epochs ? count - place : 0, used = rest < a->minibatch ? rest : a->minibatch;
    const int i = blockIdx.x;
    const long long at = place + (i < used ? i : 0), last = a->size - 1;
    const long long row = a->order[(epoch < a->epochs ? epoch : a->epochs - 1) * a->size + (at < last ? at : last)];
    if (threadIdx.x == 0) a->share[i] = i < used ? 1.0f / (float)used : 0.0f;
    for (int c = 0; c < a->columns; c++) {
        const long long bytes = a->column[c].bytes;
        const unsigned char *from = a->column[c].from + row * bytes;
        unsigned char *to = a->column[c].to + i * bytes;
        if (bytes % 4)
            for (long long n = threadIdx.x; n < bytes; n += blockDim.x) to[n] = from[n];
        else
            for (long long n = threadIdx.x; n < bytes / 4; n += blockDim.x) ((uint32_t *)to)[n] = ((const uint32_t *)from)[n];
    }
}

/* --- the loss ------------------------------------------------------------------------------------------------- */

typedef struct {
    const float *log_std;         /* [actions]; NULL: the actions are discrete */
    const float *action;          /* [rows][actions], continuous */
    const int32_t *choice;        /* [rows], discrete */
    const float *logp, *old_value, *advantage, *target, *share; /* [rows] */
    const float *magnet, *magnet_log_std; /* [rows][actions] logits or means, [actions]; NULL: no magnet */
    const double *settings;
    float *heads_gradient, *value_gradient; /* [rows][actions], [rows] */
    float *numbers;               /* [rows][MEANS + actions]: a row's part of the means and of the gradient of log_std */
    int32_t rows, actions;
    float clip, value_clip, value_weight, magnet_weight;
} LossArguments;

typedef struct { float logp, entropy, kl; } Chosen; /* of the taken action; KL to the magnet */

DEVICE Chosen gaussian(const LossArguments *a, const float *mean, int row) {
    Chosen out = {0.0f, 0.0f, 0.0f};
    for (int n = 0; n < a->actions; n++) {
        const float log_std = a->log_std[n], z = (a->action[(long long)row * a->actions + n] - mean[n]) * expf(-log_std);
        out.logp += -0.5f * z * z - log_std - HALF_LOG_2PI;
        out.entropy += log_std + 0.5f + HALF_LOG_2PI;
        if (!a->magnet) continue;
        const float other = a->magnet_log_std[n], away = mean[n] - a->magnet[(long long)row * a->actions + n];
        out.kl += other - log_std + 0.5f * (expf(2.0f * (log_std - other)) + away * away * expf(-2.0f * other)) - 0.5f;
    }
    return out;
}

/* Of the gradient of `logp_weight` logp - `entropy_weight` entropy + `kl_weight` KL: with respect to mean n and to log_std n. */
DEVICE void gaussian_gradient(const LossArguments *a, const float *mean, int row, int n, float logp_weight, float entropy_weight,
                              float kl_weight, float *of_mean, float *of_log_std) {
    const float log_std = a->log_std[n], inverse = expf(-log_std);
    const float z = (a->action[(long long)row * a->actions + n] - mean[n]) * inverse;
    *of_mean = logp_weight * z * inverse;
    *of_log_std = logp_weight * (z * z - 1.0f) - entropy_weight;
    if (!a->magnet) return;
    const float other = a->magnet_log_std[n], away = mean[n] - a->magnet[(long long)row * a->actions + n];
    *of_mean += kl_weight * away * expf(-2.0f * other);
    *of_log_std += kl_weight * (expf(2.0f * (log_std - other)) - 1.0f);
}

/* log of the sum of exp(logits * factor); masked logits are -infinity. */
DEVICE float log_sum(const float *logits, int actions, float factor) {
    float largest = -INFINITY, sum = 0.0f;
    for (int n = 0; n < actions; n++) largest = fmaxf(largest, logits[n] * factor);
    for (int n = 0; n < actions; n++) sum += expf(logits[n] * factor - largest);
    return largest + logf(sum);
}

typedef struct { float factor, total, magnet_total; } Categorical; /* 1 / temperature; log_sum of the logits */

DEVICE Chosen categorical(const LossArguments *a, const float *logits, int row, Categorical *c) {
    const float *magnet = a->magnet ? a->magnet + (long long)row * a->actions : nullptr;
    Chosen out = {0.0f, 0.0f, 0.0f};
    c->total = log_sum(logits, a->actions, c->factor);
    if (magnet) {
        float largest = -INFINITY, sum = 0.0f;
        for (int n = 0; n < a->actions; n++) if (logits[n] > -INFINITY) largest = fmaxf(largest, magnet[n]);
        for (int n = 0; n < a->actions; n++) if (logits[n] > -INFINITY) sum += expf(magnet[n] - largest);
        c->magnet_total = largest + logf(sum);
    }
    for (int n = 0; n < a->actions; n++) {
        if (!(logits[n] > -INFINITY)) continue;
        const float logp = logits[n] * c->factor - c->total, p = expf(logp);
        out.entropy -= p * logp;
        if (magnet) out.kl += p * (logp - (magnet[n] - c->magnet_total));
    }
    out.logp = logits[a->choice[row]] * c->factor - c->total;
    return out;
}

DEVICE float categorical_gradient(const LossArguments *a, const float *logits, int row, int n, const Categorical *c, const Chosen *chosen,
                                  float logp_weight, float entropy_weight, float kl_weight) {
    if (!(logits[n] > -INFINITY)) return 0.0f;
    const float logp = logits[n] * c->factor - c->total, p = expf(logp);
    float gradient = logp_weight * ((n == a->choice[row] ? 1.0f : 0.0f) - p) + entropy_weight * p * (logp + chosen->entropy);
    if (a->magnet) gradient += kl_weight * p * (logp - (a->magnet[(long long)row * a->actions + n] - c->magnet_total) - chosen->kl);
    return gradient * c->factor;
}

/* One thread per row. */
extern "C" __global__ void loss(const LossArguments *a, const float *heads, const float *values) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x, actions = a->actions;
    if (row >= a->rows) return;
    const float share = a->share[row], *own = heads + (long long)row * actions;
    const float entropy_weight = share * (float)a->settings[ENTROPY_WEIGHT], kl_weight = share * a->magnet_weight;
    float *numbers = a->numbers + (long long)row * (MEANS + actions), *heads_gradient = a->heads_gradient + (long long)row * actions;
    Categorical c = {1.0f / (float)a->settings[TEMPERATURE], 0.0f, 0.0f};
    const Chosen chosen = a->log_std ? gaussian(a, own, row) : categorical(a, own, row, &c);
    const float log_ratio = chosen.logp - a->logp[row], ratio = expf(log_ratio), advantage = a->advantage[row];
    const float limited = fminf(fmaxf(ratio, 1.0f - a->clip), 1.0f + a->clip);
    const float plain = ratio * advantage, clipped = limited * advantage;
    const float logp_weight = plain <= clipped || ratio == limited ? -share * plain : 0.0f; /* of -min(plain, clipped) */
    const float value = values[row], target = a->target[row], old = a->old_value[row], miss = value - target;
    float error = miss * miss, slope = 2.0f * miss;
    if (a->value_clip > 0.0f) {
        const float change = fminf(fmaxf(value - old, -a->value_clip), a->value_clip), other = old + change - target;
        if (other * other > error) {
            error = other * other;
            slope = change == value - old ? 2.0f * other : 0.0f;
        }
    }
    numbers[POLICY_LOSS] = -share * fminf(plain, clipped);
    numbers[VALUE_LOSS] = share * error;
    numbers[ENTROPY] = share * chosen.entropy;
    numbers[MAGNET_KL] = share * chosen.kl;
    numbers[KL] = share * (ratio - 1.0f - log_ratio);
    numbers[CLIP_FRACTION] = fabsf(ratio - 1.0f) > a->clip ? share : 0.0f;
    a->value_gradient[row] = share * a->value_weight * slope;
    for (int n = 0; n < actions; n++) {
        float of_head, of_log_std = 0.0f;
        if (a->log_std) gaussian_gradient(a, own, row, n, logp_weight, entropy_weight, kl_weight, &of_head, &of_log_std);
        else of_head = categorical_gradient(a, own, row, n, &c, &chosen, logp_weight, entropy_weight, kl_weight);
        heads_gradient[n] = of_head;
        numbers[MEANS + n] = of_log_std;
    }
}

/* --- Adam ------------------------------------------------------------------------------------------------------ */

enum { ACTIVE, SCALE, RATE, UNBIAS, DECISIONS }; /* of `decided` */

typedef struct {
    float *weights, *first, *second;
    const float *share;         /* [minibatch]: the first is 0 behind the last row */
    const double *settings;
    float *decided;             /* [DECISIONS] */
    double *updates, *sums;     /* steps of Adam; sums of all metrics, then steps of this update */
    unsigned char *stopped, *failed;
    long long *position;
    int32_t size, means, log_std_at, log_stds; /* means: without the two norms */
    float max_norm, target_kl, log_std_low, log_std_high, epsilon;
    double beta1, beta2;
} StepArguments;

/* One thread: whether and how far to step; no step after the target KL, behind the last row, or without a finite gradient. */
extern "C" __global__ void decide(const StepArguments *a, const double *means, const float *gradient_norm) {
    const double norm = *gradient_norm, scale = a->max_norm > 0.0f && norm > a->max_norm ? a->max_norm / norm : 1.0;
    const bool wanted = a->share[0] > 0.0f && !*a->stopped && !*a->failed, active = wanted && norm <= 3.4028235e38;
    if (wanted && !active) *a->failed = 1;
    ++*a->position;
    a->decided[ACTIVE] = active;
    if (!active) return;
    const double updates = *a->updates += 1.0;
    a->decided[SCALE] = (float)scale;
    a->decided[RATE] = (float)(a->settings[LR] / (1.0 - pow(a->beta1, updates)));
    a->decided[UNBIAS] = (float)(1.0 / (1.0 - pow(a->beta2, updates)));
    for (int m = 0; m < a->means; m++) a->sums[m] += means[m];
    a->sums[a->means] += norm;
    a->sums[a->means + 1] += norm * scale;
    a->sums[a->means + 2] += 1.0;
    if (a->target_kl > 0.0f && means[KL] > 1.5 * a->target_kl) *a->stopped = 1;
}

/* One thread per weight. */
extern "C" __global__ void adam(const StepArguments *a, const float *gradient) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= a->size || a->decided[ACTIVE] == 0.0f) return;
    const float g = gradient[n] * a->decided[SCALE];
    const float first = a->first[n] += (float)(1.0 - a->beta1) * (g - a->first[n]);
    const float second = a->second[n] += (float)(1.0 - a->beta2) * (g * g - a->second[n]);
    float weight = a->weights[n] - a->decided[RATE] * first / (sqrtf(second * a->decided[UNBIAS]) + a->epsilon);
    if (n >= a->log_std_at && n < a->log_std_at + a->log_stds) weight = fminf(fmaxf(weight, a->log_std_low), a->log_std_high);
    a->weights[n] = weight;
}
