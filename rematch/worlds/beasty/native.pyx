"""The compiled rules of Beasty Bar: batch.h over numpy arrays, without the interpreter lock."""

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
    ctypedef struct BotKey:
        uint64_t key
        uint32_t game
        uint32_t stream
        uint64_t step
    ctypedef struct SplitMix:
        uint64_t state
    ctypedef struct rm_quad:
        uint32_t w[4]
    ctypedef struct Request:
        const Rules *rules
        const Game *games
        const int32_t *number
        int bot[2]
        int range[2]
        const uint64_t *candidates
        BotKey bot_key
        double *score
        int32_t *action
        int plies
        const int32_t *players
        const int64_t *leaf_start
        Game *leaf
    ctypedef struct LeafTurns:
        const Rules *rules
        Game *leaf
        const float *logits
    ctypedef Answer (*StepRange)(const void *, int, int) noexcept nogil

    int cards_width(const Rules *) nogil
    int counts_width(const Rules *) nogil
    uint64_t legal(const Rules *, const Table *) nogil
    void turn(const Rules *, Table *, int action) nogil
    int has_ended(const Rules *, const Table *) nogil
    void final_result(const Rules *, const Table *, float *outcome, float *reward) nogil
    void write_observation(const Rules *, const Batch *, int row) nogil
    void write_legal(const Rules *, const Batch *, int row) nogil
    void redeal_hidden(const Rules *, Table *, int seat, SplitMix *) nogil
    rm_quad bot_random(const BotKey *, uint32_t purpose) nogil
    int is_valid_game(const Rules *, const Game *) nogil
    int solve(const Rules *, const Table *, int low, int high) nogil
    int decks_empty(const Rules *, const Table *) nogil
    long play_games(const Rules *, int bot, uint64_t seed, int first, int games) nogil
    int first_illegal_action(const Rules *, const Batch *, int games) nogil
    Answer step_all(const Rules *, Batch *, int games, int threads) nogil
    void start_all(const Rules *, Batch *, int games, uint32_t episode) nogil
    void random_steps(const Rules *, Batch *, int games, int steps, uint64_t seed, int threads) nogil
    Answer in_shares(StepRange, const void *, int games, int threads) nogil
    Answer decide_rows(const void *, int, int) noexcept nogil
    Answer score_rows(const void *, int, int) noexcept nogil
    Answer search_rows(const void *, int, int) noexcept nogil
    Answer value_rows(const void *, int, int) noexcept nogil
    Answer leaf_rows(const void *, int, int) noexcept nogil
    Answer leaf_turn_rows(const void *, int, int) noexcept nogil
    double final_value(const Rules *, const Table *, int seat) nogil

include "../native/struct_layout.pxi"  # BUILD, MARK, RULES, RULES_TYPE, GAME_TYPE, _struct_dtype, _write_rules

ACTIONS, BOTS, EXACT = ACTION_COUNT, BOT_COUNT, EXACT_SCALE


cdef const Game *_games(const uint8_t[:, ::1] games) except? NULL:
    if games.shape[1] != sizeof(Game):
        raise ValueError(f"core: expected states of {sizeof(Game)} bytes, found {games.shape[1]}")
    return <const Game *>&games[0, 0] if games.shape[0] else NULL


cdef class Core:
    """The rules of one Config, applied to saved games [n, S]. Callers ensure that the bytes are valid games."""

    cdef Rules rules
    cdef readonly int players, cards, counts

    def __init__(self, values):
        _write_rules(&self.rules, values)
        if not 2 <= self.rules.players <= 4:
            raise ValueError(f"core: players = {self.rules.players}: expected 2 to 4")
        self.players = self.rules.players
        self.cards, self.counts = cards_width(&self.rules), counts_width(&self.rules)

    def valid(self, const uint8_t[:, ::1] games):
        """[n] 1 where the bytes are a possible running game of these rules."""
        cdef const Game *game = _games(games)
        out = np.zeros(games.shape[0], np.uint8)
        cdef uint8_t[::1] valid = out
        cdef int row
        for row in range(games.shape[0]):
            valid[row] = is_valid_game(&self.rules, game + row)
        return out

    def legal(self, const uint8_t[:, ::1] games):
        """[n] the legal actions of the player to move, as bits."""
        cdef const Game *game = _games(games)
        out = np.zeros(games.shape[0], np.uint64)
        cdef uint64_t[::1] bits = out
        cdef int row
        for row in range(games.shape[0]):
            bits[row] = legal(&self.rules, &game[row].table)
        return out

    def turn(self, uint8_t[:, ::1] games, const int32_t[::1] actions):
        """Play one legal action in each game, in place, without restarts; returns [n] 1 where the game ended."""
        cdef Game *game = <Game *>_games(games)
        out = np.zeros(games.shape[0], np.uint8)
        cdef uint8_t[::1] ended = out
        cdef int row
        if actions.shape[0] != games.shape[0]:
            raise ValueError(f"turn: {actions.shape[0]} actions; expected {games.shape[0]}")
        for row in range(games.shape[0]):
            if not (0 <= actions[row] < ACTION_COUNT
                    and legal(&self.rules, &game[row].table) >> actions[row] & 1):
                raise ValueError(f"turn: action {actions[row]} of game {row} is not legal")
            turn(&self.rules, &game[row].table, actions[row])
            ended[row] = has_ended(&self.rules, &game[row].table)
        return out

    def results(self, const uint8_t[:, ::1] games):
        """[n, k] outcomes and [n, k] rewards, as if the games ended now."""
        cdef const Game *game = _games(games)
        cdef float[:, ::1] outcome = np.zeros((games.shape[0], self.players), np.float32)
        cdef float[:, ::1] reward = np.zeros((games.shape[0], self.players), np.float32)
        cdef int row
        for row in range(games.shape[0]):
            final_result(&self.rules, &game[row].table, &outcome[row, 0], &reward[row, 0])
        return np.asarray(outcome), np.asarray(reward)

    def observe(self, uint8_t[:, ::1] games, fields, uint8_t[:, :, ::1] mask, uint8_t[:, ::1] acting):
        """Write observations, privileged observations, legal actions and the player to move."""
        cdef Batch batch
        cdef int n = games.shape[0], row
        if n == 0:
            return
        arrays = _attach(self, &batch, games, fields, mask, acting)
        with nogil:
            for row in range(n):
                write_observation(&self.rules, &batch, row)
                write_legal(&self.rules, &batch, row)

    def resample(self, uint8_t[:, ::1] games, const int32_t[::1] numbers, int seat, uint64_t key, uint32_t stream):
        """Resample the cards that this seat cannot see, in place."""
        cdef Game *game = <Game *>_games(games)
        cdef BotKey bot_key
        cdef rm_quad random
        cdef SplitMix generator
        cdef int row
        if numbers.shape[0] != games.shape[0] or not 0 <= seat < self.players:
            raise ValueError(f"resample: seat {seat}, {numbers.shape[0]} numbers for {games.shape[0]} games")
        bot_key.key, bot_key.stream, bot_key.step = key, stream, 0
        for row in range(games.shape[0]):
            bot_key.game = <uint32_t>numbers[row]
            random = bot_random(&bot_key, 0)
            generator.state = <uint64_t>random.w[0] << 32 | random.w[1]
            redeal_hidden(&self.rules, &game[row].table, seat, &generator)

    # --- bots and search ---

    def decide(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, int bot, rng_key, int threads=1):
        """[n] the actions of a bot, by its number in bots.h; rng_key: (key, stream, step)."""
        return self._query(0, games, numbers, (bot, 0, 0, 0), rng_key, threads)[1]

    def scores(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, int bot, rng_key):
        """[n, 33] a bot's scores; NaN where an action is not legal."""
        return self._query(1, games, numbers, (bot, 0, 0, 0), rng_key, 1)[0]

    def search(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, playouts, rng_key, int threads=1,
               candidates=None):
        """[n, 33] sums of values over completions, and [n] the best actions.

        playouts: (bot of the searching seat, first completion, end of completions, bot of the other seats);
        candidates: [n] the actions to search, as bits; None: all legal ones.
        """
        return self._query(2, games, numbers, playouts, rng_key, threads, candidates)

    def values(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, playouts, rng_key, int threads=1,
               candidates=None):
        """As `search`, but [n, 33] means: the expected value of each candidate; NaN for other actions."""
        return self._query(3, games, numbers, playouts, rng_key, threads, candidates)

    def leaves(self, const uint8_t[:, ::1] games, const int32_t[::1] numbers, playouts, rng_key,
               const uint64_t[::1] candidates, const int64_t[::1] starts, const int32_t[:, ::1] players, int threads=1):
        """The positions [m, S] some turns after each candidate of each completion.

        playouts: (bot, first completion, end of completions, turns); starts: [n + 1] first leaf of each row; players:
        [n, k] that play on: the number of a bot, or -1 for a policy.
        """
        cdef Request request
        cdef int n = games.shape[0]
        cdef int64_t count = starts[n]
        leaf = np.zeros((count, sizeof(Game)), np.uint8)
        cdef uint8_t[:, ::1] leaf_view = leaf
        cdef uint64_t[::1] allowed = self.legal(games)
        cdef int row, completions
        if numbers.shape[0] != n or candidates.shape[0] != n or starts.shape[0] != n + 1 or starts[0] != 0:
            raise ValueError(f"leaves: expected numbers [{n}], candidates [{n}], starts [{n + 1}] from 0")
        self._check_players(players, n)
        request.bot[0], request.range[0], request.range[1], request.plies = playouts
        request.bot[1] = request.bot[0]
        completions = request.range[1] - request.range[0]
        for row in range(n):
            if starts[row + 1] - starts[row] != int(allowed[row] & candidates[row]).bit_count() * completions:
                raise ValueError(f"leaves: starts of row {row} do not match its candidates")
        if not 0 < request.bot[0] < BOT_COUNT:
            raise ValueError(f"leaves: bot {request.bot[0]}: expected 1 to {BOT_COUNT - 1}")
        if count == 0:
            return leaf
        request.rules, request.games = &self.rules, _games(games)
        request.number, request.candidates, request.players = &numbers[0], &candidates[0], &players[0, 0]
        request.bot_key.key, request.bot_key.stream, request.bot_key.step = rng_key
        request.leaf_start, request.leaf = &starts[0], <Game *>&leaf_view[0, 0]
        with nogil:
            in_shares(leaf_rows, &request, n, threads)
        return leaf

    def _check_players(self, const int32_t[:, ::1] players, int rows):
        numbers = np.asarray(players)
        if players.shape[0] != rows or players.shape[1] != self.players or np.any((numbers < -1) | (numbers >= BOT_COUNT)):
            raise ValueError(f"leaves: expected players [{rows}, {self.players}] from -1 to {BOT_COUNT - 1}")

    def leaf_turns(self, uint8_t[:, ::1] leaves, const float[:, ::1] logits, int threads=1):
        """One turn of every leaf whose game has not ended; the policy has these logits [m, 33]."""
        cdef LeafTurns job
        cdef int n = leaves.shape[0]
        self._check_players(np.ascontiguousarray(np.asarray(leaves).view(GAME_TYPE)[:, 0]["slot"][:, : self.players]), n)
        if logits.shape[0] != n or logits.shape[1] != ACTION_COUNT:
            raise ValueError(f"leaves: expected logits [{n}, {ACTION_COUNT}]")
        if n == 0:
            return
        job.rules, job.leaf, job.logits = &self.rules, <Game *>_games(leaves), &logits[0, 0]
        with nogil:
            in_shares(leaf_turn_rows, &job, n, threads)

    def final_values(self, const uint8_t[:, ::1] games, const int32_t[::1] seats):
        """Whether each game has ended [n], and the value [n] of those that have for these seats."""
        cdef int row, n = games.shape[0]
        cdef const Game *game = _games(games)
        if seats.shape[0] != n or np.any((np.asarray(seats) < 0) | (np.asarray(seats) >= self.players)):
            raise ValueError(f"leaves: expected seats [{n}] below {self.players}")
        ended, value = np.zeros(n, bool), np.zeros(n, np.float32)
        for row in range(n):
            if has_ended(&self.rules, &game[row].table):
                ended[row], value[row] = True, final_value(&self.rules, &game[row].table, seats[row])
        return ended, value

    def _query(self, int kind, const uint8_t[:, ::1] games, const int32_t[::1] numbers, playouts, rng_key, int threads,
               candidates=None):
        """[n, 33] scores and [n] actions. kind: 0 actions of a bot, 1 its scores, 2 sums of a search, 3 its means."""
        cdef Request request
        cdef int n = games.shape[0]
        score = np.full((n, ACTION_COUNT), 0.0 if kind == 2 else np.nan)
        action = np.zeros(n, np.int32)
        cdef double[:, ::1] score_view = score
        cdef int32_t[::1] action_view = action
        cdef const uint64_t[::1] bits
        request.rules, request.games = &self.rules, _games(games)
        request.candidates = NULL
        if numbers.shape[0] != n:
            raise ValueError(f"decide: {numbers.shape[0]} numbers; expected {n}")
        request.bot[0], request.range[0], request.range[1], request.bot[1] = playouts
        for bot in (request.bot[0], request.bot[1]):
            if not 0 <= bot < BOT_COUNT or (kind >= 2 and request.bot[0] == 0):
                raise ValueError(f"decide: bot {bot} cannot be used")
        request.bot_key.key, request.bot_key.stream, request.bot_key.step = rng_key
        if n == 0:
            return score, action
        if candidates is not None:
            bits = candidates
            if bits.shape[0] != n or not np.all(self.legal(games) & candidates):
                raise ValueError("search: a game has no legal candidate")
            request.candidates = &bits[0]
        request.number = &numbers[0]
        request.score, request.action = &score_view[0, 0], &action_view[0]
        with nogil:
            if kind == 0:
                in_shares(decide_rows, &request, n, threads)
            elif kind == 1:
                in_shares(score_rows, &request, n, threads)
            elif kind == 2:
                in_shares(search_rows, &request, n, threads)
            else:
                in_shares(value_rows, &request, n, threads)
        return score, action

    def solve(self, const uint8_t[:, ::1] games):
        """[n] the score of the player to move minus that of the other under best play: two players, empty decks."""
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
        """Play games of a bot against itself; returns the number of turns. For benchmarks."""
        cdef long turns
        with nogil:
            turns = play_games(&self.rules, bot, seed, first, games)
        return turns


cdef object _attach(Core core, Batch *batch, uint8_t[:, ::1] games, fields, uint8_t[:, :, ::1] mask,
                    uint8_t[:, ::1] acting):
    """Set the pointers of a batch after a check of shapes; returns the arrays that must stay alive."""
    cdef float[:, :, ::1] line = fields["line"], cards = fields["cards"], counts = fields["counts"]
    cdef float[:, :, ::1] hands = fields["hands"], next = fields["next"]
    n, k = games.shape[0], core.players
    arrays = [*(fields[name] for name in ("line", "cards", "counts", "hands", "next")), np.asarray(mask), np.asarray(acting)]
    shapes = [array.shape for array in arrays]
    if shapes != [(n, k, PLACES), (n, k, core.cards), (n, k, core.counts), (n, k, SPECIES * (k - 1)), (n, k, k),
                  (n, k, ACTION_COUNT), (n, k)]:
        raise ValueError(f"core: wrong shapes of arrays: {shapes}")
    batch.games = <Game *>_games(games)
    batch.line, batch.cards, batch.counts = &line[0, 0, 0], &cards[0, 0, 0], &counts[0, 0, 0]
    batch.hands, batch.next = &hands[0, 0, 0], &next[0, 0, 0]
    batch.mask, batch.acting = &mask[0, 0, 0], &acting[0, 0]
    return [np.asarray(games), *arrays]


cdef class Games:
    """One batch: references to its arrays and their addresses."""

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
            raise ValueError(f"games: arrays of {rows} rows and {seats} seats; expected {n} and {core.players}")
        self.core, self.games = core, n
        observed = _attach(core, &self.batch, games, view.fields["player"], view.mask["player"], view.acting)
        self.arrays = [observed, view.reward, view.outcome, view.ended, view.length, next.seed, next.slot]
        self.batch.reward, self.batch.outcome = &reward[0, 0], &outcome[0, 0]
        self.batch.ended, self.batch.length = &ended[0], &length[0]
        self.batch.next_seed, self.batch.next_slot = &seed[0], &slot[0, 0]

    def start(self, uint32_t episode):
        """Start every game from `next`."""
        with nogil:
            start_all(&self.core.rules, &self.batch, self.games, episode)

    def step(self, const int32_t[:, ::1] actions, int threads):
        """Step all games; returns -1, or the first game with an illegal action, and then no game has moved."""
        cdef int illegal
        if actions.shape[0] != self.games or actions.shape[1] != self.core.players:
            raise ValueError(f"step: expected actions [{self.games}, {self.core.players}]")
        self.batch.action = &actions[0, 0]
        with nogil:
            illegal = first_illegal_action(&self.core.rules, &self.batch, self.games)
            if illegal == FINE:
                step_all(&self.core.rules, &self.batch, self.games, threads)
        return illegal

    def random_steps(self, int steps, uint64_t seed, int threads):
        """Play `steps` random steps of all games. For benchmarks."""
        with nogil:
            random_steps(&self.core.rules, &self.batch, self.games, steps, seed, threads)
