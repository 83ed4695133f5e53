/* Pursuit on the GPU: one game per thread, the rules of rules.h. RULES holds the settings as a compile-time constant. */
#include "bots.h"
#include "rules.h"

#include "cuda_step.h"

#include "sensor_kernels.h"

enum { NOT_FINITE = 16 }; /* a failure, beside those of spawn.h */

#define STEP_WAITS /* threads of a block wait for each other */
enum { STEP_GAMES = 128 }; /* most games of a block */

/* The robots of a block that scripted players move, as 2 game + robot, in the order of those players. */
typedef struct { int32_t count[BOT_COUNT], robot[2 * STEP_GAMES]; } BotRobots;

enum { STEP_BYTES = 2 * STEP_GAMES * MAX_COLUMNS * 4 + sizeof(BotRobots) }; /* most shared memory of a block; see step_games */

/* A robot of this game moves as a scripted player decides. */
RM_FN void move_as_bot(const Rules *rules, const Derived *derived, const StepArrays *arrays, const StepSettings *settings, int row, int s, int t) {
    float *action = (float *)arrays->batch.action[s] + (long)row * derived->controls;
    const rm_quad words = bot_words(settings, s, row, step_number(settings, t));
    const Action chosen = bot(rules, derived, arrays->batch.games + row, s, seated_bot(arrays, settings, 2, row, s), words);
    if (derived->controls == 2) action[0] = chosen.speed;
    action[derived->controls - 1] = chosen.turn;
}

/* The scripted players of a block decide. A warp executes the code of all players that its threads need, one after the
 * other; so each warp has an equal part of the robots in the order of their players. */
RM_FN void move_bots(const Rules *rules, const Derived *derived, const StepArrays *arrays, const StepSettings *settings, BotRobots *robots, int row, int t) {
    const int first = row - threadIdx.x, warps = blockDim.x / 32, warp = threadIdx.x / 32;
    int player[2], place[2];
    if (threadIdx.x < BOT_COUNT) robots->count[threadIdx.x] = 0;
    __syncthreads();
    for (int s = 0; s < 2; s++) {
        player[s] = row < settings->games ? seated_bot(arrays, settings, 2, row, s) : -1;
        if (player[s] >= 0) place[s] = atomicAdd(robots->count + player[s], 1);
    }
    __syncthreads();
    for (int s = 0; s < 2; s++) {
        for (int b = 0; b < player[s]; b++) place[s] += robots->count[b];
        if (player[s] >= 0) robots->robot[place[s]] = 2 * threadIdx.x + s;
    }
    int total = 0;
    for (int b = 0; b < BOT_COUNT; b++) total += robots->count[b];
    __syncthreads();
    const int each = (total + warps - 1) / warps, end = (warp + 1) * each < total ? (warp + 1) * each : total;
    for (int i = warp * each + threadIdx.x % 32; i < end; i += 32)
        move_as_bot(rules, derived, arrays, settings, first + robots->robot[i] / 2, robots->robot[i] % 2, t);
    __syncthreads();
}

/* The game of this thread steps. */
RM_FN void step_game(const Rules *rules, const Derived *derived, const StepArrays *arrays, Batch *batch, const StepSettings *settings, int row) {
    int failed_row = 0, finite = 1;
    for (int s = 0; s < 2; s++)
        for (int c = 0; c < derived->controls; c++) {
            const float number = ((const float *)arrays->batch.action[s])[(long)row * derived->controls + c];
            finite &= number - number == 0.0f;
        }
    if (!finite) report_failure(settings->failure, NOT_FINITE, row);
    report_failure(settings->failure, step(rules, derived, batch, row, 1, &failed_row), row);
    for (int s = 0; s < 2; s++) arrays->slot_after[2 * row + s] = arrays->batch.games[row].slot[s];
}

/* All games step. Full observations of a block are written to shared memory first: from there its threads write
 * neighbouring numbers at once, where each thread alone would write to rows of its own. */
extern "C" __global__ void step_games(const StepArrays *steps, int t, int count, const StepSettings *settings) {
    SHARED_MEMORY;
    settings += blockIdx.y;
    const StepArrays *arrays = own_step(steps, t, count);
    const Rules rules = RULES;
    const Derived derived = derive(&rules);
    const int row = thread_row(), first = row - threadIdx.x, left = settings->games - first;
    const int games = left < (int)blockDim.x ? left : (int)blockDim.x, numbers = games * derived.columns;
    float *own = (float *)shared_memory; /* behind the observations: BotRobots */
    BotRobots *robots = (BotRobots *)(own + (rules.full_obs ? 2 * (int)blockDim.x * derived.columns : 0));
    Batch batch = arrays->batch;
    RM_UNROLL for (int s = 0; s < 2 && rules.full_obs; s++) batch.obs[s] = own + (long)s * blockDim.x * derived.columns - (long)first * derived.columns;
    move_bots(&rules, &derived, arrays, settings, robots, row, t);
    if (row < settings->games) step_game(&rules, &derived, arrays, &batch, settings, row);
    if (!rules.full_obs) return; /* sensor_kernels.h */
    __syncthreads();
    for (int s = 0; s < 2; s++) {
        float *to = arrays->batch.obs[s] + (long)first * derived.columns;
        for (int i = threadIdx.x; i < numbers; i += blockDim.x) to[i] = own[s * blockDim.x * derived.columns + i];
    }
}
