"""Evaluate a run's newest policies against the scripted players of its world."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rematch import api
from rematch.core.errors import ConfigError
from rematch.core.spec import Spec
from rematch.core.system.progress import PROGRESS
from rematch.evaluation import evaluator
from rematch.evaluation.evaluation import Evaluation as Record
from rematch.evaluation.evaluation import read_history
from rematch.evaluation.match import PlayElsewhere, Scoreboard
from rematch.evaluation.sequential_match import SequentialScoreboard, StopRule
from rematch.evaluation.text import match_cells
from rematch.evaluation.verdict import verdict
from rematch.reporting import text, tournament_text
from rematch.reporting.result import Block, Result, Table
from rematch.verbs.arguments import MOST_GAMES, MOST_SEED, check_integer, check_picture_file, folder_of
from rematch.worlds import registry
from rematch.worlds.game import Game

if TYPE_CHECKING:
    from rematch.verbs.on_cluster.match_shards import MatchShards

# Other random streams than those of training and its evaluations: no policy was selected on these games.
SEED_OFFSET = 1 << 40
BEST_BOT_INDEX = 1 << 20  # first index of the matches between scripted players; policies play other games


class Evaluation(Result):
    """Results of matches: every score with its number of games and its 95 % interval."""

    def lines(self, width: int | None = None) -> list[str]:
        return tournament_text.lines(self)

    def blocks(self) -> Iterator[Block]:
        yield self.lines()[0]
        rows = match_cells(self)
        compared = any("best_bot" in entry for entry in self["table"])
        if len(rows) > 1:
            yield Table([row if compared else row[:5] for row in rows], right=(2, 3))
        for role, ranked in (self.get("role_ranking") or {"": self.get("ranking")}).items():
            if ranked:
                yield f"Ranking of {role}" if role else "Ranking"
                yield Table(tournament_text.ranking_cells(ranked), right=(0, 2, 4))
        if self.get("returns"):
            yield Table(text.return_cells(self), right=(1, 2))
        if self.get("verdict"):
            yield f"Verdict: {self['verdict']}"
        yield from tournament_text.repeat_lines(self)
        yield from tournament_text.forfeit_lines(self)


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Options of `evaluate` that are seldom needed."""

    until: float | None = None  # stop a match when its score's interval has this half-width
    better_than: float | None = None  # stop a match when its score's interval is on one side of this
    # A PNG file for the start positions that the policies lose to exact best responses, in worlds that can
    # be solved.
    picture: Path | str | None = None


def evaluate(
    run: Path | str,
    *,
    against: Sequence[str] = (),
    games: int | None = None,
    seed: int = 0,
    greedy: bool = False,
    options: EvaluationOptions | None = None,
    shards: MatchShards | None = None,
) -> Evaluation:
    """Play a run's newest policies against scripted players (all of them, or those of `against`).

    `games` is the number of games of each match; the world has a default. Policies sample their actions, or
    take the most likely one where `greedy`.

    With `until` or `better_than` among the `options`, the results decide when a match stops, and `games` is
    the largest number of games. Such intervals are always valid: they hold at every stop. `shards`
    (verbs/on_cluster/match_shards.py) plays the games on a cluster; the results are the same.
    """
    check_size(games, seed)
    folder, rare = folder_of(run), options or EvaluationOptions()
    file = None if rare.picture is None else check_picture_file(rare.picture)
    trained, game = deployed(folder, greedy)
    draw = game.solver.picture if game.solver is not None else None
    if file is not None and draw is None:
        raise ConfigError(f"--picture: {trained.config.game} has no exact best responses")
    rule = stop_rule(games, rare.until, rare.better_than)
    elsewhere = shards.of_run(trained, seed, greedy) if shards is not None else None
    row = scoreboard_row(trained, game, (games or game.defaults.evaluation_games, against, seed), rule,
                         elsewhere)
    row |= {"run": str(folder), "step": trained.step, "play": "greedy" if greedy else "sampled"}
    if level := trained.curriculum:
        row |= {"level": level.level, "level_name": level.name}
    history = [] if greedy else trained.history  # the evaluations of a run are of sampled play
    row["verdict"] = verdict([*read_history(history), Record.from_json(row)], trained.config.evaluation)
    if file is not None and draw is not None:
        file.write_bytes(draw(trained.config.world, trained.policies, trained.config.threads))
    return Evaluation(row)


def scoreboard_row(
    trained: api.Trained, game: Game, matches: tuple[int, Sequence[str], int], rule: StopRule | None = None,
    elsewhere: PlayElsewhere | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The scoreboard of the policies, each line with the score of the best scripted player.

    `matches`: games of each match, opponents (empty: all), seed. The baselines play that number of games.
    """
    games, against, seed = matches
    evaluator.check_bot_names(game, against, "--against")
    board = run_board(trained, game, seed)
    spec, board.play_elsewhere = board.spec, elsewhere
    with PROGRESS.part(0.0, own_share(game, spec, rule)):
        own_board = board if rule is None else sequential_board(board, rule, game)
        row = evaluator.evaluate(own_board, game, spec, trained.policies, (games, against, 0))
    board.random = True  # a baseline needs no exact number of different games
    with PROGRESS.part(own_share(game, spec, rule), 1.0):
        best = evaluator.best_bots(board, game, spec, (games, against, BEST_BOT_INDEX))
    evaluator.attach_best_bots(row, best)
    return row | stop_fields(rule, row["table"])


def run_board(trained: api.Trained, game: Game, seed: int) -> Scoreboard:
    """The scoreboard of a run's policies, on the level that the training has reached."""
    make = api.world_builder(trained.config, trained.curriculum)
    random = game.random(trained.config.world)
    return Scoreboard(make, SEED_OFFSET + seed, trained.config.threads, random)


def own_share(game: Game, spec: Spec, rule: StopRule | None) -> float:
    """About the share of the time that the policies play; the rest are matches of scripted players."""
    bots = max(len(names) for names in game.bots.values()) if game.bots else 1
    return 0.9 if rule is not None else 1 / (2 + bots)


def stop_rule(games: int | None, until: float | None, better_than: float | None) -> StopRule | None:
    """The rule of `until` and `better_than`; None where every match has its fixed number of games."""
    if until is None and better_than is None:
        return None
    if until is not None and better_than is not None:
        raise ConfigError("--until and --better-than: each decides when a match stops; expected one of them")
    for name, value, high in (("--until", until, 0.5), ("--better-than", better_than, 1.0)):
        if value is not None and not 0 < value < high:
            raise ConfigError(f"{name} = {value:g}: expected a number between 0 and {high:g}")
    return StopRule(most=games or MOST_GAMES, until=until, better_than=better_than)


def sequential_board(board: Scoreboard, rule: StopRule, game: Game) -> SequentialScoreboard:
    """The scoreboard with matches that stop by the rule; ConfigError in a world without opponents."""
    if board.spec.seats == 1:
        raise ConfigError(f"--until and --better-than need opponents; {game.name} has one seat")
    sequential = SequentialScoreboard(board.make, board.seed, board.threads, board.random)
    sequential.rule, sequential.play_elsewhere = rule, board.play_elsewhere
    return sequential


def stop_fields(rule: StopRule | None, table: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a result says about its stop rule; every match of these rows is decided or not."""
    if rule is None:
        return {}
    if rule.better_than is None:
        return {"until": rule.until}
    for row in table:
        row["better"] = row["low"] > rule.better_than
        row["decided"] = row["better"] or row["high"] < rule.better_than
    return {"better_than": rule.better_than}


def check_size(games: int | None, seed: int) -> None:
    if games is not None:
        check_integer("games", games, 1, MOST_GAMES)
    check_integer("seed", seed, 0, MOST_SEED)


def deployed(folder: Path, greedy: bool) -> tuple[api.Trained, Game]:
    """A run or a policy file with its world; its policies sample or are greedy."""
    trained = api.load(folder)
    game, roles = registry.find(trained.config.game), list(trained.policies)
    missing = [role for role in game.spec(trained.config.world).roles if role not in roles]
    if missing:
        raise ConfigError(f"{folder} plays {', '.join(roles)} only, and no player has the role "
                          f"{', '.join(missing)}; expected rematch eval {game.name} --players with a name "
                          "for each")
    for policy in trained.policies.values():
        policy.greedy = greedy
    return trained, game
