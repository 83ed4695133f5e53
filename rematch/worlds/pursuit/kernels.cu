/* Pursuit on the GPU: one game per thread, the rules of rules.h. RULES holds the settings as a compile-time constant. */
#include "bots.h"
#include "rules.h"

#include "cuda_step.h"

enum { NOT_FINITE = 16 }; /* a failure, beside those of spawn.h */

/* Scripted players decide, then every game steps. */
extern "C" __global__ void step_games(const StepArrays *steps, int t, int count, const StepSettings *settings) {
    const int row = thread_row();
    settings += blockIdx.y;
    if (row >= settings->games) return;
    const StepArrays *arrays = own_step(steps, t, count);
    const Rules rules = RULES;
    const Derived derived = derive(&rules);
    Batch *batch = (Batch *)&arrays->batch; /* a copy would lie in local memory */
    int failed_row = 0, finite = 1;
    for (int s = 0; s < 2; s++) {
        float *action = (float *)batch->action[s] + (long)row * derived.controls;
        const int which = seated_bot(arrays, settings, 2, row, s);
        if (which >= 0) {
            rm_quad words = bot_words(settings, s, row, step_number(settings, t));
            Action chosen = bot(&rules, &derived, batch->games + row, s, which, words);
            if (derived.controls == 2) action[0] = chosen.speed;
            action[derived.controls - 1] = chosen.turn;
        }
        for (int c = 0; c < derived.controls; c++) finite &= action[c] - action[c] == 0.0f;
    }
    if (!finite) report_failure(settings->failure, NOT_FINITE, row);
    report_failure(settings->failure, step(&rules, &derived, batch, row, 1, &failed_row), row);
    for (int s = 0; s < 2; s++) arrays->slot_after[2 * row + s] = batch->games[row].slot[s];
}
