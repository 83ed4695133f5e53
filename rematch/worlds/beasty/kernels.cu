/* Beasty Bar on the GPU: one game per thread, the rules of rules.h. RULES holds the settings as a compile-time constant. */
#include "bots.h"
#include "step.h"

#include "cuda_step.h"

enum { ILLEGAL = 16 }; /* a failure */

/* The scripted player to move decides, then every game plays one turn. */
extern "C" __global__ void step_games(const StepArrays *steps, int t, int count, const StepSettings *settings) {
    const int row = thread_row();
    settings += blockIdx.y;
    if (row >= settings->games) return;
    const StepArrays *arrays = own_step(steps, t, count);
    const Rules rules = RULES;
    const Batch batch = arrays->batch;
    const Game *game = batch.games + row;
    const int seat = game->table.turn[0], which = seated_bot(arrays, settings, rules.players, row, seat);
    int32_t *action = (int32_t *)batch.action + (long)row * rules.players + seat;
    if (which >= 0) {
        const BotKey bot_key = {settings->key[seat], (uint32_t)(settings->first + row), (uint32_t)settings->stream, step_number(settings, t)};
        *action = decide(&rules, &game->table, which, &bot_key);
    }
    if (!is_legal_action(&rules, &batch, row)) {
        report_failure(settings->failure, ILLEGAL, row);
        return;
    }
    step_row(&rules, &batch, row, *action);
    for (int s = 0; s < rules.players; s++) arrays->slot_after[(long)row * rules.players + s] = game->slot[s];
}
