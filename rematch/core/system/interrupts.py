"""Interrupts and stop requests: Ctrl-C, SIGTERM, time limits. Imports no other module of Rematch.

An exception alone can lose a Ctrl-C that arrives while modules load: Python drops exceptions raised in weak
references (its import locks use them), and a Cython module drops those raised while it registers its types.
Therefore a command also records the signal from its start, and `raise_if_received` raises it again.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGINT_NAME = "SIGINT"
PARENT_CHECK_SECONDS = 0.1
GRACE = 2.0  # seconds after a stop request in which an operation may still reach its end
FIRST_CTRL_C = "Ctrl-C: saving; press Ctrl-C again to stop without saving"


class StopRequested(BaseException):
    """A long operation ends early because of a stop request; a resumed run repeats it.

    Not an Exception: code that handles errors must not swallow it.
    """


class InterruptRecorder:
    """While a command runs, a Ctrl-C is recorded and raised; within `deferred` it is raised at the end."""

    def __init__(self) -> None:
        self.received = False
        self.deferring = 0  # nested `deferred` blocks

    def __enter__(self) -> InterruptRecorder:
        self.received = False
        self.previous: Any = None
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.previous = signal.signal(signal.SIGINT, self._record)
            self.previous_hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(self, *_: object) -> None:
        if self.previous is not None:
            signal.signal(signal.SIGINT, self.previous)
            sys.unraisablehook = self.previous_hook

    def _unraisable(self, info: Any) -> None:
        """Print an exception that no code can catch, unless it is a KeyboardInterrupt, which is recorded."""
        if info.exc_type is not KeyboardInterrupt:
            self.previous_hook(info)

    def _record(self, number: int, frame: FrameType | None) -> None:
        second, self.received = self.received, True
        if second or not self.deferring:  # a second Ctrl-C interrupts at once
            raise KeyboardInterrupt

    def deferred(self) -> DeferredInterrupts:
        return DeferredInterrupts(self)

    def raise_if_received(self) -> None:
        """Raise a recorded Ctrl-C whose exception was lost."""
        if self.received:
            raise KeyboardInterrupt


class DeferredInterrupts:
    """A block that a Ctrl-C must not interrupt: it is raised when the block ends."""

    def __init__(self, recorder: InterruptRecorder) -> None:
        self.recorder = recorder

    def __enter__(self) -> None:
        self.recorder.deferring += 1

    def __exit__(self, *_: object) -> None:
        self.recorder.deferring -= 1
        self.recorder.raise_if_received()


INTERRUPTS = InterruptRecorder()  # one for the process, as signal handlers are


class StopRequest:
    """True once a run must stop: after some minutes, or after a signal, also one from before its creation.

    The first Ctrl-C only sets the request; the second one interrupts at once. Long operations call `check`
    between their steps.
    """

    def __init__(self, minutes: float | None) -> None:
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.reason = ""  # "time" or the name of a signal; empty: not requested
        self.requested_at = -math.inf  # time.monotonic() of the first request
        self.announce: Callable[[str], None] = lambda text: None  # a signal handler calls it
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.previous[number] = signal.signal(number, self._record)
            if INTERRUPTS.received:
                self.reason, self.requested_at = SIGINT_NAME, time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        for number, previous in self.previous.items():
            signal.signal(number, previous)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.reason == SIGINT_NAME and number == signal.SIGINT:  # the second one
            raise KeyboardInterrupt
        if not self.reason:
            self.requested_at = time.monotonic()
        self.reason = signal.Signals(number).name
        self._announce()

    def announce_with(self, announce: Callable[[str], None]) -> None:
        """Show signals with this function from now on, and one that has arrived already."""
        self.announce = announce
        if self.reason:
            self._announce()

    def _announce(self) -> None:
        if self.reason != "time":
            self.announce(FIRST_CTRL_C if self.reason == SIGINT_NAME else f"{self.reason}: saving")

    def __call__(self) -> bool:
        if not self.reason and self.deadline is not None and time.monotonic() >= self.deadline:
            self.reason, self.requested_at = "time", self.deadline
        return bool(self.reason)

    def check(self) -> None:
        """Raise StopRequested if the request is older than GRACE."""
        if self() and time.monotonic() - self.requested_at >= GRACE:
            raise StopRequested(self.reason)


def stop_with_parent(parent: int) -> None:
    """Send this process a SIGTERM when its parent ends, even by SIGKILL."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
