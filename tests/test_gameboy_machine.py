"""One emulator: a state and inputs are a game, on any instance and at any moment."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import gameboys
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch import keys
from rematch.worlds.gameboy import machine


def test_a_state_goes_on_alike_on_another_machine_at_every_moment() -> None:
    """From power-on, through title and texts: the window is drawn alike, which PyBoy's states leave out."""
    gameboys.need_pyboy()
    rom = gameboys.tiny().rom
    one, other = machine.ready(rom), machine.ready(rom)
    actions = gameboys.tiny().solution[:60]
    for moment, action in enumerate(actions):
        other.load(one.save())
        one.press(action)
        other.press(action)
        assert np.array_equal(one.screen(), other.screen()), moment
        if moment % 10 == 0:
            assert one.save() == other.save(), moment


def test_a_used_machine_is_as_good_as_a_new_one() -> None:
    gameboys.need_pyboy()
    rom = gameboys.tiny().rom
    used = machine.ready(rom)
    for action in gameboys.tiny().solution[:23]:
        used.press(action)
    machine.give_back({0: used})
    again, fresh = machine.ready(rom), machine.Machine(rom)
    assert again is used and again.save() == machine.power_on(rom)
    fresh.settle()
    fresh.load(machine.power_on(rom))
    for action in (keys.words(1, keys.ACT, 12) % 7).tolist():
        again.press(action)
        fresh.press(action)
    assert again.save() == fresh.save()


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_packed_frames_come_back(seed: int, count: int) -> None:
    shape = (count, machine.HEIGHT, machine.WIDTH)
    frames = (keys.words(seed, keys.ACT, int(np.prod(shape))) % 4).astype(np.uint8).reshape(shape)
    packed = machine.pack(frames)
    assert packed.shape == (count, 1440) and packed.dtype == np.uint8
    assert np.array_equal(machine.unpack(packed), frames)
    assert packed[0, 0] == sum(int(frames[0, 0, pixel]) * 4**pixel for pixel in range(4))


def test_a_frame_is_every_second_pixel() -> None:
    gameboys.need_pyboy()
    one = machine.ready(gameboys.tiny().rom)
    for action in gameboys.tiny().solution[:12]:
        one.press(action)
    frame = np.zeros((72, 80), np.uint8)
    one.frame(frame)
    assert np.array_equal(frame, one.screen()[::2, ::2] // 64) and set(np.unique(frame)) == {0, 1, 2, 3}


def slowly(one: machine.Machine, state: bytes | None = None) -> bytes:
    """PyBoy's own way."""
    if state is not None:
        one.boy.load_state(io.BytesIO(state))
    file = io.BytesIO()
    one.boy.save_state(file)
    return file.getvalue()


def test_compiled_states_are_pyboys_own_bytes() -> None:
    gameboys.need_pyboy()
    assert machine.compiled() is not None
    one = machine.ready(gameboys.tiny().rom)
    seen = []
    for moment, action in enumerate(gameboys.tiny().solution[:60]):
        one.press(action)
        if moment % 6 == 0:
            seen.append(one.save())
            assert seen[-1] == slowly(one), moment
    assert len(set(seen)) == len(seen)
    for state in seen:
        one.load(state)
        assert slowly(one) == state == slowly(one, state) == one.save()


def test_a_state_that_ends_too_soon_is_refused_at_any_length() -> None:
    gameboys.need_pyboy()
    one = machine.ready(gameboys.tiny().rom)
    whole = one.save()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        with pytest.raises(EOFError, match="too soon"):
            one.load(whole[:size])
    one.load(whole)
    assert one.save() == whole


@pytest.mark.parametrize("there", ["", "2.0.0"])
def test_without_it_or_for_another_pyboy_states_are_made_slowly(
    there: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    gameboys.need_pyboy()
    machine.library()
    quick: Any = machine.compiled()
    state = machine.ready(gameboys.tiny().rom).save()
    name = quick.__name__
    other = SimpleNamespace(__name__=name, BUILD=quick.BUILD, PYBOY=there)
    monkeypatch.setitem(sys.modules, name, other if there else None)
    monkeypatch.delattr("rematch.worlds.gameboy.states")
    if there:
        monkeypatch.setattr("rematch.worlds.gameboy.states", other, raising=False)
    monkeypatch.setattr(machine, "compiled", machine.compiled.__wrapped__)
    assert machine.compiled() is None
    said = [str(warning.message) for warning in recwarn if "savestates are slow" in str(warning.message)]
    assert len(said) == bool(there) and all("make clean build" in line for line in said)
    one = machine.ready(gameboys.tiny().rom)
    assert one.save() == state
    one.load(state)
