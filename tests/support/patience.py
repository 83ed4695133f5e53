"""How long a test waits for another thread or process before it fails: the machine may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300.0  # seconds


def wait_until(condition: Callable[[], object], what: object = "", pause: float = 0.02) -> None:
    """Return as soon as the condition is true; AssertionError with `what` after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(pause)
