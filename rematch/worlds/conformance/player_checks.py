"""Checks of bots, and of fields that claim to show a part of the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes
from rematch.core.player import Player, RngKey, Seat
from rematch.core.stepping import seat_at
from rematch.core.world import World
from rematch.worlds.conformance.playback import WorldUnderTest, difference, seen, short


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A part of the state and the field that claims to show it. An empty field: hidden from that role."""

    name: str
    role: str
    field: str
    change: Callable[[Bytes], Bytes]  # saved states [n, S] -> the same states with the subject changed
    columns: tuple[str, ...] = ()  # columns of the field of which one must change; empty: any


def check_bots(test: WorldUnderTest, bots: Mapping[str, Sequence[Player]]) -> None:
    for role_name, players in bots.items():
        test.start("bots")
        known = ", ".join(test.spec.roles)
        test.require(role_name in test.spec.roles, f"there is no role {role_name!r}: expected one of {known}")
        for player in players:
            test.start(f"bot {role_name}/{player.name}")
            for seat in test.spec.roles[role_name].seats:
                check_player(test, player, seat)
            test.passed.append(test.check)
    if not bots:
        test.skipped.append("bots (none were given)")
    elif test.spec.resume != "state":
        test.skipped.append(f"that bots see nothing hidden (the world resumes by {test.spec.resume})")
    elif test.trial.all_seeing:
        test.skipped.append("that bots see nothing hidden (they read the true state)")


def check_player(test: WorldUnderTest, player: Player, seat: int) -> None:
    """A player of one seat acts legally, depends on game and random key alone, and on nothing hidden."""
    world, role = test.world(), test.spec.role_of(seat)
    index = role.seats.index(seat)
    for step in range(test.trial.steps):
        actions = test.actions(world, step)
        rows = np.flatnonzero(world.view.acting[:, seat]).astype(np.int32)
        if rows.size:
            now, rng_key = f"at step {step}, seat {seat}", RngKey(test.trial.seed, rng.BOT, step)
            before, decision = seen(world), seat_at(world, seat, rows)
            action = player.act(decision, rng_key).action
            require_legal(test, now, decision, action)
            unchanged = not difference(before, seen(world))
            test.require(unchanged, f"{now}: choosing an action changed the world")
            again = player.act(seat_at(world, seat, rows), rng_key).action
            test.require(np.array_equal(action, again), f"{now}: the same random key gave another action")
            last = player.act(seat_at(world, seat, rows[-1:]), rng_key).action
            test.require(np.array_equal(action[-1:], last), f"{now}: for one game alone it acts differently")
            if test.spec.resume == "state" and not test.trial.all_seeing:
                other = test.copy(world, world.resample(test.all_rows, seat, step))
                blind = player.act(seat_at(other, seat, rows), rng_key).action
                test.require(
                    np.array_equal(action, blind), f"{now}: its action depends on what its seat cannot see"
                )
            actions[role.name][rows, index] = action
        world.step(actions)


def require_legal(test: WorldUnderTest, now: str, decision: Seat, action: NDArray[Any]) -> None:
    actions, count = decision.role.actions, len(decision.rows)
    shape = (count, actions.size) if actions.kind == "continuous" else (count,)
    test.require(action.shape == shape, f"{now}: expected actions {list(shape)}, found {list(action.shape)}")
    if actions.kind == "continuous":
        test.require(bool((np.abs(action) <= 1).all()), f"{now}: an action outside [-1, 1]: {short(action)}")
        return
    test.require(
        np.issubdtype(action.dtype, np.integer),
        f"{now}: discrete actions must be whole numbers, found {action.dtype}",
    )
    fine = (action >= 0) & (action < actions.size)
    if decision.mask is not None and fine.all():
        fine &= decision.mask[np.arange(count), action] == 1
    test.require(bool(fine.all()), f"{now}: an action that is not legal: {short(action)}")


def check_subjects(test: WorldUnderTest, moves: Sequence[Subject]) -> None:
    """Each subject is changed in saved states: the field that claims to show it changes, in every game."""
    if not moves or test.spec.resume != "state":
        why = f"the world resumes by {test.spec.resume}" if moves else "no subjects were given"
        test.skipped.append(f"that fields show what they claim to ({why})")
        return
    for subject in moves:
        role = test.spec.roles[subject.role]
        test.start(f"subject {subject.name} for {subject.role}")
        for moment in test.check_points():
            world = test.advanced(moment)
            other = test.copy(world, subject.change(world.save(test.all_rows)))
            require_shown(test, f"before step {moment}", subject, world, other)
        columns = {f.name: f.columns for f in role.fields} | {"": ()}
        fine = subject.field in columns and set(subject.columns) <= set(columns[subject.field])
        test.require(fine, f"there is no field {subject.field!r} with columns {subject.columns}")
        test.passed.append(test.check)


def require_shown(test: WorldUnderTest, when: str, subject: Subject, world: World, other: World) -> None:
    """The right columns differ between a world and one in which the subject was changed."""
    for f in test.spec.roles[subject.role].fields:
        a, b = world.view[subject.role][f.name], other.view[subject.role][f.name]
        changed = (a != b).reshape(len(a), -1, f.size)  # [N, seats of the role, columns]
        if not subject.field:
            test.require(not changed.any(), f"{when}: it is said to be hidden, but field {f.name!r} shows it")
        elif f.name == subject.field:
            wanted = [c in subject.columns or not subject.columns for c in f.columns]
            all_do = bool(changed[:, :, wanted].any((1, 2)).all())
            test.require(
                all_do, f"{when}: it was changed, but field {f.name!r} {subject.columns or ''} is as before"
            )
