"""The league when not all roles learn: seats, snapshots, and random numbers that are used once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import toys
from support.leagues import Hall, pool_of

from rematch.selfplay.league import Matchmaker
from rematch.selfplay.opponent_pool import Opponent


@given(st.floats(0.05, 1.0), st.booleans(), st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_opponents_take_seats_of_other_roles_only(history: float, first: bool, iteration: int) -> None:
    hall = Hall(games=400, opponent_share=history, snapshot_every=1, bots=("heads",))
    hall.iterate(1)
    learns, waits = (0, 1) if first else (1, 0)
    hall.matchmaker.seat(hall.world, 2 + iteration, learning=[list(hall.spec.roles)[learns]])
    slots = hall.world.next.slot
    assert (slots[:, learns] == 0).all()
    assert (slots[:, waits] > 0).mean() == pytest.approx(history, abs=0.1)


def test_learning_role_of_several_seats_takes_all_of_them() -> None:
    """Two hunters and one hunted: the learner has every seat of its role, in games with opponents too."""
    matcher, hider = toys.matching.make(toys.matching.Config(), 1).spec.roles.values()
    hall = Hall(games=300, opponent_share=1.0, snapshot_every=1)
    roles = {"matcher": replace(matcher, seats=(0, 2)), "hider": replace(hider, seats=(1,))}
    hall.world.spec = replace(hall.spec, roles=roles)
    hall.world.slot = np.zeros((300, 3), np.int32)
    hall.world.next.slot = np.zeros((300, 3), np.int32)
    hall.iterate(1)
    hall.matchmaker.seat(hall.world, 2, learning=["matcher"])
    assert (hall.world.next.slot[:, [0, 2]] == 0).all() and (hall.world.next.slot[:, 1] > 0).all()
    hall.matchmaker.seat(hall.world, 2, learning=["hider"])
    assert (hall.world.next.slot[:, [0, 2]] > 0).all() and (hall.world.next.slot[:, 1] == 0).all()
    hall.matchmaker.seat(hall.world, 2, learning=["matcher", "hider"])
    assert ((hall.world.next.slot == 0).sum(1) == 1).all()  # as ever: one of all seats learns


def test_fixed_slots_are_used_in_all_games() -> None:
    hall = Hall(games=50, opponent_share=0.5, snapshot_every=1)
    hall.iterate(1)
    hall.matchmaker.seat(hall.world, 2, learning=["hider"], fixed_slots={"matcher": 9})
    assert (hall.world.next.slot == [9, 0]).all()
    quiet = Hall(games=50, opponent_share=0.0)
    quiet.matchmaker.seat(quiet.world, 2, learning=["hider"], fixed_slots={"matcher": 5})
    assert (quiet.world.next.slot == [5, 0]).all()


def test_only_roles_that_learned_join() -> None:
    hall = Hall(snapshot_every=2)
    assert (
        hall.matchmaker.snapshot(2, {"hider"}) == ["hider@2"] and hall.matchmaker.snapshot(3, {"hider"}) == []
    )
    assert hall.matchmaker.snapshot(4, set()) == [] and len(hall.matchmaker.snapshot(4)) == 2


@pytest.mark.parametrize("roles", [1, 2, 4, 5, 9])
def test_random_numbers_are_never_used_twice(roles: int) -> None:
    drawn: list[tuple[float, ...]] = []

    class RecordingPool:
        """A pool that only records the random numbers."""

        def refill(self, running: set[int], iteration: int, draws: Any) -> None:
            drawn.append(tuple(draws))

        def seat_rule(self, learns: Any) -> Any:
            return RecordingRule()

    class RecordingRule:
        """The rule of a seat that only records the random numbers."""

        learns = None

        def choose(self, draws: Any, kind: Any) -> Any:
            drawn.append(tuple(draws[: len(kind)]))
            return np.zeros(len(draws), np.int32)

    hall = Hall(games=5)
    (role_spec, *_) = hall.spec.roles.values()
    named = {f"r{i}": replace(role_spec, name=f"r{i}", seats=(i,)) for i in range(roles)}
    hall.world.spec = replace(hall.spec, roles=named)
    hall.world.slot = hall.world.next.slot = np.zeros((5, roles), np.int32)
    matchmaker = Matchmaker(hall.config, {name: RecordingPool() for name in named}, 0)  # type: ignore[misc]
    for iteration in range(40):
        matchmaker.seat(hall.world, iteration)
    refills = [draws for draws in drawn if len(draws) == hall.config.slots + 1]
    assert len(set(drawn)) == len(drawn) and len(refills) >= 40 * roles


def test_bots_of_one_name_have_a_record_per_role() -> None:
    """`random` plays both roles: the record of one role does not count for the other."""
    pools = {role: pool_of(toy="sticks", bots=("random",), matchmaking="adaptive") for role in "ab"}
    for pool in pools.values():
        pool.bots = [Opponent("random", ""), Opponent("other", "")]
    matchmaker = Matchmaker(pools["a"].config, pools, 0)
    row = {"rival": "random", "games": 100}
    matchmaker.record_evaluation([row | {"role": "a", "wins": 100}, row | {"role": "b", "wins": 0}])
    assert (pools["a"].bots[0].won, pools["b"].bots[0].won) == (0.0, 1.0)
    weights = {key: value for key, value in matchmaker.metrics().items() if key.startswith("league/weight_")}
    assert len(weights) == 4 and weights["league/weight_a_random"] > weights["league/weight_b_random"]
