"""Functions of tensors on a device; on a GPU each is recorded once, as a CUDA graph, and then replayed.

A recurrent layer over a sequence is hundreds of small kernels. Python starts them more slowly than a GPU
computes them: without CUDA graphs the GPU was no faster than the CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.core.errors import ConfigError

Array = NDArray[Any]
Inputs = Mapping[str, Tensor]
Function = Callable[..., tuple[Tensor, ...]]
WARM_UP = 3  # calls before a recording, in which libraries select kernels and allocate memory


class Recorder:
    """Computes `function(inputs, *constants)` on `device`; inputs and outputs are numpy arrays.

    There is one recording per function, constants and input shapes. It reads the constants at their addresses
    of the recording: weights must be changed in place. The function must not copy values to the host.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.lock = device, threading.Lock()
        self.recordings: dict[Any, tuple[Any, dict[str, Tensor], tuple[Tensor, ...]]] = {}

    def __call__(self, function: Function, arrays: Mapping[str, Array], *constants: Any) -> list[Array]:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        if self.device.type == "cpu":
            return [output.numpy() for output in function(tensors, *constants)]
        with self.lock:  # the input buffers of a recording are shared by all threads
            key = (function, constants, *((name, tensor.shape) for name, tensor in tensors.items()))
            if key not in self.recordings:
                try:
                    self.recordings[key] = self._record(function, tensors, constants)
                except torch.OutOfMemoryError:
                    sizes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
                    raise ConfigError(f"device = cuda: the GPU has too little memory for a batch of {sizes}; "
                                      "expected fewer games, a smaller batch or network, or cpu") from None
            graph, inputs, outputs = self.recordings[key]
            for name, tensor in tensors.items():
                inputs[name].copy_(tensor)
            graph.replay()
            return [output.cpu().numpy() for output in outputs]

    def _record(
        self, function: Function, tensors: Inputs, constants: tuple[Any, ...]
    ) -> tuple[Any, dict[str, Tensor], tuple[Tensor, ...]]:
        inputs = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        side_stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(WARM_UP):
                function(inputs, *constants)
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = function(inputs, *constants)
        return graph, inputs, outputs
