/* Differences between the simulated robots and real ones (settings speed_variation, turn_variation, action_delay,
 * actuator_noise, sensor_noise; all 0 by default). Order in a step: the delayed action replaces the chosen one, the
 * safety filter of the pursuer changes it, the noise of the actuators is added, and the factors of the episode scale
 * speed and turn rate. Scripted players and the safety filter plan with the nominal values and the true positions.
 * Included by sensor_observation.h. */
#ifndef REMATCH_PURSUIT_DISTURBANCES_H
#define REMATCH_PURSUIT_DISTURBANCES_H

/* [FACTORS] the factors of this episode: speed of both robots, turn rate of both. */
RM_FN float *factors_of(const Derived *derived, const Batch *batch, int row) {
    return frames_of(derived, batch, row, PURSUER) + 2L * derived->frames * derived->frame;
}

/* The delayed actions [action_delay][2] of robot s as (speed, turn) in [-1, 1]: a ring buffer; the action that is
 * executed in step t has the index t modulo action_delay. */
RM_FN float *delayed_of(const Rules *rules, const Derived *derived, const Batch *batch, int row, int s) {
    return factors_of(derived, batch, row) + FACTORS + 2L * s * rules->action_delay;
}

/* Start of an episode: draw the factors; until the first action arrives the robots stand still (with fixed_speed:
 * drive straight on). */
RM_OUT_OF_LINE void reset_disturbances(const Rules *rules, const Derived *derived, Batch *batch, int row) {
    const Game *game = batch->games + row;
    const rm_quad random = rm_philox(game->seed[0], game->episode[0], 0, RM_STREAM_DYNAMICS, 0);
    const float speed = rules->speed_variation, turn = rules->turn_variation;
    float *factors = factors_of(derived, batch, row), *delayed = delayed_of(rules, derived, batch, row, PURSUER);
    for (int s = 0; s < 2; s++) {
        factors[s] = between(1.0f - speed, 1.0f + speed, random.w[s]);
        factors[2 + s] = between(1.0f - turn, 1.0f + turn, random.w[2 + s]);
    }
    for (int n = 0; n < 2 * rules->action_delay; n++) {
        delayed[2 * n] = rules->fixed_speed ? 1.0f : -1.0f;
        delayed[2 * n + 1] = 0.0f;
    }
}

/* Replace the chosen actions by those of action_delay steps ago, and store the chosen ones. */
RM_OUT_OF_LINE void delay_actions(const Rules *rules, const Derived *derived, const Block *b, Batch *batch, int s,
                                  int row, int lanes, Controls *chosen) {
    for (int i = 0; i < lanes; i++) {
        float *delayed = delayed_of(rules, derived, batch, row + i, s) + 2 * (b->step[i] % rules->action_delay);
        float speed = delayed[0], turn = delayed[1];
        delayed[0] = rm_clip(chosen->speed[i], -1.0f, 1.0f);
        delayed[1] = rm_clip(chosen->turn[i], -1.0f, 1.0f);
        chosen->speed[i] = speed;
        chosen->turn[i] = turn;
    }
}

/* Add the noise of the actuators; its deviation is a fraction of the top speed and of the largest turn rate. */
RM_OUT_OF_LINE void disturb_actions(const Rules *rules, const Derived *derived, const Block *b, const Batch *batch,
                                    int s, int row, int lanes, Controls *chosen) {
    const float deviation = rules->actuator_noise;
    float noise[MAX_RAYS];
    for (int i = 0; i < lanes; i++) {
        const uint64_t key = optional_of(derived, batch, row + i)->noise[1];
        draw_noise(batch->games + row + i, key, b->step[i], RM_STREAM_ACTUATOR, s, 2, noise);
        /* The action [-1, 1] is twice as wide as the speed as a fraction of the top speed. */
        chosen->speed[i] = rm_clip(chosen->speed[i], -1.0f, 1.0f) + 2.0f * deviation * noise[0];
        chosen->turn[i] = rm_clip(chosen->turn[i], -1.0f, 1.0f) + deviation * noise[1];
    }
}

RM_OUT_OF_LINE void scale_motion(const Derived *derived, Block *b, const Batch *batch, int s, int row, int lanes) {
    for (int i = 0; i < lanes; i++) {
        const float *factors = factors_of(derived, batch, row + i);
        b->v[s][i] *= factors[s];
        b->omega[s][i] *= factors[2 + s];
    }
}

/* An observed number plus noise, within [low, 1]. */
RM_FN float disturbed_number(float number, float noise, float low) { return rm_clip(number + noise, low, 1.0f); }

/* An observed angle over pi plus noise, which wraps around. */
RM_FN float disturbed_angle(float angle, float noise) {
    float sum = angle + noise;
    sum = sum > 1.0f ? sum - 2.0f : sum;
    return rm_clip(sum < -1.0f ? sum + 2.0f : sum, -1.0f, 1.0f);
}

/* Add noise to the seven numbers `state` of the sensors; those of a robot that is not visible do not change. */
RM_OUT_OF_LINE void disturb_state(const Rules *rules, const Game *game, uint64_t key, int32_t step, int s,
                                  float state[STATE_NUMBERS]) {
    const float deviation = rules->sensor_noise;
    const int visible = state[5] != UNSEEN;
    float noise[MAX_RAYS];
    draw_noise(game, key, step, RM_STREAM_OBSERVATION, s, STATE_NUMBERS, noise);
    for (int c = 0; c < STATE_NUMBERS; c++) noise[c] *= deviation;
    for (int c = 0; c < 5; c++)
        state[c] = c == 2 ? disturbed_angle(state[c], noise[c]) : disturbed_number(state[c], noise[c], -1.0f);
    state[5] = visible ? disturbed_number(state[5], noise[5], 0.0f) : state[5];
    state[6] = visible ? disturbed_angle(state[6], noise[6]) : state[6];
}

/* Add noise to the full observation of both robots; time to go and missing obstacles do not change. */
RM_OUT_OF_LINE void disturb_full(const Rules *rules, const Derived *derived, const Block *b, Batch *batch, int row,
                                 int lanes) {
    const int columns = derived->columns, shown = derived->shown_obstacles;
    float noise[MAX_RAYS];
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < lanes; i++) {
            float *out = batch->obs[s] + (long)(row + i) * columns;
            const int measured = 14 + 2 * (b->obstacles[i] < shown ? b->obstacles[i] : shown);
            const uint64_t key = optional_of(derived, batch, row + i)->noise[0];
            draw_noise(batch->games + row + i, key, b->step[i], RM_STREAM_OBSERVATION, s, columns - 1, noise);
            for (int c = 0; c < measured; c++) {
                const int angle = c == 2 || c == 7 || c == 11 || (c >= 14 && c % 2 == 1);
                const float low = c < 10 ? -1.0f : 0.0f; /* from column 10 on: distances */
                noise[c] *= rules->sensor_noise;
                out[c] = angle ? disturbed_angle(out[c], noise[c]) : disturbed_number(out[c], noise[c], low);
            }
        }
}

#endif
