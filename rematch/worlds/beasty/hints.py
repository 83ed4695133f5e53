"""What moves are worth, for hints and reviews: by search, and exactly once two players' decks are empty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rematch.core import rng
from rematch.core.arrays import Bytes

from . import native
from .config import ACTIONS, POINTS, SPECIES, STRENGTH, Config
from .describe import label
from .reference.bots import BOTS

PLAYER = BOTS.index("outcome_heuristic")  # plays everybody on
STREAM_KEY = rng.key(0, rng.BOT, 7)  # the same position is always judged alike


@dataclass(frozen=True)
class Worth:
    """A move: what search expects of it, and the exact difference of scores where that is known.

    `score` is about the expected result, 1 won and 0 lost. Where animals count, the search's own sum is no
    chance (its share for the difference of scores is too large), and it only ranks moves.
    """

    score: float
    difference: int | None = None
    points: bool = True  # what scores are counted in

    def __str__(self) -> str:
        if self.difference is None:
            return f"{100 * self.score:.0f} %" if self.points else f"worth {self.score:+.2f}"
        if self.difference == 0:
            return "draws"
        verb = "wins" if self.difference > 0 else "loses"
        return f"{verb} by {abs(self.difference)}" if self.points else verb


@dataclass(frozen=True)
class Slip:
    """A move that was not the best one: what it was, what would have been, and what that cost."""

    step: int
    played: int
    best: int
    had: Worth
    could: Worth

    @property
    def cost(self) -> tuple[float, int]:
        """In score first; then, of solved positions, in points of difference."""
        more = (self.could.difference or 0) - (self.had.difference or 0)
        return self.could.score - self.had.score, more

    def __str__(self) -> str:
        better = f"best was {label(self.best)} ({self.could})"
        return f"turn {self.step + 1}: {label(self.played)} ({self.had}); {better}"


def weigh(state: Bytes, config: Config, completions: int) -> dict[int, Worth]:
    """Every legal action of the saved game [1, S], for whoever is to play."""
    rules, number = native.Core(config.values()), np.zeros(1, np.int32)
    game = state.view(native.GAME_TYPE)[0, 0]
    bits, step = int(rules.legal(state)[0]), int(game["step"])
    legal = [action for action in range(len(ACTIONS)) if bits >> action & 1]
    if config.players == 2 and not game["deck"].any():
        return {action: _solved(rules, state, action, config) for action in legal}
    if len(legal) == 1:
        return {legal[0]: Worth(float("nan"))}  # nothing to choose: it was not asked
    how = (PLAYER, 0, completions, PLAYER)
    sums = rules.search(state, number, how, (STREAM_KEY, rng.BOT, step))[0][0] / completions
    # Rewards are +1 won and -1 / (k - 1) lost (rules.h, judge); the search adds a little for points.
    k = config.players
    if config.scoring != "points":
        return {action: Worth(float(sums[action]), points=False) for action in legal}
    return {action: Worth(float(np.clip((sums[action] * (k - 1) + 1) / k, 0, 1))) for action in legal}


def _solved(rules: native.Core, state: Bytes, action: int, config: Config) -> Worth:
    """By the exact solver (search.h): alpha-beta to the end."""
    then = state.copy()
    if rules.turn(then, np.array([action], np.int32))[0]:
        game, points = then.view(native.GAME_TYPE)[0, 0], config.scoring == "points"
        own, other = (
            sum((int(bar) >> STRENGTH[name] & 1) * (POINTS[name] + 64 * (not points)) for name in SPECIES)
            for bar in game["bar"][[1 - int(game["turn"]), int(game["turn"])]]
        )
        difference = own - other  # as rules.h, score_of
    else:
        difference = -int(rules.solve(then)[0])
    return Worth(0.5 + 0.5 * float(np.sign(difference)), difference, config.scoring == "points")


def review(moves: list[tuple[Bytes, int]], config: Config, completions: int) -> list[Slip]:
    """The moves (saved game before, action) that were not the best, costliest first."""
    out = []
    for state, action in moves:
        worths = weigh(state, config, completions)
        if len(worths) == 1:
            continue
        best = max(worths, key=lambda a: (worths[a].score, worths[a].difference or 0, a == action))
        step = int(state.view(native.GAME_TYPE)[0, 0]["step"])
        if best != action:
            out.append(Slip(step, action, best, worths[action], worths[best]))
    return sorted(out, key=lambda slip: slip.cost, reverse=True)
