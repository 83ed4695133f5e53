"""tools/checks/gpu.py: its parts, and one line where there is no GPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import gpu
import gpu_runs
import pytest
import torch
from gpu_series import Series, parts_of
from support.emulated_training import TINY, emulated_gpu, emulated_training

from rematch.core.system import cuda

__all__ = ["emulated_gpu", "emulated_training"]
ROOT = Path(__file__).resolve().parents[2]


def test_every_check_is_documented() -> None:
    page = (ROOT / "docs/how_to/gpu.md").read_text()
    documented = re.findall(r"^    python tools/checks/gpu.py ((?:\w+ ?)+?)(?: {2,}|$)", page, re.M)
    words = {word for line in documented for word in line.split()}
    assert set(gpu.CHECKS) <= words | {"gradient", "sweep"}
    assert set(gpu.CHECKS) <= set((gpu.__doc__ or "").split())


def test_long_checks_have_parts() -> None:
    """Each can be measured by a command of its own."""
    parts = {name: [part.name for part in parts_of(name, measure)] for name, measure in gpu.CHECKS.items()}
    assert len(parts["kills"]) == 9 and parts["kills"][0] == "kernels 1"
    assert len(parts["sweep_kills"]) == 3 and len(parts["learn"]) == 3 and len(parts["networks"]) == 3
    assert len(parts["speed"]) == 8 and len(parts["seeds"]) == 5 and len(parts["strength"]) == 6
    assert gpu.KILLS * gpu.SERIES >= 20


def test_without_a_gpu_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda, "no_gpu", lambda: "PyTorch finds no NVIDIA GPU")
    assert gpu.main(["speed"]) == 2
    output = capsys.readouterr()
    assert output.err == "gpu.py: PyTorch finds no NVIDIA GPU\n" and output.out == ""


def test_sources_have_the_same_digest_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = gpu.sources()
    without = gpu.subprocess.CompletedProcess([], 128, "", "")
    monkeypatch.setattr(gpu.subprocess, "run", lambda *_, **__: without)
    assert gpu.sources() == digest


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation")
def test_checks_of_trainings_run_in_an_emulation(
    tmp_path: Path, emulated_training: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small sizes; the records, not the speed."""
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    small = {key: value for key, value in TINY.items() if key not in ("games", "steps", "ppo.minibatch_size")}
    words = [f"--{key}={value}" for key, value in TINY.items() if key != "device"]
    trainer, configure = gpu.trainer, gpu_runs.api.configure
    monkeypatch.setattr(gpu, "trainer", lambda changes: trainer(text_free(small) | changes))
    monkeypatch.setattr(gpu_runs.api, "configure",
                        lambda recipe, changes: configure(recipe, changes=text_free(small) | changes))
    monkeypatch.setattr(gpu_runs, "_compile", lambda: None)
    size = (24, 4, 64)
    parts = [*parts_of("speed", {"tiny": lambda: gpu._speed(*size)}),
             *parts_of("seeds", {"tiny": lambda: gpu_runs.seeds(size, 2, 2)}),
             *parts_of("strength", {"tiny": lambda: gpu_runs.strength(words)})]  # fmt: skip
    series = Series({"commit": "abc", "sources": "s", "card": "emulated"}, tmp_path / "gpu.jsonl")
    assert series.run(parts) == 0 and all(series.is_done(part) for part in parts)
    speed, seeds, strength = series.known()
    assert speed["learner_steps_per_second"] > 0 and "update" in speed["milliseconds"]
    assert seeds["learner_steps_per_second"] > 0
    first = strength["first_seed"]
    assert strength["pairings"] > 0 and len(first["below"]) == len(first["at_seconds"]) == 2
    assert first["below"][-1] == strength["below"][0]


def text_free(changes: dict[str, Any]) -> dict[str, Any]:
    """Lists instead of words with commas."""
    def parsed(value: Any) -> Any:
        words = value.split(",") if isinstance(value, str) else []
        return [int(word) if word.isdigit() else word for word in words] if len(words) > 1 else value

    return {key: parsed(value) for key, value in changes.items()}
