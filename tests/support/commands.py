"""Commands under test: a finished tiny run, and fixtures for commands that succeed or are refused."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rematch import api
from rematch.cli import main
from support.patience import PATIENCE
from support.tiny_run import flags

ROOT = Path(main.__file__).parents[2]
Runner = Callable[..., str]
PRODUCTS = ("learning.png", "match.gif", "report.html")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished tiny run in runs/done."""
    workdir = tmp_path_factory.mktemp("place")
    with contextlib.chdir(workdir):
        assert main.main(["train", "quick", *flags(), "--name", "done"]) == 0
    return workdir


@pytest.fixture
def workdir(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a copy of the folder of `finished`."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Run a command that must end with exit code 2 and one line on stderr within a second of CPU time.

    A command that takes longer runs again: the first one may have imported a library for the first time.
    """

    def never(*_: Any) -> bool:
        raise AssertionError("it trains")

    def once(words: tuple[str, ...]) -> tuple[float, int, str, str]:
        began = time.thread_time()  # CPU time of this thread: the machine and other threads may be busy
        with monkeypatch.context() as patch:
            patch.setattr(api, "loop", never)
            code = main.main(words)
        return time.thread_time() - began, code, *capsys.readouterr()

    def run(*words: str) -> str:
        seconds, code, out, err = once(words)
        if seconds >= 1.0:
            seconds, code, out, err = once(words)
        assert (code, out) == (2, ""), (words, code, out, err)
        assert err.startswith("rematch: ") and err.count("\n") == 1 and err.endswith("\n"), (words, err)
        assert len(err) < 700 and "Traceback" not in err
        assert seconds < 1.0, (words, seconds)
        return err[len("rematch: "):-1]

    return run


@pytest.fixture
def succeed(capsys: pytest.CaptureFixture[str]) -> Runner:
    def run(*words: str) -> str:
        assert main.main(words) == 0, capsys.readouterr()
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path}


def process(*words: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "rematch", *words], env=environment(), timeout=PATIENCE,
                          stdin=subprocess.DEVNULL, capture_output="stdout" not in options, **options)


def piped(command: str, workdir: Path) -> subprocess.CompletedProcess[bytes]:
    line = f"set -o pipefail; {shlex.quote(sys.executable)} -m rematch {command}"
    return subprocess.run(["bash", "-c", line], cwd=workdir, env=environment(),
                          capture_output=True, timeout=PATIENCE)


def cpu_seconds_of_children() -> float:
    """Of all that have ended: the machine may be busy."""
    used = os.times()
    return used.children_user + used.children_system


def files(folder: Path) -> dict[str, bytes]:
    """Every byte of a run but its clock."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in ("timing.jsonl", "lock")}




def newest(folder: Path) -> Path:
    return max((folder / "checkpoints").iterdir())


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


