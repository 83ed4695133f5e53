"""Errors of the GPU as one line: too little memory, or a card that does not answer any more.

Imports neither torch nor cuda-core: their errors are known by name and text.
"""

from __future__ import annotations

import re

from rematch.core.errors import ConfigError

NAMES = ("OutOfMemoryError", "AcceleratorError", "CUDAError", "NVRTCError")  # of torch and of cuda-core
TEXT = re.compile(r"\bCUDA (?:driver )?error\b|\bCUDNN_STATUS|\bCUBLAS_STATUS|\bcudaError", re.IGNORECASE)
NO_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY|ALLOC_FAILED", re.IGNORECASE)
WANTED = re.compile(r"Tried to allocate ([\d.]+ \w+)")
FREE = re.compile(r"total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free")


class GpuError(ConfigError):
    """The GPU has too little memory, or failed. What a run has saved is intact."""


def is_gpu_error(error: BaseException) -> bool:
    """Whether torch or cuda-core raised this because of the GPU."""
    if isinstance(error, ConfigError):
        return False
    return type(error).__name__ in NAMES or bool(isinstance(error, RuntimeError) and TEXT.search(str(error)))


def gpu_error(error: BaseException, needed: int = 0) -> GpuError:
    """The error as one line; needed: bytes that the run is known to need."""
    text = str(error)
    if type(error).__name__ != "OutOfMemoryError" and not NO_MEMORY.search(text):
        reason = (text.strip() or "no reason given").splitlines()[0]
        return GpuError(f"the GPU failed: {reason}; what was saved is intact: check the card with "
                        "nvidia-smi, then continue with rematch resume")
    wanted, free = WANTED.search(text), FREE.search(text)
    parts = ["the GPU has too little memory"]
    if needed:
        parts.append(f"rollouts, networks and past policies of this run take about {needed / 2**30:.1f} GiB")
    if wanted:
        parts.append(f"{wanted[1]} more were needed")
    if free:
        parts.append(f"{free[2]} of {free[1]} were free")
    expected = "expected fewer games or steps, a smaller minibatch or network, or --device cpu"
    return GpuError("; ".join([parts[0] + (": " + ", ".join(parts[1:]) if parts[1:] else ""), expected]))
