"""Atomic writes: a file is written as a whole or not at all; a full disk gives one error line."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.broken_disk import Kernel, use_kernel
from support.fake_training import single_line

from rematch.core.errors import RunError
from rematch.storage import atomic_files
from rematch.storage.run_folder import Run


def test_replace_file_leaves_the_old_file_after_an_error(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    atomic_files.replace_file(path, b"old")

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        atomic_files.replace_file(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["x"]


def test_failed_write_gives_one_error_line_and_no_partial_row(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.create(tmp_path / "x", "") as run:
        run.log({"a": 1})
        real = os.write

        class Full(Kernel):
            def write(self, fd: int, data: bytes) -> int:
                if len(data) < 8:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return real(fd, data[:5])

        use_kernel(Full(tmp_path), monkeypatch)
        for write in (lambda: run.log({"abcdefg": 1.5}), lambda: run.log_line("a line of text"),
                      lambda: run.append_history({"b": 1}), lambda: run.timing({"abcdefg": 1}),
                      lambda: run.write_file("report.html", b"x" * 12),
                      lambda: run.write_policy("p", {"w": np.ones(3)}, {})):
            with pytest.raises(RunError, match="No space left") as caught:
                write()
            single_line(caught)
        use_kernel(os, monkeypatch)
        run.log({"b": 2})
        assert run.history == []
    assert (tmp_path / "x" / "metrics.jsonl").read_text() == '{"a": 1}\n{"b": 2}\n'
    assert (tmp_path / "x" / "train.log").read_text() == ""
    assert not list((tmp_path / "x").rglob(".tmp-*"))


FULL = """if 1:
    import resource, sys; from pathlib import Path; import numpy as np
    from rematch.core.errors import RunError; from rematch.storage.run_folder import Run
    with Run.create(Path(sys.argv[1]), "") as run:
        run.save(1, {"x": {"w": np.zeros(100)}}, {})
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
        for attempt in range(2):
            try:
                run.save(2, {"x": {"w": np.zeros(100_000)}}, {})
            except RunError as error:
                print(error)
        assert run.load().iteration == 1
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        run.save(2, {"x": {"w": np.zeros(100_000)}}, {})
        assert run.load().iteration == 2
    assert "torch" not in sys.modules
"""


def test_file_size_limit_of_the_kernel_gives_one_error_line(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "x")], check=True, capture_output=True)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 2 and all("state.safetensors: File too large" in line for line in lines)


def test_remove_deletes_a_folder_of_any_depth(tmp_path: Path) -> None:
    """A foreign run folder may hold one that is nested deeper than Python recurses."""
    path = Path("x")
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(sys.getrecursionlimit() + 500):
            os.mkdir("x")
            os.chdir("x")
    finally:
        os.chdir(before)
    atomic_files.remove(tmp_path / path)
    assert os.listdir(tmp_path) == []


def test_sync_empties_the_cache_of_the_drive_where_the_system_can(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    fails = False

    def fcntl(fd: int, command: int) -> int:
        calls.append(command)
        if fails:
            raise OSError(errno.ENOTSUP, "not supported")
        return 0

    fsync = os.fsync
    monkeypatch.setattr(atomic_files.fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(atomic_files.fcntl, "fcntl", fcntl)
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(-1), fsync(fd)))
    atomic_files.replace_file(tmp_path / "x", b"new")
    assert calls == [51, 51] and (tmp_path / "x").read_bytes() == b"new"  # the file, then its folder
    fails = True  # a network file system
    atomic_files.replace_file(tmp_path / "x", b"newer")
    assert calls[2:] == [51, -1, 51, -1]
    monkeypatch.delattr(atomic_files.fcntl, "F_FULLFSYNC")
    atomic_files.replace_file(tmp_path / "x", b"newest")
    assert calls[6:] == [-1, -1]
