/* Backward induction over the joint states of the lattice (pursuit specification, section 9), one move per call.
 *
 * The moves of the robots are independent, so a value table is a matrix [pursuer state, evader state], and the nine
 * successors of an entry lie in the three rows that the pursuer can reach and the three columns that the evader can.
 * With symmetry, rows are only those pursuer states that are the smallest of their eight images: the pursuer's move
 * determines the row of the next position and the frame that maps it there, and the frame permutes the columns. */
#ifndef REMATCH_LATTICE_SOLVER_H
#define REMATCH_LATTICE_SOLVER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "matrix_game.h"

enum { SOLVER_ACTIONS = 3, SOLVER_THREADS = 64 };

/* The value tables of one pass: exact play by both; the best pursuer against a given evader; a given pursuer against
 * the best evader; two given players. All are probabilities of capture. */
enum { SOLUTION, BEST_PURSUER, BEST_EVADER, PLAYED, KINDS };

typedef struct {
    int32_t rows, cols;         /* pursuer and evader states */
    const int32_t *row_after;   /* [rows, 3] by the pursuer's action */
    const uint8_t *frame_after; /* [rows, 3] */
    const int32_t *col_after;   /* [frames, cols, 3] by the evader's action, under each frame */
    const double *after[KINDS]; /* [rows, cols] values after the move; NULL: not requested */
    double *now[KINDS];         /* [rows, cols] values before the move */
    const double *action_probs[2]; /* [rows, cols, 3] of pursuer and evader; NULL: those of the solution */
    double *mixes[2];           /* [rows, cols, 3] output: mixed strategies of the solution; or NULL */
    int8_t *replies[2];         /* [rows, cols] output: actions of the best responses; or NULL */
    int32_t next;               /* the next row to be taken by a thread */
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

/* The value of each action of one side against the action_probs of the other. */
static inline void solver_action_values(
        const double payoff[9], const double action_probs[3], int side, double values[3]) {
    for (int own = 0; own < SOLVER_ACTIONS; own++) {
        values[own] = 0;
        for (int other = 0; other < SOLVER_ACTIONS; other++)
            values[own] += action_probs[other] * payoff[side == 0 ? 3 * own + other : 3 * other + own];
    }
}

static inline void solver_entry(Backup *b, int row, int col) {
    const size_t index = (size_t)row * (size_t)b->cols + (size_t)col;
    double payoff[9], values[3], mix[2][3];
    const double *probs[2];
    if (b->after[SOLUTION]) {
        solver_successors(b, b->after[SOLUTION], row, col, payoff);
        b->now[SOLUTION][index] = matrix_game(3, 3, payoff, mix[0], mix[1]);
    }
    for (int side = 0; side < 2; side++) {
        probs[side] = b->action_probs[side] ? b->action_probs[side] + 3 * index : mix[side];
        if (b->mixes[side])
            for (int a = 0; a < SOLVER_ACTIONS; a++) b->mixes[side][3 * index + (size_t)a] = mix[side][a];
    }
    for (int side = 0; side < 2; side++) { /* the best response of `side` to the other's strategy */
        const int kind = side == 0 ? BEST_PURSUER : BEST_EVADER;
        if (!b->after[kind]) continue;
        solver_successors(b, b->after[kind], row, col, payoff);
        solver_action_values(payoff, probs[1 - side], side, values);
        int best = 0;
        for (int a = 1; a < SOLVER_ACTIONS; a++)
            if (side == 0 ? values[a] > values[best] : values[a] < values[best]) best = a;
        b->now[kind][index] = values[best];
        if (b->replies[side]) b->replies[side][index] = (int8_t)best;
    }
    if (b->after[PLAYED]) {
        solver_successors(b, b->after[PLAYED], row, col, payoff);
        solver_action_values(payoff, probs[1], 0, values);
        b->now[PLAYED][index] = probs[0][0] * values[0] + probs[0][1] * values[1] + probs[0][2] * values[2];
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

/* One move back for every joint state. An entry depends on its successors only, so the result does not depend on the
 * threads, which take rows in any order. */
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
