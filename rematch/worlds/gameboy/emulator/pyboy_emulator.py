"""One emulated Game Boy: PyBoy without window or sound, one action at a time.

An action is a button held for 8 of 24 ticks of which the last is drawn (spec section 2). The same state and
inputs give the same bytes on any instance, so a state and a list of inputs are a game.
"""

from __future__ import annotations

import atexit
import functools
import io
import sys
import threading
import warnings
import weakref
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes
from rematch.core.errors import NotInstalled
from rematch.core.native_build import refuse_stale

from ..cartridge.constants import ACTIONS, PRESS, TICKS

LCDC, LCD_ON = 0xFF40, 0x80  # the display's register, and the bit that says that it is on
WARM_UP = 600  # frames within which the display must come on

HEIGHT, WIDTH = 72, 80  # of a frame: every second pixel of every second line
SHIFTS: NDArray[np.uint8] = np.array([0, 2, 4, 6], np.uint8)  # of the four pixels in a byte
Region = tuple[int, int]  # of memory: first address, and the one after the last


@functools.cache
def library() -> Any:
    """PyBoy, without the window library that it would load: that took longer than all the rest of it.

    Who wants a window loads that library before (human_play.py).
    """
    hidden = "sdl2" not in sys.modules
    if hidden:
        sys.modules["sdl2"] = None  # type: ignore[assignment]  # importing it fails: PyBoy does without
    try:
        import pyboy
    except ImportError:
        raise NotInstalled("PyBoy", "pyboy") from None
    finally:
        if hidden:
            del sys.modules["sdl2"]
    return pyboy


def installed() -> str:
    """Which PyBoy is here: states and runs go on to the same bits only under the same one."""
    try:
        return f"pyboy {version('pyboy')}"
    except PackageNotFoundError:
        return ""


@functools.cache
def compiled() -> ModuleType | None:
    """fast_savestates.pyx, if it was compiled, and against this very PyBoy; else PyBoy's own way, slowly."""
    library()
    try:
        from . import fast_savestates
    except ModuleNotFoundError:  # PyBoy came later than Rematch
        return None
    except (ImportError, TypeError, ValueError):  # what Cython raises where classes have another layout
        built = "another"
    else:
        refuse_stale(
            fast_savestates.__name__, fast_savestates.BUILD, Path(__file__).with_name("fast_savestates.pyx")
        )
        built = fast_savestates.PYBOY
    if built == version("pyboy"):
        return fast_savestates
    said = f"savestates are slow: fast_savestates.pyx was compiled for PyBoy {built}, "
    said += f"and {version('pyboy')} is here"
    warnings.warn(f"{said}; compile it again with: make clean build", stacklevel=2)
    return None


_EVERY: weakref.WeakSet[Machine] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """While Python is still whole: PyBoy writes to its log when it is stopped."""
    for machine in list(_EVERY):
        machine.stop()


class Machine:
    """A Game Boy with a cartridge in it."""

    def __init__(self, rom: bytes, window: str = "null") -> None:
        boy = library().PyBoy
        # From memory, never from a path: PyBoy would read and write save files beside the cartridge.
        self.boy: Any = boy(io.BytesIO(rom), window=window, sound_emulated=False, log_level="CRITICAL")
        self.memory: Any = self.boy.memory
        self.rom = rom
        self.pixels: Bytes = self.boy.screen.ndarray[:, :, 0]  # a view: PyBoy draws into it
        self.coarse = self.pixels[::2, ::2]
        _EVERY.add(self)

    def settle(self) -> None:
        """Draw whole frames, so that nothing is left of what was drawn before.

        PyBoy's states lack one number, the line of the window at which it is drawing; it goes back to its
        start at the end of every frame that is drawn to its last line. Each game begins with it there.
        """
        for _ in range(WARM_UP):
            if self.memory[LCDC] & LCD_ON:
                break
            self.boy.tick(1, False)
        for _ in range(3):
            self.boy.tick(1, True)

    def press(self, action: int) -> None:
        boy, name = self.boy, ACTIONS[action]
        boy.button_press(name)
        boy.tick(PRESS, False)
        boy.button_release(name)
        boy.tick(TICKS - PRESS, True)
        if not self.memory[LCDC] & LCD_ON:  # that frame was not drawn to its last line: see settle
            state = self.save()
            self.load(power_on(self.rom))
            self.settle()
            self.load(state)

    def frame(self, out: Bytes) -> None:
        """What is shown, [72, 80]: 0 black to 3 white."""
        np.right_shift(self.coarse, 6, out=out)

    def screen(self) -> Bytes:
        """All of it, [144, 160] grey."""
        return self.pixels.copy()

    def read(self, regions: Sequence[Region], out: Bytes) -> None:
        """These parts of memory, one after the other."""
        memory, found = self.memory, []
        for first, end in regions:
            found += memory[first:end]
        out[:] = np.frombuffer(bytes(found), np.uint8)

    def save(self) -> bytes:
        if fast := compiled():
            return bytes(fast.save(self.boy))
        file = io.BytesIO()
        self.boy.save_state(file)
        return file.getvalue()

    def load(self, state: bytes) -> None:
        """PyBoy neither asks which game a state belongs to nor where it ends: see savestates.py."""
        if fast := compiled():
            fast.load(self.boy, state)
        else:
            self.boy.load_state(io.BytesIO(state))

    def stop(self) -> None:
        self.boy.stop(save=False)


@functools.lru_cache(maxsize=8)
def power_on(rom: bytes) -> bytes:
    """The state in which a game begins that begins at all."""
    machine = Machine(rom)
    state = machine.save()
    machine.stop()
    return state


_SPARE: list[Machine] = []  # making one takes longer than loading a state
MOST_SPARE = 64
_TAKING = threading.Lock()


def ready(rom: bytes) -> Machine:
    """A machine at power-on, like any other."""
    machine: Machine | None = None
    with _TAKING:
        for place, spare in enumerate(_SPARE):
            if spare.rom == rom:
                machine = _SPARE.pop(place)
                break
    if machine is None:
        machine = Machine(rom)
        machine.settle()
    machine.load(power_on(rom))
    return machine


def give_back(machines: dict[int, Machine]) -> None:
    """Whoever needs one next can have these."""
    while machines:
        _, machine = machines.popitem()
        if len(_SPARE) < MOST_SPARE:
            _SPARE.append(machine)


def pack(frames: Bytes) -> Bytes:
    """[n, 72, 80] of 0 .. 3 to [n, 1440]: four pixels a byte, the first in the lowest bits."""
    four = frames.reshape(len(frames), -1, 4)
    shifted: Bytes = np.left_shift(four, SHIFTS, dtype=np.uint8)
    packed: Bytes = np.bitwise_or.reduce(shifted, axis=2, dtype=np.uint8)
    return packed


def unpack(packed: Bytes) -> Bytes:
    """[n, 1440] to [n, 72, 80]."""
    return (packed[:, :, None] >> SHIFTS & np.uint8(3)).reshape(len(packed), HEIGHT, WIDTH)
