"""What can be read off a world, step by step: the first half of `contract`. Names, shapes, values, events."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.core.errors import ConfigError
from rematch.core.world import CUT_OFF, RUNNING, World
from rematch.worlds.conformance.playback import Make, Playing, Trial, events, finals, observations, short


class BrokenPromise(ConfigError):
    """A world does not do what its spec says."""


class Reading(Playing):
    """One world under test; each method is a promise, called with the promise's name."""

    def __init__(self, make: Make, config: Any, trial: Trial) -> None:
        super().__init__(make, config, trial)
        self.spec = self.world().spec
        self.first_end = 0  # the step that ends a game first under our own moves

    def hold(self, kept: bool, promise: str, otherwise: str) -> None:
        if not kept:
            raise BrokenPromise(f"{self.spec.world}: {promise}: {otherwise}")

    def naming(self, name: str) -> None:
        seats = sorted(seat for role in self.spec.roles.values() for seat in role.seats)
        self.hold(
            bool(seats) and seats == list(range(len(seats))),
            name,
            f"seats must be 0, 1, …, each once, found {seats}",
        )
        for key, role in self.spec.roles.items():
            self.hold(role.name == key, name, f"role {key!r} calls itself {role.name!r}")
            whole = bool(role.fields and role.actions.size and role.seats)
            self.hold(whole, name, f"role {key!r} lacks a field, an action or a seat")
            every = role.fields + role.privileged
            once = len({f.name for f in every}) == len(every)
            once &= all(len(set(f.columns)) == f.size for f in every)
            self.hold(once, name, f"role {key!r} names a field or a column twice")
            for f in every:
                self.hold(
                    not f.shape or int(np.prod(f.shape)) == f.size,
                    name,
                    f"role {key!r}, field {f.name!r}: shape {f.shape} is not that of its {f.size} columns",
                )
                self.hold(
                    f.size > 0 and f.low < f.high,
                    name,
                    f"role {key!r}, field {f.name!r}: no columns, or low {f.low} is not below high {f.high}",
                )
                kept = not f.categories or (len(f.categories) == f.size and min(f.categories) > 0)
                self.hold(
                    kept,
                    name,
                    f"role {key!r}, field {f.name!r}: choices must be a number of things for each of its "
                    f"{f.size} columns, found {f.categories}",
                )
        world = self.world(2, first=3)
        self.hold(
            (world.games, world.first) == (2, 3),
            name,
            "world.games and world.first must be what make was given",
        )

    def shapes(self, name: str) -> None:
        world, spec, games = self.world(), self.spec, self.trial.games
        for_all: dict[str, tuple[Any, tuple[int, ...]]] = {
            "view.acting": (np.uint8, (games, spec.seats)),
            "view.reward": (np.float32, (games, spec.seats)),
            "view.ended": (np.uint8, (games,)),
            "view.outcome": (np.float32, (games, spec.seats)),
            "view.length": (np.int32, (games,)),
            "world.slot": (np.int32, (games, spec.seats)),
            "next.seed": (np.uint64, (games,)),
            "next.slot": (np.int32, (games, spec.seats)),
            "next.stage": (np.float32, (games, len(spec.stage))),
        }
        for role in spec.roles.values():
            for f in role.fields + role.privileged:
                for word in ("view", "view.final")[: 1 + spec.cutoffs]:
                    for_all[f"{word}[{role.name!r}][{f.name!r}]"] = (
                        np.float32,
                        (games, len(role.seats), f.size),
                    )
            if role.name in world.view.mask:
                for_all[f"view.mask[{role.name!r}]"] = (np.uint8, (games, len(role.seats), role.actions.size))
        for now in ("made", "stepped"):
            found = (
                observations(world)
                | finals(world)
                | events(world)
                | {
                    "world.slot": world.slot,
                    "next.seed": world.next.seed,
                    "next.slot": world.next.slot,
                    "next.stage": world.next.stage,
                }
            )
            missing, extra = sorted(for_all.keys() - found.keys()), sorted(found.keys() - for_all.keys())
            self.hold(not missing, name, f"{missing[:1]} is missing")
            self.hold(
                not extra,
                name,
                f"{extra[:1]} is not in the spec" + " (cutoffs is False)" * (not spec.cutoffs),
            )
            for array_name, (kind, shape) in for_all.items():
                array = found[array_name]
                flat = (*array.shape[:2], int(np.prod(array.shape[2:]))) if len(shape) == 3 else array.shape
                self.hold(
                    array.dtype == kind and flat == shape,
                    name,
                    f"{array_name} of a world just {now}: expected {np.dtype(kind)} {list(shape)}, "
                    f"found {array.dtype} {list(array.shape)}",
                )
            if now == "made":
                world.step(self.actions(world, 0))

    def borrowing(self, name: str) -> None:
        world = self.world()
        view, before = world.view, observations(world) | finals(world) | events(world)
        for step in range(3):
            self.hold(
                world.step(self.actions(world, step)) is view,
                name,
                "step must return the view the world keeps",
            )
            for array_name, array in (observations(world) | finals(world) | events(world)).items():
                same = array is before[array_name]
                self.hold(
                    same, name, f"{array_name} is another array after a step; write into the one there was"
                )

    def values(self, name: str) -> None:
        """Plays until every game has ended once, reading every array after every step."""
        world = self.world()
        over = np.zeros(self.trial.games, bool)
        length, slot = np.zeros(self.trial.games, np.int32), np.array(world.slot)
        self.look(name, world, "of a new world")
        for step in range(self.trial.bound):
            world.next.slot[:] = step + 1
            view = world.step(self.actions(world, step))
            when, ended = f"at step {step}", view.ended != RUNNING
            self.look(name, world, when)
            self.events(name, world, when)
            kept = bool((view.length == length + 1).all())
            self.hold(kept, name, f"view.length {when} is {short(view.length)}, expected {short(length + 1)}")
            wanted = np.where(ended[:, None], world.next.slot, slot)
            self.hold(
                np.array_equal(world.slot, wanted),
                "slot",
                f"{when} world.slot is {short(world.slot)}, expected "
                f"{short(wanted)}: it changes when its game ends, to next.slot, and at no other time",
            )
            length, slot, over = np.where(ended, 0, view.length), wanted.astype(np.int32), over | ended
            self.first_end = self.first_end or step * bool(ended.any())
            if over.all():
                return
        still = np.flatnonzero(~over)
        self.hold(
            False,
            "every game ends",
            f"game {still[0]} still runs after {self.trial.bound} steps of random play",
        )

    def look(self, name: str, world: World, when: str) -> None:
        """What the seats see is finite and within bounds, and whoever is to move has a legal action."""
        view = world.view
        for role in self.spec.roles.values():
            for f in role.fields + role.privileged:
                shown = [("view", view.fields, slice(None))]
                shown += [("view.final", view.final, view.ended == CUT_OFF)] * self.spec.cutoffs
                for word, obs, rows in shown:
                    array = obs[role.name][f.name][rows].reshape(-1, f.size)
                    outside = ~((array >= f.low) & (array <= f.high))  # catches NaN too
                    if f.categories:  # columns that name one of n things: networks look them up
                        outside |= (array < 0) | (array >= f.categories) | (array != np.floor(array))
                    if outside.any():
                        row, column = np.argwhere(outside)[0]
                        where = f"{word}[{role.name!r}][{f.name!r}], column {f.columns[column]!r}, {when}"
                        bounds = f"a number in [{f.low:g}, {f.high:g}]"
                        if f.categories:
                            bounds = f"a whole number from 0 to {f.categories[column] - 1}, within its bounds"
                        self.hold(False, name, f"{where}: {array[row, column]}, expected {bounds}")
            mask = view.mask.get(role.name)
            if mask is not None:
                self.hold(
                    bool((mask <= 1).all()),
                    name,
                    f"view.mask[{role.name!r}] {when} holds other numbers than 0 and 1",
                )
                stuck = np.argwhere((view.acting[:, role.seats] == 1) & (mask.sum(-1) == 0))
                self.hold(
                    not stuck.size,
                    name,
                    f"{when} a seat of role {role.name!r} is to move and has no legal action "
                    f"(game, place: {stuck[:1].tolist()})",
                )
        self.hold(
            bool((view.acting <= 1).all()), name, f"view.acting {when} holds other numbers than 0 and 1"
        )
        idle = np.flatnonzero(view.acting.sum(1) == 0)
        self.hold(not idle.size, name, f"{when} nobody is to move in game {idle[:1]}")

    def events(self, name: str, world: World, when: str) -> None:
        """Reward, ended and outcome of a step mean what they say."""
        view, spec = world.view, self.spec
        self.hold(
            bool(np.isfinite(view.reward).all()),
            name,
            f"view.reward {when} is not finite: {short(view.reward)}",
        )
        highest = CUT_OFF if spec.cutoffs else CUT_OFF - 1
        self.hold(
            bool((view.ended <= highest).all()),
            name,
            f"view.ended {when} is {short(view.ended)}, at most {highest} "
            f"is possible where Spec.cutoffs is {spec.cutoffs}",
        )
        outcome = view.outcome[view.ended != RUNNING]
        within = bool(((outcome >= 0) & (outcome <= 1)).all())
        self.hold(within, name, f"view.outcome {when} is {short(outcome)}, expected 0 to 1")
        if not spec.zero_sum:
            return
        total, size = np.abs(view.reward.sum(1)), 1 + np.abs(view.reward).sum(1)
        worst = int((total / size).argmax())
        self.hold(
            total[worst] <= 1e-5 * size[worst],
            "zero sum",
            f"the rewards of game {worst} {when} add to "
            f"{view.reward[worst].sum():g}: {short(view.reward[worst])}",
        )
        if spec.seats == 2:
            self.hold(
                bool((np.abs(outcome.sum(1) - 1) < 1e-6).all()),
                "zero sum",
                f"the two outcomes of an ended game {when} must add to 1: {short(outcome)}",
            )
