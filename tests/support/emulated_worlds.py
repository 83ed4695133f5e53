"""Games on the GPU without a GPU: tensors of the CPU and emulated kernels."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import Tensor

from rematch.core.system import cuda
from rematch.rollout import cuda_collector, cuda_play, cuda_rollout
from rematch.worlds import cuda_world

HERE = Path(__file__).parent


class EmulatedProgram:
    """A world's CUDA program, compiled for the CPU; see core.system.cuda.Program."""

    def __init__(
        self, file: Path, macros: Mapping[str, int | str], *, include: Sequence[Path] = (), text: str = "",
        exact: bool = False,
    ) -> None:  # fmt: skip
        assert exact and not macros
        with TemporaryDirectory() as folder:
            library, before = Path(folder) / "kernels.so", Path(folder) / "before.h"
            before.write_text(text + "\n")
            command = ["g++", "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-w"]
            folders = [f"-I{path}" for path in (*include, HERE)]
            source = str(HERE / "world_on_cpu.cpp")
            subprocess.run(
                [*command, "-include", str(before), *folders, source, "-o", str(library)], check=True
            )
            self.library = ctypes.CDLL(str(library))

    def kernel(self, name: str) -> Callable[..., None]:
        function = getattr(self.library, f"run_{name}")

        def launch(grid: tuple[int, int], block: int, *arguments: Tensor | int) -> None:
            values = [a if isinstance(a, int) else ctypes.c_void_p(a.data_ptr()) for a in arguments]
            function(*grid, block, *values)

        return launch


class Replayed:
    """Stands for a CUDA graph: plays again what was recorded."""

    def __init__(self, replay: Callable[[], None]) -> None:
        self.replay = replay


def call_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


@pytest.fixture
def emulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors "on the GPU" lie in the memory of the CPU; one thread adds gradients in a fixed order."""
    torch.set_num_threads(1)
    monkeypatch.setattr(cuda, "pinned", lambda tensor: tensor.clone())
    monkeypatch.setattr(cuda, "wait_for_stream", lambda: None)
    for module in (cuda_world, cuda_rollout, cuda_collector, cuda_play):
        monkeypatch.setattr(module, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(cuda_world, "Program", EmulatedProgram)
    monkeypatch.setattr(cuda, "record_graph", Replayed)
    monkeypatch.setattr(cuda, "side_by_side", call_all)
    monkeypatch.setattr(cuda, "no_gpu", lambda: "")
