"""The GPU: whether there is one, programs that are compiled at run time, launches of their kernels.

Programs are compiled by NVRTC through cuda-core and kept in the user's cache folder, under a digest of their
sources, options, compiler and card. Imports torch and cuda-core only where a GPU is asked for.
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rematch.core.errors import ConfigError, NotInstalled

if TYPE_CHECKING:
    from torch import Tensor

INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def no_gpu() -> str:
    """Why this process cannot use a GPU; empty if it can."""
    import torch

    if torch.version.cuda is None:
        return "this PyTorch was built without CUDA"
    try:
        count = torch.cuda.device_count()
        if count:
            torch.cuda.get_device_properties(0)
    except RuntimeError as error:  # for example a driver that is too old
        return str(error).splitlines()[0]
    return "" if count and torch.cuda.is_available() else "PyTorch finds no NVIDIA GPU"


def _core() -> Any:
    try:
        import cuda.core as core
    except ImportError:
        raise NotInstalled("cuda-core", "cuda-core cuda-bindings") from None
    return core


@cache
def _device() -> Any:
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call]
    device = _core().Device(torch.cuda.current_device())
    device.set_current()
    return device


class _Stream:
    """The current stream of torch, as cuda-core takes it."""

    def __cuda_stream__(self) -> tuple[int, int]:
        import torch

        return 0, int(torch.cuda.current_stream().cuda_stream)


@dataclass(frozen=True)
class Kernel:
    """One kernel of a program; called with its grid, its block and its arguments: tensors, ints, floats."""

    name: str
    handle: Any
    shared_bytes: int = 0
    cooperative: bool = False

    def __call__(self, grid: tuple[int, int], block: int, *arguments: Tensor | int) -> None:
        core = _core()
        config = core.LaunchConfig(
            grid=grid, block=block, shmem_size=self.shared_bytes, is_cooperative=self.cooperative
        )
        values = [np.int32(a) if isinstance(a, int) else a.data_ptr() for a in arguments]
        core.launch(_device().create_stream(_Stream()), config, self.handle, *values)


def new_stream() -> Any:
    """A stream whose work can run beside that of others."""
    import torch

    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def on_stream(stream: Any) -> Any:
    """A context: what is launched in it runs on `stream`, after what the stream before it has to do."""
    import torch

    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)


def synchronize() -> None:
    """Wait until the GPU has nothing to do."""
    import torch

    torch.cuda.synchronize()


def wait_for_stream() -> None:
    """Wait until the GPU has done what the current stream has to do."""
    import torch

    torch.cuda.current_stream().synchronize()


def multiprocessors() -> int:
    import torch

    return int(torch.cuda.get_device_properties(0).multi_processor_count)


@cache
def has_warpgroups() -> bool:
    """Whether four warps of this GPU can multiply matrices together: Hopper, compute capability 9.0."""
    import torch

    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def pinned(tensor: Tensor) -> Tensor:
    """The tensor in memory of the host from which the GPU can copy by itself."""
    return tensor.pin_memory()


_recording = threading.Lock()


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def record_graph(play: Callable[[], None], stream: Any = None) -> Any:
    """A CUDA graph of what this function launches; it is recorded on `stream`, by one thread at a time.

    Graphs that nothing refers to any more are freed before: a graph must not be freed during a recording.
    """
    import torch

    with _recording, _without_garbage_collection():
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        stream = stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            play()
        return graph


def side_by_side(calls: Sequence[Callable[[], None]]) -> None:
    """Launch what these functions launch so that the GPU can compute it at the same time."""
    import torch

    main, streams = torch.cuda.current_stream(), []
    for call in calls[1:]:
        stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            call()
        streams.append(stream)
    for call in calls[:1]:
        call()
    for stream in streams:
        main.wait_stream(stream)


class Program:
    """A CUDA program: a file, and the macros that it is compiled with."""

    def __init__(
        self, file: Path, macros: Mapping[str, int | str], *, include: Sequence[Path] = (), text: str = "",
        exact: bool = False,
    ) -> None:  # fmt: skip
        """text: lines before the file. exact: no product is contracted with a sum, so that the results have
        the bits of the CPU."""
        self.file, self.macros, self.exact, self.text = file, macros, exact, text
        self.folders = [file.parent, *include]
        self.object = self._load()

    def kernel(self, name: str, shared_bytes: int = 0, cooperative: bool = False) -> Kernel:
        """A kernel by its name; shared_bytes: dynamic shared memory of each block."""
        handle = self.object.get_kernel(name)
        if shared_bytes > 48 * 1024:
            from cuda.bindings import driver

            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (result,) = driver.cuKernelSetAttribute(attribute, shared_bytes, int(handle.handle), 0)
            if int(result):
                raise ConfigError(
                    f"{name}: this GPU does not give a block {shared_bytes:,} bytes of shared memory "
                    f"({result!r}); expected --device cpu"
                )
        return Kernel(name, handle, shared_bytes, cooperative)

    def _load(self) -> Any:
        core, arch = _core(), f"sm_{_device().arch}" + ("a" if self.macros.get("WARPGROUPS") else "")
        cached = _cache_folder() / f"{self._digest(arch)}.cubin"
        with suppress(OSError):
            return core.ObjectCode.from_cubin(cached.read_bytes())
        options = core.ProgramOptions(
            std="c++17",
            arch=arch,
            fma=not self.exact,
            include_path=[str(folder) for folder in self.folders],
            define_macro=[(name, str(value)) for name, value in self.macros.items()] or None,
        )
        source = f'{self.text}\n#include "{self.file.name}"\n'
        try:
            compiled = core.Program(source, "c++", options).compile("cubin")
        except Exception as error:  # NVRTC's log is in the message
            lines = [line for line in str(error).splitlines() if "error" in line] or [str(error)]
            raise ConfigError(f"{self.file.name} does not compile for {arch}: {lines[0].strip()}") from error
        _store(cached, bytes(compiled.code))
        return compiled

    def _digest(self, arch: str) -> str:
        sha = hashlib.sha256(
            repr((sorted(self.macros.items()), self.exact, self.text, arch, _compiler())).encode()
        )
        for path in source_files(self.file, self.folders):
            sha.update(path.read_bytes())
        return sha.hexdigest()


def source_files(file: Path, folders: Sequence[Path]) -> list[Path]:
    """A file and all files of ours that it includes."""
    files: list[Path] = []
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        files.append(path)
        for name in INCLUDE.findall(path.read_bytes()):
            places = [(folder / name.decode()).resolve() for folder in (path.parent, *folders)]
            waiting += [place for place in places if place.is_file()][:1]
    return sorted(files)


@cache
def _compiler() -> tuple[int, ...]:
    from cuda.bindings import nvrtc

    return tuple(int(number) for number in nvrtc.nvrtcVersion()[1:])


def _cache_folder() -> Path:
    parent = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(parent).expanduser() / "rematch" / "cuda"


def _store(path: Path, data: bytes) -> None:
    """Keep a compiled program; a full disk or a read-only folder only costs the time of compiling again."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(data)
        part.replace(path)
