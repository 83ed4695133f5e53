/* The optional reward terms (pursuit specification, section 3). Each makes the game general-sum, and each is
 * computed only if its weight is not zero. Included by rules.h, which defines Block and Events. */
#ifndef REMATCH_PURSUIT_SHAPING_REWARDS_H
#define REMATCH_PURSUIT_SHAPING_REWARDS_H

/* Distance from the evader to the nearest obstacle's surface; 0 without obstacles. */
RM_FN void nearest_surface(const Block *b, int slots, float nearest[LANES]) {
    EACH_LANE nearest[i] = FAR_AWAY;
    for (int k = 0; k < slots; k++) EACH_LANE {
        float surface = rm_hypot(b->ox[k][i] - b->x[EVADER][i], b->oy[k][i] - b->y[EVADER][i]) - b->radius[k][i];
        nearest[i] = k < b->obstacles[i] ? rm_min(surface, nearest[i]) : nearest[i];
    }
    EACH_LANE nearest[i] = b->obstacles[i] > 0 ? nearest[i] : 0.0f;
}

/* The index of a coordinate in a 10 x 10 grid over the arena. */
RM_FN int cell_of(float coordinate, float per_half) {
    int cell = (int)((coordinate * per_half + 1.0f) * (0.5f * (float)GRID));
    return cell < 0 ? 0 : cell > GRID - 1 ? GRID - 1 : cell;
}

/* Time since the pursuer's last visit to its present cell, as a fraction of the episode; records the visit. */
RM_FN float time_since_visit(const Derived *derived, const Block *b, int i, Game *game) {
    int cell = cell_of(b->y[PURSUER][i], derived->per_half_height) * GRID
               + cell_of(b->x[PURSUER][i], derived->per_half_width);
    float stale = (float)(b->step[i] - (int32_t)game->visited[cell]) * derived->per_max_steps;
    game->visited[cell] = (rm_count)b->step[i];
    return stale;
}

/* The penalties of each robot for hitting obstacles and walls. */
RM_FN void reward_collisions(const Rules *rules, Events *e) {
    for (int s = 0; s < 2; s++) {
        if (rules->w_collision != 0.0f) EACH_LANE e->reward[s][i] -= e->hit_obstacle[s][i] ? rules->w_collision : 0.0f;
        if (rules->w_wall != 0.0f) EACH_LANE e->reward[s][i] -= e->hit_wall[s][i] ? rules->w_wall : 0.0f;
    }
}

RM_FN void reward_shaping(const Rules *rules, const Derived *derived, const Block *b, Events *e, Game *games,
                         int lanes) {
    const int slots = rules->n_obstacles_max;
    float *pursuer = e->reward[PURSUER], *evader = e->reward[EVADER];
    int32_t visible[LANES];
    float distance[LANES], bearing[LANES];
    if (derived->uses_visibility)
        check_visibility(&derived->reward_view, b, PURSUER, slots, visible, distance, bearing);
    if (rules->use_visibility_reward)
        EACH_LANE evader[i] += visible[i] ? -rules->visibility_weight : rules->visibility_weight;
    if (rules->survival_bonus != 0.0f)
        EACH_LANE evader[i] += e->captured[i] | e->timeout[i] ? 0.0f : rules->survival_bonus;
    if (rules->w_obs_approach != 0.0f) {
        float near[LANES];
        nearest_surface(b, slots, near);
        EACH_LANE evader[i] += rules->w_obs_approach * ((e->near_before[i] - near[i]) * derived->per_diagonal);
    }
    if (rules->w_vis_pursuer != 0.0f) EACH_LANE pursuer[i] += visible[i] ? rules->w_vis_pursuer : 0.0f;
    if (rules->w_search != 0.0f)
        for (int i = 0; i < lanes; i++) {
            float stale = time_since_visit(derived, b, i, games + i);
            pursuer[i] += visible[i] ? 0.0f : rules->w_search * stale;
        }
    reward_collisions(rules, e);
}

#endif
