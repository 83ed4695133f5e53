"""Every world passes the conformance test, and the test notices every way of failing it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import broken_worlds, conformance_subjects, toys
from support.broken_worlds import BROKEN, HiddenGenerator, HidesNothing, vary

from rematch.core import rng
from rematch.worlds import conformance, numpy_world, registry
from rematch.worlds.conformance import BrokenPromise, Subject, Trial

TRIALS = {"matching": Trial(chance=False), "sticks": Trial(), "drift": Trial(stage=(0.5,))}
TRIALS["pursuit"] = Trial(stage=(4.0, 6.0, 1.0, 2.0))
TRIALS["lattice"] = Trial(stage=(0.0, 3.0, 5.0))
TRIALS["pettingzoo"] = Trial(games=3, steps=20, chance=False)
TRIALS["gameboy"] = conformance_subjects.EMULATED


# --- what holds -------------------------------------------------------------------------------------


def moved(module: Any, column: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A change of one column of a toy's saved states."""
    dtype = module.make(module.Config(), 1).state.dtype

    def apply(states: Any) -> Any:
        rows = states.view(dtype)[:, 0]
        rows[column] = change(rows[column])
        return states

    return apply


def halve(x: Any) -> Any:
    return x / 2


def turn(x: Any) -> Any:
    return (x + 1) % 3


SCORE, PILE = moved(toys.matching, "score", lambda x: x + 1), moved(toys.sticks, "pile", lambda x: x % 12 + 1)
SUBJECTS = {
    "matching": [
        Subject(name="score", role="matcher", field="score", change=SCORE),
        Subject(name="score", role="hider", field="score", change=SCORE),
    ],
    "sticks": [
        Subject(name="pile", role="player", field="pile", change=PILE),
        Subject(name="charm", role="player", field="charm", change=moved(toys.sticks, "charm", turn)),
    ],
    "drift": [
        Subject(name="raft", role="rafter", field="raft", change=moved(toys.drift, "place", halve)),
        Subject(name="wind", role="rafter", field="", change=moved(toys.drift, "wind", halve)),
    ],
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_toys_conform(name: str) -> None:
    report = conformance.check_game(toys.TOYS[name], trial=TRIALS[name], moves=SUBJECTS[name])
    assert report.skipped == []
    assert "resample" in report.passed and any(word.startswith("subject") for word in report.passed)


@pytest.mark.parametrize("name", registry.names())
def test_every_world_conforms(name: str) -> None:
    module, moves = conformance_subjects.game(name), conformance_subjects.IN.get(name, list)()
    config = module.Config(**conformance_subjects.SETTINGS.get(name, {}))
    report = conformance.check_game(module, config, trial=TRIALS.get(name), moves=moves)
    assert "save and load" in report.passed


VARIANTS: list[dict[str, Any]] = [
    {"w_search": 0.1, "max_steps": 80},  # holds something that nobody sees
    {"fixed_speed": True, "n_obstacles_min": 0, "n_obstacles_max": 8, "max_steps": 80},
    {
        "use_visibility_reward": True,
        "survival_bonus": 0.02,
        "w_collision": 0.1,
        "prep_steps": 9,
        "max_steps": 80,
    },
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: next(iter(changes)))
def test_pursuit_conforms_under_other_rules(changes: dict[str, Any]) -> None:
    world = pytest.importorskip("rematch.worlds.pursuit.world")
    report = conformance.check(world.make, world.Config(**changes), trial=Trial(steps=15))
    assert "resample" in report.passed


def test_uniform_numbers_depend_on_keys() -> None:
    seeds, steps = rng.words(5, rng.GAME, 4), np.array([0, 1, 7, 2**31])
    rows = [rng.units(int(seed), rng.RESET, 6, int(step)) for seed, step in zip(seeds, steps, strict=True)]
    assert np.array_equal(numpy_world.uniform_numbers(seeds, steps, 6), np.stack(rows))


def test_worlds_that_resume_otherwise_are_excused_and_the_report_says_so() -> None:
    class Replayed(toys.Sticks):
        @classmethod
        def make_spec(cls, config: Any) -> Any:
            return vary(super().make_spec(config), resume="replay")

        def resample(self, rows: Any, seat: int, key: int) -> Any:
            raise NotImplementedError

    report = conformance.check(Replayed, toys.SticksConfig())
    assert [line.split(" (")[0] for line in report.skipped[:2]] == ["turns", "resample"]
    assert "resumes by replay" in str(report)
    assert {"determinism", "save and load", "invalid states"} <= set(report.passed)

    class Anew(toys.Sticks):
        @classmethod
        def make_spec(cls, config: Any) -> Any:
            return vary(super().make_spec(config), resume="episode")

        def load(self, rows: Any, states: Any) -> Any:
            raise NotImplementedError

    report = conformance.check(Anew, toys.SticksConfig())
    excused = {line.split(" (")[0] for line in report.skipped}
    assert {"determinism", "restart", "save and load", "invalid states", "resample"} <= excused


def test_hidden_things_that_resample_leaves_alone_must_be_named() -> None:
    secret = "other players' charms"
    report = conformance.check(HidesNothing, toys.SticksConfig(), trial=Trial(fixed=(secret,)))
    assert f"that resample redraws what player does not see: {secret}" in report.skipped


# --- what it notices ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "line"), BROKEN, ids=[kind.__name__ for kind, _ in BROKEN])
def test_a_broken_promise_is_named(kind: Any, line: str) -> None:
    module = toys.TOYS[kind.__mro__[1].__name__.lower()]
    trial = dataclasses.replace(TRIALS[kind.__mro__[1].__name__.lower()], bound=300)
    with pytest.raises(BrokenPromise, match=line) as caught:
        conformance.check(kind, module.Config(), trial=trial)
    assert "\n" not in str(caught.value)


def test_results_that_are_said_to_be_rare_are_not_required() -> None:
    for kind, config in ((broken_worlds.NoReward, toys.SticksConfig()),
                         (broken_worlds.NoWinner, toys.MatchingConfig())):  # fmt: skip
        report = conformance.check(kind, config, trial=Trial(chance=None, rare_results=True))
        assert "that some reward is not 0, and that outcomes differ (it may be rare)" in report.skipped


def test_one_sided_outcome_of_different_roles_is_only_reported() -> None:
    class Easy(toys.Matching):
        def apply_actions(self, actions: Any) -> None:
            super().apply_actions(actions)
            self.view.outcome[:] = (1, 0)

    report = conformance.check(Easy, toys.MatchingConfig(), trial=TRIALS["matching"])
    assert "that outcomes differ (all 200 games of random play: [1. 0.])" in report.skipped


@pytest.mark.parametrize("name", toys.TOYS)
def test_quick_checks_pass_what_passes_all(name: str) -> None:
    game = toys.TOYS[name]
    start = time.process_time()
    report = conformance.check_quickly(game, game.Config())
    assert {"values", "parts", "save and load", "determinism"} <= set(report.passed)
    assert time.process_time() - start < 5  # CPU seconds


def test_batch_size_is_noticed_where_parts_do_not_show_it() -> None:
    class Crowded(toys.Drift):
        def __init__(self, config: Any, games: int, first: int = 0, seed: int = 0) -> None:
            super().__init__(config, games, first, seed + games)

    with pytest.raises(BrokenPromise, match="batch size: game 0 of 1 made with first=0 plays differently"):
        conformance.check(Crowded, toys.DriftConfig())


def most(seat: Any) -> Any:
    return seat.mask.sum(1).astype(np.int64) - 1


ROGUES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "peeking": (
        lambda seat, uniform: np.minimum(seat.world.state["charm"][seat.rows].sum(1) % 3, most(seat)),
        "its action depends on what its seat cannot see",
    ),
    "greedy": (lambda seat, uniform: np.full(len(seat.rows), 2), "an action that is not legal"),
    "moody": (
        lambda seat, uniform: HiddenGenerator.dice.integers(0, most(seat) + 1),
        "the same random key gave another action",
    ),
    "crowded": (
        lambda seat, uniform: np.minimum(len(seat.rows) - 1, most(seat)),
        "for one game alone it acts differently",
    ),
    "vague": (lambda seat, uniform: uniform * 0, "discrete actions must be whole numbers"),
}


@pytest.mark.parametrize("name", ROGUES)
def test_bots_that_cheat_are_named(name: str) -> None:
    rule, line = ROGUES[name]
    bots = {"player": [numpy_world.ScriptedPlayer(name, rule)]}
    with pytest.raises(BrokenPromise, match=f"bot player/{name}: .*{line}"):
        conformance.check(toys.Sticks, toys.SticksConfig(), bots=bots)


def test_subjects_that_do_not_show_and_secrets_that_do_are_named() -> None:
    raft, wind = SUBJECTS["drift"]
    blind = Subject(name="wind", role="rafter", field="raft", change=wind.change)
    open_secret = Subject(name="raft", role="rafter", field="", change=raft.change)
    for subject, line in (
        (blind, "changed, but field 'raft'"),
        (open_secret, "said to be hidden, but field 'raft'"),
    ):
        with pytest.raises(BrokenPromise, match=line):
            conformance.check(toys.Drift, toys.DriftConfig(), moves=[subject])
