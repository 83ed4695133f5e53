"""The CUDA kernels of a network, compiled for the CPU (cuda_on_cpu.h)."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from rematch.agents.networks import cuda_network as networks
from rematch.agents.networks.config import NetworkConfig
from rematch.core.spec import Role

HERE = Path(__file__).parent


class EmulatedKernels:
    """Launches the kernels; arguments are arrays and numbers by the names of the structs."""

    def __init__(self, role: Role, config: NetworkConfig, folder: Path) -> None:
        defines = [f"-D{name}={value}" for name, value in networks.macros(role, config).items()]
        library = folder / "kernels.so"
        subprocess.run(
            [
                "g++",
                "-std=c++17",
                "-O1",
                "-shared",
                "-fPIC",
                "-w",
                f"-I{networks.FOLDER}",
                f"-I{HERE}",
                *defines,
                str(HERE / "network_on_cpu.cpp"),
                "-o",
                str(library),
            ],
            check=True,
        )
        self.library = ctypes.CDLL(str(library))

    def shared_bytes(self, learning: bool) -> int:
        return int(self.library.shared_bytes(int(learning)))

    def pack(self, weights: Any) -> Any:
        """The packed form of weights [networks, size]."""
        count = len(weights)
        packed = np.zeros((count, self.library.weight_bytes()), np.uint8)
        self.library.run_pack(_pointer(weights), _pointer(packed), count)
        return packed

    def act(self, values: dict[str, Any], blocks: int, step: int = 0, only_values: bool = False) -> None:
        first_step = np.array([step], np.int64)
        arguments = _struct(networks.ACT, values)
        self.library.run_act(_pointer(arguments), blocks, 0, _pointer(first_step), int(only_values))

    def advantages(self, values: dict[str, Any], rows: int) -> None:
        self.library.run_advantages(_pointer(_struct(networks.ADVANTAGES, values)), -(-rows // 64))

    def update(self, values: dict[str, Any], blocks: int) -> None:
        self.library.run_update(_pointer(_struct(networks.UPDATE, values)), blocks)


def _struct(kind: Any, values: dict[str, Any]) -> Any:
    """One C struct: addresses of arrays, and numbers."""
    out = np.zeros(1, kind)
    for name, value in values.items():
        out[name] = value.ctypes.data if isinstance(value, np.ndarray) else value
    return out


def _pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
