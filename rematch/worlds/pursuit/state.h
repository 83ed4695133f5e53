/* What a pursuit game is made of: the rules it follows and the state of one arena.
 *
 * Both structs are lists (name, type, length) so that Python can compare them with `Config`, field by
 * field, and give names to the bytes of a saved game. Plain C99 that also compiles as CUDA C. */
#ifndef REMATCH_PURSUIT_STATE_H
#define REMATCH_PURSUIT_STATE_H

#include "trig.h"

enum { PURSUER = 0, EVADER = 1 };
enum { MAX_OBSTACLES = 8, MAX_RAYS = 360, GRID = 10, STAGE_NUMBERS = 4, STATE_NUMBERS = 7 };
enum { RUNNING = 0, DECIDED = 1 };
enum { FOV = 0, RADIUS = 1, LINE_OF_SIGHT = 2, COMBINED = 3 }; /* the choices of `visibility`, in order */

#define GAME_MARK 0x31525550u /* "PUR1": change it with the list below */
#define FAR_AWAY 1e9f /* m; where obstacles are that do not exist */
#define SAFETY_AHEAD 0.1f       /* m; how far before the axle the point lies that the safety filter keeps safe */
#define SAFETY_SEPARATION 0.35f /* m; how near that point may come to the other robot */
#define SAFETY_WEIGHT 150.0     /* what a change of speed (m/s) costs the filter, beside one of turn (rad/s) */

/* For what few games need: kept out of the step of the others, whose speed it would cost. */
#ifdef __CUDACC__
#define RM_APART RM_FN
#else
#define RM_APART static __attribute__((noinline, unused))
#endif

typedef int32_t rm_flag;         /* a bool of Config */
typedef int32_t rm_choice;       /* a text of Config: the number of its choice */
typedef unsigned short rm_count; /* a number of steps */

/* Exactly the fields of `Config` in rules.py, which explains each of them. */
#define PURSUIT_RULES(FIELD) \
    FIELD(float, arena_width) FIELD(float, arena_height) FIELD(float, dt) FIELD(int32_t, max_steps) \
    FIELD(float, pursuer_v_max) FIELD(float, evader_v_max) FIELD(float, omega_max) FIELD(rm_flag, fixed_speed) \
    FIELD(float, robot_radius) FIELD(float, capture_radius) FIELD(int32_t, prep_steps) \
    FIELD(float, min_init_distance) FIELD(float, max_init_distance) \
    FIELD(int32_t, n_obstacles_min) FIELD(int32_t, n_obstacles_max) \
    FIELD(float, obstacle_radius_min) FIELD(float, obstacle_radius_max) \
    FIELD(float, obstacle_gap) FIELD(float, obstacle_margin) FIELD(int32_t, n_obstacle_obs) \
    FIELD(float, distance_scale) FIELD(float, capture_bonus) FIELD(float, timeout_penalty) \
    FIELD(float, survival_bonus) FIELD(rm_flag, use_visibility_reward) FIELD(float, visibility_weight) \
    FIELD(float, w_obs_approach) FIELD(float, w_vis_pursuer) FIELD(float, w_search) \
    FIELD(float, w_collision) FIELD(float, w_wall) \
    FIELD(float, sight_range) FIELD(float, sight_half_angle) FIELD(rm_flag, sight_occlusion) \
    FIELD(rm_flag, full_obs) FIELD(int32_t, lidar_rays) FIELD(float, lidar_range) FIELD(float, lidar_noise) \
    FIELD(int32_t, history_length) FIELD(rm_choice, visibility) FIELD(float, view_half_angle) \
    FIELD(float, view_range) FIELD(rm_flag, safety_filter) FIELD(float, safety_gamma) \
    FIELD(rm_flag, safety_separation)

/* One arena. Pairs are [pursuer, evader]. What a step touches stands first. */
#define PURSUIT_GAME(FIELD) \
    FIELD(uint64_t, seed, 1)      /* this episode's random key, with `episode` */ \
    FIELD(float, x, 2) FIELD(float, y, 2) FIELD(float, theta, 2) \
    FIELD(float, v, 2) FIELD(float, omega, 2) /* as last driven */ \
    FIELD(int32_t, step, 1)       /* steps made in this episode */ \
    FIELD(int32_t, obstacles, 1)  /* how many of the following are there */ \
    FIELD(float, obstacle_x, MAX_OBSTACLES) FIELD(float, obstacle_y, MAX_OBSTACLES) \
    FIELD(float, obstacle_radius, MAX_OBSTACLES) \
    FIELD(uint32_t, episode, 1) \
    FIELD(int32_t, slot, 2)       /* who sits there; the rules never look */ \
    FIELD(float, stage, STAGE_NUMBERS) /* what this episode was started from */ \
    FIELD(uint32_t, spawn_redraws, 1) /* obstacle layouts given up because no start was found */ \
    FIELD(uint32_t, obstacles_missing, 1) /* obstacles that found no place */ \
    FIELD(rm_count, visited, GRID * GRID) /* step of the pursuer's last visit; kept only for w_search */ \
    FIELD(uint32_t, mark, 1)      /* GAME_MARK: these bytes are a game */

/* What a game holds besides, in an array of its own that exists only with sensors or the safety filter. With
 * sensors there follow what both robots have seen, [2][history_length][STATE_NUMBERS + rays] floats; the
 * frame of step t has the place t modulo history_length. */
#define PURSUIT_ANNEX(FIELD) \
    FIELD(uint64_t, noise, 2)     /* keys of the sensors' noise: that of this step, that of the steps to come */ \
    FIELD(uint32_t, safety_interventions, 1) /* steps in which the filter changed the pursuer's action */ \
    FIELD(uint32_t, safety_relaxed, 1)       /* steps in which it had to give way, for no action was safe */ \
    FIELD(uint32_t, safety_violations, 1)    /* steps that ended too near to something */ \
    FIELD(uint32_t, spare, 1)

#define RULE_MEMBER(type, name) type name;
#define GAME_MEMBER(type, name, length) type name[length];
typedef struct { PURSUIT_RULES(RULE_MEMBER) } Rules;
typedef struct { PURSUIT_GAME(GAME_MEMBER) } Game;
typedef struct { PURSUIT_ANNEX(GAME_MEMBER) } Annex;

/* What one robot needs to see the other: a range, an angle off its heading, and whether obstacles block. */
typedef struct { float range, half; rm_flag blocked; } Eyes;

/* Numbers that follow from the rules, worked out once. */
typedef struct {
    float limit_x, limit_y;           /* furthest place of a robot's centre from the middle */
    float per_half_width, per_half_height, diagonal, per_diagonal, per_pi;
    float v_max[2], per_v_max[2], per_omega, per_max_steps;
    Eyes term_eyes, eyes;             /* of the reward terms; of the sensors */
    int32_t shown;                    /* obstacles each robot sees: K */
    int32_t columns;                  /* numbers in `state`: 14 + 2 K + 1; with sensors 7 */
    int32_t rays, frame, frames;      /* of the lidar; numbers of state and lidar; how many of those are kept */
    int32_t annex_bytes;              /* of one game; 0: there is none */
    float safety_depth;               /* m; how deep a step may end by rounding alone (safety.h) */
    int32_t controls;                 /* numbers each robot chooses: (speed, turn) or (turn) */
    rm_flag uses_sight, uses_extras;
} Derived;

RM_FN Derived derive(const Rules *rules) {
    Derived d;
    d.limit_x = rules->arena_width * 0.5f - rules->robot_radius;
    d.limit_y = rules->arena_height * 0.5f - rules->robot_radius;
    d.per_half_width = 2.0f / rules->arena_width;
    d.per_half_height = 2.0f / rules->arena_height;
    d.diagonal = rm_hypot(rules->arena_width, rules->arena_height);
    d.per_diagonal = 1.0f / d.diagonal;
    d.per_pi = 1.0f / RM_PI;
    d.v_max[PURSUER] = rules->pursuer_v_max;
    d.v_max[EVADER] = rules->evader_v_max;
    for (int s = 0; s < 2; s++) d.per_v_max[s] = d.v_max[s] > 0.0f ? 1.0f / d.v_max[s] : 0.0f;
    d.per_omega = 1.0f / rules->omega_max;
    d.per_max_steps = 1.0f / (float)rules->max_steps;
    d.term_eyes.range = rules->sight_range;
    d.term_eyes.half = rules->sight_half_angle * (RM_PI / 180.0f);
    d.term_eyes.blocked = rules->sight_occlusion;
    d.eyes.range = rules->visibility == LINE_OF_SIGHT ? FAR_AWAY : rules->view_range;
    d.eyes.half = rules->visibility == FOV || rules->visibility == COMBINED
                      ? rules->view_half_angle * (RM_PI / 180.0f) : RM_TWO_PI;
    d.eyes.blocked = rules->visibility == LINE_OF_SIGHT || rules->visibility == COMBINED;
    d.shown = rules->n_obstacle_obs < 0 ? rules->n_obstacles_max : rules->n_obstacle_obs;
    d.columns = rules->full_obs ? 14 + 2 * d.shown + 1 : STATE_NUMBERS;
    d.rays = rules->full_obs ? 0 : rules->lidar_rays;
    d.frame = rules->full_obs ? 0 : STATE_NUMBERS + d.rays;
    d.frames = rules->full_obs ? 0 : rules->history_length;
    d.annex_bytes = rules->full_obs && !rules->safety_filter
                        ? 0 : (int32_t)(sizeof(Annex) + 2u * (uint32_t)(d.frames * d.frame) * sizeof(float));
    float sine, cosine;
    rm_sincos(rules->omega_max * rules->dt, &sine, &cosine);
    d.safety_depth = SAFETY_AHEAD * (1.0f - cosine) / rules->safety_gamma + 1e-5f;
    d.controls = rules->fixed_speed ? 1 : 2;
    d.uses_sight = rules->use_visibility_reward || rules->w_vis_pursuer != 0.0f || rules->w_search != 0.0f;
    d.uses_extras = d.uses_sight || rules->survival_bonus != 0.0f || rules->w_obs_approach != 0.0f
                    || rules->w_collision != 0.0f || rules->w_wall != 0.0f;
    return d;
}

#endif
