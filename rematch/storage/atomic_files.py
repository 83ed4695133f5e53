"""Files that are wholly there or not at all, and JSON that is read and written strictly.

Whatever the operating system refuses (no space, no permission, an I/O error) ends in one line that names the
file and the reason. Reading trusts nothing: each reason to doubt a file ends in `Damaged`.
"""

from __future__ import annotations

import errno
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

LARGEST_TEXT = 1 << 24  # bytes of a manifest, of a policy's card, of config.yaml


@dataclass(frozen=True)
class Mark:
    """How far a file went at some moment: its bytes (history.json: its rows) and their SHA-256."""

    size: int
    sha256: str


# --- durable files --------------------------------------------------------------------------------------


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turns the operating system's refusal (no space, no permission, I/O error) into one line."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{what}: {reason(error)}") from error


def reason(error: OSError | Damaged) -> str:
    if isinstance(error, Damaged):
        return str(error)
    about = error.strerror or type(error).__name__
    return f"{error.filename}: {about}" if error.filename else about


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors of write and fsync know a number only; this adds the file's name."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_all(fd: int, data: bytes) -> int:
    """Write until nothing is left: write(2) may take less than it was given."""
    done, rest = 0, memoryview(data)
    while done < len(data):
        done += os.write(fd, rest[done:])
    return done


def write_new(path: Path, data: bytes) -> None:
    """A new file, on the disk when this returns (fsync(2)); never through a symbolic link."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with _naming(path):
            write_all(fd, data)
            os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Names are the folder's data: a rename is on the disk once its folder is (fsync(2), NOTES)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with _naming(folder):
            os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Write beside, then rename over: a reader meets the old bytes or the new ones (rename(2))."""
    beside = path.with_name(f".tmp-{path.name}")
    try:
        remove(beside)
        write_new(beside, data)
        os.rename(beside, path)
    except OSError:
        with suppress(OSError):
            remove(beside)
        raise
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder, if it is there; links are not followed."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            for name in sorted(os.listdir(path)):
                remove(path / name)
            os.rmdir(path)
        else:
            os.unlink(path)


def subfolder(folder: Path, name: str) -> Path:
    """The folder of this name in there, made if it is missing; a link would lead out and is refused."""
    inner = folder / name
    with suppress(FileExistsError):
        os.mkdir(inner, 0o700)
        sync_folder(folder)
    if not stat.S_ISDIR(os.lstat(inner).st_mode):
        raise RunError(f"{inner} is not a plain folder")
    return inner


def read_plain(path: Path, most: int) -> bytes:
    """The bytes of a plain file of at most `most` bytes, from the disk and not from memory if possible."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # O_NONBLOCK: a pipe must not hang us
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                raise Damaged(f"{path.name} is not a plain file")
            if about.st_size > most:
                raise Damaged(f"{path.name} has {about.st_size} bytes where at most {most} belong")
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
        raise Damaged(f"{path.name} cannot be read: {error.strerror}") from None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- JSON, strictly -----------------------------------------------------------------------------------


def read_json(raw: bytes, name: str) -> Any:
    """JSON without repeated keys, NaN or bottomless nesting."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("repeated key")
        return found

    def refuse(word: str) -> NoReturn:
        raise ValueError(word)

    try:
        return json.loads(raw.decode(), object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise Damaged(f"{name} is not well-formed JSON") from None


def seal(body: Mapping[str, Any]) -> bytes:
    """A JSON object whose last key, "sha256", is the digest of all the others as written here."""
    text = json.dumps(body, indent=1, allow_nan=False)
    before = text.removesuffix("}").removesuffix("\n") + ("," if body else "")
    return f'{before}\n "sha256": "{digest(text.encode())}"\n}}\n'.encode()


def unseal(raw: bytes, name: str) -> dict[str, Any]:
    """The body of a sealed object; a single changed byte, blanks included, is found."""
    body = read_json(raw, name)
    if not isinstance(body, dict) or "sha256" not in body:
        raise Damaged(f"{name} carries no digest of its own")
    del body["sha256"]
    try:
        whole = seal(body) == raw
    except (ValueError, RecursionError):  # a number too long to write, 1e999, nesting
        whole = False
    if not whole:
        raise Damaged(f"{name} does not match its own digest")
    return body


def _python(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError


_ROW = json.JSONEncoder(allow_nan=False, default=_python)


def row_text(row: Mapping[str, Any], file: str) -> str:
    """One row as JSON on one line; what JSON cannot say (NaN, infinity, an object) is named and refused."""
    try:
        return _ROW.encode(row)
    except (TypeError, ValueError, RecursionError):
        for key, value in row.items():
            try:
                _ROW.encode(value)
            except (TypeError, ValueError, RecursionError):
                raise RunError(f"{file}: {key} = {value!r:.60}: expected finite numbers and text") from None
        raise RunError(f"{file}: a row whose keys are not text: {list(row)!r:.60}") from None
