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
extern "C" __global__ void step_games(const StepArrays *steps, int t, const StepSettings *settings, const long long *first_step, Failure *failure) {
    const int row = thread_row();
    if (row >= settings->games) return;
    const Rules rules = RULES;
    const Tables tables = tables_of(&rules, settings);
    Batch batch = steps[t].batch;
    const Game *game = batch.games + row;
    float seen[2][COLUMNS], *obs[2] = {seen[0], seen[1]};
    observe_position(&rules, &tables, game->robot, game->moves_left[0], obs);
    for (int s = 0; s < 2; s++) {
        int32_t *action = (int32_t *)batch.action[s] + row;
        const int which = seated_bot(steps + t, settings, 2, row, s);
        if (which >= 0) *action = bot(&rules, &tables, obs[s], s, which, bot_words(settings, s, row, (uint64_t)(*first_step + t)));
        if ((uint32_t)*action >= ACTIONS) {
            report_failure(failure, NO_ACTION, row);
            return;
        }
    }
    report_failure(failure, step(&rules, &tables, &batch, row), row);
    for (int s = 0; s < 2; s++) steps[t].slot_after[2 * row + s] = game->slot[s];
}
