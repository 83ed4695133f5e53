/* The observation of both robots with `full_obs` (pursuit specification, section 2): five numbers of the robot
 * itself, five of the other, distance, bearing, walls, obstacles (the nearest first), time to go. The file also has
 * the test whether one robot sees the other, for sensors and reward terms. Included by rules.h, which defines Block. */
#ifndef REMATCH_PURSUIT_FULL_OBSERVATION_H
#define REMATCH_PURSUIT_FULL_OBSERVATION_H

/* The obstacles in the observation of robot s, nearest first: surface distance and relative bearing. */
RM_FN void observe_obstacles(const Block *b, int s, int slots, float gap[][LANES], float bearing[][LANES]) {
    RM_UNROLL for (int k = 0; k < slots; k++) EACH_LANE {
        float dx = b->ox[k][i] - b->x[s][i], dy = b->oy[k][i] - b->y[s][i];
        int exists = k < b->obstacles[i];
        float surface = rm_hypot(dx, dy) - b->radius[k][i];
        float relative = rm_wrap(rm_atan2(dy, dx) - b->theta[s][i]);
        gap[k][i] = exists ? surface : FAR_AWAY;
        bearing[k][i] = exists ? relative : 0.0f;
    }
    /* Bubble sort as a sorting network. Only neighbours are swapped, so the sort is stable. */
    RM_UNROLL for (int last = slots - 1; last > 0; last--)
        RM_UNROLL for (int k = 0; k < last; k++) EACH_LANE {
            int swap = gap[k + 1][i] < gap[k][i];
            float near_gap = swap ? gap[k + 1][i] : gap[k][i], far_gap = swap ? gap[k][i] : gap[k + 1][i];
            float near_bearing = swap ? bearing[k + 1][i] : bearing[k][i];
            float far_bearing = swap ? bearing[k][i] : bearing[k + 1][i];
            gap[k][i] = near_gap;
            gap[k + 1][i] = far_gap;
            bearing[k][i] = near_bearing;
            bearing[k + 1][i] = far_bearing;
        }
}

/* The five numbers of one robot: position, heading, speed and turn rate, each over its maximum. */
RM_FN void observe_robot(const Derived *derived, const Block *b, int s, float obs[][LANES]) {
    const float per_v = derived->per_v_max[s], per_omega = derived->per_omega, per_pi = derived->per_pi;
    const float per_w = derived->per_half_width, per_h = derived->per_half_height;
    EACH_LANE {
        obs[0][i] = b->x[s][i] * per_w;
        obs[1][i] = b->y[s][i] * per_h;
        obs[2][i] = rm_clip(b->theta[s][i] * per_pi, -1.0f, 1.0f);
        obs[3][i] = rm_min(b->v[s][i] * per_v, 1.0f);
        obs[4][i] = rm_clip(b->omega[s][i] * per_omega, -1.0f, 1.0f);
    }
}

/* Whether robot s sees the other: within range, within its field of view, no obstacle on the line of sight.
 * Distance and relative bearing in [-pi, pi] are computed in either case. */
RM_FN void check_visibility(const FieldOfView *view, const Block *b, int s, int slots, int32_t visible[LANES],
                            float distance[LANES], float bearing[LANES]) {
    const int o = 1 - s;
    const float range = view->range, half_angle = view->half_angle;
    EACH_LANE {
        float dx = b->x[o][i] - b->x[s][i], dy = b->y[o][i] - b->y[s][i];
        distance[i] = rm_hypot(dx, dy);
        bearing[i] = rm_wrap(rm_atan2(dy, dx) - b->theta[s][i]);
        visible[i] = (distance[i] <= range) & (rm_abs(bearing[i]) <= half_angle);
    }
    if (!view->occlusion) return;
    for (int k = 0; k < slots; k++) EACH_LANE {
        float dx = b->x[o][i] - b->x[s][i], dy = b->y[o][i] - b->y[s][i];
        float cx = b->ox[k][i] - b->x[s][i], cy = b->oy[k][i] - b->y[s][i];
        float square = dx * dx + dy * dy;
        /* The point of the line of sight that is nearest to the obstacle's centre. */
        float along = rm_clip((cx * dx + cy * dy) / (square > 0.0f ? square : 1.0f), 0.0f, 1.0f);
        float mx = cx - along * dx, my = cy - along * dy;
        int32_t blocks = (mx * mx + my * my < b->radius[k][i] * b->radius[k][i]) & (k < b->obstacles[i]);
        visible[i] &= !blocks;
    }
}

/* Write the observations of both robots, 14 + 2 K + 1 numbers in [-1, 1] each, from a block. */
RM_FN void observe_full(const Rules *rules, const Derived *derived, const Block *b, Batch *batch, int row, int lanes) {
    const float per_diagonal = derived->per_diagonal, per_pi = derived->per_pi;
    const int32_t max_steps = rules->max_steps;
    const float per_max_steps = derived->per_max_steps;
    const int slots = rules->n_obstacles_max, shown = derived->shown_obstacles, columns = derived->columns;
    float obs[2][MAX_COLUMNS][LANES], gap[MAX_OBSTACLES][LANES], bearing[MAX_OBSTACLES][LANES];

    observe_robot(derived, b, PURSUER, &obs[PURSUER][0]);
    observe_robot(derived, b, EVADER, &obs[EVADER][0]);
    EACH_LANE {
        float dx = b->x[EVADER][i] - b->x[PURSUER][i], dy = b->y[EVADER][i] - b->y[PURSUER][i];
        float distance = rm_min(rm_hypot(dx, dy) * per_diagonal, 1.0f);
        float ahead = rm_atan2(dy, dx); /* direction to the evader; back: to the pursuer */
        float back = ahead > 0.0f ? ahead - RM_PI : ahead + RM_PI;
        obs[PURSUER][10][i] = obs[EVADER][10][i] = distance;
        obs[PURSUER][11][i] = rm_clip(rm_wrap(ahead - b->theta[PURSUER][i]) * per_pi, -1.0f, 1.0f);
        obs[EVADER][11][i] = rm_clip(rm_wrap(back - b->theta[EVADER][i]) * per_pi, -1.0f, 1.0f);
    }
    RM_UNROLL for (int s = 0; s < 2; s++) {
        RM_UNROLL for (int c = 0; c < 5; c++) EACH_LANE obs[s][5 + c][i] = obs[1 - s][c][i];
        EACH_LANE obs[s][12][i] = 1.0f - rm_abs(obs[s][0][i]);
        EACH_LANE obs[s][13][i] = 1.0f - rm_abs(obs[s][1][i]);
        observe_obstacles(b, s, slots, gap, bearing);
        RM_UNROLL for (int k = 0; k < shown; k++) EACH_LANE {
            obs[s][14 + 2 * k][i] = k < slots ? rm_clip(gap[k][i] * per_diagonal, -1.0f, 1.0f) : 1.0f;
            obs[s][15 + 2 * k][i] = k < slots ? rm_clip(bearing[k][i] * per_pi, -1.0f, 1.0f) : 0.0f;
        }
#ifndef __CUDACC__
        EACH_LANE obs[s][columns - 1][i] = (float)(max_steps - b->step[i]) * per_max_steps;
#endif
        for (int i = 0; i < lanes; i++) {
            float *out = batch->obs[s] + (long)(row + i) * columns;
#ifdef __CUDACC__ /* all indices are constants: the numbers stay in registers */
#pragma unroll
            for (int c = 0; c < MAX_COLUMNS; c++)
                if (c < columns - 1) out[c] = obs[s][c][i];
            out[columns - 1] = (float)(max_steps - b->step[i]) * per_max_steps;
#else
#pragma GCC unroll 8 /* without it this transposition takes a third of the step's time */
            for (int c = 0; c < columns; c++) out[c] = obs[s][c][i];
#endif
        }
    }
}

#endif
