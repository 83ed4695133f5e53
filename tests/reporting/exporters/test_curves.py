"""Curves in TensorBoard and W&B: every number is read back; a run that trains is followed to its end."""

from __future__ import annotations

import json
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from support.fake_training import train_iteration
from support.patience import PATIENCE, wait_until

from rematch import curves
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.reporting.exporters import curves as module
from rematch.reporting.exporters import log_writers
from rematch.reporting.exporters.run_tail import RunTail
from rematch.reporting.exporters.scalars import evaluation_scalars, metric_scalars
from rematch.storage.run_folder import Run
from rematch.verbs.export import CopiedCurves

EVALUATION = {
    "iteration": 2, "step": 64, "gap": 0.2, "verdict": "balanced\x1b[2J but weak",
    "rates": {"pursuer": {"rate": 0.6, "low": 0.5, "high": 0.7, "games": 100}},
    "returns": {"pursuer": {"mean": 1.5, "low": None, "high": None, "games": 100}},
    "table": [{"role": "pursuer", "rival": "lion", "score": 0.4, "low": 0.3, "high": 0.5, "games": 100}],
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with three iterations and one evaluation."""
    folder = tmp_path / "mine"
    with Run.create(folder, "game: pursuit\nseed: 3\nppo:\n  lr: 0.001\n") as run:
        for i in range(1, 4):
            run.log({"iteration": i, "step": 32 * i, "games": 7, "pursuer/kl": i / 8, "text": "no number"})
        run.append_history(EVALUATION)
    return folder


def read_events(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, str]]:
    """name -> (step, value) of all scalars, and name -> text, through TensorBoard's own reader."""
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    scalars: dict[str, list[tuple[int, float]]] = {}
    texts = {}
    for path in folder.glob("events*"):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.tensor.string_val:
                    texts[value.tag] = value.tensor.string_val[0].decode()
                else:
                    number = value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value
                    scalars.setdefault(value.tag, []).append((event.step, number))
    return scalars, texts


def test_every_number_is_in_the_event_file(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    result = curves(run, "tensorboard", out=tmp_path / "out")
    assert (result.iterations, result.evaluations) == (3, 1)
    assert result.show == f"tensorboard --logdir {tmp_path / 'out'}"
    scalars, texts = read_events(tmp_path / "out" / "mine")
    assert scalars["pursuer/kl"] == [(32, 0.125), (64, 0.25), (96, 0.375)]
    assert scalars["run/games"][0] == (32, 7.0) and "run/text" not in scalars
    assert scalars["evaluation/pursuer/win_rate"][0] == (64, pytest.approx(0.6))
    assert scalars["evaluation/pursuer against lion/high"][0] == (64, pytest.approx(0.5))
    assert "evaluation/pursuer/return_low" not in scalars
    assert "but weak" in texts["verdict"] and "\x1b" not in texts["verdict"]
    assert "ppo.lr: 0.001" in texts["settings"]
    curves(run, "tensorboard", out=tmp_path / "out")  # replaces its own file
    assert len(list((tmp_path / "out" / "mine").iterdir())) == 1
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_damaged_lines_are_counted(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join([lines[0], '{"iteration": "x"\n', *lines[2:]]))
    tail = RunTail(run)
    assert len(tail.metrics()) == 2 and tail.damaged == 1
    text = str(CopiedCurves(2, 1, "show it", tail.damaged))
    assert text.startswith("PROBLEM: 1 line of metrics.jsonl could not be read\n2 iterations and 1 eval")


def test_foreign_event_files_stay(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    foreign = tmp_path / "out/mine/events.out.tfevents.1.other"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"x")
    curves(run, "tensorboard", out=tmp_path / "out")
    assert foreign.read_bytes() == b"x"


class Recorder:
    """A writer that stores what it receives."""

    def __init__(self, *_: Any) -> None:
        self.steps: list[int] = []
        self.texts: list[str] = []

    def scalars(self, step: int, values: Any) -> None:
        self.steps.append(step)

    def text(self, step: int, name: str, text: str) -> None:
        self.texts.append(text)

    def flush(self) -> None: ...

    def close(self) -> str:
        return "show"


def test_run_that_trains_is_followed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    recorder = Recorder()
    monkeypatch.setattr(log_writers, "WRITERS", {"tensorboard": lambda *_: recorder})
    run = Run.create(tmp_path / "live", "game: pursuit\n")
    train_iteration(run, 1)
    results: list[Any] = []

    def copy() -> None:
        results.append(curves(tmp_path / "live", "tensorboard", live=True))

    thread = threading.Thread(target=copy)
    thread.start()
    for i in range(2, 30):
        train_iteration(run, i)
    assert thread.is_alive()
    run.close()
    thread.join(PATIENCE)
    assert results[0].iterations == 29 and results[0].evaluations == 15
    assert sorted(set(recorder.steps)) == list(range(1, 30)) and len(recorder.texts) == 15


@pytest.mark.parametrize("tool", ["tensorboard", "wandb"])
def test_tool_itself_follows_a_run_that_trains(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a run are in the tool's own file while the run trains; W&B writes blocks of 32 KiB."""
    pytest.importorskip(tool, reason=f"pip install {tool}")
    rows = 4 if tool == "tensorboard" else 600
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run, results = Run.create(tmp_path / "live", "game: pursuit\n"), list[Any]()

    def log(iteration: int) -> None:
        run.log({"iteration": iteration, "step": 32 * iteration, "pursuer/kl": iteration / 8})

    def steps() -> list[int]:
        if tool == "tensorboard":
            scalars = read_events(tmp_path / "out" / "live")[0]
            return [step for step, _ in scalars.get("pursuer/kl", [])]
        logged = [row for file in (tmp_path / "out").rglob("*.wandb") for row in wandb_rows(file)]
        return sorted({row["step"] for row in logged if "pursuer/kl" in row})

    log(1)
    thread = threading.Thread(
        target=lambda: results.append(curves(tmp_path / "live", tool, out=tmp_path / "out", live=True)))
    thread.start()
    for iteration in range(2, rows + 1):
        log(iteration)
    wait_until(lambda: len(steps()) >= 2)
    before_the_end = thread.is_alive(), steps()
    log(rows + 1)
    run.close()
    thread.join(PATIENCE)
    assert before_the_end[0] and before_the_end[1][:2] == [32, 64]
    assert results[0].iterations == rows + 1 and steps() == [32 * i for i in range(1, rows + 2)]


def test_hostile_rows_give_finite_scalars_with_plain_names() -> None:
    row = {"a/\x1b]0;x\x07b": 1.0, "nan/x": float("nan"), "big/x": 10**400, "flag/x": True, "y" * 500: 2}
    scalars = metric_scalars({key: value for key, value in row.items() if key != "big/x"})
    assert all("\x1b" not in name and len(name) <= 200 for name in scalars) and len(scalars) == 2
    for bad in ({"rates": 3, "returns": [1], "table": {"a": 1}}, {"rates": {"a": 1}, "table": [1, {}]}):
        assert evaluation_scalars(bad) == {}


def test_wandb_offline(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="pip install wandb")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    result = curves(run, "wandb", out=tmp_path / "out")
    assert (result.iterations, result.evaluations) == (3, 1)
    folder = Path(result.show.removeprefix("wandb sync "))
    assert folder.is_relative_to(tmp_path / "out") and folder.name.startswith("offline-run-")
    (file,) = folder.glob("*.wandb")
    rows = wandb_rows(file)
    assert [row["pursuer/kl"] for row in rows if "pursuer/kl" in row] == [0.125, 0.25, 0.375]
    assert [row["step"] for row in rows if "evaluation/pursuer/win_rate" in row] == [64]
    stored = records(file)
    assert not any(record.run.host for record in stored if record.HasField("run"))
    assert not any(record.HasField("output") or record.HasField("stats") for record in stored)


def wandb_rows(file: Path) -> list[dict[str, Any]]:
    """The logged rows of an offline run."""
    rows = []
    for record in records(file):
        if record.HasField("history"):
            named = [(item.key or "/".join(item.nested_key), item) for item in record.history.item]
            rows.append({name: json.loads(item.value_json) for name, item in named})
    return rows


def records(file: Path) -> list[Any]:
    """The records of an offline run, in LevelDB's log format after 7 bytes of the file."""
    from wandb.proto import wandb_internal_pb2

    raw, at, data, out = file.read_bytes(), 7, b"", []
    while at + 7 <= len(raw):
        if 32768 - at % 32768 < 7:  # the rest of a block is empty
            at += 32768 - at % 32768
        _, size, kind = struct.unpack_from("<IHB", raw, at)
        data += raw[at + 7 : at + 7 + size]
        at += 7 + size
        if kind not in (1, 4):  # whole, last part
            continue
        out.append(wandb_internal_pb2.Record.FromString(data))
        data = b""
    return out


def test_refused_commands(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for words, line in (
        (["curves", str(run)], "needs --to tensorboard or --to wandb"),
        (["curves", str(run), "--to", "csv"], "--to = 'csv': expected one of tensorboard, wandb"),
        (["curves", "none", "--to", "tensorboard"], "none"),
        (["curves", str(run), "--to", "tensorboard", "--out", "file"], "expected a folder"),
    ):
        assert main.main(words) == 2
        assert line in capsys.readouterr().err
    monkeypatch.setattr(log_writers.importlib.util, "find_spec", lambda name: None)
    for tool in ("tensorboard", "wandb"):
        with pytest.raises(ConfigError, match=f"--to {tool}: {tool} is not installed: "):
            curves(run, tool, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()
