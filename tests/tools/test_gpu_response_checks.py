"""tools/checks/gpu_responses.py: agents are trained once, responses are continued, lines are recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import best_responses
import gpu_responses
import pytest


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands; a training makes its folder, the second search its lines."""
    commands: list[list[str]] = []
    now = [0.0]

    def run(words: list[str], log: Path, seconds: float) -> int | None:
        commands.append(words)
        times.append(seconds)
        if words[3] == "train":
            now[0] += 40.0
            folder = Path(words[words.index("--name") + 1])
            folder.mkdir()
            (folder / "report.html").touch()
            return 0
        if len(commands) < 3:
            return None  # the time is over
        lines = Path(words[words.index("--results") + 1])
        lines.write_text(json.dumps({"game": words[3], "role": "pursuer"}) + "\n")
        return 1  # a criterion is missed

    monkeypatch.setattr(gpu_responses, "FOLDER", tmp_path)
    monkeypatch.setattr(gpu_responses, "run", run)
    monkeypatch.setattr(gpu_responses, "time", SimpleNamespace(monotonic=lambda: now[0]))
    times.clear()
    return commands


times: list[float] = []  # seconds of the commands


def test_a_search_is_continued_and_its_lines_are_in_the_record(started: list[list[str]]) -> None:
    measure = gpu_responses.PARTS["pursuit, seed 2"]
    assert measure.continues  # type: ignore[attr-defined]
    assert measure(100.0) == {"complete": False, "lines": []}
    assert measure(100.0) == {"complete": True, "lines": [{"game": "pursuit", "role": "pursuer"}]}
    assert [words[3] for words in started] == ["train", "pursuit", "pursuit"]
    assert started[0][started[0].index("--seed") + 1] == "2"
    assert started[1] == started[2] and "--budget" in started[1]
    assert times == [100.0, 60.0, 100.0], "the search gets what the training has left"


def test_command_that_fails_is_named_with_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_responses, "FOLDER", tmp_path)
    monkeypatch.setattr(gpu_responses, "TRAIN", [sys.executable, "-c", "import sys; sys.exit('no card')"])
    with pytest.raises(SystemExit, match="exit code 1: no card"):
        gpu_responses.PARTS["beasty"](100.0)


def test_command_ends_with_its_time(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert gpu_responses.run(words, tmp_path / "log", 0.0) is None


def test_lines_of_records_are_added(tmp_path: Path) -> None:
    records, lines = tmp_path / "gpu.jsonl", tmp_path / "lines.jsonl"
    line = {"game": "beasty", "seed": 0, "role": "player", "budget": 1, "responses": 3}
    records.write_text("\n".join(json.dumps(record) for record in (
        {"check": "kills", "lines": ["7 kills, 0 differences"]}, {"check": "world"},
        {"check": "responses", "part": "beasty", "lines": [line]})))  # fmt: skip
    assert best_responses.main(["add", str(records), "--results", str(lines)]) == 0
    assert best_responses.load_lines(lines) == [line]
