/* One step of a world on the GPU: what all worlds share. A world's kernels.cu includes it after its rules. */
#ifndef REMATCH_CUDA_STEP_H
#define REMATCH_CUDA_STEP_H

/* Dynamic shared memory of a block, for a world whose step uses it (`Cuda.step_bytes`). */
#ifndef SHARED_MEMORY
#define SHARED_MEMORY extern __shared__ __align__(16) unsigned char shared_memory[]
#endif

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
    int32_t *slot;                /* [games][seats] result; no games: the host writes them */
    long long *first_step, start; /* `start` is written there: number of the rollout's first step */
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

/* Before a rollout; grid (blocks, collectors), one thread per game. */
extern "C" __global__ void begin_rollout(const SlotRule *rules) {
    const SlotRule *rule = rules + blockIdx.y;
    const int game = thread_row();
    if (game == 0) *rule->first_step = rule->start;
    if (game >= rule->games) return;
    const bool has_opponents = slot_unit(rule, game, 0) < rule->opponent_share;
    const int learner_seat = (int)(slot_unit(rule, game, 1) * rule->seats);
    const double uniform = slot_unit(rule, game, 2), kind = slot_unit(rule, game, 3);
    for (int s = 0; s < rule->seats; s++) {
        const SeatRule *seat = rule->seat + s;
        const bool learns = seat->learns < 0 ? learner_seat == s : seat->learns;
        const double place = uniform + seat->offset;
        rule->slot[(long)game * rule->seats + s] = has_opponents && !learns ? chosen_slot(seat, place - (double)(int)place, kind) : 0;
    }
}

/* --- the results of a rollout: integers, so that their order has no effect ----------------------------------- */

enum { MAX_COUNTERS = 4 };
/* Of each seat, then for each slot: games against a learner, and the learner's score in them. Scores count in quarters.
 * Behind both seats [2][slots]: 1 where a slot plays a seat of a running game. */
enum { LEARNER_GAMES, LEARNER_SCORE, FIRST_SLOT };
enum { FAILURE_KIND, FAILURE_GAME, ENDED, LENGTH, FIRST_COUNTER, FIRST_SEAT = FIRST_COUNTER + MAX_COUNTERS };

typedef struct {
    const uint8_t *ended;    /* [steps][games] */
    const float *outcome;    /* [steps][games][2] in quarters */
    const int32_t *length;   /* [steps][games] */
    const int32_t *slot;     /* [steps + 1][games][2] */
    const uint8_t *states;   /* [games][state_bytes] */
    const Failure *failure;
    long long *out;          /* see above; zeros before */
    int32_t steps, games, slots, state_bytes, counters, counter_at[MAX_COUNTERS];
} TallyArguments;

RM_FN void add_to(long long *p, long long x) { if (x) atomicAdd((unsigned long long *)p, (unsigned long long)x); }

/* Worlds of two seats; grid (blocks, collectors), one thread per game. */
extern "C" __global__ void tally(const TallyArguments *arguments) {
    const TallyArguments *a = arguments + blockIdx.y;
    const int game = thread_row();
    if (game >= a->games) return;
    long long games = 0, steps = 0;
    for (int t = 0; t < a->steps; t++) {
        const long at = (long)t * a->games + game;
        if (!a->ended[at]) continue;
        games++, steps += a->length[at];
        for (int s = 0; s < 2; s++) {
            const int slot = a->slot[2 * at + s], other = a->slot[2 * at + 1 - s];
            const long long score = (long long)(4.0f * a->outcome[2 * at + s]), others = (long long)(4.0f * a->outcome[2 * at + 1 - s]);
            long long *out = a->out + FIRST_SEAT + s * (FIRST_SLOT + 2 * a->slots);
            if (slot == 0) add_to(out + LEARNER_GAMES, 1), add_to(out + LEARNER_SCORE, score);
            else if (other == 0) add_to(out + FIRST_SLOT + 2 * slot, 1), add_to(out + FIRST_SLOT + 2 * slot + 1, 4 - score + others);
        }
    }
    for (int s = 0; s < 2; s++) a->out[FIRST_SEAT + 2 * (FIRST_SLOT + 2 * a->slots) + s * a->slots + a->slot[2 * ((long)a->steps * a->games + game) + s]] = 1;
    add_to(a->out + ENDED, games);
    add_to(a->out + LENGTH, steps);
    for (int c = 0; c < a->counters; c++) add_to(a->out + FIRST_COUNTER + c, *(const uint32_t *)(a->states + (long)game * a->state_bytes + a->counter_at[c]));
    if (game == 0) a->out[FAILURE_KIND] = a->failure->kind, a->out[FAILURE_GAME] = a->failure->game;
}

#endif
