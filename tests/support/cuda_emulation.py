"""The CUDA kernels of a network, compiled for the CPU (cuda_on_cpu.h)."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rematch.agents.networks import cuda_network as networks
from rematch.agents.networks.config import NetworkConfig
from rematch.core.spec import Role

HERE = Path(__file__).parent


def library_of(source: Path, options: Sequence[str]) -> ctypes.CDLL:
    """A source file as a library; the loaded library outlives its file."""
    with TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.so"
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w", *options]
        subprocess.run([*command, str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


def compiled(macros: Mapping[str, int | str]) -> ctypes.CDLL:
    """The kernels of one network as a library for the CPU."""
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    return library_of(HERE / "network_on_cpu.cpp", [f"-I{networks.FOLDER}", f"-I{HERE}", *defines])


class EmulatedKernels:
    """Launches the kernels; arguments are arrays and numbers by the names of the structs."""

    def __init__(self, role: Role, config: NetworkConfig) -> None:
        self.library = compiled(networks.macros(role, config))

    def shared_bytes(self, kind: int) -> int:
        """Of a block of act (0), update (1) and the kernels of select.h (2)."""
        return int(self.library.shared_bytes(kind))

    def pack(self, weights: Any) -> Any:
        """The packed form of weights [networks, size]."""
        count = len(weights)
        packed = np.zeros((count, self.library.weight_bytes()), np.uint8)
        self.library.run_pack(1, count, 64, _pointer(weights), _pointer(packed))
        return packed

    def act(self, values: dict[str, Any], blocks: int, step: int = 0, only_values: bool = False) -> None:
        first_step = np.array([step], np.int64)
        arguments = _struct(networks.ACT, values | {"first_step": first_step, "learner": values["weights"]})
        self.library.run_act(blocks, 1, 256, _pointer(arguments), 0, int(only_values))

    def advantages(self, values: dict[str, Any], rows: int) -> None:
        self.library.run_advantages(-(-rows // 64), 1, 64, _pointer(_struct(networks.ADVANTAGES, values)))

    def select(self, values: dict[str, Any]) -> None:
        """The rows to learn from and the scaling of their advantages."""
        blocks = -(-values["capacity"] // networks.SELECT_ROWS)
        arguments = _struct(networks.UPDATE, values | {"active": 1})
        for name, x in (("count_rows", blocks), ("scan_rows", 1), ("list_rows_to_learn", blocks),
                        ("scale_rows", 1)):  # fmt: skip
            getattr(self.library, f"run_{name}")(x, 1, 256, _pointer(arguments))

    def update(self, values: dict[str, Any], blocks: int) -> None:
        arguments = _struct(networks.UPDATE, {"active": 1} | values)
        self.library.run_shuffle(blocks, 1, 64, _pointer(arguments))
        self.library.run_update(blocks, 1, 512, _pointer(arguments))
        self.library.run_finish(2, 1, 256, _pointer(arguments))


def _struct(kind: Any, values: dict[str, Any]) -> Any:
    """One C struct: addresses of arrays, and numbers."""
    out = np.zeros(1, kind)
    for name, value in values.items():
        out[name] = value.ctypes.data if isinstance(value, np.ndarray) else value
    return out


def _pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
