"""Counter-based random numbers: Philox 4x32-10, with the same bits as worlds/native/random.h.

Every random number of a run is a function of (run seed, stream, game or index, step). This list of streams
ensures that no two purposes share one. Stream numbers never change: results of runs depend on them.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rematch.core.native_build import refuse_stale
from rematch.core.system.philox import BUILD, shuffled
from rematch.core.system.philox import words as compiled_words

RESET, BOT, ACT, SENSOR = 1, 2, 3, 4  # also in random.h
DYNAMICS, ACTUATOR, OBSERVATION = 5, 6, 7  # disturbances of pursuit; also in random.h
GAME, SHUFFLE, INIT, SEATING = 16, 17, 18, 19  # seeds of games, minibatch order, weights, seating
EVALUATION, RESERVOIR, STAGGER, RANDOM_START = 20, 21, 22, 23  # RESERVOIR: which snapshots the league keeps
REPLAY_SAMPLE = 24  # sequences sampled from the replay buffer
FISHER, RND = 32, 33  # Fisher information of EWC; random network distillation
EXPLOITER, EXPERT, DROPOUT = 34, 35, 36  # exploiters, expert iteration, transformers
BOOTSTRAP = 40  # resampling of measurements
MAP_LAYOUT = 41  # of a generated cartridge
SAVESTATE, DEMONSTRATION, EXPLORER = 42, 43, 44  # start of a game, length of a demonstration, explorers
IMITATION = 45  # games and minibatches of the imitation of scripted players

Words = NDArray[np.uint64]
refuse_stale("rematch.core.system.philox", BUILD, Path(__file__).parent / "system" / "philox.pyx")


def philox(key: int, counter: NDArray[np.integer]) -> Words:
    """Four random 32-bit words (as uint64, [..., 4]) for each counter [..., 4] under one 64-bit key.

    The readable reference of random.h and philox.pyx.
    """
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) & low for i in range(4))
    k0, k1 = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32 & 0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ k0, p1 & low, (p0 >> shift) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack([c0, c1, c2, c3], axis=-1)


def words(seed: int, stream: int, count: int, step: int = 0) -> Words:
    """[count] random 64-bit words, one for each (seed, stream, index 0 .. count - 1, step)."""
    return compiled_words(seed & 2**64 - 1, stream, count, step & 2**64 - 1)


def units(seed: int, stream: int, count: int, step: int = 0) -> NDArray[np.float64]:
    """[count] uniform numbers in [0, 1), from the same words as `words`."""
    return (words(seed, stream, count, step) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@lru_cache(maxsize=4096)
def key(seed: int, stream: int, index: int = 0, step: int = 0) -> int:
    """One 64-bit key derived from a seed. Cached, because players need the same key at every step."""
    counter = np.array([index & 0xFFFFFFFF, step & 0xFFFFFFFF, stream, step >> 32], np.uint64)
    output = philox(seed, counter)
    return int(output[0]) << 32 | int(output[1])


def generator(seed: int, stream: int, index: int = 0, step: int = 0) -> np.random.Generator:
    """A numpy generator that starts at this key. Use it at once: checkpoints do not store generators."""
    return np.random.Generator(np.random.Philox(key=key(seed, stream, index, step)))


def permutation(
    values: NDArray[np.int64], seed: int, stream: int, index: int = 0, step: int = 0
) -> NDArray[np.int64]:
    """The numbers [n] in random order: `generator(...).permutation(values)`, three times as fast."""
    return shuffled(key(seed, stream, index, step), values)
