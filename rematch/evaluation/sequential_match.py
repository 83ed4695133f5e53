"""Matches that stop when their result is precise enough, or when it is decided.

The games come in batches. After each batch the always-valid intervals of all players decide whether the
match goes on (confidence_sequence.py), so that stopping early does not make them wrong. The unit is the deal:
where a deal is played from every seat, its games count as one value between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.player import Player
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.confidence_sequence import ALPHA, ConfidenceSequence
from rematch.evaluation.match import Result, Rotation, Scoreboard
from rematch.evaluation.statistics import Mean

FIRST_BATCH = 200  # games
GROWTH = 0.25  # a later batch has this share of the games so far
LARGEST_BATCH = 10_000  # games
FINEST = 0.005  # distance from a threshold that the bets aim at, at least
BATCH_SHIFT = 32  # bits of a match's index below the number of the batch (Scoreboard.match)


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When a match ends: `until` this half-width of the score's interval, or once its interval lies on one
    side of `better_than`; in any case after `most` games."""

    most: int
    until: float | None = None
    better_than: float | None = None

    def sequence(self) -> ConfidenceSequence:
        if self.better_than is not None:
            return ConfidenceSequence(FINEST, self.better_than)
        return ConfidenceSequence(self.until or FINEST)

    def decided(self, score: ConfidenceSequence) -> bool:
        if self.better_than is not None:
            return not score.low <= self.better_than <= score.high
        return score.precision <= (self.until or 0.0)

    def expected_games(self, score: ConfidenceSequence, per_deal: int) -> float:
        """About how many games the match needs, by the values so far."""
        distance = self.until
        if self.better_than is not None:
            distance = max(FINEST, abs(score.mean - self.better_than))
        deals = 2 * log(2 / ALPHA) * max(float(score.values.var()), 0.01) / (distance or FINEST) ** 2
        return min(float(self.most), max(1.0, deals * per_deal))


class SequentialScoreboard(Scoreboard):
    """A scoreboard whose matches stop by a rule; the number of games that `results` receives is ignored."""

    rule: StopRule

    def results(self, players: Sequence[Player], games: int, index: int) -> list[Result]:
        if self._certain(players):
            return super().results(players, games, index)  # the same games again and again
        seats = self.spec.seats
        per_deal = seats if len(self.spec.roles) == 1 and seats > 1 else 1
        scores, wins = ([self.rule.sequence() for _ in players] for _ in range(2))
        rotations: list[Rotation] = []
        played, share, batch, deals = 0, 0.0, 0, 0
        while played < self.rule.most and not (played and all(map(self.rule.decided, scores))):
            size = self._batch(played, per_deal)
            needed = self.rule.expected_games(scores[0], per_deal) if played else 10 * size
            until = min(1.0, (played + size) / needed)
            with PROGRESS.part(share, max(share, until)):
                new = self._rotations(players, size, index | batch << BATCH_SHIFT)
            if all(rotation.repeats for rotation in new):
                return [self._result(players, player, new) for player in range(len(players))]
            rotations += [replace(rotation, first_deal=deals) for rotation in new]
            for player, (score, win) in enumerate(zip(scores, wins)):
                values = deal_values(new, player)
                score.add(values)
                win.add(deal_values(new, player, draw=0.0))
            played, share, batch = played + size, max(share, until), batch + 1
            deals += size // per_deal
        return [always_valid(self._result(players, player, rotations), score, win)
                for player, (score, win) in enumerate(zip(scores, wins))]

    def _batch(self, played: int, per_deal: int) -> int:
        """Games of the next batch: whole deals."""
        wanted = min(LARGEST_BATCH, max(FIRST_BATCH, int(GROWTH * played)), self.rule.most - played)
        return max(per_deal, wanted - wanted % per_deal)


def deal_values(rotations: Sequence[Rotation], player: int, draw: float = 0.5) -> NDArray[Any]:
    """[deals] the mean score of a player over the games of each deal; a draw counts `draw`."""
    outcome = np.stack([rotation.column("outcome", player) for rotation in rotations])
    values = np.where(outcome > 0.75, 1.0, np.where(outcome >= 0.25, draw, 0.0))
    return np.asarray(values.mean(0))


def always_valid(result: Result, score: ConfidenceSequence, win: ConfidenceSequence) -> Result:
    """The result with always-valid intervals; means that have none lose the interval for fixed games."""
    return replace(result, bounds=(score.low, score.high), win_bounds=(win.low, win.high),
                   returned=without_interval(result.returned), margin=without_interval(result.margin))


def without_interval(mean: Mean | None) -> Mean | None:
    return None if mean is None else replace(mean, low=None, high=None)
