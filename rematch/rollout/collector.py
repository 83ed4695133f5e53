"""The rollout: seats players, steps the world, writes the tape. One thread per part of the world.

A thread keeps its games from the first step to the last, so nothing waits for anybody inside a rollout,
and the parts of the world share no memory that is written: results do not depend on their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Floats
from rematch.core.player import Move, Noise, Player, Seat
from rematch.core.spec import Role
from rematch.core.world import CUT_OFF, Sight, World
from rematch.rollout.rollout_buffer import Tape


def side_by_side(role: Role, sight: Mapping[str, Floats], aside: bool = False) -> Floats:
    """A role's fields, or those aside, as one row per seat: [N, k, F]; the field itself where it is one."""
    fields = role.aside if aside else role.fields
    if len(fields) == 1:
        return sight[fields[0].name]
    return np.concatenate([sight[f.name] for f in fields], axis=-1)


class Table:
    """Who sits where for one role: policies in slots 0 .. S - 1 (0 is the learner), others after them.

    With no slots for policies the first of the others is the learner's player.
    """

    def __init__(self, policy: Policy, slots: int) -> None:
        self.policy = policy
        self.packed: Floats = np.zeros((slots, policy.network.packed_size), np.float32)
        self.others: list[Player] = []  # slot S + i

    def place(self, slot: int, weights: Floats) -> None:
        self.policy.network.pack(weights[None], self.packed[slot : slot + 1])


class Rollout:
    """Plays T steps of N games between the players at the tables."""

    def __init__(
        self, world: World, tables: Mapping[str, Table], steps: int, threads: int, seed: int
    ) -> None:
        self.world, self.tables, self.seed = world, tables, seed
        self.tape = Tape(world.spec, steps, world.games)
        for role in world.view.mask:
            track = self.tape[role]
            track.mask = np.zeros((*track.value.shape, track.role.actions.size), np.uint8)
        for role, table in tables.items():
            if table.policy.config.reads_aside:
                track = self.tape[role]
                track.aside = np.zeros((*track.value.shape, track.role.aside_size), np.float32)
        self.keys = {
            role: rng.key(seed, rng.ACT, about.seats[0]) for role, about in world.spec.roles.items()
        }
        self.eventful = hasattr(world, "captured")  # a SavestateWorld
        self.parts: Sequence[World] = world.parts(max(1, min(threads, world.games)))
        self.pool = ThreadPoolExecutor(len(self.parts)) if len(self.parts) > 1 else None

    def collect(self, iteration: int) -> Tape:
        """One tape of the games going on where they stood."""
        events, captured = self.tape.events, self.tape.captured
        events.clear()
        captured.clear()
        self.tape.told.clear()
        if self.pool is None:
            self._play(self.parts[0], 0, iteration)
        else:
            starts = np.cumsum([0, *(part.games for part in self.parts[:-1])]).tolist()
            jobs = [self.pool.submit(self._play, part, at, iteration) for part, at in zip(self.parts, starts)]
            for job in jobs:
                job.result()
        events.sort(key=lambda event: event[:2])  # as one thread would have met them
        captured.sort(key=lambda found: found[:2])
        self.tape.told.sort(key=lambda told: told[:2])  # whichever thread was quicker
        return self.tape

    def _play(self, part: World, at: int, iteration: int) -> None:
        spec, tape = part.spec, self.tape
        rows = slice(at, at + part.games)
        for t in range(tape.steps):
            step = iteration * tape.steps + t
            actions: dict[str, NDArray[Any]] = {}
            if tape.states is not None:
                tape.states[t, rows] = part.save(np.arange(part.games, dtype=np.int32))
            for role in spec.roles:
                actions[role] = self._decide(part, role, t, rows, step)
            view = part.step(actions)
            if self.eventful:
                told: Any = part
                tape.events.extend([(t, at + row, name) for row, name in told.events])
                tape.captured.extend([(t, at + row, bundle) for row, bundle in told.captured.items()])
            for row, what in getattr(part, "told", ()):
                tape.told.append((t, at + row, what))
            tape.ended[t, rows] = view.ended
            tape.length[t, rows] = view.length
            for role, about in spec.roles.items():
                track, seats = tape[role], list(about.seats)
                track.reward[t, rows] = view.reward[:, seats]
                track.outcome[t, rows] = view.outcome[:, seats]
                if spec.cutoffs and (view.ended == CUT_OFF).any():
                    track.cut_value[t, rows] = self._value(role, view.final)
        for role, about in spec.roles.items():
            track = tape[role]
            track.last_acting[rows] = part.view.acting[:, list(about.seats)]
            track.last_value[rows] = self._value(role, part.view.fields)

    def _decide(self, part: World, role: str, t: int, rows: slice, step: int) -> NDArray[Any]:
        """Write what this role sees and does into the tape; the actions [N, k, ...] to step with."""
        about, track, table = part.spec.roles[role], self.tape[role], self.tables[role]
        seats = list(about.seats)
        k, n = len(seats), part.games
        track.sight[t, rows] = side_by_side(about, part.view[role])
        track.slot[t, rows] = part.slot[:, seats]
        track.acted[t, rows] = part.view.acting[:, seats]
        aside: Floats | None = None
        if track.aside is not None:
            track.aside[t, rows] = side_by_side(about, part.view[role], aside=True)
            aside = track.aside[t, rows].reshape(n * k, about.aside_size)
        mask = part.view.mask.get(role)
        if mask is not None:
            assert track.mask is not None, "a world that masks sends its masks from the start"
            track.mask[t, rows] = mask
            mask = track.mask[t, rows].reshape(n * k, about.actions.size)
        slot = track.slot[t, rows].reshape(n * k)
        flat = (n * k, about.actions.size) if about.actions.kind == "continuous" else (n * k,)
        action = track.action[t, rows].reshape(flat)
        logp, value = track.logp[t, rows].reshape(n * k), track.value[t, rows].reshape(n * k)
        number = np.arange(part.first * k, (part.first + n) * k, dtype=np.uint32)
        if len(table.packed):
            table.policy.network.act(
                table.packed,
                slot,
                track.sight[t, rows].reshape(n * k, about.size),
                number,
                (self.keys[role], step),
                action,
                logp,
                value,
                acting=track.acted[t, rows].reshape(n * k),
                mask=mask,
                aside=aside,
            )
        for i, player in enumerate(table.others):
            for j, seat in enumerate(seats):
                here = np.flatnonzero(
                    (part.slot[:, seat] == len(table.packed) + i) & (part.view.acting[:, seat] != 0)
                ).astype(np.int32)
                if len(here):
                    move = self._ask(player, part, track.sight[t, rows], (about, j, here), step)
                    track.action[t, rows][here, j] = move.action
                    if move.value is not None:
                        track.value[t, rows][here, j] = move.value
        return track.action[t, rows]

    def _ask(
        self, player: Player, part: World, sight: Floats, who: tuple[Role, int, NDArray[np.int32]], step: int
    ) -> Move:
        """What a player does in these rows of a role's j-th seat; `sight` [N, k, F] is the whole role's."""
        about, j, here = who
        mask = part.view.mask.get(about.name)
        legal = None if mask is None else mask[here, j]
        seat = Seat(about, about.seats[j], part, here, sight[here, j], legal)
        return player.act(seat, Noise(self.seed, rng.BOT, step))

    def _value(self, role: str, sight: Sight) -> Floats:
        """The learner's value [N, k] of a sight; 0 where it is no network."""
        about, policy = self.tape[role].role, self.tables[role].policy
        if not len(self.tables[role].packed):
            return np.zeros((len(next(iter(sight[role].values()))), len(about.seats)), np.float32)
        flat = np.ascontiguousarray(side_by_side(about, sight[role])).reshape(-1, about.size)
        told: Floats | None = None
        if policy.config.reads_aside:
            more = side_by_side(about, sight[role], aside=True)
            told = np.ascontiguousarray(more).reshape(-1, about.aside_size)
        return policy.forward(flat, aside=told)[1].reshape(-1, len(about.seats))
