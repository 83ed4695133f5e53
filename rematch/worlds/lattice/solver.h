/* Backward induction over the lattice's joint states (pursuit specification, section 9), one move at a time.
 *
 * The robots' moves are decoupled, so a table of values is a matrix [pursuer state, evader state], and the nine
 * successors of an entry lie in the three rows that the pursuer can reach, in the three columns that the evader can.
 * Symmetry keeps only pursuer states that are the smallest of their eight images: the pursuer's move says into which
 * row the next position belongs and by which frame it is turned or mirrored there, and the frame permutes columns. */
#ifndef REMATCH_LATTICE_SOLVER_H
#define REMATCH_LATTICE_SOLVER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "matrix_game.h"

enum { SOLVER_ACTIONS = 3, SOLVER_THREADS = 64 };

/* What is worked out in one pass: the game's value; what the best pursuer reaches against a given evader; what the
 * best evader leaves a given pursuer; what two given players make of it. All are action_probs of capture. */
enum { SOLUTION, BEST_PURSUER, BEST_EVADER, PLAYED, KINDS };

typedef struct {
    int32_t rows, cols;         /* pursuer and evader states */
    const int32_t *row_after;   /* [rows, 3] by the pursuer's action */
    const uint8_t *frame_after; /* [rows, 3] */
    const int32_t *col_after;   /* [frames, cols, 3] by the evader's action, as each frame shows it */
    const double *after[KINDS]; /* [rows, cols] values on arrival; NULL: not asked for */
    double *now[KINDS];         /* [rows, cols] values before the move */
    const double *action_probs[2];   /* [rows, cols, 3] of pursuer and evader; NULL: those of the solution */
    double *mixes[2];           /* [rows, cols, 3] where the solution's go; NULL: nowhere */
    int8_t *replies[2];         /* [rows, cols] where best responses go, as actions; NULL: nowhere */
    int32_t next;               /* the first row that no thread has taken yet */
} Backup;

/* The nine successors: payoff[3 * pursuer's action + evader's action]. */
static inline void solver_successors(const Backup *b, const double *after, int row, int col, double payoff[9]) {
    for (int p = 0; p < SOLVER_ACTIONS; p++) {
        const double *line = after + (size_t)b->row_after[row * SOLVER_ACTIONS + p] * (size_t)b->cols;
        const int frame = b->frame_after[row * SOLVER_ACTIONS + p];
        const int32_t *to = b->col_after + ((size_t)frame * (size_t)b->cols + (size_t)col) * SOLVER_ACTIONS;
        for (int e = 0; e < SOLVER_ACTIONS; e++) payoff[p * SOLVER_ACTIONS + e] = line[to[e]];
    }
}

/* What each of one side's actions is worth against the other side's action_probs. */
static inline void solver_against(const double payoff[9], const double action_probs[3], int side, double worth[3]) {
    for (int own = 0; own < SOLVER_ACTIONS; own++) {
        worth[own] = 0;
        for (int other = 0; other < SOLVER_ACTIONS; other++)
            worth[own] += action_probs[other] * payoff[side == 0 ? 3 * own + other : 3 * other + own];
    }
}

static inline void solver_entry(Backup *b, int row, int col) {
    const size_t at = (size_t)row * (size_t)b->cols + (size_t)col;
    double payoff[9], worth[3], mix[2][3];
    const double *play[2];
    if (b->after[SOLUTION]) {
        solver_successors(b, b->after[SOLUTION], row, col, payoff);
        b->now[SOLUTION][at] = matrix_game(3, 3, payoff, mix[0], mix[1]);
    }
    for (int side = 0; side < 2; side++) {
        play[side] = b->action_probs[side] ? b->action_probs[side] + 3 * at : mix[side];
        if (b->mixes[side])
            for (int a = 0; a < SOLVER_ACTIONS; a++) b->mixes[side][3 * at + (size_t)a] = mix[side][a];
    }
    for (int side = 0; side < 2; side++) { /* the best reply of `side` to the other's play */
        const int kind = side == 0 ? BEST_PURSUER : BEST_EVADER;
        if (!b->after[kind]) continue;
        solver_successors(b, b->after[kind], row, col, payoff);
        solver_against(payoff, play[1 - side], side, worth);
        int best = 0;
        for (int a = 1; a < SOLVER_ACTIONS; a++)
            if (side == 0 ? worth[a] > worth[best] : worth[a] < worth[best]) best = a;
        b->now[kind][at] = worth[best];
        if (b->replies[side]) b->replies[side][at] = (int8_t)best;
    }
    if (b->after[PLAYED]) {
        solver_successors(b, b->after[PLAYED], row, col, payoff);
        solver_against(payoff, play[1], 0, worth);
        b->now[PLAYED][at] = play[0][0] * worth[0] + play[0][1] * worth[1] + play[0][2] * worth[2];
    }
}

static void *solver_thread(void *argument) {
    Backup *b = (Backup *)argument;
    for (;;) {
        const int row = __atomic_fetch_add(&b->next, 1, __ATOMIC_RELAXED);
        if (row >= b->rows) return NULL;
        for (int col = 0; col < b->cols; col++) solver_entry(b, row, col);
    }
}

/* One move back for every joint state. An entry is a function of its successors alone, so threads, which take rows
 * as they come, change nothing. */
static void solver_back(Backup *b, int threads) {
    pthread_t started[SOLVER_THREADS];
    int running = 0;
    b->next = 0;
    for (int t = 1; t < threads && t < SOLVER_THREADS; t++)
        if (!pthread_create(&started[running], NULL, solver_thread, b)) running++;
    solver_thread(b);
    for (int t = 0; t < running; t++) pthread_join(started[t], NULL);
}

#endif
