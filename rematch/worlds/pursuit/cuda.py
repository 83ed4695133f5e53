"""Pursuit on the GPU: what rollout/cuda_collector.py needs to know of kernels.cu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rematch.core.player import Player
from rematch.worlds.capabilities import Cuda

from . import native
from .bots import ScriptedPlayer
from .config import Config, struct_values
from .world import PursuitWorld

HERE = Path(__file__).parent


def _rules(config: Config) -> list[tuple[Any, str]]:
    values = struct_values(config)
    return [(values[name], c_type) for name, c_type in native.RULES.items()]


def _bot_number(player: Player) -> int | None:
    return player.number if isinstance(player, ScriptedPlayer) else None


def _optional(world: PursuitWorld) -> Any:
    return world.optional if world.optional.shape[1] else None


def _cannot(config: Config) -> str:
    """The collector joins no fields yet: sensors write four of them."""
    return "" if config.full_obs else "world.full_obs is false: sensors are computed on the CPU"


CUDA = Cuda(
    source=HERE / "kernels.cu",
    include=(HERE, HERE.parent / "native"),
    rules=_rules,
    batch=(
        "states",
        "action.pursuer",
        "action.evader",
        "obs.pursuer",
        "obs.evader",
        "reward",
        "outcome",
        "ended",
        "length",
        "next.seed",
        "next.slot",
        "next.stage",
        "optional",
        "",
        "",
        "",
        "",
        "",
        "",
    ),
    bot_number=_bot_number,
    states=lambda world: world.states,
    optional=_optional,
    restart=lambda world: world.restart(),
    set_stage=lambda world, rows, values: world.set_stage(rows, values),
    resample=lambda world, rows, seat, key: world.resample(rows, seat, key),
    counters=("spawn_redraws", "obstacles_missing"),
    failures={
        1: "its stage is not playable",
        2: "no start was found",
        16: "an action is not a finite number",
    },
    cannot=_cannot,
)
