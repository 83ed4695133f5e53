"""The compiled rules of Beasty Bar: rules.h and its kin over numpy arrays, the interpreter lock released."""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include "batch.h"
    #include "struct_layout.h"
    #define TABLE_ENTRY(type, name, length) {#type, #name, offsetof(Game, table.name), length},
    STRUCT_LAYOUT(rules, Rules, BEASTY_RULES(RULE_ENTRY))
    STRUCT_LAYOUT(game, Game, BEASTY_TABLE(TABLE_ENTRY) BEASTY_KEPT(GAME_ENTRY))
    """
    enum: FINE, PLACES, SPECIES
    int ACTION_COUNT "ACTIONS"
    int BOT_COUNT "BOTS"
    int EXACT_SCALE "EXACT"

    ctypedef struct Rules:
        int32_t players
    ctypedef struct Table:
        uint8_t turn[1]
    ctypedef struct Game:
        Table table
    ctypedef struct Batch:
        Game *games
        const int32_t *action
        float *line
        float *cards
        float *counts
        float *hands
        float *next
        uint8_t *mask
        uint8_t *acting
        float *reward
        float *outcome
        uint8_t *ended
        int32_t *length
        const uint64_t *next_seed
        const int32_t *next_slot
    ctypedef struct Answer:
        int verdict
        int row
    ctypedef struct Chance:
        uint64_t key
        uint32_t game
        uint32_t stream
        uint64_t step
    ctypedef struct Luck:
        uint64_t at
    ctypedef struct rm_quad:
        uint32_t w[4]
    ctypedef struct Asked:
        const Rules *rules
        const Game *games
        const int32_t *number
        int bot[2]
        int range[2]
        const uint64_t *among
        Chance chance
        double *score
        int32_t *action
        int plies
        const int64_t *at
        Game *leaf
        float *leaf_worth
        uint8_t *leaf_over
    ctypedef Answer (*StepRange)(const void *, int, int) noexcept nogil

    int cards_seen(const Rules *) nogil
    int counts_seen(const Rules *) nogil
    uint64_t legal(const Rules *, const Table *) nogil
    void turn(const Rules *, Table *, int action) nogil
    int is_over(const Rules *, const Table *) nogil
    void judge(const Rules *, const Table *, float *outcome, float *reward) nogil
    void see(const Rules *, const Batch *, int row) nogil
    void offer(const Rules *, const Batch *, int row) nogil
    void completed(const Rules *, Table *, int seat, Luck *) nogil
    rm_quad chance_words(const Chance *, uint32_t purpose) nogil
    int is_sound(const Rules *, const Game *) nogil
    int solve(const Rules *, const Table *, int low, int high) nogil
    int decks_empty(const Rules *, const Table *) nogil
    long play_games(const Rules *, int bot, uint64_t seed, int first, int games) nogil
    int unsound_action(const Rules *, const Batch *, int games) nogil
    Answer step_all(const Rules *, Batch *, int games, int threads) nogil
    void start_all(const Rules *, Batch *, int games, uint32_t episode) nogil
    void stroll_all(const Rules *, Batch *, int games, int steps, uint64_t seed, int threads) nogil
    Answer in_shares(StepRange, const void *, int games, int threads) nogil
    Answer decide_rows(const void *, int, int) noexcept nogil
    Answer score_rows(const void *, int, int) noexcept nogil
    Answer search_rows(const void *, int, int) noexcept nogil
    Answer value_rows(const void *, int, int) noexcept nogil
    Answer leaf_rows(const void *, int, int) noexcept nogil

include "../native/struct_layout.pxi"  # BUILD, MARK, RULES, RULES_TYPE, GAME_TYPE, _struct_dtype, _write_rules

ACTIONS, BOTS, EXACT = ACTION_COUNT, BOT_COUNT, EXACT_SCALE


cdef const Game *_games(const uint8_t[:, ::1] games) except? NULL:
    if games.shape[1] != sizeof(Game):
        raise ValueError("core: these are no games")
    return <const Game *>&games[0, 0] if games.shape[0] else NULL


cdef class Core:
    """The rules of one configuration, over saved games [n, S]. Callers see to it that the bytes are games."""

    cdef Rules rules
    cdef readonly int players, cards, counts

    def __init__(self, values):
        _write_rules(&self.rules, values)
        if not 2 <= self.rules.players <= 4:
            raise ValueError("core: two to four play")
        self.players = self.rules.players
        self.cards, self.counts = cards_seen(&self.rules), counts_seen(&self.rules)

    def sound(self, const uint8_t[:, ::1] games):
        """[n] whether these bytes can be a running game of these rules."""
        cdef const Game *game = _games(games)
        out = np.zeros(games.shape[0], np.uint8)
        cdef uint8_t[::1] fine = out
        cdef int row
        for row in range(games.shape[0]):
            fine[row] = is_sound(&self.rules, game + row)
        return out

    def legal(self, const uint8_t[:, ::1] games):
        """[n] the legal actions as bits."""
        cdef const Game *game = _games(games)
        out = np.zeros(games.shape[0], np.uint64)
        cdef uint64_t[::1] bits = out
        cdef int row
        for row in range(games.shape[0]):
            bits[row] = legal(&self.rules, &game[row].table)
        return out

    def turn(self, uint8_t[:, ::1] games, const int32_t[::1] actions):
        """Play one legal action in each, in place; nothing restarts. Gives [n] whether the game is over."""
        cdef Game *game = <Game *>_games(games)
        out = np.zeros(games.shape[0], np.uint8)
        cdef uint8_t[::1] over = out
        cdef int row
        if actions.shape[0] != games.shape[0]:
            raise ValueError("turn: actions do not fit")
        for row in range(games.shape[0]):
            if not (0 <= actions[row] < ACTION_COUNT
                    and legal(&self.rules, &game[row].table) >> actions[row] & 1):
                raise ValueError(f"turn: action {actions[row]} of game {row} is not legal")
            turn(&self.rules, &game[row].table, actions[row])
            over[row] = is_over(&self.rules, &game[row].table)
        return out

    def judge(self, const uint8_t[:, ::1] games):
        """[n, k] outcomes and [n, k] rewards, as if the games ended now."""
        cdef const Game *game = _games(games)
        cdef float[:, ::1] outcome = np.zeros((games.shape[0], self.players), np.float32)
        cdef float[:, ::1] reward = np.zeros((games.shape[0], self.players), np.float32)
        cdef int row
        for row in range(games.shape[0]):
            judge(&self.rules, &game[row].table, &outcome[row, 0], &reward[row, 0])
        return np.asarray(outcome), np.asarray(reward)

    def observe(self, uint8_t[:, ::1] games, fields, uint8_t[:, :, ::1] mask, uint8_t[:, ::1] acting):
        """Write what every seat sees, what is aside, what is legal and whose turn it is."""
        cdef Batch batch
        cdef int n = games.shape[0], row
        if n == 0:
            return
        arrays = _attach(self, &batch, games, fields, mask, acting)
        with nogil:
            for row in range(n):
                see(&self.rules, &batch, row)
                offer(&self.rules, &batch, row)

    def complete(self, uint8_t[:, ::1] games, const int32_t[::1] numbers, int seat, uint64_t key, uint32_t stream):
        """Deal what this seat cannot see anew, in place."""
        cdef Game *game = <Game *>_games(games)
        cdef Chance chance
        cdef rm_quad random
        cdef Luck luck
        cdef int row
        if numbers.shape[0] != games.shape[0] or not 0 <= seat < self.players:
            raise ValueError("complete: arrays do not fit")
        chance.key, chance.stream, chance.step = key, stream, 0
        for row in range(games.shape[0]):
            chance.game = <uint32_t>numbers[row]
            random = chance_words(&chance, 0)
            luck.at = <uint64_t>random.w[0] << 32 | random.w[1]
            completed(&self.rules, &game[row].table, seat, &luck)

    # --- players ---

    def decide(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, int bot, rng_key, int threads=1):
        """[n] the actions of a bot, by its number in bots.h; noise: (key, stream, step)."""
        return self._ask(0, games, numbers, (bot, 0, 0, 0), rng_key, threads)[1]

    def scores(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, int bot, rng_key):
        """[n, 33] a bot's scores, not a number where an action is not legal."""
        return self._ask(1, games, numbers, (bot, 0, 0, 0), rng_key, 1)[0]

    def search(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, how, rng_key, int threads=1, among=None):
        """[n, 33] sums over completions and [n] the best actions; how: (bot of playouts, from, to, the others' bot).

        among: [n] bits, the actions to choose from.
        """
        return self._ask(2, games, numbers, how, rng_key, threads, among)

    def values(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, how, rng_key, int threads=1, among=None):
        """As `search`, but [n, 33] means: what each action may be expected to bring, else not a number."""
        return self._ask(3, games, numbers, how, rng_key, threads, among)

    def leaves(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, how, rng_key, const uint64_t[::1] among,
               const int64_t[::1] at, int threads=1):
        """Positions some plies after each action in `among` of each completion, [m, S], whether each is over, and
        what it then is worth to who searches. how: (bot, from, to, plies); at: [n + 1] where rows begin."""
        cdef Asked asked
        cdef int n = games.shape[0]
        cdef int64_t count = at[n]
        leaf, over = np.zeros((count, sizeof(Game)), np.uint8), np.zeros(count, np.uint8)
        value = np.zeros(count, np.float32)
        cdef uint8_t[:, ::1] to_leaf = leaf
        cdef uint8_t[::1] to_over = over
        cdef float[::1] to_value = value
        cdef uint64_t[::1] allowed = self.legal(games)
        cdef int row
        if numbers.shape[0] != n or among.shape[0] != n or at.shape[0] != n + 1 or at[0] != 0:
            raise ValueError("leaves: arrays do not fit")
        asked.bot[0], asked.range[0], asked.range[1], asked.plies = how
        asked.bot[1] = asked.bot[0]
        for row in range(n):
            if at[row + 1] - at[row] != int(allowed[row] & among[row]).bit_count() * (asked.range[1] - asked.range[0]):
                raise ValueError("leaves: rows begin elsewhere")
        if not 0 < asked.bot[0] < BOT_COUNT:
            raise ValueError(f"leaves: there is no bot {asked.bot[0]} for this")
        if count == 0:
            return leaf, over, value
        asked.rules, asked.games, asked.number, asked.among = &self.rules, _games(games), &numbers[0], &among[0]
        asked.chance.key, asked.chance.stream, asked.chance.step = rng_key
        asked.at, asked.leaf, asked.leaf_over, asked.leaf_worth = &at[0], <Game *>&to_leaf[0, 0], &to_over[0], &to_value[0]
        with nogil:
            in_shares(leaf_rows, &asked, n, threads)
        return leaf, over, value

    def _ask(self, int kind, const uint8_t[:, ::1] games, const int32_t[::1] numbers, how, rng_key, int threads,
             among=None):
        cdef Asked asked
        cdef int n = games.shape[0]
        score = np.full((n, ACTION_COUNT), 0.0 if kind == 2 else np.nan)
        action = np.zeros(n, np.int32)
        cdef double[:, ::1] to_score = score
        cdef int32_t[::1] to_action = action
        cdef const uint64_t[::1] bits
        asked.rules, asked.games, asked.among = &self.rules, _games(games), NULL
        if numbers.shape[0] != n:
            raise ValueError("decide: arrays do not fit")
        asked.bot[0], asked.range[0], asked.range[1], asked.bot[1] = how
        for bot in (asked.bot[0], asked.bot[1]):
            if not 0 <= bot < BOT_COUNT or (kind >= 2 and asked.bot[0] == 0):
                raise ValueError(f"decide: there is no bot {bot} for this")
        asked.chance.key, asked.chance.stream, asked.chance.step = rng_key
        if n == 0:
            return score, action
        if among is not None:
            bits = among
            if bits.shape[0] != n or not np.all(self.legal(games) & among):
                raise ValueError("search: no legal action is among those to search")
            asked.among = &bits[0]
        asked.number, asked.score, asked.action = &numbers[0], &to_score[0, 0], &to_action[0]
        with nogil:
            if kind == 0:
                in_shares(decide_rows, &asked, n, threads)
            elif kind == 1:
                in_shares(score_rows, &asked, n, threads)
            elif kind == 2:
                in_shares(search_rows, &asked, n, threads)
            else:
                in_shares(value_rows, &asked, n, threads)
        return score, action

    def solve(self, const uint8_t[:, ::1] games):
        """[n] the mover's score less the other's under best play: two players, empty decks."""
        cdef const Game *game = _games(games)
        out = np.zeros(games.shape[0], np.int32)
        cdef int32_t[::1] value = out
        cdef int row
        for row in range(games.shape[0]):
            if self.players != 2 or not decks_empty(&self.rules, &game[row].table):
                raise ValueError(f"solve: game {row}: expected two players and empty decks")
            value[row] = solve(&self.rules, &game[row].table, -EXACT_SCALE, EXACT_SCALE)
        return out

    def play(self, int bot, uint64_t seed, int first, int games):
        """Plays whole games of a bot against itself; how many turns they took. For measuring speed."""
        cdef long turns
        with nogil:
            turns = play_games(&self.rules, bot, seed, first, games)
        return turns


cdef object _attach(Core core, Batch *batch, uint8_t[:, ::1] games, fields, uint8_t[:, :, ::1] mask,
                    uint8_t[:, ::1] acting):
    """Point a batch at arrays that fit; what must stay alive while it does."""
    cdef float[:, :, ::1] line = fields["line"], cards = fields["cards"], counts = fields["counts"]
    cdef float[:, :, ::1] hands = fields["hands"], next = fields["next"]
    n, k = games.shape[0], core.players
    arrays = [*(fields[name] for name in ("line", "cards", "counts", "hands", "next")), np.asarray(mask), np.asarray(acting)]
    found = [a.shape for a in arrays]
    if found != [(n, k, PLACES), (n, k, core.cards), (n, k, core.counts), (n, k, SPECIES * (k - 1)), (n, k, k),
                 (n, k, ACTION_COUNT), (n, k)]:
        raise ValueError(f"core: arrays do not fit: {found}")
    batch.games = <Game *>_games(games)
    batch.line, batch.cards, batch.counts = &line[0, 0, 0], &cards[0, 0, 0], &counts[0, 0, 0]
    batch.hands, batch.next = &hands[0, 0, 0], &next[0, 0, 0]
    batch.mask, batch.acting = &mask[0, 0, 0], &acting[0, 0]
    return [np.asarray(games), *arrays]


cdef class Games:
    """One batch: the arrays it writes, kept alive, and their addresses."""

    cdef Core core
    cdef Batch batch
    cdef int games
    cdef object arrays

    def __init__(self, Core core, uint8_t[:, ::1] games, view, next):
        cdef float[:, ::1] reward = view.reward, outcome = view.outcome
        cdef uint8_t[::1] ended = view.ended
        cdef int32_t[::1] length = view.length
        cdef uint64_t[::1] seed = next.seed
        cdef int32_t[:, ::1] slot = next.slot
        cdef int n = games.shape[0]
        rows = (reward.shape[0], outcome.shape[0], ended.shape[0], length.shape[0], seed.shape[0], slot.shape[0])
        seats = (reward.shape[1], outcome.shape[1], slot.shape[1])
        if n == 0 or set(rows) != {n} or set(seats) != {core.players}:
            raise ValueError("games: arrays do not fit")
        self.core, self.games = core, n
        shown = _attach(core, &self.batch, games, view.fields["player"], view.mask["player"], view.acting)
        self.arrays = [shown, view.reward, view.outcome, view.ended, view.length, next.seed, next.slot]
        self.batch.reward, self.batch.outcome = &reward[0, 0], &outcome[0, 0]
        self.batch.ended, self.batch.length = &ended[0], &length[0]
        self.batch.next_seed, self.batch.next_slot = &seed[0], &slot[0, 0]

    def start(self, uint32_t episode):
        """Begin every game from `next`."""
        with nogil:
            start_all(&self.core.rules, &self.batch, self.games, episode)

    def step(self, const int32_t[:, ::1] actions, int threads):
        """Move all games once; the first game whose action is not legal, or -1. Then nothing has moved."""
        cdef int bad
        if actions.shape[0] != self.games or actions.shape[1] != self.core.players:
            raise ValueError("step: actions do not fit")
        self.batch.action = &actions[0, 0]
        with nogil:
            bad = unsound_action(&self.core.rules, &self.batch, self.games)
            if bad == FINE:
                step_all(&self.core.rules, &self.batch, self.games, threads)
        return bad

    def stroll(self, int steps, uint64_t seed, int threads):
        """So many random steps of all games. For measuring speed."""
        with nogil:
            stroll_all(&self.core.rules, &self.batch, self.games, steps, seed, threads)
