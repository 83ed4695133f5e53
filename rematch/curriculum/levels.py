"""The curriculum of starts: which level of a world's own ladder each new episode begins on.

A world's module offers `levels(config, ladder)`: its starts from the easiest to the whole game, each a name
and some of its stage numbers. Levels are climbed, and left again, by what evaluations on the level itself
have shown, judged by the bounds of their intervals. A step reaches live worlds with their next reset, by
`next.stage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from rematch.core.arrays import Floats, Tree
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.spec import Ladder, Level, Spec
from rematch.core.world import World
from rematch.worlds import registry

if TYPE_CHECKING:
    from rematch.training.config import Config

CLIMBING = "kind=discrete|smooth"


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """From easy starts to the whole game. `kind` none: every episode begins as the world says."""

    kind: str = knob(
        "none", "steps of a world's own choice, or a range that grows", choices=("none", "discrete", "smooth")
    )
    increment: float = knob(
        0.5, "by how much the largest distance grows per level", low=0.01, high=1000, needs="kind=smooth"
    )
    min_obstacles: int = knob(0, "never fewer obstacles on any level", low=0, needs="kind=smooth")
    by: str = knob(
        "capture",
        "what climbs: a rate of the first role surely of capture_rate, or a gap surely below gap_threshold",
        choices=("capture", "gap"),
        needs=CLIMBING,
    )
    capture_rate: float = knob(0.70, "rate of the first role to climb", low=0, high=1, needs="by=capture")
    min_escape_rate: float = knob(
        0.0, "and the last role's rate is surely not below this", low=0, high=1, needs="by=capture"
    )
    gap_threshold: float = knob(0.15, "gap below which a pair may climb", low=0, high=1, needs="by=gap")
    gap_consecutive: int = knob(2, "in so many evaluations in a row", low=1, needs="by=gap")
    min_phases: int = knob(1, "evaluations on a level before it may be left", low=1, needs=CLIMBING)
    regress_rate: float = knob(
        0.02, "a level is left downwards when the last role's rate is surely below this", low=0, high=1,
        needs="regress_after",
    )
    regress_after: int = knob(
        3, "in so many evaluations in a row; 0: a level is never left downwards", low=0, needs=CLIMBING
    )
    mixed_ratio: float = knob(
        0.0, "share of the games that stay one level lower, at least one game; 0: none", low=0, high=1,
        needs=CLIMBING,
    )  # fmt: skip


def ladder(config: CurriculumConfig, module: ModuleType, world: Any, spec: Spec) -> list[Level]:
    """The levels of this world, or why it has none."""
    if not hasattr(module, "levels"):
        raise ConfigError(f"curriculum.kind = {config.kind!r}: {spec.world} has no levels; expected none")
    if len(spec.roles) != 2:
        raise ConfigError(
            f"curriculum.kind = {config.kind!r}: levels are climbed by the rates of two roles, and the world "
            f"has {len(spec.roles)}; expected none"
        )
    ask = Ladder(kind=config.kind, increment=config.increment, min_obstacles=config.min_obstacles)
    levels: list[Level] = module.levels(world, ask)
    for name in {name for level in levels for name in level.start}:
        known = {field.name: field.default for field in fields(world)}
        if name in known and getattr(world, name) != known[name]:
            raise ConfigError(
                f"world.{name} = {getattr(world, name):g}: has no effect: the curriculum sets it; expected "
                f"{known[name]:g} or curriculum.kind none"
            )
    return levels


class Curriculum:
    """Where on the ladder a run stands. Stage numbers that no level names are `usual`, the world's own."""

    def __init__(self, config: CurriculumConfig, levels: Sequence[Level], spec: Spec, usual: Floats) -> None:
        self.config, self.levels, self.spec, self.usual = config, levels, spec, usual.copy()
        self.level = 0
        self.seen = 0  # evaluations on this level
        self.calm = 0  # the newest of them in a row with a small gap
        self.lost = 0  # the newest of them in a row in which the last role had no chance

    @property
    def name(self) -> str:
        return self.levels[self.level].name

    @property
    def at_top(self) -> bool:
        return self.level + 1 == len(self.levels)

    def start(self, level: int) -> Floats:
        """[S] the stage numbers of a level."""
        out = self.usual.copy()
        for name, value in {**self.levels[level].start, **self.levels[level].more}.items():
            out[self.spec.stage.index(name)] = value
        return out

    @property
    def here(self) -> Floats:
        """[S] the stage numbers of the present level."""
        return self.start(self.level)

    def stage(self, games: int) -> Floats:
        """[N, S] for the next episode of each game: the level, and for a share of the games the one below.

        Document 002: "keeps 20 % of envs at previous level distances"; pursuit specification, section 6:
        max(1, floor(n r)) of them.
        """
        out = np.tile(self.here, (games, 1))
        if self.config.mixed_ratio and self.level:
            out[: max(1, int(games * self.config.mixed_ratio))] = self.start(self.level - 1)
        return out

    def report(self, row: Mapping[str, Any]) -> tuple[int, str]:
        """An evaluation on this level: +1, 0 or -1 levels from now on, and the evidence in words."""
        c, (first, last) = self.config, row["rates"].values()
        self.seen += 1
        self.calm = self.calm + 1 if row["gap_high"] <= c.gap_threshold else 0
        self.lost = self.lost + 1 if last["high"] < c.regress_rate else 0
        steps = 0
        if c.by == "gap":
            fine = self.calm >= c.gap_consecutive
            told = f"gap {_bounds(row, 'gap')} below {c.gap_threshold:g}, {self.calm} times in a row"
        else:
            fine = first["low"] >= c.capture_rate and last["low"] >= c.min_escape_rate
            told = f"rate {_bounds(first)} of the first role above {c.capture_rate:g}"
        falls = c.regress_after and self.lost >= c.regress_after and self.level
        if self.seen >= c.min_phases and fine and not self.at_top:
            steps = 1
        elif falls:
            steps = -1
            told = f"rate {_bounds(last)} of the last role below {c.regress_rate:g}, {self.lost} times"
        if steps:
            self.level += steps
            self.seen = self.calm = self.lost = 0
        return steps, f"{told}, n = {first['games']}" if steps else ""

    def state(self) -> Tree:
        return {"level": self.level, "seen": self.seen, "calm": self.calm, "lost": self.lost}

    def restore(self, tree: Tree) -> None:
        self.level, self.seen, self.calm, self.lost = (tree[n] for n in ("level", "seen", "calm", "lost"))


def _bounds(row: Mapping[str, Any], name: str = "rate") -> str:
    prefix = "gap_" if name == "gap" else ""
    return f"{row[name]:.3f} [{row[prefix + 'low']:.3f}, {row[prefix + 'high']:.3f}]"


def climbed(config: Config, parts: Mapping[str, Tree]) -> Curriculum | None:
    """The curriculum, if there is one, as it stands in a checkpoint."""
    if config.curriculum.kind == "none":
        return None
    module = registry.find(config.game)
    world: World = module.make(config.world, 1, 0, 0)
    levels = ladder(config.curriculum, module, config.world, world.spec)
    curriculum = Curriculum(config.curriculum, levels, world.spec, world.next.stage[0])
    curriculum.restore(parts["curriculum"])
    return curriculum
