"""Collectors: step the world with the seated players and fill the rollout buffer.

ThreadCollector gives each thread a part of the games. A thread keeps its games from the first step to the
last, so no thread waits for another inside a rollout, and the parts of the world share no memory that is
written: results do not depend on the number of threads.

With lag 0 a rollout is played when it is submitted. With lag 1 it is played by other threads, while the
caller learns from the rollout before it. Between `submit` and `result` no code may touch the world, its
`next` or the seating; rollout/rollout_queue.py keeps to that order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Floats, Ints
from rematch.core.player import RngKey
from rematch.core.stepping import concat_fields, seat_at
from rematch.core.world import CUT_OFF, RUNNING, EventLog, Observations, World
from rematch.rollout.forced_actions import ForcedActions
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.seating import Seating


class Collector(Protocol):
    """Plays rollouts: `submit` one, take its `result`; at most one is submitted and not yet taken.

    A result stays as it is until the result after the next `lag` ones is taken. The inputs of a pending
    submission are part of a run's state, so that a resume plays it again.
    """

    lag: int
    rollout: RolloutBuffer  # the newest result

    def submit(self, iteration: int) -> None:
        """Play T steps of all games from where they stand; `iteration` keys the random numbers."""

    def result(self) -> RolloutBuffer:
        """The rollout that was submitted; waits until it has been played."""

    def drop(self) -> None:
        """Give up a submitted rollout; its games stay where they stand. Needed with a lag only."""


def collect(collector: Collector, iteration: int) -> RolloutBuffer:
    """Submit a rollout and wait for it."""
    collector.submit(iteration)
    return collector.result()


def columns_of(seats: Sequence[int]) -> slice | list[int]:
    """An index of these seats' columns: a slice where they are neighbours, which numpy copies faster."""
    first, last = seats[0], seats[-1]
    return slice(first, last + 1) if list(seats) == list(range(first, last + 1)) else list(seats)


def episode_starts(world: World) -> NDArray[np.bool_]:
    """[N] whether each game is at an episode's first step; a restored game is known by its length."""
    return np.asarray((world.view.ended != RUNNING) | (world.view.length == 0))


class ThreadCollector:
    """Plays T steps of N games between the seated players, on threads of this process."""

    def __init__(self, world: World, seating: Seating, steps: int, threads: int, seed: int) -> None:
        self.world, self.seating, self.seed = world, seating, seed
        self.steps, self.lag = steps, 0
        self.rollout = self.filling = self._buffer()  # the newest result; the one that is played
        self.buffers = [self.rollout]
        self.forced: ForcedActions | None = None  # set where demonstrations force actions
        self.before_step: Callable[[], None] = lambda: None  # may raise StopRequested
        self.dropping = False
        self.jobs: list[Future[None]] = []  # of the submitted rollout
        self.keys = {
            role: rng.key(seed, rng.ACT, role_spec.seats[0]) for role, role_spec in world.spec.roles.items()
        }
        self.columns = {role: columns_of(role_spec.seats) for role, role_spec in world.spec.roles.items()}
        self._divide(max(1, min(threads, world.games)))

    def _divide(self, threads: int) -> None:
        """Give each thread a part of the games."""
        self.parts: Sequence[World] = self.world.parts(threads)
        self.pool = ThreadPoolExecutor(len(self.parts)) if len(self.parts) > 1 else None

    def _buffer(self) -> RolloutBuffer:
        """A rollout buffer with the columns that the world and the networks need."""
        rollout = RolloutBuffer(self.world.spec, self.steps, self.world.games)
        for role in self.world.view.mask:
            track = rollout[role]
            track.mask = np.zeros((*track.value.shape, track.role.actions.size), np.uint8)
        for role, seats in self.seating.items():
            if seats.policy.config.reads_privileged:
                track = rollout[role]
                track.privileged = np.zeros((*track.value.shape, track.role.privileged_size), np.float32)
        return rollout

    def set_lag(self, lag: int) -> None:
        """Before any other call: with lag 1 other threads play rollouts, into two buffers in turn.

        Half of the threads play: the learners want all of them at the same time.
        """
        self.lag = lag
        self.buffers += [self._buffer() for _ in range(lag)]
        for buffer in self.buffers[1:]:
            buffer.share_reads(self.buffers[0].reads)
        if lag:
            self.parts = self.world.parts(max(1, len(self.parts) // 2))
            self.pool = ThreadPoolExecutor(len(self.parts))

    def seat_running_games(self, slots: Ints) -> None:
        """Let the players of these slots [N, seats] play the running games."""
        self.world.slot[:] = slots

    def allocate(self, columns: Collection[str]) -> None:
        """Optional columns that some component reads."""
        if "states" in columns:
            size = self.world.save(np.zeros(1, np.int32)).shape[1]
            for rollout in self.buffers:
                rollout.states = np.zeros((rollout.steps, rollout.games, size), np.uint8)

    def force(self, forced: ForcedActions) -> None:
        """From now on games may follow a demonstration; its columns are those of the rollout."""
        self.forced = forced
        for rollout in self.buffers:
            rollout.forced, rollout.demo_index = np.zeros_like(forced.forced), forced.demo_index.copy()

    def submit(self, iteration: int) -> None:
        newest = self.buffers.index(self.rollout)
        rollout = self.filling = self.buffers[(newest + 1) % len(self.buffers)]
        rollout.clear()
        rollout.started[:] = episode_starts(self.world)
        if self.forced is not None:
            assert rollout.forced is not None and rollout.demo_index is not None
            self.forced.forced, self.forced.demo_index = rollout.forced, rollout.demo_index
            rollout.demonstration = self.forced.demonstration
        self._start(iteration)

    def _start(self, iteration: int) -> None:
        """Let the threads play; without a lag, wait for them."""
        if self.pool is None:
            self._play(self.parts[0], 0, iteration)
            return
        starts = np.cumsum([0, *(part.games for part in self.parts[:-1])]).tolist()
        play = self._play
        self.jobs = [self.pool.submit(play, part, at, iteration) for part, at in zip(self.parts, starts)]
        if not self.lag:
            self._wait()

    def result(self) -> RolloutBuffer:
        self._wait()
        rollout = self.rollout = self.filling
        rollout.sort()
        if self.forced is not None:
            rollout.split_events(self.forced.forced)
            self.forced.end_rollout(rollout.ended[-1])
        return rollout

    def _wait(self) -> None:
        """Wait for the submitted rollout; raises what a thread raised."""
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job.result()

    def drop(self) -> None:
        self.dropping = True
        wait(self.jobs)
        self.jobs, self.dropping = [], False

    def collect(self, iteration: int) -> RolloutBuffer:
        return collect(self, iteration)

    def _play(self, part: World, at: int, iteration: int) -> None:
        spec, rollout = part.spec, self.filling
        rows = slice(at, at + part.games)
        for t in range(rollout.steps):
            self.before_step()
            if self.dropping:
                return
            step = iteration * rollout.steps + t
            actions: dict[str, NDArray[Any]] = {}
            if rollout.states is not None:
                rollout.states[t, rows] = part.save(np.arange(part.games, dtype=np.int32))
            for role in spec.roles:
                actions[role] = self._decide(part, role, t, rows, step)
            view = part.step(actions)
            if part.event_log is not None:
                self._record_events(part.event_log, t, at)
            rollout.ended[t, rows] = view.ended
            rollout.length[t, rows] = view.length
            for role in spec.roles:
                track, seats = rollout[role], self.columns[role]
                track.reward[t, rows] = view.reward[:, seats]
                track.outcome[t, rows] = view.outcome[:, seats]
                if spec.cutoffs and (view.ended == CUT_OFF).any():
                    track.cut_value[t, rows] = self._value(role, view.final)
        for role in spec.roles:
            track = rollout[role]
            track.last_acting[rows] = part.view.acting[:, self.columns[role]]
            track.last_value[rows] = self._value(role, part.view.fields)

    def _record_events(self, log: EventLog, t: int, first: int) -> None:
        """Milestones, savestates and the infos of ended episodes; first: the part's first row."""
        rollout = self.filling
        rollout.events.extend([(t, first + row, name) for row, name in log.events])
        rollout.captured.extend([(t, first + row, state) for row, state in log.captured.items()])
        rollout.episode_infos.extend([(t, first + row, info) for row, info in log.episode_infos])

    def _decide(self, part: World, role: str, t: int, rows: slice, step: int) -> NDArray[Any]:
        """Write what this role observes and does into the buffer; the actions [N, k, ...] to step with."""
        role_spec, track, seating = part.spec.roles[role], self.filling[role], self.seating[role]
        seats, k, n = self.columns[role], len(role_spec.seats), part.games
        track.obs[t, rows] = concat_fields(role_spec, part.view[role])
        track.slot[t, rows] = part.slot[:, seats]
        track.acted[t, rows] = part.view.acting[:, seats]
        privileged: Floats | None = None
        if track.privileged is not None:
            track.privileged[t, rows] = concat_fields(role_spec, part.view[role], privileged=True)
            privileged = track.privileged[t, rows].reshape(n * k, role_spec.privileged_size)
        mask = part.view.mask.get(role)
        if mask is not None:
            assert track.mask is not None, "a world that masks sends its masks from the start"
            track.mask[t, rows] = mask
            mask = track.mask[t, rows].reshape(n * k, role_spec.actions.size)
        if len(seating.packed):
            flat = (n * k, role_spec.actions.size) if role_spec.actions.kind == "continuous" else (n * k,)
            seating.policy.network.act(
                seating.packed,
                track.slot[t, rows].reshape(n * k),
                track.obs[t, rows].reshape(n * k, role_spec.size),
                np.arange(part.first * k, (part.first + n) * k, dtype=np.uint32),
                (self.keys[role], step),
                track.action[t, rows].reshape(flat),
                track.logp[t, rows].reshape(n * k),
                track.value[t, rows].reshape(n * k),
                acting=track.acted[t, rows].reshape(n * k),
                mask=mask,
                privileged=privileged,
            )
        self._ask_others(part, role, t, rows, step)
        if self.forced is not None:
            games = np.arange(rows.start, rows.stop, dtype=np.int32)
            self.forced.apply(games, part.view.ended != RUNNING, t, track.action[t, rows, 0])
        return track.action[t, rows]

    def _ask_others(self, part: World, role: str, t: int, rows: slice, step: int) -> None:
        """The players that are no policies in slots decide, in the games that they are seated in."""
        role_spec, track, seating = part.spec.roles[role], self.filling[role], self.seating[role]
        rng_key = RngKey(self.seed, rng.BOT, step)
        for i, player in enumerate(seating.others):
            for j, seat in enumerate(role_spec.seats):
                games = np.flatnonzero(
                    (part.slot[:, seat] == len(seating.packed) + i) & (part.view.acting[:, seat] != 0)
                ).astype(np.int32)
                if len(games):
                    decision = player.act(seat_at(part, seat, games, track.obs[t, rows]), rng_key)
                    track.action[t, rows][games, j] = decision.action
                    if decision.value is not None:
                        track.value[t, rows][games, j] = decision.value

    def _value(self, role: str, obs: Observations) -> Floats:
        """The learner's value [N, k] of an observation; 0 where the learner is no network in a slot."""
        role_spec, policy = self.rollout[role].role, self.seating[role].policy
        if not len(self.seating[role].packed):
            return np.zeros((len(next(iter(obs[role].values()))), len(role_spec.seats)), np.float32)
        flat = np.ascontiguousarray(concat_fields(role_spec, obs[role])).reshape(-1, role_spec.size)
        privileged: Floats | None = None
        if policy.config.reads_privileged:
            more = concat_fields(role_spec, obs[role], privileged=True)
            privileged = np.ascontiguousarray(more).reshape(-1, role_spec.privileged_size)
        return self.seating[role].value(flat, privileged).reshape(-1, len(role_spec.seats))
