"""Values of moves, for hints and reviews: by search, or exact for two players with empty decks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rematch.core import rng
from rematch.core.arrays import Bytes

from . import native
from .config import ACTIONS, POINTS, SPECIES, STRENGTH, Config
from .describe import label
from .reference.bots import BOTS

PLAYOUT_BOT = BOTS.index("outcome_heuristic")
STREAM_KEY = rng.key(0, rng.BOT, 7)  # fixed: the same position gets the same values


@dataclass(frozen=True)
class MoveValue:
    """The value of a move: the estimate of the search, and the exact difference of scores where it is known.

    `score` estimates the result, from 0 (loss) to 1 (win). With scoring `count` it is the mean of the search
    instead, which only ranks moves: its term for the difference of scores is too large for a probability.
    """

    score: float
    difference: int | None = None
    points: bool = True  # whether the scoring is `points`

    def __str__(self) -> str:
        if self.difference is None:
            return f"{100 * self.score:.0f} %" if self.points else f"value {self.score:+.2f}"
        if self.difference == 0:
            return "draws"
        verb = "wins" if self.difference > 0 else "loses"
        return f"{verb} by {abs(self.difference)}" if self.points else verb


@dataclass(frozen=True)
class Mistake:
    """A move that was not the best one."""

    step: int
    played: int  # action
    best: int  # action
    value: MoveValue  # of the played action
    best_value: MoveValue

    @property
    def cost(self) -> tuple[float, int]:
        """The loss in `score`, and in the exact difference of scores where it is known."""
        difference = (self.best_value.difference or 0) - (self.value.difference or 0)
        return self.best_value.score - self.value.score, difference

    def __str__(self) -> str:
        best = f"best was {label(self.best)} ({self.best_value})"
        return f"turn {self.step + 1}: {label(self.played)} ({self.value}); {best}"


def evaluate_moves(state: Bytes, config: Config, completions: int) -> dict[int, MoveValue]:
    """The values of all legal actions of a saved game [1, S], for the player to move."""
    rules, number = native.Core(config.values()), np.zeros(1, np.int32)
    game, step = state.view(native.GAME_TYPE)[0, 0], step_of(state)
    bits = int(rules.legal(state)[0])
    legal = [action for action in range(len(ACTIONS)) if bits >> action & 1]
    if config.players == 2 and not game["deck"].any():
        return {action: _exact_value(rules, state, action, config) for action in legal}
    if len(legal) == 1:
        return {legal[0]: MoveValue(float("nan"))}  # a single move is not searched
    playouts = (PLAYOUT_BOT, 0, completions, PLAYOUT_BOT)
    means = rules.search(state, number, playouts, (STREAM_KEY, rng.BOT, step))[0][0] / completions
    # Rewards are +1 for a win and -1 / (k - 1) for a loss (rules.h, final_result), plus a term for points.
    k = config.players
    if config.scoring != "points":
        return {action: MoveValue(float(means[action]), points=False) for action in legal}
    scores = np.clip((means * (k - 1) + 1) / k, 0, 1)
    return {action: MoveValue(float(scores[action])) for action in legal}


def _exact_value(rules: native.Core, state: Bytes, action: int, config: Config) -> MoveValue:
    """The exact value of an action, by alpha-beta search (search.h)."""
    after = state.copy()
    if rules.turn(after, np.array([action], np.int32))[0]:
        game, points = after.view(native.GAME_TYPE)[0, 0], config.scoring == "points"
        own, other = (
            sum((int(bar) >> STRENGTH[name] & 1) * (POINTS[name] + 64 * (not points)) for name in SPECIES)
            for bar in game["bar"][[1 - int(game["turn"]), int(game["turn"])]]
        )
        difference = own - other  # as score_of in rules.h
    else:
        difference = -int(rules.solve(after)[0])
    return MoveValue(0.5 + 0.5 * float(np.sign(difference)), difference, config.scoring == "points")


def best_action(values: Mapping[int, MoveValue], played: int) -> int:
    """The action of the largest value; among equals the played one."""
    return max(values, key=lambda a: (values[a].score, values[a].difference or 0, a == played))


def mistake_in(step: int, played: int, values: Mapping[int, MoveValue]) -> Mistake | None:
    """The mistake of a move with these values of all legal actions; None where it is one of the best."""
    if len(values) == 1:
        return None
    best = best_action(values, played)
    return Mistake(step, played, best, values[played], values[best]) if best != played else None


def largest_first(mistakes: Iterable[Mistake | None]) -> list[Mistake]:
    """The mistakes, the largest loss first."""
    return sorted(filter(None, mistakes), key=lambda mistake: mistake.cost, reverse=True)


def review(moves: list[tuple[Bytes, int]], config: Config, completions: int) -> list[Mistake]:
    """The mistakes among moves (saved game before the move, action), the largest loss first."""
    return largest_first(
        mistake_in(step_of(state), action, evaluate_moves(state, config, completions))
        for state, action in moves
    )


def step_of(state: Bytes) -> int:
    """The number of turns played in a saved game [1, S]."""
    return int(state.view(native.GAME_TYPE)[0, 0]["step"])
