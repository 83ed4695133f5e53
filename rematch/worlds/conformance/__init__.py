"""The conformance test every world passes; public, so that a world of one's own can be held to it too.

    from rematch.worlds import conformance
    print(conformance.check_game(GAME))

Each promise of `rematch.core.world.World` is one method: those about what can be read after a step in
shape_checks.py, those about time, chance and hidden things in determinism_checks.py, those about bots and
subjects here. The first that does not hold raises `BrokenPromise`: one line that says which promise, which
array, which game, which step. What a world does not promise (`Spec.resume`) is skipped, and the report says
so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes
from rematch.core.player import Player, RngKey, Seat
from rematch.core.stepping import seat_at
from rematch.core.world import World
from rematch.worlds.conformance.determinism_checks import Replaying
from rematch.worlds.conformance.playback import Make, Trial, difference, seen, short
from rematch.worlds.conformance.shape_checks import BrokenPromise
from rematch.worlds.game import Game

__all__ = ["BrokenPromise", "Report", "Subject", "Trial", "check", "check_game"]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A thing the world holds and the field that claims to show it. An empty field: hidden from that role."""

    name: str
    role: str
    field: str
    change: Callable[[Bytes], Bytes]  # saved states [n, S] -> the same states with the subject moved
    columns: tuple[str, ...] = ()  # of the field, those of which one must change; none: any


@dataclass
class Report:
    """What was checked and what was not."""

    world: str
    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        skipped = "".join(f"\n  not checked: {why}" for why in self.skipped)
        return f"{self.world} keeps {len(self.passed)} promises: {', '.join(self.passed)}{skipped}"


def check(
    make: Make,
    config: Any,
    *,
    bots: Mapping[str, Sequence[Player]] | None = None,
    moves: Sequence[Subject] = (),
    trial: Trial | None = None,
) -> Report:
    """Hold a world to every promise of `rematch.core.world.World`; the first that it breaks raises
    BrokenPromise.

    bots: role -> players that must move legally. moves: subjects that must show in their fields.
    """
    return Inspection(make, config, trial or Trial()).run(bots or {}, moves)


def check_game(
    game: Game, config: Any = None, *, moves: Sequence[Subject] = (), trial: Trial | None = None
) -> Report:
    """`check` with a game's own worlds, settings and bots."""
    bots = {role: [game.bot(name, role) for name in names] for role, names in game.bots.items()}
    config = game.Config() if config is None else config
    return check(game.make, config, bots=bots, moves=moves, trial=trial)


class Inspection(Replaying):
    """One world under test."""

    def __init__(self, make: Make, config: Any, trial: Trial) -> None:
        super().__init__(make, config, trial)
        self.report = Report(self.spec.world)

    def run(self, bots: Mapping[str, Sequence[Player]], moves: Sequence[Subject]) -> Report:
        always = {"spec": self.naming, "shapes": self.shapes, "borrowed arrays": self.borrowing}
        always |= {"values": self.values, "observe": self.observing}
        by_key = {"determinism": self.determinism, "actions": self.idle_and_wild, "parts": self.in_parts}
        by_key |= {"batch size": self.alone, "restart": self.restarting}
        by_state = {"save and load": self.saving, "rubbish": self.rubbish, "resample": self.resampling}
        for name, promise in (always | by_key | by_state).items():
            resume = self.spec.resume
            # Replay saves seed and actions: that brings a game back, but no other that a seat cannot tell.
            cannot = {"episode": by_key.keys() | by_state.keys(), "replay": {"resample"}}.get(resume, set())
            if name in cannot:
                self.skipped.append(f"{name} (the world resumes by {resume})")
            else:
                promise(name)
                self.report.passed.append(name)
        self.players(bots)
        self.subjects(moves)
        self.report.skipped = self.skipped
        return self.report

    # --- players and subjects ---

    def players(self, bots: Mapping[str, Sequence[Player]]) -> None:
        for role_name, players in bots.items():
            for player in players:
                name = f"bot {role_name}/{player.name}"
                for seat in self.spec.roles[role_name].seats:
                    self.player(name, player, seat)
                self.report.passed.append(name)
        if not bots:
            self.skipped.append("bots (none were given)")
        elif self.spec.resume != "state":
            self.skipped.append(f"that bots see no hidden things (the world resumes by {self.spec.resume})")
        elif self.trial.all_seeing:
            self.skipped.append("that bots see no hidden things (they look at the true state)")

    def player(self, name: str, player: Player, seat: int) -> None:
        """Plays one seat: legal moves, fixed by noise and game, the same whatever is hidden."""
        world, role = self.world(), self.spec.role_of(seat)
        place = role.seats.index(seat)
        for step in range(self.trial.steps):
            moves = self.actions(world, step)
            rows = np.flatnonzero(world.view.acting[:, seat]).astype(np.int32)
            if rows.size:
                now, rng_key = f"at step {step}, seat {seat}", RngKey(self.trial.seed, rng.BOT, step)
                before, decision = seen(world), seat_at(world, seat, rows)
                action = player.act(decision, rng_key).action
                self.legal(f"{name}: {now}", decision, action)
                kept = not difference(before, seen(world))
                self.hold(kept, name, f"{now}: choosing a move changed the world")
                again = player.act(seat_at(world, seat, rows), rng_key).action
                self.hold(np.array_equal(action, again), name, f"{now}: the same noise gave another move")
                last = player.act(seat_at(world, seat, rows[-1:]), rng_key).action
                self.hold(
                    np.array_equal(action[-1:], last),
                    name,
                    f"{now}: asked about one game alone it moves otherwise",
                )
                if self.spec.resume == "state" and not self.trial.all_seeing:
                    other = self.copy(world, world.resample(self.everyone, seat, step))
                    blind = player.act(seat_at(other, seat, rows), rng_key).action
                    self.hold(
                        np.array_equal(action, blind),
                        name,
                        f"{now}: its move depends on what its seat cannot see",
                    )
                moves[role.name][rows, place] = action
            world.step(moves)

    def legal(self, name: str, decision: Seat, action: NDArray[Any]) -> None:
        actions, count = decision.role.actions, len(decision.rows)
        shape = (count, actions.size) if actions.kind == "continuous" else (count,)
        self.hold(action.shape == shape, name, f"expected moves {list(shape)}, found {list(action.shape)}")
        if actions.kind == "continuous":
            self.hold(bool((np.abs(action) <= 1).all()), name, f"a move outside [-1, 1]: {short(action)}")
            return
        self.hold(
            np.issubdtype(action.dtype, np.integer),
            name,
            f"choices must be whole numbers, found {action.dtype}",
        )
        fine = (action >= 0) & (action < actions.size)
        if decision.mask is not None and fine.all():
            fine &= decision.mask[np.arange(count), action] == 1
        self.hold(bool(fine.all()), name, f"a choice that is not legal: {short(action)}")

    def subjects(self, moves: Sequence[Subject]) -> None:
        """Each subject moved in saved states: the field that claims to show it changes, in every game."""
        if not moves or self.spec.resume != "state":
            why = f"the world resumes by {self.spec.resume}" if moves else "no moves were given"
            self.skipped.append(f"that fields show what they claim to ({why})")
            return
        for subject in moves:
            name, role = f"subject {subject.name} for {subject.role}", self.spec.roles[subject.role]
            for moment in self.moments():
                world = self.advanced(moment)
                other = self.copy(world, subject.change(world.save(self.everyone)))
                self.shown(f"{name}, before step {moment}", subject, world, other)
            self.report.passed.append(name)
            known = {f.name: f.columns for f in role.fields} | {"": ()}
            fine = subject.field in known and set(subject.columns) <= set(known[subject.field])
            self.hold(fine, name, f"there is no field {subject.field!r} with columns {subject.columns}")

    def shown(self, name: str, subject: Subject, world: World, other: World) -> None:
        """Whether the right columns differ between a world and one in which the subject was moved."""
        for f in self.spec.roles[subject.role].fields:
            a, b = world.view[subject.role][f.name], other.view[subject.role][f.name]
            changed = (a != b).reshape(len(a), -1, f.size)  # [N, seats of the role, columns]
            if not subject.field:
                self.hold(not changed.any(), name, f"it is said to be hidden, but field {f.name!r} shows it")
            elif f.name == subject.field:
                wanted = [c in subject.columns or not subject.columns for c in f.columns]
                all_do = bool(changed[:, :, wanted].any((1, 2)).all())
                self.hold(
                    all_do, name, f"it was moved, but field {f.name!r} {subject.columns or ''} is as before"
                )
