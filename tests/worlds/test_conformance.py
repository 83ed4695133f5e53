"""Every world keeps the contract, and the contract notices every way of breaking it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import conformance_subjects, toys

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.worlds import conformance, numpy_world, registry
from rematch.worlds.conformance import BrokenPromise, Subject, Trial

TRIALS = {"matching": Trial(chance=False), "sticks": Trial(), "drift": Trial(stage=(0.5,))}
TRIALS["pursuit"] = Trial(stage=(4.0, 6.0, 1.0, 2.0))
TRIALS["lattice"] = Trial(stage=(0.0, 3.0, 5.0))
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
def test_toys_keep_the_contract(name: str) -> None:
    report = conformance.check_module(toys.TOYS[name], trial=TRIALS[name], moves=SUBJECTS[name])
    assert report.skipped == []
    assert "resample" in report.passed and any(word.startswith("subject") for word in report.passed)


@pytest.mark.parametrize("name", registry.names())
def test_every_world_keeps_the_contract(name: str) -> None:
    module, moves = conformance_subjects.module(name), conformance_subjects.IN.get(name, list)()
    config = module.Config(**conformance_subjects.SETTINGS.get(name, {}))
    report = conformance.check_module(module, config, trial=TRIALS.get(name), moves=moves)
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
def test_pursuit_keeps_the_contract_under_other_rules(changes: dict[str, Any]) -> None:
    world = pytest.importorskip("rematch.worlds.pursuit.world")
    report = conformance.check(world.make, world.Config(**changes), trial=Trial(steps=15))
    assert "resample" in report.passed


def test_luck_is_that_of_keys() -> None:
    seeds, steps = rng.words(5, rng.GAME, 4), np.array([0, 1, 7, 2**31])
    rows = [rng.units(int(seed), rng.RESET, 6, int(step)) for seed, step in zip(seeds, steps, strict=True)]
    assert np.array_equal(numpy_world.luck(seeds, steps, 6), np.stack(rows))


def test_worlds_that_resume_otherwise_are_excused_and_the_report_says_so() -> None:
    class Replayed(toys.Sticks):
        def promise(self, config: Any) -> Any:
            return vary(super().promise(config), resume="replay")

        def resample(self, rows: Any, seat: int, key: int) -> Any:
            raise NotImplementedError

    report = conformance.check(Replayed, toys.SticksConfig())
    assert report.skipped[0].startswith("resample (") and "resumes by replay" in str(report)
    assert {"determinism", "save and load", "rubbish"} <= set(report.passed)

    class Anew(toys.Sticks):
        def promise(self, config: Any) -> Any:
            return vary(super().promise(config), resume="episode")

        def load(self, rows: Any, states: Any) -> Any:
            raise NotImplementedError

    report = conformance.check(Anew, toys.SticksConfig())
    excused = {line.split(" (")[0] for line in report.skipped}
    assert {"determinism", "restart", "save and load", "rubbish", "resample"} <= excused


def test_hidden_things_that_resample_leaves_alone_must_be_named() -> None:
    secret = "other players' charms"
    report = conformance.check(HidesNothing, toys.SticksConfig(), trial=Trial(kept=(secret,)))
    assert f"that resample redraws what player does not see: {secret}" in report.skipped


# --- what the contract notices --------------------------------------------------------------------------


def vary(spec: Any, **changes: Any) -> Any:
    return dataclasses.replace(spec, **changes)


def naming(spec: Any, *choices: int) -> Any:
    """The spec of `sticks` whose pile names one of so many things."""
    role = spec.roles["player"]
    fields = (vary(role.fields[0], choices=choices, high=99.0), *role.fields[1:])
    return vary(spec, roles={"player": vary(role, fields=fields)})


class WrongShape(toys.Sticks):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.view.reward = self.view.reward[:, :2]


class WrongType(toys.Drift):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.view.length = self.view.length.astype(np.int64)


class NewArrays(toys.Drift):
    def step(self, actions: Any) -> Any:
        self.view.reward = self.view.reward.copy()
        return super().step(actions)


class NotANumber(toys.Drift):
    def show(self) -> None:
        super().show()
        self.view["rafter"]["raft"][self.state["time"] == 3] = np.nan


class OutOfBounds(toys.Sticks):
    def show(self) -> None:
        super().show()
        self.view["player"]["takes"] *= 12


class TooFewChoices(toys.Sticks):
    def promise(self, config: Any) -> Any:
        return naming(super().promise(config), 13, 13)


class NoSuchThing(toys.Sticks):  # the pile is shown as a share of the most
    def promise(self, config: Any) -> Any:
        return naming(super().promise(config), 13)


class OneThingTooMany(toys.Sticks):
    def promise(self, config: Any) -> Any:
        return naming(super().promise(config), 12)

    def show(self) -> None:
        super().show()
        self.view["player"]["pile"][:, :, 0] = np.where(self.state["pile"] > 3, 11, 12)[:, None]


class NotZeroSum(toys.Sticks):
    def rules(self, actions: Any) -> None:
        super().rules(actions)
        self.view.reward[self.view.ended == 1, 0] += 0.25


class BothWin(toys.Matching):
    def rules(self, actions: Any) -> None:
        super().rules(actions)
        self.view.outcome[:] = 1


class NoWayOut(toys.Sticks):
    def show(self) -> None:
        super().show()
        self.view.mask["player"][self.state["pile"] < 2] = 0


class Endless(toys.Drift):
    def rules(self, actions: Any) -> None:
        super().rules(actions)
        self.view.ended[0] = 0


class CutsOffUnsaid(toys.Matching):
    def rules(self, actions: Any) -> None:
        super().rules(actions)
        self.view.ended *= 2


class ReseatsInMidGame(toys.Sticks):
    def step(self, actions: Any) -> Any:
        view = super().step(actions)
        self.state["slot"] = self.next.slot
        return view


class StagesInMidGame(toys.Drift):
    def rules(self, actions: Any) -> None:
        self.state["place"] += np.float32(0.01) * self.next.stage[:, 0]
        super().rules(actions)


class IgnoresStage(toys.Drift):
    def begin(self, rows: Any, luck: Any) -> None:
        self.state["stage"][rows] = 0
        super().begin(rows, luck)


class HiddenGenerator(toys.Drift):
    dice = np.random.default_rng(0)

    def begin(self, rows: Any, luck: Any) -> None:
        super().begin(rows, self.dice.random(luck.shape))


class IgnoresSeed(toys.Drift):
    def begin(self, rows: Any, luck: Any) -> None:
        super().begin(rows, luck * 0)


class DependsOnBatch(toys.Drift):
    def rules(self, actions: Any) -> None:
        super().rules(actions)
        self.view.reward += self.games * np.float32(0.01)


class DependsOnRow(toys.Drift):
    def rules(self, actions: Any) -> None:
        super().rules(actions)
        self.view.reward[:, 0] += np.arange(self.games) * np.float32(0.01)


class Unclipped(toys.Drift):
    def rules(self, actions: Any) -> None:
        super().rules(actions)
        self.view.reward -= np.abs(actions["rafter"][:, :, 0])


class HeedsTheIdle(toys.Sticks):
    def rules(self, actions: Any) -> None:
        super().rules(actions)
        self.state["charm"] = (self.state["charm"] + actions["player"]) % 3


class Forgetful(toys.Drift):
    """Keeps a thing that matters outside its state."""

    def __init__(self, config: Any, games: int, first: int = 0, seed: int = 0) -> None:
        self.memory = np.zeros(games, np.float32)
        super().__init__(config, games, first, seed)

    def rules(self, actions: Any) -> None:
        super().rules(actions)
        self.memory[: self.games] = np.where(
            self.view.ended > 0, 0, self.memory[: self.games] * 0.5 + self.state["push"]
        )
        self.view.reward[:, 0] += self.memory[: self.games]

    def _part(self, cut: slice) -> Any:
        part = super()._part(cut)
        part.memory = self.memory[cut]
        return part


class Gullible(toys.Drift):
    def load(self, rows: Any, states: Any) -> None:
        self.state[rows] = np.resize(states, (len(rows), self.state.dtype.itemsize)).view(self.state.dtype)[
            :, 0
        ]
        self.show()


class Rude(toys.Drift):
    def load(self, rows: Any, states: Any) -> None:
        try:
            super().load(rows, states)
        except ConfigError as error:
            raise IndexError(str(error)) from None


class HalfLoads(toys.Drift):
    def load(self, rows: Any, states: Any) -> None:
        for row, state in zip(rows, states, strict=True):
            super().load(np.array([row]), state[None])


class Leaks(toys.Sticks):
    """Shows the sum of all charms in the pile's last decimals."""

    def show(self) -> None:
        super().show()
        self.view["player"]["pile"] *= 1 - 1e-4 * self.state["charm"].sum(1)[:, None, None]


class LeaksByMask(toys.Sticks):
    def show(self) -> None:
        super().show()
        self.view.mask["player"][:, 0, 1] &= self.state["charm"][:, 1] > 0


class HidesNothing(toys.Sticks):
    def forget(self, states: Any, seat: int, luck: Any) -> None:
        pass


class Stale(toys.Drift):
    def observe(self, rows: Any) -> Any:
        return self.view.fields


BROKEN = [
    (
        WrongShape,
        r"shapes: view.reward of a world just made: expected float32 \[5, 3\], found float32 \[5, 2\]",
    ),
    (WrongType, r"shapes: view.length .* expected int32 \[5\], found int64"),
    (NewArrays, r"borrowed arrays: view.reward is another array"),
    (NotANumber, r"values: view\['rafter'\]\['raft'\], column 'place', at step 2: nan, expected"),
    (
        OutOfBounds,
        r"values: view\['player'\]\['takes'\], column '\w+', at step \d+: .* expected a number in \[0, 1\]",
    ),
    (TooFewChoices, r"spec: role 'player', field 'pile': choices must be .* each of its 1 columns"),
    (NoSuchThing, r"values: .*'pile'\], column 'sticks', of a new world: 0\.\d+, expected .* from 0 to 12"),
    (OneThingTooMany, r"values: .*'pile'\], column 'sticks', at step \d+: 12\.0, expected .* from 0 to 11"),
    (NotZeroSum, r"zero sum: the rewards of game \d at step \d+ add to 0.25"),
    (BothWin, r"zero sum: the two outcomes of an ended game at step 4 must add to 1"),
    (NoWayOut, r"values: .* is to move and has no legal action"),
    (Endless, r"every game ends: game 0 still runs after 200 steps"),
    (CutsOffUnsaid, r"values: view.ended at step 4 is \[2 2 2 2 2\].*Spec.cutoffs is False"),
    (ReseatsInMidGame, r"slot: at step 0 world.slot is .*: it changes when its game ends"),
    (StagesInMidGame, r"restart: next.stage must not reach a game before its restart: at step"),
    (IgnoresStage, r"restart: a new next.stage changed nothing"),
    (HiddenGenerator, r"determinism: two worlds made alike part"),
    (IgnoresSeed, r"determinism: two seeds give the same games"),
    (DependsOnBatch, r"parts: stepped as 2 parts"),
    (DependsOnRow, r"parts: stepped as 2 parts, .*at step 0 view.reward of game \d is"),
    (Unclipped, r"actions: continuous moves beyond"),
    (HeedsTheIdle, r"actions: .*moves of seats that are not to move"),
    (Forgetful, r"save and load: saved before step \d, loaded, and played alike: at step \d+ view.reward"),
    (Gullible, r"rubbish: load took random bytes for states"),
    (Rude, r"rubbish: load of random bytes raised IndexError, expected ConfigError"),
    (HalfLoads, r"rubbish: load of one bad state among good ones was refused, yet it changed the world"),
    (Leaks, r"resample: seat 0 \(role 'player'\) can tell .*view\['player'\]\['pile'\] of game"),
    (LeaksByMask, r"resample: seat 0 .*view.mask\['player'\] of game"),
    (
        HidesNothing,
        r"resample: role 'player' names as hidden: other players' charms; .*look the same to everyone",
    ),
    (Stale, r"observe: observe\(\[4, 3, 2, 1, 0\]\)\['rafter'\]\['raft'\] is not the view's rows"),
]


@pytest.mark.parametrize(("kind", "line"), BROKEN, ids=[kind.__name__ for kind, _ in BROKEN])
def test_a_broken_promise_is_named(kind: Any, line: str) -> None:
    module = toys.TOYS[kind.__mro__[1].__name__.lower()]
    trial = dataclasses.replace(TRIALS[kind.__mro__[1].__name__.lower()], bound=200)
    with pytest.raises(BrokenPromise, match=line) as caught:
        conformance.check(kind, module.Config(), trial=trial)
    assert "\n" not in str(caught.value)


def test_batch_size_is_noticed_where_parts_do_not_show_it() -> None:
    class Crowded(toys.Drift):
        def __init__(self, config: Any, games: int, first: int = 0, seed: int = 0) -> None:
            super().__init__(config, games, first, seed + games)

    with pytest.raises(BrokenPromise, match="batch size: game 0 of 1 made with first=0 plays otherwise"):
        conformance.check(Crowded, toys.DriftConfig())


def most(seat: Any) -> Any:
    return seat.mask.sum(1).astype(np.int64) - 1


ROGUES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "peeking": (
        lambda seat, luck: np.minimum(seat.world.state["charm"][seat.rows].sum(1) % 3, most(seat)),
        "its move depends on what its seat cannot see",
    ),
    "greedy": (lambda seat, luck: np.full(len(seat.rows), 2), "a choice that is not legal"),
    "moody": (
        lambda seat, luck: HiddenGenerator.dice.integers(0, most(seat) + 1),
        "the same noise gave another move",
    ),
    "crowded": (
        lambda seat, luck: np.minimum(len(seat.rows) - 1, most(seat)),
        "asked about one game alone it moves otherwise",
    ),
    "vague": (lambda seat, luck: luck * 0, "choices must be whole numbers"),
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
        (blind, "moved, but field 'raft'"),
        (open_secret, "said to be hidden, but field 'raft'"),
    ):
        with pytest.raises(BrokenPromise, match=line):
            conformance.check(toys.Drift, toys.DriftConfig(), moves=[subject])
