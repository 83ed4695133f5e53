"""Array types used everywhere, and the tree that a state is stored as.

A stored state may come from a stranger: `load_state_dict` reads its values with the functions below, which
raise ValueError (KeyError for a missing key).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]


Tree = dict[str, Any]  # nested dicts with arrays, numbers, strings and lists at the leaves

LARGEST = 2**63 - 1  # of a stored whole number
CACHE_LINE = 64  # bytes


def aligned_zeros(shape: tuple[int, ...]) -> Floats:
    """Zeros that begin at a cache line; vector instructions are up to 10 % slower on arrays that do not."""
    size = math.prod(shape) * np.dtype(np.float32).itemsize
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % CACHE_LINE
    return memory[first : first + size].view(np.float32).reshape(shape)


def stored_int(tree: Mapping[str, Any], key: str, low: int = 0, high: int = LARGEST) -> int:
    """The whole number `tree[key]`, from `low` to `high`."""
    value = tree[key]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{key} = {value!r:.60}: expected a whole number from {low} to {high}")
    return value


def stored_float(tree: Mapping[str, Any], key: str, low: float = -math.inf, high: float = math.inf) -> float:
    """The finite number `tree[key]`, from `low` to `high`."""
    value = tree[key]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{key} = {value!r:.60}: expected a number from {low:g} to {high:g}")
    return float(value)


def stored_bool(tree: Mapping[str, Any], key: str) -> bool:
    value = tree[key]
    if not isinstance(value, bool):
        raise ValueError(f"{key} = {value!r:.60}: expected true or false")
    return value


def stored_text(tree: Mapping[str, Any], key: str, among: Collection[str] | None = None) -> str:
    """The text `tree[key]`, one of `among` if that is given."""
    value = tree[key]
    if not isinstance(value, str) or (among is not None and value not in among):
        expected = "text" if among is None else " or ".join(map(repr, among))
        raise ValueError(f"{key} = {value!r:.60}: expected {expected}")
    return value


def stored_list(tree: Mapping[str, Any], key: str, length: int | None = None) -> list[Any]:
    """The list `tree[key]`, of this `length` if that is given."""
    value = tree[key]
    if not isinstance(value, list | tuple) or length not in (None, len(value)):
        count = "" if length is None else f" of {length} entries"
        raise ValueError(f"{key} = {value!r:.60}: expected a list{count}")
    return list(value)


def stored_texts(tree: Mapping[str, Any], key: str, among: Collection[str] | None = None) -> list[str]:
    """The list of texts `tree[key]`, each one of `among` if that is given."""
    return [stored_text({key: text}, key, among) for text in stored_list(tree, key)]


def stored_array(tree: Mapping[str, Any], key: str, like: NDArray[Any]) -> NDArray[Any]:
    """The array `tree[key]`, which must have shape and type of `like`."""
    value = tree[key]
    if not isinstance(value, np.ndarray) or value.shape != like.shape or value.dtype != like.dtype:
        kind = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else f"{value!r:.60}"
        raise ValueError(f"{key} = {kind}: expected {like.dtype}{list(like.shape)}")
    return value


def part_edges(rows: int, parts: int) -> list[int]:
    """The first row of each of at most `parts` equal parts, and the number of rows."""
    count = max(1, min(parts, rows))
    return [rows * n // count for n in range(count + 1)]
