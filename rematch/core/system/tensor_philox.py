"""The counter-based random numbers of core/rng.py on tensors, so that a CUDA graph can draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LOW, HALF = 0xFFFFFFFF, 0xFFFF


def words(
    key: int | Tensor, counter: tuple[Tensor | int, Tensor | int, Tensor | int, Tensor | int]
) -> list[Tensor]:
    """Four random 32-bit words, int64 tensors, for counters that broadcast; the words of `rng.philox`."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & LOW, key >> 32 & LOW
    for _ in range(10):
        high0, low0 = _product(0xD2511F53, c0)
        high1, low1 = _product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return [c0, c1, c2, c3]  # type: ignore[list-item]


def _product(a: int, b: Tensor | int) -> tuple[Tensor | int, Tensor | int]:
    """The upper and lower 32 bits of a * b, without an overflow of 64 bits."""
    low, high = a * (b & HALF), a * (b >> 16)
    return (high + (low >> 16)) >> 16, ((high & HALF) << 16) + low & LOW


def units(word: Tensor) -> Tensor:
    """24 bits of random words as float32 in [0, 1): `rm_unit` of worlds/native/random.h."""
    return (word >> 8).float() * 2.0**-24


def step_words(step: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and upper 32 bits of step numbers, as `rm_philox` takes them."""
    return step & LOW, step >> 32 & LOW
