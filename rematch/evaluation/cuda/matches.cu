/* The results of matches on the GPU: after each step, what evaluation/match.py records of every game until it ends. */
#include "random.h"

enum { MAX_ROLES = 4 };

typedef struct {
    const float *reward, *outcome;     /* [games][seats] of the newest step */
    const uint8_t *ended;              /* [games] */
    const int32_t *length;             /* [games] */
    const uint32_t *action[MAX_ROLES]; /* [games][words] of each role */
    float *final_outcome;              /* [games][seats] */
    int32_t *final_length;             /* [games] */
    double *returns;                   /* [games][seats] */
    uint64_t *hash;                    /* [games] of all actions (FNV-1a over words) */
    uint8_t *running;                  /* [games] */
    long long *step;                   /* steps so far */
    int32_t words[MAX_ROLES];
    int32_t games, seats, roles, limit;
} MatchArguments;

extern "C" __global__ void record_step(const MatchArguments *a) {
    const int game = blockIdx.x * blockDim.x + threadIdx.x;
    if (game >= a->games || !a->running[game] || *a->step >= a->limit) return;
    uint64_t hash = a->hash[game];
    for (int r = 0; r < a->roles; r++)
        for (int w = 0; w < a->words[r]; w++)
            hash = (hash ^ ((uint64_t)a->action[r][(long)game * a->words[r] + w] + 1)) * 0x100000001B3ull;
    a->hash[game] = hash;
    const long first = (long)game * a->seats;
    for (int s = 0; s < a->seats; s++) a->returns[first + s] += (double)a->reward[first + s];
    if (!a->ended[game]) return;
    for (int s = 0; s < a->seats; s++) a->final_outcome[first + s] = a->outcome[first + s];
    a->final_length[game] = a->length[game];
    a->running[game] = 0;
}

/* One thread: the next step begins. */
extern "C" __global__ void count_step(const MatchArguments *a) { ++*a->step; }
