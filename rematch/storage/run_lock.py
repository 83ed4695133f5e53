"""The lock of a run folder: one process at a time may write, and a file names it."""

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

LOCK_FILE = "lock"


class RunLock:
    """flock(2) on a file that names the locking process; the kernel unlocks it when the process dies."""

    acquired: ClassVar[weakref.WeakSet[RunLock]] = weakref.WeakSet()

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_FILE
        for _ in range(10):  # `lock_holder` in another process may hold the lock for an instant
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.lexists(self.path) and os.path.samestat(os.fstat(self.fd), os.lstat(self.path)):
                    break  # else the previous process deleted the file between our open and our lock
            except BlockingIOError:
                time.sleep(0.01)
            except FileNotFoundError:
                pass
            os.close(self.fd)
        else:
            raise ConfigError(f"{folder} is locked by {lock_holder(folder) or 'another process'}")
        RunLock.acquired.add(self)
        try:
            self._write_process()
        except OSError as error:
            self.release()
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def _write_process(self) -> None:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.ftruncate(self.fd, 0)
        write_all(self.fd, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode())

    def release(self) -> None:
        if self in RunLock.acquired:
            RunLock.acquired.discard(self)
            with suppress(OSError):
                os.unlink(self.path)  # while still locked: no other process can lock this name now
            os.close(self.fd)

    @staticmethod
    def _close_in_child() -> None:
        """Close the lock in a forked worker, which may live longer: flock(2) belongs to the open file."""
        for lock in list(RunLock.acquired):
            os.close(lock.fd)
        RunLock.acquired.clear()


os.register_at_fork(after_in_child=RunLock._close_in_child)


def lock_holder(folder: Path) -> str:
    """The process that holds the lock of this run, "process 123 on HOST since ..."; empty if none does."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
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
