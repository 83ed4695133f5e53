"""--notify with real processes and a real server: start, kill, resume, stop, end; no token is stored."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE, wait_until
from support.tiny_run import flags
from support.web_servers import Received, server

from rematch.cli import main
from rematch.rehearsal.compare import differences

ROOT = Path(main.__file__).parents[2]
TOKEN = "tk-9f8e7d-secret"
LONG = flags(total_steps=8 * 4 * 1_000_000, evaluation__every=3, replays__games=0, save_every=3)
SHORT = flags(replays__games=0)


def start(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    command = [sys.executable, "-m", "rematch", *words]
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True)


def wait_for(received: list[Received], event: str) -> dict[str, Any]:
    """The first message of a kind."""
    def found() -> list[dict[str, Any]]:
        messages = [json.loads(request.body) for request in list(received)]
        return [message for message in messages if message["event"] == event]

    wait_until(found, lambda: f"no message {event!r} among {[r.body for r in received]}")
    return found()[0]


def stored_text(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_run_that_is_killed_resumed_and_stopped(tmp_path: Path) -> None:
    with server() as (url, received):
        address = f"{url}/hook/{TOKEN}"
        child = start(tmp_path, "train", "pursuit", *LONG, "--name", "mine", "--notify", address)
        assert "pursuit" in wait_for(received, "started")["text"]
        evaluation = wait_for(received, "evaluation")
        assert evaluation["run"] == "mine" and evaluation["verdict"] and evaluation["step"] > 0
        os.kill(child.pid, signal.SIGKILL)
        died = wait_for(received, "died")
        assert "killed, out of memory" in died["cause"] and died["iteration"] >= 3
        assert TOKEN not in child.communicate()[0]

        received.clear()
        child = start(tmp_path, "resume", "mine", REMATCH_NOTIFY=address)
        assert "ended without a stop request" in wait_for(received, "resumed")["text"]
        wait_for(received, "evaluation")
        os.kill(child.pid, signal.SIGINT)
        assert "stopped (SIGINT)" in wait_for(received, "stopped")["text"]
        output, _ = child.communicate(timeout=PATIENCE)
        assert TOKEN not in output
    assert TOKEN.encode() not in stored_text(tmp_path)
    assert all(request.path.endswith(TOKEN) for request in received)


@pytest.mark.slow
def test_end_of_a_run_and_a_dead_server(tmp_path: Path) -> None:
    with server() as (url, received):
        words = ["train", "pursuit", *SHORT, "--name", "short", "--notify", f"{url}/{TOKEN}"]
        child = start(tmp_path, *words)
        output, _ = child.communicate(timeout=PATIENCE)
        assert child.returncode == 0, output
        done = wait_for(received, "done")
        assert done["verdict"] and done["text"].startswith("complete after ")
    child = start(tmp_path, "train", "pursuit", *SHORT, "--name", "alone")
    assert child.communicate(timeout=PATIENCE) and child.returncode == 0
    assert differences(tmp_path / "runs/short", tmp_path / "runs/alone") == []  # the same bytes
    words = ["train", "pursuit", *LONG, "--name", "other", "--notify", f"http://127.0.0.1:9/{TOKEN}"]
    child = start(tmp_path, *words, "--max-minutes", "0.01")
    output, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0 and TOKEN not in output and "rematch resume" in output
    assert TOKEN.encode() not in stored_text(tmp_path)


def test_refused_commands_start_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REMATCH_NOTIFY", raising=False)
    for words, line in (
        (["train", "quick", "--notify", f"ftp://host/{TOKEN}"], "--notify: expected https://HOST/PATH"),
        (["resume", "none", "--notify", f"host/{TOKEN}"], "--notify: expected https://HOST/PATH"),
        (["notify", "none"], "needs --url URL"),
        (["notify", "none", "--url", f"http://127.0.0.1:9/{TOKEN}"], "does not train"),
    ):
        assert main.main(words) == 2
        error = capsys.readouterr().err
        assert line in error and TOKEN not in error
    assert not (tmp_path / "runs").exists()


def test_failed_start_ends_the_messenger(tmp_path: Path) -> None:
    with server() as (url, received):
        child = start(tmp_path, "resume", "none", "--notify", f"{url}/{TOKEN}")
        output, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 2 and "none" in output and TOKEN not in output and not received
