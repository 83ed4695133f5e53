"""A fake kernel that fails or stops at a chosen call, and records what had reached the disk by then."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from rematch.storage import (
    append_log,
    array_chunks,
    atomic_files,
    checkpoint,
    checkpoint_store,
    policy_files,
    run_folder,
    run_lock,
)
from rematch.storage.run_folder import Run
from support.fake_training import train_iteration


class Crash(BaseException):
    """The machine stops: no clean-up code may touch the disk afterwards."""


class Kernel:
    """Replaces `os`: counts the calls that touch the disk, fails at one of them, records what was synced.

    The files in `root` at the start count as synced. From then on a file's synced bytes are those at its last
    fsync, and a folder's synced names those at its last fsync.
    """

    COUNTED = frozenset({"open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir", "ftruncate",
                         "listdir", "lstat"})

    def __init__(self, root: Path, fail_at: int = -1, error: BaseException | None = None,
                 lasting: bool = False) -> None:
        self.root, self.fail_at, self.error, self.lasting = root, fail_at, error, lasting
        self.calls: list[str] = []
        self.fresh = itertools.count()
        self.numbers: dict[int, int] = {}  # inode -> a number that is never reused, as inodes are
        self.bytes: dict[int, bytes] = {}
        self.names: dict[int, dict[str, tuple[int, bool]]] = {}
        for path in [root, *root.rglob("*")]:
            self.sync(path)

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.COUNTED:
            return real

        def call(*args: Any) -> Any:
            index = len(self.calls)
            self.calls.append(name)
            if self.error and (index == self.fail_at or (self.lasting and index > self.fail_at)):
                raise self.error
            made = name == "mkdir" or (name == "open" and args[1] & os.O_EXCL)
            result = real(*args)
            if made:
                self.numbers.pop(os.lstat(args[0]).st_ino, None)
            if name == "fsync":
                self.sync(Path(os.readlink(f"/proc/self/fd/{args[0]}")))
            return result

        return call

    def number(self, path: Path) -> int:
        inode = path.lstat().st_ino
        if inode not in self.numbers:
            self.numbers[inode] = next(self.fresh)
        return self.numbers[inode]

    def listing(self, folder: Path) -> dict[str, tuple[int, bool]]:
        return {path.name: (self.number(path), path.is_dir()) for path in folder.iterdir()}

    def sync(self, path: Path) -> None:
        if path.is_dir():
            self.names[self.number(path)] = self.listing(path)
        else:
            self.bytes[self.number(path)] = path.read_bytes()

    def power_loss(self, target: Path, names: str, data: str) -> Path:
        """The disk after a loss of power. names: synced | all; data not synced: lost | torn | written."""
        now = {self.number(path): path for path in [self.root, *self.root.rglob("*")]}

        def put(number: int, target: Path) -> None:
            target.mkdir()
            live = self.listing(now[number]) if number in now else {}
            for name, (inner, folder) in (live if names == "all" else self.names.get(number, {})).items():
                if folder:
                    put(inner, target / name)
                    continue
                old = self.bytes.get(inner, b"")
                new = now[inner].read_bytes() if inner in now else old
                half = new[:(len(old) + len(new)) // 2].ljust(len(new), b"\0")
                (target / name).write_bytes({"lost": old, "torn": half, "written": new}[data])

        put(self.number(self.root), target)
        return target


def use_kernel(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every storage module call this kernel instead of `os`."""
    for module in (
        checkpoint,
        array_chunks,
        atomic_files,
        run_lock,
        append_log,
        policy_files,
        run_folder,
        checkpoint_store,
    ):
        monkeypatch.setattr(module, "os", kernel)


def run_before_save(folder: Path, iteration: int) -> Run:
    """The run in `folder`, opened, right before the save of `iteration`."""
    run = Run.open(folder, write=True)
    run.rewind(run.load())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "save", lambda *args: None)
        train_iteration(run, iteration)
    if run._table_writer:
        run._table_writer.drain()  # its lines are written but not synced: the save comes next
    return run
