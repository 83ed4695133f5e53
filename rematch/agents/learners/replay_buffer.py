"""Replay: the last steps of all games, packed, with the memory that stood before each sequence.

A ring of `rows` steps of N games; step s of the run lies in row s % rows. Sequences begin at multiples of
`stride`, and only there memory is kept: the one before the step. The world's reward belongs to its step; a
reward term belongs to an observation, and `q_targets.paid` gives it to the step that led there. Each has a
column of its own, unweighted. On disk whole chunks of steps are written once (storage/array_chunks.py); the
rest is part of each checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.networks.observation_codec import Seen, Senses
from rematch.core.arrays import Bytes, Floats, Tree
from rematch.core.world import RUNNING
from rematch.storage.array_chunks import ArrayChunk

ENV = "env"  # the world's own reward
MEMORY = "memory"


def reward_column(term: str) -> str:
    """The name of a reward term's column."""
    return f"reward.{term}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of a replay."""

    steps: int  # of all games together, at most
    games: int
    sequence: int
    stride: int  # steps between two sequences' beginnings
    history: int  # steps before a sequence that it looks at: of pictures
    chunk: int  # steps of each game in a chunk on disk, at most `rows`; 0: no chunks
    memory: int  # numbers that are carried on
    actions: int
    terms: tuple[str, ...] = ()  # reward terms beside the world's own reward

    @property
    def rows(self) -> int:
        """Whole strides, so that a memory's place follows from its row."""
        return self.steps // self.games // self.stride * self.stride


@dataclass(frozen=True)
class Batch:
    """B sequences of S steps."""

    seen: Seen
    past: Bytes | None  # [B, history, H, W] the pictures before, zero where they are of another episode
    action: NDArray[np.int64]  # [B, S]
    ended: Bytes  # [B, S]
    reward: dict[str, Floats]  # the world's own reward (ENV) and every reward term, each [B, S]
    legal: NDArray[np.bool_]  # [B, S, A]
    memory: Floats  # [B, M]


def row_bytes(plan: Plan, senses: Senses) -> int:
    """Bytes of one step of one game, its share of a stored memory included."""
    own = sum(size * kind.itemsize for size, kind in senses.packed.values())
    return own + 2 + 4 * (1 + len(plan.terms)) + -(-plan.actions // 8) + -(-4 * plan.memory // plan.stride)


class Replay:
    """Preallocated arrays by name, each [rows, N, ...]; memories [rows / stride, N, M]."""

    def __init__(self, plan: Plan, senses: Senses) -> None:
        self.plan, self.senses = plan, senses
        n, rows = plan.games, plan.rows
        self.arrays: dict[str, NDArray[Any]] = {
            name: np.zeros((rows, n, size), kind) for name, (size, kind) in senses.packed.items()
        }
        self.arrays["action"] = np.zeros((rows, n), np.uint8)
        self.arrays["ended"] = np.zeros((rows, n), np.uint8)
        self.reward_names = (ENV, *plan.terms)
        for name in self.reward_names:
            self.arrays[reward_column(name)] = np.zeros((rows, n), np.float32)
        self.arrays["legal"] = np.zeros((rows, n, -(-plan.actions // 8)), np.uint8)  # a bit for each
        self.arrays[MEMORY] = np.zeros((rows // plan.stride, n, plan.memory), np.float32)
        self.head = 0  # steps of each game so far
        self.chunks: list[ArrayChunk] = []  # the oldest first; they end where the rest begins
        self.sealed = 0  # steps that are in chunks, now or once

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def size(self) -> int:
        """Steps of all games that are kept."""
        return min(self.head, self.plan.rows) * self.plan.games

    def add(self, columns: dict[str, NDArray[Any]], memories: Floats) -> None:
        """The next T steps: name -> [T, N, ...]; memories [k, N, M] of the sequences that begin in them."""
        steps, rows = len(columns["action"]), self.plan.rows
        at = (self.head + np.arange(steps)) % rows
        for name, values in columns.items():
            self.arrays[name][at] = values
        first = -(-self.head // self.plan.stride)
        self.arrays[MEMORY][(first + np.arange(len(memories))) % (rows // self.plan.stride)] = memories
        self.head += steps

    def beginnings(self) -> NDArray[np.int64]:
        """The steps at which sequences begin that are wholly kept, with the pictures before them."""
        p, oldest = self.plan, max(0, self.head - self.plan.rows)
        low = -(-(oldest + p.history if oldest else 0) // p.stride)
        high = (self.head - p.sequence) // p.stride if self.head >= p.sequence else -1
        return np.arange(low, high + 1, dtype=np.int64) * p.stride

    def take(self, start: NDArray[np.int64], game: NDArray[np.int64]) -> Batch:
        """The sequences that begin at these steps of these games, both [B]."""
        p, a = self.plan, self.arrays
        at = (start[:, None] + np.arange(p.sequence)) % p.rows
        cut = (at, game[:, None])
        seen = self.senses.unpack({name: a[name][cut] for name in self.senses.packed})
        legal = np.unpackbits(a["legal"][cut], axis=-1, count=p.actions).astype(bool)
        memory = a[MEMORY][start // p.stride % (p.rows // p.stride), game]
        return Batch(seen, self._before(start, game), a["action"][cut].astype(np.int64), a["ended"][cut],
                     {name: a[reward_column(name)][cut] for name in self.reward_names}, legal, memory)

    def _before(self, start: NDArray[np.int64], game: NDArray[np.int64]) -> Bytes | None:
        p = self.plan
        if not self.senses.picture:
            return None
        back = start[:, None] - np.arange(p.history, 0, -1)  # oldest first
        at = back % p.rows
        packed = {name: self.arrays[name][at, game[:, None]] for name in self.senses.packed}
        frames = self.senses.unpack(packed).frames
        assert frames is not None
        apart = (self.arrays["ended"][at, game[:, None]] != RUNNING) | (back < 0)  # an end lies between
        same = ~np.logical_or.accumulate(apart[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(frames * same[:, :, None, None], np.uint8)

    # --- on disk ---

    def _cut(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        """Copies of steps first .. last - 1, and of the memories that begin in them."""
        p = self.plan
        at = np.arange(first, last) % p.rows
        starts = np.arange(-(-first // p.stride), -(-last // p.stride)) % (p.rows // p.stride)
        return {name: array[starts if name == MEMORY else at] for name, array in self.arrays.items()}

    def state(self) -> Tree:
        """Chunks end at multiples of `chunk` steps, whenever a run is saved: equal runs, equal files."""
        p, oldest = self.plan, max(0, self.head - self.plan.rows)
        while p.chunk and self.head - self.sealed >= p.chunk:
            name, end = f"replay-{self.sealed // p.chunk:08d}", self.sealed + p.chunk
            if end > oldest:
                self.chunks.append(ArrayChunk.from_arrays(name, self._cut(max(self.sealed, oldest), end)))
            self.sealed = end
        self.chunks = [chunk for chunk in self.chunks if (chunk.number + 1) * p.chunk > oldest]
        rest = self._cut(max(self.sealed, oldest), self.head)
        return {"head": self.head, "sealed": self.sealed, "chunks": list(self.chunks), "rest": rest}

    def restore(self, tree: Tree) -> None:
        self.head, self.sealed, self.chunks = tree["head"], tree["sealed"], list(tree["chunks"])
        oldest = max(0, self.head - self.plan.rows)
        for chunk in self.chunks:
            found = chunk.arrays()
            self._put(found, (chunk.number + 1) * self.plan.chunk - len(found["action"]), oldest)
        self._put(tree["rest"], max(self.sealed, oldest), oldest)

    def _put(self, found: dict[str, NDArray[Any]], first: int, oldest: int) -> None:
        """Steps from `first` on; those before `oldest` have been overwritten."""
        p = self.plan
        for name, array in found.items():
            begin = -(-first // p.stride) if name == MEMORY else first
            ring, old = (p.rows // p.stride, -(-oldest // p.stride)) if name == MEMORY else (p.rows, oldest)
            number = np.arange(begin, begin + len(array))
            self.arrays[name][number[number >= old] % ring] = array[number >= old]
