"""The curriculum of starts: which level of a world's own ladder each new episode begins on.

A game's `levels` build its starts from the easiest to the whole game, each a name
and some of its stage numbers. Levels are climbed, and left again, by what evaluations on the level itself
have shown, judged by the bounds of their intervals. A step reaches live worlds with their next reset, by
`next.stage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rematch.core.arrays import Floats, Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.spec import Ladder, Level, Spec
from rematch.core.world import Next, RestartableWorld, World
from rematch.worlds import registry
from rematch.worlds.game import Game

if TYPE_CHECKING:
    from rematch.core.run_config import Config

CLIMBING = "kind=discrete|smooth"


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """Curriculum of start states: levels from easy starts to the whole game."""

    kind: str = knob(
        "none", "kind of curriculum; none: every episode starts as the world defines; discrete: a list of "
        "levels that the world defines; smooth: the largest start distance grows by a fixed increment",
        choices=("none", "discrete", "smooth"),
    )  # fmt: skip
    increment: float = knob(
        0.5, "growth of the largest start distance per level", unit="m", low=0.01, high=1000,
        needs="kind=smooth",
    )  # fmt: skip
    min_obstacles: int = knob(
        0, "smallest number of obstacles on every level", unit="obstacles", low=0, needs="kind=smooth"
    )
    by: str = knob(
        "capture", "criterion of the next level; capture: the first role's win rate is at least "
        "capture_rate; gap: the gap between the roles' win rates is below gap_threshold; both are tested "
        "with confidence bounds", choices=("capture", "gap"), needs=CLIMBING,
    )  # fmt: skip
    capture_rate: float = knob(
        0.70, "win rate of the first role that is required for the next level", unit="fraction", low=0,
        high=1, needs="by=capture",
    )  # fmt: skip
    min_escape_rate: float = knob(
        0.0, "win rate of the last role that is also required for the next level", unit="fraction", low=0,
        high=1, needs="by=capture",
    )  # fmt: skip
    gap_threshold: float = knob(
        0.15, "gap between the roles' win rates that is required for the next level", unit="fraction", low=0,
        high=1, needs="by=gap",
    )  # fmt: skip
    gap_consecutive: int = knob(
        2, "consecutive evaluations that must satisfy gap_threshold", unit="evaluations", low=1,
        needs="by=gap",
    )  # fmt: skip
    min_phases: int = knob(
        1, "smallest number of evaluations on a level before it changes", unit="evaluations", low=1,
        needs=CLIMBING,
    )  # fmt: skip
    regress_rate: float = knob(
        0.02, "win rate of the last role below which the curriculum returns to the previous level",
        unit="fraction", low=0, high=1, needs="regress_after",
    )  # fmt: skip
    regress_after: int = knob(
        3, "consecutive evaluations below regress_rate before the curriculum returns to the previous level; "
        "0: it never does", unit="evaluations", low=0, needs=CLIMBING,
    )  # fmt: skip
    mixed_ratio: float = knob(
        0.0, "fraction of the games that stay one level lower, at least one game; 0: none", unit="fraction",
        low=0, high=1, needs=CLIMBING,
    )  # fmt: skip


def ladder(config: CurriculumConfig, game: Game, world: Any, spec: Spec) -> list[Level]:
    """The levels of this world, or why it has none."""
    if game.levels is None:
        raise ConfigError(f"curriculum.kind = {config.kind!r}: {spec.world} has no levels; expected none")
    if len(spec.roles) != 2:
        raise ConfigError(
            f"curriculum.kind = {config.kind!r}: levels are climbed by the rates of two roles, and the world "
            f"has {len(spec.roles)}; expected none"
        )
    ask = Ladder(kind=config.kind, increment=config.increment, min_obstacles=config.min_obstacles)
    levels = game.levels.build(world, ask)
    for name in {name for level in levels for name in level.start}:
        known = {field.name: field.default for field in fields(world)}
        if name in known and getattr(world, name) != known[name]:
            raise ConfigError(
                f"world.{name} = {getattr(world, name):g}: has no effect: the curriculum sets it; expected "
                f"{known[name]:g} or curriculum.kind none"
            )
    return levels


class LevelProgress:
    """The level that a run has reached. Stage numbers that no level names are `usual`, the world's own."""

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

    def state_dict(self) -> Tree:
        return {"level": self.level, "seen": self.seen, "calm": self.calm, "lost": self.lost}

    def load_state_dict(self, tree: Tree) -> None:
        self.level, self.seen, self.calm, self.lost = (tree[n] for n in ("level", "seen", "calm", "lost"))


def _bounds(row: Mapping[str, Any], name: str = "rate") -> str:
    prefix = "gap_" if name == "gap" else ""
    return f"{row[name]:.3f} [{row[prefix + 'low']:.3f}, {row[prefix + 'high']:.3f}]"


def begin_on(world: World, start: Floats) -> None:
    """Restart every game of a fresh world from these stage numbers."""
    world.next.stage[:] = start
    cast(RestartableWorld, world).restart()


def stored_level(config: Config, parts: Mapping[str, Tree]) -> LevelProgress | None:
    """The level that a checkpoint holds; None without a curriculum."""
    if config.curriculum.kind == "none":
        return None
    module = registry.find(config.game)
    world: World = module.make(config.world, 1, 0, 0)
    levels = ladder(config.curriculum, module, config.world, world.spec)
    progress = LevelProgress(config.curriculum, levels, world.spec, world.next.stage[0])
    progress.load_state_dict(parts[Levels.name])
    return progress


class Levels(Component):
    """Moves a run up and down the world's levels, by the bounds of its evaluations."""

    name = "curriculum"
    Config = CurriculumConfig
    needs = "learner=ppo|expert|lookahead"

    def __init__(self, config: CurriculumConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        levels = ladder(config, setup.game, setup.config.world, setup.spec)
        self.progress = LevelProgress(config, levels, setup.spec, setup.world.next.stage[0])

    @classmethod
    def check(cls, config: CurriculumConfig, setup: Setup) -> None:
        if config.kind != "none":
            ladder(config, setup.game, setup.config.world, setup.spec)

    @classmethod
    def off(cls, config: CurriculumConfig, setup: Setup) -> str:
        return "curriculum.kind is none" if config.kind == "none" else ""

    @classmethod
    def shrink(cls, config: CurriculumConfig, small: SmallRun) -> Mapping[str, Any]:
        """Any rate and any gap is good enough to climb."""
        if config.kind == "none":
            return {}
        phases = 3 if small.config.schedule.last_first else 1  # the other roles learn in between
        return {"capture_rate": 0.0, "min_escape_rate": 0.0, "min_phases": phases, "gap_threshold": 1.0,
                "gap_consecutive": 1}

    def start(self, clock: Clock) -> None:
        cast(RestartableWorld, self.setup.world).restart()

    def before_rollout(self, clock: Clock, next: Next) -> None:
        next.stage[:] = self.progress.stage(len(next.stage))

    def evaluation_fields(self, clock: Clock) -> Mapping[str, Any]:
        return {"level": self.progress.level, "level_name": self.progress.name}

    def after_evaluation(self, evaluation: Any, rollout: Any, clock: Clock) -> None:
        evaluation.on_last_level = self.progress.at_top
        if evaluation.row["phase"] == "S0":
            return
        moved, evidence = self.progress.report(evaluation.row)
        evaluation.row |= {"moved": moved, "evidence": evidence}
        if moved:
            number = f"{self.progress.level + 1} of {len(self.progress.levels)}"
            direction = "up" if moved > 0 else "back"
            evaluation.lines.append(f"CURRICULUM {direction} to level {number}: {self.progress.name}, "
                                    f"because {evidence}")

    def evidence(self, record: Record) -> Iterable[Evidence]:
        climbed = sum(row.get("moved", 0) > 0 for row in record.evaluations)
        yield Evidence("curriculum", f"climbed {climbed} times, to {self.progress.name}" if climbed else "")
        stages = len(np.unique(self.setup.world.next.stage, axis=0))
        yield Evidence("mixed levels", f"{stages} kinds of start at once" if stages > 1 else "",
                       "" if self.config.mixed_ratio else "curriculum.mixed_ratio is 0")

    def state_dict(self) -> Tree:
        return self.progress.state_dict()

    def load_state_dict(self, tree: Tree) -> None:
        self.progress.load_state_dict(tree)
