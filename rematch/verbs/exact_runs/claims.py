"""The claims of a policy's card: results of matches, game by game, which anyone can play again.

`rematch export --games N` writes them into FILE.json beside the weights. A claim holds the seed and the
result of every game; the numbers of a game and the players determine it, so a random part can be checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rematch.core.player import Player
from rematch.core.run_config import Config
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.evaluator import bots_for, opposing_roles, versus
from rematch.evaluation.game_results import GameResults, games_per_seating, play_games, play_one
from rematch.evaluation.match import Scoreboard
from rematch.evaluation.statistics import effective_games, mean_interval, wilson
from rematch.training.fingerprint import fingerprint
from rematch.training.trained_run import world_builder
from rematch.verbs.evaluate import SEED_OFFSET
from rematch.worlds import registry

CLAIMS = "claims"  # key in the metadata of a policy
LETTERS = {1.0: "w", 0.5: "d", 0.0: "l"}  # won, drawn, lost; another outcome (a shared win) is "s"
SHARED = "s"
MOST_CLAIMED = 10_000  # games of one match in a card


@dataclass(frozen=True)
class Table:
    """A policy, its opponents by name, and the board of their games."""

    board: Scoreboard
    role: str
    policy: Player
    opponents: Mapping[str, Player | None]  # None: a world with one seat

    @classmethod
    def of(cls, config: Config, role: str, policy: Player, seed: int) -> Table:
        make = world_builder(config)
        board = Scoreboard(make, SEED_OFFSET + seed, config.threads)
        game, spec = registry.find(config.game), board.spec
        if spec.seats == 1:
            return cls(board, role, policy, {"": None})
        names = [bot for other in opposing_roles(spec, role) for bot in bots_for(game, other, ())]
        return cls(board, role, policy, {bot.name: bot for bot in names})

    def seats(self, opponent: str) -> tuple[list[Player], int]:
        """Players by seat, and the seat of the policy."""
        bot, spec = self.opponents[opponent], self.board.spec
        if bot is None:
            return [self.policy], 0
        place = spec.roles[self.role].seats[0] if len(spec.roles) > 1 else 0
        return versus(spec, self.policy, self.role, bot), place

    def index(self, opponent: str) -> int:
        return list(self.opponents).index(opponent)

    def play(self, opponent: str, games: int) -> GameResults:
        seats, place = self.seats(opponent)
        return play_games(self.board, seats, place, games, self.index(opponent))

    def replay(self, opponent: str, games: int, number: int) -> Any:
        """The result of game `number` of a match of `games` games, as a claim holds it."""
        seats, place = self.seats(opponent)
        for turn, share in enumerate(games_per_seating(self.board.spec, games)):
            if number < share:
                outcome, returned = play_one(self.board, seats, place, (turn, number), self.index(opponent))
                return returned if self.opponents[opponent] is None else letter(outcome)
            number -= share
        raise AssertionError("a game that the match does not have")


def letter(outcome: float) -> str:
    return LETTERS.get(outcome, SHARED)


def make_claims(config: Config, role: str, policy: Player, games: int, seed: int) -> dict[str, Any]:
    """The claims of a policy: a match of `games` games with every scripted opponent, policies sampling."""
    table = Table.of(config, role, policy, seed)
    matches = []
    for opponent in PROGRESS.each(list(table.opponents)):
        played = table.play(opponent, games)
        matches.append({"opponent": opponent, "games": played.n, **summary(played, table, opponent)})
    return {"seed": seed, "fingerprint": fingerprint(config), "matches": matches}


def summary(played: GameResults, table: Table, opponent: str) -> dict[str, Any]:
    """The results of all games, and their mean with its 95 % interval."""
    if table.opponents[opponent] is None:
        mean = mean_interval(played.returns)
        return {"results": played.returns.tolist(), "mean": mean.mean, "low": mean.low, "high": mean.high}
    mirrored = len(games_per_seating(table.board.spec, played.n)) > 1
    n = effective_games(played.outcome, played.deal) if mirrored else played.n
    score = float(played.outcome.mean())
    low, high = wilson(score * n, n)
    results = "".join(letter(float(outcome)) for outcome in played.outcome)
    return {"results": results, "score": score, "low": low, "high": high}


def consistent(match: Mapping[str, Any]) -> bool:
    """Whether the score of a claim follows from its games, as far as each has a letter of its own."""
    results: str | Sequence[float] = match["results"]
    if not isinstance(results, str):
        near = abs(sum(results) / len(results) - match["mean"]) < 1e-6
        return len(results) == match["games"] and bool(near)
    if len(results) != match["games"] or set(results) - {*LETTERS.values(), SHARED}:
        return False
    if SHARED in results:  # the value of a shared win is not in the card
        return True
    values = {text: value for value, text in LETTERS.items()}
    return bool(abs(sum(values[text] for text in results) / len(results) - match["score"]) < 1e-6)
