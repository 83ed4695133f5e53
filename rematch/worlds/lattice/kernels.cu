/* The lattice on the GPU: one game per thread, the rules of rules.h. RULES holds the settings as a compile-time constant. */
#include "bots.h"

#include "cuda_step.h"

enum { NO_ACTION = 16 }; /* a failure, beside BAD_STAGE of rules.h */

/* The tables of rules.h, which the CPU filled. */
RM_FN Tables tables_of(const Rules *rules, const StepSettings *settings) {
    const void *const *table = settings->table;
    Tables tables = {roots_below(rules->radius, 1) - 1, (rm_state *)table[0], (rm_state *)table[1], (uint8_t *)table[2],
                     (int32_t *)table[3], (int32_t *)table[4], (rm_state *)table[5], (int32_t *)table[6]};
    return tables;
}

/* Scripted players decide, then every game steps. */
extern "C" __global__ void step_games(const StepArrays *steps, int t, int count, const StepSettings *settings) {
    const int row = thread_row();
    settings += blockIdx.y;
    if (row >= settings->games) return;
    const StepArrays *arrays = own_step(steps, t, count);
    const Rules rules = RULES;
    const Tables tables = tables_of(&rules, settings);
    Batch batch = arrays->batch;
    const Game *game = batch.games + row;
    float seen[2][COLUMNS], *obs[2] = {seen[0], seen[1]};
    observe_position(&rules, &tables, game->robot, game->moves_left[0], obs);
    for (int s = 0; s < 2; s++) {
        int32_t *action = (int32_t *)batch.action[s] + row;
        const int which = seated_bot(arrays, settings, 2, row, s);
        if (which >= 0) *action = bot(&rules, &tables, obs[s], s, which, bot_words(settings, s, row, step_number(settings, t)));
        if ((uint32_t)*action >= ACTIONS) {
            report_failure(settings->failure, NO_ACTION, row);
            return;
        }
    }
    report_failure(settings->failure, step(&rules, &tables, &batch, row), row);
    for (int s = 0; s < 2; s++) arrays->slot_after[2 * row + s] = game->slot[s];
}
