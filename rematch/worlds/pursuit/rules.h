/* The rules of pursuit: one step of an arena, its rewards, and what both robots see (pursuit
 * specification, sections 1 to 3). Plain C99, no allocation, no globals; also compiles as CUDA C.
 *
 * Games are stepped in blocks of LANES: a block is turned on its side (one array per quantity), each rule
 * is one loop over the lanes that the compiler makes into vector instructions, and the block is written
 * back. On a GPU a block is a single game. No lane ever looks at another, so results do not depend on how
 * games fall into blocks, parts or threads. */
#ifndef REMATCH_PURSUIT_RULES_H
#define REMATCH_PURSUIT_RULES_H

#include "start.h"

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
    float *sight[2];          /* per seat [N, columns] */
    float *reward, *outcome;  /* [N, 2] */
    uint8_t *ended;           /* [N] */
    int32_t *length;          /* [N] */
    const uint64_t *next_seed; /* [N] what each game restarts from */
    const int32_t *next_slot; /* [N, 2] */
    const float *next_stage;  /* [N, STAGE_NUMBERS] */
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

/* --- rewards --------------------------------------------------------------------------------------- */

#include "extras.h"

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

/* --- what both robots see -------------------------------------------------------------------------- */

/* The obstacles as robot s sees them, nearest first: surface distance and relative bearing. */
RM_FN void see_obstacles(const Block *b, int s, int slots, float gap[][LANES], float bearing[][LANES]) {
    for (int k = 0; k < slots; k++) EACH_LANE {
        float dx = b->ox[k][i] - b->x[s][i], dy = b->oy[k][i] - b->y[s][i];
        int there = k < b->obstacles[i];
        float surface = rm_hypot(dx, dy) - b->radius[k][i];
        float relative = rm_wrap(rm_atan2(dy, dx) - b->theta[s][i]);
        gap[k][i] = there ? surface : FAR_AWAY;
        bearing[k][i] = there ? relative : 0.0f;
    }
    /* Bubble sort as a network: only neighbours change places, so equal ones keep their order. */
    for (int last = slots - 1; last > 0; last--)
        for (int k = 0; k < last; k++) EACH_LANE {
            int swap = gap[k + 1][i] < gap[k][i];
            float near_gap = swap ? gap[k + 1][i] : gap[k][i], far_gap = swap ? gap[k][i] : gap[k + 1][i];
            float near_side = swap ? bearing[k + 1][i] : bearing[k][i];
            float far_side = swap ? bearing[k][i] : bearing[k + 1][i];
            gap[k][i] = near_gap;
            gap[k + 1][i] = far_gap;
            bearing[k][i] = near_side;
            bearing[k + 1][i] = far_side;
        }
}

/* The five numbers of one robot, its speeds by its own maxima. */
RM_FN void see_robot(const Derived *derived, const Block *b, int s, float seen[][LANES]) {
    const float per_v = derived->per_v_max[s], per_omega = derived->per_omega, per_pi = derived->per_pi;
    const float per_w = derived->per_half_width, per_h = derived->per_half_height;
    EACH_LANE {
        seen[0][i] = b->x[s][i] * per_w;
        seen[1][i] = b->y[s][i] * per_h;
        seen[2][i] = rm_clip(b->theta[s][i] * per_pi, -1.0f, 1.0f);
        seen[3][i] = rm_min(b->v[s][i] * per_v, 1.0f);
        seen[4][i] = rm_clip(b->omega[s][i] * per_omega, -1.0f, 1.0f);
    }
}

/* Both robots' rows of numbers (14 + 2 K + 1 each, all in [-1, 1]) from a block. */
RM_FN void see(const Rules *rules, const Derived *derived, const Block *b, Batch *batch, int row, int lanes) {
    const float per_diagonal = derived->per_diagonal, per_pi = derived->per_pi;
    const int32_t max_steps = rules->max_steps;
    const float per_max_steps = derived->per_max_steps;
    const int slots = rules->n_obstacles_max, shown = derived->shown, columns = derived->columns;
    float seen[2][MOST_COLUMNS][LANES], gap[MAX_OBSTACLES][LANES], side[MAX_OBSTACLES][LANES];

    see_robot(derived, b, PURSUER, &seen[PURSUER][0]);
    see_robot(derived, b, EVADER, &seen[EVADER][0]);
    EACH_LANE {
        float dx = b->x[EVADER][i] - b->x[PURSUER][i], dy = b->y[EVADER][i] - b->y[PURSUER][i];
        float distance = rm_min(rm_hypot(dx, dy) * per_diagonal, 1.0f);
        float ahead = rm_atan2(dy, dx); /* the evader looks back along the same line */
        float back = ahead > 0.0f ? ahead - RM_PI : ahead + RM_PI;
        seen[PURSUER][10][i] = seen[EVADER][10][i] = distance;
        seen[PURSUER][11][i] = rm_clip(rm_wrap(ahead - b->theta[PURSUER][i]) * per_pi, -1.0f, 1.0f);
        seen[EVADER][11][i] = rm_clip(rm_wrap(back - b->theta[EVADER][i]) * per_pi, -1.0f, 1.0f);
    }
    for (int s = 0; s < 2; s++) {
        for (int c = 0; c < 5; c++) EACH_LANE seen[s][5 + c][i] = seen[1 - s][c][i];
        EACH_LANE seen[s][12][i] = 1.0f - rm_abs(seen[s][0][i]);
        EACH_LANE seen[s][13][i] = 1.0f - rm_abs(seen[s][1][i]);
        see_obstacles(b, s, slots, gap, side);
        for (int k = 0; k < shown; k++) EACH_LANE {
            seen[s][14 + 2 * k][i] = k < slots ? rm_clip(gap[k][i] * per_diagonal, -1.0f, 1.0f) : 1.0f;
            seen[s][15 + 2 * k][i] = k < slots ? rm_clip(side[k][i] * per_pi, -1.0f, 1.0f) : 0.0f;
        }
        EACH_LANE seen[s][columns - 1][i] = (float)(max_steps - b->step[i]) * per_max_steps;
        for (int i = 0; i < lanes; i++) {
            float *out = batch->sight[s] + (long)(row + i) * columns;
            for (int c = 0; c < columns; c++) out[c] = seen[s][c][i];
        }
    }
}

/* What both robots see in `lanes` games from `row` on. */
RM_FN void observe(const Rules *rules, const Derived *derived, Batch *batch, int row, int lanes) {
    Block b;
    lay(&b, batch->games + row, lanes, rules->n_obstacles_max);
    see(rules, derived, &b, batch, row, lanes);
}

/* --- a step ---------------------------------------------------------------------------------------- */

/* The ended game of this row begins anew from `next`. */
RM_FN int restart(const Rules *rules, const Derived *derived, Batch *batch, int row, uint32_t episode) {
    Game *game = batch->games + row;
    game->seed[0] = batch->next_seed[row];
    game->episode[0] = episode;
    for (int s = 0; s < 2; s++) game->slot[s] = batch->next_slot[2 * row + s];
    for (int n = 0; n < STAGE_NUMBERS; n++) game->stage[n] = batch->next_stage[STAGE_NUMBERS * row + n];
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
 * ended games restart; then both robots look. Returns STARTED, or why a game could not restart (its row
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
    write_back(&b, &e, batch, row, lanes);

    for (int i = 0; i < lanes; i++)
        if (e.captured[i] | e.timeout[i]) {
            int answer = restart(rules, derived, batch, row + i, batch->games[row + i].episode[0] + 1);
            if (answer != STARTED) {
                verdict = answer;
                *stuck = row + i;
            }
            lay_lane(&b, i, batch->games + row + i, slots);
        }
    see(rules, derived, &b, batch, row, lanes);
    return verdict;
}

#endif
