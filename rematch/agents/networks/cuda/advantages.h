/* Generalised advantages along each seat's own decisions, as RolloutBuffer.advantages computes them on the CPU.
 * Native worlds have no cut-offs: an ended game is decided, and nothing follows. */
#ifndef REMATCH_ADVANTAGES_H
#define REMATCH_ADVANTAGES_H

#include "../../../worlds/native/random.h"

typedef struct {
    const float *reward;         /* [steps][games][reward_seats] */
    const unsigned char *ended;  /* [steps][games] */
    const unsigned char *acting; /* [steps + 1][games][all_seats] */
    const int32_t *slot;         /* [steps + 1][games][all_seats] */
    const float *value;          /* [steps + 1][rows] */
    float *advantage, *target;   /* [steps][rows] */
    int32_t *counts;             /* [steps][rows] 1 where the learner decided and its decision has a successor */
    int32_t rows, seats, all_seats, first_seat, reward_seats, reward_first, steps;
    float gamma, gamma_lambda;
} AdvantageArguments;

/* One thread per (game, seat of the role). */
extern "C" __global__ void advantages(const AdvantageArguments *arguments) {
    const AdvantageArguments *a = arguments + blockIdx.y;
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a->rows) return;
    const int game = row / a->seats, seat = row % a->seats, games = a->rows / a->seats;
    long long place = ((long long)a->steps * games + game) * a->all_seats + a->first_seat + seat;
    float ahead = a->value[(long long)a->steps * a->rows + row], next_advantage = 0.0f, due = 0.0f;
    bool has_next = a->acting[place] != 0;
    for (int t = a->steps - 1; t >= 0; t--) {
        place -= (long long)games * a->all_seats;
        const long long at = (long long)t * a->rows + row;
        const float reward = a->reward[((long long)t * games + game) * a->reward_seats + a->reward_first + seat];
        const bool acted = a->acting[place] != 0;
        if (a->ended[(long long)t * games + game]) {
            due = reward;
            ahead = next_advantage = 0.0f;
            has_next = true;
        } else due += reward;
        float advantage = 0.0f;
        if (acted) {
            const float value = a->value[at];
            if (has_next) advantage = due + a->gamma * ahead - value + a->gamma_lambda * next_advantage;
            a->counts[at] = has_next && a->slot[place] == 0;
            next_advantage = advantage;
            ahead = value;
            due = 0.0f;
            has_next = true;
        } else a->counts[at] = 0;
        a->advantage[at] = advantage;
        a->target[at] = advantage + (acted ? a->value[at] : 0.0f);
    }
}

#endif
