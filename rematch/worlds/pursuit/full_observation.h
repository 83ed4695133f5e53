/* What both robots see when they see everything (pursuit specification, section 2): own five numbers, the
 * other's five, distance, bearing, the walls, the obstacles from near to far, time to go. And whether one
 * robot sees the other, for the sensors and the reward terms. Included by rules.h, whose Block it reads. */
#ifndef REMATCH_PURSUIT_SIGHT_H
#define REMATCH_PURSUIT_SIGHT_H

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

/* Whether robot s sees the other: in range, in its field of view, no obstacle on the line between. Distance
 * and relative bearing in [-pi, pi] are worked out whether it does or not. */
RM_FN void look(const Eyes *eyes, const Block *b, int s, int slots, int32_t visible[LANES], float distance[LANES],
                float bearing[LANES]) {
    const int o = 1 - s;
    const float range = eyes->range, half = eyes->half;
    EACH_LANE {
        float dx = b->x[o][i] - b->x[s][i], dy = b->y[o][i] - b->y[s][i];
        distance[i] = rm_hypot(dx, dy);
        bearing[i] = rm_wrap(rm_atan2(dy, dx) - b->theta[s][i]);
        visible[i] = (distance[i] <= range) & (rm_abs(bearing[i]) <= half);
    }
    if (!eyes->blocked) return;
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
            float *out = batch->obs[s] + (long)(row + i) * columns;
#ifndef __CUDACC__
#pragma GCC unroll 8 /* turning the block back is the dearest loop of all: a third of the step without */
#endif
            for (int c = 0; c < columns; c++) out[c] = seen[s][c][i];
        }
    }
}

#endif
