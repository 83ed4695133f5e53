"""Messages of a run folder: alarms with causes, failures, damaged folders; each one once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.tiny_run import SMALL

from rematch import api
from rematch.core import config as settings
from rematch.reporting.exporters import notifications
from rematch.reporting.exporters.notifications import RunWatcher
from rematch.reporting.exporters.run_tail import LineReader, RunTail
from rematch.storage.run_folder import FAILED_EVENT, Run

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A run that is held by this process, without training."""
    changes = SMALL | {"evaluation.opponents": ("random",), "network.hidden": (8,)}
    config = settings.replace(api.default("pursuit"), changes)
    with Run.create(tmp_path / "mine", settings.to_yaml(config)) as run:
        yield run


def row(iteration: int, pursuer: float, verdict: str = "weak") -> dict[str, Any]:
    def rate(value: float) -> dict[str, Any]:
        return {"rate": value, "low": value, "high": value, "games": 10, "wins": int(value * 10), "draws": 0}

    rates = {"pursuer": rate(pursuer), "evader": rate(1 - pursuer)}
    return {"iteration": iteration, "step": iteration * 32, "rates": rates, "returns": {}, "table": [],
            "gap": abs(2 * pursuer - 1), "gap_low": 0.0, "gap_high": 1.0, "verdict": verdict}


def events(watcher: RunWatcher) -> list[str]:
    return [message.event for message in watcher.poll()]


def test_every_evaluation_and_alarm_is_reported_once(run: Run) -> None:
    watcher = RunWatcher(run.folder)
    assert events(watcher) == ["started"] and events(watcher) == []
    run.append_history(row(1, 0.9, "BALANCED\x1bBUT WEAK"))
    (message,) = watcher.poll()
    assert message.event == "evaluation" and message.values["verdict"] == "BALANCED BUT WEAK"
    run.append_history(row(2, 0.1))  # a swing of 0.8
    first, second = watcher.poll()
    assert (first.event, second.event) == ("evaluation", "alarm")
    assert second.values["kind"] == "swing" and "cause" in second.text
    run.append_history(row(3, 0.1))
    assert events(watcher) == ["evaluation"]


def test_evaluations_before_the_first_look_are_reported_unless_attached(run: Run) -> None:
    """Regression: a short run had its only evaluation before the first look, and it was not reported."""
    run.append_history(row(1, 0.5))
    assert events(RunWatcher(run.folder)) == ["started", "evaluation"]
    assert events(RunWatcher(run.folder, attached=True)) == ["started"]
    run.timing({"event": "stop", "why": "x", "iteration": 1, "time": 0.0})
    run.timing({"event": "resume", "iteration": 1, "time": 0.0})
    run.append_history(row(2, 0.5))
    first, second = RunWatcher(run.folder).poll()
    assert first.text == "the training continues at iteration 1" and second.values["iteration"] == 2


def test_run_of_a_sweep_is_named_with_its_sweep(run: Run) -> None:
    (run.folder.parent / "sweep.yaml").write_text("")
    (message,) = RunWatcher(run.folder).poll()
    assert message.run == f"{run.folder.parent.name}/mine"


def test_failure_is_death_with_its_cause(run: Run) -> None:
    watcher = RunWatcher(run.folder)
    assert events(watcher) == ["started"]
    run.timing({"event": FAILED_EVENT, "why": "the weights of pursuer are not finite", "iteration": 2,
                "time": 0.0})
    run.close()
    (message,) = watcher.poll()
    assert message.event == "died" and message.values["cause"] == "the weights of pursuer are not finite"
    assert watcher.ended


def test_watch_ends_with_the_run(run: Run) -> None:
    messages: list[str] = []
    steps = iter(range(100))

    def put(message: Any) -> None:
        messages.append(message.event)
        if message.event == "started":
            run.timing({"event": "stop", "why": "SIGTERM", "iteration": 0, "time": 0.0})
            run.close()

    assert notifications.watch(RunWatcher(run.folder), put, lambda: next(steps) > 50, seconds=0.01)
    assert messages == ["started", "stopped"]


def test_run_that_never_starts_is_abandoned(tmp_path: Path) -> None:
    assert not notifications.watch(RunWatcher(tmp_path / "none"), pytest.fail, lambda: True, seconds=0.01)


def test_damaged_files_are_no_error(run: Run) -> None:
    watcher = RunWatcher(run.folder)
    list(watcher.poll())
    (run.folder / "history.json").write_text("[" * 100_000)
    assert events(watcher) == []
    (run.folder / "history.json").write_text('[{"iteration": 1e99}, {"iteration": 4, "verdict": [1]}, 3]')
    assert events(watcher) == ["evaluation"]


def test_tail_returns_each_row_once_also_after_a_rewind(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = RunTail(tmp_path)
    assert tail.metrics() == [] and not tail.running and not tail.exists
    rows = [json.dumps({"iteration": i}) + "\n" for i in range(6)]
    path.write_text("".join(rows[:3]) + rows[3][:5])  # an incomplete line
    assert [row["iteration"] for row in tail.metrics()] == [0, 1, 2]
    path.write_text("".join(rows[:2]))  # a resume
    assert tail.metrics() == []
    path.write_text("".join(rows))
    assert [row["iteration"] for row in tail.metrics()] == [3, 4, 5]
    assert tail.metrics() == []


def test_line_reader_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"a": 1}\n')
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert LineReader(tmp_path / "link").rows() == []
    assert LineReader(tmp_path).rows() == []
