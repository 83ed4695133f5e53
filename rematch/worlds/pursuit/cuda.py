"""Pursuit on the GPU: the record of kernels.cu that cuda_world.py and cuda_collector.py read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rematch.core.player import Player
from rematch.worlds.capabilities import Cuda

from . import native
from .bots import ScriptedPlayer
from .config import Config, struct_values
from .observations import ROLES

FOLDER = Path(__file__).parent
GAMES_PER_BLOCK = 128  # of worlds/cuda_world.py


def _rules(config: Config) -> list[tuple[Any, str]]:
    values = struct_values(config)
    return [(values[name], c_type) for name, c_type in native.RULES.items()]


def _batch(config: Config) -> list[str]:
    """The members of `Batch` in rules.h."""
    actions, columns = [f"action.{role}" for role in ROLES], [f"obs.{role}" for role in ROLES]
    sensors = [""] * 8
    if not config.full_obs:  # four fields, which the collector joins, and a privileged one
        columns = [f"field.{role}.state" for role in ROLES]
        names = ("lidar", "history", "clock", "other")
        sensors = [f"field.{role}.{name}" for name in names for role in ROLES]
    return ["states", *actions, *columns, "reward", "outcome", "ended", "length", "next.seed", "next.slot",
            "next.stage", "optional", *sensors]  # fmt: skip


def _step_bytes(config: Config) -> int:
    """Full observations of both robots of the games of a block, and `BotRobots` of kernels.cu."""
    shown = config.n_obstacles_max if config.n_obstacle_obs < 0 else config.n_obstacle_obs
    columns = 14 + 2 * shown + 1 if config.full_obs else 0
    return 4 * (2 * GAMES_PER_BLOCK * columns + native.BOTS + 2 * GAMES_PER_BLOCK)


def _bot_number(player: Player) -> int | None:
    return player.number if isinstance(player, ScriptedPlayer) else None


CUDA = Cuda(
    source=FOLDER / "kernels.cu",
    include=(FOLDER, FOLDER.parent / "native"),
    rules=_rules,
    batch=_batch,
    bot_number=_bot_number,
    after_step=lambda config: () if config.full_obs else ("sense", "show_history"),
    step_bytes=_step_bytes,
    arrays={"states": lambda world: world.states, "optional": lambda world: world.optional},
    counters=("spawn_redraws", "obstacles_missing"),
    failures={
        1: "its stage is not playable",
        2: "no start was found",
        16: "an action is not a finite number",
    },
)
