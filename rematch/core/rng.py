"""Random keys in Python: Philox 4x32-10, bit for bit that of worlds/native/random.h.

Everything random in a run is a function of (run seed, stream, game or index, step). The streams are
listed here so that no two purposes ever share one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

RESET, BOT, ACT, SENSOR = 1, 2, 3, 4  # also in random.h
GAME, SHUFFLE, INIT, SEATING, EVALUATE, RESERVOIR, STAGGER, ANYWHERE = 16, 17, 18, 19, 20, 21, 22, 23
REPLAY = 24  # which sequences are learnt from
FISHER, NOVELTY = 32, 33  # guards and bonuses
EXPLOIT, TEACH, DROPOUT = 34, 35, 36  # exploiters, expert iteration, transformers
BOOTSTRAP = 40  # resampling what was measured
LAYOUT = 41  # of a cartridge's world
SWARM, PRACTICE, SCOUT = 42, 43, 44  # which savestate a game begins from, how far it is led; scouts' own

Words = NDArray[np.uint64]


def philox(key: int, counter: NDArray[np.integer]) -> Words:
    """Four random 32-bit words (as uint64, [..., 4]) for each counter [..., 4] under one 64-bit key."""
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
    """[count] random 64-bit words named by (seed, stream, 0 .. count - 1, step)."""
    counter = np.zeros((count, 4), np.uint64)
    counter[:, 0] = np.arange(count)
    counter[:, 1] = step & 0xFFFFFFFF
    counter[:, 2] = stream
    counter[:, 3] = step >> 32
    out = philox(seed, counter)
    return out[:, 0] << np.uint64(32) | out[:, 1]


def units(seed: int, stream: int, count: int, step: int = 0) -> NDArray[np.float64]:
    """[count] numbers in [0, 1), as `words`."""
    return (words(seed, stream, count, step) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@lru_cache(maxsize=4096)
def key(seed: int, stream: int, index: int = 0, step: int = 0) -> int:
    """One 64-bit key derived from another. Players ask for the same one at every step: it is remembered."""
    counter = np.array([index & 0xFFFFFFFF, step & 0xFFFFFFFF, stream, step >> 32], np.uint64)
    out = philox(seed, counter)
    return int(out[0]) << 32 | int(out[1])


def generator(seed: int, stream: int, index: int = 0, step: int = 0) -> np.random.Generator:
    """A numpy generator that starts at this key; use it and drop it, never keep it."""
    return np.random.Generator(np.random.Philox(key=key(seed, stream, index, step)))
