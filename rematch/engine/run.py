"""A run is one folder: settings, logs, checkpoints, policies. It can be killed at any instant.

    config.yaml      the settings, written once
    train.log        plain lines               cut back on resume to where the checkpoint
    metrics.jsonl    one JSON object per line  stood, so that curves never double back
    history.json     evaluations, one per row
    timing.jsonl     the only file with clock times: speeds, stops, resumes; never cut, never compared
    checkpoints/     iter_00000123: the three newest, milestones, and after a stop the point it stopped at
    policies/        NAME.safetensors and NAME.json; never silently overwritten
    damaged/         checkpoints that did not verify, set aside by a resume; nothing reads them
    lock             while a process writes here: who

Commit (DESIGN section 6): logs to disk, files, manifest, fsync each, rename, fsync the folder, read back;
only then may an older one go. A resumed run ends with the bytes of an undisturbed one in every file but
timing.jsonl and damaged/. Imports neither torch nor any world or learner.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import operator
import os
import re
import socket
import stat
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
import safetensors.numpy

from rematch.config import ConfigError, nearest
from rematch.engine import checkpoint as disk
from rematch.engine.checkpoint import NAME, Arrays, Checkpoint, Damaged, Manifest, Mark, RunError, Tree, told

KEPT = 3
CONFIG, LOCK, HISTORY, TIMING = "config.yaml", "lock", "history.json", "timing.jsonl"
LOGS = ("train.log", "metrics.jsonl")
OWN_NAMES = frozenset({CONFIG, LOCK, HISTORY, TIMING, *LOGS, "checkpoints", "policies", "damaged"})
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,99}")
# ECMA-48: control sequences, operating system commands, two-character escapes; then lone controls
ESCAPES = re.compile(r"(\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\].*?(\x07|\x1b\\|$)|\x1b[ -/]*[0-~]")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError


_JSON = json.JSONEncoder(allow_nan=False, default=_plain)


def _row(row: Mapping[str, Any], file: str) -> str:
    """One row as JSON on one line; what JSON cannot say (NaN, infinity, an object) is named and refused."""
    try:
        return _JSON.encode(row)
    except (TypeError, ValueError, RecursionError):
        for key, value in row.items():
            try:
                _JSON.encode(value)
            except (TypeError, ValueError, RecursionError):
                raise RunError(f"{file}: {key} = {value!r:.60}: expected finite numbers and text") from None
        raise RunError(f"{file}: a row whose keys are not text: {list(row)!r:.60}") from None


def _rows(rows: list[dict[str, Any]]) -> bytes:
    return ("[" + ",".join("\n" + _row(row, HISTORY) for row in rows) + "\n]\n").encode()


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
        disk.write_all(self.fd, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode())
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
            disk.write_all(self.fd, data)
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


class Run:
    """One folder. Make one with `create`, come back to it with `open`, then `load` and `rewind`."""

    def __init__(self, folder: Path, config_text: str, lock: Lock | None) -> None:
        self.folder, self.config_text = folder, config_text
        self._lock = lock
        self._logs: dict[str, Log] = {}  # train.log and metrics.jsonl once it is known where they go on
        self._timing: Log | None = None
        self._history: list[dict[str, Any]] | None = None
        self._history_mark = Mark(0, "")
        self._keeps: dict[str, str] = {}  # checkpoint -> recent | milestone | passing
        self._redone: set[str] = set()  # policies of a time after the restored checkpoint

    # --- making, opening, closing ---

    @classmethod
    def create(cls, folder: Path, config_text: str) -> Run:
        """A new run in a folder that does not exist, or is empty but for our own output."""
        folder = Path(folder)
        with told(f"{folder} cannot be made"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            _refuse_used(folder)
            lock = Lock(folder)
            try:
                _refuse_used(folder)  # again: another process may have been quicker
                os.chmod(folder, 0o700)
                disk.replace_file(folder / CONFIG, config_text.encode())
                disk.sync_folder(folder.parent)
                run = cls(folder, config_text, lock)
                run._open_logs()
                run._put_history([])
                return run
            except BaseException:
                lock.release()
                raise

    @classmethod
    def open(cls, folder: Path, write: bool) -> Run:
        """An existing run. To go on with it: `run.rewind(run.load())`, then log and save."""
        folder = Path(folder)
        if not os.path.isdir(folder):
            runs = sorted(path.parent.name for path in folder.parent.glob(f"*/{CONFIG}"))
            near = nearest(folder.name, runs)
            hint = f"; nearest: {folder.parent / near}" if near else ""
            raise ConfigError(f"{folder}: no such run{hint}")
        if not os.path.lexists(folder / CONFIG):
            raise ConfigError(f"{folder} is not a run: it holds no {CONFIG}")
        with told(f"{folder} cannot be opened"):
            lock = Lock(folder) if write else None
        try:
            return cls(folder, disk.read_plain(folder / CONFIG, disk.LARGEST_TEXT).decode(), lock)
        except ValueError as error:  # Damaged, or bytes that are no text
            if lock:
                lock.release()
            why = str(error) if isinstance(error, Damaged) else f"{CONFIG} is not text"
            raise ConfigError(f"{folder} is not a run: {why}") from None

    def close(self) -> None:
        for log in [*self._logs.values(), *([self._timing] if self._timing else [])]:
            log.close()
        self._logs, self._timing = {}, None
        if self._lock:
            self._lock.release()
        self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def stdout_is_log(self) -> bool:
        """Whether the shell sends our output into train.log: then only `log_line` should write there."""
        return any(_is_ours(self.folder / LOGS[0], fd) for fd in (1, 2))

    def _open_logs(self) -> None:
        for log in self._logs.values():
            log.close()
        self._logs = {name: Log(self.folder / name) for name in LOGS}
        for fd in (1, 2):
            if _is_ours(self.folder / LOGS[0], fd):  # a stray print must not overwrite what we append
                fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)

    def _writing(self) -> None:
        if self._lock is None:
            raise RunError(f"{self.folder} is open for reading only")

    # --- logs ---

    def _log(self, name: str) -> Log:
        if name not in self._logs:
            self._writing()
            raise RunError(f"{self.folder / name}: rewind() first, to say where it goes on")
        return self._logs[name]

    def log_line(self, text: str) -> None:
        """A line for people in train.log: no escapes, no carriage returns, there at once."""
        plain = CONTROLS.sub("", ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", " ")))
        self._log(LOGS[0]).append(plain.rstrip("\n"))

    def log(self, row: Mapping[str, Any]) -> None:
        """A row of metrics.jsonl; NaN and infinity are refused by name. No clock times: see `timing`."""
        self._log(LOGS[1]).append(_row(row, LOGS[1]))

    def timing(self, row: Mapping[str, Any]) -> None:
        """A row of timing.jsonl: anything that depends on the clock or the machine; stops and resumes."""
        self._writing()
        if self._timing is None:
            with told(f"{self.folder}"):
                self._timing = Log(self.folder / TIMING)
                self._timing.end_line()
        self._timing.append(_row(row, TIMING))

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of history.json."""
        return list(self._history if self._history is not None else self._read_history())

    def _read_history(self) -> list[dict[str, Any]]:
        path = self.folder / HISTORY
        if not os.path.lexists(path):
            return []
        rows = disk.read_json(disk.read_plain(path, 1 << 32), str(path))
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Damaged(f"{path} is not a list of rows")
        return rows

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Add an evaluation; history.json is whole at every moment."""
        self._log(LOGS[0])  # only once the run has been created or rewound
        rows = [*self.history, json.loads(_row(row, HISTORY))]
        with told("history was not saved"):
            self._put_history(rows)

    def _put_history(self, rows: list[dict[str, Any]]) -> None:
        data = _rows(rows)
        disk.replace_file(self.folder / HISTORY, data)
        self._history, self._history_mark = rows, Mark(len(rows), disk.digest(data))

    # --- checkpoints ---

    def save(self, iteration: int, parts: Mapping[str, Tree], fingerprint: Mapping[str, str],
             milestone: bool = False, passing: bool = False) -> Path:
        """Commit all parts together. On RunError the checkpoints before it are as they were; try again later.

        A `milestone` stays for good. A `passing` one, saved because somebody stopped the run between two
        regular ones, goes with the next: so a stopped and resumed run ends with the same files.
        """
        self._log(LOGS[0])
        iteration = operator.index(iteration)
        if not 0 <= iteration < 10**15:
            raise RunError(f"iteration = {iteration}: expected 0 to 999999999999999")
        files = disk.encode(parts)
        final = self.folder / "checkpoints" / f"iter_{iteration:08d}"
        beside, old = final.with_name(f".tmp-{final.name}"), final.with_name(f".old-{final.name}")
        moved = False
        try:
            self._subfolder("checkpoints")
            self._sweep()
            keep = "milestone" if milestone else "passing" if passing else "recent"
            manifest = replace(self._manifest(iteration, fingerprint, files), keep=keep)
            sealed = manifest.sealed()
            if os.path.lexists(final):  # saved before; most likely the very same
                with suppress(Damaged):
                    if disk.verify(final)[0].sealed() == sealed:
                        disk.sync_folder(final.parent)
                        return final
            os.mkdir(beside, 0o700)
            for name, data in (files | {disk.MANIFEST: sealed}).items():
                disk.write_new(beside / name, data)
            disk.sync_folder(beside)
            if os.path.lexists(final):
                os.rename(final, old)  # `load` knows this name, should we die before the next line
            os.rename(beside, final)
            moved = True
            disk.sync_folder(final.parent)
            disk.verify(final)
        except (OSError, Damaged) as error:
            with suppress(OSError):
                if moved:
                    os.rename(final, beside)
                self._sweep()
            raise RunError(f"checkpoint {final.name} was not saved: {disk.reason(error)}") from error
        self._keeps[final.name] = manifest.keep
        with suppress(OSError, RunError):  # what cannot be removed now is tried again by the next save
            self._sweep()
            self._prune()
        return final

    def _manifest(self, iteration: int, fingerprint: Mapping[str, str], files: dict[str, bytes]) -> Manifest:
        logs = {name: log.mark() for name, log in self._logs.items()}
        logs[HISTORY] = self._history_mark
        return Manifest(
            iteration=iteration, keep="recent", config=disk.digest(self.config_text.encode()),
            fingerprint=dict(sorted(fingerprint.items())), logs=logs,
            policies=sorted(self._policies() - self._redone),
            files={name: Mark(len(data), disk.digest(data)) for name, data in files.items()})

    def load(self) -> Checkpoint | None:
        """The newest checkpoint that verifies, and why newer ones did not; None if none was ever saved.

        Changes nothing. Where there are checkpoints and none verifies, it refuses.
        """
        names: list[str] | None = None
        skipped: list[tuple[str, str]] = []
        while names != (found := self._candidates()):  # a writer may be at work while we only read
            names, skipped = found, []
            for name in names:
                try:
                    checkpoint = disk.read_checkpoint(self.folder / "checkpoints" / name)
                    if checkpoint.manifest.config != disk.digest(self.config_text.encode()):
                        raise Damaged(f"it was saved under another {CONFIG} than this run has now")
                    return replace(checkpoint, skipped=skipped)
                except Damaged as why:
                    skipped.append((name, str(why)))
        if not names:
            return None
        shown = "; ".join(f"{name}: {why}" for name, why in skipped[:4])
        raise ConfigError(f"{self.folder}: none of its {len(names)} checkpoints verifies ({shown}): "
                          "refusing to start, nothing was changed")

    def rewind(self, checkpoint: Checkpoint | None) -> list[str]:
        """Bring the folder back to the moment of `checkpoint` (None: the beginning). Returns notes to print.

        A log whose beginning is no longer what the checkpoint vouches for is an error, because cutting it
        would hide that; a log that somebody deleted begins anew, and a note says so.
        """
        self._writing()
        candidates = self._candidates()
        if checkpoint is None and candidates:
            raise RunError(f"{self.folder} has checkpoints: load one of them before rewinding")
        marks = checkpoint.manifest.logs if checkpoint else dict.fromkeys((*LOGS, HISTORY), Mark(0, ""))
        here = [name for name in marks if os.path.lexists(self.folder / name)]
        with told(f"{self.folder} cannot be rewound"):
            self._open_logs()
            rows = self._vouched_history(marks[HISTORY]) if HISTORY in here else []
            for name in LOGS:
                if checkpoint and name in here and self._logs[name].prefix(marks[name].size) != marks[name]:
                    raise self._altered(name)
            for name, _ in checkpoint.skipped if checkpoint else []:
                self._set_aside(name)
            self._sweep()
            self._prune()
            for path in [*self.folder.glob(".tmp-*"), *self.folder.glob("*/.tmp-*")]:
                if not path.parent.is_symlink() or path.parent == self.folder:
                    disk.remove(path)
            for name in LOGS:
                self._logs[name].cut(min(marks[name].size, os.fstat(self._logs[name].fd).st_size))
            self._put_history(rows)
        self._redone = self._policies() - set(checkpoint.manifest.policies if checkpoint else ())
        return [f"{self.folder / name} was missing: it begins anew" for name in marks
                if marks[name].size and name not in here]

    def _vouched_history(self, mark: Mark) -> list[dict[str, Any]]:
        try:
            rows = self._read_history()[:mark.size]
        except Damaged:
            raise self._altered(HISTORY) from None
        if mark.sha256 and mark != Mark(len(rows), disk.digest(_rows(rows))):
            raise self._altered(HISTORY)
        return rows

    def _altered(self, name: str) -> RunError:
        return RunError(f"{self.folder / name} was altered or cut since its checkpoint was saved: "
                        "put it back, or delete it to go on without its past")

    def _candidates(self) -> list[str]:
        """Checkpoints, newest first; one that was about to be replaced comes after its replacement."""
        folder = self.folder / "checkpoints"
        with told(f"{self.folder} cannot be read"):
            if not os.path.lexists(folder):
                return []
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise ConfigError(f"{folder} is not a plain folder")
            names = [name for name in os.listdir(folder) if NAME.fullmatch(name.removeprefix(".old-"))]
        return sorted(names, key=lambda name: (int(name.rpartition("_")[2]), name[0] != "."), reverse=True)

    def _sweep(self) -> None:
        """Remove what a crash left half written or half removed; finish or undo a replacement."""
        folder = self.folder / "checkpoints"
        for name in sorted(os.listdir(folder)) if os.path.lexists(folder) else []:
            if name.startswith((".tmp-", ".gone-")):
                disk.remove(folder / name)
            elif name.startswith(".old-"):
                new = folder / name.removeprefix(".old-")
                if not os.path.lexists(new):
                    os.rename(folder / name, new)
                else:
                    with suppress(Damaged):
                        disk.verify(new)
                        disk.remove(folder / name)

    def _prune(self) -> None:
        """Keep the newest three, milestones, and a passing one only while it is the newest of all."""
        folder = self.folder / "checkpoints"
        names = [name for name in self._candidates() if not name.startswith(".")]
        for name in set(names) - set(self._keeps):
            with suppress(Damaged):
                self._keeps[name] = disk.read_manifest(folder / name).keep
        recent = [name for name in names if self._keeps.get(name) == "recent"]
        passing = [name for name in names[1:] if self._keeps.get(name) == "passing"]
        for name in recent[KEPT:] + passing:
            gone = folder / f".gone-{name}"  # a name that `load` does not know: half removed is removed
            os.rename(folder / name, gone)
            disk.remove(gone)
            del self._keeps[name]
        for name in names[KEPT:]:
            if name not in self._keeps and os.path.lexists(folder / name):
                self._set_aside(name)  # unreadable: it may have been a milestone

    def _set_aside(self, name: str) -> None:
        aside = self._subfolder("damaged") / name.removeprefix(".old-")
        number = 1
        while os.path.lexists(aside):
            number += 1
            aside = aside.with_name(f"{aside.name.partition('-')[0]}-{number}")
        os.rename(self.folder / "checkpoints" / name, aside)
        self._keeps.pop(name, None)
        disk.sync_folder(aside.parent)
        disk.sync_folder(self.folder / "checkpoints")

    # --- other files ---

    def _subfolder(self, name: str) -> Path:
        folder = self.folder / name
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            disk.sync_folder(self.folder)
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise RunError(f"{folder} is not a plain folder")  # a link would lead out of the run
        return folder

    def write_file(self, name: str, data: bytes) -> Path:
        """A file of this run's own, "report.html" or "films/match.gif", replaced as a whole."""
        self._writing()
        folder, _, leaf = name.rpartition("/")
        if not FILE_NAME.fullmatch(leaf) or (folder and not FILE_NAME.fullmatch(folder)) \
                or (folder or leaf) in OWN_NAMES:
            raise RunError(f"{self.folder}: {name!r:.60} cannot be the name of a file here")
        with told(f"{name} was not written"):
            path = (self._subfolder(folder) if folder else self.folder) / leaf
            disk.replace_file(path, data)
        return path

    def _policies(self) -> set[str]:
        folder = self.folder / "policies"
        names = os.listdir(folder) if os.path.lexists(folder) else []
        return {name.removesuffix(".json") for name in names if name.endswith(".json") and name[0] != "."}

    def write_policy(self, name: str, arrays: Arrays, about: Mapping[str, Any],
                     replace: bool = False) -> Path:
        """policies/NAME.safetensors, then NAME.json that vouches for it. Only `replace` may change a policy.

        A policy from after the restored checkpoint may be written again: that time did not happen.
        """
        self._writing()
        if not FILE_NAME.fullmatch(name):
            raise RunError(f"{self.folder}: {name!r:.60} cannot be the name of a policy")
        raw: bytes = safetensors.numpy.save({key: disk.dense(array, key) for key, array in arrays.items()})
        weights = {"size": len(raw), "sha256": disk.digest(raw)}
        body = {"schema": disk.SCHEMA, "about": json.loads(_row(about, f"{name}.json")), "weights": weights}
        card = disk.seal(body)
        with told(f"policy {name} was not written"):
            path = self._subfolder("policies") / f"{name}.safetensors"
            if name in self._policies() - self._redone and not replace:
                with suppress(Damaged):
                    if disk.read_plain(path.with_suffix(".json"), disk.LARGEST_TEXT) == card \
                            and disk.read_plain(path, len(raw)) == raw:
                        return path
                raise RunError(f"{path} exists and differs: a policy is never silently overwritten")
            disk.replace_file(path, raw)
            disk.replace_file(path.with_name(f"{name}.json"), card)
            self._redone.discard(name)
        return path

    @staticmethod
    def read_policy(path: Path) -> tuple[Arrays, dict[str, Any]]:
        """The arrays of a policy and what its card says about it, verified."""
        path = Path(path)
        try:
            card = disk.unseal(disk.read_plain(path.with_name(f"{path.stem}.json"), disk.LARGEST_TEXT),
                               f"{path.stem}.json")
            try:
                schema, weights, about = card["schema"], Mark(**card["weights"]), card["about"]
            except (KeyError, TypeError):
                raise Damaged(f"{path.stem}.json is not the card of a policy") from None
            if schema != disk.SCHEMA or type(weights.size) is not int or not isinstance(about, dict):
                raise Damaged(f"{path.stem}.json is not the card of a policy")
            raw = disk.read_plain(path, weights.size)
            if Mark(len(raw), disk.digest(raw)) != weights:
                raise Damaged(f"{path.name} does not match its SHA-256")
            return disk.read_arrays(raw, path.name), about
        except Damaged as why:
            raise RunError(f"{path} does not verify: {why}") from None


def _is_ours(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except OSError:
        return False


def _refuse_used(folder: Path) -> None:
    """Only a folder with nothing in it becomes a run; our own redirected output counts as nothing."""
    entries = set(os.listdir(folder)) - {LOCK, f".tmp-{CONFIG}"}
    if any(_is_ours(folder / LOGS[0], fd) for fd in (1, 2)):
        entries.discard(LOGS[0])
    if CONFIG in entries:
        who = holder(folder)
        held = f", held by {who}" if who else ""
        raise ConfigError(f"{folder} holds a run already{held}: go on with `rematch resume {folder}`, "
                          "or choose another name")
    if entries:
        raise ConfigError(f"{folder} is not empty and not a run: choose another name")
