"""tools/checks/gpu_documents.py: a training in several commands, on the processor and small."""

from __future__ import annotations

from pathlib import Path

import gpu_documents
import pytest

SMALL = ["--device", "cpu", "--games", "8", "--total_steps", str(840 * 8 * 24), "--exploiters.every", "0",
         "--network.width", "16", "--network.heads", "2", "--network.layers", "1", "--evaluation.games", "2",
         "--evaluation.opponents", "random", "--evaluation.every", "120", "--ppo.minibatch_size", "256",
         "--ppo.epochs", "1", "--threads", "1"]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gpu_documents, "FOLDER", tmp_path / "documents")
    monkeypatch.setattr(gpu_documents, "START", tmp_path / "start")
    monkeypatch.setattr(gpu_documents, "SETTINGS", SMALL)
    return tmp_path / "documents"


def test_first_command_starts_and_the_next_ones_continue(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = gpu_documents.command(folder, 9.0)
    assert first[3:5] == ["train", "iter600_to_1000"] and "--from" not in first
    start = gpu_documents.command(gpu_documents.START, 9.0)
    assert start[-6:-4] == ["--total_steps", str(600 * 8192 * 24)] and "--start_iteration" in start
    with monkeypatch.context() as patched:
        patched.setattr(gpu_documents, "is_complete", lambda place: place == gpu_documents.START)
        from_start = gpu_documents.command(folder, 9.0)
    assert from_start[-6:-4] == ["--from", str(gpu_documents.START)]
    folder.mkdir()
    (folder / "config.yaml").touch()
    expected = ["resume", str(folder), "--max-minutes", "9.00"]
    assert gpu_documents.command(folder, 9.0)[3:] == expected


def test_every_opponent_of_the_table_is_a_part() -> None:
    assert len([name for name in gpu_documents.PARTS if name.startswith("table, ")]) == 10
    continued = {name for name, measure in gpu_documents.PARTS.items() if hasattr(measure, "continues")}
    assert continued == {"iterations 600 to 1000", "one exploiter"}


@pytest.mark.slow
def test_training_ends_after_several_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_documents, "GAMES", 4)
    assert gpu_documents.table("random") == {"complete": False}
    first = gpu_documents.train(0.2)  # ends while Python starts, or a few iterations later
    assert not first["complete"] and len(first["commands"]) == 1
    last = gpu_documents.train(900.0)
    assert last["complete"] and last["iterations"] == 240 and last["evaluations"] == 2
    begin, end = last["commands"]
    assert begin["from"] == 0 and end["to"] == 840 and last["start"] == "random weights"
    assert begin["to"] == end["from"] < 840  # the second command continues where the first one ended
    assert last["seconds"] == pytest.approx(sum(row["seconds"] for row in last["commands"]))
    assert last["seconds_of_iterations"] < last["seconds"]
    (row,) = gpu_documents.table("heuristic")["table"]
    assert row["rival"] == "heuristic" and row["games"] == 4
