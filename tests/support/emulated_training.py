"""Whole trainings "on the GPU" without a GPU: the kernels of worlds and networks run in an emulation."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rematch.agents.learners import cuda_ppo, cuda_update
from rematch.agents.networks import cuda_acting
from rematch.core.system import cuda
from rematch.evaluation.cuda import matches as cuda_matches
from support import cuda_emulation
from support.emulated_worlds import Replayed, emulated_gpu

__all__ = ["emulated_gpu"]
HERE = Path(__file__).parent
MULTIPROCESSORS = 4
# Small enough for the emulation, with everything that a run on a GPU can have.
TINY: dict[str, Any] = {
    "device": "cuda", "threads": 1, "games": 24, "steps": 4, "total_steps": 6 * 24 * 4, "save_every": 2,
    "stagger": 4, "world.max_steps": 9, "network.hidden": "64,64", "network.fourier": 0,
    "ppo.minibatch_size": 64, "ppo.epochs": 1, "ppo.magnet_weight": 0.1, "ppo.average_fraction": 0.5,
    "league.opponent_share": 0.6, "league.snapshot_every": 2, "league.size": 2, "league.slots": 2,
    "league.rotate": 1, "league.bots": "lion,flee_straight", "evaluation.every": 3, "evaluation.games": 5,
    "evaluation.opponents": "random,lion,flee_straight",
}  # fmt: skip


class EmulatedNetworkProgram:
    """The CUDA program of one network, compiled for the CPU; see core.system.cuda.Program."""

    def __init__(self, file: Path, macros: Mapping[str, int | str]) -> None:
        self.library = _library(tuple(sorted(macros.items())))

    def kernel(self, name: str, shared_bytes: int = 0, cooperative: bool = False) -> Callable[..., None]:
        function = getattr(self.library, f"run_{name}")

        def launch(grid: tuple[int, int], block: int, *arguments: Tensor | int) -> None:
            values = [a if isinstance(a, int) else ctypes.c_void_p(a.data_ptr()) for a in arguments]
            function(*grid, block, *values)

        return launch


class EmulatedMatchProgram(EmulatedNetworkProgram):
    """The kernels of evaluation/cuda/matches.cu."""

    def __init__(self, file: Path, macros: Mapping[str, int | str], include: Any) -> None:
        self.library = _match_library(file, tuple(include))


@cache
def _match_library(file: Path, include: tuple[Path, ...]) -> ctypes.CDLL:
    folders = [file.parent, *include, HERE]
    return cuda_emulation.library_of(HERE / "matches_on_cpu.cpp", [f"-I{folder}" for folder in folders])


@cache
def _library(macros: tuple[tuple[str, int], ...]) -> ctypes.CDLL:
    return cuda_emulation.compiled(dict(macros))


class NoStream:
    """Stands for a stream: everything has been computed when a launch returns."""

    def wait_stream(self, other: Any) -> None: ...

    def synchronize(self) -> None: ...


@contextmanager
def same_stream(stream: Any) -> Iterator[None]:
    yield


def replayed(play: Callable[[], None], stream: Any = None) -> Replayed:
    return Replayed(play)


@pytest.fixture
def emulated_training(monkeypatch: pytest.MonkeyPatch, emulated_gpu: None) -> None:
    """`device cuda` trains in the emulation."""
    for module in (cuda_ppo, cuda_update, cuda_acting, cuda_matches):
        monkeypatch.setattr(module, "DEVICE", torch.device("cpu"))
    cuda_acting._program.cache_clear()
    cuda_matches._shared.clear()
    monkeypatch.setattr(cuda_acting, "Program", EmulatedNetworkProgram)
    for name, value in {
        "no_gpu": lambda: "", "new_stream": NoStream, "on_stream": same_stream, "synchronize": lambda: None,
        "multiprocessors": lambda: MULTIPROCESSORS, "pinned": lambda tensor: tensor.clone(),
        "record_graph": replayed, "Program": EmulatedMatchProgram,
    }.items():  # fmt: skip
        monkeypatch.setattr(cuda, name, value)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "emulated")
