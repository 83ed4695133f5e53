"""Evaluations: the current selves against each other and against every scripted rival, with intervals.

Policies play as they are deployed: sampled. Games are drawn from streams that training never uses, and
nothing is selected by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rematch.core.config import knob, nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Player, StochasticPlayer
from rematch.core.spec import Spec
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
        1000, "games per pairing; 1000 games give a 95 % interval of about 0.06", unit="games", low=1,
        high=100_000,
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


def bots_for(game: Game, role: str, wanted: Sequence[str]) -> list[Player]:
    """The scripted players of a role: those named, or all but the slow ones of a game."""
    names: Sequence[str] = game.bots.get(role, ())
    slow = game.defaults.slow_bots
    return [game.bot(name, role) for name in names if name in wanted or not (wanted or name in slow)]


def check_rivals(game: Game, wanted: Sequence[str], key: str) -> None:
    known = sorted({name for names in game.bots.values() for name in names})
    for name in wanted:
        if name not in known:
            near = nearest(name, known)
            hint = f"; nearest: {near}" if near else ""
            raise ConfigError(f"{key} = {name!r}: expected one of {', '.join(known)}{hint}")


def opponents(spec: Spec, role: str) -> list[str]:
    """The roles a player of `role` meets: the others, or its own where there is only one."""
    return [other for other in spec.roles if other != role] or [role]


def versus(spec: Spec, me: Player, role: str, rival: Player) -> list[Player]:
    """Players by seat: `me` wherever its role sits (the first seat, if there is one role), else `rival`."""
    mine = spec.roles[role].seats if len(spec.roles) > 1 else spec.roles[role].seats[:1]
    return [me if seat in mine else rival for seat in range(spec.seats)]


def alone(
    board: Scoreboard, players: Mapping[str, Player], ask: tuple[int, Sequence[str], int]
) -> dict[str, dict[str, Any]]:
    """Where one seat is all there is: role -> mean return, and how often the task was done, if it says so."""
    games, _, index = ask
    (role, player), = players.items()
    result = board.results([player], games, index)[0]
    entry: dict[str, Any] = asdict(result.returned or Mean(0.0, None, None, 0)) | {"player": player.name}
    if result.draws < result.games:  # 0.5 in every game: the world does not tell success from failure
        low, high = result.interval
        entry |= {"success": result.score, "success_low": low, "success_high": high}
    if result.reached is not None:  # from the world's own beginning, whatever a curriculum's starts are
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
    ask: tuple[int, Sequence[str], int],
) -> list[Result]:
    """A row per player and scripted rival. ask: (games, names of rivals, first match index)."""
    games, wanted, index = ask
    rows = []
    for role, player in players.items():
        for other in opponents(spec, role):
            for rival in bots_for(game, other, wanted):
                seats = versus(spec, player, role, rival)
                result = board.results(seats, games, index)[seats.index(player)]
                rows.append(replace(result, role=role, opponent=rival.name))
                index += 1
    return rows


def best_scripted(
    board: Scoreboard, game: Game, spec: Spec, ask: tuple[int, Sequence[str], int]
) -> dict[str, Result]:
    """For each rival, the scripted player of the facing role that does best against it: role/rival -> row.

    The best is chosen on one set of games and reported on another.
    """
    games, wanted, index = ask
    best: dict[str, Result] = {}
    if spec.seats == 1:
        (role,) = spec.roles
        found = []
        for candidate in bots_for(game, role, wanted):
            returned = board.results([candidate], games, index)[0].returned
            found.append((returned.mean if returned else 0.0, candidate))
            index += 1
        if found:
            best[role] = board.results([max(found, key=lambda trial: trial[0])[1]], games, index)[0]
        return best
    for role in spec.roles:
        for other in opponents(spec, role):
            for rival in bots_for(game, other, wanted):
                trials = []
                for candidate in bots_for(game, role, ()):
                    seats = versus(spec, candidate, role, rival)
                    trials.append(
                        (board.results(seats, games, index)[seats.index(candidate)].score, candidate)
                    )
                    index += 1
                if not trials:
                    continue  # the role has no scripted player that is quick enough
                champion = max(trials, key=lambda trial: trial[0])[1]
                seats = versus(spec, champion, role, rival)
                best[f"{role}/{rival.name}"] = board.results(seats, games, index)[seats.index(champion)]
                index += 1
    return best


def set_beside(row: dict[str, Any], best: Mapping[str, Result]) -> None:
    """Put what the best scripted player reaches beside each entry of a row's table."""
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
    ask: tuple[int, Sequence[str], int],
) -> dict[str, Any]:
    """One history row's strength part: head to head, gap, and the table against scripted rivals.

    Where one seat is all there is, the mean return instead.
    """
    games, wanted, index = ask
    row: dict[str, Any] = {"rates": {}}
    if spec.seats == 1:
        return row | {"returns": alone(board, players, ask), "table": []}
    if len(spec.roles) == 2:
        seats = [players[spec.role_of(seat).name] for seat in range(spec.seats)]
        results = board.results(seats, games, index)
        for role, role_spec in spec.roles.items():
            mine = results[role_spec.seats[0]]
            low, high = mine.interval
            row["rates"][role] = {"rate": mine.score, "low": low, "high": high, "games": mine.games}
            if mine.returned:
                row.setdefault("returns", {})[role] = asdict(mine.returned)
        first, second = (row["rates"][role]["rate"] for role in spec.roles)
        row["gap"] = abs(first - second)
        low, high = wilson(first * games, games)
        row["gap_low"] = 0.0 if low <= 0.5 <= high else min(abs(2 * low - 1), abs(2 * high - 1))
        row["gap_high"] = max(abs(2 * low - 1), abs(2 * high - 1))
    table = against_bots(board, game, spec, players, (games, wanted, index + 1))
    row["table"] = [result.row() for result in table]
    if found := exactly(board, game, players):
        row["exact"] = found
    return row


def exactly(board: Scoreboard, game: Game, players: Mapping[str, Player]) -> dict[str, float]:
    """What a world that can be solved says of these players, with "nash_conv"; nothing where it cannot."""
    if game.solver is None or not all(isinstance(player, StochasticPlayer) for player in players.values()):
        return {}
    world: Any = board.make(1, 0, 0)
    return game.solver.nash_conv(world.config, players, board.threads)
