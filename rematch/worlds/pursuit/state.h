/* The data of a pursuit game: its rules (the settings) and the state of one arena.
 *
 * Both structs are lists (type, name, length), so that Python can compare them with `Config`, field by field, and
 * read the bytes of a saved game by name (struct_layout.h). Plain C99 that also compiles as CUDA C. */
#ifndef REMATCH_PURSUIT_STATE_H
#define REMATCH_PURSUIT_STATE_H

#include "trig.h"

enum { PURSUER = 0, EVADER = 1 };
enum { MAX_OBSTACLES = 8, MAX_RAYS = 360, GRID = 10, STAGE_NUMBERS = 4, STATE_NUMBERS = 7 };
enum { RUNNING = 0, DECIDED = 1 };
enum { FOV = 0, RADIUS = 1, LINE_OF_SIGHT = 2, COMBINED = 3 }; /* the choices of `visibility`, in order */
enum { REMATCH = 0, ORIGINAL = 1 };                            /* the choices of `reward_form`, in order */
enum { FACTORS = 4 }; /* speed factors and turn factors of both robots */

#define GAME_MARK 0x31525550u /* "PUR1"; change it whenever PURSUIT_GAME changes */
#define FAR_AWAY 1e9f           /* m; distance of obstacles that do not exist */
#define SAFETY_AHEAD 0.1f       /* m; distance from the axle to the point ahead that the safety filter keeps safe */
#define SAFETY_SEPARATION 0.35f /* m; smallest distance from that point to the other robot */
#define SAFETY_WEIGHT 150.0     /* cost of a change of speed (m/s), relative to a change of turn rate (rad/s) */

/* For functions that few games need: inlined, they would slow down the step of all others. */
#ifdef __CUDACC__
#define RM_OUT_OF_LINE RM_FN
#else
#define RM_OUT_OF_LINE static __attribute__((noinline, unused))
#endif

typedef int32_t rm_flag;         /* a bool of Config */
typedef int32_t rm_choice;       /* a str of Config: the index of its choice */
typedef unsigned short rm_count; /* steps */

/* Exactly the fields of `Config` in config.py, which documents each of them. */
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
    FIELD(rm_flag, safety_separation) FIELD(rm_choice, reward_form) FIELD(int32_t, stale_steps) \
    FIELD(float, speed_variation) FIELD(float, turn_variation) FIELD(int32_t, action_delay) \
    FIELD(float, actuator_noise) FIELD(float, sensor_noise) FIELD(rm_flag, observe_drawn_speed)

/* One arena. Pairs are [pursuer, evader]. The members that a step uses come first. */
#define PURSUIT_GAME(FIELD) \
    FIELD(uint64_t, seed, 1)      /* random key of this episode, together with `episode` */ \
    FIELD(float, x, 2) FIELD(float, y, 2) FIELD(float, theta, 2) \
    FIELD(float, v, 2) FIELD(float, omega, 2) /* of the last step */ \
    FIELD(int32_t, step, 1)       /* steps of this episode so far */ \
    FIELD(int32_t, obstacles, 1)  /* number of obstacles in the next three arrays */ \
    FIELD(float, obstacle_x, MAX_OBSTACLES) FIELD(float, obstacle_y, MAX_OBSTACLES) \
    FIELD(float, obstacle_radius, MAX_OBSTACLES) \
    FIELD(uint32_t, episode, 1) \
    FIELD(int32_t, slot, 2)       /* players of both seats; the rules do not read it */ \
    FIELD(float, stage, STAGE_NUMBERS) /* start values of this episode */ \
    FIELD(uint32_t, spawn_redraws, 1) /* obstacle layouts that were redrawn because no start was found */ \
    FIELD(uint32_t, obstacles_missing, 1) /* obstacles that could not be placed */ \
    FIELD(rm_count, visited, GRID * GRID) /* step of the pursuer's last visit; written only for w_search */ \
    FIELD(uint32_t, mark, 1)      /* GAME_MARK: these bytes are a game */

/* Optional state of a game, in a separate array that exists only with sensors, the safety filter or disturbances.
 * With sensors it is followed by the frames of both robots, [2][history_length][STATE_NUMBERS + rays] floats: a ring
 * buffer, in which the frame of step t has the index t modulo history_length. With disturbances (disturbances.h)
 * FACTORS floats and the delayed actions of both robots, [2][action_delay][2] floats, follow: a ring buffer too. */
#define PURSUIT_OPTIONAL(FIELD) \
    FIELD(uint64_t, noise, 2)     /* keys of the noise: of this step, of future steps */ \
    FIELD(uint32_t, safety_interventions, 1) /* steps in which the filter changed the action */ \
    FIELD(uint32_t, safety_relaxed, 1)       /* steps without a safe action: constraints were relaxed */ \
    FIELD(uint32_t, safety_violations, 1)    /* steps that ended closer than allowed */ \
    FIELD(uint32_t, spare, 1)

#define RULE_MEMBER(type, name) type name;
#define GAME_MEMBER(type, name, length) type name[length];
typedef struct { PURSUIT_RULES(RULE_MEMBER) } Rules;
typedef struct { PURSUIT_GAME(GAME_MEMBER) } Game;
typedef struct { PURSUIT_OPTIONAL(GAME_MEMBER) } OptionalState;

/* The condition under which a robot sees the other: range in m, angle to the heading in rad, and whether obstacles
 * block the line of sight. */
typedef struct { float range, half_angle; rm_flag occlusion; } FieldOfView;

/* Numbers derived from the rules once. The prefix `per_` marks a reciprocal. */
typedef struct {
    float limit_x, limit_y;           /* largest |x| and |y| of a robot's centre */
    float per_half_width, per_half_height, diagonal, per_diagonal, per_pi;
    float v_max[2], per_v_max[2], per_omega, per_max_steps;
    FieldOfView reward_view, sensor_view; /* for the reward terms; for the sensors */
    int32_t shown_obstacles;          /* K: obstacles in the observation of each robot */
    int32_t columns;                  /* numbers in `state`: 14 + 2 K + 1; with sensors 7 */
    int32_t rays, frame, frames;      /* lidar rays; numbers per frame (state and lidar); stored frames */
    rm_flag disturbed;                /* whether a setting of disturbances.h is on */
    int32_t optional_bytes;           /* optional state of one game; 0: none */
    float safety_depth;               /* m; violation that rounding can explain (safety_filter.h) */
    int32_t controls;                 /* numbers per action: (speed, turn) or (turn) */
    rm_flag uses_visibility, uses_shaping;
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
    const float largest_factor = rules->observe_drawn_speed ? 1.0f + rules->speed_variation : 1.0f;
    for (int s = 0; s < 2; s++) d.per_v_max[s] = d.v_max[s] > 0.0f ? 1.0f / (d.v_max[s] * largest_factor) : 0.0f;
    d.per_omega = 1.0f / rules->omega_max;
    d.per_max_steps = 1.0f / (float)rules->max_steps;
    d.reward_view.range = rules->sight_range;
    d.reward_view.half_angle = rules->sight_half_angle * (RM_PI / 180.0f);
    d.reward_view.occlusion = rules->sight_occlusion;
    d.sensor_view.range = rules->visibility == LINE_OF_SIGHT ? FAR_AWAY : rules->view_range;
    d.sensor_view.half_angle = rules->visibility == FOV || rules->visibility == COMBINED
                      ? rules->view_half_angle * (RM_PI / 180.0f) : RM_TWO_PI;
    d.sensor_view.occlusion = rules->visibility == LINE_OF_SIGHT || rules->visibility == COMBINED;
    if (rules->reward_form == ORIGINAL) { /* the range of the sensors; without sensors there is no limit */
        d.reward_view.range = rules->full_obs ? FAR_AWAY : d.sensor_view.range;
        d.reward_view.half_angle = RM_TWO_PI;
        d.reward_view.occlusion = 1;
    }
    d.shown_obstacles = rules->n_obstacle_obs < 0 ? rules->n_obstacles_max : rules->n_obstacle_obs;
    d.columns = rules->full_obs ? 14 + 2 * d.shown_obstacles + 1 : STATE_NUMBERS;
    d.rays = rules->full_obs ? 0 : rules->lidar_rays;
    d.frame = rules->full_obs ? 0 : STATE_NUMBERS + d.rays;
    d.frames = rules->full_obs ? 0 : rules->history_length;
    d.disturbed = rules->speed_variation != 0.0f || rules->turn_variation != 0.0f || rules->action_delay > 0
                  || rules->actuator_noise != 0.0f || rules->sensor_noise != 0.0f;
    const int32_t numbers = 2 * d.frames * d.frame + (d.disturbed ? FACTORS + 4 * rules->action_delay : 0);
    d.optional_bytes = rules->full_obs && !rules->safety_filter && !d.disturbed
                        ? 0 : (int32_t)(sizeof(OptionalState) + (uint32_t)numbers * sizeof(float));
    float sine, cosine;
    rm_sincos(rules->omega_max * rules->dt, &sine, &cosine);
    d.safety_depth = SAFETY_AHEAD * (1.0f - cosine) / rules->safety_gamma + 1e-5f;
    d.controls = rules->fixed_speed ? 1 : 2;
    d.uses_visibility = rules->use_visibility_reward || rules->w_vis_pursuer != 0.0f || rules->w_search != 0.0f;
    d.uses_shaping = d.uses_visibility || rules->survival_bonus != 0.0f || rules->w_obs_approach != 0.0f
                    || rules->w_collision != 0.0f || rules->w_wall != 0.0f;
    return d;
}

#endif
