"""Checks of time, chance and hidden state: two worlds are played side by side and must not differ."""

from __future__ import annotations

import numpy as np

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING, World
from rematch.worlds.conformance.playback import (
    Arrays,
    BrokenPromise,
    WorldUnderTest,
    difference,
    happened,
    observations,
    seen,
)


def check_observe(test: WorldUnderTest) -> None:
    """`observe` returns copies of the rows of the view, without privileged fields."""
    for moment in test.check_points():
        world = test.advanced(moment)
        for rows in (test.all_rows[::-1], test.all_rows[1:2], test.all_rows[:0]):
            for role, fields in world.observe(rows).items():
                wanted = {f.name for f in test.spec.roles[role].fields}
                test.require(
                    set(fields) == wanted,
                    f"observe()[{role!r}] holds {sorted(fields)}, expected {sorted(wanted)}: players are "
                    "shown the role's fields, and no privileged ones",
                )
                for field_name, array in fields.items():
                    whole = world.view[role][field_name]
                    same = array.shape == whole[rows].shape and np.array_equal(array, whole[rows])
                    test.require(
                        same, f"observe({rows.tolist()})[{role!r}][{field_name!r}] is not the view's rows"
                    )
                    test.require(
                        not np.shares_memory(array, whole), f"{role!r}/{field_name!r} must be a copy"
                    )


def check_determinism(test: WorldUnderTest) -> None:
    """One seed always gives the same games; another seed gives others, unless nothing is random."""
    where = test.first_difference(test.world(), test.world())
    test.require(not where, f"two worlds with the same seed differ: {where}")
    if test.trial.chance is None:
        return
    one, other = test.world(), test.world(seed=test.trial.seed + 1)
    differ = bool(difference(seen(one), seen(other))) or bool(test.first_difference(one, other))
    test.require(
        differ == test.trial.chance,
        "two seeds give the same games (if nothing in the rules is random, use Trial(chance=False))"
        if test.trial.chance
        else "games differ by seed, though chance is False",
    )


def check_actions(test: WorldUnderTest) -> None:
    """Actions of seats that are not to move change nothing; continuous actions are clipped to [-1, 1]."""
    clipped, unclipped = test.world(), test.world()
    for step in range(test.trial.steps):
        moves = test.actions(clipped, step)
        others = {role: move.copy() for role, move in moves.items()}
        for role in test.spec.roles.values():
            if role.actions.kind == "continuous":
                others[role.name] = 3 * moves[role.name]
                moves[role.name] = np.clip(others[role.name], -1, 1)
            idle = clipped.view.acting[:, role.seats] == 0
            others[role.name][idle] = 0
        clipped.step(moves)
        unclipped.step(others)
        where = difference(seen(clipped) | happened(clipped), seen(unclipped) | happened(unclipped))
        test.require(
            not where,
            "continuous actions beyond [-1, 1] must act as if clipped, and actions of seats that "
            f"are not to move must not matter: at step {step} {where}",
        )


def check_parts(test: WorldUnderTest) -> None:
    """A world that is stepped in parts shows the same as one that is stepped whole."""
    for count in sorted({1, 2, test.trial.games}):
        whole, split = test.world(), test.world()
        parts = split.parts(count)
        firsts = [0, *np.cumsum([part.games for part in parts]).tolist()]
        fine = len(parts) == count and firsts[-1] == split.games and [p.first for p in parts] == firsts[:-1]
        test.require(fine, f"parts({count}) must be {count} neighbours that make up all {split.games} games")
        for step in range(test.trial.steps):
            moves = test.actions(whole, step)
            whole.step(moves)
            for part in parts:
                part.step({role: move[part.first : part.first + part.games] for role, move in moves.items()})
            where = difference(seen(whole) | happened(whole), seen(split) | happened(split))
            test.require(
                not where,
                f"stepped as {count} parts, the whole world's view must show the same: at step "
                f"{step} {where}",
            )


def check_batch_size(test: WorldUnderTest) -> None:
    """A game does not depend on the number of games beside it."""
    last = test.trial.games - 1
    for first, games in ((0, 1), (last, 1), (1, last)):
        whole, few = test.world(), test.world(games, first)
        rows = slice(first, first + games)
        for (step, a), (_, b) in zip(test.steps(whole, 0), test.steps(few, 0), strict=True):
            where = difference({key: array[rows] for key, array in a.items()}, b)
            test.require(
                not where,
                f"game {first} of {games} made with first={first} plays differently from a "
                f"batch of {whole.games}: at step {step} {where}",
            )


def check_restart(test: WorldUnderTest) -> None:
    """`next` has an effect when a game restarts, and not before; check_values covers `next.slot`."""
    changes = {"seed": bool(test.trial.chance), "stage": bool(test.trial.stage and test.spec.stage)}
    if test.spec.stage and not changes["stage"]:
        test.skipped.append("effect of next.stage (no other legal stage was given: Trial(stage=…))")
    for what in (key for key, wanted in changes.items() if wanted):
        start = max(0, test.first_end - 3)
        one, other = test.advanced(start), test.advanced(start)
        if what == "seed":
            other.next.seed[:] += np.uint64(1)
        else:
            other.next.stage[:] = test.trial.stage
        running, reached = np.ones(test.trial.games, bool), False
        for (step, a), (_, b) in zip(test.steps(one, start), test.steps(other, start), strict=True):
            ended = running & (a["view.ended"] != RUNNING)
            where = difference(a, b, np.flatnonzero(running & ~ended))
            where = where or difference({k: a[k] for k in happened(one)}, b, np.flatnonzero(ended))
            test.require(
                not where, f"next.{what} must not reach a game before its restart: at step {step} {where}"
            )
            reached |= bool(difference({k: a[k] for k in seen(one)}, b, np.flatnonzero(ended)))
            running &= ~ended
        test.require(reached, f"a new next.{what} changed nothing in the games that restarted")


def check_save_and_load(test: WorldUnderTest) -> None:
    """A loaded state shows and plays the same as the saved one, in any row of any world."""
    for moment in test.check_points():
        world = test.advanced(moment)
        states = world.save(test.all_rows)
        fine = states.dtype == np.uint8 and states.ndim == 2 and len(states) == test.trial.games
        test.require(
            fine, f"save must give uint8 [{test.trial.games}, S], found {states.dtype} {states.shape}"
        )
        other = test.copy(world, states)
        test.require(np.array_equal(states, other.save(test.all_rows)), "save after load gives other bytes")
        where = difference(seen(world), seen(other))
        test.require(not where, f"loaded as saved before step {moment}: {where}")
        where = test.first_difference(world, other, moment)
        test.require(
            not where, f"saved before step {moment}, loaded, and played with the same actions: {where}"
        )
        before = seen(other)
        other.load(test.all_rows[:1], other.save(test.all_rows[-1:]))
        order = [-1, *range(1, test.trial.games)]
        where = difference({key: array[order] for key, array in before.items()}, seen(other))
        test.require(not where, f"the last game's state loaded into game 0: {where}")


def check_invalid_states(test: WorldUnderTest) -> None:
    """Bytes that are no state raise ConfigError and leave the world unchanged."""
    world = test.advanced(1)
    good, before = world.save(test.all_rows), seen(world)
    random_bytes = rng.words(test.trial.seed, rng.ACT, good.size).astype(np.uint8).reshape(good.shape)
    last = np.concatenate([good[1:], random_bytes[-1:]])  # good states, but of other games
    for what, bad in {
        "random bytes": random_bytes,
        "one bad state among good ones": last,
        "bytes 255": good | 255,
        "states one byte short": good[:, :-1].copy(),
        "no bytes": good[:, :0].copy(),
    }.items():
        try:
            world.load(test.all_rows, bad)
            test.require(
                False,
                f"load accepted {what}; a state should start with a magic word, and its ranges be checked",
            )
        except BrokenPromise:
            raise
        except ConfigError:
            pass
        except Exception as error:
            test.require(False, f"load of {what} raised {type(error).__name__}, expected ConfigError")
        unchanged = np.array_equal(world.save(test.all_rows), good) and not difference(before, seen(world))
        test.require(unchanged, f"load of {what} was refused, yet it changed the world")


def check_resample(test: WorldUnderTest) -> None:
    """No seat can tell a resampled state from the true one; what the spec calls hidden does change."""
    for seat in range(test.spec.seats):
        role, changed = test.spec.role_of(seat), False
        hidden = [what for what in role.hidden if what not in test.trial.fixed]
        for moment in test.check_points():
            world = test.advanced(moment)
            truth = world.save(test.all_rows)
            for key in range(12):
                if key > 2 and (changed or not hidden):
                    break  # three keys show leaks; further ones until something hidden changes
                states = world.resample(test.all_rows, seat, key)
                again = world.resample(test.all_rows, seat, key)
                test.require(
                    np.array_equal(states, again), f"seat {seat}: one key must always give the same states"
                )
                test.require(
                    np.array_equal(truth, world.save(test.all_rows)), "it must leave the world as it is"
                )
                other = test.copy(world, states)
                where = difference(seat_arrays(test, world, seat), seat_arrays(test, other, seat))
                test.require(
                    not where,
                    f"seat {seat} (role {role.name!r}) can tell a state with other hidden "
                    f"things from the true one, before step {moment}: {where}",
                )
                if hidden and not changed:
                    twin = test.copy(world, truth)
                    now = difference(seen(twin), seen(other))
                    later = test.first_difference(twin, other, moment + key)  # other actions for every key
                    changed = bool(now or later)
        test.require(
            changed or not hidden,
            f"role {role.name!r} names as hidden: {', '.join(hidden)}; but states resampled for "
            f"seat {seat} look the same to every seat, now and later",
        )
    for role in test.spec.roles.values():
        unchanged = [what for what in role.hidden if what in test.trial.fixed]
        if unchanged:
            names = ", ".join(unchanged)
            test.skipped.append(f"that resample redraws what {role.name} does not see: {names}")


def seat_arrays(test: WorldUnderTest, world: World, seat: int) -> Arrays:
    """Everything that this seat observes: its fields, its mask, whether it is to move."""
    role = test.spec.role_of(seat)
    index = role.seats.index(seat)
    privileged = {f"view[{role.name!r}][{f.name!r}]" for f in role.privileged}
    prefixes = (f"view[{role.name!r}]", f"view.mask[{role.name!r}]")
    shown = {
        key: array[:, index]
        for key, array in observations(world).items()
        if key.startswith(prefixes) and key not in privileged
    }
    return shown | {"view.acting": world.view.acting[:, seat]}
