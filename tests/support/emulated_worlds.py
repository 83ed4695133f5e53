"""Games on the GPU without a GPU: tensors of the CPU and emulated kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import Tensor

from rematch.agents.learners.gradient_step import minibatch_kernels
from rematch.agents.networks import history_encoders, mlp
from rematch.agents.networks.few_rows import dense_acting
from rematch.core.system import cuda
from rematch.rollout import cuda_collector, cuda_play, cuda_rollout
from rematch.worlds import cuda_world
from rematch.worlds.beasty import cuda_search
from support.cuda_emulation import library_of

HERE = Path(__file__).parent
SOURCES = {"search.cu": "search_on_cpu.cpp"}


@cache
def _library(source: str, include: tuple[Path, ...], text: str) -> ctypes.CDLL:
    with TemporaryDirectory() as folder:
        before = Path(folder) / "before.h"
        before.write_text(text + "\n")
        folders = [f"-I{path}" for path in (*include, HERE)]
        return library_of(HERE / source, ["-ffp-contract=off", "-include", str(before), *folders])


class Launcher:
    """Calls the kernels of a compiled library as a CUDA program's."""

    library: ctypes.CDLL

    def kernel(self, name: str, shared_bytes: int = 0) -> Callable[..., None]:
        function = getattr(self.library, f"run_{name}")

        def launch(grid: tuple[int, int], block: int, *arguments: Tensor | int) -> None:
            values = [a if isinstance(a, int) else ctypes.c_void_p(a.data_ptr()) for a in arguments]
            function(*grid, block, *values)

        return launch


class EmulatedProgram(Launcher):
    """A world's CUDA program, compiled for the CPU; see core.system.cuda.Program."""

    def __init__(
        self, file: Path, macros: Mapping[str, int | str], *, include: Sequence[Path] = (), text: str = "",
        exact: bool = False,
    ) -> None:  # fmt: skip
        assert exact and not macros
        source = SOURCES.get(file.name, "world_on_cpu.cpp")
        self.library = _library(source, tuple(include), text)


class EmulatedFile(Launcher):
    """The kernels of a file without macros: minibatch.cu, dense.cu."""

    def __init__(self, file: Path, macros: Mapping[str, int | str]) -> None:
        self.library = _library_of_file(file)


@cache
def _library_of_file(file: Path) -> ctypes.CDLL:
    return library_of(HERE / f"{file.stem}_on_cpu.cpp", [f"-I{file.parent}", f"-I{HERE}"])


class Replayed:
    """Stands for a CUDA graph: plays again what was recorded."""

    def __init__(self, replay: Callable[[], None]) -> None:
        self.replay = replay


def call_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def lstm_of_the_gpu(w: mlp.Weights, directions: tuple[str, ...], history: Tensor) -> Tensor:
    return torch.cat([history_encoders.lstm_steps(w, each, history) for each in directions], -1)


@pytest.fixture
def emulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors "on the GPU" lie in the memory of the CPU; one thread adds gradients in a fixed order."""
    torch.set_num_threads(1)
    monkeypatch.setattr(cuda, "pinned", lambda tensor: tensor.clone())
    monkeypatch.setattr(cuda, "wait_for_stream", lambda: None)
    for module in (cuda_world, cuda_rollout, cuda_collector, cuda_play):
        monkeypatch.setattr(module, "DEVICE", torch.device("cpu"))
    for module in (cuda_world, cuda_search):
        monkeypatch.setattr(module, "Program", EmulatedProgram)
    for module in (minibatch_kernels, dense_acting):
        monkeypatch.setattr(module, "Program", EmulatedFile)
        module.program.cache_clear()
    monkeypatch.setattr(dense_acting, "LANES", 1)
    monkeypatch.setattr(history_encoders, "lstm_outputs", lstm_of_the_gpu)
    monkeypatch.setattr(cuda, "record_graph", Replayed)
    monkeypatch.setattr(cuda, "side_by_side", call_all)
    monkeypatch.setattr(cuda, "no_gpu", lambda: "")
