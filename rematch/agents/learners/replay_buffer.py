"""Replay buffer: the last steps of all games, packed, with the recurrent state before each sequence.

A ring of `rows` steps of N games; step s of the run is in row s % rows. Sequences start at multiples of
`stride`; the recurrent state before these steps is stored. The reward of the world belongs to its step; a
reward term belongs to an observation, and `q_targets.total_reward` adds it to the step before. Each is a
column, unweighted. On disk, whole chunks of steps are written once (storage/array_chunks.py); the remaining
steps are part of each checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.networks.observation_codec import DecodedObservation, ObservationCodec
from rematch.core.arrays import Bytes, Floats, Tree
from rematch.core.world import RUNNING
from rematch.storage.array_chunks import ArrayChunk

ENV = "env"  # the world's own reward
RECURRENT_STATE = "memory"  # name of the array of recurrent states in chunk files


def reward_column(term: str) -> str:
    """The name of a reward term's column."""
    return f"reward.{term}"


@dataclass(frozen=True, kw_only=True)
class ReplayShape:
    """The sizes of a replay buffer."""

    steps: int  # capacity, all games together
    games: int
    sequence: int
    stride: int  # steps between the starts of two sequences
    history: int  # frames before a sequence that its first steps read
    chunk: int  # steps of each game in a chunk on disk, at most `rows`; 0: no chunks
    recurrent_size: int  # numbers of a recurrent state
    actions: int
    terms: tuple[str, ...] = ()  # reward terms beside the reward of the world

    @property
    def rows(self) -> int:
        """Steps per game, a multiple of `stride`: the index of a stored state follows from its row."""
        return self.steps // self.games // self.stride * self.stride


@dataclass(frozen=True)
class Batch:
    """B sequences of S steps."""

    obs: DecodedObservation
    previous_frames: Bytes | None  # [B, history, H, W] the frames before, zero if of another episode
    action: NDArray[np.int64]  # [B, S]
    ended: Bytes  # [B, S]
    reward: dict[str, Floats]  # the reward of the world (ENV) and every reward term, each [B, S]
    legal: NDArray[np.bool_]  # [B, S, A]
    recurrent_state: Floats  # [B, M] before the first step


def row_bytes(shape: ReplayShape, codec: ObservationCodec) -> int:
    """Bytes of one step of one game, its share of a stored recurrent state included."""
    obs = sum(size * kind.itemsize for size, kind in codec.packed.values())
    other = 2 + 4 * (1 + len(shape.terms)) + -(-shape.actions // 8)
    return obs + other + -(-4 * shape.recurrent_size // shape.stride)


class Replay:
    """Preallocated arrays by name, each [rows, N, ...]; recurrent states [rows / stride, N, M]."""

    def __init__(self, shape: ReplayShape, codec: ObservationCodec) -> None:
        self.shape, self.codec = shape, codec
        n, rows = shape.games, shape.rows
        self.arrays: dict[str, NDArray[Any]] = {
            name: np.zeros((rows, n, size), kind) for name, (size, kind) in codec.packed.items()
        }
        self.arrays["action"] = np.zeros((rows, n), np.uint8)
        self.arrays["ended"] = np.zeros((rows, n), np.uint8)
        self.reward_names = (ENV, *shape.terms)
        for name in self.reward_names:
            self.arrays[reward_column(name)] = np.zeros((rows, n), np.float32)
        self.arrays["legal"] = np.zeros((rows, n, -(-shape.actions // 8)), np.uint8)  # a bit per action
        self.arrays[RECURRENT_STATE] = np.zeros((rows // shape.stride, n, shape.recurrent_size), np.float32)
        self.head = 0  # steps of each game so far
        self.chunks: list[ArrayChunk] = []  # oldest first; the steps after them are in the checkpoint
        self.sealed = 0  # steps that were written to chunks so far

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def size(self) -> int:
        """Stored steps of all games."""
        return min(self.head, self.shape.rows) * self.shape.games

    def add(self, columns: dict[str, NDArray[Any]], states: Floats) -> None:
        """Add T steps: name -> [T, N, ...]; states [k, N, M] before the sequences that start in them."""
        steps, rows = len(columns["action"]), self.shape.rows
        at = (self.head + np.arange(steps)) % rows
        for name, values in columns.items():
            self.arrays[name][at] = values
        first = -(-self.head // self.shape.stride)
        self.arrays[RECURRENT_STATE][(first + np.arange(len(states))) % (rows // self.shape.stride)] = states
        self.head += steps

    def sequence_starts(self) -> NDArray[np.int64]:
        """The starts of all sequences that are completely stored, with the frames before them."""
        p, oldest = self.shape, max(0, self.head - self.shape.rows)
        low = -(-(oldest + p.history if oldest else 0) // p.stride)
        high = (self.head - p.sequence) // p.stride if self.head >= p.sequence else -1
        return np.arange(low, high + 1, dtype=np.int64) * p.stride

    def sequences(self, start: NDArray[np.int64], game: NDArray[np.int64]) -> Batch:
        """The sequences that start at these steps of these games, both [B]."""
        p, a = self.shape, self.arrays
        at = (start[:, None] + np.arange(p.sequence)) % p.rows
        cut = (at, game[:, None])
        obs = self.codec.unpack({name: a[name][cut] for name in self.codec.packed})
        legal = np.unpackbits(a["legal"][cut], axis=-1, count=p.actions).astype(bool)
        state = a[RECURRENT_STATE][start // p.stride % (p.rows // p.stride), game]
        reward = {name: a[reward_column(name)][cut] for name in self.reward_names}
        return Batch(obs, self._previous_frames(start, game), a["action"][cut].astype(np.int64),
                     a["ended"][cut], reward, legal, state)

    def _previous_frames(self, start: NDArray[np.int64], game: NDArray[np.int64]) -> Bytes | None:
        p = self.shape
        if not self.codec.image_field:
            return None
        steps = start[:, None] - np.arange(p.history, 0, -1)  # oldest first
        at = steps % p.rows
        packed = {name: self.arrays[name][at, game[:, None]] for name in self.codec.packed}
        frames = self.codec.unpack(packed).frames
        assert frames is not None
        boundary = (self.arrays["ended"][at, game[:, None]] != RUNNING) | (steps < 0)  # another episode
        same_episode = ~np.logical_or.accumulate(boundary[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(frames * same_episode[:, :, None, None], np.uint8)

    # --- on disk ---

    def _cut(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        """Copies of steps first .. last - 1, and of the recurrent states stored in them."""
        p = self.shape
        at = np.arange(first, last) % p.rows
        starts = np.arange(-(-first // p.stride), -(-last // p.stride)) % (p.rows // p.stride)
        return {name: array[starts if name == RECURRENT_STATE else at] for name, array in self.arrays.items()}

    def state(self) -> Tree:
        """Chunks end at multiples of `chunk` steps, so that equal runs write equal files."""
        p, oldest = self.shape, max(0, self.head - self.shape.rows)
        while p.chunk and self.head - self.sealed >= p.chunk:
            name, end = f"replay-{self.sealed // p.chunk:08d}", self.sealed + p.chunk
            if end > oldest:
                self.chunks.append(ArrayChunk.from_arrays(name, self._cut(max(self.sealed, oldest), end)))
            self.sealed = end
        self.chunks = [chunk for chunk in self.chunks if (chunk.number + 1) * p.chunk > oldest]
        remaining = self._cut(max(self.sealed, oldest), self.head)
        return {"head": self.head, "sealed": self.sealed, "chunks": list(self.chunks), "rest": remaining}

    def restore(self, tree: Tree) -> None:
        self.head, self.sealed, self.chunks = tree["head"], tree["sealed"], list(tree["chunks"])
        oldest = max(0, self.head - self.shape.rows)
        for chunk in self.chunks:
            arrays = chunk.arrays()
            self._put(arrays, (chunk.number + 1) * self.shape.chunk - len(arrays["action"]), oldest)
        self._put(tree["rest"], max(self.sealed, oldest), oldest)

    def _put(self, arrays: dict[str, NDArray[Any]], first: int, oldest: int) -> None:
        """Write steps from `first` on; those before `oldest` are no longer stored."""
        p = self.shape
        for name, array in arrays.items():
            first_row, rows, oldest_row = first, p.rows, oldest
            if name == RECURRENT_STATE:  # one row per stride
                first_row, rows, oldest_row = (-(-n // p.stride) for n in (first, rows, oldest))
            number = np.arange(first_row, first_row + len(array))
            stored = number >= oldest_row
            self.arrays[name][number[stored] % rows] = array[stored]
