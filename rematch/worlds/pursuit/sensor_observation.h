/* What both robots see through sensors (pursuit specification, section 2, partial observation): their own five
 * numbers, the other robot where `visibility` lets them see it, a lidar, and the last frames of both. Each robot
 * has its own. The lidar sees walls and obstacles, never the other robot: who is unseen is unseen.
 * Included by rules.h, whose Block it reads. */
#ifndef REMATCH_PURSUIT_SENSORS_H
#define REMATCH_PURSUIT_SENSORS_H

#define UNSEEN (-1.0f) /* the distance of a robot that is not seen */

RM_FN Annex *annex_of(const Derived *derived, const Batch *batch, int row) {
    return (Annex *)(batch->annex + (long)row * derived->annex_bytes);
}

/* The frames [history_length][frame] that robot s keeps. */
RM_FN float *frames_of(const Derived *derived, const Batch *batch, int row, int s) {
    return (float *)(annex_of(derived, batch, row) + 1) + (long)s * derived->frames * derived->frame;
}

/* A new episode: nothing has been seen, and the noise goes by the episode's own key. */
RM_APART void forget(const Derived *derived, Batch *batch, int row, uint64_t key) {
    Annex *annex = annex_of(derived, batch, row);
    float *frames = frames_of(derived, batch, row, PURSUER);
    annex->noise[0] = annex->noise[1] = key;
    for (long n = 0; n < 2L * derived->frames * derived->frame; n++) frames[n] = 0.0f;
}

/* A step was made: the key of the noise to come is that of this step. (Two keys, so that the noise to come can
 * be redrawn without touching what has been measured.) */
RM_FN void new_noise(const Derived *derived, Batch *batch, int row) {
    Annex *annex = annex_of(derived, batch, row);
    annex->noise[0] = annex->noise[1];
}

/* Box and Muller (1958): standard normals, named by key, step, episode and robot. The four words of block n feed
 * the rays n, n + blocks, n + 2 blocks and n + 3 blocks, so that each loop runs along whole arrays. */
RM_FN void draw_noise(const Game *game, uint64_t key, int32_t step, int s, int rays, float noise[MAX_RAYS]) {
    const int blocks = (rays + 3) / 4;
    const uint32_t who = game->episode[0] * 2u + (uint32_t)s;
    uint32_t word[4][MAX_RAYS / 4];
    for (int n = 0; n < blocks; n++) {
        rm_quad quad = rm_philox(key, (uint32_t)n, (uint32_t)step, RM_STREAM_SENSOR, who);
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

/* How far each ray of robot s in lane i reaches, at most the range: ray k points -pi + k 2 pi / rays off the
 * heading; it ends at a wall of the centred arena or on the near side of an obstacle's circle. */
RM_FN void cast_rays(const Rules *rules, const Block *b, int s, int i, int rays, float reach[MAX_RAYS]) {
    const float x = b->x[s][i], y = b->y[s][i], theta = b->theta[s][i], range = rules->lidar_range;
    const float half_w = rules->arena_width * 0.5f, half_h = rules->arena_height * 0.5f;
    const float apart = RM_TWO_PI / (float)rays;
    float ux[MAX_RAYS], uy[MAX_RAYS];
    for (int k = 0; k < rays; k++) rm_sincos(theta + ((float)k * apart - RM_PI), &uy[k], &ux[k]);
    for (int k = 0; k < rays; k++) {
        float to_x = (ux[k] > 0.0f ? half_w : -half_w) - x, to_y = (uy[k] > 0.0f ? half_h : -half_h) - y;
        float tx = ux[k] != 0.0f ? to_x / ux[k] : FAR_AWAY, ty = uy[k] != 0.0f ? to_y / uy[k] : FAR_AWAY;
        reach[k] = rm_min(rm_min(tx, ty), range);
    }
    for (int n = 0; n < b->obstacles[i]; n++) {
        const float cx = b->ox[n][i] - x, cy = b->oy[n][i] - y, square = b->radius[n][i] * b->radius[n][i];
        for (int k = 0; k < rays; k++) {
            float along = cx * ux[k] + cy * uy[k], aside = cx * uy[k] - cy * ux[k];
            float under = square - aside * aside; /* half the chord, squared */
            float near = rm_max(along - sqrtf(rm_max(under, 0.0f)), 0.0f);
            reach[k] = (under >= 0.0f) & (along > 0.0f) ? rm_min(near, reach[k]) : reach[k];
        }
    }
}

/* The lidar of robot s in lane i: reach and noise in metres, cut to [0, range], by the range. */
RM_FN void scan(const Rules *rules, const Block *b, int s, int i, const float noise[MAX_RAYS], int rays, float *out) {
    const float range = rules->lidar_range, deviation = rules->lidar_noise, per_range = 1.0f / range;
    float reach[MAX_RAYS];
    cast_rays(rules, b, s, i, rays, reach);
    for (int k = 0; k < rays; k++)
        out[k] = rm_min(rm_clip(reach[k] + deviation * noise[k], 0.0f, range) * per_range, 1.0f);
}

/* The fields of both robots: state, lidar, history, clock. The newest frame is kept. */
RM_APART void sense(const Rules *rules, const Derived *derived, const Block *b, Batch *batch, int row, int lanes) {
    const int rays = derived->rays, frame = derived->frame, frames = derived->frames;
    float seen[5][LANES], distance[LANES], bearing[LANES], noise[MAX_RAYS];
    int32_t visible[LANES];
    for (int s = 0; s < 2; s++) {
        see_robot(derived, b, s, seen);
        look(&derived->eyes, b, s, rules->n_obstacles_max, visible, distance, bearing);
        for (int i = 0; i < lanes; i++) {
            const long game = row + i;
            const int now = b->step[i] % frames;
            float *kept = frames_of(derived, batch, row + i, s), *newest = kept + (long)now * frame;
            float *history = batch->history[s] + game * frames * frame;
            for (int c = 0; c < 5; c++) newest[c] = seen[c][i];
            newest[5] = visible[i] ? rm_min(distance[i] * derived->per_diagonal, 1.0f) : UNSEEN;
            newest[6] = visible[i] ? rm_clip(bearing[i] * derived->per_pi, -1.0f, 1.0f) : 0.0f;
            draw_noise(batch->games + game, annex_of(derived, batch, row + i)->noise[0], b->step[i], s, rays, noise);
            scan(rules, b, s, i, noise, rays, newest + STATE_NUMBERS);
            for (int c = 0; c < STATE_NUMBERS; c++) batch->obs[s][game * STATE_NUMBERS + c] = newest[c];
            for (int k = 0; k < rays; k++) batch->lidar[s][game * rays + k] = newest[STATE_NUMBERS + k];
            /* Oldest first: the frames after the newest one's place, then those up to it. */
            const long older = (long)(frames - 1 - now) * frame, newer = (long)(now + 1) * frame;
            for (long n = 0; n < older; n++) history[n] = kept[newer + n];
            for (long n = 0; n < newer; n++) history[older + n] = kept[n];
            batch->clock[s][game] = (float)(rules->max_steps - b->step[i]) * derived->per_max_steps;
        }
    }
}

#endif
