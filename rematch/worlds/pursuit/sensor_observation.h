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

/* `count` standard normal numbers (Box and Muller, 1958), a function of key, step, stream, episode and robot. The four
 * words of block n belong to the numbers n, n + blocks, n + 2 blocks and n + 3 blocks, so that each loop runs over
 * whole arrays. */
RM_FN void draw_noise(const Game *game, uint64_t key, int32_t step, uint32_t stream, int s, int count,
                      float noise[MAX_RAYS]) {
    const int blocks = (count + 3) / 4;
    const uint32_t episode_and_seat = game->episode[0] * 2u + (uint32_t)s;
    uint32_t word[4][MAX_RAYS / 4];
    for (int n = 0; n < blocks; n++) {
        rm_quad quad = rm_philox(key, (uint32_t)n, (uint32_t)step, stream, episode_and_seat);
        for (int w = 0; w < 4; w++) word[w][n] = quad.w[w];
    }
    for (int w = 0; w < 4; w += 2)
        for (int n = 0; n < blocks; n++) {
            float sine, cosine, unit = (float)(int32_t)((word[w][n] >> 8) + 1u) * (1.0f / 16777216.0f); /* (0, 1] */
            float radius = sqrtf(-2.0f * rm_log(unit));
            rm_sincos(RM_TWO_PI * rm_unit(word[w + 1][n]), &sine, &cosine);
            noise[w * blocks + n] = radius * cosine;
            noise[(w + 1) * blocks + n] = radius * sine;
        }
}

/* The length of each ray of robot s in lane i, at most the range. The angle of ray k to the heading is
 * -pi + k 2 pi / rays. A ray ends at a wall of the centred arena or on the near side of an obstacle's circle. */
RM_FN void cast_rays(const Rules *rules, const Block *b, int s, int i, int rays, float reach[MAX_RAYS]) {
    const float x = b->x[s][i], y = b->y[s][i], theta = b->theta[s][i], range = rules->lidar_range;
    const float half_w = rules->arena_width * 0.5f, half_h = rules->arena_height * 0.5f;
    const float spacing = RM_TWO_PI / (float)rays;
    float ux[MAX_RAYS], uy[MAX_RAYS];
    for (int k = 0; k < rays; k++) rm_sincos(theta + ((float)k * spacing - RM_PI), &uy[k], &ux[k]);
    for (int k = 0; k < rays; k++) {
        float to_x = (ux[k] > 0.0f ? half_w : -half_w) - x, to_y = (uy[k] > 0.0f ? half_h : -half_h) - y;
        float tx = ux[k] != 0.0f ? to_x / ux[k] : FAR_AWAY, ty = uy[k] != 0.0f ? to_y / uy[k] : FAR_AWAY;
        reach[k] = rm_min(rm_min(tx, ty), range);
    }
    for (int n = 0; n < b->obstacles[i]; n++) {
        const float cx = b->ox[n][i] - x, cy = b->oy[n][i] - y, square = b->radius[n][i] * b->radius[n][i];
        for (int k = 0; k < rays; k++) {
            float along = cx * ux[k] + cy * uy[k], lateral = cx * uy[k] - cy * ux[k];
            float half_chord = square - lateral * lateral; /* squared */
            float near = rm_max(along - sqrtf(rm_max(half_chord, 0.0f)), 0.0f);
            reach[k] = (half_chord >= 0.0f) & (along > 0.0f) ? rm_min(near, reach[k]) : reach[k];
        }
    }
}

/* The lidar of robot s in lane i: length plus noise in metres, clipped to [0, range], divided by the range. */
RM_FN void scan(const Rules *rules, const Block *b, int s, int i, const float noise[MAX_RAYS], int rays, float *out) {
    const float range = rules->lidar_range, deviation = rules->lidar_noise, per_range = 1.0f / range;
    float reach[MAX_RAYS];
    cast_rays(rules, b, s, i, rays, reach);
    for (int k = 0; k < rays; k++)
        out[k] = rm_min(rm_clip(reach[k] + deviation * noise[k], 0.0f, range) * per_range, 1.0f);
}

#include "disturbances.h"

/* Write the fields of both robots (state, lidar, history, clock) and store the newest frame. */
RM_OUT_OF_LINE void observe_sensors(const Rules *rules, const Derived *derived, const Block *b, Batch *batch,
                                    int row, int lanes) {
    const int rays = derived->rays, frame = derived->frame, frames = derived->frames;
    float obs[5][LANES], distance[LANES], bearing[LANES], noise[MAX_RAYS];
    int32_t visible[LANES];
    for (int s = 0; s < 2; s++) {
        observe_robot(derived, b, s, obs);
        check_visibility(&derived->sensor_view, b, s, rules->n_obstacles_max, visible, distance, bearing);
        for (int i = 0; i < lanes; i++) {
            const long game = row + i;
            const int newest_index = b->step[i] % frames;
            float *stored = frames_of(derived, batch, row + i, s), *newest = stored + (long)newest_index * frame;
            float *history = batch->history[s] + game * frames * frame;
            for (int c = 0; c < 5; c++) newest[c] = obs[c][i];
            newest[5] = visible[i] ? rm_min(distance[i] * derived->per_diagonal, 1.0f) : UNSEEN;
            newest[6] = visible[i] ? rm_clip(bearing[i] * derived->per_pi, -1.0f, 1.0f) : 0.0f;
            const uint64_t key = optional_of(derived, batch, row + i)->noise[0];
            if (rules->sensor_noise != 0.0f) disturb_state(rules, batch->games + game, key, b->step[i], s, newest);
            draw_noise(batch->games + game, key, b->step[i], RM_STREAM_SENSOR, s, rays, noise);
            scan(rules, b, s, i, noise, rays, newest + STATE_NUMBERS);
            for (int c = 0; c < STATE_NUMBERS; c++) batch->obs[s][game * STATE_NUMBERS + c] = newest[c];
            for (int k = 0; k < rays; k++) batch->lidar[s][game * rays + k] = newest[STATE_NUMBERS + k];
            /* Oldest first: the frames behind the newest one in the ring buffer, then those up to it. */
            const long older = (long)(frames - 1 - newest_index) * frame;
            const long newer = (long)(newest_index + 1) * frame;
            for (long n = 0; n < older; n++) history[n] = stored[newer + n];
            for (long n = 0; n < newer; n++) history[older + n] = stored[n];
            batch->clock[s][game] = (float)(rules->max_steps - b->step[i]) * derived->per_max_steps;
        }
    }
}

#endif
