"""What a search optimizes: strength, NashConv, or the steps until a strength is reached."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rematch.core.errors import ConfigError
from rematch.evaluation.evaluation import Evaluation
from rematch.evaluation.statistics import Mean, mean_interval
from rematch.worlds.game import Game

SCORE, NASH_CONV, STEPS = "score", "nash_conv", "steps"
EXPECTED = "expected score, nash_conv, or steps:X (steps until the score is at least X)"
UNSOLVED = "--objective = 'nash_conv': this world cannot be solved; expected score or steps:X"
UNOPPOSED = ("the evaluations have no scripted opponents, and so no score; expected --objective nash_conv, "
             "or a world with scripted players")
Rows = Sequence[dict[str, Any]]  # of history.json


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The number of a finished run, and the numbers of its evaluations that decide about pruning."""

    kind: str
    threshold: float = 0.0  # of STEPS

    @classmethod
    def parse(cls, text: str) -> Objective:
        match = re.fullmatch(r"steps:([0-9.]+)", text)
        if match:
            threshold = float(match[1]) if match[1].count(".") <= 1 and match[1] != "." else math.nan
            if not 0 < threshold < 1:
                raise ConfigError(f"--objective = {text!r}: expected a score between 0 and 1")
            return cls(kind=STEPS, threshold=threshold)
        if text not in (SCORE, NASH_CONV):
            raise ConfigError(f"--objective = {text!r}: {EXPECTED}")
        return cls(kind=text)

    def check(self, game: Game) -> None:
        """ConfigError before any training in a world that has no such number."""
        if self.kind == NASH_CONV and game.solver is None:
            raise ConfigError(UNSOLVED)
        if self.kind != NASH_CONV and not any(game.bots.values()):
            raise ConfigError(UNOPPOSED)

    @property
    def maximize(self) -> bool:
        return self.kind == SCORE

    @property
    def text(self) -> str:
        return f"steps:{self.threshold:g}" if self.kind == STEPS else self.kind

    def intermediate(self, rows: Rows) -> float:
        """The newest evaluation as a number in the direction of the objective."""
        if self.kind == STEPS:
            return 1 - score(rows[-1])
        return score(rows[-1]) if self.kind == SCORE else nash_conv(rows[-1])

    def final(self, rows: Rows, total_steps: int) -> float:
        """The value of a finished run. A run that never reaches the score counts with all its steps."""
        if self.kind != STEPS:
            return self.intermediate(rows)
        reached = [row["step"] for row in rows if score(row) >= self.threshold]
        return float(min(reached, default=total_steps))

    def better(self, one: float, two: float) -> bool:
        return one > two if self.maximize else one < two


def score(row: dict[str, Any]) -> float:
    """The mean score against scripted players, every role with the same weight."""
    evaluation = Evaluation.from_json(row)
    if not evaluation.matches:
        raise ConfigError(UNOPPOSED)
    return float(evaluation.strength(evaluation.match_ups).score)


def nash_conv(row: dict[str, Any]) -> float:
    value = Evaluation.from_json(row).nash_conv
    if value is None:
        raise ConfigError(UNSOLVED)
    return float(value)


def over_seeds(values: Sequence[float]) -> Mean:
    """The mean over seeds with Student's 95 % interval; None for one seed."""
    import numpy as np

    return mean_interval(np.asarray(values, np.float64))
