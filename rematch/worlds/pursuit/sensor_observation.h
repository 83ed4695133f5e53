/* The observation of both robots with sensors (pursuit specification, section 2, partial observation): five numbers
 * of the robot itself, the other robot while it is visible (`visibility`), a lidar, and the last frames of both.
 * Each robot has its own sensors. The lidar measures walls and obstacles, never the other robot.
 * Included by rules.h, which defines Block. */
#ifndef REMATCH_PURSUIT_SENSOR_OBSERVATION_H
#define REMATCH_PURSUIT_SENSOR_OBSERVATION_H

#define UNSEEN (-1.0f) /* the observed distance of a robot that is not visible */

RM_FN OptionalState *optional_of(const Derived *derived, const Batch *batch, int row) {
    return (OptionalState *)(batch->optional + (long)row * derived->optional_bytes);
}

/* The stored frames [history_length][frame] of robot s. */
RM_FN float *frames_of(const Derived *derived, const Batch *batch, int row, int s) {
    return (float *)(optional_of(derived, batch, row) + 1) + (long)s * derived->frames * derived->frame;
}

/* Start of an episode: all frames are zero, and the noise has the key of the episode. */
RM_OUT_OF_LINE void reset_sensors(const Derived *derived, Batch *batch, int row, uint64_t key) {
    OptionalState *optional = optional_of(derived, batch, row);
    float *frames = frames_of(derived, batch, row, PURSUER);
    optional->noise[0] = optional->noise[1] = key;
    for (long n = 0; n < 2L * derived->frames * derived->frame; n++) frames[n] = 0.0f;
}

/* After a step: the key of the future noise becomes the key of this step's noise. (There are two keys, so that the
 * future noise can be resampled without a change of past measurements.) */
RM_FN void advance_noise_key(const Derived *derived, Batch *batch, int row) {
    OptionalState *optional = optional_of(derived, batch, row);
    optional->noise[0] = optional->noise[1];
}

/* Two standard normal numbers from two random words (Box and Muller, 1958). */
RM_FN void normal_pair(uint32_t first, uint32_t second, float *cosine_part, float *sine_part) {
    float sine, cosine, unit = (float)(int32_t)((first >> 8) + 1u) * (1.0f / 16777216.0f); /* (0, 1] */
    float radius = sqrtf(-2.0f * rm_log(unit));
    rm_sincos(RM_TWO_PI * rm_unit(second), &sine, &cosine);
    *cosine_part = radius * cosine;
    *sine_part = radius * sine;
}

RM_FN rm_quad noise_words(const Game *game, uint64_t key, int32_t step, uint32_t stream, int s, int block) {
    return rm_philox(key, (uint32_t)block, (uint32_t)step, stream, game->episode[0] * 2u + (uint32_t)s);
}

/* `count` standard normal numbers, a function of key, step, stream, episode and robot. The four words of block n belong to
 * the numbers n, n + blocks, n + 2 blocks and n + 3 blocks, so that each loop runs over whole arrays. */
RM_FN void draw_noise(const Game *game, uint64_t key, int32_t step, uint32_t stream, int s, int count,
                      float noise[MAX_RAYS]) {
    const int blocks = (count + 3) / 4;
    uint32_t word[4][MAX_RAYS / 4];
    for (int n = 0; n < blocks; n++) {
        rm_quad quad = noise_words(game, key, step, stream, s, n);
        for (int w = 0; w < 4; w++) word[w][n] = quad.w[w];
    }
    for (int w = 0; w < 4; w += 2)
        for (int n = 0; n < blocks; n++)
            normal_pair(word[w][n], word[w + 1][n], &noise[w * blocks + n], &noise[(w + 1) * blocks + n]);
}

/* Number `index` of `draw_noise`, alone. */
RM_FN float noise_number(const Game *game, uint64_t key, int32_t step, uint32_t stream, int s, int count, int index) {
    const int blocks = (count + 3) / 4, w = index / blocks;
    const rm_quad quad = noise_words(game, key, step, stream, s, index % blocks);
    float first, second;
    normal_pair(quad.w[w & 2], quad.w[(w & 2) + 1], &first, &second);
    return w & 1 ? second : first;
}

/* The direction of ray k of a robot with heading theta: the rays divide a circle evenly, from behind. */
RM_FN float ray_direction(float theta, int k, int rays) { return theta + ((float)k * (RM_TWO_PI / (float)rays) - RM_PI); }

/* The length of a ray with direction (ux, uy) from (x, y) to a wall of the centred arena, at most the range. */
RM_FN float ray_to_wall(const Rules *rules, float x, float y, float ux, float uy) {
    const float half_w = rules->arena_width * 0.5f, half_h = rules->arena_height * 0.5f;
    float to_x = (ux > 0.0f ? half_w : -half_w) - x, to_y = (uy > 0.0f ? half_h : -half_h) - y;
    float tx = ux != 0.0f ? to_x / ux : FAR_AWAY, ty = uy != 0.0f ? to_y / uy : FAR_AWAY;
    return rm_min(rm_min(tx, ty), rules->lidar_range);
}

/* The same, where a circle with the squared radius `square` at (cx, cy) from the robot may end a ray of length `reach`. */
RM_FN float ray_to_circle(float cx, float cy, float square, float ux, float uy, float reach) {
    float along = cx * ux + cy * uy, lateral = cx * uy - cy * ux;
    float half_chord = square - lateral * lateral; /* squared */
    float near = rm_max(along - sqrtf(rm_max(half_chord, 0.0f)), 0.0f);
    return (half_chord >= 0.0f) & (along > 0.0f) ? rm_min(near, reach) : reach;
}

/* The length of each ray of robot s in lane i, at most the range. */
RM_FN void cast_rays(const Rules *rules, const Block *b, int s, int i, int rays, float reach[MAX_RAYS]) {
    const float x = b->x[s][i], y = b->y[s][i], theta = b->theta[s][i];
    float ux[MAX_RAYS], uy[MAX_RAYS];
    for (int k = 0; k < rays; k++) rm_sincos(ray_direction(theta, k, rays), &uy[k], &ux[k]);
    for (int k = 0; k < rays; k++) reach[k] = ray_to_wall(rules, x, y, ux[k], uy[k]);
    for (int n = 0; n < b->obstacles[i]; n++) {
        const float cx = b->ox[n][i] - x, cy = b->oy[n][i] - y, square = b->radius[n][i] * b->radius[n][i];
        for (int k = 0; k < rays; k++) reach[k] = ray_to_circle(cx, cy, square, ux[k], uy[k], reach[k]);
    }
}

/* What the lidar shows of a length: with noise in metres, clipped to [0, range], divided by the range. */
RM_FN float shown_length(const Rules *rules, float reach, float noise) {
    const float range = rules->lidar_range, per_range = 1.0f / range;
    return rm_min(rm_clip(reach + rules->lidar_noise * noise, 0.0f, range) * per_range, 1.0f);
}

/* The lidar of robot s in lane i. */
RM_FN void scan(const Rules *rules, const Block *b, int s, int i, const float noise[MAX_RAYS], int rays, float *out) {
    float reach[MAX_RAYS];
    cast_rays(rules, b, s, i, rays, reach);
    for (int k = 0; k < rays; k++) out[k] = shown_length(rules, reach[k], noise[k]);
}

#include "disturbances.h"

/* The frames of robot s in a game: a ring, whose newest frame has the number of the step. */
typedef struct {
    float *stored, *newest, *history; /* history: oldest first, the frames behind the newest one, then those up to it */
    long older, newer;                /* numbers before and after the newest frame's end in the ring */
} Frames;

RM_FN Frames frames_at(const Derived *derived, const Batch *batch, int row, int s, int32_t step) {
    const long frame = derived->frame, frames = derived->frames, index = step % derived->frames;
    Frames out;
    out.stored = frames_of(derived, batch, row, s);
    out.newest = out.stored + index * frame;
    out.history = batch->history[s] + row * frames * frame;
    out.older = (frames - 1 - index) * frame;
    out.newer = (index + 1) * frame;
    return out;
}

/* Write all but the lidar of robot s in lane i: the first numbers of its newest frame, `state`, `clock` and `other`. */
RM_FN void sense_state(const Rules *rules, const Derived *derived, const Block *b, Batch *batch, int row, int s, int i,
                       const float own[5], int visible, float distance, float bearing) {
    const long game = row;
    float *newest = frames_at(derived, batch, row, s, b->step[i]).newest;
    for (int c = 0; c < 5; c++) newest[c] = own[c];
    newest[5] = visible ? rm_min(distance * derived->per_diagonal, 1.0f) : UNSEEN;
    newest[6] = visible ? rm_clip(bearing * derived->per_pi, -1.0f, 1.0f) : 0.0f;
    if (rules->sensor_noise != 0.0f)
        disturb_state(rules, batch->games + row, optional_of(derived, batch, row)->noise[0], b->step[i], s, newest);
    for (int c = 0; c < STATE_NUMBERS; c++) batch->obs[s][game * STATE_NUMBERS + c] = newest[c];
    batch->clock[s][game] = (float)(rules->max_steps - b->step[i]) * derived->per_max_steps;
    if (batch->other[s]) {
        batch->other[s][2 * game] = b->x[1 - s][i] / (rules->arena_width * 0.5f);
        batch->other[s][2 * game + 1] = b->y[1 - s][i] / (rules->arena_height * 0.5f);
    }
}

/* Write the fields of both robots (state, lidar, history, clock, the privileged `other`) and store the newest frame. On a
 * GPU the kernels of sensor_kernels.h do it, a thread per ray. */
RM_OUT_OF_LINE void observe_sensors(const Rules *rules, const Derived *derived, const Block *b, Batch *batch,
                                    int row, int lanes) {
    const int rays = derived->rays;
    float obs[5][LANES], distance[LANES], bearing[LANES], noise[MAX_RAYS];
    int32_t visible[LANES];
    for (int s = 0; s < 2; s++) {
        observe_robot(derived, b, s, obs);
        check_visibility(&derived->sensor_view, b, s, rules->n_obstacles_max, visible, distance, bearing);
        for (int i = 0; i < lanes; i++) {
            const long game = row + i;
            const Frames frames = frames_at(derived, batch, row + i, s, b->step[i]);
            const float own[5] = {obs[0][i], obs[1][i], obs[2][i], obs[3][i], obs[4][i]};
            float *lidar = frames.newest + STATE_NUMBERS;
            sense_state(rules, derived, b, batch, row + i, s, i, own, visible[i], distance[i], bearing[i]);
            draw_noise(batch->games + game, optional_of(derived, batch, row + i)->noise[0], b->step[i], RM_STREAM_SENSOR, s, rays, noise);
            scan(rules, b, s, i, noise, rays, lidar);
            for (int k = 0; k < rays; k++) batch->lidar[s][game * rays + k] = lidar[k];
            for (long n = 0; n < frames.older; n++) frames.history[n] = frames.stored[frames.newer + n];
            for (long n = 0; n < frames.newer; n++) frames.history[frames.older + n] = frames.stored[n];
        }
    }
}

#endif
