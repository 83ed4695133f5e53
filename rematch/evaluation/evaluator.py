"""Evaluations: the current policies against each other and against every bot, with intervals.

Policies sample their actions, as in use after training. The games have random streams that training never
uses, and no policy is selected by their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rematch.core.config import knob, nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Player, StochasticPlayer
from rematch.core.spec import Spec
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.match import Result, Scoreboard
from rematch.evaluation.statistics import Mean, wilson
from rematch.worlds.game import Game


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Evaluations during the run: frequency, opponents and alarms."""

    every: int = knob(
        20, "iterations between evaluations; the last iteration always has one", unit="iterations", low=1
    )
    games: int = knob(
        1000, "games per pairing; 1000 games give a 95 % interval of about 0.06. Where a curriculum advances "
        "by the bound of the gap, the default is at least the number with which a perfectly even pair meets "
        "curriculum.gap_threshold, gap_consecutive times in a row, with probability 0.9: for 2 in a row 700 "
        "games at 0.15, 1550 at 0.1, 6100 at 0.05", unit="games", low=1, high=100_000,
    )  # fmt: skip
    max_steps: int = knob(
        0, "steps of a match, all its games together, at most; where the longest game is known, fewer games "
        "are played, otherwise games are broken off and count half a point; 0: the world's own limit",
        unit="steps", low=0,
    )  # fmt: skip
    opponents: tuple[str, ...] = knob((), "bots to evaluate against, by name; empty: all but the slow ones")
    alarm_gap: float = knob(
        0.80, "gap between the roles' win rates above which an alarm is raised once it lasts alarm_steps",
        unit="fraction", low=0, high=1,
    )  # fmt: skip
    alarm_steps: int = knob(500_000, "steps that the gap must last before the alarm", unit="steps", low=0)
    alarm_swing: float = knob(
        0.70, "change of a win rate between two evaluations above which an alarm is raised", unit="fraction",
        low=0, high=1,
    )  # fmt: skip


HEAD_TO_HEAD = 0.1  # share of an evaluation's time that the roles play each other, about
# Games per match, the bots to play against (empty: all but the slow ones), index of the first match.
MatchRequest = tuple[int, Sequence[str], int]
Pairing = tuple[str, Player, list[Player]]  # role of the player, bot, players by seat


def limited_games(config: EvaluationConfig, game: Game, world: Any) -> tuple[int, int]:
    """Games of a match and its limit of steps; `world` has the settings of the world.

    Games are whole where the world knows its longest game: then as many are played as the limit allows.
    """
    limit, longest = config.max_steps or game.defaults.evaluation_steps, game.defaults.longest_game
    if longest is None:
        return config.games, limit
    games = max(1, min(config.games, limit // longest(world)))
    return games, max(limit, games * longest(world))


def bots_for(game: Game, role: str, wanted: Sequence[str]) -> list[Player]:
    """The bots of a role: those in `wanted`, or all but the slow ones if it is empty."""
    names = game.bot_names(role)
    slow = game.defaults.slow_bots
    return [game.bot(name, role) for name in names if name in wanted or not (wanted or name in slow)]


def check_bot_names(game: Game, wanted: Sequence[str], key: str) -> None:
    """ConfigError if the setting `key` names a bot that the game does not have."""
    known = sorted({name for names in game.bots.values() for name in names})
    for name in wanted:
        if name not in known:
            near = nearest(name, known)
            hint = f"; nearest: {near}" if near else ""
            raise ConfigError(f"{key} = {name!r}: expected one of {', '.join(known)}{hint}")


def opposing_roles(spec: Spec, role: str) -> list[str]:
    """The roles that play against `role`: all others, or the same role if there is only one."""
    return [other for other in spec.roles if other != role] or [role]


def versus(spec: Spec, player: Player, role: str, opponent: Player) -> list[Player]:
    """Players by seat: `player` in all seats of its role (the first seat, if there is one role).

    All other seats are the opponent's.
    """
    player_seats = spec.roles[role].seats if len(spec.roles) > 1 else spec.roles[role].seats[:1]
    return [player if seat in player_seats else opponent for seat in range(spec.seats)]


def evaluate_single_agent(
    board: Scoreboard, players: Mapping[str, Player], request: MatchRequest
) -> dict[str, dict[str, Any]]:
    """For a world with one seat: role -> mean return, and the success rate if the world reports success."""
    games, _, index = request
    (role, player), = players.items()
    result = board.results([player], games, index)[0]
    entry: dict[str, Any] = asdict(result.returned or Mean(0.0, None, None, 0)) | {"player": player.name}
    if result.unfinished:
        entry["unfinished"] = result.unfinished
    if result.draws < result.games:  # 0.5 in every game: the world reports no success
        low, high = result.interval
        entry |= {"success": result.score, "success_low": low, "success_high": high}
    if result.reached is not None:  # from the world's initial state, also if a curriculum starts elsewhere
        bounds = {name: wilson(count, result.games) for name, count in result.reached.items()}
        entry["milestones"] = {name: {"rate": count / result.games, "low": bounds[name][0],
                                      "high": bounds[name][1], "games": result.games}
                               for name, count in result.reached.items()}
    return {role: entry}


def against_bots(
    board: Scoreboard,
    game: Game,
    spec: Spec,
    players: Mapping[str, Player],
    request: MatchRequest,
    pairings: Sequence[Pairing] | None = None,
) -> list[Result]:
    """One result per player and bot of the opposing roles; `pairings`: those of `bot_pairings`."""
    games, wanted, index = request
    if pairings is None:
        pairings = bot_pairings(game, spec, players, wanted)
    results = []
    for number, (role, bot, seats) in PROGRESS.each(list(enumerate(pairings))):
        result = board.results(seats, games, index + number)[seats.index(players[role])]
        results.append(replace(result, role=role, opponent=bot.name))
    return results


def bot_pairings(
    game: Game, spec: Spec, players: Mapping[str, Player], wanted: Sequence[str]
) -> list[Pairing]:
    """Every player with every bot of the opposing roles."""
    pairs = [(role, bot) for role in players for opposing_role in opposing_roles(spec, role)
             for bot in bots_for(game, opposing_role, wanted)]
    return [(role, bot, versus(spec, players[role], role, bot)) for role, bot in pairs]


def best_bots(board: Scoreboard, game: Game, spec: Spec, request: MatchRequest) -> dict[str, Result]:
    """For each role and bot opponent, the result of the role's best bot against it: role/opponent -> result.

    In a world with one seat: role -> result. The best is chosen on one set of games and reported on another.
    """
    games, wanted, index = request
    best: dict[str, Result] = {}
    trials: list[tuple[float, Player]]  # score or mean return of each candidate
    if spec.seats == 1:
        (role,) = spec.roles
        trials = []
        for candidate in PROGRESS.each(bots_for(game, role, wanted)):
            returned = board.results([candidate], games, index)[0].returned
            trials.append((returned.mean if returned else 0.0, candidate))
            index += 1
        if trials:
            best[role] = board.results([max(trials, key=lambda trial: trial[0])[1]], games, index)[0]
        return best
    pairs = [(role, opponent) for role in spec.roles for opposing_role in opposing_roles(spec, role)
             for opponent in bots_for(game, opposing_role, wanted)]
    trial_matches, at = [], index
    for role, opponent in pairs:
        for candidate in (candidates := bots_for(game, role, ())):
            trial_matches.append((versus(spec, candidate, role, opponent), games, at))
            at += 1
        at += bool(candidates)  # the match of the best one
    board.expect(trial_matches)
    trial_seats = iter(trial_matches)
    for role, opponent in PROGRESS.each(pairs):
        trials = []
        candidates = bots_for(game, role, ())
        for number, candidate in enumerate(candidates):
            with PROGRESS.part(number / (len(candidates) + 1), (number + 1) / (len(candidates) + 1)):
                seats = next(trial_seats)[0]
                result = board.results(seats, games, index)[spec.roles[role].seats[0]]
            trials.append((result.score, candidate))
            index += 1
        if not trials:
            continue  # all bots of the role are slow ones
        champion = max(trials, key=lambda trial: trial[0])[1]
        seats = versus(spec, champion, role, opponent)
        with PROGRESS.part(1 - 1 / (len(candidates) + 1), 1.0):
            best[f"{role}/{opponent.name}"] = board.results(seats, games, index)[seats.index(champion)]
        index += 1
    return best


def attach_best_bots(row: dict[str, Any], best: Mapping[str, Result]) -> None:
    """Add the result of the best bot to each entry of a row of history.json."""
    for role, entry in (row.get("returns") or {}).items():
        if role in best and (returned := best[role].returned):
            entry |= {"best_bot": best[role].player}
            entry |= {f"best_bot_{name}": value for name, value in asdict(returned).items()}
    for entry in row["table"]:
        if top := best.get(f"{entry['role']}/{entry['rival']}"):
            entry |= {"best_bot": top.player, "best_bot_score": top.score}
            entry["best_bot_low"], entry["best_bot_high"] = top.interval


def evaluate(
    board: Scoreboard,
    game: Game,
    spec: Spec,
    players: Mapping[str, Player],
    request: MatchRequest,
) -> dict[str, Any]:
    """The measured part of a row of history.json: win rates head to head, NE gap, matches against bots.

    In a world with one seat, the mean return instead.
    """
    games, wanted, index = request
    row: dict[str, Any] = {"rates": {}}
    if spec.seats == 1:
        return row | {"returns": evaluate_single_agent(board, players, request), "table": []}
    pairings = bot_pairings(game, spec, players, wanted)
    seats = [players[spec.role_of(seat).name] for seat in range(spec.seats)]
    later = [(bot_seats, games, index + 1 + n) for n, (_, _, bot_seats) in enumerate(pairings)]
    board.expect([(seats, games, index), *later])
    if len(spec.roles) == 2:
        with PROGRESS.part(0.0, HEAD_TO_HEAD):
            results = board.results(seats, games, index)
        for role, role_spec in spec.roles.items():
            result = results[role_spec.seats[0]]
            low, high = result.interval
            row["rates"][role] = {"rate": result.score, "low": low, "high": high, "games": result.games}
            if result.unfinished:
                row["rates"][role]["unfinished"] = result.unfinished
            if result.returned:
                row.setdefault("returns", {})[role] = asdict(result.returned)
        first, second = (row["rates"][role]["rate"] for role in spec.roles)
        row["gap"] = abs(first - second)
        low, high = results[spec.roles[next(iter(spec.roles))].seats[0]].interval
        row["gap_low"] = 0.0 if low <= 0.5 <= high else min(abs(2 * low - 1), abs(2 * high - 1))
        row["gap_high"] = max(abs(2 * low - 1), abs(2 * high - 1))
    with PROGRESS.part(HEAD_TO_HEAD if len(spec.roles) == 2 else 0.0, 1.0):
        matches = against_bots(board, game, spec, players, (games, wanted, index + 1), pairings)
    row["table"] = [result.row() for result in matches]
    with PROGRESS.part(1.0, 1.0):
        exact = exactly(board, game, players)
    if exact:
        row["exact"] = exact
    return row


def exactly(board: Scoreboard, game: Game, players: Mapping[str, Player]) -> dict[str, float]:
    """What a world that can be solved says of these players, with "nash_conv"; nothing where it cannot."""
    if game.solver is None or not all(isinstance(player, StochasticPlayer) for player in players.values()):
        return {}
    world: Any = board.make(1, 0, 0)
    return game.solver.nash_conv(world.config, players, board.threads)
