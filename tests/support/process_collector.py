"""A second collector: parts of the games in child processes, over plain buffers.

Each child has a world of its own games, forked with the seated players. Per rollout it is sent the states of
its games, what they restart from and the policies' weights as raw bytes, and sends the columns back. It
shows that a collector fits the protocol without the learners, the league or the curriculum knowing of it.
"""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.world import World
from rematch.rollout.collector import ThreadCollector, episode_starts
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.seating import Seating

COLUMNS = (
    "obs",
    "action",
    "mask",
    "privileged",
    "logp",
    "value",
    "reward",
    "acted",
    "slot",
    "outcome",
    "cut_value",
)
LAST = ("last_value", "last_acting")


class Pipe:
    """One end of two pipes; arrays travel as raw bytes, the receiver knows their shapes."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = os.fdopen(reader, "rb"), os.fdopen(writer, "wb")

    def send(self, *arrays: NDArray[Any]) -> None:
        for array in arrays:
            self.writer.write(np.ascontiguousarray(array).tobytes())
        self.writer.flush()

    def receive(self, *arrays: NDArray[Any]) -> None:
        for array in arrays:
            raw = self.reader.read(array.nbytes)
            array[...] = np.frombuffer(raw, array.dtype).reshape(array.shape)


def columns_of(rollout: RolloutBuffer) -> list[NDArray[Any]]:
    """Every array of a rollout, in one order."""
    out: list[Any] = [rollout.ended, rollout.length]
    for track in rollout.tracks.values():
        out += [getattr(track, name) for name in (*COLUMNS, *LAST) if getattr(track, name) is not None]
    return out


def games_of(rollout: RolloutBuffer, rows: slice) -> list[NDArray[Any]]:
    """The same arrays, some games alone."""
    out: list[Any] = [rollout.ended[:, rows], rollout.length[:, rows]]
    for track in rollout.tracks.values():
        out += [getattr(track, name)[:, rows] for name in COLUMNS if getattr(track, name) is not None]
        out += [getattr(track, name)[rows] for name in LAST]
    return out


class ProcessCollector(ThreadCollector):
    """Plays rollouts in `children` processes; `make` builds a world: (games, first, seed)."""

    def __init__(
        self, world: World, seating: Seating, steps: int, seed: int, make: Any, children: int = 3
    ) -> None:
        super().__init__(world, seating, steps, 1, seed)
        self.make, self.children = make, children
        self.pipes: list[tuple[Pipe, slice]] = []
        self.pids: list[int] = []

    def fork(self) -> None:
        """The children start with the first rollout, when every player is seated."""
        bounds = np.linspace(0, self.world.games, self.children + 1).astype(int)
        for low, high in pairwise(bounds):
            if low == high:
                continue
            down, up = os.pipe(), os.pipe()
            pid = os.fork()
            if pid == 0:
                for end in (down[1], up[0]):
                    os.close(end)
                for pipe, _ in self.pipes:  # of the children before: they must see their pipe end
                    pipe.writer.close()
                try:
                    self._serve(Pipe(down[0], up[1]), int(low), int(high - low))
                finally:
                    os._exit(0)
            self.pids.append(pid)
            self.pipes.append((Pipe(up[0], down[1]), slice(int(low), int(high))))
            os.close(down[0]), os.close(up[1])

    def _buffers(self, world: World, rows: slice) -> list[NDArray[Any]]:
        """What a child is sent of its games, and the weights in all slots."""
        index = np.arange(rows.start, rows.stop, dtype=np.int32)
        after = world.next
        arrays = [world.save(index), after.seed[rows], after.slot[rows], after.stage[rows]]
        return [*arrays, *(seats.packed for seats in self.seating.values())]

    def _serve(self, pipe: Pipe, first: int, games: int) -> None:
        world = self.make(games, first, self.seed)
        inner = ThreadCollector(world, self.seating, self.rollout.steps, 1, self.seed)
        rows = np.arange(games, dtype=np.int32)
        arrays = [array.copy() for array in self._buffers(world, slice(0, games))]
        while head := pipe.reader.read(8):
            pipe.receive(*arrays)
            states, seed, slot, stage = arrays[:4]
            world.next.seed[:], world.next.slot[:] = seed, slot
            world.next.stage[:] = stage
            world.load(rows, states)
            for seats, packed in zip(self.seating.values(), arrays[4:]):
                seats.packed[:] = packed
            rollout = inner.collect(struct.unpack("<q", head)[0])
            pipe.send(*columns_of(rollout), world.save(rows), world.next.seed)

    def submit(self, iteration: int) -> None:
        if not self.pipes:
            self.fork()
        self.rollout.clear()
        self.rollout.started[:] = episode_starts(self.world)
        for pipe, rows in self.pipes:
            pipe.writer.write(struct.pack("<q", iteration))
            pipe.send(*self._buffers(self.world, rows))

    def result(self) -> RolloutBuffer:
        for pipe, rows in self.pipes:
            index = np.arange(rows.start, rows.stop, dtype=np.int32)
            columns = [np.empty_like(np.ascontiguousarray(part)) for part in games_of(self.rollout, rows)]
            states, seed = self.world.save(index), self.world.next.seed[rows].copy()
            pipe.receive(*columns, states, seed)
            for target, column in zip(games_of(self.rollout, rows), columns):
                target[...] = column
            self.world.load(index, states)
            self.world.next.seed[rows] = seed
            self.world.view.ended[rows] = self.rollout.ended[-1, rows]
        return self.rollout

    def close(self) -> None:
        for pipe, _ in self.pipes:
            pipe.writer.close()
        for pid in self.pids:
            os.waitpid(pid, 0)
