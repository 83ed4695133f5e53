"""Seeds that train together on a GPU: every folder has the bytes of a run that trains alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.emulated_training import TINY, emulated_gpu, emulated_training

from rematch.rehearsal.compare import differences
from rematch.verbs.on_gpu import together

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation")
__all__ = ["emulated_gpu", "emulated_training"]


def flags(**changes: Any) -> list[str]:
    return ["pursuit", *(f"--{key}={value}" for key, value in (TINY | changes).items())]


@pytest.mark.slow
def test_a_run_has_the_same_bytes_alone_and_beside_others(tmp_path: Path, emulated_training: None) -> None:
    seeds = {tmp_path / f"together-{seed}": flags(seed=seed) for seed in range(3)}
    together.train_together(seeds)
    for seed in (0, 2):
        alone = tmp_path / f"alone-{seed}"
        together.train_together({alone: flags(seed=seed)})
        assert differences(tmp_path / f"together-{seed}", alone) == []


@pytest.mark.parametrize(("error", "line"), [
    (torch.OutOfMemoryError("CUDA out of memory."),
     "rematch: 2 runs at once need more memory than the GPU has; expected fewer seeds"),
    (torch.AcceleratorError("CUDA error: unspecified launch failure\nmore"),
     "rematch: the GPU failed: CUDA error: unspecified launch failure; what was saved is intact"),
])  # fmt: skip
def test_a_card_that_fails_is_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failed(*_: Any) -> None:
        raise error

    monkeypatch.setattr(together, "train_together", failed)
    assert together.main(["", '{"a": ["pursuit"], "b": ["pursuit"]}']) == 2
    (output,) = capsys.readouterr().out.splitlines()
    assert output.startswith(line)
