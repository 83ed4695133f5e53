"""What bit-exactness is promised on: a checkpoint carries it, a resume compares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rematch.agents.networks import fused
from rematch.core import native_build
from rematch.worlds import registry

if TYPE_CHECKING:
    from rematch.training.trainer import Config


def fingerprint(config: Config) -> dict[str, str]:
    """What bit-exactness is promised on; the number of threads is no part of it."""
    out = {"numpy": np.__version__, "core": fused.BUILD, "processor": native_build.processor()}
    if build := getattr(registry.find(config.game), "BUILD", ""):  # a world whose rules are compiled
        out["world"] = build
    if config.learner == "dqn" or config.ppo.gradient == "torch" or config.network.in_torch:
        import torch

        out["torch"] = torch.__version__
        if "cuda" in (config.dqn.device, config.network.device):
            out["device"] = torch.cuda.get_device_name()
    return out
