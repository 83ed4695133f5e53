"""The league: snapshots do not change, slots change between games, all players get their share of seats."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.leagues import Hall, pool_of

from rematch.agents.policy import digest
from rematch.core.config import validate
from rematch.core.errors import ConfigError
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.selfplay.league import Matchmaker
from rematch.selfplay.opponent_pool import DECAY, LeagueConfig, Opponent, OpponentPool, probs_with_floor


def test_pool_of_size_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"size = 0: the pool has no snapshots for opponent_share = 0.3 of"):
        validate(LeagueConfig(size=0))
    validate(LeagueConfig(opponent_share=0.0))


def fill(pool: OpponentPool, count: int) -> None:
    for i in range(count):
        pool.add(f"r{i}", np.full_like(pool.weights[0], i), 0.0)


# --- snapshots are frozen -----------------------------------------------------------------------------


def test_snapshots_are_copies_with_their_digest() -> None:
    hall = Hall(snapshot_every=2)
    hall.learn(2)
    assert hall.matchmaker.snapshot(1) == []
    assert hall.matchmaker.snapshot(2) == ["matcher@2", "hider@2"]
    pool = hall.matchmaker.pools["matcher"]
    assert pool.snapshots[0].digest == digest(hall.policies["matcher"].weights) == digest(pool.weights[0])
    hall.learn(3)
    assert digest(pool.weights[0]) == pool.snapshots[0].digest != digest(hall.policies["matcher"].weights)


def test_changed_snapshot_is_an_error_when_it_is_seated() -> None:
    hall = Hall(snapshot_every=1)
    hall.learn(1)
    hall.matchmaker.snapshot(1)
    hall.matchmaker.pools["hider"].weights[0, 3] = np.nextafter(
        np.float32(hall.matchmaker.pools["hider"].weights[0, 3]), 9
    )
    with pytest.raises(
        ConfigError, match="opponent hider@1: its weights changed after it joined the pool"
    ) as caught:
        hall.matchmaker.seat(hall.world, 1)
    assert len(str(caught.value).splitlines()) == 1


# --- slots -------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_slot_is_refilled_only_when_no_running_game_uses_it(data: Any) -> None:
    draw = data.draw
    toy = draw(st.sampled_from(("matching", "sticks")))
    hall = Hall(
        toy,
        games=draw(st.integers(1, 12)),
        seed=draw(st.integers(0, 99)),
        opponent_share=draw(st.sampled_from((0.3, 1.0))),
        slots=draw(st.integers(1, 4)),
        rotate=draw(st.integers(1, 4)),
        size=draw(st.integers(1, 5)),
        snapshot_every=1,
        replacement=draw(st.sampled_from(("reservoir", "fifo"))),
        matchmaking=draw(st.sampled_from(("uniform", "pfsp"))),
        bots=("random",) if draw(st.booleans()) else (),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    often = draw(st.sampled_from((0.05, 0.3, 0.9)))
    partner: dict[tuple[int, int], bytes] = {}  # (game, seat) -> the weights its rival began with
    for iteration in range(25):
        hall.iterate(iteration)
        for role, role_spec in hall.spec.roles.items():
            pool, packed = hall.matchmaker.pools[role], hall.matchmaker.pools[role].seating.packed
            for seat in role_spec.seats:
                for game in range(hall.world.games):
                    slot = int(hall.world.slot[game, seat])
                    if 0 < slot < len(packed):
                        assert packed[slot].tobytes() == partner[game, seat], (
                            "replaced in the middle of a game"
                        )
                    coming = int(hall.world.next.slot[game, seat])
                    assert 0 <= coming < len(packed) + len(pool.bots)
                    assert coming == 0 or coming >= len(packed) or pool.is_open[coming]
            for slot in range(1, len(packed)):  # what plays is what the name says
                if pool.slot_names[slot]:
                    check = np.zeros_like(packed[:1])
                    pool.policy.network.pack(pool.slot_weights[slot][None], check)
                    assert packed[slot].tobytes() == check.tobytes()
                    assert pool.slot_weights[slot][0] == int(pool.slot_names[slot].partition("@")[2])
        over = rng.random(hall.world.games) < often
        hall.end(over)
        for role, role_spec in hall.spec.roles.items():
            packed = hall.matchmaker.pools[role].seating.packed
            for seat in role_spec.seats:
                for game in np.flatnonzero(over):
                    slot = int(hall.world.slot[game, seat])
                    if 0 < slot < len(packed):
                        partner[int(game), seat] = packed[slot].tobytes()


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_every_slot_gets_its_next_opponent_in_time(slots: int) -> None:
    """Even if every slot is always used by some game: games of 1 to 20 iterations that end at odd times."""
    hall = Hall(games=64, opponent_share=1.0, slots=slots, rotate=3, snapshot_every=1, size=50)
    rng = np.random.default_rng(0)
    changes = 0
    before: list[str] = []
    for iteration in range(120):
        hall.iterate(iteration)
        now = hall.matchmaker.pools["matcher"].slot_names[1:]
        changes += now != before
        before = list(now)
        hall.end(rng.random(64) < 0.2)
    assert changes >= 6
    seen = {int(name.partition("@")[2]) for name in before}
    assert max(seen) > 40


def test_one_slot_is_always_open_once_the_pool_has_snapshots() -> None:
    hall = Hall(games=64, opponent_share=1.0, slots=3, rotate=1, snapshot_every=1)
    rng = np.random.default_rng(0)
    for iteration in range(60):
        hall.iterate(iteration)
        assert ((hall.world.next.slot > 0).sum(1) == 1).all()  # one learns, one is a rival, in every game
        hall.end(rng.random(64) < 0.1)


# --- who stays -----------------------------------------------------------------------------------------


def test_fifo_stores_the_newest() -> None:
    pool = pool_of(replacement="fifo", size=3)
    for i in range(8):
        pool.add(f"r{i}", np.full_like(pool.weights[0], i), 0.5)
        assert {r.name for r in pool.snapshots} == {f"r{j}" for j in range(max(0, i - 2), i + 1)}
        for at, opponent in enumerate(pool.snapshots):
            assert opponent.digest == digest(pool.weights[at])
            assert opponent.name == f"r{int(pool.weights[at, 0])}"


def test_reservoir_stores_every_snapshot_with_equal_probability() -> None:
    stored: Counter[str] = Counter()
    trials, size, stream = 800, 3, 12
    pool = pool_of(size=size)
    for seed in range(trials):
        pool.snapshots, pool.seen = [], 0
        matchmaker = Matchmaker(pool.config, {"matcher": pool}, seed)  # the random numbers of the league
        for iteration in range(10, 10 * stream + 1, 10):
            joined = matchmaker.snapshot(iteration)
            assert joined == [r.name for r in pool.snapshots if r.name == f"matcher@{iteration}"]  # or none
        assert len(pool.snapshots) == size and pool.seen == stream
        stored.update(opponent.name for opponent in pool.snapshots)
    counts = np.array([stored[f"matcher@{10 * i}"] for i in range(1, stream + 1)])
    share = size / stream
    # each count is binomial; together, corrected for drawing without replacement, chi-square with 11 degrees
    # of freedom: beyond 37.4 once in 10 000
    assert ((counts - trials * share) ** 2 / (trials * share * (1 - share))).sum() * (
        stream - 1
    ) / stream < 37.4


# --- who is seated -------------------------------------------------------------------------------------


def test_pfsp_prefers_opponents_that_win_and_excludes_none() -> None:
    pool = pool_of(matchmaking="pfsp", pfsp_power=2.0, pfsp_floor=0.05)
    fill(pool, 4)
    for opponent, games, score in zip(pool.snapshots, (98, 98, 98, 0), (97, 49, 0, 0)):
        opponent.games, opponent.score = games, score
    # our win rates, drawn to one half by two games: 0.98, 0.5, 0.01, 0.5;
    # (1 - p)^2: 0.0004 (so the floor, 0.05), 0.25, 0.9801, 0.25
    probs = np.array([0.05, 0.25, 0.9801, 0.25]) / 1.5301
    assert pool.selection_probs(pool.snapshots) == pytest.approx(probs)
    uniform = pool_of(matchmaking="uniform")
    fill(uniform, 4)
    assert uniform.selection_probs(uniform.snapshots) == pytest.approx([0.25] * 4)


def test_pfsp_has_probabilities_if_the_learner_beats_all() -> None:
    pool = pool_of(matchmaking="pfsp", pfsp_power=1000.0, pfsp_floor=0.0)
    fill(pool, 3)
    for opponent in pool.snapshots:
        opponent.games, opponent.score = 1e6, 1e6
    assert pool.selection_probs(pool.snapshots) == pytest.approx([1 / 3] * 3)


def test_seated_opponents_follow_the_selection_probabilities() -> None:
    pool = pool_of(matchmaking="pfsp", slots=1, rotate=1)
    fill(pool, 3)
    for opponent, score in zip(pool.snapshots, (90, 50, 10)):
        opponent.games, opponent.score = 98, score
    rng = np.random.default_rng(0)
    seated: Counter[str] = Counter()
    for i in range(3000):
        pool.refill(set(), i, rng.random(2))
        seated[pool.slot_names[1]] += 1
    wanted = pool.selection_probs(pool.snapshots) * 3000
    counts = np.array([seated[f"r{i}"] for i in range(3)])
    assert ((counts - wanted) ** 2 / wanted).sum() < 18.4  # chi-square, 2 degrees of freedom: once in 10 000


def measured(hall: Hall, iterations: int = 60) -> Any:
    """Slots [many, seats] of all games that are seated once the pool is full."""
    out = []
    for iteration in range(iterations):
        hall.iterate(iteration)
        if iteration > 5:
            out.append(hall.world.next.slot.copy())
        hall.end(slice(None))
    return np.concatenate(out)


@pytest.mark.parametrize(("toy", "history"), [("matching", 0.3), ("matching", 0.9), ("sticks", 0.5)])
def test_opponent_share_and_share_of_each_learning_seat(toy: str, history: float) -> None:
    slots = measured(Hall(toy, games=500, opponent_share=history, snapshot_every=1))
    n, seats = slots.shape
    mixed = (slots > 0).any(1)
    assert abs(mixed.mean() - history) < 4.5 * (history * (1 - history) / n) ** 0.5
    learning = slots[mixed] == 0
    assert (learning.sum(1) == 1).all()  # one seat learns, opponents have all others
    m = int(mixed.sum())
    assert np.abs(learning.mean(0) - 1 / seats).max() < 4.5 * (1 / seats * (1 - 1 / seats) / m) ** 0.5


def test_slots_are_used_equally_often() -> None:
    slots = measured(Hall(games=1000, opponent_share=1.0, slots=4, snapshot_every=1, rotate=10**6))
    for seat in range(2):
        counts = np.bincount(slots[:, seat], minlength=5)[1:]
        assert np.abs(counts / counts.sum() - 0.25).max() < 0.02


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_bots_have_their_share(share: float) -> None:
    hall = Hall(
        games=500, opponent_share=1.0, slots=2, snapshot_every=1, bots=("heads", "random"), bot_share=share
    )
    slots = measured(hall)
    slots = slots[slots > 0]
    is_bot = slots >= 3
    assert abs(is_bot.mean() - share) < 4.5 * (max(share * (1 - share), 1e-9) / len(slots)) ** 0.5
    if share:
        assert abs((slots[is_bot] == 3).mean() - 0.5) < 0.03  # both bots equally often
        assert set(slots[is_bot].tolist()) == {3, 4}


def test_seating_before_the_first_snapshot() -> None:
    """An empty pool: self-play. Only bots: they have all opponent seats, unless their share is 0."""
    for scripted, share, anybody in (((), 0.5, False), (("random",), 0.5, True), (("random",), 0.0, False)):
        hall = Hall(games=300, opponent_share=1.0, bots=scripted, bot_share=share)
        hall.matchmaker.seat(hall.world, 0)
        assert (hall.world.next.slot > 0).any() == anybody
        if anybody:
            assert ((hall.world.next.slot > 0).sum(1) == 1).all()


def test_opponent_share_zero_seats_learners_only() -> None:
    hall = Hall(opponent_share=0.0, snapshot_every=1)
    hall.world.next.slot[:] = 3
    hall.iterate(1)
    assert (hall.world.next.slot == 0).all() and hall.matchmaker.pools["matcher"].snapshots == []


def test_seating_depends_on_seed_and_iteration() -> None:
    def seated(seed: int, iteration: int) -> bytes:
        hall = Hall(games=100, seed=seed, opponent_share=0.5, snapshot_every=1)
        hall.iterate(iteration)
        slots: bytes = hall.world.next.slot.tobytes()
        return slots

    assert seated(1, 5) == seated(1, 5)
    assert len({seated(1, 5), seated(2, 5), seated(1, 6)}) == 3


# --- results -------------------------------------------------------------------------------------------


def test_records_count_the_learners_score_and_decay() -> None:
    hall = Hall(slots=2, snapshot_every=1, opponent_share=1.0, bots=("random",))
    pool = hall.matchmaker.pools["hider"]
    fill(pool, 3)
    rollout = RolloutBuffer(hall.spec, 2, 4)
    rollout.ended[0] = (1, 1, 1, 2)
    track = rollout["hider"]
    track.slot[0, :, 0], track.outcome[0, :, 0] = (1, 2, 3, 0), (1.0, 0.0, 0.5, 1.0)  # the rival's outcomes
    rollout["matcher"].outcome[0, :, 0] = 1 - track.outcome[0, :, 0]
    track.slot[1, :, 0], track.outcome[1, :, 0] = 1, 1.0  # running games say nothing
    rollout.players = {"hider": ["", "r0", "r2", "random"], "matcher": [""]}
    hall.matchmaker.record_results(rollout)
    assert [(r.games, r.score) for r in pool.snapshots] == [(1, 0), (0, 0), (1, 1)]
    assert (pool.bots[0].games, pool.bots[0].score) == (1, 0.5)
    rollout.ended[:] = 0
    hall.matchmaker.record_results(rollout)
    assert pool.snapshots[2].games == pool.snapshots[2].score == DECAY
    assert Opponent("new", "").win_rate() == 0.5


def test_records_of_three_seats_compare_opponent_and_learner() -> None:
    """Losing to a third is a draw between the other two: 1 - outcome of the opponent would be a win."""
    hall = Hall("sticks", slots=2, snapshot_every=1, opponent_share=1.0, bots=("random",))
    pool = hall.matchmaker.pools["player"]
    fill(pool, 2)
    rollout = RolloutBuffer(hall.spec, 1, 4)
    rollout.ended[0] = (1, 1, 1, 1)
    track = rollout["player"]
    track.slot[0] = [[0, 1, 2], [1, 0, 3], [2, 3, 1], [0, 1, 1]]
    track.outcome[0] = [[1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]  # game 2: the learner is not there
    rollout.players = {"player": ["", "r0", "r1", "random"]}
    hall.matchmaker.record_results(rollout)
    # r0: lost to us, draw (the third won), then two seats: won and drew
    assert (pool.snapshots[0].games, pool.snapshots[0].score) == (4, 1 + 0.5 + 0 + 0.5)
    assert (pool.snapshots[1].games, pool.snapshots[1].score) == (1, 1)
    assert (pool.bots[0].games, pool.bots[0].score) == (1, 0)


# --- adaptive weights ------------------------------------------------------------------------------------

TINY = np.finfo(np.float64).tiny  # smaller sums count as 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_floor_holds_after_normalization(weights: list[float], part: float) -> None:
    floor = part / len(weights)
    share = probs_with_floor(np.array(weights), floor)
    assert abs(share.sum() - 1) < 1e-9 and (share >= floor - 1e-12).all()
    free = share > floor + 1e-9
    ratio = share[free] / np.array(weights)[free] if sum(weights) >= TINY else np.ones(1)
    assert np.allclose(ratio, ratio[:1], rtol=1e-6)  # those above it stand as their weights do
    assert (np.diff(share[np.argsort(weights, kind="stable")]) >= -1e-9).all()


def test_adaptive_weights_follow_the_evaluations() -> None:
    pool = pool_of(toy="sticks", bots=("random",), matchmaking="adaptive")
    pool.bots = [Opponent(name, "") for name in ("weak", "even", "strong", "unmet")]
    matchmaker = Matchmaker(pool.config, {"player": pool}, 0)
    assert np.allclose(pool.selection_probs(pool.bots), 0.25)
    rows = [("weak", 1000, 0), ("even", 500, 0), ("strong", 100, 400)]  # draws are not won
    matchmaker.record_evaluation([{"rival": n, "games": 1000, "wins": w, "draws": d} for n, w, d in rows])
    odds = pool.selection_probs(pool.bots)
    assert odds[0] == 0.05 and np.allclose(odds[1:], 0.95 * np.array([0.5, 0.9, 0.5]) / 1.9)
    fill(pool, 3)
    assert np.allclose(pool.selection_probs(pool.snapshots), 1 / 3)  # snapshots are equal
    assert matchmaker.metrics()["league/weight_strong"] == odds[2]
    again = pool_of(toy="sticks", bots=("random",), matchmaking="adaptive")
    again.bots = [Opponent(bot.name, "") for bot in pool.bots]
    again.load_state_dict(pool.state_dict())
    assert (again.selection_probs(again.bots) == odds).all()


def test_bot_weights_hold_until_the_first_evaluation() -> None:
    """Fixed with uniform selection; with adaptive selection until the bots have been evaluated."""
    names, weights = ("random", "last"), (0.1, 0.3)
    for matchmaking in ("uniform", "adaptive"):
        pool = pool_of(toy="sticks", bots=("random",), bot_weights=(1.0,), matchmaking=matchmaking)
        pool.config = replace(pool.config, bots=names, bot_weights=weights)
        pool.bots = [Opponent(name, "") for name in names]
        assert np.allclose(pool.selection_probs(pool.bots), (0.25, 0.75))
        uniforms = np.linspace(0, 1, 1000, endpoint=False)
        slots = pool.seat_rule(None).choose(uniforms, np.zeros(1000))
        assert (slots == slots.max()).mean() == pytest.approx(0.75, abs=0.002)
        rows = [{"rival": name, "games": 100, "wins": 50, "draws": 0} for name in names]
        Matchmaker(pool.config, {"player": pool}, 0).record_evaluation(rows)
        expected = (0.5, 0.5) if matchmaking == "adaptive" else (0.25, 0.75)
        assert np.allclose(pool.selection_probs(pool.bots), expected)


def test_bot_weights_without_their_bots_are_refused() -> None:
    for changes, text in (
        ({"bot_weights": (1.0,)}, r"bot_weights = \[1.0\]: expected a number for each of the 2 bots"),
        ({"bot_weights": (0.0, 0.0)}, "not all 0"),
        ({"bot_weights": (1.0, 2.0), "matchmaking": "pfsp"}, "no effect with matchmaking = pfsp"),
    ):
        with pytest.raises(ConfigError, match=text):
            LeagueConfig(bots=("a", "b"), **changes).check()


def test_floor_that_is_too_large_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"adaptive_floor = 0.6: 2 bots .* at most 0.5"):
        LeagueConfig(matchmaking="adaptive", bots=("a", "b"), adaptive_floor=0.6).check()


def test_state_and_restore_continue_identically() -> None:
    changes: Any = {
        "games": 30,
        "seed": 4,
        "opponent_share": 0.8,
        "slots": 3,
        "rotate": 2,
        "snapshot_every": 1,
        "size": 4,
        "matchmaking": "pfsp",
        "bots": ("random",),
    }
    first, rng = Hall(**changes), np.random.default_rng(0)
    for iteration in range(9):
        first.iterate(iteration)
        first.end(rng.random(30) < 0.4)
    stored = copy.deepcopy(first.matchmaker.state_dict())
    second = Hall(**changes)
    second.matchmaker.load_state_dict(stored)
    second.world.slot[:] = first.world.slot
    for iteration in range(9, 25):
        over = rng.random(30) < 0.4
        for hall in (first, second):
            hall.iterate(iteration)
            for role, pool in hall.matchmaker.pools.items():
                rollout = RolloutBuffer(hall.spec, 1, 30)
                rollout.ended[0] = over
                rollout[role].slot[0] = hall.world.slot[:, list(hall.spec.roles[role].seats)]
                rollout[role].outcome[0] = np.linspace(0, 1, 30)[:, None]
                pool.record_results(*rollout.results(role), pool.seating.player_names())
            hall.end(over)
        assert (first.world.next.slot == second.world.next.slot).all()
    for role, pool in first.matchmaker.pools.items():
        other = second.matchmaker.pools[role]
        assert pool.seating.packed[1:].tobytes() == other.seating.packed[1:].tobytes()
        own, theirs = pool.state_dict(), other.state_dict()
        for name, value in own.items():
            assert np.array_equal(value, theirs[name]), name


@pytest.mark.parametrize(("key", "value"), [
    ("score", "x"), ("score", -1.0), ("score", 1e9), ("games", float("nan")), ("name", 3), ("won", True),
])
def test_stored_opponent_with_impossible_values_is_refused(key: str, value: object) -> None:
    pool = pool_of(toy="sticks", bots=("random",))
    fill(pool, 3)
    state = copy.deepcopy(pool.state_dict())
    pool_of(toy="sticks", bots=("random",)).load_state_dict(state)
    state["rivals"][1][key] = value
    with pytest.raises(ValueError, match=key):
        pool_of(toy="sticks", bots=("random",)).load_state_dict(state)
