"""The search: equal to its reference, exact at the end, blind to hidden cards, stronger than the bots."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
from support.beasty_positions import DOCUMENT, PLAIN

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey
from rematch.core.stepping import seat_at
from rematch.worlds.beasty import native
from rematch.worlds.beasty.bots import PLAYOUT_BOT, GuidedSearch, SearchPlayer, guided_search
from rematch.worlds.beasty.config import POINTS, STRENGTH, Config
from rematch.worlds.beasty.reference import search
from rematch.worlds.beasty.reference.compare import compare_search, deal_games, match, playouts, positions
from rematch.worlds.beasty.reference.rules import unseen
from rematch.worlds.beasty.state import unpack
from rematch.worlds.beasty.world import make

RULES = [PLAIN, DOCUMENT, Config(players=3, scoring="count"), Config(players=4, first=-1)]


@pytest.mark.parametrize("config", RULES, ids=["two", "document", "three", "four"])
def test_search_equals_its_reference(config: Config) -> None:
    """Every sum and every decision; tools/checks/beasty_check.py does it over 10 000."""
    assert compare_search(config, 90 if config.players == 2 else 10, seed=5) > 5
    if config.players == 2:
        assert compare_search(config, 8, seed=6, completions=3) > 1
    for model in ("random", "noisy", "online") if config.players == 2 else ("aggressive",):
        assert compare_search(config, 12 if config.players == 2 else 4, seed=7, model=model) > 1


def endings(config: Config, count: int, cards: int) -> np.ndarray:
    """[count, S] positions of two players with empty decks and `cards` cards in hand."""
    batches = []
    for before, *_ in playouts(config, count, seed=8):
        games = before.view(native.GAME_TYPE)[:, 0]
        if games["step"][0] == 24 - cards:
            batches.append(before)
    return np.concatenate(batches)[:count]


@pytest.mark.parametrize(
    "config", [PLAIN, DOCUMENT, Config(scoring="count")], ids=["points", "document", "count"]
)
def test_solver_equals_minimax(config: Config) -> None:
    """Hundreds of endings, without pruning in Python."""
    for cards, count in ((4, 80), (5, 40)):
        states = endings(config, count, cards)
        assert len(states) >= count // 2
        values = native.Core(config.values()).solve(states)
        for value, state in zip(values.tolist(), unpack(states, config), strict=True):
            assert value == search.minimax(state, config)


def test_solver_refuses_positions_with_decks() -> None:
    rules, states = deal_games(PLAIN, 1, 1)
    with pytest.raises(ValueError, match="empty decks"):
        rules.solve(states)


def test_search_plays_solved_endings_perfectly() -> None:
    """From turn 16 on, it reaches at least the exact value against any opponent."""
    states = endings(PLAIN, 150, 8)
    rules, numbers = native.Core(PLAIN.values()), np.arange(len(states), dtype=np.int32)
    value, mover = rules.solve(states), states.view(native.GAME_TYPE)[:, 0]["turn"].copy()
    final = np.zeros(len(states))
    for step in range(8):
        turn = states.view(native.GAME_TYPE)[0, 0]["turn"]
        best = rules.search(states, numbers, (8, 0, 1, 8), (1, rng.BOT, step))[1]
        opponent = rules.decide(states, numbers, 8, (1, rng.BOT, step))
        ended = rules.turn(states, best if turn == mover[0] else opponent) != 0
        games = states.view(native.GAME_TYPE)[:, 0]
        bar = [[sum(POINTS[name] for name, s in STRENGTH.items() if int(b) >> s & 1) for b in row[:2]]
               for row in games["bar"]]  # fmt: skip
        margin = np.array([row[int(mover[0])] - row[1 - int(mover[0])] for row in bar])
        final[numbers[ended]] = margin[ended]
        states, numbers = np.ascontiguousarray(states[~ended]), numbers[~ended]
        if not len(states):
            break
    assert (final >= value).all() and (final > value).any()


# --- hidden cards


@pytest.mark.parametrize("config", [PLAIN, Config(players=3)], ids=["two", "three"])
def test_permuting_hidden_cards_changes_no_move(config: Config) -> None:
    states = positions(config, 60, seed=9)
    world, other = make(config, 60), make(config, 60)
    rows = np.arange(60, dtype=np.int32)
    world.load(rows, states)
    player, rng_key = SearchPlayer(completions=10), RngKey(3, rng.BOT, 11)
    for seat in range(config.players):
        acting_rows = np.flatnonzero(world.view.acting[:, seat]).astype(np.int32)
        expected = player.act(seat_at(world, seat, acting_rows), rng_key).action
        for key in range(3):
            other.load(rows, world.resample(rows, seat, key))
            assert np.array_equal(player.act(seat_at(other, seat, acting_rows), rng_key).action, expected)
        assert not np.array_equal(
            player.act(seat_at(world, seat, acting_rows), RngKey(4, rng.BOT, 11)).action, expected
        )


def test_completions_are_uniform_and_keep_visible_cards() -> None:
    """Every unseen card is equally frequent in the other hand and in every place of a deck."""
    config = PLAIN
    world = make(config, 1)
    before = world.read(np.array([0], np.int32))[0]
    in_hand, first, own = (dict.fromkeys(STRENGTH, 0) for _ in range(3))
    for key in range(3000):
        state = unpack(world.resample(np.array([0], np.int32), 0, key), config)[0]
        assert state.hands[0] == before.hands[0] and unseen(state, 1) == unseen(before, 1)
        for name in state.hands[1]:
            in_hand[name] += 1
        first[state.decks[1][0]] += 1
        own[state.decks[0][3]] += 1
    assert all(abs(count / 3000 - 4 / 12) < 0.045 for count in in_hand.values())
    assert all(abs(count / 3000 - 1 / 12) < 0.03 for count in first.values())
    assert all(abs(own[name] / 3000 - 1 / 8) < 0.035 for name in before.decks[0])
    assert sum(own[name] for name in before.hands[0]) == 0


# --- as a player


def test_threads_and_batches_change_nothing() -> None:
    states = positions(PLAIN, 40, seed=3)
    rules, numbers = native.Core(PLAIN.values()), np.arange(40, dtype=np.int32)
    sums, moves = rules.search(states, numbers, (8, 0, 12, 8), (1, rng.BOT, 2))
    for threads in (2, 3):
        again = rules.search(states, numbers, (8, 0, 12, 8), (1, rng.BOT, 2), threads)
        assert np.array_equal(sums, again[0]) and np.array_equal(moves, again[1])
    one = rules.search(states[7:8].copy(), numbers[7:8], (8, 0, 12, 8), (1, rng.BOT, 2))
    assert np.array_equal(one[0][0], sums[7])


def test_time_limit_is_respected() -> None:
    world = make(PLAIN, 1)
    seat, rng_key = seat_at(world, 0, np.array([0], np.int32)), RngKey(1, rng.BOT, 0)
    start_time = time.perf_counter()
    move = SearchPlayer(completions=10**6, seconds=0.05).act(seat, rng_key).action
    assert time.perf_counter() - start_time < 30.0 and world.view.mask["player"][0, 0, move[0]] == 1
    unlimited = SearchPlayer(completions=40, seconds=1e6).act(seat, rng_key).action
    assert np.array_equal(unlimited, SearchPlayer(completions=40).act(seat, rng_key).action)


def test_search_beats_heuristic_and_outcome_bots() -> None:
    for opponent in ("heuristic", "outcome_heuristic"):
        won, drawn, lost = match(PLAIN, ("search", opponent), 24, seed=1)
        assert won > 0.72 and lost < 0.25, (opponent, won, drawn, lost)


@pytest.mark.parametrize(("wrong", "words"), [
    ({"completions": 0}, "completions = 0: expected at least 1"), ({"rollout": "noisy"}, "rollout = noisy"),
    ({"rollout": "search"}, "rollout = search: expected one of heuristic"),
])  # fmt: skip
def test_invalid_budgets_are_one_line(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SearchPlayer(**wrong)  # type: ignore[arg-type]


# --- action values, and a search guided by a policy ------------------------------------------------------


@pytest.mark.parametrize("config", RULES, ids=["two", "document", "three", "four"])
def test_values_are_means_of_the_sums(config: Config) -> None:
    states = positions(config, 60, seed=3)
    rules, numbers = native.Core(config.values()), np.arange(len(states), dtype=np.int32)
    playout_spec, rng_key = (PLAYOUT_BOT, 0, 7, PLAYOUT_BOT), (5, rng.BOT, 2)
    sums, best = rules.search(states, numbers, playout_spec, rng_key)
    values, best_by_value = rules.values(states, numbers, playout_spec, rng_key, threads=2)
    legal = rules.legal(states)
    ending = (states.view(native.GAME_TYPE)[:, 0]["deck"][:, : config.players] == 0).all(1)
    choice = np.array([int(bits).bit_count() > 1 for bits in legal])
    for row in range(len(states)):
        allowed = [a for a in range(native.ACTIONS) if int(legal[row]) >> a & 1]
        assert np.isfinite(values[row]).nonzero()[0].tolist() == allowed
        if choice[row] and not (ending[row] and config.players == 2):
            assert np.allclose(values[row, allowed], sums[row, allowed] / 7)
        elif choice[row]:  # solved: the sign is the winner
            d = sums[row, allowed] / native.EXACT
            assert np.allclose(values[row, allowed], np.sign(d) + 0.01 * d)
    assert (best == best_by_value)[choice].all()
    assert ending.any() or config.players > 2


def test_search_values_candidates_only() -> None:
    states = positions(PLAIN, 60, seed=4)
    rules, numbers = native.Core(PLAIN.values()), np.arange(len(states), dtype=np.int32)
    legal, playout_spec, rng_key = rules.legal(states), (PLAYOUT_BOT, 0, 5, PLAYOUT_BOT), (5, rng.BOT, 2)
    candidates = legal & ~(legal & (~legal + np.uint64(1)))  # all but the lowest
    candidates = np.where(candidates == 0, legal, candidates)
    all_values, some_values = (
        rules.values(states, numbers, playout_spec, rng_key, candidates=bits)[0]
        for bits in (None, candidates)
    )
    inside = np.array([[int(bits) >> a & 1 for a in range(native.ACTIONS)] for bits in candidates]) != 0
    assert np.array_equal(all_values[inside], some_values[inside]) and np.isnan(some_values[~inside]).all()
    with pytest.raises(ValueError, match="no legal candidate"):
        rules.values(states, numbers, playout_spec, rng_key, candidates=~legal)


class StubPolicy:
    """A policy that prefers one action; its value is the difference of points."""

    name, role, config = "stub", make(PLAIN, 1).spec.roles["player"], SimpleNamespace(critic="own")

    def __init__(self, preferred: int | None = None) -> None:
        self.preferred = preferred

    def forward(self, obs: np.ndarray, mask: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        logits = np.zeros((len(obs), native.ACTIONS), np.float32)
        if self.preferred is not None:
            logits[:, self.preferred] = 100.0
        columns = self.role.columns
        acting_rows, theirs = (obs[:, columns.index(f"counts.points_{p}")] for p in (0, 1))
        return logits, (acting_rows - theirs).astype(np.float32)


def test_playouts_to_the_end_need_no_value_function() -> None:
    world = make(PLAIN, 40, seed=3)
    rows = np.arange(40, dtype=np.int32)
    world.load(rows, positions(PLAIN, 40, seed=9))
    candidates = world.shared.rules.legal(world.save(rows))
    rng_key = RngKey(4, rng.BOT, 1)
    all_values = world.action_values(rows, 6, rng_key)
    no_value = np.float32(np.nan)
    to_the_end = world.leaf_values(rows, (6, 99), rng_key, candidates, lambda obs: obs[:, 0] * no_value)
    assert np.allclose(all_values, to_the_end, equal_nan=True)
    next_turn = world.leaf_values(rows, (6, 0), rng_key, candidates, lambda obs: StubPolicy().forward(obs)[1])
    legal = np.isfinite(all_values)
    assert (np.isfinite(next_turn) == legal).all()
    assert np.corrcoef(next_turn[legal], all_values[legal])[0, 1] > 0.3  # points now predict the result


def test_means_over_leaves_are_exact_to_double_precision() -> None:
    world = make(PLAIN, 40, seed=3)  # new games: no leaf has ended
    rows, candidates = np.arange(40, dtype=np.int32), world.shared.rules.legal(world.save(np.arange(40)))
    values = world.leaf_values(rows, (101, 0), RngKey(4, rng.BOT, 1), candidates,
                               lambda obs: np.full(len(obs), 0.1, np.float32))  # fmt: skip
    numbers = values[np.isfinite(values)]
    assert len(numbers) and np.abs(np.abs(numbers) - float(np.float32(0.1))).max() < 1e-15


def test_guided_search_follows_its_policy() -> None:
    world = make(PLAIN, 30, seed=5)
    rows = np.arange(30, dtype=np.int32)
    seat, rng_key = seat_at(world, 0, rows), RngKey(1, rng.BOT, 0)
    plain = GuidedSearch(StubPolicy(), 20).act(seat, rng_key).action
    values = world.action_values(rows, 20, RngKey(rng.key(1, rng.BOT, 0), rng.BOT, 0))
    assert (plain == np.nanargmax(values, 1)).all()
    assert seat.mask is not None
    preferred = int(seat.mask[0].nonzero()[0][-1])  # a policy without doubt is followed
    is_legal = seat.mask[:, preferred] != 0
    assert (GuidedSearch(StubPolicy(preferred), 20).act(seat, rng_key).action[is_legal] == preferred).all()
    assert guided_search(StubPolicy(), "").completions == 100
    assert guided_search(StubPolicy(), "7:2").playouts == 2
    assert guided_search(StubPolicy(), "7:2").act(seat, rng_key).action.shape == (30,)
    for wrong in ("x", "0", "5:-1", "1:2:3", "9" * 5000, "5:" + "9" * 5000, "5:1001"):
        with pytest.raises(ConfigError, match="expected search:COMPLETIONS"):
            guided_search(StubPolicy(), wrong)
