/* One step of a world on the GPU: what all worlds share. A world's kernels.cu includes it after its rules. */
#ifndef REMATCH_CUDA_STEP_H
#define REMATCH_CUDA_STEP_H

enum { MAX_SEATS = 4, MAX_BOTS = 32, MAX_TABLES = 8, MAX_SLOTS = 64 };

/* The arrays of one step, and those that describe the position after it. */
typedef struct {
    Batch batch;
    const int32_t *slot; /* [N, seats] players of the running games, before the step */
    int32_t *slot_after; /* [N, seats] */
} StepArrays;

/* The first failure of a launch: its game and its kind; a later launch keeps it. */
typedef struct { int32_t kind, game; } Failure;

RM_FN void report_failure(Failure *failure, int kind, int game) {
    if (kind && atomicCAS(&failure->kind, 0, kind) == 0) failure->game = game;
}

/* Settings of a collector; seats have players in slots 0 .. policies - 1, then bots. */
typedef struct {
    uint64_t key[MAX_SEATS];          /* of the random numbers of each seat's bots */
    const void *table[MAX_TABLES];    /* constant arrays of the world, in the order of `Cuda.tables` */
    const long long *first_step;      /* number of the rollout's first step, a key of the random numbers */
    Failure *failure;
    int32_t policies[MAX_SEATS];
    int32_t bot[MAX_SEATS][MAX_BOTS]; /* slot - policies -> number of the bot */
    int32_t games, first;             /* first: number of the first game */
    int32_t stream;                   /* of the random numbers of bots */
} StepSettings;

/* The game of this thread; none if it is not below `settings->games`. */
RM_FN int thread_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

/* One launch steps the games of several collectors, grid (blocks, collectors): the arrays [collectors][count] of step t. */
RM_FN const StepArrays *own_step(const StepArrays *steps, int t, int count) { return steps + (long)blockIdx.y * count + t; }

RM_FN uint64_t step_number(const StepSettings *settings, int t) { return (uint64_t)(*settings->first_step + t); }

/* The number of the bot that plays a seat, or -1: a policy plays it. */
RM_FN int seated_bot(const StepArrays *arrays, const StepSettings *settings, int seats, int row, int seat) {
    const int slot = arrays->slot[(long)row * seats + seat] - settings->policies[seat];
    return slot < 0 ? -1 : settings->bot[seat][slot];
}

RM_FN rm_quad bot_words(const StepSettings *settings, int seat, int row, uint64_t step) {
    return rm_philox(settings->key[seat], (uint32_t)(settings->first + row), (uint32_t)step, (uint32_t)settings->stream, (uint32_t)(step >> 32));
}

/* --- the players of the next games: SlotRule of core/world.py, which is the readable version ---------------- */

typedef struct {
    double bot_share, offset, bot_limit[MAX_BOTS]; /* offset: between the random numbers of the seats */
    int32_t learns;                                /* 1 always, 0 never, -1 in the games that draw this seat */
    int32_t bots, open, bot_slot[MAX_BOTS], open_slot[MAX_SLOTS];
} SeatRule;

typedef struct {
    uint64_t seed, step[4]; /* of the random numbers of a game */
    double opponent_share;
    int32_t seats, games;
    SeatRule seat[MAX_SEATS];
} SlotRule;

enum { RM_STREAM_SEATING = 19 };

RM_FN double slot_unit(const SlotRule *rule, int game, int number) {
    const uint64_t step = rule->step[number];
    const rm_quad words = rm_philox(rule->seed, (uint32_t)game, (uint32_t)step, RM_STREAM_SEATING, (uint32_t)(step >> 32));
    return (double)(((uint64_t)words.w[0] << 32 | words.w[1]) >> 11) * (1.0 / 9007199254740992.0);
}

RM_FN int chosen_slot(const SeatRule *seat, double uniform, double kind) {
    int chosen = 0;
    if (seat->bot_share > 0.0) {
        int bot = 0;
        while (bot < seat->bots - 1 && !(seat->bot_limit[bot] > uniform)) bot++;
        chosen = seat->bot_slot[bot];
    }
    if (seat->open && !(kind < seat->bot_share)) {
        const int place = (int)(uniform * seat->open);
        chosen = seat->open_slot[place < seat->open ? place : seat->open - 1];
    }
    return chosen;
}

/* slot [games][seats]; one thread per game. */
extern "C" __global__ void draw_slots(const SlotRule *rule, int32_t *slot) {
    const int game = thread_row();
    if (game >= rule->games) return;
    const bool has_opponents = slot_unit(rule, game, 0) < rule->opponent_share;
    const int learner_seat = (int)(slot_unit(rule, game, 1) * rule->seats);
    const double uniform = slot_unit(rule, game, 2), kind = slot_unit(rule, game, 3);
    for (int s = 0; s < rule->seats; s++) {
        const SeatRule *seat = rule->seat + s;
        const bool learns = seat->learns < 0 ? learner_seat == s : seat->learns;
        const double place = uniform + seat->offset;
        slot[(long)game * rule->seats + s] = has_opponents && !learns ? chosen_slot(seat, place - (double)(int)place, kind) : 0;
    }
}

#endif
