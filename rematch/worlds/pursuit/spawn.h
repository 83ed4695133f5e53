/* The start of an episode: obstacles, then both robots (pursuit specification, section 1).
 *
 * All random numbers are a function of (seed of the game, episode, block number): there is no other state. */
#ifndef REMATCH_PURSUIT_SPAWN_H
#define REMATCH_PURSUIT_SPAWN_H

#include "state.h"

enum { OBSTACLE_TRIES = 500, SPAWN_TRIES = 1000, MAX_REDRAWS = 64 };
enum { STARTED = 0, BAD_STAGE = 1, NO_START = 2 }; /* results of `reset` */

/* Random words of an episode in order: block 0, 1, 2, ... */
typedef struct { uint64_t seed; uint32_t episode, block; } EpisodeRng;

RM_FN rm_quad draw_words(EpisodeRng *rng) {
    return rm_philox(rng->seed, rng->episode, rng->block++, RM_STREAM_RESET, 0);
}

RM_FN float between(float low, float high, uint32_t word) { return low + (high - low) * rm_unit(word); }

/* Place one obstacle: radius and centre uniform, with a gap to the earlier ones; 500 tries, 0 if none fits. */
RM_FN int place_obstacle(const Rules *rules, Game *game, int index, EpisodeRng *rng) {
    for (int attempt = 0; attempt < OBSTACLE_TRIES; attempt++) {
        rm_quad random = draw_words(rng);
        float radius = between(rules->obstacle_radius_min, rules->obstacle_radius_max, random.w[0]);
        float limit_x = rules->arena_width * 0.5f - radius - rules->obstacle_margin;
        float limit_y = rules->arena_height * 0.5f - radius - rules->obstacle_margin;
        float x = between(-limit_x, limit_x, random.w[1]), y = between(-limit_y, limit_y, random.w[2]);
        int fits = 1;
        for (int k = 0; k < index; k++) {
            float distance = rm_hypot(x - game->obstacle_x[k], y - game->obstacle_y[k]);
            fits &= distance >= radius + game->obstacle_radius[k] + rules->obstacle_gap;
        }
        if (fits) {
            game->obstacle_x[index] = x;
            game->obstacle_y[index] = y;
            game->obstacle_radius[index] = radius;
            return 1;
        }
    }
    return 0;
}

RM_FN void place_obstacles(const Rules *rules, Game *game, EpisodeRng *rng) {
    int fewest = (int)game->stage[2], most = (int)game->stage[3];
    int requested = fewest + (int)(rm_unit(draw_words(rng).w[0]) * (float)(most - fewest + 1));
    int placed = 0;
    while (placed < requested && place_obstacle(rules, game, placed, rng)) placed++;
    game->obstacles[0] = placed;
    game->obstacles_missing[0] += (uint32_t)(requested - placed);
    for (int k = placed; k < MAX_OBSTACLES; k++)
        game->obstacle_x[k] = game->obstacle_y[k] = game->obstacle_radius[k] = 0.0f;
}

RM_FN int is_free(const Rules *rules, const Game *game, float x, float y) {
    int clear = 1;
    for (int k = 0; k < game->obstacles[0]; k++) {
        float distance = rm_hypot(x - game->obstacle_x[k], y - game->obstacle_y[k]);
        clear &= distance >= game->obstacle_radius[k] + rules->robot_radius;
    }
    return clear;
}

/* Place both robots uniformly in the arena, outside obstacles, at a distance within the stage's range. */
RM_FN int place_robots(const Rules *rules, const Derived *derived, Game *game, EpisodeRng *rng) {
    for (int attempt = 0; attempt < SPAWN_TRIES; attempt++) {
        rm_quad random = draw_words(rng);
        float px = between(-derived->limit_x, derived->limit_x, random.w[0]);
        float py = between(-derived->limit_y, derived->limit_y, random.w[1]);
        float ex = between(-derived->limit_x, derived->limit_x, random.w[2]);
        float ey = between(-derived->limit_y, derived->limit_y, random.w[3]);
        float distance = rm_hypot(ex - px, ey - py);
        if (distance >= game->stage[0] && distance <= game->stage[1]
            && is_free(rules, game, px, py) && is_free(rules, game, ex, ey)) {
            rm_quad heading = draw_words(rng);
            game->x[PURSUER] = px;
            game->y[PURSUER] = py;
            game->x[EVADER] = ex;
            game->y[EVADER] = ey;
            for (int s = 0; s < 2; s++) game->theta[s] = between(-RM_PI, RM_PI, heading.w[s]);
            return 1;
        }
    }
    return 0;
}

/* Whether a stage (smallest, largest distance; fewest, most obstacles) is playable under these rules. */
RM_FN int is_valid_stage(const Rules *rules, const Derived *derived, const float *stage) {
    float reach = 2.0f * rm_hypot(derived->limit_x, derived->limit_y);
    return stage[0] > rules->capture_radius && stage[0] <= stage[1] && stage[0] < reach
           && stage[2] >= 0.0f && stage[2] <= stage[3] && stage[3] <= (float)rules->n_obstacles_max
           && stage[2] == (float)(int)stage[2] && stage[3] == (float)(int)stage[3];
}

/* Start the episode given by seed, episode, slot and stage of the game. */
RM_FN int reset(const Rules *rules, const Derived *derived, Game *game) {
    if (!is_valid_stage(rules, derived, game->stage)) return BAD_STAGE;
    EpisodeRng rng = {game->seed[0], game->episode[0], 0};
    game->mark[0] = GAME_MARK;
    game->step[0] = 0;
    for (int s = 0; s < 2; s++) game->v[s] = game->omega[s] = 0.0f;
    if (rules->w_search != 0.0f)
        for (int cell = 0; cell < GRID * GRID; cell++) game->visited[cell] = 0;
    for (int redraw = 0; redraw < MAX_REDRAWS; redraw++) {
        place_obstacles(rules, game, &rng);
        if (place_robots(rules, derived, game, &rng)) return STARTED;
        game->spawn_redraws[0]++;
    }
    return NO_START;
}

#endif
