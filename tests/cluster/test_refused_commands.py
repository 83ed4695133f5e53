"""Commands for a cluster that cannot be used: one line, exit code 2, no file more than before."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import pytest
from support.commands import Runner, finished, refused, workdir
from support.tiny_run import flags

__all__ = ["finished", "refused", "workdir"]

COMMANDS = [
    ["train", "quick", *flags(), "--name", "new"],
    ["sweep", "quick", "--seeds", "0-1", *flags(), "--name", "new"],
    ["calibrate", "quick", "--by", "world.capture_radius", "--range", "0.2,2.0", "--rounds", "1",
     "--seeds", "0-2", *flags(), "--name", "new"],
    ["search", "quick", "--over", "ppo.lr=1e-4..1e-3:log", "--trials", "2", *flags(), "--name", "new"],
    ["eval", "done", "--games", "4"],
    ["tournament", "beasty", "queue", "random", "--games", "4"],
    ["exploit", "done", "--budget", "2048", "--games", "4"],
    ["report", "done", "--games", "4"],
    ["cluster", "check"],
]  # fmt: skip


def named(words: list[str]) -> str:
    return words[0]


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def with_ray(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> object:
        return (object() if installed else None) if name == "ray" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "lock")


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_without_ray(
        words: list[str], workdir: Path, refused: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    with_ray(monkeypatch, installed=False)
    if words[0] == "search":
        pytest.importorskip("optuna")
    before = names(workdir)
    assert "Ray is not installed" in refused(*words, "--cluster", "ray")
    assert names(workdir) == before


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_nothing_listens(
        words: list[str], workdir: Path, refused: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    with_ray(monkeypatch, installed=True)
    if words[0] == "search":
        pytest.importorskip("optuna")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
    before = names(workdir)
    assert "nothing listens there" in refused(*words, "--cluster", address)
    assert names(workdir) == before
