"""The compiled rules of pursuit: rules.h over numpy arrays, the interpreter lock released."""

import numpy as np

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stddef.h>
    #include "batch.h"
    typedef struct { const char *type, *name; size_t offset, length; } Member;
    #define RULE_ENTRY(type, name) {#type, #name, offsetof(Rules, name), 1},
    #define GAME_ENTRY(type, name, length) {#type, #name, offsetof(Game, name), length},
    static const Member rule_members[] = {PURSUIT_RULES(RULE_ENTRY)};
    static const Member game_members[] = {PURSUIT_GAME(GAME_ENTRY)};
    enum { RULE_COUNT = sizeof rule_members / sizeof *rule_members,
           GAME_COUNT = sizeof game_members / sizeof *game_members };
    """
    const char *REMATCH_BUILD
    ctypedef struct Member:
        const char *type
        const char *name
        size_t offset
        size_t length
    const Member *rule_members
    const Member *game_members
    enum: RULE_COUNT, GAME_COUNT, MAX_OBSTACLES, STARTED, BAD_STAGE, FINE, BOT_COUNT
    const uint32_t GAME_MARK

    ctypedef struct Rules:
        pass
    ctypedef struct Derived:
        int32_t columns
        int32_t controls
        int32_t shown
    ctypedef struct Game:
        pass
    ctypedef struct Batch:
        Game *games
        const float *action[2]
        float *sight[2]
        float *reward
        float *outcome
        uint8_t *ended
        int32_t *length
        const uint64_t *next_seed
        const int32_t *next_slot
        const float *next_stage
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

BUILD = REMATCH_BUILD.decode()
MOST_OBSTACLES = MAX_OBSTACLES
BOTS = BOT_COUNT
MARK = GAME_MARK

_NUMBERS = {"float": "f4", "int32_t": "i4", "rm_flag": "i4", "uint32_t": "u4", "uint64_t": "u8", "rm_count": "u2"}


def _layout(kind):
    cdef const Member *members = rule_members if kind == "rules" else game_members
    cdef int count = RULE_COUNT if kind == "rules" else GAME_COUNT
    return [(members[n].name.decode(), members[n].type.decode(), members[n].offset, members[n].length)
            for n in range(count)]


RULES = {name: kind for name, kind, _, _ in _layout("rules")}


def _dtype(kind, size):
    """The struct as numpy sees it, one named member each."""
    rows = _layout(kind)
    shapes = [_NUMBERS[t] if length == 1 else (_NUMBERS[t], (length,)) for _, t, _, length in rows]
    return np.dtype({"names": [r[0] for r in rows], "formats": shapes,
                     "offsets": [r[2] for r in rows], "itemsize": size})


RULES_TYPE = _dtype("rules", sizeof(Rules))
GAME_TYPE = _dtype("game", sizeof(Game))


cdef class Core:
    """The rules of one configuration."""

    cdef Rules rules
    cdef Derived derived

    def __init__(self, values):
        row = np.zeros((), RULES_TYPE)
        for name in RULES:
            row[name] = values[name]
        cdef const uint8_t[::1] raw = np.frombuffer(row.tobytes(), np.uint8)
        memcpy(&self.rules, &raw[0], sizeof(Rules))
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

    def observe(self, const uint8_t[:, ::1] games, float[:, :, ::1] pursuer, float[:, :, ::1] evader):
        """Write what both robots see: games [n, S] -> two [n, 1, columns]."""
        cdef Batch batch
        cdef int count = games.shape[0], columns = self.derived.columns
        if games.shape[1] != sizeof(Game) or pursuer.shape[0] != count or evader.shape[0] != count \
                or pursuer.shape[2] != columns or evader.shape[2] != columns:
            raise ValueError("observe: arrays do not fit")
        if count == 0:
            return
        batch.games = <Game *>&games[0, 0]
        batch.sight[0] = &pursuer[0, 0, 0]
        batch.sight[1] = &evader[0, 0, 0]
        with nogil:
            observe_all(&self.rules, &self.derived, &batch, count)

    def bot(self, const uint8_t[:, ::1] games, const int32_t[::1] rows, who, noise, uint32_t first):
        """Actions [n, controls] of a scripted player, who = (seat, number), in these rows of games [N, S].

        Draws go by the noise's key and the game's number first + row, as in rematch/keys.py.
        """
        cdef int n, row, count = rows.shape[0], total = games.shape[0], controls = self.derived.controls
        cdef int seat = who[0], which = who[1]
        cdef uint64_t seed = noise.seed & 0xFFFFFFFFFFFFFFFF, step = noise.step & 0xFFFFFFFFFFFFFFFF
        cdef uint32_t stream = noise.stream & 0xFFFFFFFF
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


cdef class Arena:
    """One batch: the arrays it writes, kept alive, and their addresses."""

    cdef Core core
    cdef Batch batch
    cdef int games
    cdef object arrays

    def __init__(self, Core core, uint8_t[:, ::1] games, view, next):
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
        rows = (pursuer.shape[0], evader.shape[0], reward.shape[0], outcome.shape[0], ended.shape[0],
                length.shape[0], seed.shape[0], slot.shape[0], stage.shape[0])
        if count == 0 or set(rows) != {count} or games.shape[1] != sizeof(Game) \
                or pursuer.shape[2] != core.derived.columns or evader.shape[2] != core.derived.columns:
            raise ValueError("arena: arrays do not fit")
        self.core, self.games = core, count
        self.arrays = (games, pursuer, evader, reward, outcome, ended, length, seed, slot, stage)
        self.batch.games = <Game *>&games[0, 0]
        self.batch.sight[0], self.batch.sight[1] = &pursuer[0, 0, 0], &evader[0, 0, 0]
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
