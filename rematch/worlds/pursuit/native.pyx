"""The compiled rules of pursuit: rules.h applied to numpy arrays, without the interpreter lock."""

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include "batch.h"
    #include "struct_layout.h"
    #define OPTIONAL_ENTRY(type, name, length) {#type, #name, offsetof(OptionalState, name), length},
    STRUCT_LAYOUT(rules, Rules, PURSUIT_RULES(RULE_ENTRY))
    STRUCT_LAYOUT(game, Game, PURSUIT_GAME(GAME_ENTRY))
    STRUCT_LAYOUT(optional, OptionalState, PURSUIT_OPTIONAL(OPTIONAL_ENTRY))
    """
    enum: MAX_OBSTACLES, MAX_RAYS, STATE_NUMBERS, STARTED, BAD_STAGE, FINE, BOT_COUNT

    ctypedef struct Rules:
        int32_t action_delay
    ctypedef struct Derived:
        int32_t columns
        int32_t controls
        int32_t shown_obstacles
        int32_t rays
        int32_t frame
        int32_t frames
        int32_t disturbed
        int32_t optional_bytes
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
        uint8_t *optional
        float *lidar[2]
        float *history[2]
        float *clock[2]
        float *other[2]
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
    int invalid_action(const Derived *, const Batch *, int games) nogil
    Action bot(const Rules *, const Derived *, const Game *, int me, int which, rm_quad) nogil
    rm_quad rm_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) nogil
    void rm_sincos(float x, float *sine, float *cosine) nogil
    float rm_atan2(float y, float x) nogil

include "../native/struct_layout.pxi"  # BUILD, MARK, RULES, RULES_TYPE, GAME_TYPE, _struct_dtype, _write_rules

cdef extern from *:
    const StructLayout optional_layout

MOST_OBSTACLES = MAX_OBSTACLES
MOST_RAYS = MAX_RAYS
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
    def shown_obstacles(self):
        return self.derived.shown_obstacles

    @property
    def optional_type(self):
        """`OptionalState` of state.h, then the frames [2, history_length, 7 + rays] of sensors, then the factors and
        delayed actions of disturbances; empty if nothing is needed."""
        cdef int frames = self.derived.frames, delay = self.rules.action_delay
        if not self.derived.optional_bytes:
            return np.dtype([])
        arrays = [("frames", (2, frames, self.derived.frame))] if frames else []
        if self.derived.disturbed:
            arrays += [("speed_factor", (2,)), ("turn_factor", (2,))]
        if delay:
            arrays.append(("delayed", (2, delay, 2)))
        return _struct_dtype(&optional_layout, arrays)

    def observe(self, games, optional, obs):
        """Write the observations of games [n, S], optional [n, T] to obs: role -> field -> [n, 1, F]; n at least 1.

        With sensors the newest frame in `optional` is written too, and the privileged field `other` where `obs` has it.
        """
        cdef Batch batch
        cdef int count = len(games)
        _attach(&batch, self, games, optional, obs)
        with nogil:
            observe_all(&self.rules, &self.derived, &batch, count)

    def bot(self, const uint8_t[:, ::1] games, const int32_t[::1] rows, seat_and_bot, rng_key, uint32_t first):
        """Actions [n, controls] of a scripted player in these rows of games [N, S]; bots have the numbers of bots.h.

        Random numbers are a function of rng_key and of the game number first + row, as in rematch/core/rng.py.
        """
        cdef int n, row, count = rows.shape[0], total = games.shape[0], controls = self.derived.controls
        cdef int seat = seat_and_bot[0], which = seat_and_bot[1]
        cdef uint64_t seed = rng_key.seed & 0xFFFFFFFFFFFFFFFF, step = rng_key.step & 0xFFFFFFFFFFFFFFFF
        cdef uint32_t stream = rng_key.stream & 0xFFFFFFFF
        cdef float[:, ::1] out = np.empty((count, controls), np.float32)
        cdef Action action
        cdef rm_quad random
        if games.shape[1] != sizeof(Game) or seat not in (0, 1):
            raise ValueError("bot: games have the wrong size or the seat is not 0 or 1")
        for n in range(count):
            if rows[n] < 0 or rows[n] >= total:
                raise IndexError(f"bot: row {rows[n]}: expected from 0 to {total - 1}")
        with nogil:
            for n in range(count):
                row = rows[n]
                random = rm_philox(seed, first + <uint32_t>row, <uint32_t>step, stream, <uint32_t>(step >> 32))
                action = bot(&self.rules, &self.derived, <const Game *>&games[row, 0], seat, which, random)
                if controls == 2:
                    out[n, 0] = action.speed
                out[n, controls - 1] = action.turn
        return np.asarray(out)


cdef _attach(Batch *batch, Core core, games, optional, obs):
    """Point a batch at games [n, S], optional [n, T] and obs: role -> field -> [n, 1, F]; ValueError if shapes differ."""
    cdef const uint8_t[:, ::1] games_view = games
    cdef const uint8_t[:, ::1] optional_view = optional
    cdef float[:, :, ::1] field
    cdef Derived *derived = &core.derived
    cdef int count = games_view.shape[0], seat
    widths = {"state": derived.columns}
    if derived.frames:
        widths |= {"lidar": derived.rays, "history": derived.frames * derived.frame, "clock": 1, "other": 2}
    if count == 0 or games_view.shape[1] != sizeof(Game) \
            or optional_view.shape[0] != count or optional_view.shape[1] != derived.optional_bytes:
        raise ValueError("games or optional state have the wrong shape")
    batch.games = <Game *>&games_view[0, 0]
    batch.optional = <uint8_t *>&optional_view[0, 0] if derived.optional_bytes else NULL
    batch.other[0] = batch.other[1] = NULL
    for seat, role in enumerate(("pursuer", "evader")):
        for name, width in widths.items():
            if name == "other" and name not in obs[role]:
                continue
            field = obs[role][name]
            if field.shape[0] != count or field.shape[1] != 1 or field.shape[2] != width:
                raise ValueError(f"field {name} of {role} has the wrong shape")
            if name == "state":
                batch.obs[seat] = &field[0, 0, 0]
            elif name == "lidar":
                batch.lidar[seat] = &field[0, 0, 0]
            elif name == "history":
                batch.history[seat] = &field[0, 0, 0]
            elif name == "clock":
                batch.clock[seat] = &field[0, 0, 0]
            else:
                batch.other[seat] = &field[0, 0, 0]


cdef class Arena:
    """One batch: references to the arrays that it writes, and their addresses."""

    cdef Core core
    cdef Batch batch
    cdef int games
    cdef object arrays

    def __init__(self, Core core, uint8_t[:, ::1] games, uint8_t[:, ::1] optional, view, next):
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
            raise ValueError("arena: arrays have different numbers of games")
        self.core, self.games = core, count
        self.arrays = (games, optional, dict(view.fields), reward, outcome, ended, length, seed, slot, stage)
        _attach(&self.batch, core, games, optional, view.fields)
        self.batch.reward, self.batch.outcome = &reward[0, 0], &outcome[0, 0]
        self.batch.ended, self.batch.length = &ended[0], &length[0]
        self.batch.next_seed, self.batch.next_slot, self.batch.next_stage = &seed[0], &slot[0, 0], &stage[0, 0]

    def start(self, uint32_t episode):
        """Start every game from `next`. Returns (status, row of the first failure); status 0 is success."""
        cdef Answer answer
        with nogil:
            answer = start_all(&self.core.rules, &self.core.derived, &self.batch, self.games, episode)
            observe_all(&self.core.rules, &self.core.derived, &self.batch, self.games)
        return answer.verdict, answer.row

    def step(self, const float[:, :, ::1] pursuer, const float[:, :, ::1] evader, int threads):
        """Step all games once. Returns (status, number): 0 is success; -1: action number = 2 * row + seat is not finite."""
        cdef Answer answer
        cdef int invalid
        cdef int controls = self.core.derived.controls
        if pursuer.shape[0] != self.games or evader.shape[0] != self.games or pursuer.shape[1] != 1 \
                or evader.shape[1] != 1 or pursuer.shape[2] != controls or evader.shape[2] != controls:
            raise ValueError("step: actions have the wrong shape")
        self.batch.action[0], self.batch.action[1] = &pursuer[0, 0, 0], &evader[0, 0, 0]
        with nogil:
            invalid = invalid_action(&self.core.derived, &self.batch, self.games)
            if invalid == FINE:
                answer = step_all(&self.core.rules, &self.core.derived, &self.batch, self.games, threads)
        if invalid != FINE:
            return -1, invalid
        return answer.verdict, answer.row


def sincos(const float[::1] x):
    """Sine and cosine of trig.h, for tests."""
    cdef float[::1] sine = np.empty(x.shape[0], np.float32)
    cdef float[::1] cosine = np.empty(x.shape[0], np.float32)
    cdef Py_ssize_t n
    for n in range(x.shape[0]):
        rm_sincos(x[n], &sine[n], &cosine[n])
    return np.asarray(sine), np.asarray(cosine)


def atan2(const float[::1] y, const float[::1] x):
    """Arc tangent of trig.h, for tests."""
    cdef float[::1] out = np.empty(x.shape[0], np.float32)
    cdef Py_ssize_t n
    for n in range(x.shape[0]):
        out[n] = rm_atan2(y[n], x[n])
    return np.asarray(out)
