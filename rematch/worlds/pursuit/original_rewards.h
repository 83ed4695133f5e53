/* The rewards with reward_form `original`: those of the project whose runs the recipe `documents` and those like it
 * reproduce. They differ from shaping_rewards.h in four points.
 *
 * - The last step of an episode has the zero-sum reward and the penalties of collisions only.
 * - The evader is hidden while an obstacle lies on the line of sight; range and field of view do not matter. In an
 *   episode without obstacles its reward is the negative of the pursuer's, as without the visibility reward.
 * - w_vis_pursuer: in range of the sensors, with a free line of sight. While the evader's reward is the negative of
 *   the pursuer's, this term is part of it.
 * - w_search: mean age of the grid cells that the pursuer sees (centre within range of the sensors, free line of
 *   sight), as a fraction of stale_steps, at most 1; cells are seen only while the evader is not visible.
 *
 * Included by rules.h after shaping_rewards.h. */
#ifndef REMATCH_PURSUIT_ORIGINAL_REWARDS_H
#define REMATCH_PURSUIT_ORIGINAL_REWARDS_H

/* Whether an obstacle of lane i lies on the way from the pursuer to the point that is (dx, dy) away from it. */
RM_FN int is_cell_blocked(const Block *b, int i, float dx, float dy) {
    const float square = dx * dx + dy * dy;
    int blocked = 0;
    for (int k = 0; k < b->obstacles[i]; k++) {
        float cx = b->ox[k][i] - b->x[PURSUER][i], cy = b->oy[k][i] - b->y[PURSUER][i];
        float along = rm_clip((cx * dx + cy * dy) / (square > 0.0f ? square : 1.0f), 0.0f, 1.0f);
        float mx = cx - along * dx, my = cy - along * dy;
        blocked |= mx * mx + my * my < b->radius[k][i] * b->radius[k][i];
    }
    return blocked;
}

/* The mean age of the cells that the pursuer sees, from 0 to 1; records that they are seen. Cells that were never
 * seen (`visited` is 0) have age 1. */
RM_FN float age_of_seen_cells(const Rules *rules, const Derived *derived, const Block *b, int i, Game *game) {
    const float width = rules->arena_width / (float)GRID, height = rules->arena_height / (float)GRID;
    const float half_w = rules->arena_width * 0.5f, half_h = rules->arena_height * 0.5f;
    float total = 0.0f;
    int seen = 0;
    for (int cell = 0; cell < GRID * GRID; cell++) {
        float dx = ((float)(cell % GRID) + 0.5f) * width - half_w - b->x[PURSUER][i];
        float dy = ((float)(cell / GRID) + 0.5f) * height - half_h - b->y[PURSUER][i];
        if (rm_hypot(dx, dy) > derived->reward_view.range || is_cell_blocked(b, i, dx, dy)) continue;
        float age = (float)(b->step[i] - (int32_t)game->visited[cell]) / (float)rules->stale_steps;
        total += game->visited[cell] == 0 ? 1.0f : rm_min(age, 1.0f);
        seen++;
        game->visited[cell] = (rm_count)b->step[i];
    }
    return seen ? total / (float)seen : 0.0f;
}

RM_OUT_OF_LINE void reward_original(const Rules *rules, const Derived *derived, const Block *b, Events *e, Game *games,
                                    int lanes) {
    const int slots = rules->n_obstacles_max;
    const FieldOfView line = {FAR_AWAY, RM_TWO_PI, 1};
    const float scale = rules->distance_scale, per_diagonal = derived->per_diagonal;
    float *pursuer = e->reward[PURSUER], *evader = e->reward[EVADER];
    int32_t running[LANES], clear[LANES];
    float distance[LANES], bearing[LANES];
    check_visibility(&line, b, PURSUER, slots, clear, distance, bearing);
    EACH_LANE {
        float closing = scale * ((e->distance_before[i] - e->distance[i]) * per_diagonal);
        float terminal = e->captured[i] ? rules->capture_bonus : 0.0f;
        running[i] = !(e->captured[i] | e->timeout[i]);
        pursuer[i] = closing + (e->timeout[i] ? rules->timeout_penalty : terminal);
        pursuer[i] += running[i] & clear[i] & (distance[i] <= derived->reward_view.range) ? rules->w_vis_pursuer : 0.0f;
        float hiding = clear[i] ? -rules->visibility_weight : rules->visibility_weight;
        int32_t hides = rules->use_visibility_reward & running[i] & (b->obstacles[i] > 0);
        evader[i] = hides ? hiding : -pursuer[i];
        evader[i] += running[i] ? rules->survival_bonus : 0.0f;
    }
    if (rules->w_obs_approach != 0.0f) {
        float near[LANES];
        nearest_surface(b, slots, near);
        EACH_LANE {
            float approach = (rm_max(e->near_before[i], 0.0f) - rm_max(near[i], 0.0f)) * per_diagonal;
            evader[i] += running[i] ? rules->w_obs_approach * approach : 0.0f;
        }
    }
    reward_collisions(rules, e);
    if (rules->w_search != 0.0f) {
        check_visibility(&derived->sensor_view, b, PURSUER, slots, clear, distance, bearing);
        for (int i = 0; i < lanes; i++)
            if (!clear[i]) pursuer[i] += rules->w_search * age_of_seen_cells(rules, derived, b, i, games + i);
    }
}

#endif
