"""Functions of tensors on a device; on a GPU each is recorded once, as a CUDA graph, and then replayed.

A memory that goes through a sequence step by step is hundreds of small kernels. Python starts them more
slowly than a GPU computes them: without a recording a GPU was no faster than a processor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
Given = Mapping[str, Tensor]
Function = Callable[..., tuple[Tensor, ...]]
WARM_UP = 3  # calls before a recording, in which libraries choose their kernels and take their memory


class Recorder:
    """Computes `function(given, *fixed)` of arrays that it brings to `device`, and brings the answers back.

    A recording holds for one function, what is fixed, and the shapes of what is given. It reads what is fixed
    where it lies: weights have to be changed in place, and the function may not ask the device for a number.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.lock = device, threading.Lock()
        self.recordings: dict[Any, tuple[Any, dict[str, Tensor], tuple[Tensor, ...]]] = {}

    def __call__(self, function: Function, arrays: Mapping[str, Array], *fixed: Any) -> list[Array]:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        if self.device.type == "cpu":
            return [answer.numpy() for answer in function(tensors, *fixed)]
        with self.lock:  # a recording has one place for what is given
            key = (function, fixed, *((name, tensor.shape) for name, tensor in tensors.items()))
            if key not in self.recordings:
                self.recordings[key] = self._record(function, tensors, fixed)
            graph, given, answers = self.recordings[key]
            for name, tensor in tensors.items():
                given[name].copy_(tensor)
            graph.replay()
            return [answer.cpu().numpy() for answer in answers]

    def _record(
        self, function: Function, tensors: Given, fixed: tuple[Any, ...]
    ) -> tuple[Any, dict[str, Tensor], tuple[Tensor, ...]]:
        given = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        privileged: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        privileged.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(privileged):
            for _ in range(WARM_UP):
                function(given, *fixed)
        torch.cuda.current_stream().wait_stream(privileged)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answers = function(given, *fixed)
        return graph, given, answers
