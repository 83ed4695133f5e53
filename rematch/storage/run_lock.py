"""Who writes in a run's folder: one process at a time, named in a file that the kernel guards."""

from __future__ import annotations

import fcntl
import os
import socket
import time
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from rematch.core.errors import ConfigError
from rematch.storage.append_log import CONTROLS
from rematch.storage.atomic_files import write_all

LOCK = "lock"


class Lock:
    """flock(2) on a file that says who holds it; the kernel lets go when the process dies."""

    held: ClassVar[weakref.WeakSet[Lock]] = weakref.WeakSet()

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        for _ in range(10):  # a look by `holder` may stand in the way for an instant
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.lexists(self.path) and os.path.samestat(os.fstat(self.fd), os.lstat(self.path)):
                    break  # else its last holder removed the file between our open and our lock
            except BlockingIOError:
                time.sleep(0.01)
            except FileNotFoundError:
                pass
            os.close(self.fd)
        else:
            raise ConfigError(f"{folder} is held by {holder(folder) or 'another process'}")
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.ftruncate(self.fd, 0)
        write_all(self.fd, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode())
        Lock.held.add(self)

    def release(self) -> None:
        if self in Lock.held:
            Lock.held.discard(self)
            with suppress(OSError):
                os.unlink(self.path)  # while still locked: nobody else can hold this name now
            os.close(self.fd)

    @staticmethod
    def _forget() -> None:
        """A forked worker that outlives us must not keep the run held: flock goes with the open file."""
        for lock in list(Lock.held):
            os.close(lock.fd)
        Lock.held.clear()


os.register_at_fork(after_in_child=Lock._forget)


def holder(folder: Path) -> str:
    """Who holds this run now: "process 123 on HOST since ..."; empty if nobody does."""
    try:
        fd = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return ""
    except OSError:
        text = os.read(fd, 200).decode(errors="replace").partition("\n")[0]
        return CONTROLS.sub("", text) or "another process"
    finally:
        os.close(fd)
