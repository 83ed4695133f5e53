"""The curriculum of levels: each episode starts on a level of the world, from easy to the whole game.

`Game.levels` builds the list; a level is a name and values for some columns of `next.stage`. Evaluations on
the present level decide whether the run moves one level up or back: by the bounds of their intervals, or for
balance by the gap itself where `gap_rule` is point. A new level takes effect with the next reset of each
game.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rematch.core.arrays import Floats, Tree, stored_int
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.spec import Ladder, Level, Spec
from rematch.core.world import Next, RestartableWorld, World
from rematch.curriculum import gap_criterion
from rematch.curriculum.gap_criterion import BOUND, POINT
from rematch.worlds import registry
from rematch.worlds.game import Game

if TYPE_CHECKING:
    from rematch.core.run_config import Config

HAS_LEVELS = "kind=discrete|smooth"


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
        "capture_rate, by the lower bound of its 95 % interval; gap: the gap between the roles' win rates is "
        "below gap_threshold, by gap_rule", choices=("capture", "gap"), needs=HAS_LEVELS,
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
    gap_rule: str = knob(
        BOUND, "value that is compared with gap_threshold; bound: the upper bound of the gap's 95 % "
        "interval, which needs many games (evaluation.games); point: the gap itself, without an interval",
        choices=(BOUND, POINT), needs="by=gap",
    )  # fmt: skip
    gap_consecutive: int = knob(
        2, "consecutive evaluations that must satisfy gap_threshold", unit="evaluations", low=1,
        needs="by=gap",
    )  # fmt: skip
    min_phases: int = knob(
        1, "smallest number of evaluations on a level before it changes", unit="evaluations", low=1,
        needs=HAS_LEVELS,
    )  # fmt: skip
    regress_rate: float = knob(
        0.02, "win rate of the last role below which the curriculum returns to the previous level",
        unit="fraction", low=0, high=1, needs="regress_after",
    )  # fmt: skip
    regress_after: int = knob(
        3, "consecutive evaluations below regress_rate before the curriculum returns to the previous level; "
        "0: it never does", unit="evaluations", low=0, needs=HAS_LEVELS,
    )  # fmt: skip
    mixed_ratio: float = knob(
        0.0, "fraction of the games that stay one level lower, at least one game; 0: none", unit="fraction",
        low=0, high=1, needs=HAS_LEVELS,
    )  # fmt: skip


def build_levels(config: CurriculumConfig, game: Game, world: Any, spec: Spec) -> list[Level]:
    """The levels of this world; ConfigError with the reason if it has none."""
    if game.levels is None:
        raise ConfigError(f"curriculum.kind = {config.kind!r}: {spec.world} has no levels; expected none")
    if len(spec.roles) != 2:
        raise ConfigError(
            f"curriculum.kind = {config.kind!r}: levels need the rates of two roles, and the world "
            f"has {len(spec.roles)}; expected none"
        )
    request = Ladder(kind=config.kind, increment=config.increment, min_obstacles=config.min_obstacles)
    levels = game.levels.build(world, request)
    for name in {name for level in levels for name in level.start}:
        defaults = {field.name: field.default for field in fields(world)}
        if name in defaults and getattr(world, name) != defaults[name]:
            raise ConfigError(
                f"world.{name} = {getattr(world, name):g}: has no effect: the curriculum sets it; expected "
                f"{defaults[name]:g} or curriculum.kind none"
            )
    return levels


def default_games(config: CurriculumConfig, usual: int) -> int:
    """Number of evaluation games where no source of settings has one: `usual`, or as many as the bound of
    the gap needs."""
    if config.kind == "none" or config.by != "gap" or config.gap_rule != BOUND:
        return usual
    return max(usual, gap_criterion.games_needed(config.gap_threshold, config.gap_consecutive))


def too_few_games(config: CurriculumConfig, games: int) -> str:
    """A note where even a perfectly even pair would seldom meet the criterion of balance; otherwise ""."""
    if config.kind == "none" or config.by != "gap":
        return ""
    threshold, consecutive = config.gap_threshold, config.gap_consecutive
    chance = gap_criterion.probability(games, threshold, config.gap_rule) ** consecutive
    if chance >= gap_criterion.LIKELY:
        return ""
    times = f"{consecutive} times in a row" if consecutive > 1 else "once"
    rule = f"curriculum.gap_threshold {threshold:g} with gap_rule {config.gap_rule}"
    note = (f"note: evaluation.games {games} is small for {rule}: a perfectly even pair meets it {times} "
            f"with probability {chance:.2g}")
    if config.gap_rule == POINT:
        return note
    by_point = gap_criterion.probability(games, threshold, POINT) ** consecutive
    needed = gap_criterion.games_needed(threshold, consecutive)
    more = f"--evaluation.games {needed} gives {gap_criterion.LIKELY:g}, "
    return (f"{note}; {more if needed < gap_criterion.MOST_GAMES else ''}--curriculum.gap_rule point "
            f"gives {by_point:.2g}")


class LevelProgress:
    """The level that a run has reached.

    default_stage [S]: the world's own stage, for columns that a level does not set.
    """

    def __init__(
        self, config: CurriculumConfig, levels: Sequence[Level], spec: Spec, default_stage: Floats
    ) -> None:
        self.config, self.levels, self.spec = config, levels, spec
        self.default_stage = default_stage.copy()
        self.level = 0
        self.evaluations = 0  # on this level
        self.balanced = 0  # the latest consecutive ones with a small gap
        self.hopeless = 0  # the latest consecutive ones in which the last role almost never won

    @property
    def name(self) -> str:
        return self.levels[self.level].name

    @property
    def at_top(self) -> bool:
        return self.level + 1 == len(self.levels)

    def level_stage(self, level: int) -> Floats:
        """[S] the stage of a level."""
        out = self.default_stage.copy()
        for name, value in {**self.levels[level].start, **self.levels[level].more}.items():
            out[self.spec.stage.index(name)] = value
        return out

    @property
    def present_stage(self) -> Floats:
        """[S] the stage of the present level."""
        return self.level_stage(self.level)

    def stage(self, games: int) -> Floats:
        """[N, S] for the next episode of each game: the present level, for some games the one below.

        Document 002: "keeps 20 % of envs at previous level distances"; pursuit specification, section 6:
        the number of these games is max(1, floor(n r)).
        """
        out = np.tile(self.present_stage, (games, 1))
        if self.config.mixed_ratio and self.level:
            out[: max(1, int(games * self.config.mixed_ratio))] = self.level_stage(self.level - 1)
        return out

    def record_evaluation(self, row: Mapping[str, Any]) -> tuple[int, str]:
        """Take an evaluation on this level. Returns the change of level (+1, 0 or -1) and its reason."""
        c, (first, last) = self.config, row["rates"].values()
        self.evaluations += 1
        even = gap_criterion.passes(row["gap"], row["gap_high"], c.gap_threshold, c.gap_rule)
        self.balanced = self.balanced + 1 if even else 0
        self.hopeless = self.hopeless + 1 if last["high"] < c.regress_rate else 0
        change = 0
        if c.by == "gap":
            passed = self.balanced >= c.gap_consecutive
            reason = f"gap {_bounds(row, 'gap')} below {c.gap_threshold:g}, {self.balanced} times in a row"
        else:
            passed = first["low"] >= c.capture_rate and last["low"] >= c.min_escape_rate
            reason = f"rate {_bounds(first)} of the first role above {c.capture_rate:g}"
        regresses = c.regress_after and self.hopeless >= c.regress_after and self.level
        if self.evaluations >= c.min_phases and passed and not self.at_top:
            change = 1
        elif regresses:
            change = -1
            reason = f"rate {_bounds(last)} of the last role below {c.regress_rate:g}, {self.hopeless} times"
        if change:
            self.level += change
            self.evaluations = self.balanced = self.hopeless = 0
        return change, f"{reason}, n = {first['games']}" if change else ""

    def state_dict(self) -> Tree:
        return {"level": self.level, "seen": self.evaluations, "calm": self.balanced, "lost": self.hopeless}

    def load_state_dict(self, tree: Tree) -> None:
        self.level = stored_int(tree, "level", 0, len(self.levels) - 1)
        self.evaluations = stored_int(tree, "seen")
        self.balanced, self.hopeless = stored_int(tree, "calm"), stored_int(tree, "lost")


def _bounds(row: Mapping[str, Any], name: str = "rate") -> str:
    prefix = "gap_" if name == "gap" else ""
    return f"{row[name]:.3f} [{row[prefix + 'low']:.3f}, {row[prefix + 'high']:.3f}]"


def restart_on(world: World, stage: Floats) -> None:
    """Restart every game of a new world with this stage [S]."""
    world.next.stage[:] = stage
    cast(RestartableWorld, world).restart()


def stored_level(config: Config, parts: Mapping[str, Tree]) -> LevelProgress | None:
    """The level stored in a checkpoint; None without a curriculum."""
    if config.curriculum.kind == "none":
        return None
    game = registry.find(config.game)
    world: World = game.make(config.world, 1, 0, 0)
    levels = build_levels(config.curriculum, game, config.world, world.spec)
    progress = LevelProgress(config.curriculum, levels, world.spec, world.next.stage[0])
    progress.load_state_dict(parts[Levels.name])
    return progress


class Levels(Component):
    """Moves a run up and down the levels of its world, by the bounds of its evaluations."""

    name = "curriculum"
    Config = CurriculumConfig
    needs = "learner=ppo|expert|lookahead"

    def __init__(self, config: CurriculumConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        levels = build_levels(config, setup.game, setup.config.world, setup.spec)
        self.progress = LevelProgress(config, levels, setup.spec, setup.world.next.stage[0])

    @classmethod
    def check(cls, config: CurriculumConfig, setup: Setup) -> None:
        if config.kind != "none":
            build_levels(config, setup.game, setup.config.world, setup.spec)

    @classmethod
    def off(cls, config: CurriculumConfig, setup: Setup) -> str:
        return "curriculum.kind is none" if config.kind == "none" else ""

    @classmethod
    def shrink(cls, config: CurriculumConfig, small: SmallRun) -> Mapping[str, Any]:
        """Every rate and every gap suffices for the next level."""
        if config.kind == "none":
            return {}
        phases = 3 if small.config.schedule.last_first else 1  # the other roles learn in the phases between
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
        moved, evidence = self.progress.record_evaluation(evaluation.row)
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
