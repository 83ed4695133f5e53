"""What a swarm (savestates.py) is made of: settings, starts, its frontier, what it asks of a world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rematch.core.arrays import Tree
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.world import World
from rematch.storage.array_chunks import ArrayChunk

BANDS = ("early", "mid", "late")
STAGE = START, _ = "start", "patience"  # the stage numbers: which savestate; steps without a milestone
POWER_ON = -1  # no savestate


@dataclass(frozen=True, kw_only=True)
class SavestatesConfig:
    """Curriculum of savestates: episodes start from stored states that reached something new."""

    mode: str = knob(
        "off", "start states of episodes; off: power-on; bands: savestates from the early, middle and late "
        "part of the game; all: the savestate with the most milestones", choices=("off", "bands", "all"),
    )  # fmt: skip
    power_on: float = knob(
        0.25, "fraction of all games that start at power-on", unit="fraction", low=0, high=1,
        needs="mode=bands",
    )  # fmt: skip
    early: float = knob(
        0.4, "fraction of the remaining games that start early in the game; power-on counts as early",
        unit="fraction", low=0, high=1, needs="mode=bands",
    )  # fmt: skip
    mid: float = knob(
        0.3, "fraction of the remaining games that start in the middle of the game", unit="fraction", low=0,
        high=1, needs="mode=bands",
    )  # fmt: skip
    late: float = knob(
        0.3, "fraction of the remaining games that start late in the game", unit="fraction", low=0, high=1,
        needs="mode=bands",
    )  # fmt: skip

    def check(self) -> None:
        total = self.early + self.mid + self.late
        if abs(total - 1) > 1e-6:
            raise ConfigError(f"early + mid + late = {total:g}: the fractions must add up; expected 1")


Strength = tuple[float, float]  # levels, HP
# game, milestones, whether it is decided, place on the way or "", strength -> whether to capture it
Wants = Callable[[int, tuple[str, ...], bool, str, Strength], bool]


class SavestateWorld(World, Protocol):
    """A world that tells milestones, and whose games can be kept and begun from again."""

    library: Any  # add(bundle) -> its number; state, restore; quarantine
    captured: dict[int, Any]  # by row, of the step just made

    def watch(self, wants: Wants, waypoints: int = 0) -> None: ...

    def shortened(self, since: Any, inputs: list[int]) -> Any: ...


@dataclass
class Start:
    """Where episodes may begin, and what became of them."""

    file: str  # in savestates/; "" for power-on
    milestone: str
    step: int  # of all games together, when it was reached
    game: int
    band: str
    map: str
    milestones: tuple[str, ...]
    parent: int  # the start that its episode began from, POWER_ON or a number
    sha256: str
    visits: int = 0
    successes: int = 0


@dataclass
class Frontier:
    """The furthest that any chain of savestates came: inputs from power-on, and the state they lead to."""

    step: int
    finished: bool
    milestones: tuple[str, ...]
    map: str
    rom: str
    pyboy: str
    sha256: str
    actions: list[int]

    @property
    def rank(self) -> tuple[bool, int]:
        return self.finished, len(self.milestones)


class Kept:
    """A library's bundles in checkpoints: each is written once, however many checkpoints name it."""

    def __init__(self, kind: str, library: Any) -> None:
        self.kind, self.library = kind, library
        self.chunks: list[ArrayChunk] = []  # by number in the library

    def clear(self) -> None:
        self.library.clear()
        self.chunks = []

    def state(self) -> Tree:
        for number in range(len(self.chunks), len(self.library)):
            data = np.frombuffer(self.library[number].pack(), np.uint8)
            self.chunks.append(ArrayChunk.from_arrays(f"{self.kind}-{number:08d}", {"bundle": data}))
        return {"chunks": list(self.chunks), "quarantine": dict(self.library.quarantine)}

    def restore(self, tree: Tree) -> None:
        self.chunks = list(tree["chunks"])
        bundles = {f"{number:06d}": chunk.arrays()["bundle"] for number, chunk in enumerate(self.chunks)}
        self.library.restore({"bundles": bundles, "quarantine": tree["quarantine"]})


def allot(shares: Sequence[float], games: int) -> list[int]:
    """Whole games by their shares (largest remainders); nobody with a share goes without, if that can be."""
    exact = [share / sum(shares) * games for share in shares]
    out = [int(part) for part in exact]
    for which in sorted(range(len(out)), key=lambda i: out[i] - exact[i])[: games - sum(out)]:
        out[which] += 1
    for which, share in enumerate(shares):
        most = max(range(len(out)), key=lambda i: out[i])
        if share and not out[which] and out[most] > 1:
            out[which], out[most] = 1, out[most] - 1
    return out
