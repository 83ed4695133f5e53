/* Acting: one kernel computes all rows of a step, each with the weights of the policy in its slot.
 *
 * A block serves one slot and a range of rows: it lists the rows of the range that this slot plays, then computes them
 * tile by tile. The output of a row depends on that row alone. */
#ifndef REMATCH_ACT_H
#define REMATCH_ACT_H

#include "../../../worlds/native/random.h"
#include "network.h"

enum { LEARNER_RANGE = TILE, OPPONENT_RANGE = 16 * TILE }; /* rows of a block: slot 0 plays most of them */

/* One role. Arrays over steps have [steps + 1] entries; a row is game * seats + seat of the role. */
typedef struct {
    const float *weights;        /* [slots][WEIGHTS] */
    const float *obs;            /* [steps + 1][rows][OBS] */
    const unsigned char *mask;   /* [steps + 1][rows][ACTIONS] or NULL */
    const int32_t *slot;         /* [steps + 1][games][all_seats] */
    const unsigned char *acting; /* [steps + 1][games][all_seats] */
    float *action;               /* [steps][rows][ACTIONS], continuous */
    int32_t *choice;             /* [steps][rows], discrete */
    float *logp, *value;         /* [steps + 1][rows] */
    float *heads;                /* [steps + 1][rows][ACTIONS] means or logits, or NULL */
    uint64_t key;                /* of the random numbers */
    int32_t rows, seats, all_seats, first_seat, slots, first_row;
} ActArguments;

typedef struct { Tile tile; int listed[OPPONENT_RANGE], warp_count[THREADS / 32]; } ActMemory;

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
    for (int at = from; at < to; at += THREADS) {
        int row = at + threadIdx.x;
        bool wanted = row < to && (all || plays(a, t, row, slot));
        unsigned votes = __ballot_sync(0xFFFFFFFFu, wanted);
        if (lane == 0) memory->warp_count[warp] = __popc(votes);
        __syncthreads();
        int place = count + __popc(votes & ((1u << lane) - 1u));
        for (int w = 0; w < THREADS / 32; w++) {
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

DEVICE void act_gaussian(const ActArguments *a, const Tile *tile, const float *mean, long long at, uint32_t number, uint64_t step) {
    float logp = 0.0f, normal[2] = {0.0f, 0.0f};
    for (int d = 0; d < ACTIONS; d++) {
        if (!(d & 1)) {
            rm_quad words = rm_philox(a->key, number, (uint32_t)step, RM_STREAM_ACT | (uint32_t)d << 8, (uint32_t)(step >> 32));
            normals(words.w[0], words.w[1], &normal[0], &normal[1]);
        }
        float e = normal[d & 1];
        a->action[at * ACTIONS + d] = mean[d] + e * expf(tile->log_std[d]);
        logp += -0.5f * e * e - tile->log_std[d] - HALF_LOG_2PI;
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

/* grid (blocks, roles). `only_values`: values, and heads where wanted, of all rows by slot 0; nothing is drawn. */
extern "C" __global__ void __launch_bounds__(THREADS) act(const ActArguments *roles, int t, const long long *first_step, int only_values) {
    SHARED_MEMORY;
    ActMemory *memory = (ActMemory *)shared_memory;
    Tile *tile = &memory->tile;
    const ActArguments *a = roles + blockIdx.y;
    const int learner_blocks = (a->rows + LEARNER_RANGE - 1) / LEARNER_RANGE;
    const int ranges = (a->rows + OPPONENT_RANGE - 1) / OPPONENT_RANGE;
    int slot = 0, from = blockIdx.x * LEARNER_RANGE, range = LEARNER_RANGE;
    if ((int)blockIdx.x >= learner_blocks) {
        slot = 1 + (blockIdx.x - learner_blocks) / ranges;
        from = (blockIdx.x - learner_blocks) % ranges * OPPONENT_RANGE;
        range = OPPONENT_RANGE;
    }
    if (slot >= a->slots) return;
    const int to = from + range < a->rows ? from + range : a->rows;
    const int count = list_rows(a, memory, t, from, to, slot, only_values);
    if (!count) return;
    load_weights(tile, a->weights + (long long)slot * WEIGHTS);
    const long long first = (long long)t * a->rows;
    const uint64_t step = (uint64_t)(*first_step + t);
    for (int at = 0; at < count; at += TILE) {
        if (threadIdx.x < TILE) tile->row[threadIdx.x] = at + (int)threadIdx.x < count ? memory->listed[at + threadIdx.x] : -1;
        __syncthreads();
        float number[EACH];
        load_numbers(number, tile->row, a->obs + first * OBS);
        store_inputs(tile, number);
        forward(tile);
        int row = threadIdx.x < TILE ? tile->row[threadIdx.x] : -1;
        if (row >= 0) {
            const float *out = tile->out + threadIdx.x * OUTPUTS;
            a->value[first + row] = out[ACTIONS];
            if (a->heads)
                for (int d = 0; d < ACTIONS; d++) a->heads[(first + row) * ACTIONS + d] = out[d];
            if (!only_values) {
                if (DISCRETE) act_choice(a, out, first + row, (uint32_t)(a->first_row + row), step);
                else act_gaussian(a, tile, out, first + row, (uint32_t)(a->first_row + row), step);
            }
        }
        __syncthreads();
    }
}

#endif
