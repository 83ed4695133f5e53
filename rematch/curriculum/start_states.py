"""Parts of the savestate curriculum (savestates.py): settings, start states, frontier, world protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from rematch.core.arrays import Ints, Tree
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.world import World
from rematch.storage.array_chunks import ArrayChunk

START_GROUPS = ("early", "mid", "late")  # parts of the game in which a start state lies
STAGE = START, _ = "start", "patience"  # columns of the stage: savestate; steps without a milestone
POWER_ON = -1  # the initial state of the game, which is no savestate
STORED_NAMES = {"start_group": "band"}  # field of Start -> its key in index.json and in checkpoints


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

    import_from: str = knob(
        "", "folder with .state files of PyBoy that a new run uses as starts, with an optional "
        "manifest.json; empty: none", needs="mode=bands|all",
    )  # fmt: skip

    def check(self) -> None:
        total = self.early + self.mid + self.late
        if abs(total - 1) > 1e-6:
            raise ConfigError(f"early + mid + late = {total:g}: the fractions must add up; expected 1")


Strength = tuple[float, float]  # levels, HP
# (game, milestones, whether the game is decided, cell or "", strength) -> whether to capture the game
CaptureRule = Callable[[int, tuple[str, ...], bool, str, Strength], bool]


class SavestateWorld(World, Protocol):
    """A world that reports milestones, captures running games, and starts episodes from captured ones."""

    library: Any  # add(bundle) -> its number; state, restore; quarantine
    captured: dict[int, Any]  # row -> bundle, of the last step
    episode_starts: Ints  # [N] POWER_ON, or the number of the savestate from which the episode started

    def set_capture_rule(self, rule: CaptureRule, cell_size: int = 0) -> None: ...

    def shorten(self, start: Any, inputs: list[int], before_play: Callable[[], None]) -> Any: ...

    def import_states(self, files: Sequence[tuple[str, bytes]]) -> list[Any]: ...

    def restart(self) -> None: ...


@dataclass
class Start:
    """A state from which episodes may start, and the counts of these episodes."""

    file: str  # in savestates/; "" for power-on
    milestone: str
    step: int  # steps of all games together when the state was reached
    game: int
    start_group: str
    map: str
    milestones: tuple[str, ...]
    parent: int  # the start of the episode that reached it: POWER_ON or a number
    sha256: str
    visits: int = 0
    successes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The entry of index.json and of checkpoints."""
        return {STORED_NAMES.get(name, name): value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Start:
        names = {stored: name for name, stored in STORED_NAMES.items()}
        return cls(**{names.get(key, key): value for key, value in entry.items()})


@dataclass
class Frontier:
    """The furthest state that any chain of savestates reached, with its inputs from power-on."""

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


class LibraryChunks:
    """The bundles of a savestate library in checkpoints: one chunk per bundle, which is written once."""

    def __init__(self, kind: str, library: Any) -> None:
        self.kind, self.library = kind, library
        self.chunks: list[ArrayChunk] = []  # by number of the bundle in the library

    def clear(self) -> None:
        self.library.clear()
        self.chunks = []

    def state_dict(self) -> Tree:
        for number in range(len(self.chunks), len(self.library)):
            data = np.frombuffer(self.library[number].pack(), np.uint8)
            self.chunks.append(ArrayChunk.from_arrays(f"{self.kind}-{number:08d}", {"bundle": data}))
        return {"chunks": list(self.chunks), "quarantine": dict(self.library.quarantine)}

    def load_state_dict(self, tree: Tree) -> None:
        self.chunks = list(tree["chunks"])
        bundles = {f"{number:06d}": chunk.arrays()["bundle"] for number, chunk in enumerate(self.chunks)}
        self.library.restore({"bundles": bundles, "quarantine": tree["quarantine"]})


def apportion(shares: Sequence[float], games: int) -> list[int]:
    """Numbers of games in proportion to the shares (largest remainders).

    A share above 0 gets at least one game where another one has two or more.
    """
    exact = [share / sum(shares) * games for share in shares]
    counts = [int(part) for part in exact]
    for index in sorted(range(len(counts)), key=lambda i: counts[i] - exact[i])[: games - sum(counts)]:
        counts[index] += 1
    for index, share in enumerate(shares):
        largest = max(range(len(counts)), key=lambda i: counts[i])
        if share and not counts[index] and counts[largest] > 1:
            counts[index], counts[largest] = 1, counts[largest] - 1
    return counts
