"""`rematch play gameboy`: a person at the buttons, in a window where there is one, else in the terminal.

In the terminal the screen is drawn with half blocks, two pixels a character: whole where it has 160 columns
and 74 lines, else every second pixel. Keys come one at a time; each is an action of 24 frames, as a policy's.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from rematch.core.arrays import Bytes
from rematch.core.config import apply, read_flags, refuse_inert, validate
from rematch.core.errors import ConfigError

from .cartridge.constants import ACTIONS

if TYPE_CHECKING:
    from .world import GameboyWorld

KEYS = {
    "s": "down", "a": "left", "d": "right", "w": "up", "\x1b[B": "down", "\x1b[D": "left", "\x1b[C": "right",
    "\x1b[A": "up", "j": "a", "x": "a", " ": "a", "k": "b", "z": "b", "\r": "start", "\n": "start",
}  # fmt: skip
HELP = "arrows or wasd: walk   j or space: A   k: B   enter: start   q: leave"
TERMINAL = "--terminal"
FRAME = 24 / 60  # seconds of an action on the console
UNSEEN = ("screen", "mask", "workers", "patience")  # settings that mean nothing to a person
PATIENCE = 0.5 * FRAME  # a key that is held repeats itself about as often


def play(words: Sequence[str]) -> int:
    from .config import Config
    from .world import GameboyWorld

    load_window()
    rest = [word for word in words if word != TERMINAL]
    given = read_flags(rest, Config(), prefix="world.")
    if idle := [key for key in given if key in UNSEEN]:
        raise ConfigError(f"--{idle[0]} has no effect in play: it is about what policies see and where they "
                          "are trained")  # fmt: skip
    config = apply(Config(), {"max_steps": 200_000}, "play")
    config = apply(config, given, "command line", text=True, prefix="world.")
    validate(config)
    refuse_inert(config, list(given), "command line")
    if sys.stdin is None:
        raise ConfigError("play gameboy: there is no standard input to take keys from; expected a terminal")
    if TERMINAL not in words and sys.stdin.isatty() and window(config):
        return 0
    return terminal(GameboyWorld(config, 1), sys.stdin, sys.stdout)


def load_window() -> None:
    """SDL, before PyBoy is loaded: machine.library else keeps it away."""
    with warnings.catch_warnings(), contextlib.suppress(ImportError):  # then there is the terminal
        warnings.simplefilter("ignore")  # it announces itself
        importlib.import_module("sdl2")


def window(config: Any) -> bool:
    """Play in a window with PyBoy's own keys; False where there is no display or no SDL."""
    from . import titles
    from .emulator import pyboy_emulator

    display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not display and sys.platform not in ("darwin", "win32"):
        return False
    rom, title = titles.find(config.rom, config.cartridge, config.cartridge_seed)
    try:
        shown = pyboy_emulator.Machine(rom, "SDL2")
        sdl = importlib.import_module("sdl2")
    except Exception:  # whatever SDL has to say: the terminal always works
        return False
    if sdl.SDL_GetCurrentVideoDriver() in (None, b"dummy", b"offscreen"):  # a window that nobody sees
        shown.stop()
        return False
    print(f"{title.name}   arrows: walk   a: A   s: B   enter: start   escape: leave")
    while shown.boy.tick():
        pass
    shown.stop()
    return True


def terminal(world: GameboyWorld, source: IO[str], out: IO[str]) -> int:
    """Keys from `source` until q, its end, or the end of the game."""
    live = out.isatty()
    if live:
        out.write("\x1b[2J\x1b[?25l")
    total, before = 0.0, 0.0
    with contextlib.ExitStack() as after:
        if live:
            after.callback(lambda: out.write("\x1b[?25h\x1b[0m\n"))
        if live:  # nothing is drawn at power-on: a B, which does nothing there, brings the first picture
            world.step({"joypad": np.array([[ACTIONS.index("b")]], np.int32)})
        _picture(world, out, total, live)
        for action in _keys(source):
            time.sleep(max(0.0, before + PATIENCE - time.monotonic()) if live else 0.0)
            before = time.monotonic()
            view = world.step({"joypad": np.array([[action]], np.int32)})
            total += float(view.reward[0, 0])
            if view.ended[0]:
                what = "the hall of fame" if view.outcome[0, 0] else "cut off"
                out.write(f"\n{what} after {int(view.length[0])} actions\n")
                return 0
            if live:
                _picture(world, out, total, live)
        if not live:
            _picture(world, out, total, live)
    return 0


def _picture(world: GameboyWorld, out: IO[str], total: float, live: bool) -> None:
    columns, lines = shutil.get_terminal_size((80, 40))
    screen = world.screen(0)
    if columns < 160 or lines < 74:
        screen = screen[::2, ::2]
    facts = world._facts()
    place = f"{world.title.map_name(int(facts.map[0]))} {int(facts.x[0])}, {int(facts.y[0])}"
    score = f"badges {int(facts.badges.sum())}   reward {total:.2f}   step {int(world.state['time'][0])}"
    where = f"{place}   {score}"
    home, rest = ("\x1b[H", "\x1b[K") if live else ("", "")
    out.write(f"{home}{half_blocks(screen)}{where}{rest}\n{HELP}{rest}" + ("" if live else "\n"))
    out.flush()


def half_blocks(screen: Bytes) -> str:
    """Two lines of pixels a line of text: the upper as the block's colour, the lower as its ground."""
    grey = 232 + screen.astype(np.int64) * 23 // 255  # of the terminal's 256 colours
    out = []
    for upper, lower in zip(grey[::2].tolist(), grey[1::2].tolist()):
        last = (-1, -1)
        for pair in zip(upper, lower):
            if pair != last:
                out.append(f"\x1b[38;5;{pair[0]};48;5;{pair[1]}m")
                last = pair
            out.append("▀")
        out.append("\x1b[0m\n")
    return "".join(out)


def _keys(source: IO[str]) -> Iterator[int]:
    """Actions by number; keys that mean nothing are passed over."""
    with _raw(source):
        while True:
            key = _one(source)
            if key in ("", "q", "\x03", "\x04"):
                return
            if key in KEYS:
                yield ACTIONS.index(KEYS[key])


def _one(source: IO[str]) -> str:
    """The next key; an arrow is three characters that come together."""
    if not source.isatty():
        key = source.read(1)
        return key + source.read(2) if key == "\x1b" else key
    fd = source.fileno()
    key = os.read(fd, 1).decode(errors="replace")
    while key == "\x1b" or key == "\x1b[":
        if not select.select([fd], [], [], 0.05)[0]:
            break
        key += os.read(fd, 1).decode(errors="replace")
    return key


@contextlib.contextmanager
def _raw(source: IO[str]) -> Iterator[None]:
    """Keys at once and unseen, where the source is a terminal."""
    if not source.isatty():
        yield
        return
    try:
        import termios
        import tty
    except ImportError:
        raise ConfigError("play: this terminal gives no single keys: expected a window, or POSIX") from None
    before = termios.tcgetattr(source.fileno())
    try:
        tty.setcbreak(source.fileno())
        yield
    finally:
        termios.tcsetattr(source.fileno(), termios.TCSADRAIN, before)
