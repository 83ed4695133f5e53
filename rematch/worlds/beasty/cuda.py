"""Beasty Bar on the GPU: the record of kernels.cu that cuda_world.py and cuda_collector.py read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rematch.core.player import Player
from rematch.worlds.capabilities import Cuda

from . import native
from .bots import ScriptedPlayer
from .config import Config

FOLDER = Path(__file__).parent


def rules_of(config: Config) -> list[tuple[Any, str]]:
    """The members of `Rules` in rules.h: value and C type."""
    values = config.values()
    return [(values[name], c_type) for name, c_type in native.RULES.items()]


def _batch(config: Config) -> list[str]:
    """The members of `Batch` in step.h."""
    fields = [f"field.player.{name}" for name in ("line", "cards", "counts", "hands", "next")]
    return ["states", "action.player", *fields, "mask.player", "acting", "reward", "outcome", "ended",
            "length", "next.seed", "next.slot"]  # fmt: skip


def _bot_number(player: Player) -> int | None:
    return player.number if isinstance(player, ScriptedPlayer) else None


def _search(config: Config) -> Any:
    from .cuda_search import CudaSearch  # imports torch

    return CudaSearch(config)


CUDA = Cuda(
    source=FOLDER / "kernels.cu",
    include=(FOLDER, FOLDER.parent / "native"),
    rules=rules_of,
    batch=_batch,
    bot_number=_bot_number,
    arrays={"states": lambda world: world.states},
    one_seat_acts=True,
    search=_search,
    failures={16: "the action of the player to move is not legal"},
)
