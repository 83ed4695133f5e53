"""The fingerprint of a machine: a resumed run has the same bits where it is equal. Stored in checkpoints."""

from __future__ import annotations

import numpy as np

from rematch.agents.build import learner_class
from rematch.agents.networks import fused
from rematch.core import native_build
from rematch.core.run_config import Config
from rematch.worlds import registry


def fingerprint(config: Config) -> dict[str, str]:
    """Versions and processor on which the bits of a run depend; the number of threads does not matter."""
    versions = {"numpy": np.__version__, "core": fused.BUILD, "processor": native_build.processor()}
    if build := registry.find(config.game).build:  # only of a world with compiled rules
        versions["world"] = build
    if learner_class(config).uses_torch(config):
        import torch

        versions["torch"] = torch.__version__
        if "cuda" in (config.dqn.device, config.network.device):
            versions["device"] = torch.cuda.get_device_name()
    return versions
