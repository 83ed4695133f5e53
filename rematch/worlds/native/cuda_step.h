/* One step of a world on the GPU: what all worlds share. A world's kernels.cu includes it after its rules. */
#ifndef REMATCH_CUDA_STEP_H
#define REMATCH_CUDA_STEP_H

enum { MAX_SEATS = 4, MAX_BOTS = 32, MAX_TABLES = 8 };

/* The arrays of one step, and those that describe the position after it. */
typedef struct {
    Batch batch;
    const int32_t *slot; /* [N, seats] players of the running games, before the step */
    int32_t *slot_after; /* [N, seats] */
} StepArrays;

/* Settings of a collector; seats have players in slots 0 .. policies - 1, then bots. */
typedef struct {
    uint64_t key[MAX_SEATS];          /* of the random numbers of each seat's bots */
    const void *table[MAX_TABLES];    /* constant arrays of the world, in the order of `Cuda.tables` */
    int32_t policies[MAX_SEATS];
    int32_t bot[MAX_SEATS][MAX_BOTS]; /* slot - policies -> number of the bot */
    int32_t games, first;             /* first: number of the first game */
} StepSettings;

/* The first failure of a launch: its game and its kind; a later launch keeps it. */
typedef struct { int32_t kind, game; } Failure;

RM_FN void report_failure(Failure *failure, int kind, int game) {
    if (kind && atomicCAS(&failure->kind, 0, kind) == 0) failure->game = game;
}

/* The game of this thread; none if it is not below `settings->games`. */
RM_FN int thread_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

/* The number of the bot that plays a seat, or -1: a policy plays it. */
RM_FN int seated_bot(const StepArrays *arrays, const StepSettings *settings, int seats, int row, int seat) {
    const int slot = arrays->slot[(long)row * seats + seat] - settings->policies[seat];
    return slot < 0 ? -1 : settings->bot[seat][slot];
}

RM_FN rm_quad bot_words(const StepSettings *settings, int seat, int row, uint64_t step) {
    return rm_philox(settings->key[seat], (uint32_t)(settings->first + row), (uint32_t)step, RM_STREAM_BOT, (uint32_t)(step >> 32));
}

#endif
