"""One emulated Game Boy: PyBoy without window or sound, one action at a time.

An action holds a button for 8 of 24 ticks; the last tick is drawn (spec section 2). The same state and inputs
give the same bytes on every instance, so a state and a list of inputs define a game.
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

LCDC, LCD_ON = 0xFF40, 0x80  # register of the display, and its bit "on"
MAX_WAIT = 600  # frames to wait for the display

HEIGHT, WIDTH = 72, 80  # of an observed frame: every second pixel of every second line
SHIFTS: NDArray[np.uint8] = np.array([0, 2, 4, 6], np.uint8)  # of the four pixels in a byte
Region = tuple[int, int]  # of memory: first address, and the one after the last


@functools.cache
def load_pyboy() -> Any:
    """The module pyboy, without the window library sdl2, which takes longer to load than all the rest.

    human_play.py loads sdl2 first, because it opens a window.
    """
    hidden = "sdl2" not in sys.modules
    if hidden:
        sys.modules["sdl2"] = None  # type: ignore[assignment]  # the import fails, and PyBoy works without it
    try:
        import pyboy
    except ImportError:
        raise NotInstalled("PyBoy", "pyboy") from None
    finally:
        if hidden:
            del sys.modules["sdl2"]
    return pyboy


def pyboy_version() -> str:
    """Name and version of PyBoy: states and runs resume to the same bits only with the same version."""
    try:
        return f"pyboy {version('pyboy')}"
    except PackageNotFoundError:
        return ""


@functools.cache
def compiled() -> ModuleType | None:
    """The module fast_emulator, if it was compiled for this version of PyBoy; else None (slower)."""
    load_pyboy()
    try:
        from . import fast_emulator
    except ModuleNotFoundError:  # PyBoy was installed after Rematch was built
        return None
    except (ImportError, TypeError, ValueError):  # Cython raises these if classes have another layout
        built = "another"
    else:
        refuse_stale(
            fast_emulator.__name__, fast_emulator.BUILD, Path(__file__).with_name("fast_emulator.pyx")
        )
        built = fast_emulator.PYBOY
    if built == version("pyboy"):
        return fast_emulator
    message = f"the emulator is slow: fast_emulator.pyx was compiled for PyBoy {built}, "
    message += f"and {version('pyboy')} is installed"
    warnings.warn(f"{message}; compile it again with: make clean build", stacklevel=2)
    return None


_ALL: weakref.WeakSet[Emulator] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop before the interpreter shuts down: PyBoy writes to its log when it is stopped."""
    for emulator in list(_ALL):
        emulator.stop()


class Emulator:
    """A Game Boy with a cartridge."""

    def __init__(self, rom: bytes, window: str = "null") -> None:
        boy = load_pyboy().PyBoy
        # From memory, never from a path: PyBoy would read and write save files beside the cartridge.
        self.boy: Any = boy(io.BytesIO(rom), window=window, sound_emulated=False, log_level="CRITICAL")
        self.memory: Any = self.boy.memory
        self.rom = rom
        self.pixels: Bytes = self.boy.screen.ndarray[:, :, 0]  # a view: PyBoy draws into it
        _ALL.add(self)

    def finish_frames(self) -> None:
        """Draw whole frames, so that the next frame does not depend on earlier ones.

        PyBoy's states lack one number, the window line that is being drawn. It is reset at the end of every
        frame that is drawn to its last line. Each game starts with this number reset.
        """
        for _ in range(MAX_WAIT):
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
        if not self.memory[LCDC] & LCD_ON:  # the frame was not drawn to its last line: see finish_frames
            state = self.save()
            self.load(power_on(self.rom))
            self.finish_frames()
            self.load(state)

    def frame(self, out: Bytes) -> None:
        """Write the screen, [72, 80]: 0 black to 3 white."""
        if fast := compiled():
            fast.shrink(self.pixels, out)
        else:
            np.right_shift(self.pixels[::2, ::2], 6, out=out)

    def screen(self) -> Bytes:
        """The whole screen in grey, [144, 160]."""
        return self.pixels.copy()

    def read(self, regions: Sequence[Region], out: Bytes) -> None:
        """Write these parts of memory, one after the other."""
        if fast := compiled():
            fast.read(self.boy, tuple(regions), out)
        else:
            values = [value for first, end in regions for value in self.memory[first:end]]
            out[:] = np.frombuffer(bytes(values), np.uint8)

    def save(self) -> bytes:
        if fast := compiled():
            return bytes(fast.save(self.boy))
        file = io.BytesIO()
        self.boy.save_state(file)
        return file.getvalue()

    def load(self, state: bytes) -> None:
        """PyBoy checks neither the game nor the length of a state: see savestates.py."""
        if fast := compiled():
            fast.load(self.boy, state)
        else:
            self.boy.load_state(io.BytesIO(state))

    def stop(self) -> None:
        self.boy.stop(save=False)


@functools.lru_cache(maxsize=8)
def power_on(rom: bytes) -> bytes:
    """The initial state of a cartridge."""
    emulator = Emulator(rom)
    state = emulator.save()
    emulator.stop()
    return state


_IDLE: list[Emulator] = []  # reused: making one takes longer than loading a state
MAX_IDLE = 64
_IDLE_LOCK = threading.Lock()


def acquire(rom: bytes) -> Emulator:
    """An emulator at power-on, new or reused."""
    emulator: Emulator | None = None
    with _IDLE_LOCK:
        for index, idle in enumerate(_IDLE):
            if idle.rom == rom:
                emulator = _IDLE.pop(index)
                break
    if emulator is None:
        emulator = Emulator(rom)
        emulator.finish_frames()
    emulator.load(power_on(rom))
    return emulator


def release(emulators: dict[int, Emulator]) -> None:
    """Make these emulators available to `acquire`."""
    while emulators:
        _, emulator = emulators.popitem()
        if len(_IDLE) < MAX_IDLE:
            _IDLE.append(emulator)


def pack(frames: Bytes) -> Bytes:
    """[n, 72, 80] of 0 to 3 -> [n, 1440]: four pixels per byte, the first in the lowest bits."""
    four = frames.reshape(len(frames), -1, 4)
    shifted: Bytes = np.left_shift(four, SHIFTS, dtype=np.uint8)
    packed: Bytes = np.bitwise_or.reduce(shifted, axis=2, dtype=np.uint8)
    return packed


def unpack(packed: Bytes) -> Bytes:
    """[n, 1440] -> [n, 72, 80]."""
    return (packed[:, :, None] >> SHIFTS & np.uint8(3)).reshape(len(packed), HEIGHT, WIDTH)
