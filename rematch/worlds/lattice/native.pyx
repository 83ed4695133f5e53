"""The compiled rules of the lattice: rules.h applied to numpy arrays, without the interpreter lock."""

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include "batch.h"
    #include "struct_layout.h"
    STRUCT_LAYOUT(rules, Rules, LATTICE_RULES(RULE_ENTRY))
    STRUCT_LAYOUT(game, Game, LATTICE_GAME(GAME_ENTRY))
    """
    enum: COLUMNS, ACTIONS, HEADINGS, FRAMES, FINE

    ctypedef struct Rules:
        int32_t n
        int32_t block
    ctypedef struct Tables:
        int32_t reach
        uint16_t *move
        uint16_t *image
        uint8_t *frame
        int32_t *place
        int32_t *square
        uint16_t *pair
        int32_t *nearer
    ctypedef struct Game:
        pass
    ctypedef struct Batch:
        Game *games
        const int32_t *action[2]
        float *obs[2]
        float *reward
        float *outcome
        uint8_t *ended
        uint8_t *mirrored
        int32_t *length
        const uint64_t *next_seed
        const int32_t *next_slot
        const float *next_stage
    ctypedef struct Answer:
        int verdict
        int row

    void fill_tables(const Rules *, Tables *) nogil
    Answer step_all(const Rules *, const Tables *, Batch *, int games, int threads) nogil
    Answer start_all(const Rules *, const Tables *, Batch *, int games, uint32_t episode) nogil
    void observe_all(const Rules *, const Tables *, Batch *, int games) nogil
    int invalid_action(const Batch *, int games) nogil

include "../native/struct_layout.pxi"  # BUILD, MARK, RULES, RULES_TYPE, GAME_TYPE, _struct_dtype, _write_rules


cdef class Core:
    """The rules of one configuration; `table`: the arrays of `Tables` in rules.h by name."""

    cdef Rules rules
    cdef Tables tables
    cdef readonly dict table

    def __init__(self, values):
        _write_rules(&self.rules, values)
        cdef int n = self.rules.n, block = self.rules.block, states = HEADINGS * n * n
        if not (2 <= n <= 64 and 0 <= block < n):
            raise ValueError(f"core: n = {n}, block = {block}: expected n from 2 to 64 and block below n")
        self.table = {
            "move": np.zeros((states, ACTIONS), np.uint16), "image": np.zeros((states, FRAMES), np.uint16),
            "frame": np.zeros((states, 2), np.uint8), "place": np.zeros(states, np.int32),
            "square": np.zeros((2 * n - 1) ** 2, np.int32),
            "pair": np.zeros(((n * n - block * block) ** 2, 2), np.uint16),
            "nearer": np.zeros(2 * (n - 1) ** 2 + 2, np.int32),
        }
        cdef uint16_t[:, ::1] move = self.table["move"], image = self.table["image"], pair = self.table["pair"]
        cdef uint8_t[:, ::1] frame = self.table["frame"]
        cdef int32_t[::1] place = self.table["place"], square = self.table["square"]
        cdef int32_t[::1] nearer = self.table["nearer"]
        self.tables.move, self.tables.image, self.tables.frame = &move[0, 0], &image[0, 0], &frame[0, 0]
        self.tables.place, self.tables.square = &place[0], &square[0]
        self.tables.pair, self.tables.nearer = &pair[0, 0], &nearer[0]
        with nogil:
            fill_tables(&self.rules, &self.tables)
        for array in self.table.values():
            array.flags.writeable = False

    @property
    def reach(self):
        """The largest squared distance that captures."""
        return self.tables.reach

    def observe(self, const uint8_t[:, ::1] games, float[:, :, ::1] pursuer, float[:, :, ::1] evader,
                uint8_t[::1] mirrored):
        """Write the observations of games [n, S]: pursuer and evader [n, 1, 5], and mirrored [n], 1 if the frame is a reflection."""
        cdef Batch batch
        cdef int count = games.shape[0]
        if games.shape[1] != sizeof(Game) or mirrored.shape[0] != count or pursuer.shape[1] != 1 \
                or pursuer.shape[0] != count or pursuer.shape[2] != COLUMNS or evader.shape[1] != 1 \
                or evader.shape[0] != count or evader.shape[2] != COLUMNS:
            raise ValueError("observe: arrays have the wrong shape")
        if count == 0:
            return
        batch.games, batch.mirrored = <Game *>&games[0, 0], &mirrored[0]
        batch.obs[0], batch.obs[1] = &pursuer[0, 0, 0], &evader[0, 0, 0]
        with nogil:
            observe_all(&self.rules, &self.tables, &batch, count)


cdef class Boards:
    """One batch: references to the arrays that it writes, and their addresses."""

    cdef Core core
    cdef Batch batch
    cdef int games
    cdef object arrays

    def __init__(self, Core core, uint8_t[:, ::1] games, uint8_t[::1] mirrored, view, next):
        cdef float[:, :, ::1] pursuer = view.fields["pursuer"]["state"]
        cdef float[:, :, ::1] evader = view.fields["evader"]["state"]
        cdef float[:, ::1] reward = view.reward
        cdef float[:, ::1] outcome = view.outcome
        cdef uint8_t[::1] ended = view.ended
        cdef int32_t[::1] length = view.length
        cdef uint64_t[::1] seed = next.seed
        cdef int32_t[:, ::1] slot = next.slot
        cdef float[:, ::1] stage = next.stage
        cdef int count = games.shape[0]
        rows = (mirrored.shape[0], pursuer.shape[0], evader.shape[0], reward.shape[0], outcome.shape[0],
                ended.shape[0], length.shape[0], seed.shape[0], slot.shape[0], stage.shape[0])
        if count == 0 or set(rows) != {count} or games.shape[1] != sizeof(Game) \
                or pursuer.shape[2] != COLUMNS or evader.shape[2] != COLUMNS:
            raise ValueError("boards: arrays have the wrong shape")
        self.core, self.games = core, count
        self.arrays = (games, mirrored, pursuer, evader, reward, outcome, ended, length, seed, slot, stage)
        self.batch.games, self.batch.mirrored = <Game *>&games[0, 0], &mirrored[0]
        self.batch.obs[0], self.batch.obs[1] = &pursuer[0, 0, 0], &evader[0, 0, 0]
        self.batch.reward, self.batch.outcome = &reward[0, 0], &outcome[0, 0]
        self.batch.ended, self.batch.length = &ended[0], &length[0]
        self.batch.next_seed, self.batch.next_slot, self.batch.next_stage = &seed[0], &slot[0, 0], &stage[0, 0]

    def start(self, uint32_t episode):
        """Start every game from `next`. Returns (status, row of the first failure); status 0 is success."""
        cdef Answer answer
        with nogil:
            answer = start_all(&self.core.rules, &self.core.tables, &self.batch, self.games, episode)
        return answer.verdict, answer.row

    def step(self, const int32_t[:, ::1] pursuer, const int32_t[:, ::1] evader, int threads):
        """Step all games once. Returns (status, number): 0 is success; -1: action number = 2 * row + seat is not 0, 1 or 2."""
        cdef Answer answer
        cdef int invalid
        if pursuer.shape[0] != self.games or evader.shape[0] != self.games or pursuer.shape[1] != 1 \
                or evader.shape[1] != 1:
            raise ValueError("step: actions have the wrong shape")
        self.batch.action[0], self.batch.action[1] = &pursuer[0, 0], &evader[0, 0]
        with nogil:
            invalid = invalid_action(&self.batch, self.games)
            if invalid == FINE:
                answer = step_all(&self.core.rules, &self.core.tables, &self.batch, self.games, threads)
        if invalid != FINE:
            return -1, invalid
        return answer.verdict, answer.row
