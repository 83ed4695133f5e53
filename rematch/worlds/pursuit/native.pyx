"""The compiled rules of pursuit: rules.h over numpy arrays, the interpreter lock released."""

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include "batch.h"
    #include "struct_layout.h"
    #define ANNEX_ENTRY(type, name, length) {#type, #name, offsetof(Annex, name), length},
    STRUCT_LAYOUT(rules, Rules, PURSUIT_RULES(RULE_ENTRY))
    STRUCT_LAYOUT(game, Game, PURSUIT_GAME(GAME_ENTRY))
    STRUCT_LAYOUT(annex, Annex, PURSUIT_ANNEX(ANNEX_ENTRY))
    """
    enum: MAX_OBSTACLES, MAX_RAYS, STATE_NUMBERS, STARTED, BAD_STAGE, FINE, BOT_COUNT

    ctypedef struct Rules:
        pass
    ctypedef struct Derived:
        int32_t columns
        int32_t controls
        int32_t shown
        int32_t rays
        int32_t frame
        int32_t frames
        int32_t annex_bytes
    ctypedef struct Game:
        pass
    ctypedef struct Batch:
        Game *games
        const float *action[2]
        float *obs[2]
        float *reward
        float *outcome
        uint8_t *ended
        int32_t *length
        const uint64_t *next_seed
        const int32_t *next_slot
        const float *next_stage
        uint8_t *annex
        float *lidar[2]
        float *history[2]
        float *clock[2]
    ctypedef struct Answer:
        int verdict
        int row
    ctypedef struct Action:
        float speed
        float turn
    ctypedef struct rm_quad:
        pass

    Derived derive(const Rules *) nogil
    Answer step_all(const Rules *, const Derived *, Batch *, int games, int threads) nogil
    Answer start_all(const Rules *, const Derived *, Batch *, int games, uint32_t episode) nogil
    void observe_all(const Rules *, const Derived *, Batch *, int games) nogil
    int unsound_action(const Derived *, const Batch *, int games) nogil
    Action bot(const Rules *, const Derived *, const Game *, int me, int which, rm_quad) nogil
    rm_quad rm_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) nogil
    void rm_sincos(float x, float *sine, float *cosine) nogil
    float rm_atan2(float y, float x) nogil

include "../native/struct_layout.pxi"  # BUILD, MARK, RULES, RULES_TYPE, GAME_TYPE, _struct_dtype, _write_rules

cdef extern from *:
    const StructLayout annex_layout

MOST_OBSTACLES = MAX_OBSTACLES
MOST_RAYS = MAX_RAYS
OWN_NUMBERS = STATE_NUMBERS
BOTS = BOT_COUNT


cdef class Core:
    """The rules of one configuration."""

    cdef Rules rules
    cdef Derived derived

    def __init__(self, values):
        _write_rules(&self.rules, values)
        self.derived = derive(&self.rules)

    @property
    def columns(self):
        return self.derived.columns

    @property
    def controls(self):
        return self.derived.controls

    @property
    def shown(self):
        return self.derived.shown

    @property
    def annex_type(self):
        """`Annex` in state.h and the frames [2, history_length, 7 + rays] behind it; empty where there is none."""
        cdef int frames = self.derived.frames
        if not self.derived.annex_bytes:
            return np.dtype([])
        return _struct_dtype(&annex_layout, [("frames", (2, frames, self.derived.frame))] if frames else [])

    def observe(self, games, annex, obs):
        """Write what both robots see in games [n, S], annex [n, T]: role -> field -> [n, 1, F], n at least 1.

        With sensors the newest frame in the annex is written too.
        """
        cdef Batch batch
        cdef int count = len(games)
        _attach(&batch, self, games, annex, obs)
        with nogil:
            observe_all(&self.rules, &self.derived, &batch, count)

    def bot(self, const uint8_t[:, ::1] games, const int32_t[::1] rows, who, rng_key, uint32_t first):
        """Actions [n, controls] of a scripted player, who = (seat, number), in these rows of games [N, S].

        Draws go by the noise's key and the game's number first + row, as in rematch/core/rng.py.
        """
        cdef int n, row, count = rows.shape[0], total = games.shape[0], controls = self.derived.controls
        cdef int seat = who[0], which = who[1]
        cdef uint64_t seed = rng_key.seed & 0xFFFFFFFFFFFFFFFF, step = rng_key.step & 0xFFFFFFFFFFFFFFFF
        cdef uint32_t stream = rng_key.stream & 0xFFFFFFFF
        cdef float[:, ::1] out = np.empty((count, controls), np.float32)
        cdef Action action
        cdef rm_quad random
        if games.shape[1] != sizeof(Game) or seat not in (0, 1):
            raise ValueError("bot: arrays or seat do not fit")
        for n in range(count):
            if rows[n] < 0 or rows[n] >= total:
                raise IndexError(f"row {rows[n]} of {total}")
        with nogil:
            for n in range(count):
                row = rows[n]
                random = rm_philox(seed, first + <uint32_t>row, <uint32_t>step, stream, <uint32_t>(step >> 32))
                action = bot(&self.rules, &self.derived, <const Game *>&games[row, 0], seat, which, random)
                if controls == 2:
                    out[n, 0] = action.speed
                out[n, controls - 1] = action.turn
        return np.asarray(out)


cdef _attach(Batch *batch, Core core, games, annex, obs):
    """Point a batch at games [n, S], annex [n, T] and role -> field -> [n, 1, F]; everything must fit."""
    cdef const uint8_t[:, ::1] bytes_of_games = games
    cdef const uint8_t[:, ::1] bytes_of_annex = annex
    cdef float[:, :, ::1] field
    cdef Derived *derived = &core.derived
    cdef int count = bytes_of_games.shape[0], seat
    widths = {"state": derived.columns}
    if derived.frames:
        widths |= {"lidar": derived.rays, "history": derived.frames * derived.frame, "clock": 1}
    if count == 0 or bytes_of_games.shape[1] != sizeof(Game) \
            or bytes_of_annex.shape[0] != count or bytes_of_annex.shape[1] != derived.annex_bytes:
        raise ValueError("games or annex do not fit")
    batch.games = <Game *>&bytes_of_games[0, 0]
    batch.annex = <uint8_t *>&bytes_of_annex[0, 0] if derived.annex_bytes else NULL
    for seat, role in enumerate(("pursuer", "evader")):
        for name, width in widths.items():
            field = obs[role][name]
            if field.shape[0] != count or field.shape[1] != 1 or field.shape[2] != width:
                raise ValueError(f"field {name} of {role} does not fit")
            if name == "state":
                batch.obs[seat] = &field[0, 0, 0]
            elif name == "lidar":
                batch.lidar[seat] = &field[0, 0, 0]
            elif name == "history":
                batch.history[seat] = &field[0, 0, 0]
            else:
                batch.clock[seat] = &field[0, 0, 0]


cdef class Arena:
    """One batch: the arrays it writes, kept alive, and their addresses."""

    cdef Core core
    cdef Batch batch
    cdef int games
    cdef object arrays

    def __init__(self, Core core, uint8_t[:, ::1] games, uint8_t[:, ::1] annex, view, next):
        cdef float[:, ::1] reward = view.reward
        cdef float[:, ::1] outcome = view.outcome
        cdef uint8_t[::1] ended = view.ended
        cdef int32_t[::1] length = view.length
        cdef uint64_t[::1] seed = next.seed
        cdef int32_t[:, ::1] slot = next.slot
        cdef float[:, ::1] stage = next.stage
        cdef int count = games.shape[0]
        rows = (reward.shape[0], outcome.shape[0], ended.shape[0],
                length.shape[0], seed.shape[0], slot.shape[0], stage.shape[0])
        if set(rows) != {count}:
            raise ValueError("arena: arrays do not fit")
        self.core, self.games = core, count
        self.arrays = (games, annex, dict(view.fields), reward, outcome, ended, length, seed, slot, stage)
        _attach(&self.batch, core, games, annex, view.fields)
        self.batch.reward, self.batch.outcome = &reward[0, 0], &outcome[0, 0]
        self.batch.ended, self.batch.length = &ended[0], &length[0]
        self.batch.next_seed, self.batch.next_slot, self.batch.next_stage = &seed[0], &slot[0, 0], &stage[0, 0]

    def start(self, uint32_t episode):
        """Begin every game from `next`. Returns (verdict, row): verdict 0 is well."""
        cdef Answer answer
        with nogil:
            answer = start_all(&self.core.rules, &self.core.derived, &self.batch, self.games, episode)
            observe_all(&self.core.rules, &self.core.derived, &self.batch, self.games)
        return answer.verdict, answer.row

    def step(self, const float[:, :, ::1] pursuer, const float[:, :, ::1] evader, int threads):
        """Move all games once. Returns (verdict, number): 0 is well; -1: action 2 * row + seat not finite."""
        cdef Answer answer
        cdef int bad
        cdef int controls = self.core.derived.controls
        if pursuer.shape[0] != self.games or evader.shape[0] != self.games or pursuer.shape[1] != 1 \
                or evader.shape[1] != 1 or pursuer.shape[2] != controls or evader.shape[2] != controls:
            raise ValueError("step: actions do not fit")
        self.batch.action[0], self.batch.action[1] = &pursuer[0, 0, 0], &evader[0, 0, 0]
        with nogil:
            bad = unsound_action(&self.core.derived, &self.batch, self.games)
            if bad == FINE:
                answer = step_all(&self.core.rules, &self.core.derived, &self.batch, self.games, threads)
        if bad != FINE:
            return -1, bad
        return answer.verdict, answer.row


def sincos(const float[::1] x):
    """The rules' own sine and cosine, for the tests."""
    cdef float[::1] sine = np.empty(x.shape[0], np.float32)
    cdef float[::1] cosine = np.empty(x.shape[0], np.float32)
    cdef Py_ssize_t n
    for n in range(x.shape[0]):
        rm_sincos(x[n], &sine[n], &cosine[n])
    return np.asarray(sine), np.asarray(cosine)


def atan2(const float[::1] y, const float[::1] x):
    """The rules' own arc tangent, for the tests."""
    cdef float[::1] out = np.empty(x.shape[0], np.float32)
    cdef Py_ssize_t n
    for n in range(x.shape[0]):
        out[n] = rm_atan2(y[n], x[n])
    return np.asarray(out)
