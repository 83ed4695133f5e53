"""The compiled solver: solver.h and native/matrix_game.h applied to numpy arrays, without the interpreter lock."""

import numpy as np

from libc.stdint cimport int8_t, int32_t, uint8_t
from libc.string cimport memset

cdef extern from *:
    """
    #include "solver.h"
    """
    const char *REMATCH_BUILD
    enum: KINDS, MATRIX_MOST
    ctypedef struct Backup:
        int32_t rows
        int32_t cols
        const int32_t *row_after
        const uint8_t *frame_after
        const int32_t *col_after
        const double *after[4]
        double *now[4]
        const double *action_probs[2]
        double *mixes[2]
        int8_t *replies[2]
    void solver_back(Backup *, int threads) nogil
    double matrix_game(int rows, int cols, const double *payoff, double *row_mix, double *col_mix) nogil

BUILD = REMATCH_BUILD.decode()
MOST = MATRIX_MOST


cdef class Solver:
    """The transition tables of one board; `back` computes one move of the backward induction."""

    cdef int32_t rows, cols
    cdef object after_rows, after_frames, after_cols

    def __init__(self, row_after, frame_after, col_after):
        """row_after, frame_after [2, rows, 3]: a move and a turn without a move; col_after [frames, cols, 3]."""
        self.rows, self.cols = row_after.shape[1], col_after.shape[1]
        self.after_rows = np.ascontiguousarray(row_after, np.int32)
        self.after_frames = np.ascontiguousarray(frame_after, np.uint8)
        self.after_cols = np.ascontiguousarray(col_after, np.int32)
        frames = self.after_cols.shape[0]
        if (self.after_rows.shape != (2, self.rows, 3) or self.after_frames.shape != (2, self.rows, 3)
                or self.after_cols.shape != (frames, self.cols, 3)
                or self.after_rows.min() < 0 or self.after_rows.max() >= self.rows
                or self.after_cols.min() < 0 or self.after_cols.max() >= self.cols
                or self.after_frames.max() >= frames):
            raise ValueError("solver: the tables have inconsistent shapes or indices")

    def back(self, bint stays, after, now, action_probs, out, int threads):
        """One move back. after, now: kind -> [rows, cols]; action_probs, out: see solver.pyi."""
        cdef Backup b
        cdef const int32_t[:, :, ::1] after_rows = self.after_rows
        cdef const uint8_t[:, :, ::1] after_frames = self.after_frames
        cdef const int32_t[:, :, ::1] after_cols = self.after_cols
        cdef const double[:, ::1] table
        cdef const double[:, :, ::1] probs
        cdef double[:, ::1] result
        cdef double[:, :, ::1] mix
        cdef int8_t[:, ::1] reply
        memset(&b, 0, sizeof(b))
        b.rows, b.cols = self.rows, self.cols
        b.row_after, b.frame_after = &after_rows[stays, 0, 0], &after_frames[stays, 0, 0]
        b.col_after = &after_cols[0, 0, 0]
        plane, cube = (self.rows, self.cols), (self.rows, self.cols, 3)
        for kind in range(4):
            if kind in after:
                self.check(after[kind].shape == plane and now[kind].shape == plane)
                table, result = after[kind], now[kind]
                b.after[kind], b.now[kind] = &table[0, 0], &result[0, 0]
        for side in range(2):
            if action_probs[side] is not None:
                self.check(action_probs[side].shape == cube)
                probs = action_probs[side]
                b.action_probs[side] = &probs[0, 0, 0]
            if out.get("mixes") is not None:
                self.check(out["mixes"][side].shape == cube)
                mix = out["mixes"][side]
                b.mixes[side] = &mix[0, 0, 0]
            if out.get("replies") is not None:
                self.check(out["replies"][side].shape == plane)
                reply = out["replies"][side]
                b.replies[side] = &reply[0, 0]
        # Without the solution, the action probabilities of every fixed side must be given.
        self.check(0 in after or (out.get("mixes") is None and all(
            action_probs[side] is not None for kind, side in ((1, 1), (2, 0), (3, 0), (3, 1)) if kind in after)))
        with nogil:
            solver_back(&b, threads)

    cdef check(self, fits):
        if not fits:
            raise ValueError(f"solver: expected tables [{self.rows}, {self.cols}] and action probabilities of every fixed side")


def matrix_value(payoff):
    """Value, row mixture and column mixture of a zero-sum game [rows, cols]; the row side maximises."""
    cdef const double[:, ::1] game = np.ascontiguousarray(payoff, np.float64)
    cdef int rows = game.shape[0], cols = game.shape[1]
    if not (1 <= rows <= MOST and 1 <= cols <= MOST and np.isfinite(payoff).all()):
        raise ValueError(f"matrix game: expected finite payoffs, from 1 x 1 to {MOST} x {MOST}")
    cdef double[::1] row_mix = np.zeros(rows), col_mix = np.zeros(cols)
    cdef double value = matrix_game(rows, cols, &game[0, 0], &row_mix[0], &col_mix[0])
    return value, np.asarray(row_mix), np.asarray(col_mix)
