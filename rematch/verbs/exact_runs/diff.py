"""Compare two runs: settings, metrics, and their agents in the same games."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch import api
from rematch.core import config as settings
from rematch.core.errors import ConfigError, RunError
from rematch.core.player import Player
from rematch.core.run_config import Config
from rematch.core.spec import Spec
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.evaluation import Evaluation
from rematch.evaluation.evaluator import bots_for, check_bot_names, opposing_roles, versus
from rematch.evaluation.game_results import compare, play_games
from rematch.evaluation.match import Scoreboard
from rematch.evaluation.text import clean, human, number
from rematch.reporting import untrusted_folder
from rematch.reporting.result import Block, Result, Table
from rematch.storage import lineage
from rematch.storage.run_folder import METRICS_FILE
from rematch.sweeps.results import measures
from rematch.training.player_lookup import TrainedPlayers, load_past
from rematch.verbs.arguments import folder_of
from rematch.verbs.evaluate import SEED_OFFSET, check_size
from rematch.worlds import registry
from rematch.worlds.game import Game

RECENT = 20  # iterations whose mean is compared
MOST_METRICS = 25  # rows of the table; --json has them all
MOST_VALUE = 40  # characters of a setting's value in the table


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two runs or policies that are compared."""

    name: str
    config: Config
    players: Mapping[str, Player]
    step: int | None
    history: Sequence[dict[str, Any]] = ()
    metrics: Sequence[bytes] = ()  # lines of metrics.jsonl, each a row
    origin: Sequence[str] = ()  # its lineage


class RunDifference(Result):
    """The differences of two runs, and a paired comparison of their agents."""

    def blocks(self) -> Iterator[Block]:
        one, two = self["names"]
        for name, origin in zip(self["names"], self["lineage"]):
            yield from (clean(f"{name} was {sentence}") for sentence in origin)
        if self["settings"]:
            rows = [[row["key"], _value(row["values"][0]), _value(row["values"][1])]
                    for row in self["settings"]]
            yield Table([("setting", one, two), *rows])
        else:
            yield "All settings are equal."
        if self["equal_until"] is not None:
            yield f"The logged metrics are equal to the bit up to iteration {self['equal_until']}."
        yield ""
        if self["measures"]:
            yield Table([("newest evaluation", one, two), *(_measure(row) for row in self["measures"])])
        rows = [[row["name"], *(number(value) for value in row["values"])] for row in self["metrics"]]
        rows = [row for row in rows if row[1] != row[2]][:MOST_METRICS]
        if rows:
            yield Table([(f"mean of the last {RECENT} iterations", one, two), *rows], right=(1, 2))
        yield ""
        yield from self._games()

    def _games(self) -> Iterator[Block]:
        one, two = self["names"]
        if self["not_compared"]:
            yield f"The agents were not compared: {self['not_compared']}"
            return
        yield (f"Agents in the same games (common random numbers), n = {self['games']} for each opponent; "
               f"difference = {one} minus {two}, 95 % interval:")
        head = ("role", "opponent", "n", one, two, "difference", "95 % interval", "better", "correlation")
        rows = []
        for row in self["comparisons"]:
            bounds = f"[{number(row['low'])}, {number(row['high'])}]"
            better = {"first": one, "second": two}.get(row["better"], "level")
            rows.append([row["role"], row["opponent"], str(row["n"]), number(row["first"]),
                         number(row["second"]), f"{row['difference']:+.3f}", bounds, better,
                         number(row["correlation"], 2)])
        yield Table([head, *rows], right=(2, 3, 4, 5))
        yield (f"{len(rows)} comparisons at 95 % each: about one in twenty is wrong by chance. A positive "
               "correlation shows what the same games save.")


def _value(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return clean(text if len(text) <= MOST_VALUE else text[: MOST_VALUE - 3] + "...")


def _measure(row: Mapping[str, Any]) -> list[str]:
    cells = [row["name"]]
    if row["name"] == "step":
        return [*cells, *("-" if entry is None else human(entry["value"]) for entry in row["values"])]
    for entry in row["values"]:
        exact = entry is None or entry.get("low") is None
        bounds = "" if exact else f" [{number(entry['low'])}, {number(entry['high'])}]"
        cells.append("-" if entry is None else f"{number(entry['value'])}{bounds}")
    return cells


def diff(
    first: Path | str,
    second: Path | str,
    *,
    games: int | None = None,
    against: Sequence[str] = (),
    seed: int = 0,
) -> RunDifference:
    """Compare two runs (or RUN@ITERATION, or policy files) of one world.

    The result has the settings that differ, the newest evaluations, the mean of the last metrics, and for
    each role and opponent the difference of the two agents in the same games, with n and 95 % interval.
    Opponents are the scripted players and the agents of both runs. Nothing is written.
    """
    check_size(games, seed)
    one, two = side(first), side(second)
    if one.config.game != two.config.game:
        raise ConfigError(f"{one.name} is a run of {one.config.game}, {two.name} of {two.config.game}; "
                          "expected runs of one world")
    game = registry.find(one.config.game)
    check_bot_names(game, against, "--against")
    reason = different_rules(one, two)
    games = games or game.defaults.evaluation_games
    rows = [] if reason else compared(game, (one, two), games, against, seed)
    return RunDifference({
        "names": [one.name, two.name], "steps": [one.step, two.step],
        "lineage": [list(one.origin), list(two.origin)], "settings": different_settings(one, two),
        "equal_until": equal_until(one, two), "measures": evaluation_rows(one, two, game),
        "metrics": metric_rows(one, two), "games": games, "seed": seed, "not_compared": reason,
        "comparisons": rows,
    })  # fmt: skip


def side(name: Path | str) -> Side:
    """The run, past policies or policy file of this name."""
    text, at, iteration = str(name).rpartition("@")
    if at and text and iteration.isdecimal() and not folder_of(name).is_dir():
        folder = folder_of(text)
        config = api.load(folder).config
        past = load_past(folder, config.game, int(iteration))
        step = int(iteration) * config.games * config.steps
        return Side(name=str(name), config=config, players=past.players, step=step, metrics=_lines(folder))
    folder = folder_of(name)
    trained = api.load(folder)
    if not folder.is_dir():
        return Side(name=str(name), config=trained.config, players=trained.policies, step=trained.step)
    source = lineage.read(folder)
    return Side(name=str(name), config=trained.config, players=trained.policies, step=trained.step,
                history=trained.history, metrics=_lines(folder), origin=source.sentences() if source else ())


def _lines(folder: Path) -> list[bytes]:
    try:
        lines = untrusted_folder.read(folder, METRICS_FILE).splitlines()
    except untrusted_folder.Unreadable:
        return []
    for index, line in enumerate(lines):
        if not _is_row(line):
            raise RunError(f"{folder / METRICS_FILE}: line {index + 1} is damaged; expected a row of metrics")
    return lines


def _is_row(line: bytes) -> bool:
    try:
        return isinstance(untrusted_folder.loads(line), dict)
    except ValueError:
        return False


def different_settings(one: Side, two: Side) -> list[dict[str, Any]]:
    before = {key: value for key, _, value in settings.leaves(one.config)}
    after = {key: value for key, _, value in settings.leaves(two.config)}
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [{"key": key, "values": [_plain(before.get(key)), _plain(after.get(key))]} for key in keys]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def different_rules(one: Side, two: Side) -> str:
    """Why the agents cannot play the same games; empty where they can."""
    free = registry.find(one.config.game).defaults.indifferent
    rules = TrainedPlayers(name=one.name, rules=one.config.world, players=one.players, free_settings=free)
    different = rules.different_rules(two.config.world, f"{two.name} with")
    if different:
        return different[0]
    missing = [role for role in one.players if role not in two.players]
    return f"{two.name} has no {missing[0]}" if missing else ""


def equal_until(one: Side, two: Side) -> int | None:
    """The last iteration up to which the logged metrics are equal to the bit; None where none is."""
    rows = 0
    for first, second in zip(one.metrics, two.metrics):
        if first != second:
            break
        rows += 1
    if not rows:
        return None
    iteration = untrusted_folder.loads(one.metrics[rows - 1]).get("iteration")
    return iteration if isinstance(iteration, int) else None


def evaluation_rows(one: Side, two: Side, game: Game) -> list[dict[str, Any]]:
    names = game.defaults.rate_names
    newest = [measures(Evaluation.from_json(each.history[-1]), names) if each.history else {}
             for each in (one, two)]
    if not any(newest):
        return []
    steps = [{"value": each.history[-1].get("step"), "low": None} if each.history else None
             for each in (one, two)]
    rows = [{"name": "step", "values": steps}]
    return rows + [{"name": name, "values": [entry.get(name) for entry in newest]}
                   for name in dict.fromkeys(name for entry in newest for name in entry)]


def metric_rows(one: Side, two: Side) -> list[dict[str, Any]]:
    """The mean of each logged metric over the last iterations of each run."""
    means = [_recent_means(each.metrics[-RECENT:]) for each in (one, two)]
    common = [name for name in means[0] if name in means[1]]
    return [{"name": name, "values": [entry[name] for entry in means]} for name in common]


def _recent_means(lines: Sequence[bytes]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for line in lines:
        for name, value in untrusted_folder.loads(line).items():
            if isinstance(value, int | float) and not isinstance(value, bool) and "/" in name:
                values.setdefault(clean(name), []).append(float(value))
    return {name: sum(column) / len(column) for name, column in values.items()}


def compared(
    game: Game, sides: tuple[Side, Side], games: int, against: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """One row for each role and opponent: both agents in the same games."""
    make = api.world_builder(sides[0].config)
    spec = make(1, 0, 0).spec
    board = Scoreboard(make, SEED_OFFSET + seed, max(each.config.threads for each in sides))
    pairs = [(role, label, player) for role in sides[0].players
             for label, player in opponents(game, spec, sides, role, against)]
    rows = []
    for index, (role, label, opponent) in PROGRESS.each(list(enumerate(pairs))):
        results = []
        for each in sides:
            own = each.players[role]
            seats = versus(spec, own, role, opponent) if opponent is not None else [own]
            place = spec.roles[role].seats[0] if len(spec.roles) > 1 else 0
            results.append(play_games(board, seats, place, games, index))
        paired = compare(results[0], results[1], by_return=spec.seats == 1)
        mean = paired.difference
        rows.append({"role": role, "opponent": label, "n": results[0].n, "first": paired.first,
                     "second": paired.second, "difference": mean.mean, "low": mean.low, "high": mean.high,
                     "better": paired.better, "correlation": paired.correlation})
    return rows


def opponents(
    game: Game, spec: Spec, sides: tuple[Side, Side], role: str, against: Sequence[str]
) -> list[tuple[str, Player | None]]:
    """Names and players: the scripted players, then the agents of both runs; with one seat none."""
    if spec.seats == 1:
        return [("-", None)]
    out: list[tuple[str, Player | None]] = []
    for other in opposing_roles(spec, role):
        out += [(bot.name, bot) for bot in bots_for(game, other, against)]
        out += [(f"{other} of {each.name}", each.players[other]) for each in sides if other in each.players]
    return out
