"""Where a run trains: on the processor, or games and learners together on the GPU."""

from __future__ import annotations

from typing import Any

from rematch.core.component import Setup
from rematch.core.errors import ConfigError


def needs_cpu(setup: Setup) -> str:
    """Why this run cannot train on the GPU of this machine; empty if it can."""
    from rematch.core.system import cuda

    return settings_need_cpu(setup) or cuda.no_gpu()


def settings_need_cpu(setup: Setup) -> str:
    """Why this run cannot train on any GPU; empty if it can."""
    config, game = setup.config, setup.game
    if game.cuda is None:
        return f"{game.name} has no CUDA rules"
    if config.schedule.kind != "simultaneous" and config.schedule.warmup_steps:
        return "schedule.warmup_steps is not 0, and its bot is seated in the first games on the CPU only"
    return str(setup.learner_class.needs_cpu(config, setup.spec))


def check_settings(setup: Setup) -> None:
    """ConfigError where the settings ask for a GPU and no GPU could run them.

    This machine needs none: a stored run may come from another one.
    """
    if setup.config.device == "cuda" and (reason := settings_need_cpu(setup)):
        raise ConfigError(f"device = cuda: {reason}; expected cpu")


def check_device(setup: Setup) -> None:
    """ConfigError where the settings ask for a GPU that cannot be used on this machine."""
    if setup.config.device == "cuda" and (reason := needs_cpu(setup)):
        raise ConfigError(f"device = cuda: {reason}; expected cpu")


def chosen_device(setup: Setup) -> str:
    """cpu or cuda: what `auto` stands for on this machine."""
    if setup.config.device != "auto":
        return str(setup.config.device)
    return "cpu" if needs_cpu(setup) else "cuda"


def trains_beside_others(setup: Setup) -> bool:
    """Whether one process can train several seeds of this run on a GPU, one launch for all of them."""
    from rematch.agents.networks.cuda_network import cannot_compute

    config = setup.config
    if config.device != "cuda" or setup.learner_class.name != "ppo":
        return False
    return not any(cannot_compute(role, config.network) for role in setup.spec.roles.values())


def on_gpu(world: Any, setup: Setup) -> Any:
    """The same games on the GPU."""
    from rematch.worlds.cuda_world import CudaWorld

    check_device(setup)
    return CudaWorld(world, setup.game.cuda)


def gpu_matches(setup: Setup) -> Any:
    """What plays the matches of evaluations of a run on the GPU; None on the processor."""
    if setup.config.device != "cuda" or setup.game.cuda is None:
        return None
    from rematch.evaluation.cuda.matches import matches_on_gpu

    return matches_on_gpu(setup.game, setup.config.world)


def gpu_collector(setup: Setup) -> Any:
    """The collector of games on the GPU."""
    from rematch.agents.networks.cuda_acting import CudaRoleActing
    from rematch.rollout.cuda_collector import CudaCollector

    config = setup.config
    collector = CudaCollector(setup.world, setup.seating, config.steps, config.seed, CudaRoleActing)
    collector.before_step = setup.check_stop
    return collector
