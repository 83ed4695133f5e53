"""`rematch play gameboy`: a person plays, in a window if there is a display, else in the terminal.

In the terminal the screen is drawn with half blocks, two pixels per character: all 160 x 144 pixels if it has
160 columns and 74 lines, else as many as fit, each the mean of the pixels that it stands for. Each key is one
action of 24 frames, as for a policy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import select
import shutil
import sys
import time
import typing
import warnings
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from rematch.core.arrays import Bytes
from rematch.core.config import apply, knob, read_flags, refuse_inert, validate
from rematch.core.errors import ConfigError

from .cartridge.constants import ACTIONS

if TYPE_CHECKING:
    from .world import GameboyWorld

KEYS = {
    "s": "down", "a": "left", "d": "right", "w": "up", "\x1b[B": "down", "\x1b[D": "left", "\x1b[C": "right",
    "\x1b[A": "up", "j": "a", "x": "a", " ": "a", "k": "b", "z": "b", "\r": "start", "\n": "start",
}  # fmt: skip
HELP = "q: leave   arrows or wasd: walk   j or space: A   k: B   enter: start"
TERMINAL = "--terminal"
DEFAULT_SIZE = (80, 40)  # columns and lines where the terminal does not tell
SMALLEST_SIZE, SHARP_SIZE = (40, 14), (80, 38)  # the smallest in which one can play; every second pixel
TEXT_ROWS = 2  # below the picture
ACTION_SECONDS = 24 / 60  # duration of an action on the console
MOST_STEPS = 200_000  # actions of a game, unless --max_steps names another number
NO_EFFECT = ("screen", "mask", "workers", "patience")  # settings without effect on a person's game
KEY_INTERVAL = 0.5 * ACTION_SECONDS  # about the repetition rate of a held key


def play_settings() -> Any:
    """The settings that have an effect for a person, for the help of `rematch play gameboy`."""
    from .config import Config

    types = typing.get_type_hints(Config)
    fields = [field for field in dataclasses.fields(Config) if field.name not in NO_EFFECT]
    defaults = {field.name: field.default for field in fields} | {"max_steps": MOST_STEPS}
    rules = [(field.name, types[field.name],
              dataclasses.field(default=defaults[field.name], metadata=field.metadata)) for field in fields]
    terminal = knob(False, "draw in the terminal also where a window could be opened")
    made = dataclasses.make_dataclass("PlaySettings", [("terminal", bool, terminal), *rules], frozen=True)
    return made()


def play(words: Sequence[str]) -> int:
    from .config import Config
    from .world import GameboyWorld

    load_window()
    in_terminal, others = split_terminal(words)
    flags = read_flags(others, Config(), prefix="world.")
    if unused := [key for key in flags if key in NO_EFFECT]:
        raise ConfigError(f"--{unused[0]} has no effect in play: it is for policies and their training")
    config = apply(Config(), {"max_steps": MOST_STEPS}, "play")
    config = apply(config, flags, "command line", text=True, prefix="world.")
    validate(config)
    refuse_inert(config, list(flags), "command line")
    if sys.stdin is None:
        raise ConfigError("play gameboy: there is no standard input for keys; expected a terminal")
    if not in_terminal and sys.stdin.isatty() and window(config):
        return 0
    return terminal(GameboyWorld(config, 1), sys.stdin, sys.stdout)


def split_terminal(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether --terminal is set, which may have a value, and the other words."""
    chosen, others = False, list(words)
    while TERMINAL in others:
        at = others.index(TERMINAL)
        value = others[at + 1] if others[at + 1 : at + 2] in (["true"], ["false"]) else ""
        del others[at : at + 1 + bool(value)]
        chosen = value != "false"
    return chosen, others


def load_window() -> None:
    """Load SDL before PyBoy: pyboy_emulator.load_pyboy hides it otherwise."""
    with warnings.catch_warnings(), contextlib.suppress(ImportError):  # without SDL the terminal is used
        warnings.simplefilter("ignore")  # it warns at import
        importlib.import_module("sdl2")


def window(config: Any) -> bool:
    """Play in a window with PyBoy's keys; False if there is no display or no SDL."""
    from . import titles
    from .emulator import pyboy_emulator

    display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not display and sys.platform not in ("darwin", "win32"):
        return False
    rom, title = titles.find(config.rom, config.cartridge, config.cartridge_seed)
    try:
        emulator = pyboy_emulator.Emulator(rom, "SDL2")
        sdl = importlib.import_module("sdl2")
    except Exception:  # any error of SDL: the terminal always works
        return False
    if sdl.SDL_GetCurrentVideoDriver() in (None, b"dummy", b"offscreen"):  # an invisible window
        emulator.stop()
        return False
    print(f"{title.name}   arrows: walk   a: A   s: B   enter: start   escape: leave")
    while emulator.boy.tick():
        pass
    emulator.stop()
    return True


def terminal(world: GameboyWorld, source: IO[str], out: IO[str]) -> int:
    """Play with keys from `source` until q, its end, or the end of the game."""
    live = out.isatty()
    if live:
        check_size(shutil.get_terminal_size(DEFAULT_SIZE))
        out.write("\x1b[2J\x1b[?25l")
    total, before = 0.0, 0.0
    with contextlib.ExitStack() as cleanup:
        if live:
            cleanup.callback(lambda: out.write("\x1b[?25h\x1b[0m\n"))
        if live:  # power-on draws nothing: a B, which has no effect there, draws the first picture
            world.step({"joypad": np.array([[ACTIONS.index("b")]], np.int32)})
        _picture(world, out, total, live)
        for action in _keys(source):
            time.sleep(max(0.0, before + KEY_INTERVAL - time.monotonic()) if live else 0.0)
            before = time.monotonic()
            view = world.step({"joypad": np.array([[action]], np.int32)})
            total += float(view.reward[0, 0])
            if view.ended[0]:
                end = "the hall of fame" if view.outcome[0, 0] else "cut off"
                out.write(f"\n{end} after {int(view.length[0])} actions\n")
                return 0
            if live:
                _picture(world, out, total, live)
        if not live:
            _picture(world, out, total, live)
    return 0


def check_size(size: tuple[int, int]) -> None:
    """ConfigError for a terminal in which nothing could be recognized."""
    if size[0] < SMALLEST_SIZE[0] or size[1] < SMALLEST_SIZE[1]:
        raise ConfigError(f"play gameboy: the terminal has {size[0]} columns and {size[1]} lines; expected "
                          f"at least {SMALLEST_SIZE[0]} and {SMALLEST_SIZE[1]}")


def fitted(screen: Bytes, columns: int, rows: int) -> Bytes:
    """The screen [144, 160] for `columns` characters and `rows` lines: whole, or as means of areas."""
    height, width = screen.shape
    scale = min(1.0, columns / width, 2 * rows / height)
    if scale == 1.0:
        return screen
    if scale >= 0.5:
        return screen[::2, ::2]  # sharp
    new_height, new_width = max(2, int(height * scale) // 2 * 2), max(1, int(width * scale))
    tops = np.arange(new_height) * height // new_height
    lefts = np.arange(new_width) * width // new_width
    sums = np.add.reduceat(np.add.reduceat(screen.astype(np.int64), tops, 0), lefts, 1)
    areas = np.diff(np.append(tops, height))[:, None] * np.diff(np.append(lefts, width))[None, :]
    return np.asarray(sums // areas, np.uint8)


def _picture(world: GameboyWorld, out: IO[str], total: float, live: bool) -> None:
    columns, lines = shutil.get_terminal_size(DEFAULT_SIZE) if live else DEFAULT_SIZE
    screen = fitted(world.screen(0), columns, lines - TEXT_ROWS)
    facts = world._facts()
    place = f"{world.title.map_name(int(facts.map[0]))} {int(facts.x[0])}, {int(facts.y[0])}"
    score = f"badges {int(facts.badges.sum())}   reward {total:.2f}   step {int(world.state['time'][0])}"
    status, keys = f"{place}   {score}", HELP
    small = len(screen) < 72
    if live and small and lines < SHARP_SIZE[1]:
        status += f"   (sharper with {SHARP_SIZE[0]} x {SHARP_SIZE[1]})"
    picture = half_blocks(screen)
    if not live:
        out.write(f"{picture}{status}\n{keys}\n")
    else:  # what a larger picture left beside and below this one is erased
        picture = picture.replace("\n", "\x1b[K\n")
        out.write(f"\x1b[H{picture}{status[: columns - 1]}\x1b[K\n{keys[: columns - 1]}\x1b[J")
    out.flush()


def half_blocks(screen: Bytes) -> str:
    """Two lines of pixels per line of text: upper pixel as foreground, lower pixel as background."""
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
    """Numbers of actions; unknown keys are ignored."""
    with _raw(source):
        while True:
            key = _read_key(source)
            if key in ("", "q", "\x03", "\x04"):
                return
            if key in KEYS:
                yield ACTIONS.index(KEYS[key])


def _read_key(source: IO[str]) -> str:
    """The next key; an arrow key is a sequence of three characters."""
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
    """Single keys without echo, if the source is a terminal."""
    if not source.isatty():
        yield
        return
    try:
        import termios
        import tty
    except ImportError:
        raise ConfigError("play: this terminal cannot read single keys: expected a window or POSIX") from None
    before = termios.tcgetattr(source.fileno())
    try:
        tty.setcbreak(source.fileno())
        yield
    finally:
        termios.tcsetattr(source.fileno(), termios.TCSADRAIN, before)
