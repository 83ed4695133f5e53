"""Lines at the bottom of a terminal that are drawn again in place, below lines that stay.

The cursor rests at the start of the last drawn line: a typed ^C, which the terminal shows there, starts no
new line. Every line is erased before it is written: behind a line as wide as the terminal, some terminals
would erase its last character. A terminal of another size may have wrapped or cut the old lines, so that
their places are not known: then the screen is cleared and drawn again from its top, with the newest lines
that stay.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import TextIO

KEPT_LINES = 200  # lines that stay, for a screen that is drawn again
DEFAULT_SIZE = (80, 24)
ERASE_SCREEN, ERASE_LINE, ERASE_BELOW = "\x1b[H\x1b[2J", "\x1b[K", "\x1b[J"


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of the terminal behind a stream."""
    try:
        size = os.get_terminal_size(stream.fileno())
        columns, lines = size.columns, size.lines
    except (OSError, ValueError, AttributeError):
        columns, lines = DEFAULT_SIZE
    return columns or DEFAULT_SIZE[0], lines or DEFAULT_SIZE[1]


def can_draw(stream: TextIO) -> bool:
    """Whether the stream is a terminal that moves its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    except ValueError:  # closed
        return False


class LiveArea:
    """Draws lines in place on a terminal; `out` receives the lines that stay (default: the same stream)."""

    def __init__(self, stream: TextIO, out: TextIO | None = None) -> None:
        self.stream, self.out = stream, out or stream
        self.height = 0  # rows of the drawn lines
        self.size = terminal_size(stream)  # when they were drawn
        self.drawing = False
        self.stay: deque[str] = deque(maxlen=KEPT_LINES)

    def draw(self, lines: Sequence[str]) -> None:
        """Draw these lines, each at most as wide as the terminal, in place of the earlier ones."""
        self.drawing = True
        try:
            text = self._restart() if self.resized else self._back()
            rows = list(lines)[: self.size[1]]
            above = "".join(f"{ERASE_LINE}{row}\n" for row in rows[:-1])
            text += f"{above}{ERASE_BELOW}{''.join(rows[-1:])}\r"
            self.height = len(rows)
            self._send(self.stream, text)
        finally:
            self.drawing = False

    @property
    def resized(self) -> bool:
        return bool(self.height) and terminal_size(self.stream) != self.size

    def write(self, line: str) -> None:
        """Write a line that stays, above the drawn ones; `draw` must follow."""
        text = self._restart() if self.resized else self._back() + ERASE_BELOW
        self.height = 0
        self._send(self.stream, text)
        self.stay.append(line)
        self._send(self.out, line + "\n")

    def erase(self) -> None:
        """Remove the drawn lines."""
        if self.height:
            self._send(self.stream, (self._restart() if self.resized else self._back()) + ERASE_BELOW)
        self.height = 0

    def end(self) -> None:
        """Leave the drawn lines where they are; the cursor moves below them."""
        if self.height:
            self._send(self.stream, "\n")
        self.height = 0

    def _back(self) -> str:
        """Move the cursor to the start of the drawn lines."""
        up = f"\x1b[{self.height - 1}A" if self.height > 1 else ""
        return f"\r{up}" if self.height else ""

    def _restart(self) -> str:
        """Clear the screen and write the lines that stay and fit above the drawn ones."""
        from rich.cells import cell_len

        self.size = terminal_size(self.stream)
        columns, lines = self.size
        free, shown = lines - self.height, list[str]()
        for line in reversed(self.stay):
            free -= max(1, -(-cell_len(line) // columns))
            if free < 0:
                break
            shown.insert(0, line + "\n")
        return ERASE_SCREEN + "".join(shown)

    @staticmethod
    def _send(stream: TextIO, text: str) -> None:
        if text:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "replace").decode(encoding))
            stream.flush()
