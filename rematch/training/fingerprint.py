"""What bit-exactness is promised on: a checkpoint carries it, a resume compares it."""

from __future__ import annotations

import numpy as np

from rematch.agents.build import learner_class
from rematch.agents.networks import fused
from rematch.core import native_build
from rematch.core.run_config import Config
from rematch.worlds import registry


def fingerprint(config: Config) -> dict[str, str]:
    """What bit-exactness is promised on; the number of threads is no part of it."""
    out = {"numpy": np.__version__, "core": fused.BUILD, "processor": native_build.processor()}
    if build := registry.find(config.game).build:  # a world whose rules are compiled
        out["world"] = build
    if learner_class(config).uses_torch(config):
        import torch

        out["torch"] = torch.__version__
        if "cuda" in (config.dqn.device, config.network.device):
            out["device"] = torch.cuda.get_device_name()
    return out
