"""The lattice on the GPU: the record of kernels.cu that cuda_world.py and cuda_collector.py read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rematch.core.player import Player
from rematch.worlds.capabilities import Cuda

from . import native
from .bots import BOT_NAMES, ScriptedPlayer
from .config import Config

FOLDER = Path(__file__).parent
TABLES = ("move", "image", "frame", "place", "square", "pair", "nearer")  # the arrays of `Tables` in rules.h


def _rules(config: Config) -> list[tuple[Any, str]]:
    return [(getattr(config, name), c_type) for name, c_type in native.RULES.items()]


def _batch(config: Config) -> list[str]:
    """The members of `Batch` in rules.h."""
    return ["states", "action.pursuer", "action.evader", "obs.pursuer", "obs.evader", "reward", "outcome",
            "ended", "mirrored", "length", "next.seed", "next.slot", "next.stage"]  # fmt: skip


def _bot_number(player: Player) -> int | None:
    return BOT_NAMES.index(player.name) if isinstance(player, ScriptedPlayer) else None


def _table(name: str) -> Any:
    return lambda world: world.shared.rules.table[name]


CUDA = Cuda(
    source=FOLDER / "kernels.cu",
    include=(FOLDER, FOLDER.parent / "native"),
    rules=_rules,
    batch=_batch,
    bot_number=_bot_number,
    arrays={"states": lambda world: world.states, "mirrored": lambda world: world.frame_flags},
    tables={name: _table(name) for name in TABLES},
    failures={1: "its stage is not playable", 16: "an action is not 0, 1 or 2"},
)
