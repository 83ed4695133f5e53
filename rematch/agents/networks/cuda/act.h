/* Acting: one kernel computes all rows of a step, each with the weights of the policy in its slot.
 *
 * A block serves one slot and a range of rows: it lists the rows of the range that this slot plays, then its warps compute
 * them strip by strip. The output of a row depends on that row alone. */
#ifndef REMATCH_ACT_H
#define REMATCH_ACT_H

#include "../../../worlds/native/random.h"
#include "group_network.h"

enum { ACT_THREADS = 256, OPPONENT_RANGE = 2048 }; /* most rows of a block; slot 0 plays most of them, see `learner_range` */
enum { TEAM = WARPGROUPS ? GROUP : 32, TEAMS = ACT_THREADS / TEAM, TEAM_ROWS = WARPGROUPS ? GROUP_ROWS : STRIP }; /* threads that compute some rows together */

/* One role. Arrays over steps have [steps + 1] entries; a row is game * seats + seat of the role. */
typedef struct {
    const Weights *weights;      /* [slots] */
    const Weights *learner;      /* of slot 0 */
    const float *obs;            /* [steps + 1][rows][OBS] */
    const unsigned char *mask;   /* [steps + 1][rows][ACTIONS] or NULL */
    const int32_t *slot;         /* [steps + 1][games][all_seats] */
    const unsigned char *acting; /* [steps + 1][games][all_seats] */
    float *action;               /* [steps][rows][ACTIONS], continuous */
    int32_t *choice;             /* [steps][rows], discrete */
    float *logp, *value;         /* [steps + 1][rows] */
    float *heads;                /* [steps + 1][rows][ACTIONS] means or logits, or NULL */
    half_float *inputs;          /* [steps][rows][INPUTS] of the rows that slot 0 plays, or NULL; read where `heads` are wanted */
    const long long *first_step; /* number of the rollout's first step, a key of the random numbers */
    uint64_t key;                /* of the random numbers */
    int32_t rows, seats, all_seats, first_seat, slots, first_row;
    int32_t learner_range; /* rows of a block that serves slot 0; at most OPPONENT_RANGE */
} ActArguments;

typedef struct {
    Weights weights; /* first: its matrices are aligned to 16 bytes */
    half_float x[TEAMS][WARPGROUPS ? X_SIZE : STRIP * X_STRIDE];
    float number[TEAMS][TEAM_ROWS * OBS];
    float out[TEAMS][TEAM_ROWS * OUTPUTS];
    int listed[OPPONENT_RANGE], warp_count[ACT_THREADS / 32];
} ActMemory;

/* Whether slot `slot` plays this row; its seat. */
DEVICE bool plays(const ActArguments *a, int t, int row, int slot) {
    int game = row / a->seats;
    long long seat = ((long long)t * (a->rows / a->seats) + game) * a->all_seats + a->first_seat + row % a->seats;
    return a->slot[seat] == slot && a->acting[seat];
}

/* List the rows from `from` to `to` that the slot plays, in ascending order; their number. `all`: every row. */
DEVICE int list_rows(const ActArguments *a, ActMemory *memory, int t, int from, int to, int slot, bool all) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    int count = 0;
    for (int at = from; at < to; at += ACT_THREADS) {
        int row = at + threadIdx.x;
        bool wanted = row < to && (all || plays(a, t, row, slot));
        unsigned votes = __ballot_sync(0xFFFFFFFFu, wanted);
        if (lane == 0) memory->warp_count[warp] = __popc(votes);
        __syncthreads();
        int place = count + __popc(votes & ((1u << lane) - 1u));
        for (int w = 0; w < ACT_THREADS / 32; w++) {
            if (w < warp) place += memory->warp_count[w];
            count += memory->warp_count[w];
        }
        if (wanted) memory->listed[place] = row;
        __syncthreads();
    }
    return count;
}

/* Box and Muller (1958): two random words to two standard normals. */
DEVICE void normals(uint32_t a, uint32_t b, float *first, float *second) {
    float radius = sqrtf(-2.0f * logf(((float)(a >> 8) + 1.0f) * (1.0f / 16777216.0f)));
    float angle = 6.28318531f * rm_unit(b);
    *first = radius * cosf(angle);
    *second = radius * sinf(angle);
}

DEVICE void act_gaussian(const ActArguments *a, const Weights *weights, const float *mean, long long at, uint32_t number, uint64_t step) {
    float logp = 0.0f, normal[2] = {0.0f, 0.0f};
    for (int d = 0; d < ACTIONS; d++) {
        if (!(d & 1)) {
            rm_quad words = rm_philox(a->key, number, (uint32_t)step, RM_STREAM_ACT | (uint32_t)d << 8, (uint32_t)(step >> 32));
            normals(words.w[0], words.w[1], &normal[0], &normal[1]);
        }
        float e = normal[d & 1];
        a->action[at * ACTIONS + d] = mean[d] + e * expf(weights->log_std[d]);
        logp += -0.5f * e * e - weights->log_std[d] - HALF_LOG_2PI;
    }
    a->logp[at] = logp;
}

DEVICE void act_choice(const ActArguments *a, const float *logits, long long at, uint32_t number, uint64_t step) {
    float logp[ACTIONS];
    log_softmax(logits, a->mask ? a->mask + at * ACTIONS : 0, logp);
    rm_quad words = rm_philox(a->key, number, (uint32_t)step, RM_STREAM_ACT, (uint32_t)(step >> 32));
    float remaining = rm_unit(words.w[0]);
    int choice = -1;
    for (int c = 0; c < ACTIONS; c++) { /* the last legal action takes the rounding error */
        if (!(logp[c] > -INFINITY)) continue;
        choice = c;
        remaining -= expf(logp[c]);
        if (remaining < 0.0f) break;
    }
    a->choice[at] = choice < 0 ? 0 : choice;
    a->logp[at] = logp[choice < 0 ? 0 : choice];
}

/* Value and action of the row that this lane has. */
DEVICE void act_row(const ActArguments *a, const Weights *weights, const float *out, int t, int row, uint64_t step, bool only_values) {
    const long long at = (long long)t * a->rows + row;
    a->value[at] = out[ACTIONS];
    if (a->heads)
        for (int d = 0; d < ACTIONS; d++) a->heads[at * ACTIONS + d] = out[d];
    if (only_values) return;
    if (DISCRETE) act_choice(a, out, at, (uint32_t)(a->first_row + row), step);
    else act_gaussian(a, weights, out, at, (uint32_t)(a->first_row + row), step);
}

/* The numbers of a team's rows, observations [.][OBS]; rows below 0 have zeros. */
DEVICE void load_numbers(float *number, const int *rows, const float *obs) {
#pragma unroll 2
    for (int i = threadIdx.x % TEAM; i < TEAM_ROWS * OBS; i += TEAM) {
        const int row = rows[i / OBS];
        if (row < 0) number[i] = 0.0f;
        else copy_ahead(number + i, obs + (long long)row * OBS + i % OBS);
    }
    wait_for_copies();
}

enum { PARTS = INPUTS / 8 }; /* of 16 bytes, of a row's inputs */

/* The inputs of a team's rows to [.][INPUTS], for learning. */
DEVICE void store_inputs(half_float *to, const int *rows, const half_float *x) {
    for (int i = threadIdx.x % TEAM; i < TEAM_ROWS * PARTS; i += TEAM)
        if (rows[i / PARTS] >= 0)
            store_four((float *)(to + (long long)rows[i / PARTS] * INPUTS) + 4 * (i % PARTS), *(const Four *)(x + x_place(i / PARTS, i % PARTS * 8)));
}

DEVICE void load_inputs(half_float *x, const int *rows, const half_float *from) {
    for (int i = threadIdx.x % TEAM; i < TEAM_ROWS * PARTS; i += TEAM) {
        const int row = rows[i / PARTS] < 0 ? 0 : rows[i / PARTS];
        copy_16_ahead(x + x_place(i / PARTS, i % PARTS * 8), from + (long long)row * INPUTS + i % PARTS * 8);
    }
    wait_for_copies();
}

DEVICE void team_barrier() {
    if (WARPGROUPS) group_barrier(threadIdx.x / TEAM);
    else __syncwarp();
}

/* Outputs of a team's rows from their inputs. */
DEVICE void compute_outputs(const Weights *weights, const half_float *x, float *out) {
    Strip<WIDTH1> h1;
    Strip<WIDTH2> h2;
#if WARPGROUPS
    first_group_layer(weights, x, h1);
    second_group_layer(weights, h1, h2);
    group_head_layer(weights, h2, out);
#else
    first_layer(weights, x, 0, 0, h1);
    second_layer(weights, h1, 0, h2);
    head_layer(weights, h2, out);
#endif
}

/* The rows that this team computes, `listed` from `at` on: those behind the last row are -1. The row of this lane. */
DEVICE int own_row(int *rows, int left) {
    const int thread = threadIdx.x % TEAM;
    const int row = thread < TEAM_ROWS && thread < left ? rows[thread] : -1;
    team_barrier();
    if (thread < TEAM_ROWS) rows[thread] = row;
    team_barrier();
    const int lane = threadIdx.x & 31;
    return lane < STRIP ? rows[thread / 32 * STRIP + lane] : -1;
}

/* grid (blocks, roles). `only_values`: values, and heads where wanted, of all rows by slot 0; nothing is drawn. */
extern "C" __global__ void __launch_bounds__(ACT_THREADS, 2) act(const ActArguments *roles, int t, int only_values) {
    SHARED_MEMORY;
    ActMemory *memory = (ActMemory *)shared_memory;
    const ActArguments *a = roles + blockIdx.y;
    const int learner_blocks = (a->rows + a->learner_range - 1) / a->learner_range;
    const int ranges = (a->rows + OPPONENT_RANGE - 1) / OPPONENT_RANGE;
    int slot = 0, from = blockIdx.x * a->learner_range, range = a->learner_range;
    if ((int)blockIdx.x >= learner_blocks) {
        slot = 1 + (blockIdx.x - learner_blocks) / ranges;
        from = (blockIdx.x - learner_blocks) % ranges * OPPONENT_RANGE;
        range = OPPONENT_RANGE;
    }
    if (slot >= (only_values ? 1 : a->slots)) return;
    const int to = from + range < a->rows ? from + range : a->rows;
    const int count = list_rows(a, memory, t, from, to, slot, only_values);
    if (!count) return;
    load_weights<ACT_THREADS>(&memory->weights, slot ? a->weights + slot : a->learner);
#if WARPGROUPS
    show_to_tensor_cores();
#endif
    __syncthreads();
    const int team = threadIdx.x / TEAM, line = threadIdx.x % TEAM / 32 * STRIP + (threadIdx.x & 31);
    const uint64_t step = only_values ? 0 : (uint64_t)(*a->first_step + t);
    const float *obs = a->obs + (long long)t * a->rows * OBS;
    half_float *inputs = a->inputs ? a->inputs + (long long)t * a->rows * INPUTS : 0, *x = memory->x[team];
    for (int at = team * TEAM_ROWS; at < count; at += TEAMS * TEAM_ROWS) {
        int *rows = memory->listed + at;
        const int row = own_row(rows, count - at);
        if (inputs && a->heads) load_inputs(x, rows, inputs);
        else {
            load_numbers(memory->number[team], rows, obs);
            team_barrier();
            write_all_inputs<TEAM_ROWS, TEAM>(x, memory->number[team]);
        }
#if WARPGROUPS
        show_to_tensor_cores();
#endif
        team_barrier();
        if (slot == 0 && inputs && !only_values) store_inputs(inputs, rows, x);
        compute_outputs(&memory->weights, x, memory->out[team]);
        __syncwarp();
        if (row >= 0) act_row(a, &memory->weights, memory->out[team] + line * OUTPUTS, t, row, step, only_values);
        team_barrier();
    }
}

#endif
