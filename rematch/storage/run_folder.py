"""A run is one folder: settings, logs, checkpoints, policies. It can be killed at any instant.

    config.yaml      the settings, written once
    train.log        plain lines               cut back on resume to where the checkpoint
    metrics.jsonl    one JSON object per line  stood, so that curves never double back
    history.json     evaluations, one per row
    timing.jsonl     the only file with clock times: speeds, stops, resumes; never cut, never compared
    checkpoints/     iter_00000123: the three newest, milestones, and after a stop the point it stopped at
    chunks/          what grows and never changes (a replay), shared by the checkpoints that name it
    policies/        NAME.safetensors and NAME.json; never silently overwritten
    past/            what the players were at some evaluations (past_policies.py)
    damaged/         checkpoints that did not verify, set aside by a resume; nothing reads them
    lock             while a process writes here: who

Commit (DESIGN section 6): logs to disk, files, manifest, fsync each, rename, fsync the folder, read back;
only then may an older one go. A resumed run ends with the bytes of an undisturbed one in every file but
timing.jsonl and damaged/. Imports neither torch nor any world or learner.
"""

from __future__ import annotations

import fcntl
import json
import operator
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from rematch.core.arrays import Tree
from rematch.core.config import nearest
from rematch.core.errors import ConfigError, Damaged, RunError
from rematch.storage import atomic_files, policy_files
from rematch.storage import checkpoint as disk
from rematch.storage.append_log import Log, Pen, is_open_as, plain_line
from rematch.storage.array_chunks import FOLDER, Arrays
from rematch.storage.atomic_files import Mark, row_text, told
from rematch.storage.checkpoint import TABLES, Checkpoint, Manifest
from rematch.storage.checkpoint_store import Shelf
from rematch.storage.policy_files import FILE_NAME
from rematch.storage.run_lock import LOCK, Lock, holder

__all__ = ["Checkpoint", "Run", "holder"]

FAILED = "failed"  # the event of timing.jsonl: what was learnt is not a number
CONFIG, HISTORY, TIMING = "config.yaml", "history.json", "timing.jsonl"
PAST = "past"
EVENTS = "events.jsonl"
LOGS = ("train.log", "metrics.jsonl")
OWN_FOLDERS = ("checkpoints", FOLDER, "policies", PAST, "damaged")
OWN_NAMES = frozenset({CONFIG, LOCK, HISTORY, TIMING, *LOGS, *TABLES, *OWN_FOLDERS})


def _rows(rows: list[dict[str, Any]]) -> bytes:
    return ("[" + ",".join("\n" + row_text(row, HISTORY) for row in rows) + "\n]\n").encode()


class Run:
    """One folder. Make one with `create`, come back to it with `open`, then `load` and `rewind`."""

    def __init__(self, folder: Path, config_text: str, lock: Lock | None) -> None:
        self.folder, self.config_text = folder, config_text
        self._lock = lock
        self._logs: dict[str, Log] = {}  # train.log and metrics.jsonl once it is known where they go on
        self._tables: dict[str, Log] = {}  # those of TABLES that this run has, and who writes them
        self._pen: Pen | None = None
        self._timing: Log | None = None
        self._history: list[dict[str, Any]] | None = None
        self._history_mark = Mark(0, "")
        self._shelf = Shelf(folder, atomic_files.digest(config_text.encode()))
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
            cls.refuse_used(folder)
            lock = Lock(folder)
            try:
                cls.refuse_used(folder)  # again: another process may have been quicker
                os.chmod(folder, 0o700)
                atomic_files.replace_file(folder / CONFIG, config_text.encode())
                atomic_files.sync_folder(folder.parent)
                run = cls(folder, config_text, lock)
                run._open_logs()
                run._put_history([])
                return run
            except BaseException:
                lock.release()
                raise

    @staticmethod
    def refuse_used(folder: Path) -> None:
        """Only a folder with nothing in it becomes a run; our own redirected output counts as nothing."""
        if not os.path.lexists(folder):
            return
        with told(f"{folder} cannot be made"):
            entries = set(os.listdir(folder)) - {LOCK, f".tmp-{CONFIG}"}
        if any(is_open_as(folder / LOGS[0], fd) for fd in (1, 2)):
            entries.discard(LOGS[0])
        if CONFIG in entries:
            who = holder(folder)
            held = f", held by {who}" if who else ""
            raise ConfigError(f"{folder} holds a run already{held}: go on with `rematch resume {folder}`, "
                              "or choose another name")
        if entries:
            raise ConfigError(f"{folder} is not empty and not a run: choose another name")

    @classmethod
    def open(cls, folder: Path, write: bool) -> Run:
        """An existing run. To go on with it: `run.rewind(run.load())`, then log and save."""
        folder = Path(folder)
        if os.path.isfile(folder):
            raise ConfigError(f"{folder} is a file: expected a run's folder")
        if not os.path.isdir(folder):
            runs = sorted(path.parent.name for path in folder.parent.glob(f"*/{CONFIG}"))
            near = nearest(folder.name, runs)
            hint = f"; nearest: {folder.parent / near}" if near else ""
            raise ConfigError(f"{folder}: no such run{hint}")
        if not os.path.lexists(folder / CONFIG):
            below = min((path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{CONFIG}")),
                        default=None)
            hint = f"; {below} is one" if below else ""
            raise ConfigError(f"{folder} is not a run: it holds no {CONFIG}{hint}")
        with told(f"{folder} cannot be opened"):
            lock = Lock(folder) if write else None
        try:
            return cls(
                folder, atomic_files.read_plain(folder / CONFIG, atomic_files.LARGEST_TEXT).decode(), lock
            )
        except ValueError as error:  # Damaged, or bytes that are no text
            if lock:
                lock.release()
            why = str(error) if isinstance(error, Damaged) else f"{CONFIG} is not text"
            raise ConfigError(f"{folder} is not a run: {why}") from None

    def close(self) -> None:
        if self._pen:
            self._pen.stop()
        for log in [*self._logs.values(), *self._tables.values(), *([self._timing] if self._timing else [])]:
            log.close()
        self._logs, self._tables, self._pen, self._timing = {}, {}, None, None
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
        return any(is_open_as(self.folder / LOGS[0], fd) for fd in (1, 2))

    def _open_logs(self) -> None:
        for log in self._logs.values():
            log.close()
        self._logs = {name: Log(self.folder / name) for name in LOGS}
        for fd in (1, 2):
            if is_open_as(self.folder / LOGS[0], fd):  # a stray print must not overwrite what we append
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
        self._log(LOGS[0]).append(plain_line(text))

    def log(self, row: Mapping[str, Any]) -> None:
        """A row of metrics.jsonl; NaN and infinity are refused by name. No clock times: see `timing`."""
        self._log(LOGS[1]).append(row_text(row, LOGS[1]))

    def table(self, name: str, line: str, head: str) -> None:
        """A line of one of TABLES, which begins with `head`. A thread writes it: nobody waits for a disk."""
        self._log(LOGS[0])
        self._pen = self._pen or Pen()
        if name not in self._tables:
            with told(f"{self.folder}"):
                self._tables[name] = Log(self.folder / name)
            if head:
                self._pen.put(self._tables[name], head)
        self._pen.put(self._tables[name], line)

    def event(self, row: Mapping[str, Any]) -> None:
        """A row of events.jsonl: something that happened at a step. No clock times."""
        self.table(EVENTS, row_text(row, EVENTS), "")

    def timing(self, row: Mapping[str, Any]) -> None:
        """A row of timing.jsonl: anything that depends on the clock or the machine; stops and resumes."""
        self._writing()
        if self._timing is None:
            with told(f"{self.folder}"):
                self._timing = Log(self.folder / TIMING)
                self._timing.end_line()
        self._timing.append(row_text(row, TIMING))

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of history.json."""
        return list(self._history if self._history is not None else self._read_history())

    def _read_history(self) -> list[dict[str, Any]]:
        path = self.folder / HISTORY
        if not os.path.lexists(path):
            return []
        rows = atomic_files.read_json(atomic_files.read_plain(path, 1 << 32), str(path))
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Damaged(f"{path} is not a list of rows")
        return rows

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Add an evaluation; history.json is whole at every moment."""
        self._log(LOGS[0])  # only once the run has been created or rewound
        rows = [*self.history, json.loads(row_text(row, HISTORY))]
        with told("history was not saved"):
            self._put_history(rows)

    def _put_history(self, rows: list[dict[str, Any]]) -> None:
        data = _rows(rows)
        atomic_files.replace_file(self.folder / HISTORY, data)
        self._history, self._history_mark = rows, Mark(len(rows), atomic_files.digest(data))

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
        contents, shared = disk.encode(parts), list(disk.shared(dict(parts)))
        keep = "milestone" if milestone else "passing" if passing else "recent"
        with told(f"checkpoint iter_{iteration:08d} was not saved"):
            manifest = self._manifest(iteration, fingerprint, contents)
        marks = {chunk.name: chunk.mark for chunk in shared}
        return self._shelf.commit(replace(manifest, keep=keep, chunks=marks), contents, shared)

    def _manifest(self, iteration: int, fingerprint: Mapping[str, str],
                  contents: dict[str, bytes]) -> Manifest:
        if self._pen:
            self._pen.drain()
        logs = {name: log.mark() for name, log in [*self._logs.items(), *sorted(self._tables.items())]}
        logs[HISTORY] = self._history_mark
        return Manifest(
            iteration=iteration, keep="recent", config=atomic_files.digest(self.config_text.encode()),
            fingerprint=dict(sorted(fingerprint.items())), logs=logs,
            policies=sorted(policy_files.names(self.folder) - self._redone),
            files={name: Mark(len(data), atomic_files.digest(data)) for name, data in contents.items()})

    def load(self, whole: bool = True) -> Checkpoint | None:
        """The newest checkpoint that verifies, and why newer ones did not; None if none was ever saved.

        Changes nothing. Where there are checkpoints and none verifies, it refuses. Who reads no replay asks
        for less than the `whole`: then chunks are looked for, and hashed when they are read.
        """
        return self._shelf.load(whole)

    def rewind(self, checkpoint: Checkpoint | None) -> list[str]:
        """Bring the folder back to the moment of `checkpoint` (None: the beginning). Returns notes to print.

        A log whose beginning is no longer what the checkpoint vouches for is an error, because cutting it
        would hide that; a log that somebody deleted begins anew, and a note says so.
        """
        self._writing()
        candidates = self._shelf.candidates()
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
            for name in sorted(TABLES):
                self._open_table(name, marks.get(name, Mark(0, "")))
            for name, _ in checkpoint.skipped if checkpoint else []:
                self._shelf.set_aside(name)
            self._shelf.sweep()
            self._shelf.prune()
            for path in [*self.folder.glob(".tmp-*"), *self.folder.glob("*/.tmp-*")]:
                if not path.parent.is_symlink() or path.parent == self.folder:
                    atomic_files.remove(path)
            for name in LOGS:
                self._logs[name].cut(min(marks[name].size, os.fstat(self._logs[name].fd).st_size))
            for name, log in self._tables.items():
                log.cut(marks[name].size)
            self._put_history(rows)
        self._redone = policy_files.names(self.folder) - set(
            checkpoint.manifest.policies if checkpoint else ()
        )
        return [f"{self.folder / name} was missing: it begins anew" for name in marks
                if marks[name].size and name not in here]

    def _open_table(self, name: str, mark: Mark) -> None:
        """A table as far as its checkpoint vouches for it; one from after that is removed."""
        path = self.folder / name
        if not mark.size:
            atomic_files.remove(path)
        elif os.path.lexists(path):
            log = self._tables[name] = Log(path)
            if log.prefix(mark.size) != mark:
                raise self._altered(name)

    def _vouched_history(self, mark: Mark) -> list[dict[str, Any]]:
        try:
            rows = self._read_history()[:mark.size]
        except Damaged:
            raise self._altered(HISTORY) from None
        if mark.sha256 and mark != Mark(len(rows), atomic_files.digest(_rows(rows))):
            raise self._altered(HISTORY)
        return rows

    def _altered(self, name: str) -> RunError:
        return RunError(f"{self.folder / name} was altered or cut since its checkpoint was saved: "
                        "put it back, or delete it to go on without its past")

    # --- other files ---

    def write_file(self, name: str, data: bytes) -> Path:
        """A file of this run's own, "report.html" or "films/match.gif", replaced as a whole."""
        self._writing()
        folder, _, leaf = name.rpartition("/")
        if not FILE_NAME.fullmatch(leaf) or (folder and not FILE_NAME.fullmatch(folder)) \
                or (folder or leaf) in OWN_NAMES:
            raise RunError(f"{self.folder}: {name!r:.60} cannot be the name of a file here")
        with told(f"{name} was not written"):
            path = (atomic_files.subfolder(self.folder, folder) if folder else self.folder) / leaf
            atomic_files.replace_file(path, data)
        return path

    def write_policy(self, name: str, arrays: Arrays, about: Mapping[str, Any],
                     replace: bool = False) -> Path:
        """policies/NAME.safetensors, then NAME.json that vouches for it. Only `replace` may change a policy.

        A policy from after the restored checkpoint may be written again: that time did not happen.
        """
        self._writing()
        path = policy_files.write(self.folder, name, arrays, about, replace or name in self._redone)
        self._redone.discard(name)
        return path

    def write_past(self, iteration: int, arrays: Arrays, about: Mapping[str, Any], stay: list[int]) -> None:
        """past/ITERATION, then nothing in there but the iterations that `stay`.

        What a later thinning removed is not missed by an earlier checkpoint: going on from there leads to
        the same thinning.
        """
        self._log(LOGS[0])
        policy_files.write(self.folder, f"{iteration:08d}", arrays, about, replace=True, shelf=PAST)
        wanted = {f"{kept:08d}{kind}" for kept in stay for kind in (".safetensors", ".json")}
        with told("past/ was not thinned out"):
            for name in set(os.listdir(self.folder / PAST)) - wanted:
                atomic_files.remove(self.folder / PAST / name)

    @staticmethod
    def read_policy(path: Path) -> tuple[Arrays, dict[str, Any]]:
        """The arrays of a policy and what its card says about it, verified."""
        return policy_files.read(path)
