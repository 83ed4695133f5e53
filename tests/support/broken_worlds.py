"""Worlds that each break one promise, and the line in which the conformance test says so."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from rematch.core.errors import ConfigError
from support import toys


def vary(spec: Any, **changes: Any) -> Any:
    return dataclasses.replace(spec, **changes)


def naming(spec: Any, *categories: int) -> Any:
    """The spec of `sticks` whose pile names one of so many things."""
    role = spec.roles["player"]
    fields = (vary(role.fields[0], categories=categories, high=99.0), *role.fields[1:])
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
    def write_observations(self) -> None:
        super().write_observations()
        self.view["rafter"]["raft"][self.state["time"] == 3] = np.nan


class OutOfBounds(toys.Sticks):
    def write_observations(self) -> None:
        super().write_observations()
        self.view["player"]["takes"] *= 12


class TooFewChoices(toys.Sticks):
    @classmethod
    def make_spec(cls, config: Any) -> Any:
        return naming(super().make_spec(config), 13, 13)


class NoSuchThing(toys.Sticks):  # the pile is shown as a share of the most
    @classmethod
    def make_spec(cls, config: Any) -> Any:
        return naming(super().make_spec(config), 13)


class OneThingTooMany(toys.Sticks):
    @classmethod
    def make_spec(cls, config: Any) -> Any:
        return naming(super().make_spec(config), 12)

    def write_observations(self) -> None:
        super().write_observations()
        self.view["player"]["pile"][:, :, 0] = np.where(self.state["pile"] > 3, 11, 12)[:, None]


class NotZeroSum(toys.Sticks):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.reward[self.view.ended == 1, 0] += 0.25


class BothWin(toys.Matching):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.outcome[:] = 1


class NoWayOut(toys.Sticks):
    def write_observations(self) -> None:
        super().write_observations()
        self.view.mask["player"][self.state["pile"] < 2] = 0


class Endless(toys.Drift):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.ended[0] = 0


class CutsOffUnsaid(toys.Matching):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.ended *= 2


class ReseatsInMidGame(toys.Sticks):
    def step(self, actions: Any) -> Any:
        view = super().step(actions)
        self.state["slot"] = self.next.slot
        return view


class StagesInMidGame(toys.Drift):
    def apply_actions(self, actions: Any) -> None:
        self.state["place"] += np.float32(0.01) * self.next.stage[:, 0]
        super().apply_actions(actions)


class IgnoresStage(toys.Drift):
    def reset_games(self, rows: Any, uniform: Any) -> None:
        self.state["stage"][rows] = 0
        super().reset_games(rows, uniform)


class HiddenGenerator(toys.Drift):
    dice = np.random.default_rng(0)

    def reset_games(self, rows: Any, uniform: Any) -> None:
        super().reset_games(rows, self.dice.random(uniform.shape))


class IgnoresSeed(toys.Drift):
    def reset_games(self, rows: Any, uniform: Any) -> None:
        super().reset_games(rows, uniform * 0)


class DependsOnBatch(toys.Drift):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.reward += self.games * np.float32(0.01)


class DependsOnRow(toys.Drift):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.reward[:, 0] += np.arange(self.games) * np.float32(0.01)


class Unclipped(toys.Drift):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.reward -= np.abs(actions["rafter"][:, :, 0])


class HeedsTheIdle(toys.Sticks):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.state["charm"] = (self.state["charm"] + actions["player"]) % 3


class Forgetful(toys.Drift):
    """Keeps a thing that matters outside its state."""

    def __init__(self, config: Any, games: int, first: int = 0, seed: int = 0) -> None:
        self.memory = np.zeros(games, np.float32)
        super().__init__(config, games, first, seed)

    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
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
        self.write_observations()


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

    def write_observations(self) -> None:
        super().write_observations()
        self.view["player"]["pile"] *= 1 - 1e-4 * self.state["charm"].sum(1)[:, None, None]


class LeaksByMask(toys.Sticks):
    def write_observations(self) -> None:
        super().write_observations()
        self.view.mask["player"][:, 0, 1] &= self.state["charm"][:, 1] > 0


class HidesNothing(toys.Sticks):
    def resample_hidden(self, states: Any, seat: int, uniform: Any) -> None:
        pass


class Stale(toys.Drift):
    def observe(self, rows: Any) -> Any:
        return self.view.fields


class AllToMove(toys.Sticks):
    """A turn-based game that never writes view.acting."""

    def write_observations(self) -> None:
        super().write_observations()
        self.view.acting[:] = 1


class DeafToOne(toys.Matching):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions | {"hider": actions["hider"] * 0})


class NoReward(toys.Sticks):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.reward[:] = 0


class NoWinner(toys.Matching):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.outcome[:] = 0.5


class FirstSeatLoses(toys.Sticks):
    def apply_actions(self, actions: Any) -> None:
        super().apply_actions(actions)
        self.view.outcome[:] = (0, 1, 1)


BROKEN = [
    (AllToMove, r"turns: view.acting says \d+ times that several seats .*whose turn it is"),
    (DeafToOne, r"turns: seat 1 was to move 150 times .* and its action never changed"),
    (NoReward, r"rewards: every reward in 20\d games of random play is 0, .*: write view.reward"),
    (NoWinner, r"outcomes: the outcome of all 20\d games .* is \[0.5 0.5\], .*write view.outcome"),
    (FirstSeatLoses, r"outcomes: the outcome of all 20\d games of random play is \[0. 1. 1.\]"),
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
    (TooFewChoices, r"spec: role 'player', field 'pile': categories must be .* each of its 1 columns"),
    (NoSuchThing, r"values: .*'pile'\], column 'sticks', of a new world: 0\.\d+, expected .* from 0 to 12"),
    (OneThingTooMany, r"values: .*'pile'\], column 'sticks', at step \d+: 12\.0, expected .* from 0 to 11"),
    (NotZeroSum, r"zero sum: the rewards of game \d at step \d+ add to 0.25"),
    (BothWin, r"zero sum: the two outcomes of an ended game at step 4 must add to 1"),
    (NoWayOut, r"values: .* is to move and has no legal action"),
    (Endless, r"every game ends: game 0 still runs after 300 steps"),
    (CutsOffUnsaid, r"values: view.ended at step 4 is \[2 2 2 2 2\].*Spec.cutoffs is False"),
    (ReseatsInMidGame, r"slot: at step 0 world.slot is .*: it changes when its game ends"),
    (StagesInMidGame, r"restart: next.stage must not reach a game before its restart: at step"),
    (IgnoresStage, r"restart: a new next.stage changed nothing"),
    (HiddenGenerator, r"determinism: two worlds with the same seed differ"),
    (IgnoresSeed, r"determinism: two seeds give the same games"),
    (DependsOnBatch, r"parts: stepped as 2 parts"),
    (DependsOnRow, r"parts: stepped as 2 parts, .*at step 0 view.reward of game \d is"),
    (Unclipped, r"actions: continuous actions beyond"),
    (HeedsTheIdle, r"actions: .*actions of seats that are not to move"),
    (Forgetful, r"save and load: saved before .*, and played with the same actions: at step \d+ view.reward"),
    (Gullible, r"invalid states: load accepted random bytes"),
    (Rude, r"invalid states: load of random bytes raised IndexError, expected ConfigError"),
    (HalfLoads, r"invalid states: load of one bad state .* was refused, yet it changed the world"),
    (Leaks, r"resample: seat 0 \(role 'player'\) can tell .*view\['player'\]\['pile'\] of game"),
    (LeaksByMask, r"resample: seat 0 .*view.mask\['player'\] of game"),
    (
        HidesNothing,
        r"resample: role 'player' names as hidden: other players' charms; .*look the same to every seat",
    ),
    (Stale, r"observe: observe\(\[4, 3, 2, 1, 0\]\)\['rafter'\]\['raft'\] is not the view's rows"),
]
