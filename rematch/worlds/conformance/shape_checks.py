"""Checks of what can be read after every step: names, shapes, values, events."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rematch.core.world import CUT_OFF, RUNNING, World
from rematch.worlds.conformance.playback import WorldUnderTest, events, finals, observations, short

ENDS = "that every game ends"


def check_spec(test: WorldUnderTest) -> None:
    """The spec is complete and names everything once; a world offers event log and points, or None."""
    seats = sorted(seat for role in test.spec.roles.values() for seat in role.seats)
    test.require(
        bool(seats) and seats == list(range(len(seats))), f"seats must be 0, 1, …, each once, found {seats}"
    )
    for key, role in test.spec.roles.items():
        test.require(role.name == key, f"role {key!r} has the name {role.name!r}")
        whole = bool(role.fields and role.actions.size and role.seats)
        test.require(whole, f"role {key!r} lacks a field, an action or a seat")
        kind = role.actions.kind
        test.require(
            kind in ("continuous", "discrete"),
            f"role {key!r}: the kind of its actions is {kind!r}, expected 'continuous' or 'discrete'",
        )
        quantities = len(role.actions.quantities)
        test.require(
            quantities == 0 or (kind == "continuous" and quantities == role.actions.size),
            f"role {key!r}: {quantities} quantities for {role.actions.size} {kind} actions",
        )
        every = role.fields + role.privileged
        once = len({f.name for f in every}) == len(every)
        once &= all(len(set(f.columns)) == f.size for f in every)
        test.require(once, f"role {key!r} names a field or a column twice")
        for f in every:
            test.require(
                not f.shape or int(np.prod(f.shape)) == f.size,
                f"role {key!r}, field {f.name!r}: shape {f.shape} is not that of its {f.size} columns",
            )
            test.require(
                f.size > 0 and f.low < f.high,
                f"role {key!r}, field {f.name!r}: no columns, or low {f.low} is not below high {f.high}",
            )
            test.require(
                len(f.quantities) in (0, f.size),
                f"role {key!r}, field {f.name!r}: quantities must be one for each of its {f.size} columns, "
                f"found {len(f.quantities)}",
            )
            valid = not f.categories or (len(f.categories) == f.size and min(f.categories) > 0)
            test.require(
                valid,
                f"role {key!r}, field {f.name!r}: categories must be a number for each of its "
                f"{f.size} columns, found {f.categories}",
            )
    world = test.world(2, first=3)
    test.require(
        (world.games, world.first) == (2, 3), "world.games and world.first must be what make was given"
    )
    log = world.event_log
    milestones = test.spec.role_of(0).milestones
    test.require(log is None or bool(milestones), "the world has an event log, but no column milestone_NAME")
    if log is not None:
        unknown = set(log.headlines) - set(milestones)
        test.require(not unknown, f"headlines without a column milestone_NAME: {sorted(unknown)}")


def check_shapes(test: WorldUnderTest) -> None:
    """Every array has the type and shape that the spec promises."""
    world, spec, games = test.world(), test.spec, test.trial.games
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
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
                expected[f"{word}[{role.name!r}][{f.name!r}]"] = (
                    np.float32,
                    (games, len(role.seats), f.size),
                )
        if role.name in world.view.mask:
            expected[f"view.mask[{role.name!r}]"] = (np.uint8, (games, len(role.seats), role.actions.size))
    for now in ("made", "stepped"):
        actual = (
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
        missing, extra = sorted(expected.keys() - actual.keys()), sorted(actual.keys() - expected.keys())
        test.require(not missing, f"{missing[:1]} is missing")
        test.require(
            not extra, f"{extra[:1]} is not in the spec" + " (cutoffs is False)" * (not spec.cutoffs)
        )
        for array_name, (kind, shape) in expected.items():
            array = actual[array_name]
            flat = (*array.shape[:2], int(np.prod(array.shape[2:]))) if len(shape) == 3 else array.shape
            test.require(
                array.dtype == kind and flat == shape,
                f"{array_name} of a world just {now}: expected {np.dtype(kind)} {list(shape)}, "
                f"found {array.dtype} {list(array.shape)}",
            )
        if now == "made":
            world.step(test.actions(world, 0))


def check_borrowed_arrays(test: WorldUnderTest) -> None:
    """A world writes into the same arrays at every step."""
    world = test.world()
    view, before = world.view, observations(world) | finals(world) | events(world)
    for step in range(3):
        test.require(world.step(test.actions(world, step)) is view, "step must return world.view")
        for array_name, array in (observations(world) | finals(world) | events(world)).items():
            same = array is before[array_name]
            test.require(same, f"{array_name} is another array after a step; write into the first one")


def check_values(test: WorldUnderTest) -> None:
    """Play until every game has ended once; after every step all arrays hold valid values."""
    world = test.world()
    finished = np.zeros(test.trial.games, bool)
    length, slot = np.zeros(test.trial.games, np.int32), np.array(world.slot)
    require_valid_observations(test, world, "of a new world")
    within_time = test.timer()
    for step in range(test.trial.bound):
        world.next.slot[:] = step + 1
        view = world.step(test.actions(world, step))
        when, ended = f"at step {step}", view.ended != RUNNING
        require_valid_observations(test, world, when)
        require_valid_step(test, world, when)
        counted = bool((view.length == length + 1).all())
        test.require(counted, f"view.length {when} is {short(view.length)}, expected {short(length + 1)}")
        wanted = np.where(ended[:, None], world.next.slot, slot)
        test.require(
            np.array_equal(world.slot, wanted),
            f"{when} world.slot is {short(world.slot)}, expected "
            f"{short(wanted)}: it changes when its game ends, to next.slot, and at no other time",
            name="slot",
        )
        length, slot = np.where(ended, 0, view.length), wanted.astype(np.int32)
        finished |= ended
        test.first_end = test.first_end or step * bool(ended.any())
        if finished.all():
            return
        if not within_time():
            break
    if math.isfinite(test.trial.seconds):
        ended = f"{int(finished.sum())} of {test.trial.games} games ended within {step + 1} steps"
        test.skipped.append(f"{ENDS} ({ended} of random play)")
        return
    still = np.flatnonzero(~finished)
    test.require(
        False,
        f"game {still[0]} still runs after {test.trial.bound} steps of random play",
        name="every game ends",
    )


def require_valid_observations(test: WorldUnderTest, world: World, when: str) -> None:
    """Observations are finite and within bounds, and every seat that is to move has a legal action."""
    view = world.view
    for role in test.spec.roles.values():
        for f in role.fields + role.privileged:
            shown = [("view", view.fields, slice(None))]
            shown += [("view.final", view.final, view.ended == CUT_OFF)] * test.spec.cutoffs
            for word, obs, rows in shown:
                array = obs[role.name][f.name][rows].reshape(-1, f.size)
                outside = ~((array >= f.low) & (array <= f.high))  # catches NaN too
                if f.categories:  # each is an index: networks look it up in a table
                    outside |= (array < 0) | (array >= f.categories) | (array != np.floor(array))
                if outside.any():
                    row, column = np.argwhere(outside)[0]
                    where = f"{word}[{role.name!r}][{f.name!r}], column {f.columns[column]!r}, {when}"
                    bounds = f"a number in [{f.low:g}, {f.high:g}]"
                    if f.categories:
                        bounds = f"a whole number from 0 to {f.categories[column] - 1}, within its bounds"
                    test.require(False, f"{where}: {array[row, column]}, expected {bounds}")
        mask = view.mask.get(role.name)
        if mask is not None:
            test.require(
                bool((mask <= 1).all()), f"view.mask[{role.name!r}] {when} holds other numbers than 0 and 1"
            )
            stuck = np.argwhere((view.acting[:, role.seats] == 1) & (mask.sum(-1) == 0))
            test.require(
                not stuck.size,
                f"{when} a seat of role {role.name!r} is to move and has no legal action "
                f"(game, place: {stuck[:1].tolist()})",
            )
    test.require(bool((view.acting <= 1).all()), f"view.acting {when} holds other numbers than 0 and 1")
    idle = np.flatnonzero(view.acting.sum(1) == 0)
    test.require(not idle.size, f"{when} no seat is to move in game {idle[:1]}")


def require_valid_step(test: WorldUnderTest, world: World, when: str) -> None:
    """Reward, ended and outcome of a step mean what they say."""
    view, spec = world.view, test.spec
    test.require(
        bool(np.isfinite(view.reward).all()), f"view.reward {when} is not finite: {short(view.reward)}"
    )
    highest = CUT_OFF if spec.cutoffs else CUT_OFF - 1
    test.require(
        bool((view.ended <= highest).all()),
        f"view.ended {when} is {short(view.ended)}, at most {highest} "
        f"is possible where Spec.cutoffs is {spec.cutoffs}",
    )
    outcome = view.outcome[view.ended != RUNNING]
    within = bool(((outcome >= 0) & (outcome <= 1)).all())
    test.require(within, f"view.outcome {when} is {short(outcome)}, expected 0 to 1")
    if not spec.zero_sum:
        return
    total, size = np.abs(view.reward.sum(1)), 1 + np.abs(view.reward).sum(1)
    worst = int((total / size).argmax())
    test.require(
        total[worst] <= 1e-5 * size[worst],
        f"the rewards of game {worst} {when} add to "
        f"{view.reward[worst].sum():g}: {short(view.reward[worst])}",
        name="zero sum",
    )
    if spec.seats == 2:
        test.require(
            bool((np.abs(outcome.sum(1) - 1) < 1e-6).all()),
            f"the two outcomes of an ended game {when} must add to 1: {short(outcome)}",
            name="zero sum",
        )
