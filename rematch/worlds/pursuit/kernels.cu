/* Pursuit on the GPU: one game per thread, the rules of rules.h. RULES holds the settings as a compile-time constant. */
#include "bots.h"
#include "rules.h"

#include "cuda_step.h"

#include "sensor_kernels.h"

enum { NOT_FINITE = 16 }; /* a failure, beside those of spawn.h */

#define STEP_WAITS /* threads of a block wait for each other */
enum { STEP_BYTES = 2 * 64 * MAX_COLUMNS * 4 }; /* most shared memory of a block: observations of both robots of 64 games */

/* Scripted players decide, then the game of this thread steps. */
RM_FN void step_game(const Rules *rules, const Derived *derived, const StepArrays *arrays, Batch *batch, const StepSettings *settings, int row, int t) {
    int failed_row = 0, finite = 1;
    for (int s = 0; s < 2; s++) {
        float *action = (float *)arrays->batch.action[s] + (long)row * derived->controls;
        const int which = seated_bot(arrays, settings, 2, row, s);
        if (which >= 0) {
            rm_quad words = bot_words(settings, s, row, step_number(settings, t));
            Action chosen = bot(rules, derived, arrays->batch.games + row, s, which, words);
            if (derived->controls == 2) action[0] = chosen.speed;
            action[derived->controls - 1] = chosen.turn;
        }
        for (int c = 0; c < derived->controls; c++) finite &= action[c] - action[c] == 0.0f;
    }
    if (!finite) report_failure(settings->failure, NOT_FINITE, row);
    report_failure(settings->failure, step(rules, derived, batch, row, 1, &failed_row), row);
    for (int s = 0; s < 2; s++) arrays->slot_after[2 * row + s] = arrays->batch.games[row].slot[s];
}

/* All games step. The full observations of a block are written to shared memory first: from there its threads write
 * neighbouring numbers at once, where each thread alone would write to rows of its own. */
extern "C" __global__ void step_games(const StepArrays *steps, int t, int count, const StepSettings *settings) {
    SHARED_MEMORY;
    settings += blockIdx.y;
    const StepArrays *arrays = own_step(steps, t, count);
    const Rules rules = RULES;
    const Derived derived = derive(&rules);
    const int row = thread_row(), first = row - threadIdx.x, left = settings->games - first;
    const int games = left < (int)blockDim.x ? left : (int)blockDim.x, numbers = games * derived.columns;
    float *own = (float *)shared_memory;
    Batch batch = arrays->batch;
    RM_UNROLL for (int s = 0; s < 2 && rules.full_obs; s++) batch.obs[s] = own + (long)s * blockDim.x * derived.columns - (long)first * derived.columns;
    if (row < settings->games) step_game(&rules, &derived, arrays, &batch, settings, row, t);
    if (!rules.full_obs) return; /* sensor_kernels.h */
    __syncthreads();
    for (int s = 0; s < 2; s++) {
        float *to = arrays->batch.obs[s] + (long)first * derived.columns;
        for (int i = threadIdx.x; i < numbers; i += blockDim.x) to[i] = own[s * blockDim.x * derived.columns + i];
    }
}
