"""One emulator: a state and inputs are a game, on any instance and at any moment."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gameboy_worlds

from rematch.core import rng
from rematch.worlds.gameboy.emulator import pyboy_emulator


def test_a_state_goes_on_alike_on_another_machine_at_every_moment() -> None:
    """From power-on, through title and texts: the window is drawn alike, which PyBoy's states leave out."""
    gameboy_worlds.need_pyboy()
    rom = gameboy_worlds.tiny().rom
    one, other = pyboy_emulator.acquire(rom), pyboy_emulator.acquire(rom)
    actions = gameboy_worlds.tiny().solution[:60]
    for moment, action in enumerate(actions):
        other.load(one.save())
        one.press(action)
        other.press(action)
        assert np.array_equal(one.screen(), other.screen()), moment
        if moment % 10 == 0:
            assert one.save() == other.save(), moment


def test_a_used_machine_is_as_good_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gameboy_worlds.need_pyboy()
    monkeypatch.setattr(pyboy_emulator, "_IDLE", [])  # other tests leave some
    rom = gameboy_worlds.tiny().rom
    used = pyboy_emulator.acquire(rom)
    for action in gameboy_worlds.tiny().solution[:23]:
        used.press(action)
    pyboy_emulator.release({0: used})
    again, fresh = pyboy_emulator.acquire(rom), pyboy_emulator.Emulator(rom)
    assert again is used and again.save() == pyboy_emulator.power_on(rom)
    fresh.finish_frames()
    fresh.load(pyboy_emulator.power_on(rom))
    for action in (rng.words(1, rng.ACT, 12) % 7).tolist():
        again.press(action)
        fresh.press(action)
    assert again.save() == fresh.save()


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_packed_frames_come_back(seed: int, count: int) -> None:
    shape = (count, pyboy_emulator.HEIGHT, pyboy_emulator.WIDTH)
    frames = (rng.words(seed, rng.ACT, int(np.prod(shape))) % 4).astype(np.uint8).reshape(shape)
    packed = pyboy_emulator.pack(frames)
    assert packed.shape == (count, 1440) and packed.dtype == np.uint8
    assert np.array_equal(pyboy_emulator.unpack(packed), frames)
    assert packed[0, 0] == sum(int(frames[0, 0, pixel]) * 4**pixel for pixel in range(4))


def test_a_frame_is_every_second_pixel() -> None:
    gameboy_worlds.need_pyboy()
    one = pyboy_emulator.acquire(gameboy_worlds.tiny().rom)
    for action in gameboy_worlds.tiny().solution[:12]:
        one.press(action)
    frame = np.zeros((72, 80), np.uint8)
    one.frame(frame)
    assert np.array_equal(frame, one.screen()[::2, ::2] // 64) and set(np.unique(frame)) == {0, 1, 2, 3}


def slowly(one: pyboy_emulator.Emulator, state: bytes | None = None) -> bytes:
    """PyBoy's own way."""
    if state is not None:
        one.boy.load_state(io.BytesIO(state))
    file = io.BytesIO()
    one.boy.save_state(file)
    return file.getvalue()


def test_compiled_states_are_pyboys_own_bytes() -> None:
    gameboy_worlds.need_pyboy()
    assert pyboy_emulator.compiled() is not None
    one = pyboy_emulator.acquire(gameboy_worlds.tiny().rom)
    seen = []
    for moment, action in enumerate(gameboy_worlds.tiny().solution[:60]):
        one.press(action)
        if moment % 6 == 0:
            seen.append(one.save())
            assert seen[-1] == slowly(one), moment
    assert len(set(seen)) == len(seen)
    for state in seen:
        one.load(state)
        assert slowly(one) == state == slowly(one, state) == one.save()


def test_compiled_memory_and_frames_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    gameboy_worlds.need_pyboy()
    one = pyboy_emulator.acquire(gameboy_worlds.tiny().rom)
    regions = [(0, 3), (0x3FFE, 0x4003), (0x8000, 0x8100), (0xA000, 0xA010), (0xC000, 0xE000)]
    regions.append((0xFF80, 0x10000))
    size = sum(end - first for first, end in regions)
    for action in gameboy_worlds.tiny().solution[:40]:
        one.press(action)
        ram, frame = np.zeros((2, size), np.uint8), np.zeros((2, 72, 80), np.uint8)
        for i, module in enumerate((pyboy_emulator.compiled(), None)):
            with monkeypatch.context() as patch:
                patch.setattr(pyboy_emulator, "compiled", lambda module=module: module)
                one.read(regions, ram[i])
                one.frame(frame[i])
        assert np.array_equal(*ram) and np.array_equal(*frame) and ram.any() and frame.any()


@pytest.mark.parametrize(("regions", "size"), [
    ([(-1, 4)], 5), ([(0, 0x10001)], 0x10001), ([(9, 5)], 4), ([(0, 9)], 8), ([(0, 9)], 10), ([], 1),
])  # fmt: skip
def test_regions_that_do_not_fit_are_refused(regions: list[tuple[int, int]], size: int) -> None:
    gameboy_worlds.need_pyboy()
    one = pyboy_emulator.acquire(gameboy_worlds.tiny().rom)
    out = np.full(size, 7, np.uint8)
    with pytest.raises(ValueError):
        one.read(regions, out)


def test_a_state_that_ends_too_soon_is_refused_at_any_length() -> None:
    gameboy_worlds.need_pyboy()
    one = pyboy_emulator.acquire(gameboy_worlds.tiny().rom)
    whole = one.save()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        with pytest.raises(EOFError, match="too early"):
            one.load(whole[:size])
    one.load(whole)
    assert one.save() == whole


@pytest.mark.parametrize("there", ["", "2.0.0"])
def test_without_it_or_for_another_pyboy_states_are_made_slowly(
    there: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    gameboy_worlds.need_pyboy()
    pyboy_emulator.load_pyboy()
    quick: Any = pyboy_emulator.compiled()
    state = pyboy_emulator.acquire(gameboy_worlds.tiny().rom).save()
    name = quick.__name__
    other = SimpleNamespace(__name__=name, BUILD=quick.BUILD, PYBOY=there)
    monkeypatch.setitem(sys.modules, name, other if there else None)
    monkeypatch.delattr("rematch.worlds.gameboy.emulator.fast_emulator")
    if there:
        monkeypatch.setattr("rematch.worlds.gameboy.emulator.fast_emulator", other, raising=False)
    monkeypatch.setattr(pyboy_emulator, "compiled", pyboy_emulator.compiled.__wrapped__)
    assert pyboy_emulator.compiled() is None
    output = [str(warning.message) for warning in recwarn if "the emulator is slow" in str(warning.message)]
    assert len(output) == bool(there) and all("make clean build" in line for line in output)
    one = pyboy_emulator.acquire(gameboy_worlds.tiny().rom)
    assert one.save() == state
    one.load(state)
