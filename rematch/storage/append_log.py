"""Append-only files: train.log, metrics.jsonl, timing.jsonl, tables. One write a line, never half a line."""

from __future__ import annotations

import hashlib
import os
import queue
import re
import stat
import threading
from contextlib import suppress
from pathlib import Path

from rematch.core.errors import RunError
from rematch.storage.atomic_files import Mark, write_all

# ECMA-48: control sequences, operating system commands, two-character escapes; then lone controls
ESCAPES = re.compile(r"(\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\].*?(\x07|\x1b\\|$)|\x1b[ -/]*[0-~]")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

def plain_line(text: str) -> str:
    """`text` as a log may hold it: no escapes, no carriage returns."""
    return CONTROLS.sub("", ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", " "))).rstrip("\n")


class Log:
    """An append-only file that can say how far it went, and be cut back to there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self.fd = os.open(path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(self.fd).st_mode):
            os.close(self.fd)
            raise RunError(f"{path} is not a plain file")
        os.fchmod(self.fd, 0o600)
        self._hashed, self._hash = 0, hashlib.sha256()

    def append(self, line: str) -> None:
        """One write(2) per line, so that it is there even if we die the next moment."""
        data, before = (line + "\n").encode(errors="backslashreplace"), os.fstat(self.fd).st_size
        try:
            write_all(self.fd, data)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self.fd, before)  # no half lines
            raise RunError(f"{self.path}: {error.strerror}") from error

    def prefix(self, size: int) -> Mark:
        """The mark of the first `size` bytes, or of all where there are fewer."""
        if size < self._hashed:
            self._hashed, self._hash = 0, hashlib.sha256()
        while chunk := os.pread(self.fd, min(1 << 20, size - self._hashed), self._hashed):
            self._hash.update(chunk)
            self._hashed += len(chunk)
        return Mark(self._hashed, self._hash.hexdigest())

    def mark(self) -> Mark:
        """Bring everything to the disk and say how much that is."""
        os.fsync(self.fd)
        return self.prefix(os.fstat(self.fd).st_size)

    def cut(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        os.fsync(self.fd)

    def end_line(self) -> None:
        """A machine that lost power may have left half a line: what follows starts a new one."""
        size = os.fstat(self.fd).st_size
        if size and os.pread(self.fd, 1, size - 1) != b"\n":
            self.append("")

    def close(self) -> None:
        os.close(self.fd)


class Pen:
    """A thread that writes lines into logs: who hands it a line never waits for a disk.

    What goes wrong is raised to whoever hands it the next line, or waits for it; lines after that are lost,
    and the run that stops for it goes on from its checkpoint, as with any other log.
    """

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[tuple[Log, str] | threading.Event | None] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._write, name="pen", daemon=True)
        self.thread.start()

    def put(self, log: Log, line: str) -> None:
        if self.error:
            raise self.error
        self.lines.put((log, line))

    def drain(self) -> None:
        """Wait until all is written."""
        done = threading.Event()
        self.lines.put(done)
        done.wait()
        if self.error:
            raise self.error

    def stop(self) -> None:
        self.lines.put(None)
        self.thread.join()

    def _write(self) -> None:
        while (item := self.lines.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
            elif not self.error:
                try:
                    item[0].append(item[1])
                except BaseException as error:  # whatever it is: a dead thread would let drain wait for ever
                    self.error = error


def is_open_as(path: Path, fd: int) -> bool:
    """Whether this descriptor leads to this very file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except OSError:
        return False
