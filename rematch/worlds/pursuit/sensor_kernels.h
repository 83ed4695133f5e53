/* The sensors of pursuit on the GPU: a block per game, 64 threads per robot. A single thread would need half a millisecond
 * for what both robots see. Each number has the formula, and so the bits, of observe_sensors. */
#ifndef REMATCH_PURSUIT_SENSOR_KERNELS_H
#define REMATCH_PURSUIT_SENSOR_KERNELS_H

enum { ROBOT_THREADS = 64 };

/* After a step; grid (games, collectors): the newest frame of both robots and all fields but `history`. */
extern "C" __global__ void sense(const StepArrays *steps, int t, int count, const StepSettings *settings) {
    const int row = blockIdx.x, s = threadIdx.x / ROBOT_THREADS, first = threadIdx.x % ROBOT_THREADS;
    const Rules rules = RULES;
    const Derived derived = derive(&rules);
    Batch *batch = (Batch *)&own_step(steps, t, count)->batch;
    const Game *game = batch->games + row;
    Block b;
    load_block(&b, game, 1, rules.n_obstacles_max);
    const float x = b.x[s][0], y = b.y[s][0], theta = b.theta[s][0];
    float *lidar = frames_at(&derived, batch, row, s, b.step[0]).newest + STATE_NUMBERS;
    const uint64_t key = optional_of(&derived, batch, row)->noise[0];
    for (int k = first; k < derived.rays; k += ROBOT_THREADS) {
        float ux, uy;
        rm_sincos(ray_direction(theta, k, derived.rays), &uy, &ux);
        float reach = ray_to_wall(&rules, x, y, ux, uy);
        for (int n = 0; n < b.obstacles[0]; n++) {
            const float cx = b.ox[n][0] - x, cy = b.oy[n][0] - y, square = b.radius[n][0] * b.radius[n][0];
            reach = ray_to_circle(cx, cy, square, ux, uy, reach);
        }
        lidar[k] = shown_length(&rules, reach, noise_number(game, key, b.step[0], RM_STREAM_SENSOR, s, derived.rays, k));
        batch->lidar[s][(long)row * derived.rays + k] = lidar[k];
    }
    if (first) return;
    float own[5][LANES], distance[LANES], bearing[LANES];
    int32_t visible[LANES];
    observe_robot(&derived, &b, s, own);
    check_visibility(&derived.sensor_view, &b, s, rules.n_obstacles_max, visible, distance, bearing);
    sense_state(&rules, &derived, &b, batch, row, s, 0, own[0], visible[0], distance[0], bearing[0]);
}

/* After `sense`, with the same grid: the field `history`. */
extern "C" __global__ void show_history(const StepArrays *steps, int t, int count, const StepSettings *settings) {
    const int row = blockIdx.x, s = threadIdx.x / ROBOT_THREADS;
    const Rules rules = RULES;
    const Derived derived = derive(&rules);
    const Batch *batch = &own_step(steps, t, count)->batch;
    const Frames frames = frames_at(&derived, batch, row, s, batch->games[row].step[0]);
    for (long n = threadIdx.x % ROBOT_THREADS; n < frames.older + frames.newer; n += ROBOT_THREADS)
        frames.history[n] = frames.stored[n < frames.older ? frames.newer + n : n - frames.older];
}

#endif
