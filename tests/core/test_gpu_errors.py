"""Errors of the GPU are one line: in a training, in other commands, and nothing that was saved is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny_run import flags

from rematch import api
from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.core.system import cuda
from rematch.core.system.gpu_errors import GpuError, gpu_error, is_gpu_error
from rematch.rehearsal.compare import differences
from rematch.training import memory_estimate
from rematch.training.trainer import Trainer

FULL = ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which "
        "1.25 GiB is free. Process 12 has 138 GiB memory in use.")  # fmt: skip
LOST = "CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported at some"
ECC = "CUDA error: uncorrectable ECC error encountered"


def test_too_little_memory_names_what_is_needed_and_what_lowers_it() -> None:
    error = gpu_error(torch.OutOfMemoryError(FULL), needed=3 << 30)
    assert str(error) == (
        "the GPU has too little memory: rollouts, networks and past policies of this run take about 3.0 GiB, "
        "2.00 GiB more were needed, 1.25 GiB of 139.80 GiB were free; expected fewer games or steps, a "
        "smaller minibatch or network, or --device cpu"
    )
    for text in ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"):
        assert str(gpu_error(RuntimeError(text))).startswith("the GPU has too little memory; expected fewer")


@pytest.mark.parametrize("error", [torch.AcceleratorError(LOST), RuntimeError(ECC),
                                   type("CUDAError", (Exception,), {})("CUDA_ERROR_ECC_UNCORRECTABLE")])
def test_card_that_fails_is_one_line(error: Exception) -> None:
    assert is_gpu_error(error)
    line = str(gpu_error(error))
    assert line.startswith("the GPU failed: CUDA") and "\n" not in line and "rematch resume" in line


def test_other_errors_are_not_of_the_gpu() -> None:
    for error in (RuntimeError("shapes differ"), ValueError("CUDA error: x"), ConfigError("CUDA error: x")):
        assert not is_gpu_error(error)


def test_driver_that_is_too_old_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def old(*_: Any) -> int:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nUpdate it")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "device_count", old)
    assert cuda.no_gpu() == "The NVIDIA driver on your system is too old (found version 11040)."
    with pytest.raises(ConfigError, match=r"^device = cuda: The NVIDIA driver .*; expected cpu$"):
        api.configure("pursuit", changes={"device": "cuda"})


def failing(monkeypatch: pytest.MonkeyPatch, iteration: int, error: Exception) -> None:
    """The update of this iteration raises."""
    update = Trainer.update

    def raising(self: Trainer, rollout: Any) -> Any:
        if self.clock.iteration == iteration:
            raise error
        return update(self, rollout)

    monkeypatch.setattr(Trainer, "update", raising)


def test_training_whose_card_fails_keeps_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "pursuit", *flags(total_steps=6 * 8 * 8, games=8, steps=8, save_every=2)]
    assert main.main([*words, "--name", str(tmp_path / "whole")]) == 0
    capsys.readouterr()
    with monkeypatch.context() as patched:
        failing(patched, 5, torch.AcceleratorError(LOST))
        assert main.main([*words, "--name", str(tmp_path / "run")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "the GPU failed: CUDA error: unspecified launch failure; " in line]
    assert not any("Traceback" in line for line in lines)
    assert (tmp_path / "run/checkpoints/iter_00000004").exists()
    assert main.main(["resume", str(tmp_path / "run")]) == 0
    assert differences(tmp_path / "whole", tmp_path / "run") == []


def test_training_that_needs_too_much_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = api.configure("pursuit", changes={"games": 8, "steps": 8})
    monkeypatch.setattr(memory_estimate, "component_bytes", lambda config: {"rollout": 5 << 30})
    failing(monkeypatch, 0, torch.OutOfMemoryError(FULL))
    with pytest.raises(GpuError, match=r"take about 5.0 GiB, 2.00 GiB more were needed"):
        api.train(config, folder=tmp_path / "run")


def test_other_commands_print_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failed(words: Any) -> int:
        raise torch.OutOfMemoryError(FULL)

    assert main.run_safely([], failed) == 2
    output = capsys.readouterr()
    assert output.err.startswith("rematch: the GPU has too little memory: 2.00 GiB more") and not output.out
    assert json.dumps(output.err).count("\\n") == 1
