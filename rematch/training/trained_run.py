"""Trained runs and exported policies as players: reads the settings, weights and evaluations of a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch.agents import policy_export
from rematch.agents.build import build_agents
from rematch.agents.learners.dqn import DqnConfig
from rematch.agents.learners.q_policy import QPolicy
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.system.user_code import described
from rematch.core.world import World
from rematch.curriculum.levels import LevelProgress, restart_on, stored_level
from rematch.storage.run_folder import Run
from rematch.training.components.learners import Learners
from rematch.training.config import default
from rematch.training.fingerprint import changed_code
from rematch.training.recipes import stored_config
from rematch.worlds import registry

# what loading the state of another run, or damaged state, raises
STATE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(repr=False, eq=False)
class TrainedRun:
    """A run as it stands: its settings, its policies (players like any other), its evaluations."""

    folder: Path
    config: Config
    policies: dict[str, Any]  # by role
    history: list[dict[str, Any]]  # rows of history.json
    iteration: int = 0  # of the checkpoint that the policies come from
    step: int | None = None  # of the same checkpoint, where it is known
    curriculum: LevelProgress | None = None  # its level at the same checkpoint

    def scoreboard(self) -> list[dict[str, Any]]:
        """The match-ups of the newest evaluation, one dict each, with games and interval."""
        return list(self.history[-1]["table"]) if self.history else []


def world_builder(config: Config, level: LevelProgress | None = None) -> Callable[[int, int, int], World]:
    """The function that makes the worlds of a run: (games, first, seed) -> World.

    With a curriculum, worlds start on its present level.
    """
    game = registry.find(config.game)

    def make(games: int, first: int, seed: int) -> World:
        world = game.make(config.world, games, first, seed)
        if level:
            restart_on(world, level.present_stage)
        return world

    return make


def with_available_device(config: Config) -> Config:
    """The settings with cpu in place of cuda where this machine has no GPU: the policies play the same.

    `device` places training only, so it is always cpu here.
    """
    config = settings.replace(config, {"device": "cpu"})
    devices = [key for key in ("dqn.device", "network.device") if settings.get(config, key) == "cuda"]
    if devices:
        import torch

        if not torch.cuda.is_available():
            return settings.replace(config, dict.fromkeys(devices, "cpu"))
    return config


def load_run(folder: Path | str) -> TrainedRun:
    """A run with its newest policies, or an exported policy file; changes no file."""
    path = Path(folder)
    return load_exported(path) if path.suffix == policy_export.SUFFIX else load_folder(path)


def load_exported(path: Path) -> TrainedRun:
    """An exported policy, with the settings that it needs to play."""
    exported = policy_export.read(path)
    changes: dict[str, Any] = {"network": exported.policy.config}
    if isinstance(exported.policy, QPolicy):
        # the size of the replay buffer belongs to a run, not to a policy
        dqn = settings.replace(exported.policy.config, {"replay_size": DqnConfig().replay_size})
        changes = {"learner": "dqn", "dqn": dqn, "games": 1}
    config = settings.replace(default(exported.game), {"world": exported.world} | changes)
    policies = {exported.policy.role.name: exported.player}
    return TrainedRun(path, config, policies, [], exported.iteration, exported.step)


def load_folder(folder: Path) -> TrainedRun:
    """A run's folder, with the policies of its newest checkpoint."""
    with Run.open(folder, write=False) as run:
        config = stored_config(run)
        checkpoint = run.load(verify_chunks=False)  # weights are always verified, the replay buffer is not
        if checkpoint is None:
            raise ConfigError(f"{folder}: no checkpoint yet")
        if checkpoint.fallback:
            warnings.warn(f"{folder}: {checkpoint.fallback}", stacklevel=2)
        for name in changed_code(config, checkpoint.fingerprint):
            warnings.warn(f"{folder}: {name} has changed since the checkpoint was saved", stacklevel=2)
        make = world_builder(config)
        agents = build_agents(with_available_device(config), make(1, 0, 0).spec, make)
        try:
            for role, learner in agents.learners.items():
                learner.policy.set(checkpoint.parts[Learners.name][role]["weights"])
            curriculum = stored_level(config, checkpoint.parts)
        except STATE_ERRORS as error:
            why = described(error)
            raise ConfigError(f"{checkpoint.folder}: not a checkpoint of this run: {why}") from None
        step = checkpoint.iteration * config.games * config.steps
        return TrainedRun(
            run.folder, config, agents.players, run.history, checkpoint.iteration, step, curriculum
        )
