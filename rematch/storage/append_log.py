"""Append-only files: train.log, metrics.jsonl, timing.jsonl, tables. Each line is one write(2)."""

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
from rematch.storage.atomic_files import FileDigest, sync, write_all

# ECMA-48: control sequences, operating system commands, two-character escapes; then single control characters
ESCAPES = re.compile(r"(\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\].*?(\x07|\x1b\\|$)|\x1b[ -/]*[0-~]")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain_line(text: str) -> str:
    """`text` without terminal escapes, carriage returns and other control characters."""
    return CONTROLS.sub("", ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", " "))).rstrip("\n")


class AppendLog:
    """An append-only file that knows the digest of its first bytes and can be truncated to them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self.fd = os.open(path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(self.fd).st_mode):
            os.close(self.fd)
            raise RunError(f"{path} is not a regular file")
        os.fchmod(self.fd, 0o600)
        self._hashed, self._hash = 0, hashlib.sha256()  # bytes of the file that are in the hash

    def append(self, line: str) -> None:
        """Write one line with one write(2): the file holds it even if the process dies right after."""
        data, size_before = (line + "\n").encode(errors="backslashreplace"), os.fstat(self.fd).st_size
        try:
            write_all(self.fd, data)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self.fd, size_before)  # no partial line
            raise RunError(f"{self.path}: {error.strerror}") from error

    def prefix_digest(self, size: int) -> FileDigest:
        """The digest of the first `size` bytes, or of the whole file where it is shorter."""
        if size < self._hashed:
            self._hashed, self._hash = 0, hashlib.sha256()
        while block := os.pread(self.fd, min(1 << 20, size - self._hashed), self._hashed):
            self._hash.update(block)
            self._hashed += len(block)
        return FileDigest(self._hashed, self._hash.hexdigest())

    def sync(self) -> FileDigest:
        """Bring every line to the disk; returns the digest of the whole file."""
        sync(self.fd)
        return self.prefix_digest(os.fstat(self.fd).st_size)

    def truncate(self, size: int) -> None:
        self.prefix_digest(min(size, self._hashed))  # what is cut off must not stay in the hash
        os.ftruncate(self.fd, size)
        sync(self.fd)

    def end_line(self) -> None:
        """End a partial line, which a loss of power may leave, so that the next append starts a new line."""
        size = os.fstat(self.fd).st_size
        if size and os.pread(self.fd, 1, size - 1) != b"\n":
            self.append("")

    def close(self) -> None:
        os.close(self.fd)


class LogWriter:
    """A thread that appends lines to logs, so that the caller does not wait for the disk.

    An error is raised by the next `put` or `drain`; lines after it are lost. The run then stops and resumes
    from its last checkpoint, as after an error in any other log.
    """

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[tuple[AppendLog, str] | threading.Event | None] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self.thread.start()

    def put(self, log: AppendLog, line: str) -> None:
        if self.error:
            raise self.error
        self.lines.put((log, line))

    def drain(self) -> None:
        """Wait until every line is written."""
        written = threading.Event()
        self.lines.put(written)
        written.wait()
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
                except BaseException as error:  # of any kind: after a dead thread `drain` would wait for ever
                    self.error = error


def is_same_file(path: Path, fd: int) -> bool:
    """Whether the file descriptor `fd` is open on the file at `path`."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except OSError:
        return False
