"""Atomic file writes, checked file reads, and strict JSON.

A file is written as a whole or not at all. An error of the operating system (no space, no permission, an I/O
error) becomes one line that names the file and the reason. Reading trusts nothing: a file that fails any
check raises `Damaged`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from rematch.core.errors import Damaged, RunError

MAX_TEXT_BYTES = 1 << 24  # of a manifest, of a policy's metadata, of config.yaml


@dataclass(frozen=True)
class FileDigest:
    """Size and SHA-256 of a file's first `size` bytes; for history.json `size` counts rows."""

    size: int
    sha256: str


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_digest(data: bytes) -> FileDigest:
    """The digest of a whole file that holds `data`."""
    return FileDigest(len(data), sha256_hex(data))


# --- errors of the operating system ---------------------------------------------------------------------


@contextmanager
def os_errors_as_run_error(failure: str) -> Iterator[None]:
    """Raise an OSError of the body as RunError with one line: `failure`, the file and the reason."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{failure}: {reason(error)}") from error


def reason(error: OSError | Damaged) -> str:
    """File and cause of an error, without its number."""
    if isinstance(error, Damaged):
        return str(error)
    cause = error.strerror or type(error).__name__
    return f"{error.filename}: {cause}" if error.filename else cause


@contextmanager
def _add_file_name(path: Path) -> Iterator[None]:
    """Put `path` into errors of write(2) and fsync(2), which know a file descriptor only."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


# --- durable writes -------------------------------------------------------------------------------------


def write_all(fd: int, data: bytes) -> int:
    """Write all of `data`: one write(2) may accept fewer bytes than it was given."""
    written, remaining = 0, memoryview(data)
    while written < len(data):
        written += os.write(fd, remaining[written:])
    return written


def sync(fd: int) -> None:
    """Bring a file or folder to the disk. On macOS fsync(2) leaves data in the drive's cache, which
    F_FULLFSYNC of fcntl(2) empties; file systems that do not have it get fsync(2)."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with suppress(OSError):
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def write_new(path: Path, data: bytes) -> None:
    """Create a file that is on the disk when this returns; never through a symbolic link."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with _add_file_name(path):
            write_all(fd, data)
            sync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk: a rename is durable once its folder is (fsync(2), NOTES)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with _add_file_name(folder):
            sync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Write a temporary file, then rename it to `path`: a reader gets old bytes or new ones (rename(2))."""
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        remove(temporary)
        write_new(temporary, data)
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            remove(temporary)
        raise
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a file, a symbolic link or a whole folder, if it exists; links are not followed."""
    with suppress(FileNotFoundError):
        folders = [path] if _is_folder(path) else []
        for folder in folders:  # without recursion: a foreign folder may be nested as deep as it likes
            for name in sorted(os.listdir(folder)):
                if _is_folder(folder / name):
                    folders.append(folder / name)
                else:
                    os.unlink(folder / name)
        for folder in reversed(folders):
            os.rmdir(folder)
        if not folders:
            os.unlink(path)


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def subfolder(folder: Path, name: str) -> Path:
    """`folder`/`name`, created if missing; a symbolic link would lead out of the folder and is refused."""
    inner = folder / name
    with suppress(FileExistsError):
        os.mkdir(inner, 0o700)
        sync_folder(folder)
    if not stat.S_ISDIR(os.lstat(inner).st_mode):
        raise RunError(f"{inner} is not a regular folder")
    return inner


# --- checked reads --------------------------------------------------------------------------------------


_recorder: list[str] | None = None  # of `recorded_read_failures`


@contextmanager
def recorded_read_failures() -> Iterator[list[str]]:
    """The errors of the disk while files are read in the body: readers of untrusted folders go on without a
    file that they cannot read, and a page without it must not pass for a complete one."""
    global _recorder
    failures: list[str] = []
    _recorder = failures
    try:
        yield failures
    finally:
        _recorder = None


def record_read_failure(name: str, error: OSError) -> None:
    if _recorder is not None:
        _recorder.append(f"{name} cannot be read: {error.strerror}")


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file of at most `max_bytes`, read from the disk and not from the page cache
    where the system allows it; Damaged for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # O_NONBLOCK: a pipe must not block
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise Damaged(f"{path.name} is not a regular file")
            if info.st_size > max_bytes:
                raise Damaged(f"{path.name} has {info.st_size} bytes: expected at most {max_bytes}")
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            with open(fd, "rb", buffering=0, closefd=False) as file:
                return file.readall()
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing") from None
    except MemoryError:
        raise Damaged(f"{path.name} does not fit into memory") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Damaged(f"{path.name} is a symbolic link") from None
        record_read_failure(path.name, error)
        raise Damaged(f"{path.name} cannot be read: {error.strerror}") from None


# --- strict JSON ----------------------------------------------------------------------------------------


def read_json(raw: bytes, name: str) -> Any:
    """The value of a JSON text; Damaged where it repeats a key, holds NaN or nests too deep."""

    def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):
            raise ValueError("repeated key")
        return mapping

    def refuse_constant(word: str) -> NoReturn:
        raise ValueError(word)

    try:
        return json.loads(raw.decode(), object_pairs_hook=refuse_repeated, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise Damaged(f"{name} is not well-formed JSON") from None


def encode_with_digest(body: Mapping[str, Any]) -> bytes:
    """A JSON object whose last key, "sha256", is the digest of the other keys as written here."""
    text = json.dumps(body, indent=1, allow_nan=False)
    before = text.removesuffix("}").removesuffix("\n") + ("," if body else "")
    return f'{before}\n "sha256": "{sha256_hex(text.encode())}"\n}}\n'.encode()


def decode_with_digest(raw: bytes, name: str) -> dict[str, Any]:
    """The reverse of `encode_with_digest`; Damaged where a single byte differs, white space included."""
    body = read_json(raw, name)
    if not isinstance(body, dict) or "sha256" not in body:
        raise Damaged(f"{name} has no digest of its own")
    del body["sha256"]
    try:
        matches = encode_with_digest(body) == raw
    except (ValueError, RecursionError):  # a number too long to write, 1e999, deep nesting
        matches = False
    if not matches:
        raise Damaged(f"{name} does not match its own digest")
    return body


def _python_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError


_ENCODER = json.JSONEncoder(allow_nan=False, default=_python_number)


def json_line(row: Mapping[str, Any], file: str) -> str:
    """One row as JSON on one line; RunError names a value that JSON does not have (NaN, infinity, object)."""
    try:
        return _ENCODER.encode(row)
    except (TypeError, ValueError, RecursionError):
        for key, value in row.items():
            try:
                _ENCODER.encode(value)
            except (TypeError, ValueError, RecursionError):
                raise RunError(f"{file}: {key} = {value!r:.60}: expected finite numbers and text") from None
        raise RunError(f"{file}: a row with keys that are not text: {list(row)!r:.60}") from None
