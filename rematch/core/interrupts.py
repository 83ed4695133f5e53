"""When to stop: after some minutes, or when a signal asked for it. Imports nothing of ours, and little else.

An exception is not enough for a Ctrl-C that comes while modules load: Python drops what is raised in the weak
references of its import locks, and a Cython module drops what is raised while it registers its types. So from
its first moment a command also notes the signal, and whoever can stop properly looks at the note.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

INTERRUPTED = "SIGINT"
WATCH = 0.1  # seconds between two looks at the parent


class Attention:
    """While a command runs, a Ctrl-C is noted and raised; within `patiently` it is raised at the end."""

    def __init__(self) -> None:
        self.noted = False
        self.patient = 0

    def __enter__(self) -> Attention:
        self.noted = False
        self.before: Any = None
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.before = signal.signal(signal.SIGINT, self._note)
            self.hook, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(self, *_: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
            sys.unraisablehook = self.hook

    def _dropped(self, what: Any) -> None:
        """An exception that nobody can catch: an interruption is noted already, the rest is told as ever."""
        if what.exc_type is not KeyboardInterrupt:
            self.hook(what)

    def _note(self, number: int, frame: FrameType | None) -> None:
        again, self.noted = self.noted, True
        if again or not self.patient:  # who presses twice means it
            raise KeyboardInterrupt

    def patiently(self) -> Patience:
        return Patience(self)

    def check(self) -> None:
        """Raise what was noted and went missing."""
        if self.noted:
            raise KeyboardInterrupt


class Patience:
    """Work that a Ctrl-C must not cut: it is raised afterwards."""

    def __init__(self, attention: Attention) -> None:
        self.attention = attention

    def __enter__(self) -> None:
        self.attention.patient += 1

    def __exit__(self, *_: object) -> None:
        self.attention.patient -= 1
        self.attention.check()


ATTENTION = Attention()  # signals belong to the process: there is one


class Stopper:
    """Says when to stop. The first Ctrl-C is polite, also one that came while the command was starting."""

    def __init__(self, minutes: float | None) -> None:
        self.until = None if minutes is None else time.monotonic() + 60 * minutes
        self.asked = ""
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Stopper:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._note)
            if ATTENTION.noted:
                self.asked = INTERRUPTED
        return self

    def __exit__(self, *_: object) -> None:
        for number, answer in self.before.items():
            signal.signal(number, answer)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked == INTERRUPTED and number == signal.SIGINT:  # the second one
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name

    def __call__(self) -> bool:
        if not self.asked and self.until is not None and time.monotonic() >= self.until:
            self.asked = "time"
        return bool(self.asked)


def follow(parent: int) -> None:
    """From now on the end of the process that started us, even by SIGKILL, is a SIGTERM to this one."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
