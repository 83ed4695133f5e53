"""What a world promises about time, chance and hidden things: the second half of `contract`.

Each is checked by playing two worlds side by side and requiring that nothing that can be read differs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.core import rng
from rematch.core.arrays import Bytes, Ints
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING, World
from rematch.worlds.conformance.playback import Arrays, Make, Trial, difference, happened, observations, seen
from rematch.worlds.conformance.shape_checks import BrokenPromise, Reading


class Replaying(Reading):
    """One world under test, against copies of itself."""

    def __init__(self, make: Make, config: Any, trial: Trial) -> None:
        super().__init__(make, config, trial)
        self.everyone: Ints = np.arange(trial.games, dtype=np.int32)
        self.skipped: list[str] = []  # what was not checked, and why

    def moments(self) -> list[int]:
        """Steps worth looking at: the start, early on, and just before a game ends."""
        return sorted({0, min(2, self.first_end), max(0, self.first_end - 3)})

    def copy(self, world: World, states: Bytes) -> World:
        """Another world, made from another seed, with these states in it and the same `next`."""
        other = self.world(first=world.first, seed=self.trial.seed + 1)
        for name in ("seed", "slot", "stage"):
            getattr(other.next, name)[:] = getattr(world.next, name)
        other.load(self.everyone, states)
        return other

    # --- time and chance ---

    def observing(self, name: str) -> None:
        for moment in self.moments():
            world = self.advanced(moment)
            for rows in (self.everyone[::-1], self.everyone[1:2], self.everyone[:0]):
                for role, fields in world.observe(rows).items():
                    wanted = {f.name for f in self.spec.roles[role].fields}
                    self.hold(
                        set(fields) == wanted,
                        name,
                        f"observe()[{role!r}] holds {sorted(fields)}, expected {sorted(wanted)}: players are "
                        "shown the role's fields, and nothing aside",
                    )
                    for field_name, array in fields.items():
                        mine = world.view[role][field_name]
                        same = array.shape == mine[rows].shape and np.array_equal(array, mine[rows])
                        self.hold(
                            same,
                            name,
                            f"observe({rows.tolist()})[{role!r}][{field_name!r}] is not the view's rows",
                        )
                        self.hold(
                            not np.shares_memory(array, mine), name, f"{role!r}/{field_name!r} must be a copy"
                        )

    def determinism(self, name: str) -> None:
        where = self.parting(self.world(), self.world())
        self.hold(not where, name, f"two worlds made alike part: {where}")
        one, other = self.world(), self.world(seed=self.trial.seed + 1)
        differ = bool(difference(seen(one), seen(other))) or bool(self.parting(one, other))
        self.hold(
            differ == self.trial.chance,
            name,
            "two seeds give the same games (if the rules hold no chance, say Trial(chance=False))"
            if self.trial.chance
            else "games differ by seed, though chance is False",
        )

    def idle_and_wild(self, name: str) -> None:
        """Moves of seats not to move change nothing; wild continuous moves are clipped to [-1, 1]."""
        tame, wild = self.world(), self.world()
        for step in range(self.trial.steps):
            moves = self.actions(tame, step)
            others = {role: move.copy() for role, move in moves.items()}
            for role in self.spec.roles.values():
                if role.actions.kind == "continuous":
                    others[role.name] = 3 * moves[role.name]
                    moves[role.name] = np.clip(others[role.name], -1, 1)
                idle = tame.view.acting[:, role.seats] == 0
                others[role.name][idle] = 0
            tame.step(moves)
            wild.step(others)
            where = difference(seen(tame) | happened(tame), seen(wild) | happened(wild))
            self.hold(
                not where,
                name,
                "continuous moves beyond [-1, 1] must act as if clipped, and moves of seats that "
                f"are not to move must not matter: at step {step} {where}",
            )

    def in_parts(self, name: str) -> None:
        for count in sorted({1, 2, self.trial.games}):
            whole, split = self.world(), self.world()
            parts = split.parts(count)
            firsts = [0, *np.cumsum([part.games for part in parts]).tolist()]
            fine = (
                len(parts) == count and firsts[-1] == split.games and [p.first for p in parts] == firsts[:-1]
            )
            self.hold(
                fine, name, f"parts({count}) must be {count} neighbours that make up all {split.games} games"
            )
            for step in range(self.trial.steps):
                moves = self.actions(whole, step)
                whole.step(moves)
                for part in parts:
                    part.step(
                        {role: move[part.first : part.first + part.games] for role, move in moves.items()}
                    )
                where = difference(seen(whole) | happened(whole), seen(split) | happened(split))
                self.hold(
                    not where,
                    name,
                    f"stepped as {count} parts, the whole world's view must show the same: at step "
                    f"{step} {where}",
                )

    def alone(self, name: str) -> None:
        last = self.trial.games - 1
        for first, games in ((0, 1), (last, 1), (1, last)):
            whole, few = self.world(), self.world(games, first)
            rows = slice(first, first + games)
            for (step, a), (_, b) in zip(self.steps(whole, 0), self.steps(few, 0), strict=True):
                where = difference({key: array[rows] for key, array in a.items()}, b)
                self.hold(
                    not where,
                    name,
                    f"game {first} of {games} made with first={first} plays otherwise than in a "
                    f"batch of {whole.games}: at step {step} {where}",
                )

    def restarting(self, name: str) -> None:
        """`next` reaches a game at its restart, and not before. (That of `slot` is part of the values.)"""
        changes = {"seed": self.trial.chance, "stage": bool(self.trial.stage and self.spec.stage)}
        if self.spec.stage and not changes["stage"]:
            self.skipped.append("effect of next.stage (no other legal stage was given: Trial(stage=…))")
        for what in (key for key, wanted in changes.items() if wanted):
            start = max(0, self.first_end - 3)
            one, other = self.advanced(start), self.advanced(start)
            if what == "seed":
                other.next.seed[:] += np.uint64(1)
            else:
                other.next.stage[:] = self.trial.stage
            running, reached = np.ones(self.trial.games, bool), False
            for (step, a), (_, b) in zip(self.steps(one, start), self.steps(other, start), strict=True):
                ended = running & (a["view.ended"] != RUNNING)
                where = difference(a, b, np.flatnonzero(running & ~ended))
                where = where or difference({k: a[k] for k in happened(one)}, b, np.flatnonzero(ended))
                self.hold(
                    not where,
                    name,
                    f"next.{what} must not reach a game before its restart: at step {step} {where}",
                )
                reached |= bool(difference({k: a[k] for k in seen(one)}, b, np.flatnonzero(ended)))
                running &= ~ended
            self.hold(reached, name, f"a new next.{what} changed nothing in the games that restarted")

    # --- states ---

    def saving(self, name: str) -> None:
        for moment in self.moments():
            world = self.advanced(moment)
            states = world.save(self.everyone)
            fine = states.dtype == np.uint8 and states.ndim == 2 and len(states) == self.trial.games
            self.hold(
                fine,
                name,
                f"save must give uint8 [{self.trial.games}, S], found {states.dtype} {states.shape}",
            )
            other = self.copy(world, states)
            self.hold(
                np.array_equal(states, other.save(self.everyone)), name, "save after load gives other bytes"
            )
            where = difference(seen(world), seen(other))
            self.hold(not where, name, f"loaded as saved before step {moment}: {where}")
            where = self.parting(world, other, moment)
            self.hold(not where, name, f"saved before step {moment}, loaded, and played alike: {where}")
            before = seen(other)
            other.load(self.everyone[:1], other.save(self.everyone[-1:]))
            order = [-1, *range(1, self.trial.games)]
            where = difference({key: array[order] for key, array in before.items()}, seen(other))
            self.hold(not where, name, f"the last game's state loaded into game 0: {where}")

    def rubbish(self, name: str) -> None:
        """Bytes that are no state are refused whole: by ConfigError, and without touching the world."""
        world = self.advanced(1)
        good, before = world.save(self.everyone), seen(world)
        rng_key = rng.words(self.trial.seed, rng.ACT, good.size).astype(np.uint8).reshape(good.shape)
        last = np.concatenate([good[1:], rng_key[-1:]])  # good states, but of other games
        for what, bad in {
            "random bytes": rng_key,
            "one bad state among good ones": last,
            "bytes 255": good | 255,
            "states one byte short": good[:, :-1].copy(),
            "no bytes": good[:, :0].copy(),
        }.items():
            try:
                world.load(self.everyone, bad)
                self.hold(
                    False,
                    name,
                    f"load took {what} for states; begin a state with a magic word and check ranges",
                )
            except BrokenPromise:
                raise
            except ConfigError:
                pass
            except Exception as error:
                self.hold(False, name, f"load of {what} raised {type(error).__name__}, expected ConfigError")
            kept = np.array_equal(world.save(self.everyone), good) and not difference(before, seen(world))
            self.hold(kept, name, f"load of {what} was refused, yet it changed the world")

    def resampling(self, name: str) -> None:
        """No seat can tell a resampled state from the true one; what is said to be hidden does change."""
        for seat in range(self.spec.seats):
            role, moved = self.spec.role_of(seat), False
            hidden = [what for what in role.hidden if what not in self.trial.kept]
            for moment in self.moments():
                world = self.advanced(moment)
                truth = world.save(self.everyone)
                for key in range(12):
                    if key > 2 and (moved or not hidden):
                        break  # enough to have looked for leaks; the rest give hidden things a chance to move
                    states = world.resample(self.everyone, seat, key)
                    again = world.resample(self.everyone, seat, key)
                    self.hold(
                        np.array_equal(states, again),
                        name,
                        f"seat {seat}: one key must always give the same states",
                    )
                    self.hold(
                        np.array_equal(truth, world.save(self.everyone)),
                        name,
                        "it must leave the world as it is",
                    )
                    other = self.copy(world, states)
                    where = difference(self.obs(world, seat), self.obs(other, seat))
                    self.hold(
                        not where,
                        name,
                        f"seat {seat} (role {role.name!r}) can tell a state with other hidden "
                        f"things from the true one, before step {moment}: {where}",
                    )
                    if hidden and not moved:
                        twin = self.copy(world, truth)
                        now = difference(seen(twin), seen(other))
                        moved = bool(now or self.parting(twin, other, moment + key))  # other moves per key
            self.hold(
                moved or not hidden,
                name,
                f"role {role.name!r} names as hidden: {', '.join(hidden)}; but states resampled for "
                f"seat {seat} look the same to everyone, now and later",
            )
        for role in self.spec.roles.values():
            kept = [what for what in role.hidden if what in self.trial.kept]
            if kept:
                self.skipped.append(f"that resample redraws what {role.name} does not see: {', '.join(kept)}")

    def obs(self, world: World, seat: int) -> Arrays:
        """Everything this seat is shown: its fields, its mask, whether it is to move."""
        role = self.spec.role_of(seat)
        place = role.seats.index(seat)
        privileged = {f"view[{role.name!r}][{f.name!r}]" for f in role.privileged}
        mine = (f"view[{role.name!r}]", f"view.mask[{role.name!r}]")
        shown = {
            key: array[:, place]
            for key, array in observations(world).items()
            if key.startswith(mine) and key not in privileged
        }
        return shown | {"view.acting": world.view.acting[:, seat]}
