/* The rules of pursuit: one step of an arena, its rewards, and what both robots see (pursuit
 * specification, sections 1 to 3). Plain C99, no allocation, no globals; also compiles as CUDA C.
 *
 * Games are stepped in blocks of LANES: a block is turned on its side (one array per quantity), each rule
 * is one loop over the lanes that the compiler makes into vector instructions, and the block is written
 * back. On a GPU a block is a single game. No lane ever looks at another, so results do not depend on how
 * games fall into blocks, parts or threads. */
#ifndef REMATCH_PURSUIT_RULES_H
#define REMATCH_PURSUIT_RULES_H

#include "spawn.h"

#ifdef __CUDACC__
enum { LANES = 1 };
#else
enum { LANES = 32 }; /* more than gcc unrolls whole, so that it vectorises instead */
#endif
enum { MOST_COLUMNS = 14 + 2 * MAX_OBSTACLES + 1, PUSH_PASSES = 3 };

#define SKIN 1e-5f /* m; a pushed robot is put this far off the surface, so that rounding is no overlap */

/* The arrays of a whole batch, game after game. */
typedef struct {
    Game *games;
    const float *action[2];   /* per seat [N, controls] in [-1, 1] */
    float *obs[2];          /* per seat [N, columns]: the field `state` */
    float *reward, *outcome;  /* [N, 2] */
    uint8_t *ended;           /* [N] */
    int32_t *length;          /* [N] */
    const uint64_t *next_seed; /* [N] what each game restarts from */
    const int32_t *next_slot; /* [N, 2] */
    const float *next_stage;  /* [N, STAGE_NUMBERS] */
    uint8_t *annex;           /* [N, annex_bytes]; NULL where there is none */
    float *lidar[2];          /* per seat [N, rays]; this and the next two with sensors only */
    float *history[2];        /* per seat [N, frames * frame], oldest first */
    float *clock[2];          /* per seat [N] time to go */
} Batch;

/* A block on its side: [seat or obstacle][lane]. */
typedef struct {
    float x[2][LANES], y[2][LANES], theta[2][LANES], v[2][LANES], omega[2][LANES];
    float ox[MAX_OBSTACLES][LANES], oy[MAX_OBSTACLES][LANES], radius[MAX_OBSTACLES][LANES];
    int32_t step[LANES], obstacles[LANES];
} Block;

/* What one seat chose, per lane, in [-1, 1] once clipped. */
typedef struct { float speed[LANES], turn[LANES]; } Controls;

/* What a step leaves for the rewards: [seat][lane]. */
typedef struct {
    float distance_before[LANES], distance[LANES], near_before[LANES];
    int32_t pushed[2][LANES], walled[2][LANES], captured[LANES], timeout[LANES];
    float reward[2][LANES];
} Events;

#define EACH_LANE for (int i = 0; i < LANES; i++)

RM_FN void lay_lane(Block *b, int i, const Game *game, int slots) {
    for (int s = 0; s < 2; s++) {
        b->x[s][i] = game->x[s];
        b->y[s][i] = game->y[s];
        b->theta[s][i] = game->theta[s];
        b->v[s][i] = game->v[s];
        b->omega[s][i] = game->omega[s];
    }
    for (int k = 0; k < slots; k++) {
        b->ox[k][i] = game->obstacle_x[k];
        b->oy[k][i] = game->obstacle_y[k];
        b->radius[k][i] = game->obstacle_radius[k];
    }
    b->step[i] = game->step[0];
    b->obstacles[i] = game->obstacles[0];
}

/* Lanes past the end repeat the last game; what they compute is dropped. */
RM_FN void lay(Block *b, const Game *games, int lanes, int slots) {
    EACH_LANE lay_lane(b, i, games + (i < lanes ? i : lanes - 1), slots);
}

/* --- moving ---------------------------------------------------------------------------------------- */

/* Clip the actions, freeze the pursuer while it prepares, move by explicit Euler with the old heading. */
RM_FN void drive(const Rules *rules, const Derived *derived, Block *b, int s, const Controls *chosen) {
    const float v_max = derived->v_max[s], omega_max = rules->omega_max, dt = rules->dt;
    const int32_t frozen = s == PURSUER ? rules->prep_steps : 0;
    float sine[LANES], cosine[LANES];
    EACH_LANE rm_sincos(b->theta[s][i], &sine[i], &cosine[i]);
    EACH_LANE b->v[s][i] = v_max * ((rm_clip(chosen->speed[i], -1.0f, 1.0f) + 1.0f) * 0.5f);
    EACH_LANE b->v[s][i] = b->step[i] < frozen ? 0.0f : b->v[s][i];
    EACH_LANE b->omega[s][i] = omega_max * rm_clip(chosen->turn[i], -1.0f, 1.0f);
    EACH_LANE b->x[s][i] += b->v[s][i] * cosine[i] * dt;
    EACH_LANE b->y[s][i] += b->v[s][i] * sine[i] * dt;
    EACH_LANE b->theta[s][i] = rm_wrap(b->theta[s][i] + b->omega[s][i] * dt);
}

/* Push one robot out of every obstacle it overlaps, radially; from the exact centre along its heading. */
RM_FN void push_out(const Rules *rules, Block *b, int s, int i) {
    for (int pass = 0; pass < PUSH_PASSES; pass++)
        for (int k = 0; k < b->obstacles[i]; k++) {
            float dx = b->x[s][i] - b->ox[k][i], dy = b->y[s][i] - b->oy[k][i];
            float reach = b->radius[k][i] + rules->robot_radius;
            float square = dx * dx + dy * dy;
            if (square < reach * reach) {
                float apart = sqrtf(square);
                float ux, uy;
                if (apart > 0.0f) {
                    ux = dx / apart;
                    uy = dy / apart;
                } else {
                    rm_sincos(b->theta[s][i], &uy, &ux);
                }
                b->x[s][i] = b->ox[k][i] + ux * (reach + SKIN);
                b->y[s][i] = b->oy[k][i] + uy * (reach + SKIN);
            }
        }
}

RM_FN void meet_obstacles(const Rules *rules, Block *b, Events *e, int s, int slots) {
    const float robot = rules->robot_radius;
    int32_t any = 0;
    EACH_LANE e->pushed[s][i] = 0;
    for (int k = 0; k < slots; k++) EACH_LANE {
        float dx = b->x[s][i] - b->ox[k][i], dy = b->y[s][i] - b->oy[k][i];
        float reach = b->radius[k][i] + robot;
        int32_t overlaps = dx * dx + dy * dy < reach * reach;
        e->pushed[s][i] |= overlaps & (k < b->obstacles[i]);
    }
    EACH_LANE any |= e->pushed[s][i];
    if (any) EACH_LANE if (e->pushed[s][i]) push_out(rules, b, s, i);
}

/* Walls clip the position; heading and the motion along the wall stay. */
RM_FN void meet_walls(const Derived *derived, Block *b, Events *e, int s) {
    const float limit_x = derived->limit_x, limit_y = derived->limit_y;
    EACH_LANE {
        float x = rm_clip(b->x[s][i], -limit_x, limit_x), y = rm_clip(b->y[s][i], -limit_y, limit_y);
        e->walled[s][i] = (x != b->x[s][i]) | (y != b->y[s][i]);
        b->x[s][i] = x;
        b->y[s][i] = y;
    }
}

RM_FN void measure(const Block *b, float distance[LANES]) {
    EACH_LANE distance[i] = rm_hypot(b->x[EVADER][i] - b->x[PURSUER][i], b->y[EVADER][i] - b->y[PURSUER][i]);
}

/* --- what both robots see -------------------------------------------------------------------------- */

#include "full_observation.h"

#include "sensor_observation.h"

/* --- rewards --------------------------------------------------------------------------------------- */

#include "shaping_rewards.h"

/* The zero-sum terms: closing in, capture, time-out. */
RM_FN void reward(const Rules *rules, const Derived *derived, Events *e) {
    const float scale = rules->distance_scale, per_diagonal = derived->per_diagonal;
    const float bonus = rules->capture_bonus, penalty = rules->timeout_penalty;
    const rm_flag hides = rules->use_visibility_reward;
    EACH_LANE {
        float closing = scale * ((e->distance_before[i] - e->distance[i]) * per_diagonal);
        float verdict = e->captured[i] ? bonus : 0.0f;
        verdict = e->timeout[i] ? penalty : verdict;
        e->reward[PURSUER][i] = closing + verdict;
        e->reward[EVADER][i] = (hides ? 0.0f : -closing) - verdict;
    }
}

/* --- a step ---------------------------------------------------------------------------------------- */

#include "safety_filter.h"

/* What both robots see in `lanes` games from `row` on. */
RM_FN void observe(const Rules *rules, const Derived *derived, Batch *batch, int row, int lanes) {
    Block b;
    lay(&b, batch->games + row, lanes, rules->n_obstacles_max);
    if (rules->full_obs) see(rules, derived, &b, batch, row, lanes);
    else sense(rules, derived, &b, batch, row, lanes);
}

/* The ended game of this row begins anew from `next`. */
RM_FN int restart(const Rules *rules, const Derived *derived, Batch *batch, int row, uint32_t episode) {
    Game *game = batch->games + row;
    game->seed[0] = batch->next_seed[row];
    game->episode[0] = episode;
    for (int s = 0; s < 2; s++) game->slot[s] = batch->next_slot[2 * row + s];
    for (int n = 0; n < STAGE_NUMBERS; n++) game->stage[n] = batch->next_stage[STAGE_NUMBERS * row + n];
    if (!rules->full_obs) forget(derived, batch, row, game->seed[0]);
    return reset(rules, derived, game);
}

RM_FN void read_actions(const Derived *derived, const Batch *batch, int s, int row, int lanes, Controls *chosen) {
    const int controls = derived->controls;
    EACH_LANE {
        const float *action = batch->action[s] + (long)(row + (i < lanes ? i : lanes - 1)) * controls;
        chosen->speed[i] = controls == 2 ? action[0] : 1.0f; /* fixed_speed: always the fastest */
        chosen->turn[i] = action[controls - 1];
    }
}

RM_FN void write_back(const Block *b, const Events *e, Batch *batch, int row, int lanes) {
    for (int i = 0; i < lanes; i++) {
        Game *game = batch->games + row + i;
        for (int s = 0; s < 2; s++) {
            game->x[s] = b->x[s][i];
            game->y[s] = b->y[s][i];
            game->theta[s] = b->theta[s][i];
            game->v[s] = b->v[s][i];
            game->omega[s] = b->omega[s][i];
            batch->reward[2 * (row + i) + s] = e->reward[s][i];
        }
        game->step[0] = b->step[i];
        batch->length[row + i] = b->step[i];
        batch->ended[row + i] = (uint8_t)(e->captured[i] | e->timeout[i] ? DECIDED : RUNNING);
        batch->outcome[2 * (row + i) + PURSUER] = (float)e->captured[i];
        batch->outcome[2 * (row + i) + EVADER] = (float)e->timeout[i];
    }
}

/* One step of `lanes` games from `row` on: clip, freeze, move, obstacles, walls, count, capture, rewards;
 * ended games restart; then both robots look. With the safety filter the pursuer drives what it makes of the
 * chosen action. Returns STARTED, or why a game could not restart (its row
 * in *stuck). Actions must be finite. */
RM_FN int step(const Rules *rules, const Derived *derived, Batch *batch, int row, int lanes, int *stuck) {
    const int slots = rules->n_obstacles_max;
    const int32_t max_steps = rules->max_steps;
    const float capture_radius = rules->capture_radius;
    int verdict = STARTED;
    Block b;
    Events e;
    Controls chosen;

    lay(&b, batch->games + row, lanes, slots);
    measure(&b, e.distance_before);
    if (rules->w_obs_approach != 0.0f) nearest_surface(&b, slots, e.near_before);
    for (int s = 0; s < 2; s++) {
        read_actions(derived, batch, s, row, lanes, &chosen);
        if (s == PURSUER && rules->safety_filter) keep_safe(rules, derived, &b, batch, row, lanes, &chosen);
        drive(rules, derived, &b, s, &chosen);
    }
    for (int s = 0; s < 2; s++) {
        meet_obstacles(rules, &b, &e, s, slots);
        meet_walls(derived, &b, &e, s);
    }
    measure(&b, e.distance);
    EACH_LANE {
        b.step[i] += 1;
        e.captured[i] = e.distance[i] <= capture_radius;
        e.timeout[i] = (b.step[i] >= max_steps) & !e.captured[i];
    }
    reward(rules, derived, &e);
    if (derived->uses_extras) reward_extras(rules, derived, &b, &e, batch->games + row, lanes);
    if (rules->safety_filter) count_violations(rules, derived, &b, batch, row, lanes);
    write_back(&b, &e, batch, row, lanes);

    if (!rules->full_obs)
        for (int i = 0; i < lanes; i++) new_noise(derived, batch, row + i);
    for (int i = 0; i < lanes; i++)
        if (e.captured[i] | e.timeout[i]) {
            int answer = restart(rules, derived, batch, row + i, batch->games[row + i].episode[0] + 1);
            if (answer != STARTED) {
                verdict = answer;
                *stuck = row + i;
            }
            lay_lane(&b, i, batch->games + row + i, slots);
        }
    if (rules->full_obs) see(rules, derived, &b, batch, row, lanes);
    else sense(rules, derived, &b, batch, row, lanes);
    return verdict;
}

#endif
