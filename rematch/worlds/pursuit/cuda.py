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

HERE = Path(__file__).parent


def _rules(config: Config) -> list[tuple[Any, str]]:
    values = struct_values(config)
    return [(values[name], c_type) for name, c_type in native.RULES.items()]


def _batch(config: Config) -> list[str]:
    """The members of `Batch` in rules.h."""
    actions, columns = [f"action.{role}" for role in ROLES], [f"obs.{role}" for role in ROLES]
    sensors = [""] * 6
    if not config.full_obs:  # four fields, which the collector joins
        columns = [f"field.{role}.state" for role in ROLES]
        sensors = [f"field.{role}.{name}" for name in ("lidar", "history", "clock") for role in ROLES]
    return ["states", *actions, *columns, "reward", "outcome", "ended", "length", "next.seed", "next.slot",
            "next.stage", "optional", *sensors]  # fmt: skip


def _bot_number(player: Player) -> int | None:
    return player.number if isinstance(player, ScriptedPlayer) else None


CUDA = Cuda(
    source=HERE / "kernels.cu",
    include=(HERE, HERE.parent / "native"),
    rules=_rules,
    batch=_batch,
    bot_number=_bot_number,
    arrays={"states": lambda world: world.states, "optional": lambda world: world.optional},
    after_copy=lambda world: world.write_privileged(),
    counters=("spawn_redraws", "obstacles_missing"),
    failures={
        1: "its stage is not playable",
        2: "no start was found",
        16: "an action is not a finite number",
    },
)
