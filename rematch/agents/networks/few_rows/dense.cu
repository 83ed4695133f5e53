/* Dense layers for a few rows: LANES threads, a warp, compute one unit of one row, in float32. For a few games this is much faster than a
 * product of matrices. Tests compile it for the CPU with LANES 1. The readable network is agents/networks/mlp.py; a row depends on itself and on its slot alone. */
#include "../../../worlds/native/random.h"
#include "../cuda/warp.h"

enum { TOWERS = 2 };
#define HALF_LOG_2PI 0.91893853f

/* The rows of one role, and the policies in its slots; [s] of an array of weights belongs to slot s. */
typedef struct {
    const int32_t *slot; /* [steps + 1][games][all_seats] */
    int32_t rows, seats, all_seats, slots;
} Rows;

/* One hidden layer of all towers: the policy, then the value; one tower if they share their layers. */
typedef struct {
    Rows rows;
    const float *in[TOWERS];                     /* [rows][inputs] */
    const float *weight[TOWERS], *bias[TOWERS];  /* [slots][units][inputs], [slots][units] */
    float *out[TOWERS];                          /* [rows][units] */
    long long in_step;                           /* numbers from one step to the next in `in`; 0: all steps share them */
    int32_t inputs, units, relu;
} Layer;

/* The heads, and the choice of actions from a Gaussian. */
typedef struct {
    Rows rows;
    const float *in[TOWERS];                     /* [rows][units] of the policy and of the value */
    const float *weight[TOWERS], *bias[TOWERS], *log_std; /* heads of the policy [slots][actions][units], of the value [slots][1][units] */
    const float *noise;                          /* [steps][rows][actions] standard normals */
    float *action, *logp, *value;                /* [steps + 1][rows]... */
    int32_t units, actions;
} Heads;

/* The slot whose policy computes a row; the first where another player acts, since the result is not used. */
DEVICE int slot_of(const Rows *rows, int row, int t, int only_values) {
    const long long game = (long long)t * (rows->rows / rows->seats) + row / rows->seats;
    const int slot = rows->slot[game * rows->all_seats + row % rows->seats];
    return only_values || slot >= rows->slots ? 0 : slot;
}

/* The product of a row with the weights of one unit, in all lanes of the warp. */
DEVICE float product(const float *in, const float *weight, int count) {
    float sum = 0.0f;
    for (int n = threadIdx.x % LANES; n < count; n += LANES) sum += in[n] * weight[n];
    for (int mask = LANES / 2; mask; mask >>= 1) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, mask);
    return sum;
}

/* Grid (blocks, towers): a warp per row and unit. only_values: of the policy in slot 0. */
extern "C" __global__ void dense_layer(const Layer *a, int t, int only_values) {
    const int tower = blockIdx.y, place = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const int row = place / a->units, unit = place % a->units;
    if (row >= a->rows.rows) return;
    const long long at = (long long)slot_of(&a->rows, row, t, only_values) * a->units + unit;
    const float *in = a->in[tower] + t * a->in_step + (long long)row * a->inputs;
    const float sum = product(in, a->weight[tower] + at * a->inputs, a->inputs) + a->bias[tower][at];
    if (threadIdx.x % LANES == 0) a->out[tower][(long long)row * a->units + unit] = a->relu ? fmaxf(sum, 0.0f) : tanhf(sum);
}

/* A warp per row. */
extern "C" __global__ void gaussian_heads(const Heads *a, int t, int only_values) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, actions = a->actions;
    if (row >= a->rows.rows) return;
    const int slot = slot_of(&a->rows, row, t, only_values), first_lane = threadIdx.x % LANES == 0;
    const long long at = (long long)t * a->rows.rows + row;
    const float value = product(a->in[1] + (long long)row * a->units, a->weight[1] + (long long)slot * a->units, a->units);
    if (first_lane) a->value[at] = value + a->bias[1][slot];
    if (only_values) return;
    float logp = 0.0f;
    for (int n = 0; n < actions; n++) {
        const long long head = (long long)slot * actions + n;
        const float mean = product(a->in[0] + (long long)row * a->units, a->weight[0] + head * a->units, a->units) + a->bias[0][head];
        const float log_std = a->log_std[head], noise = a->noise[at * actions + n];
        logp += -0.5f * noise * noise - log_std - HALF_LOG_2PI;
        if (first_lane) a->action[at * actions + n] = mean + noise * expf(log_std);
    }
    if (first_lane) a->logp[at] = logp;
}
