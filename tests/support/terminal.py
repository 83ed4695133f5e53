"""A terminal for tests: a command on a pseudo-terminal, and the screen as a person would see it (pyte)."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyte

from support.commands import environment
from support.patience import PATIENCE


class Terminal:
    """A command with stdin, stdout and stderr on one terminal of `columns` x `lines`."""

    def __init__(self, command: Sequence[str], columns: int, lines: int, folder: Path) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.Stream(self.screen)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.fd, child = pty.openpty()
        self._set_size(columns, lines)
        variables = environment() | {"TERM": "xterm-256color", "PYTHONUNBUFFERED": "1"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            variables.pop(name, None)
        self.process = subprocess.Popen([sys.executable, *command], stdin=child, stdout=child, stderr=child,
                                        cwd=folder, env=variables, start_new_session=True,
                                        preexec_fn=_controlling_terminal)
        os.close(child)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """Another size, as when a person drags the corner of the window."""
        self.screen.resize(lines, columns)
        self._set_size(columns, lines)

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.rows())

    def read(self, seconds: float) -> bool:
        """Take in output for at most `seconds`; False where the command has ended."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other end is closed
            return False
        self.stream.feed(self.decoder.decode(data))
        return bool(data)

    def wait(self, seen: Callable[[str], bool]) -> str:
        """The text of the screen once `seen` is true for it."""
        deadline = time.monotonic() + PATIENCE
        while not seen(self.text):
            alive = self.read(0.05)
            assert (alive or seen(self.text)) and time.monotonic() < deadline, self.text
        return self.text

    def end(self) -> int:
        """The exit code of the command, after all its output."""
        deadline = time.monotonic() + PATIENCE
        while self.read(0.05) and time.monotonic() < deadline:
            pass
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.fd)


def _controlling_terminal() -> None:
    """Ctrl-C reaches a process through its controlling terminal only."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
