"""`rematch bench WORLD --device cuda` on an emulated GPU: the report, not the speed."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import pytest
from support.emulated_training import emulated_gpu, emulated_training

from rematch.bench import gpu_benchmark, rematch_subject
from rematch.bench.run import benchmark, lines
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.core.system import cuda

__all__ = ["emulated_gpu", "emulated_training"]
SMALL = {"games": 16, "steps": 4, "ppo.minibatch_size": 32, "ppo.epochs": 1, "stagger": 8,
         "world.max_steps": 8}  # fmt: skip
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, emulated_training: None) -> None:
    monkeypatch.setattr(rematch_subject, "PINNED", rematch_subject.PINNED | SMALL)
    monkeypatch.setattr(gpu_benchmark, "SIZES", ((16, 4, 32), (24, 4, 64)))
    monkeypatch.setattr(gpu_benchmark, "PEER_GAMES", (8,))
    monkeypatch.setattr(gpu_benchmark, "WANTED", {"pursuit": {32: (1.0, 2.0), 64: (1e12, 2e12)}})


@needs_compiler
@pytest.mark.slow
def test_report_has_both_libraries_targets_and_a_control(
    small: None, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("stable_baselines3")
    assert main.main(["bench", "pursuit", "--device", "cuda", "--json", "--seconds", "0.05"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["card"] == "emulated" and report["device"] == "cuda"
    rows = report["measurements"]
    assert [row["settings"]["batch"] for row in rows] == [32, 64, 32]
    assert "Stable-Baselines3" in rows[2]["name"]
    for row in rows:
        assert row["n"] >= 5 and 0 < row["min"] <= row["median"] <= row["max"]
    assert all(0.05 < row["settings"]["rivals_share"] < 0.3 for row in rows[:2])
    assert [entry["met"] for entry in report["targets"]][:2] == [True, False]
    ratio = report["targets"][2]
    assert ratio["value"] == pytest.approx(rows[0]["median"] / rows[2]["median"])
    learning = report["learning"]
    assert learning["control_weights_unchanged"] is True and len(learning["curve"]) == 3
    assert learning["curve"][2]["learner_steps"] > learning["curve"][0]["learner_steps"] > 0
    text = "\n".join(lines(report))
    assert "world pursuit; emulated, " in text and "PufferLib (not installed): not measured" in text


@needs_compiler
@pytest.mark.slow
def test_without_stable_baselines3_only_rematch_is_measured(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "rematch.bench.sb3_subject", raising=False)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    report = benchmark("pursuit", 0.05, "cuda").to_dict()
    assert len(report["measurements"]) == 2 and report["targets"][2]["met"] is None
    assert "only Rematch is measured" in report["peer"]["missing"]


def test_what_cannot_be_measured_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda, "no_gpu", lambda: "PyTorch finds no NVIDIA GPU")
    expected: dict[tuple[str, str], Any] = {
        ("pursuit", "cuda"): "device = cuda: PyTorch finds no NVIDIA GPU; expected cpu",
        ("beasty", "cuda"): "bench beasty --device cuda: this world is measured on the processor only",
        ("gameboy", "cuda"): "bench gameboy --device cuda: this world is measured on the processor only",
        ("pursuit", "auto"): "--device = 'auto': expected cpu or cuda",
    }
    for (world, device), line in expected.items():
        assert main.main(["bench", world, "--device", device]) == 2
        output = capsys.readouterr()
        assert line in output.err and output.out == "" and output.err.count("\n") == 1
        with pytest.raises(ConfigError):
            benchmark(world, 0.1, device)
