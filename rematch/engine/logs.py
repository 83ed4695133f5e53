"""Append-only files: train.log, metrics.jsonl, timing.jsonl. One write per line, never half a line."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from rematch.engine.files import Mark, RunError, write_all

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


def is_open_as(path: Path, fd: int) -> bool:
    """Whether this descriptor leads to this very file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except OSError:
        return False
