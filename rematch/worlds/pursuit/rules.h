/* The rules of pursuit: one step of an arena, its rewards and observations (pursuit specification, sections 1
 * to 3). Plain C99, no allocation, no globals; also compiles as CUDA C.
 *
 * Games are stepped in blocks of LANES: a block is transposed (one array per quantity), each rule is one loop
 * over the lanes that the compiler vectorises, and the block is written back. On a GPU a block is a single game.
 * No lane reads another, so results do not depend on the division into blocks, parts or threads. */
#ifndef REMATCH_PURSUIT_RULES_H
#define REMATCH_PURSUIT_RULES_H

#include "spawn.h"

#ifdef __CUDACC__
enum { LANES = 1 };
#else
enum { LANES = 32 }; /* gcc unrolls shorter loops completely instead of vectorising them */
#endif
enum { MAX_COLUMNS = 14 + 2 * MAX_OBSTACLES + 1, PUSH_PASSES = 3 };

#define SKIN 1e-5f /* m; distance from the surface after a push, so that rounding leaves no overlap */

/* The arrays of a arguments batch, game after game. */
typedef struct {
    Game *games;
    const float *action[2];   /* per seat [N, controls] in [-1, 1] */
    float *obs[2];            /* per seat [N, columns]: the field `state` */
    float *reward, *outcome;  /* [N, 2] */
    uint8_t *ended;           /* [N] */
    int32_t *length;          /* [N] */
    const uint64_t *next_seed; /* [N] of the next episode of each game */
    const int32_t *next_slot; /* [N, 2] */
    const float *next_stage;  /* [N, STAGE_NUMBERS] */
    uint8_t *optional;        /* [N, optional_bytes]; NULL if optional_bytes is 0 */
    float *lidar[2];          /* per seat [N, rays]; this and the next two with sensors only */
    float *history[2];        /* per seat [N, frames * frame], oldest first */
    float *clock[2];          /* per seat [N] time to go */
    float *other[2];          /* per seat [N, 2], privileged: position of the other robot in units of half the arena; may be NULL */
} Batch;

/* A transposed block: [seat or obstacle][lane]. */
typedef struct {
    float x[2][LANES], y[2][LANES], theta[2][LANES], v[2][LANES], omega[2][LANES];
    float ox[MAX_OBSTACLES][LANES], oy[MAX_OBSTACLES][LANES], radius[MAX_OBSTACLES][LANES];
    int32_t step[LANES], obstacles[LANES];
} Block;

/* The action of one seat, per lane; clipped to [-1, 1] later. */
typedef struct { float speed[LANES], turn[LANES]; } Controls;

/* The events of a step that the rewards depend on: [seat][lane]. */
typedef struct {
    float distance_before[LANES], distance[LANES], near_before[LANES];
    int32_t hit_obstacle[2][LANES], hit_wall[2][LANES], captured[LANES], timeout[LANES];
    float reward[2][LANES];
} Events;

#define EACH_LANE for (int i = 0; i < LANES; i++)

RM_FN void load_lane(Block *b, int i, const Game *game, int slots) {
    for (int s = 0; s < 2; s++) {
        b->x[s][i] = game->x[s];
        b->y[s][i] = game->y[s];
        b->theta[s][i] = game->theta[s];
        b->v[s][i] = game->v[s];
        b->omega[s][i] = game->omega[s];
    }
    RM_UNROLL for (int k = 0; k < slots; k++) {
        b->ox[k][i] = game->obstacle_x[k];
        b->oy[k][i] = game->obstacle_y[k];
        b->radius[k][i] = game->obstacle_radius[k];
    }
    b->step[i] = game->step[0];
    b->obstacles[i] = game->obstacles[0];
}

/* Lanes past the end repeat the last game; their results are dropped. */
RM_FN void load_block(Block *b, const Game *games, int lanes, int slots) {
    EACH_LANE load_lane(b, i, games + (i < lanes ? i : lanes - 1), slots);
}

/* --- motion ---------------------------------------------------------------------------------------- */

/* Clip the actions, freeze the pursuer while it prepares. */
RM_FN void set_motion(const Rules *rules, const Derived *derived, Block *b, int s, const Controls *chosen) {
    const float v_max = derived->v_max[s], omega_max = rules->omega_max;
    const int32_t frozen = s == PURSUER ? rules->prep_steps : 0;
    EACH_LANE b->v[s][i] = v_max * ((rm_clip(chosen->speed[i], -1.0f, 1.0f) + 1.0f) * 0.5f);
    EACH_LANE b->v[s][i] = b->step[i] < frozen ? 0.0f : b->v[s][i];
    EACH_LANE b->omega[s][i] = omega_max * rm_clip(chosen->turn[i], -1.0f, 1.0f);
}

/* Move by explicit Euler with the old heading. */
RM_FN void drive(const Rules *rules, Block *b, int s) {
    const float dt = rules->dt;
    float sine[LANES], cosine[LANES];
    EACH_LANE rm_sincos(b->theta[s][i], &sine[i], &cosine[i]);
    EACH_LANE b->x[s][i] += b->v[s][i] * cosine[i] * dt;
    EACH_LANE b->y[s][i] += b->v[s][i] * sine[i] * dt;
    EACH_LANE b->theta[s][i] = rm_wrap(b->theta[s][i] + b->omega[s][i] * dt);
}

/* Push one robot radially out of every obstacle it overlaps; from the exact centre along its heading. */
RM_FN void push_out(const Rules *rules, Block *b, int s, int i) {
    for (int pass = 0; pass < PUSH_PASSES; pass++)
        RM_UNROLL for (int k = 0; k < rules->n_obstacles_max; k++) {
            if (k >= b->obstacles[i]) break;
            float dx = b->x[s][i] - b->ox[k][i], dy = b->y[s][i] - b->oy[k][i];
            float reach = b->radius[k][i] + rules->robot_radius;
            float square = dx * dx + dy * dy;
            if (square < reach * reach) {
                float distance = sqrtf(square);
                float ux, uy;
                if (distance > 0.0f) {
                    ux = dx / distance;
                    uy = dy / distance;
                } else {
                    rm_sincos(b->theta[s][i], &uy, &ux);
                }
                b->x[s][i] = b->ox[k][i] + ux * (reach + SKIN);
                b->y[s][i] = b->oy[k][i] + uy * (reach + SKIN);
            }
        }
}

RM_FN void resolve_obstacles(const Rules *rules, Block *b, Events *e, int s, int slots) {
    const float robot = rules->robot_radius;
    int32_t any = 0;
    EACH_LANE e->hit_obstacle[s][i] = 0;
    RM_UNROLL for (int k = 0; k < slots; k++) EACH_LANE {
        float dx = b->x[s][i] - b->ox[k][i], dy = b->y[s][i] - b->oy[k][i];
        float reach = b->radius[k][i] + robot;
        int32_t overlaps = dx * dx + dy * dy < reach * reach;
        e->hit_obstacle[s][i] |= overlaps & (k < b->obstacles[i]);
    }
    EACH_LANE any |= e->hit_obstacle[s][i];
    if (any) EACH_LANE if (e->hit_obstacle[s][i]) push_out(rules, b, s, i);
}

/* Walls clip the position; the heading and the motion along the wall do not change. */
RM_FN void resolve_walls(const Derived *derived, Block *b, Events *e, int s) {
    const float limit_x = derived->limit_x, limit_y = derived->limit_y;
    EACH_LANE {
        float x = rm_clip(b->x[s][i], -limit_x, limit_x), y = rm_clip(b->y[s][i], -limit_y, limit_y);
        e->hit_wall[s][i] = (x != b->x[s][i]) | (y != b->y[s][i]);
        b->x[s][i] = x;
        b->y[s][i] = y;
    }
}

RM_FN void measure_distance(const Block *b, float distance[LANES]) {
    EACH_LANE distance[i] = rm_hypot(b->x[EVADER][i] - b->x[PURSUER][i], b->y[EVADER][i] - b->y[PURSUER][i]);
}

/* --- observations ------------------------------------------------------------------------------------------- */

#include "full_observation.h"

#include "sensor_observation.h"

/* --- rewards --------------------------------------------------------------------------------------- */

#include "shaping_rewards.h"

#include "original_rewards.h"

/* The zero-sum terms: approach, capture, time-out. */
RM_FN void reward(const Rules *rules, const Derived *derived, Events *e) {
    const float scale = rules->distance_scale, per_diagonal = derived->per_diagonal;
    const float bonus = rules->capture_bonus, penalty = rules->timeout_penalty;
    const rm_flag visibility_reward = rules->use_visibility_reward;
    EACH_LANE {
        float closing = scale * ((e->distance_before[i] - e->distance[i]) * per_diagonal);
        float terminal = e->captured[i] ? bonus : 0.0f;
        terminal = e->timeout[i] ? penalty : terminal;
        e->reward[PURSUER][i] = closing + terminal;
        e->reward[EVADER][i] = (visibility_reward ? 0.0f : -closing) - terminal;
    }
}

/* --- a step ---------------------------------------------------------------------------------------- */

#include "safety_filter.h"

RM_FN void observe_block(const Rules *rules, const Derived *derived, const Block *b, Batch *batch, int row, int lanes) {
    if (rules->full_obs) observe_full(rules, derived, b, batch, row, lanes);
#ifndef __CUDACC__ /* see sensor_kernels.h */
    else observe_sensors(rules, derived, b, batch, row, lanes);
#endif
    if (rules->full_obs && rules->sensor_noise != 0.0f) disturb_full(rules, derived, b, batch, row, lanes);
}

/* Write the observations of `lanes` games from `row` on. */
RM_FN void observe(const Rules *rules, const Derived *derived, Batch *batch, int row, int lanes) {
    Block b;
    load_block(&b, batch->games + row, lanes, rules->n_obstacles_max);
    observe_block(rules, derived, &b, batch, row, lanes);
}

/* Start the next episode of the game in this row. */
RM_FN int restart(const Rules *rules, const Derived *derived, Batch *batch, int row, uint32_t episode) {
    Game *game = batch->games + row;
    game->seed[0] = batch->next_seed[row];
    game->episode[0] = episode;
    for (int s = 0; s < 2; s++) game->slot[s] = batch->next_slot[2 * row + s];
    for (int n = 0; n < STAGE_NUMBERS; n++) game->stage[n] = batch->next_stage[STAGE_NUMBERS * row + n];
    if (!rules->full_obs || derived->disturbed) reset_sensors(derived, batch, row, game->seed[0]);
    if (derived->disturbed) reset_disturbances(rules, derived, batch, row);
    return reset(rules, derived, game);
}

RM_FN void read_actions(const Derived *derived, const Batch *batch, int s, int row, int lanes, Controls *chosen) {
    const int controls = derived->controls;
    EACH_LANE {
        const float *action = batch->action[s] + (long)(row + (i < lanes ? i : lanes - 1)) * controls;
        chosen->speed[i] = controls == 2 ? action[0] : 1.0f; /* fixed_speed: always top speed */
        chosen->turn[i] = action[controls - 1];
    }
}

RM_FN void store_block(const Block *b, const Events *e, Batch *batch, int row, int lanes) {
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

/* One step of `lanes` games from `row` on: clip actions, freeze the pursuer, move, obstacles, walls, step count,
 * capture, rewards; ended games restart; then observations are written. The safety filter replaces the action of
 * the pursuer; disturbances.h has the order of delay, noise and factors. Returns STARTED, or the reason why a game could not restart (its row in *failed_row). Actions must
 * be finite. */
RM_FN int step(const Rules *rules, const Derived *derived, Batch *batch, int row, int lanes, int *failed_row) {
    const int slots = rules->n_obstacles_max;
    const int32_t max_steps = rules->max_steps;
    const float capture_radius = rules->capture_radius;
    int status = STARTED;
    Block b;
    Events e;
    Controls chosen;

    load_block(&b, batch->games + row, lanes, slots);
    measure_distance(&b, e.distance_before);
    if (rules->w_obs_approach != 0.0f) nearest_surface(&b, slots, e.near_before);
    RM_UNROLL for (int s = 0; s < 2; s++) {
        read_actions(derived, batch, s, row, lanes, &chosen);
        if (rules->action_delay > 0) delay_actions(rules, derived, &b, batch, s, row, lanes, &chosen);
        if (s == PURSUER && rules->safety_filter) filter_actions(rules, derived, &b, batch, row, lanes, &chosen);
        if (rules->actuator_noise != 0.0f) disturb_actions(rules, derived, &b, batch, s, row, lanes, &chosen);
        set_motion(rules, derived, &b, s, &chosen);
        if (derived->disturbed) scale_motion(derived, &b, batch, s, row, lanes);
        drive(rules, &b, s);
    }
    RM_UNROLL for (int s = 0; s < 2; s++) {
        resolve_obstacles(rules, &b, &e, s, slots);
        resolve_walls(derived, &b, &e, s);
    }
    measure_distance(&b, e.distance);
    EACH_LANE {
        b.step[i] += 1;
        e.captured[i] = e.distance[i] <= capture_radius;
        e.timeout[i] = (b.step[i] >= max_steps) & !e.captured[i];
    }
    if (rules->reward_form == ORIGINAL) {
        reward_original(rules, derived, &b, &e, batch->games + row, lanes);
    } else {
        reward(rules, derived, &e);
        if (derived->uses_shaping) reward_shaping(rules, derived, &b, &e, batch->games + row, lanes);
    }
    if (rules->safety_filter) count_violations(rules, derived, &b, batch, row, lanes);
    store_block(&b, &e, batch, row, lanes);

    if (!rules->full_obs || derived->disturbed)
        for (int i = 0; i < lanes; i++) advance_noise_key(derived, batch, row + i);
    for (int i = 0; i < lanes; i++)
        if (e.captured[i] | e.timeout[i]) {
            int restarted = restart(rules, derived, batch, row + i, batch->games[row + i].episode[0] + 1);
            if (restarted != STARTED) {
                status = restarted;
                *failed_row = row + i;
            }
            load_lane(&b, i, batch->games + row + i, slots);
        }
    observe_block(rules, derived, &b, batch, row, lanes);
    return status;
}

#endif
