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
class SwarmConfig:
    """How `--swarm bands` spreads the games."""

    power_on: float = knob(0.25, "share of the games that always begin at power-on", low=0, high=1)
    early: float = knob(0.4, "quota of the other games that begin early; power-on is early", low=0, high=1)
    mid: float = knob(0.3, "their quota that begins in mid-game", low=0, high=1)
    late: float = knob(0.3, "their quota that begins late", low=0, high=1)
    practice: bool = knob(
        False, "games begin on the furthest way known, and are led along it for a part; not those at power-on"
    )
    way: float = knob(
        0.0, "weight of r_way: each input by which an episode comes on along that way; 0 is off", low=0,
        needs="practice",
    )  # fmt: skip
    way_columns: tuple[str, ...] = knob(
        ("map", "x", "y", "enemy_species"), "what makes a place of it: names of columns", needs="way"
    )
    way_marks: tuple[str, ...] = knob(
        (), "columns that have to be as they are on the way there, such as milestone_*: none may be left out",
        needs="way",
    )  # fmt: skip
    way_window: int = knob(64, "inputs ahead in which a place is looked for", low=1, needs="way")
    scouts: int = knob(
        0, "games beside those that learn, which look for the next milestone at random; 0: none",
        low=0, high=1024,
    )  # fmt: skip
    scout_steps: int = knob(64, "steps of each scout in an iteration", low=1, high=10_000, needs="scouts")
    scout_patience: int = knob(
        32, "steps after which a scout who has found nothing begins anew", low=1, high=10_000, needs="scouts"
    )
    squares: int = knob(
        2, "side of the squares of a map in which scouts keep one state each", low=1, high=256, needs="scouts"
    )

    def check(self) -> None:
        total = self.early + self.mid + self.late
        if abs(total - 1) > 1e-6:
            raise ConfigError(f"early + mid + late = {total:g}: quotas that do not add up; expected 1")


Strength = tuple[float, float]  # levels, HP
# game, milestones, whether it is decided, place on the way or "", strength -> whether to capture it
Wants = Callable[[int, tuple[str, ...], bool, str, Strength], bool]


class SavestateWorld(World, Protocol):
    """A world that tells milestones, and whose games can be kept and begun from again."""

    library: Any  # add(bundle) -> its number; state, restore; quarantine
    captured: dict[int, Any]  # by row, of the step just made

    def watch(self, wants: Wants, waypoints: int = 0) -> None: ...

    def shortened(self, since: Any, inputs: list[int]) -> Any: ...


def check_swarm(kind: str, config: SwarmConfig, learner: str, world: World) -> None:
    if kind == "bands" and config.practice and learner != "dqn":
        raise ConfigError(f"bands.practice = True: {learner} cannot learn from moves that it did not choose; "
                          "expected learner dqn, or False")
    if kind != "off" and not hasattr(world, "captured"):
        raise ConfigError(f"swarm = {kind}: {world.spec.world} has no savestates; expected off")


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
