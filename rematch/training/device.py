"""Where a run trains: on the processor, or games and learners together on the GPU."""

from __future__ import annotations

from typing import Any

from rematch.agents.build import learner_class
from rematch.core.component import Setup
from rematch.core.errors import ConfigError
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.seating import Seating


def needs_cpu(setup: Setup) -> str:
    """Why this run cannot train on the GPU of this machine; empty if it can."""
    from rematch.core.system import cuda

    return settings_need_cpu(setup) or cuda.no_gpu()


def settings_need_cpu(setup: Setup) -> str:
    """Why this run cannot train on any GPU; empty if it can."""
    config, game = setup.config, setup.game
    if game.cuda is None:
        return f"{game.name} has no CUDA rules"
    if config.network.reads_privileged:
        written = game.cuda.batch(config.world)
        for role in setup.spec.roles.values():
            fields = [f.name for f in role.privileged if f"field.{role.name}.{f.name}" not in written]
            if fields:
                names = ", ".join(fields)
                return f"the CUDA rules of {game.name} do not write {names}, which the critic reads"
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


def chosen_devices(setup: Setup) -> dict[str, str]:
    """Setting -> cpu or cuda, for each setting that is `auto`."""
    chosen = {"device": chosen_device(setup)} if setup.config.device == "auto" else {}
    if setup.config.dqn.device == "auto":
        from rematch.core.system import cuda

        chosen["dqn.device"] = "cpu" if cuda.no_gpu() else "cuda"
    return chosen


def trains_beside_others(setup: Setup) -> bool:
    """Whether one process can train several seeds of this run on a GPU, one launch for all of them."""
    config, learner = setup.config, setup.learner_class
    return bool(config.device == "cuda" and learner.in_kernels(config, setup.spec))


def places(setup: Setup) -> dict[str, str]:
    """Where each part of a run is computed: part -> place."""
    c, learner = setup.config, setup.learner_class
    own_device = getattr(getattr(c, c.learner), "device", c.network.device)
    games, networks, evaluations = "processor", "processor", "processor"
    processes = setup.game.defaults.processes
    if processes is not None and (count := processes(c.world)):
        games += f", {count} processes and {c.threads} threads"
    if own_device == "cuda":
        networks, evaluations = "GPU, by PyTorch", "processor, their networks on the GPU"
    if c.device == "cuda":
        games, networks = "GPU", "GPU, by PyTorch"
        networks += ", bfloat16" if c.network.kind == "transformer" else ""
        evaluations = "processor" if c.network.module else "GPU, float32"
        if learner.in_kernels(c, setup.spec):
            networks = "GPU, by compiled kernels, bfloat16"
    return {"training games": games, "networks in training": networks, "evaluations": evaluations}


def placed(world: Any, config: Any, game: Any) -> Any:
    """The same games where a run with these settings trains."""
    if config.device == "cpu":
        return world
    from rematch.worlds.cuda_world import CudaWorld

    return CudaWorld(world, game.cuda)


def gpu_matches(setup: Setup) -> Any:
    """What plays the matches of evaluations of a run on the GPU; None on the processor."""
    if setup.config.device != "cuda" or setup.game.cuda is None:
        return None
    from rematch.evaluation.cuda.matches import matches_on_gpu

    return matches_on_gpu(setup.game, setup.config.world)


def collector_of(world: Any, seating: Seating, config: Any, seed: int) -> Any:
    """The collector of games that are placed where these settings say."""
    if config.device == "cpu":
        return ThreadCollector(world, seating, config.steps, config.threads, seed)
    from rematch.rollout.cuda_collector import CudaCollector

    make_acting = learner_class(config).gpu_acting(config, world.spec)
    return CudaCollector(world, seating, config.steps, seed, make_acting)
