"""Ends this process when an emulator in it hangs: PyBoy never returns from some cartridges.

An endless loop in compiled code cannot be interrupted, but it releases the GIL: a thread counts the seconds
of every call. It counts its own sleeps, so that a stopped process (SIGSTOP, a sleeping laptop) is not a hang.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

HANG_SECONDS = 60  # of one call; a step takes milliseconds
LOOK = 1.0  # seconds between two looks at the calls


@dataclass(eq=False)
class Call:
    """A call of an emulator that has not returned."""

    seconds: float = 0.0


_calls: set[Call] = set()
_lock = threading.Lock()
_watching = False


@contextmanager
def limited() -> Iterator[None]:
    """End the process with one line and exit code 2 if the body takes longer than HANG_SECONDS."""
    global _watching
    call = Call()
    with _lock:
        _calls.add(call)
        if not _watching:
            _watching = True
            threading.Thread(target=_watch, daemon=True).start()
    try:
        yield
    finally:
        with _lock:
            _calls.discard(call)


def _watch() -> None:
    while True:
        time.sleep(LOOK)
        with _lock:
            for call in _calls:
                call.seconds += LOOK
            if any(call.seconds > HANG_SECONDS for call in _calls):
                _end_process()


def _end_process() -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        print(f"rematch: gameboy: the cartridge hangs the emulator: no answer within {HANG_SECONDS} s; "
              "checkpoints that were saved are intact", file=sys.stderr, flush=True)
    os._exit(2)
