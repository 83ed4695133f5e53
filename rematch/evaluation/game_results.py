"""Results of single games: two players compared game by game, and games that anyone can play again.

A game is determined by (seed, index of the match, seating, its number) and by its players. Two players that
play the same numbers against the same opponent meet the same deals, start positions and random numbers of
the opponent: the difference of their results has less noise than two separate matches (common random
numbers; Law and Kelton, Simulation Modeling and Analysis, section 11.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rematch.core.player import Player
from rematch.core.spec import Spec
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.match import Scoreboard
from rematch.evaluation.statistics import Mean, mean_by_deal

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class GameResults:
    """The games of one player: outcome [n] (1 won, 0.5 drawn, 0 lost), return [n] and number of the deal [n].

    A deal is played once from every seat where all seats have the same role.
    """

    outcome: Reals
    returns: Reals
    deal: NDArray[np.int64]

    @property
    def n(self) -> int:
        return len(self.outcome)


def seatings(spec: Spec) -> list[list[int]]:
    """The seatings of a match: order[seat] is the index of the player there."""
    seats = spec.seats
    if len(spec.roles) > 1 or seats == 1:
        return [list(range(seats))]
    return [[(seat + turn) % seats for seat in range(seats)] for turn in range(seats)]


def games_per_seating(spec: Spec, games: int) -> list[int]:
    """The number of games of each seating, `games` together."""
    turns = len(seatings(spec))
    return [games // turns + (turn < games % turns) for turn in range(turns)]


def play_games(
    board: Scoreboard, seats: Sequence[Player], player: int, games: int, index: int
) -> GameResults:
    """The games of player number `player` of `seats`, every seating the same deals."""
    outcome, returns, deal = [], [], []
    orders, shares = seatings(board.spec), games_per_seating(board.spec, games)
    for turn in PROGRESS.each(range(len(orders))):
        if not shares[turn]:
            continue
        order = orders[turn]
        played = board.match([seats[i] for i in order], shares[turn], index, turn)
        seat = order.index(player)
        outcome.append(np.asarray(played.outcome[:, seat], np.float64))
        returns.append(np.asarray(played.returns[:, seat], np.float64))
        deal.append(np.arange(shares[turn]))
    return GameResults(np.concatenate(outcome), np.concatenate(returns), np.concatenate(deal))


def play_one(
    board: Scoreboard, seats: Sequence[Player], player: int, game: tuple[int, int], index: int
) -> tuple[float, float]:
    """Outcome and return of one game, `game` = (seating, number), as in `play_games`."""
    turn, number = game
    order = seatings(board.spec)[turn]
    played = board.match([seats[i] for i in order], 1, index, turn, number)
    seat = order.index(player)
    return float(played.outcome[0, seat]), float(played.returns[0, seat])


@dataclass(frozen=True)
class PairedResult:
    """Two players in the same games: the mean result of each, and the mean difference with its interval."""

    first: float
    second: float
    difference: Mean
    correlation: float | None  # of the two results over games; None where one of them is constant

    @property
    def better(self) -> str:
        """first, second, or level where the 95 % interval of the difference contains 0."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None or low <= 0 <= high:
            return "level"
        return "first" if low > 0 else "second"


def _constant(value: float, results: GameResults) -> Mean:
    """The same difference in all n deals: at 95 % confidence at most 1 - 0.05^(1/n) of all deals have another
    one (Clopper and Pearson 1934), so the interval has this half-width instead of 0."""
    half = 1 - 0.05 ** (1 / len(np.unique(results.deal)))
    return Mean(value, max(-1.0, value - half), min(1.0, value + half), results.n)


def compare(first: GameResults, second: GameResults, by_return: bool) -> PairedResult:
    """Compare two players that have played the same games, by their outcomes or by their returns."""
    a, b = (x.returns if by_return else x.outcome for x in (first, second))
    difference = mean_by_deal(a - b, first.deal) or Mean(0.0, None, None, 0)
    if not by_return and len(a) > 1 and np.ptp(a - b) == 0:
        difference = _constant(float(a[0] - b[0]), first)
    varies = len(a) > 1 and a.std() > 0 and b.std() > 0
    correlation = float(np.corrcoef(a, b)[0, 1]) if varies else None
    return PairedResult(float(a.mean()), float(b.mean()), difference, correlation)
