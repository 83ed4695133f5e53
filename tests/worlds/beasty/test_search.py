"""The search: equal to its reference, exact at the end, blind to hidden cards, stronger than the ten."""

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
from rematch.worlds.beasty.bots import PLAYOUT, GuidedSearch, SearchPlayer, guided
from rematch.worlds.beasty.config import POINTS, STRENGTH, Config
from rematch.worlds.beasty.reference import search
from rematch.worlds.beasty.reference.compare import compare_search, dealt, match, playouts, positions
from rematch.worlds.beasty.reference.rules import unseen
from rematch.worlds.beasty.state import unpack
from rematch.worlds.beasty.world import make

RULES = [PLAIN, DOCUMENT, Config(players=3, scoring="count"), Config(players=4, first=-1)]


@pytest.mark.parametrize("config", RULES, ids=["two", "document", "three", "four"])
def test_search_is_its_reference(config: Config) -> None:
    """Every sum and every decision; tools/checks/beasty_check.py does it over 10 000."""
    assert compare_search(config, 90 if config.players == 2 else 10, seed=5) > 5
    if config.players == 2:
        assert compare_search(config, 8, seed=6, completions=3) > 1
    for model in ("random", "noisy", "online") if config.players == 2 else ("aggressive",):
        assert compare_search(config, 12 if config.players == 2 else 4, seed=7, model=model) > 1


def endings(config: Config, count: int, cards: int) -> np.ndarray:
    """[count, S] positions of two players with empty decks and so many cards in hand."""
    found = []
    for before, *_ in playouts(config, count, seed=8):
        games = before.view(native.GAME_TYPE)[:, 0]
        if games["step"][0] == 24 - cards:
            found.append(before)
    return np.concatenate(found)[:count]


@pytest.mark.parametrize(
    "config", [PLAIN, DOCUMENT, Config(scoring="count")], ids=["points", "document", "count"]
)
def test_the_solver_is_plain_minimax(config: Config) -> None:
    """Some hundred endings, every line to the end in Python."""
    for cards, count in ((4, 80), (5, 40)):
        states = endings(config, count, cards)
        assert len(states) >= count // 2
        values = native.Core(config.values()).solve(states)
        for value, state in zip(values.tolist(), unpack(states, config), strict=True):
            assert value == search.minimax(state, config)


def test_only_solved_positions_are_solved() -> None:
    rules, states = dealt(PLAIN, 1, 1)
    with pytest.raises(ValueError, match="empty decks"):
        rules.solve(states)


def test_search_plays_solved_endings_perfectly() -> None:
    """Against best play from ply 16 on it gets what the solver says, whoever plays the other side."""
    states = endings(PLAIN, 150, 8)
    rules, numbers = native.Core(PLAIN.values()), np.arange(len(states), dtype=np.int32)
    value, mover = rules.solve(states), states.view(native.GAME_TYPE)[:, 0]["turn"].copy()
    final = np.zeros(len(states))
    for step in range(8):
        turn = states.view(native.GAME_TYPE)[0, 0]["turn"]
        best = rules.search(states, numbers, (8, 0, 1, 8), (1, rng.BOT, step))[1]
        rival = rules.decide(states, numbers, 8, (1, rng.BOT, step))
        over = rules.turn(states, best if turn == mover[0] else rival) != 0
        games = states.view(native.GAME_TYPE)[:, 0]
        bar = [[sum(POINTS[name] for name, s in STRENGTH.items() if int(b) >> s & 1) for b in row[:2]]
               for row in games["bar"]]  # fmt: skip
        margin = np.array([row[int(mover[0])] - row[1 - int(mover[0])] for row in bar])
        final[numbers[over]] = margin[over]
        states, numbers = np.ascontiguousarray(states[~over]), numbers[~over]
        if not len(states):
            break
    assert (final >= value).all() and (final > value).any()


# --- no peeking


@pytest.mark.parametrize("config", [PLAIN, Config(players=3)], ids=["two", "three"])
def test_permuting_hidden_cards_changes_no_move(config: Config) -> None:
    states = positions(config, 60, seed=9)
    world, other = make(config, 60), make(config, 60)
    rows = np.arange(60, dtype=np.int32)
    world.load(rows, states)
    player, rng_key = SearchPlayer(completions=10), RngKey(3, rng.BOT, 11)
    for seat in range(config.players):
        mine = np.flatnonzero(world.view.acting[:, seat]).astype(np.int32)
        wanted = player.act(seat_at(world, seat, mine), rng_key).action
        for key in range(3):
            other.load(rows, world.resample(rows, seat, key))
            assert np.array_equal(player.act(seat_at(other, seat, mine), rng_key).action, wanted)
        assert not np.array_equal(
            player.act(seat_at(world, seat, mine), RngKey(4, rng.BOT, 11)).action, wanted
        )


def test_completions_are_even_and_keep_what_is_known() -> None:
    """Every unseen card is in the other's hand as often, in every place of a deck as often."""
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


def test_a_budget_of_time_is_kept() -> None:
    world = make(PLAIN, 1)
    at, rng_key = seat_at(world, 0, np.array([0], np.int32)), RngKey(1, rng.BOT, 0)
    began = time.perf_counter()
    move = SearchPlayer(completions=10**6, seconds=0.05).act(at, rng_key).action
    assert time.perf_counter() - began < 5.0 and world.view.mask["player"][0, 0, move[0]] == 1
    unhurried = SearchPlayer(completions=40, seconds=1e6).act(at, rng_key).action
    assert np.array_equal(unhurried, SearchPlayer(completions=40).act(at, rng_key).action)


def test_it_beats_the_heuristic_and_the_outcome_player() -> None:
    for rival in ("heuristic", "outcome_heuristic"):
        won, drawn, lost = match(PLAIN, ("search", rival), 24, seed=1)
        assert won > 0.72 and lost < 0.25, (rival, won, drawn, lost)


@pytest.mark.parametrize(("wrong", "words"), [
    ({"completions": 0}, "completions = 0: expected at least 1"), ({"rollout": "noisy"}, "rollout = noisy"),
    ({"rollout": "search"}, "rollout = search: expected one of heuristic"),
])  # fmt: skip
def test_bad_budgets_are_one_line(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SearchPlayer(**wrong)  # type: ignore[arg-type]


# --- what actions are worth, and a policy inside the search -----------------------------------------------


@pytest.mark.parametrize("config", RULES, ids=["two", "document", "three", "four"])
def test_values_are_the_means_of_what_search_adds_up(config: Config) -> None:
    states = positions(config, 60, seed=3)
    rules, numbers = native.Core(config.values()), np.arange(len(states), dtype=np.int32)
    how, rng_key = (PLAYOUT, 0, 7, PLAYOUT), (5, rng.BOT, 2)
    sums, best = rules.search(states, numbers, how, rng_key)
    values, too = rules.values(states, numbers, how, rng_key, threads=2)
    legal = rules.legal(states)
    ending = (states.view(native.GAME_TYPE)[:, 0]["deck"][:, : config.players] == 0).all(1)
    choice = np.array([int(bits).bit_count() > 1 for bits in legal])
    for row in range(len(states)):
        allowed = [a for a in range(native.ACTIONS) if int(legal[row]) >> a & 1]
        assert np.isfinite(values[row]).nonzero()[0].tolist() == allowed
        if choice[row] and not (ending[row] and config.players == 2):
            assert np.allclose(values[row, allowed], sums[row, allowed] / 7)
        elif choice[row]:  # solved: the sign is who wins
            d = sums[row, allowed] / native.EXACT
            assert np.allclose(values[row, allowed], np.sign(d) + 0.01 * d)
    assert (best == too)[choice].all()
    assert ending.any() or config.players > 2


def test_a_search_among_some_actions_leaves_the_others_out() -> None:
    states = positions(PLAIN, 60, seed=4)
    rules, numbers = native.Core(PLAIN.values()), np.arange(len(states), dtype=np.int32)
    legal, how, rng_key = rules.legal(states), (PLAYOUT, 0, 5, PLAYOUT), (5, rng.BOT, 2)
    among = legal & ~(legal & (~legal + np.uint64(1)))  # all but the lowest
    among = np.where(among == 0, legal, among)
    whole, some = (rules.values(states, numbers, how, rng_key, among=bits)[0] for bits in (None, among))
    inside = np.array([[int(bits) >> a & 1 for a in range(native.ACTIONS)] for bits in among]) != 0
    assert np.array_equal(whole[inside], some[inside]) and np.isnan(some[~inside]).all()
    with pytest.raises(ValueError, match="no legal action"):
        rules.values(states, numbers, how, rng_key, among=~legal)


class Liker:
    """A policy's face: it likes some actions, and says how points stand."""

    name, role, config = "liker", make(PLAIN, 1).spec.roles["player"], SimpleNamespace(critic="own")

    def __init__(self, likes: int | None = None) -> None:
        self.likes = likes

    def forward(self, obs: np.ndarray, mask: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        logits = np.zeros((len(obs), native.ACTIONS), np.float32)
        if self.likes is not None:
            logits[:, self.likes] = 100.0
        columns = self.role.columns
        mine, theirs = (obs[:, columns.index(f"counts.points_{p}")] for p in (0, 1))
        return logits, (mine - theirs).astype(np.float32)


def test_playouts_to_the_end_are_leaves_without_a_judge() -> None:
    world = make(PLAIN, 40, seed=3)
    rows = np.arange(40, dtype=np.int32)
    world.load(rows, positions(PLAIN, 40, seed=9))
    among = world.shared.rules.legal(world.save(rows))
    rng_key = RngKey(4, rng.BOT, 1)
    whole = world.action_values(rows, 6, rng_key)
    far = world.leaf_values(rows, (6, 99), rng_key, among, lambda obs: obs[:, 0] * np.float32(np.nan))
    assert np.allclose(whole, far, equal_nan=True)
    near = world.leaf_values(rows, (6, 0), rng_key, among, lambda obs: Liker().forward(obs)[1])
    legal = np.isfinite(whole)
    assert (np.isfinite(near) == legal).all()
    assert np.corrcoef(near[legal], whole[legal])[0, 1] > 0.3  # points now tell something of the end


def test_a_guided_search_minds_its_policy() -> None:
    world = make(PLAIN, 30, seed=5)
    rows = np.arange(30, dtype=np.int32)
    seat, rng_key = seat_at(world, 0, rows), RngKey(1, rng.BOT, 0)
    plain = GuidedSearch(Liker(), 20).act(seat, rng_key).action
    values = world.action_values(rows, 20, RngKey(rng.key(1, rng.BOT, 0), rng.BOT, 0))
    assert (plain == np.nanargmax(values, 1)).all()
    assert seat.mask is not None
    liked = int(seat.mask[0].nonzero()[0][-1])  # a policy that is sure is not asked again
    here = seat.mask[:, liked] != 0
    assert (GuidedSearch(Liker(liked), 20).act(seat, rng_key).action[here] == liked).all()
    assert guided(Liker(), "").completions == 100 and guided(Liker(), "7:2").plies == 2
    assert guided(Liker(), "7:2").act(seat, rng_key).action.shape == (30,)
    for wrong in ("x", "0", "5:-1", "1:2:3"):
        with pytest.raises(ConfigError, match="expected search:COMPLETIONS"):
            guided(Liker(), wrong)
