"""The fingerprint of machine and code: a resumed run has the same bits where it is equal. In checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rematch.agents.build import learner_class
from rematch.agents.networks import fused
from rematch.core import native_build
from rematch.core.run_config import Config
from rematch.core.system import user_code
from rematch.worlds import registry


def fingerprint(config: Config) -> dict[str, str]:
    """Versions and processor on which the bits of a run depend; the number of threads does not matter."""
    versions = {"numpy": np.__version__, "core": fused.BUILD, "processor": native_build.processor()}
    if build := registry.find(config.game).build:  # only of a world with compiled rules
        versions["world"] = build
    if config.device == "cuda" or learner_class(config).uses_torch(config):
        import torch

        versions["torch"] = torch.__version__
        if "cuda" in (config.device, config.dqn.device, config.network.device):
            versions["device"] = torch.cuda.get_device_name()
    return versions | code_digests(config)


CODE = "code "  # prefix of the keys of the user's files


def code_digests(config: Config) -> dict[str, str]:
    """The digest of each file of the user that the run imports: "code FILE" or "code MODULE" -> digest."""
    references = [*config.components, *config.reward_terms, config.network.module]
    if registry.is_file(config.game):
        references.append(registry.file_reference(config.game))
    digests = {reference: user_code.source_digest(reference) for reference in references}
    return {CODE + (reference.rpartition(":")[0] or reference): digest
            for reference, digest in digests.items() if digest}


def changed_code(config: Config, stored: Mapping[str, str]) -> list[str]:
    """The files of the user's own that differ from those of a checkpoint with this fingerprint."""
    return [Path(key.removeprefix(CODE)).name for key, digest in code_digests(config).items()
            if stored.get(key, digest) != digest]
