"""Round-robin tournaments: every player meets every other one; a ranking with Elo ratings.

Elo ratings are those of Bradley and Terry (1952): a player with d points more scores 1 / (1 + 10^(-d/400)) on
average. They are fitted to the scores of all pairs by maximum likelihood; half a win and half a loss are
added to every pair (Jeffreys' prior), so that a player without a loss has a finite rating. Their standard
errors follow from those of the scores by the implicit function theorem. The mean rating is 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from math import hypot, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.player import Player
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.confidence_sequence import asymptotic_half_width
from rematch.evaluation.match import Result, Rotation, Scoreboard
from rematch.evaluation.sequential_match import BATCH_SHIFT, FIRST_BATCH, GROWTH, LARGEST_BATCH
from rematch.evaluation.statistics import Z95

Row = Mapping[str, Any]
Reals = NDArray[np.float64]

ELO = 400 / log(10)  # points per unit of log-odds
SEVERAL_SEATS = re.compile(r"^[0-9]+ x ")
NEWTON_STEPS, LARGEST_STEP = 100, 1.0  # of the fit; log-odds
PLANNED_WIDTH = 3.0  # half-width of an always-valid interval near its planned size, in standard errors


# --- ratings ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """A player's place: Elo rating and mean score over the opponents, with 95 % intervals."""

    player: str
    score: float
    low: float
    high: float
    elo: float | None = None  # None: the game has more than two seats
    elo_low: float | None = None
    elo_high: float | None = None


def fit_ratings(scores: Reals, variances: Reals) -> tuple[Reals, Reals]:
    """Elo ratings [k] and their standard errors [k], from the scores [k, k] of i against j.

    `variances` [k, k] are those of the scores; the diagonals are ignored.
    """
    k = len(scores)
    off = ~np.eye(k, dtype=bool)
    theta = np.zeros(k)
    for _ in range(NEWTON_STEPS):
        expected = 1 / (1 + np.exp(theta[None, :] - theta[:, None]))
        slope = expected * (1 - expected) * off
        gradient = ((scores - expected) * off).sum(1)
        curvature = np.diag(slope.sum(1)) - slope
        step = np.linalg.pinv(curvature) @ gradient
        theta += step * min(1.0, LARGEST_STEP / max(float(np.abs(step).max()), 1e-12))
        if float(np.abs(step).max()) < 1e-10:
            break
    inverse = np.linalg.pinv(curvature)
    spread = np.diag((variances * off).sum(1)) - variances * off  # covariance of the sums of scores
    errors = np.sqrt(np.maximum(np.diag(inverse @ spread @ inverse.T), 0.0))
    return ELO * (theta - theta.mean()), ELO * errors


def opponent_of(row: Row) -> str:
    """The opponent's name: "queue" of "3 x queue", which plays all other seats."""
    return SEVERAL_SEATS.sub("", row["rival"])


def pair_matrices(table: Sequence[Row], names: Sequence[str]) -> tuple[Reals, Reals]:
    """Scores and their variances [k, k] from the rows of a table, with Jeffreys' prior."""
    k = len(names)
    scores, variances = np.full((k, k), 0.5), np.zeros((k, k))
    place = {name: index for index, name in enumerate(names)}
    for row in table:
        i, j = place[row["player"]], place[opponent_of(row)]
        n = float(row.get("effective") or row["games"])
        mean = (row["score"] * n + 0.5) / (n + 1)
        scores[i, j], variances[i, j] = mean, mean * (1 - mean) / (n + 1)
    return scores, variances


def is_round_robin(table: Sequence[Row]) -> bool:
    """Whether at least three players met each other in pairs, so that a ranking makes sense."""
    pairs = {(row["player"], opponent_of(row)) for row in table}
    players = {player for player, _ in pairs}
    complete = len(pairs) == len(players) * (len(players) - 1)
    return len(players) > 2 and complete and all((rival, player) in pairs for player, rival in pairs)


def mean_standing(rows: Sequence[Row], width: float) -> Standing:
    """The mean score of one player's rows, without a rating."""
    mean = sum(row["score"] for row in rows) / len(rows)
    half = width / Z95 * hypot(*[(row["high"] - row["low"]) / 2 for row in rows]) / len(rows)
    return Standing(rows[0]["player"], mean, max(0.0, mean - half), min(1.0, mean + half))


def standings(table: Sequence[Row], width: float = Z95) -> list[Standing]:
    """The players of a round robin, best first; `width`: half-width of the intervals in standard errors.

    The matches of a player are independent: the half-width of the mean of k scores is the root of the sum of
    the squared half-widths, divided by k.
    """
    names = list(dict.fromkeys(row["player"] for row in table))
    by_pair = {(row["player"], opponent_of(row)): row["score"] for row in table}
    two_seats = all(abs(score + by_pair.get((j, i), -1.0) - 1) < 1e-6 for (i, j), score in by_pair.items())
    elo, errors = fit_ratings(*pair_matrices(table, names)) if two_seats else (None, None)
    out = []
    for index, name in enumerate(names):
        standing = mean_standing([row for row in table if row["player"] == name], width)
        if elo is not None and errors is not None:
            rating, error = float(elo[index]), float(errors[index])
            standing = replace(standing, elo=rating, elo_low=rating - width * error,
                               elo_high=rating + width * error)
        out.append(standing)
    return sorted(out, key=lambda entry: (-entry.score, entry.player))


# --- players of two roles -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoleStandings:
    """Players of two roles that met each other: a ranking of each role, and the advantage of the first role.

    The score of i against j is 1 / (1 + 10^(-(a + r_i - s_j) / 400)): a is the advantage, and the ratings r
    and s have mean 0 in each role. Ratings of different roles cannot be compared.
    """

    roles: tuple[str, str]
    rankings: tuple[list[Standing], list[Standing]]
    advantage: float  # Elo points
    advantage_low: float
    advantage_high: float

    def to_dict(self) -> dict[str, Any]:
        ranked = {role: [asdict(entry) for entry in ranking]
                  for role, ranking in zip(self.roles, self.rankings)}
        advantage = {"role": self.roles[0], "elo": self.advantage, "elo_low": self.advantage_low,
                     "elo_high": self.advantage_high}
        return {"role_ranking": ranked, "role_advantage": advantage}


def fit_roles(scores: Reals, variances: Reals) -> tuple[Reals, Reals]:
    """Advantage and ratings [1 + p + q] in Elo points, and their standard errors, from scores [p, q].

    The model has one parameter for the advantage and one per player; the solution of least norm is centred,
    which changes no expected score.
    """
    p, q = scores.shape
    design = np.zeros((p * q, 1 + p + q))
    for row, (i, j) in enumerate(np.ndindex(p, q)):
        design[row, [0, 1 + i, 1 + p + j]] = 1.0, 1.0, -1.0
    theta = np.zeros(1 + p + q)
    for _ in range(NEWTON_STEPS):
        expected = 1 / (1 + np.exp(-design @ theta))
        inverse = np.linalg.pinv(design.T @ ((expected * (1 - expected))[:, None] * design))
        step = inverse @ design.T @ (scores.ravel() - expected)
        theta += step * min(1.0, LARGEST_STEP / max(float(np.abs(step).max()), 1e-12))
        if float(np.abs(step).max()) < 1e-10:
            break
    centre = np.eye(1 + p + q)
    first, second = slice(1, 1 + p), slice(1 + p, None)
    centre[first, first] -= 1 / p
    centre[second, second] -= 1 / q
    centre[0, first], centre[0, second] = 1 / p, -1 / q
    covariance = inverse @ design.T @ (variances.ravel()[:, None] * design) @ inverse
    errors = np.sqrt(np.maximum(np.diag(centre @ covariance @ centre.T), 0.0))
    return ELO * centre @ theta, ELO * errors


def role_standings(table: Sequence[Row], roles: tuple[str, str]) -> RoleStandings:
    """The rankings of two roles from the rows of a table in which every pair met."""
    names = [list(dict.fromkeys(row["player"] for row in table if row["role"] == role)) for role in roles]
    rows = [row for row in table if row["role"] == roles[0]]
    scores, variances = np.full((len(names[0]), len(names[1])), 0.5), np.zeros((len(names[0]), len(names[1])))
    for row in rows:
        at = names[0].index(row["player"]), names[1].index(row["rival"])
        n = float(row["games"])
        mean = (row["score"] * n + 0.5) / (n + 1)
        scores[at], variances[at] = mean, mean * (1 - mean) / (n + 1)
    ratings, errors = fit_roles(scores, variances)
    rankings = []
    for role, players, first in zip(roles, names, (1, 1 + len(names[0]))):
        entries = [mean_standing([row for row in table if (row["role"], row["player"]) == (role, name)], Z95)
                   for name in players]
        rated = [replace(entry, elo=float(elo), elo_low=float(elo - Z95 * error),
                         elo_high=float(elo + Z95 * error))
                 for entry, elo, error in zip(entries, ratings[first:], errors[first:])]
        rankings.append(sorted(rated, key=lambda entry: (-entry.score, entry.player)))
    half = float(Z95 * errors[0])
    advantage = float(ratings[0])
    return RoleStandings(roles, (rankings[0], rankings[1]), advantage, advantage - half, advantage + half)


# --- playing until the ratings are precise ----------------------------------------------------------------


@dataclass(frozen=True)
class RoundRobin:
    """Every pair plays the same number of games, in batches, until all ratings are known to `until` points.

    The intervals are always valid, so that stopping does not make them wrong.
    """

    board: Scoreboard
    players: Mapping[str, Player]
    until: float  # half-width of every Elo interval
    most: int  # games of every pair

    def play(self) -> tuple[list[Result], float]:
        """The results of all pairs, both sides of each, and the half-width of intervals in standard errors.
        """
        pairs = list(combinations(self.players, 2))
        rotations: dict[tuple[str, str], list[Rotation]] = {pair: [] for pair in pairs}
        played = batch = 0
        share, width = 0.0, Z95
        results: list[Result] = []
        while True:
            size = min(LARGEST_BATCH, max(FIRST_BATCH, int(GROWTH * played)), self.most - played) // 2 * 2
            goal = min(1.0, max(share + 0.01, (played + size) / self._expected(played, results)))
            with PROGRESS.part(share, goal):
                for index, pair in PROGRESS.each(list(enumerate(pairs))):
                    new = self.board._rotations(self._seated(pair), size, index | batch << BATCH_SHIFT)
                    repeats = all(each.repeats for each in new)
                    if not (repeats and rotations[pair]):  # more games would be the same
                        rotations[pair] += [replace(each, first_deal=played // 2) for each in new]
            played, batch, share = played + size, batch + 1, goal
            results = list(self._results(rotations))
            width = sqrt(played / 2) * asymptotic_half_width(played // 2, self._planned_deals())
            certain = all(result.repeats for result in results)
            if certain or self._precision(results, width) <= self.until or self.most - played < 2:
                return results, width

    def _seated(self, pair: tuple[str, str]) -> list[Player]:
        return [self.players[name] for name in pair]

    def _results(self, rotations: Mapping[tuple[str, str], list[Rotation]]) -> Iterator[Result]:
        for pair, played in rotations.items():
            for side in (0, 1):
                yield self.board._result(self._seated(pair), side, played)

    def _precision(self, results: Sequence[Result], width: float) -> float:
        """The half-width of the widest Elo interval."""
        ranked = standings([result.row() for result in results], width)
        return max(((entry.elo_high or 0.0) - (entry.elo_low or 0.0)) / 2 for entry in ranked)

    def _planned_deals(self) -> int:
        """Deals of a pair after which even players are known to `until`: fixed before the first game."""
        opponents = len(self.players) - 1
        even = ELO * 2 / sqrt(2 * opponents)  # standard error with one deal of two games
        return max(1, round((PLANNED_WIDTH * even / self.until) ** 2))

    def _expected(self, played: int, results: Sequence[Result]) -> float:
        """About how many games a pair needs, by the results so far."""
        games = 2.0 * self._planned_deals()
        if played:
            games = played * (self._precision(results, PLANNED_WIDTH) / self.until) ** 2
        return min(float(self.most), max(games, 1.0))
