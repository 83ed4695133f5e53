"""The CUDA kernels of a network, compiled for the CPU (cuda_on_cpu.h)."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rematch.agents.networks import cuda_network as networks
from rematch.agents.networks.config import NetworkConfig
from rematch.core.spec import Role

HERE = Path(__file__).parent
LIBRARIES = HERE.parents[1] / "build/emulated_kernels"
FLAGS = ("-std=c++17", "-O1", "-shared", "-fPIC", "-w")


@cache
def compiler_version() -> bytes:
    return subprocess.run(["g++", "--version"], check=True, capture_output=True).stdout


def library_of(source: Path, options: Sequence[str]) -> ctypes.CDLL:
    """A source file as a library. Equal sources are compiled once: files are named after their content."""
    command = ["g++", *FLAGS, *options, str(source)]
    text = subprocess.run([*command, "-E", "-P"], check=True, capture_output=True).stdout
    # Folders, macros and included files are in the text.
    flags = [*FLAGS, *(option for option in options if option.startswith("-f"))]
    content = b"\0".join([compiler_version(), " ".join(flags).encode(), text])
    library = LIBRARIES / f"{hashlib.sha256(content).hexdigest()[:32]}.so"
    if not library.exists():
        LIBRARIES.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=LIBRARIES) as folder:
            made = Path(folder) / "kernels.so"
            subprocess.run([*command, "-o", str(made)], check=True)
            made.rename(library)
    return ctypes.CDLL(str(library))


def compiled(macros: Mapping[str, int | str]) -> ctypes.CDLL:
    """The kernels of one network as a library for the CPU."""
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    return library_of(HERE / "network_on_cpu.cpp", [f"-I{networks.FOLDER}", f"-I{HERE}", *defines])


class EmulatedKernels:
    """Launches the kernels; arguments are arrays and numbers by the names of the structs."""

    def __init__(self, role: Role, config: NetworkConfig) -> None:
        macros = networks.macros(role, config)
        self.library, self.threads = compiled(macros), 256 if macros["WARPGROUPS"] else 512

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
        more = {"first_step": first_step, "learner": values["weights"], "learner_range": 128}
        arguments = _struct(networks.ACT, values | more)
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
        self.library.run_update(blocks, 1, self.threads, _pointer(arguments))
        self.library.run_finish(networks.ROW_STATS, 1, 256, _pointer(arguments))


def _struct(kind: Any, values: dict[str, Any]) -> Any:
    """One C struct: addresses of arrays, and numbers."""
    out = np.zeros(1, kind)
    for name, value in values.items():
        out[name] = value.ctypes.data if isinstance(value, np.ndarray) else value
    return out


def _pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
