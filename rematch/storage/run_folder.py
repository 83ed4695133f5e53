"""A run is one folder: settings, logs, checkpoints, policies. Its process can be killed at any instant.

    config.yaml      the settings, written once
    train.log        plain lines               truncated on resume to their size at the
    metrics.jsonl    one JSON object per line  checkpoint, so that no step is logged twice
    history.json     evaluations, one per row
    timing.jsonl     the only file with clock times: speeds, stops, resumes; never truncated, never compared
    checkpoints/     iter_00000123: the three newest, milestones, and after a stop the one saved there
    chunks/          data that grows and never changes (a replay), shared by checkpoints
    policies/        NAME.safetensors and NAME.json; never silently overwritten
    lineage.json     the run or the policies that this run was started from (storage/lineage.py)
    past/            the policies at earlier evaluations (evaluation/past_policies.py)
    replays/         games of evaluations as data, ITERATION-NUMBER.replay (storage/replay_files.py)
    damaged/         checkpoints that do not verify, moved here by a resume; nothing reads them
    lock             exists while a process writes here, and names it

Commit (DESIGN section 4): logs to disk, files, manifest, fsync each, rename, fsync the folder, read back;
only then may an older checkpoint be deleted. A resumed run ends with the bytes of an uninterrupted one in
every file but timing.jsonl and damaged/. Imports neither torch nor any world or learner.
"""

from __future__ import annotations

import fcntl
import json
import operator
import os
import re
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
from rematch.storage.append_log import AppendLog, LogWriter, is_same_file, plain_line
from rematch.storage.array_chunks import CHUNK_FOLDER, Arrays
from rematch.storage.atomic_files import FileDigest, json_line, os_errors_as_run_error
from rematch.storage.checkpoint import (
    MILESTONE,
    RECENT,
    TABLE_FILES,
    TEMPORARY,
    Checkpoint,
    Manifest,
    encode_state,
    find_chunks,
)
from rematch.storage.checkpoint_store import CheckpointStore
from rematch.storage.lineage import LINEAGE_FILE
from rematch.storage.policy_files import FILE_NAME, POLICY_FOLDER
from rematch.storage.run_lock import LOCK_FILE, RunLock, lock_holder

FAILED_EVENT = "failed"  # in timing.jsonl: a weight or a gradient is not finite, or code raised an exception
CODE_FAILED = "code"  # cause of such an event: an exception in a component or in code of the user
CONFIG_FILE, HISTORY_FILE, TIMING_FILE = "config.yaml", "history.json", "timing.jsonl"
TRAIN_LOG, METRICS_FILE, EVENTS_FILE = "train.log", "metrics.jsonl", "events.jsonl"
PAST_FOLDER = "past"
PAST_POLICY = re.compile(r"([0-9]{8,15})\.(safetensors|json)")
REPLAY_FOLDER = "replays"
REPLAY_FILE = re.compile(r"([0-9]{8,15})-([0-9]{1,3})\.replay")
LOG_FILES = (TRAIN_LOG, METRICS_FILE)
RESERVED_FOLDERS = ("checkpoints", CHUNK_FOLDER, POLICY_FOLDER, PAST_FOLDER, REPLAY_FOLDER, "damaged")
RESERVED_NAMES = frozenset(
    {CONFIG_FILE, LINEAGE_FILE, LOCK_FILE, HISTORY_FILE, TIMING_FILE,
     *LOG_FILES, *TABLE_FILES, *RESERVED_FOLDERS}
)
EMPTY = FileDigest(0, "")  # the digest of a log at the start of a run
Rows = list[dict[str, Any]]


def _history_bytes(rows: Rows) -> bytes:
    return ("[" + ",".join("\n" + json_line(row, HISTORY_FILE) for row in rows) + "\n]\n").encode()
LONGEST_HEADER = 1 << 20  # bytes


class Run:
    """One run folder. `create` makes one; `open`, then `load` and `rewind`, continues an existing one."""

    def __init__(self, folder: Path, config_text: str, lock: RunLock | None) -> None:
        self.folder, self.config_text = folder, config_text
        self._lock = lock
        self._logs: dict[str, AppendLog] = {}  # LOG_FILES; empty until their size is settled by `rewind`
        self._tables: dict[str, AppendLog] = {}  # the TABLE_FILES that this run has
        self._table_writer: LogWriter | None = None
        self._timing: AppendLog | None = None
        self._history: Rows | None = None
        self._history_digest = EMPTY
        self._store = CheckpointStore(folder, atomic_files.sha256_hex(config_text.encode()))
        self._rewound_policies: set[str] = set()  # written after the restored checkpoint: may be overwritten

    # --- creating, opening, closing ---

    @classmethod
    def create(cls, folder: Path, config_text: str) -> Run:
        """A new run in a folder that does not exist, or that holds nothing but our redirected output."""
        folder = Path(folder)
        with os_errors_as_run_error(f"{folder} cannot be created"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            cls.refuse_used(folder)
            lock = RunLock(folder)
            try:
                cls.refuse_used(folder)  # again: another process may have created a run meanwhile
                os.chmod(folder, 0o700)
                atomic_files.replace_file(folder / CONFIG_FILE, config_text.encode())
                atomic_files.sync_folder(folder.parent)
                run = cls(folder, config_text, lock)
                run._open_logs()
                run._write_history([])
                return run
            except BaseException:
                lock.release()
                raise

    @staticmethod
    def refuse_used(folder: Path) -> None:
        """ConfigError unless the folder is free for a new run; our own redirected output may be in it."""
        if not os.path.lexists(folder):
            return
        with os_errors_as_run_error(f"{folder} cannot be created"):
            entries = set(os.listdir(folder)) - {LOCK_FILE, f".tmp-{CONFIG_FILE}"}
        if any(is_same_file(folder / TRAIN_LOG, fd) for fd in (1, 2)):
            entries.discard(TRAIN_LOG)
        if CONFIG_FILE in entries:
            holder = lock_holder(folder)
            locked = f", locked by {holder}" if holder else ""
            raise ConfigError(f"{folder} holds a run already{locked}: continue it with "
                              f"`rematch resume {folder}`, or choose another name")
        if entries:
            raise ConfigError(f"{folder} is not empty and not a run: choose another name")

    @classmethod
    def open(cls, folder: Path, write: bool) -> Run:
        """An existing run. To continue it: `run.rewind(run.load())`, then log and save."""
        folder = Path(folder)
        if os.path.isfile(folder):
            raise ConfigError(f"{folder} is a file: expected the folder of a run")
        if not os.path.isdir(folder):
            runs = sorted(path.parent.name for path in folder.parent.glob(f"*/{CONFIG_FILE}"))
            longer = next((run for run in runs if run.lower().startswith(folder.name.lower())), "")
            near = nearest(folder.name, runs) or longer
            hint = f"; nearest: {folder.parent / near}" if near else ""
            raise ConfigError(f"{folder}: no such run{hint}")
        if not os.path.lexists(folder / CONFIG_FILE):
            configs = [*folder.glob(f"*/{CONFIG_FILE}"), *folder.glob(f"*/*/{CONFIG_FILE}")]
            hint = f"; {min(path.parent for path in configs)} is one" if configs else ""
            raise ConfigError(f"{folder} is not a run: it holds no {CONFIG_FILE}{hint}")
        with os_errors_as_run_error(f"{folder} cannot be opened"):
            lock = RunLock(folder) if write else None
        try:
            config = atomic_files.read_regular_file(folder / CONFIG_FILE, atomic_files.MAX_TEXT_BYTES)
            return cls(folder, config.decode(), lock)
        except ValueError as error:  # Damaged, or bytes that are not text
            if lock:
                lock.release()
            reason = str(error) if isinstance(error, Damaged) else f"{CONFIG_FILE} is not text"
            raise ConfigError(f"{folder} is not a run: {reason}") from None

    def close(self) -> None:
        self._close_logs()
        if self._timing:
            self._timing.close()
        if self._lock:
            self._lock.release()
        self._timing, self._lock = None, None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def stdout_is_log(self) -> bool:
        """Whether the shell redirects our output into train.log: then only `log_line` may write there."""
        return any(is_same_file(self.folder / TRAIN_LOG, fd) for fd in (1, 2))

    def _close_logs(self) -> None:
        if self._table_writer:
            self._table_writer.stop()
        self._table_writer = None
        for log in [*self._logs.values(), *self._tables.values()]:
            log.close()
        self._logs, self._tables = {}, {}

    def _open_logs(self) -> None:
        self._close_logs()
        self._logs = {name: AppendLog(self.folder / name) for name in LOG_FILES}
        for fd in (1, 2):
            if is_same_file(self.folder / TRAIN_LOG, fd):  # a stray print must not overwrite appended lines
                fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)

    def _require_write_access(self) -> None:
        if self._lock is None:
            raise RunError(f"{self.folder} is open for reading only")

    # --- logs ---

    def _log(self, name: str) -> AppendLog:
        if name not in self._logs:
            self._require_write_access()
            raise RunError(f"{self.folder / name}: call rewind() before writing")
        return self._logs[name]

    def log_line(self, text: str) -> None:
        """Append a line for people to train.log at once, without escapes and carriage returns."""
        self._log(TRAIN_LOG).append(plain_line(text))

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a row to metrics.jsonl; NaN and infinity are refused by name. Clock times: `timing`."""
        self._log(METRICS_FILE).append(json_line(row, METRICS_FILE))

    def table(self, name: str, line: str, header: str) -> None:
        """Append a line to one of TABLE_FILES, whose first line is `header`. A thread writes to the disk."""
        self._log(TRAIN_LOG)
        self._table_writer = self._table_writer or LogWriter()
        if name not in self._tables:
            with os_errors_as_run_error(f"{self.folder}"):
                self._tables[name] = AppendLog(self.folder / name)
            if header:
                self._table_writer.put(self._tables[name], header)
        self._table_writer.put(self._tables[name], line)

    def table_header(self, name: str) -> str:
        """The first line of one of TABLE_FILES; empty where the run does not have the file yet."""
        if name not in self._tables:
            return ""
        if self._table_writer:
            self._table_writer.drain()
        data = os.pread(self._tables[name].fd, LONGEST_HEADER, 0)
        return data.partition(b"\n")[0].decode(errors="replace")

    def event(self, row: Mapping[str, Any]) -> None:
        """Append a row to events.jsonl: an event and its step. No clock times."""
        self.table(EVENTS_FILE, json_line(row, EVENTS_FILE), "")

    def timing(self, row: Mapping[str, Any]) -> None:
        """Append a row to timing.jsonl: speeds, stops, resumes, all that depends on clock or machine."""
        self._require_write_access()
        if self._timing is None:
            with os_errors_as_run_error(f"{self.folder}"):
                self._timing = AppendLog(self.folder / TIMING_FILE)
                self._timing.end_line()
        self._timing.append(json_line(row, TIMING_FILE))

    @property
    def history(self) -> Rows:
        """The rows of history.json."""
        return list(self._history if self._history is not None else self._read_history())

    def _read_history(self) -> Rows:
        path = self.folder / HISTORY_FILE
        if not os.path.lexists(path):
            return []
        rows = atomic_files.read_json(atomic_files.read_regular_file(path, 1 << 32), str(path))
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Damaged(f"{path} is not a list of rows")
        return rows

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Add an evaluation; history.json is complete at every moment."""
        self._log(TRAIN_LOG)  # raises unless the run was created or rewound
        rows = [*self.history, json.loads(json_line(row, HISTORY_FILE))]
        with os_errors_as_run_error("history was not saved"):
            self._write_history(rows)

    def _write_history(self, rows: Rows) -> None:
        data = _history_bytes(rows)
        atomic_files.replace_file(self.folder / HISTORY_FILE, data)
        self._history, self._history_digest = rows, FileDigest(len(rows), atomic_files.sha256_hex(data))

    # --- checkpoints ---

    def save(self, iteration: int, parts: Mapping[str, Tree], fingerprint: Mapping[str, str],
             milestone: bool = False, temporary: bool = False) -> Path:
        """Commit all parts together. After a RunError the earlier checkpoints are unchanged; try again later.

        A `milestone` is never deleted. A `temporary` checkpoint, saved because the run was stopped between
        two regular ones, is deleted after the next save: a stopped and resumed run ends with the same files.
        """
        self._log(TRAIN_LOG)
        iteration = operator.index(iteration)
        if not 0 <= iteration < 10**15:
            raise RunError(f"iteration = {iteration}: expected 0 to 999999999999999")
        files, chunks = encode_state(parts), list(find_chunks(dict(parts)))
        with os_errors_as_run_error(f"checkpoint iter_{iteration:08d} was not saved"):
            manifest = self._manifest(iteration, fingerprint, files)
        keep = MILESTONE if milestone else TEMPORARY if temporary else RECENT
        digests = {chunk.name: chunk.digest for chunk in chunks}
        return self._store.commit(replace(manifest, keep=keep, chunks=digests), files, chunks)

    def _manifest(self, iteration: int, fingerprint: Mapping[str, str], files: dict[str, bytes]) -> Manifest:
        if self._table_writer:
            self._table_writer.drain()
        logs = {name: log.sync() for name, log in [*self._logs.items(), *sorted(self._tables.items())]}
        logs[HISTORY_FILE] = self._history_digest
        return Manifest(
            iteration=iteration, keep=RECENT, config=self._store.config,
            fingerprint=dict(sorted(fingerprint.items())), logs=logs,
            policies=sorted(policy_files.policy_names(self.folder) - self._rewound_policies),
            files={name: atomic_files.file_digest(data) for name, data in files.items()})

    def load(self, verify_chunks: bool = True, until: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that verifies, and why newer ones do not; None if none was ever saved.

        Changes nothing. Raises ConfigError where there are checkpoints and none verifies. Without
        `verify_chunks` an array chunk is hashed only when it is read: use it where no replay is needed.
        With `until`, the newest of this iteration or an earlier one.
        """
        return self._store.load(verify_chunks, until)

    def checkpoint_iterations(self) -> list[int]:
        """The iterations of the stored checkpoints, by their names, ascending."""
        names = [name for name in self._store.candidates() if not name.startswith(".")]
        return sorted(int(name.rpartition("_")[2]) for name in names)

    def rewind(self, checkpoint: Checkpoint | None) -> list[str]:
        """Bring the folder back to the moment of `checkpoint` (None: the start). Returns notes to print.

        A log whose first bytes differ from those at the checkpoint is an error, because truncating it would
        hide that; a log that was deleted starts again, and a note says so.
        """
        self._require_write_access()
        if checkpoint is None and self._store.candidates():
            raise RunError(f"{self.folder} has checkpoints: load one of them before rewinding")
        digests = checkpoint.manifest.logs if checkpoint else dict.fromkeys((*LOG_FILES, HISTORY_FILE), EMPTY)
        present = {name for name in digests if os.path.lexists(self.folder / name)}
        with os_errors_as_run_error(f"{self.folder} cannot be rewound"):
            self._open_logs()
            rows = self._verified_history(digests[HISTORY_FILE]) if HISTORY_FILE in present else []
            for name in LOG_FILES:
                changed = self._logs[name].prefix_digest(digests[name].size) != digests[name]
                if checkpoint and name in present and changed:
                    raise self._altered(name)
            for name in sorted(TABLE_FILES):
                self._open_table(name, digests.get(name, EMPTY))
            for name, _ in checkpoint.skipped if checkpoint else []:
                self._store.move_to_damaged(name)
            self._store.remove_leftovers()
            self._store.prune()
            self._remove_temporary_files()
            for name in LOG_FILES:
                self._logs[name].truncate(min(digests[name].size, os.fstat(self._logs[name].fd).st_size))
            for name, log in self._tables.items():
                log.truncate(digests[name].size)
            self._write_history(rows)
        saved_policies = checkpoint.manifest.policies if checkpoint else ()
        self._rewound_policies = policy_files.policy_names(self.folder) - set(saved_policies)
        return [f"{self.folder / name} was missing: it starts again" for name in digests
                if digests[name].size and name not in present]

    def _remove_temporary_files(self) -> None:
        """Delete the .tmp- files of interrupted writes, in the run folder and its subfolders."""
        for path in [*self.folder.glob(".tmp-*"), *self.folder.glob("*/.tmp-*")]:
            if path.parent == self.folder or not path.parent.is_symlink():
                atomic_files.remove(path)

    def _open_table(self, name: str, digest: FileDigest) -> None:
        """Open a table that the checkpoint has; delete one that was started after it."""
        path = self.folder / name
        if not digest.size:
            atomic_files.remove(path)
        elif os.path.lexists(path):
            log = self._tables[name] = AppendLog(path)
            if log.prefix_digest(digest.size) != digest:
                raise self._altered(name)

    def _verified_history(self, digest: FileDigest) -> Rows:
        try:
            rows = self._read_history()[:digest.size]
        except Damaged:
            raise self._altered(HISTORY_FILE) from None
        if digest.sha256 and digest != FileDigest(len(rows), atomic_files.sha256_hex(_history_bytes(rows))):
            raise self._altered(HISTORY_FILE)
        return rows

    def _altered(self, name: str) -> RunError:
        return RunError(f"{self.folder / name} was altered or truncated since its checkpoint was saved: "
                        "restore it, or delete it to continue without its earlier lines")

    # --- other files ---

    def write_file(self, name: str, data: bytes) -> Path:
        """Replace another file of the run as a whole: "report.html", "films/match.gif"."""
        self._require_write_access()
        folder, _, leaf = name.rpartition("/")
        valid = FILE_NAME.fullmatch(leaf) and (not folder or FILE_NAME.fullmatch(folder))
        if not valid or (folder or leaf) in RESERVED_NAMES:
            raise RunError(f"{self.folder}: {name!r:.60} cannot be the name of a file here")
        with os_errors_as_run_error(f"{name} was not written"):
            path = (atomic_files.subfolder(self.folder, folder) if folder else self.folder) / leaf
            atomic_files.replace_file(path, data)
        return path

    def write_policy(self, name: str, arrays: Arrays, metadata: Mapping[str, Any],
                     replace: bool = False) -> Path:
        """Write policies/NAME.safetensors, then NAME.json with its digest. Only `replace` changes a policy.

        A policy written after the restored checkpoint may be overwritten: the run was rewound to before it.
        """
        self._require_write_access()
        replace = replace or name in self._rewound_policies
        path = policy_files.write(self.folder, name, arrays, metadata, replace)
        self._rewound_policies.discard(name)
        return path

    def write_past_policy(self, iteration: int, arrays: Arrays, metadata: Mapping[str, Any],
                          keep_iterations: list[int]) -> None:
        """Write past/ITERATION, then delete the other iterations but for `keep_iterations`.

        An earlier checkpoint needs none of the deleted files: a run resumed from it deletes them too.
        """
        self._log(TRAIN_LOG)
        policy_files.write(
            self.folder, f"{iteration:08d}", arrays, metadata, replace=True, subfolder=PAST_FOLDER
        )
        self._prune(PAST_FOLDER, PAST_POLICY, keep_iterations)

    def write_replays(self, iteration: int, games: list[bytes], keep_iterations: list[int]) -> None:
        """Write replays/ITERATION-1.replay and so on, then delete those of other iterations but for
        `keep_iterations`."""
        self._log(TRAIN_LOG)
        with os_errors_as_run_error(f"{REPLAY_FOLDER}/ was not written"):
            folder = atomic_files.subfolder(self.folder, REPLAY_FOLDER)
            for number, data in enumerate(games, 1):
                atomic_files.replace_file(folder / f"{iteration:08d}-{number}.replay", data)
        self._prune(REPLAY_FOLDER, REPLAY_FILE, keep_iterations)

    def _prune(self, folder: str, pattern: re.Pattern[str], keep_iterations: list[int]) -> None:
        """Delete the files of a subfolder that belong to other iterations."""
        with os_errors_as_run_error(f"{folder}/ was not pruned"):
            for file in sorted(os.listdir(self.folder / folder)):  # metadata before weights
                match = pattern.fullmatch(file)
                if match and int(match[1]) not in keep_iterations:
                    atomic_files.remove(self.folder / folder / file)

    @staticmethod
    def read_policy(path: Path) -> tuple[Arrays, dict[str, Any]]:
        """The arrays and the metadata of a policy, verified."""
        return policy_files.read(path)
