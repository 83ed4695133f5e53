"""Savestates: what is packed comes back, and whatever does not fit is refused in one line before loading."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.savestates import (
    Bundle,
    Library,
    checked_bytes,
    compress,
    run_length_decode,
    run_length_encode,
    unpack,
)

BODY = bytes(rng.words(3, rng.ACT, 5000).astype("u1"))
ROM, PYBOY = "ab" * 20, "pyboy 9.9.9"


def bundle(body: bytes = BODY, **changes: Any) -> Bundle:
    role_spec = {"rom": ROM, "pyboy": PYBOY, "milestones": ("DAWN", "BADGE-1"), "map": "DAWN"}
    role_spec["inputs"] = run_length_encode([3] * 70)
    return Bundle(**compress(body), **(role_spec | changes))


@given(st.lists(st.integers(0, 6), max_size=200), st.integers(0, 100))
def test_runs_come_back(actions: list[int], more: int) -> None:
    actions = actions + [2] * more
    assert run_length_decode(run_length_encode(actions)) == actions


def test_long_runs_are_short() -> None:
    assert len(run_length_encode([4] * 96)) == 3 and run_length_decode(bundle().inputs) == [3] * 70


@given(st.binary(max_size=100), st.lists(st.text(max_size=8), max_size=4), st.text(max_size=12))
def test_what_is_packed_comes_back(memory: bytes, milestones: list[str], place: str) -> None:
    one = bundle(memory=memory, milestones=tuple(milestones), map=place, start_group="late", parent="cd" * 32)
    assert unpack(one.pack()) == one
    assert checked_bytes(unpack(one.pack()), ROM, PYBOY, len(BODY)) == BODY


@given(st.data())
def test_any_flipped_bit_is_noticed(data: st.DataObject) -> None:
    raw = bytearray(bundle().pack())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ConfigError) as caught:
        unpack(bytes(raw), "a.state")
    assert str(caught.value).startswith("a.state: ") and "\n" not in str(caught.value)


@given(st.integers(0, 5000))
def test_any_truncation_is_noticed(length: int) -> None:
    whole = bundle().pack()
    with pytest.raises(ConfigError, match=r"truncated|cannot be read|not a savestate"):
        unpack(whole[: min(length, len(whole) - 1)])
    with pytest.raises(ConfigError, match="truncated"):
        unpack(whole + b"x")


WRONG = {
    "another game's state": {"rom": "cd" * 20},
    "expected 'pyboy 9.9.9'": {"pyboy": "pyboy 2.0.0"},
    "cannot be expanded": {"packed": b"nonsense"},
    "SHA-256 does not fit": {"sha256": "00" * 32},
    "more than 5000 bytes: expected 5000": {"packed": zlib.compress(bytes(10**8))},
    "4999 bytes: expected 5000": compress(BODY[:-1]),
}


@pytest.mark.parametrize("line", WRONG)
def test_what_does_not_fit_is_refused(line: str) -> None:
    wrong = dataclasses.replace(bundle(), **WRONG[line])
    with pytest.raises(ConfigError, match=line) as caught:
        checked_bytes(wrong, ROM, PYBOY, len(BODY))
    assert "\n" not in str(caught.value)
    library = Library(ROM, PYBOY, len(BODY))
    with pytest.raises(ConfigError, match=line):
        library.add(wrong)
    assert len(library) == 0


def test_a_library_keeps_its_numbers() -> None:
    library = Library(ROM, PYBOY, len(BODY))
    others = [bytes([index]) + BODY[1:] for index in range(3)]
    assert [library.add(bundle(body)) for body in (*others, others[1])] == [0, 1, 2, 1]
    library.quarantine[library[1].sha256] = "it crashed"
    other = Library(ROM, PYBOY, len(BODY))
    other.restore(library.state())
    assert list(other) == list(library) and other.quarantine == library.quarantine
    assert other.emulator(other[2]) == others[2]
