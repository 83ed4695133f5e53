"""An evaluation as a typed record: one row of history.json.

history.json keeps the keys of its first version (`rival`, `table`). `from_json` and `to_json` translate
between these keys and the attributes, and change no value: a history that is read and written again is the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from math import sqrt
from typing import Any, NamedTuple, Self

from rematch.core.errors import Damaged

Json = dict[str, Any]
MatchUp = tuple[str, str]  # role, opponent

STORED = {"opponent": "rival", "matches": "table"}  # attribute -> key in history.json, where they differ
TYPES: dict[str, tuple[type, ...]] = {"float": (int, float), "int": (int,), "str": (str,), "bool": (bool,)}


def _arguments(kind: type, row: Mapping[str, Any]) -> Json:
    """The arguments of a record's constructor from a stored row; keys without a field go to `extra`.

    ValueError for a value of another type: the row may come from a stranger's file.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"{kind.__name__}: expected a JSON object")
    field_of = {STORED.get(entry.name, entry.name): entry for entry in fields(kind) if entry.name != "extra"}
    arguments: Json = {"extra": {key: value for key, value in row.items() if key not in field_of}}
    for key, entry in field_of.items():
        if key in row:
            _check_type(f"{kind.__name__}: {key}", row[key], str(entry.type))
            arguments[entry.name] = row[key]
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise ValueError(f"{kind.__name__}: {key} is missing")
    return arguments


def _check_type(name: str, value: object, annotation: str) -> None:
    """ValueError unless the value has the plain type of the annotation; records check themselves."""
    wanted, _, optional = annotation.partition(" | ")
    types = TYPES.get(wanted)
    if types is None or (value is None and optional):
        return
    if not isinstance(value, types) or (isinstance(value, bool) and wanted != "bool"):
        raise ValueError(f"{name} is not of type {wanted}")


@dataclass(frozen=True, kw_only=True)
class WinRate:
    """Share of games that a role wins head to head, with its 95 % interval; a draw counts half."""

    rate: float
    low: float
    high: float
    games: int
    unfinished: int | None = None  # games that the limit of steps broke off; they count half a point
    extra: Json = field(default_factory=dict)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        return cls(**_arguments(cls, row))

    def to_json(self) -> Json:
        return _stored(self)


@dataclass(frozen=True, kw_only=True)
class MatchRow:
    """Games of a player in a role against one opponent, beside the best scripted player of that role."""

    player: str | None = None
    role: str
    opponent: str
    games: int
    wins: int | None = None
    draws: int | None = None
    length: float | None = None  # mean steps of a game
    returned: Json | None = None  # mean return with its interval, where rewards do not add up to zero
    deals: int | None = None  # deals that were played from every seat; 0: every game had its own deal
    effective: float | None = None  # independent games with the same information about the score
    effective_wins: float | None = None  # the same for the share of games won
    margin: Json | None = None  # points ahead of the best other player, where the world counts points
    reached: Json | None = None  # milestone -> games that reached it
    unfinished: int | None = None  # games that the limit of steps broke off; they count half a point
    repeats: bool | None = None  # True: nothing was random, and more games would repeat these
    score: float  # (wins + draws / 2) / games
    low: float
    high: float
    win: float | None = None
    win_low: float | None = None
    win_high: float | None = None
    best_bot: str | None = None
    best_bot_score: float | None = None
    best_bot_low: float | None = None
    best_bot_high: float | None = None
    extra: Json = field(default_factory=dict)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        return cls(**_arguments(cls, row))

    def to_json(self) -> Json:
        return _stored(self)

    @property
    def match_up(self) -> MatchUp:
        return self.role, self.opponent

    @property
    def below_baseline(self) -> bool:
        """Whether the interval lies below that of the best scripted player."""
        return self.best_bot_low is not None and self.high < self.best_bot_low


@dataclass(frozen=True, kw_only=True)
class ReturnRow:
    """Mean return of a role in a game, with its 95 % interval; None where one game has none."""

    mean: float
    low: float | None
    high: float | None
    games: int
    player: str | None = None
    unfinished: int | None = None  # games that the limit of steps broke off; their return so far counts
    success: float | None = None  # share of games that reached the goal
    success_low: float | None = None
    success_high: float | None = None
    milestones: Json | None = None  # milestone -> share of games that reached it, with its interval
    best_bot: str | None = None
    best_bot_mean: float | None = None
    best_bot_low: float | None = None
    best_bot_high: float | None = None
    best_bot_games: int | None = None
    extra: Json = field(default_factory=dict)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        return cls(**_arguments(cls, row))

    def to_json(self) -> Json:
        bot = ("best_bot_low", "best_bot_high") if self.best_bot is not None else ()
        return _stored(self, ("low", "high", *bot))


class Strength(NamedTuple):
    """Mean score over match-ups, and the distances to the lower and upper end of its 95 % interval."""

    score: float
    below: float
    above: float


@dataclass(frozen=True, kw_only=True)
class MatchResults:
    """The games of an evaluation: head to head, against scripted opponents, returns, exact values."""

    rates: dict[str, WinRate] = field(default_factory=dict)  # role -> head to head
    returns: dict[str, ReturnRow] = field(default_factory=dict)  # role, where rewards do not add up to zero
    gap: float | None = None  # NE gap: difference of the two roles' rates
    gap_low: float | None = None
    gap_high: float | None = None
    matches: tuple[MatchRow, ...]  # against scripted opponents
    exact: Json | None = None  # of a world that can be solved: nash_conv, value, ...
    extra: Json = field(default_factory=dict)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """ValueError where the row is not what an evaluation writes."""
        arguments = _arguments(cls, row)
        try:
            rates, returns = arguments.get("rates") or {}, arguments.get("returns") or {}
            arguments["rates"] = {role: WinRate.from_json(rate) for role, rate in rates.items()}
            arguments["returns"] = {role: ReturnRow.from_json(entry) for role, entry in returns.items()}
            arguments["matches"] = tuple(MatchRow.from_json(entry) for entry in arguments["matches"])
        except (AttributeError, TypeError):
            raise ValueError(f"{cls.__name__}: rates, returns or table have another form") from None
        return cls(**arguments)

    def to_json(self) -> Json:
        """The row as history.json holds it."""
        row = _stored(self)
        row["rates"] = {role: rate.to_json() for role, rate in self.rates.items()}
        del row["returns"]
        if self.returns:
            row["returns"] = {role: entry.to_json() for role, entry in self.returns.items()}
        row[STORED["matches"]] = [entry.to_json() for entry in self.matches]
        return row

    @property
    def nash_conv(self) -> float | None:
        """Exact exploitability of both roles together, where the world can be solved."""
        value = (self.exact or {}).get("nash_conv")
        return float(value) if isinstance(value, int | float) else None

    @property
    def judged_by_returns(self) -> bool:
        """Whether only returns can be judged: the world has one seat."""
        return bool(self.returns) and not self.rates and not self.matches

    @property
    def match_ups(self) -> set[MatchUp]:
        return {entry.match_up for entry in self.matches}

    @property
    def below_baseline(self) -> list[MatchRow]:
        """The match-ups in which the best scripted player is better, beyond the 95 % intervals."""
        return [entry for entry in self.matches if entry.below_baseline]

    def strength(self, among: set[MatchUp]) -> Strength:
        """Mean score over the match-ups `among`; every role has the same weight.

        The distances to the ends of the match-ups' Wilson intervals add as squares (Zou and Donner 2008).
        """
        mean = below = above = 0.0
        roles = sorted({role for role, _ in among})
        for role in roles:
            entries = [e for e in self.matches if e.role == role and e.match_up in among]
            weight = 1 / len(roles) / len(entries)
            for entry in entries:
                mean += weight * entry.score
                below += (weight * (entry.score - entry.low)) ** 2
                above += (weight * (entry.high - entry.score)) ** 2
        return Strength(mean, sqrt(below), sqrt(above))


@dataclass(frozen=True, kw_only=True)
class Evaluation(MatchResults):
    """One evaluation of a run. `extra` holds what a world adds under its own names (SR_P, SR_E)."""

    iteration: int | None = None
    step: int  # steps of all games
    phase: object = None  # name of the phase that ended, or the iteration where all roles learn together
    role: str | None = None  # role that learned in the phase; "both"
    rollbacks: int | None = None  # since the evaluation before
    level: int | None = None  # of the curriculum
    level_name: str | None = None
    levels: object = None  # the final policies on the levels below, as JSON
    balanced: int | None = None  # newest evaluations in a row with a small NE gap
    converged: bool | None = None
    moved: int | None = None  # levels of the curriculum up or down after this evaluation
    evidence: str | None = None  # reason for `moved`
    verdict: str | None = None

    def to_json(self) -> Json:
        """The row with the keys in the order of history.json."""
        row = super().to_json()
        ordered = [*HEAD, *RESULTS, *self.extra, *TAIL]
        return {key: row[key] for key in dict.fromkeys(ordered) if key in row}


HEAD = ("iteration", "step", "phase", "role")
RESULTS = ("rates", "returns", "gap", "gap_low", "gap_high", "table", "exact")
TAIL = ("rollbacks", "level", "level_name", "levels", "balanced", "converged", "moved", "evidence", "verdict")


def _stored(record: Any, even_none: Sequence[str] = ()) -> Json:
    """The record as JSON in the order of its fields; None values only for the fields in `even_none`."""
    row: Json = {}
    for entry in fields(record):
        value = getattr(record, entry.name)
        if entry.name != "extra" and (value is not None or entry.name in even_none):
            row[STORED.get(entry.name, entry.name)] = value
    row |= record.extra
    return row


def read_history(rows: Iterable[Mapping[str, Any]]) -> list[Evaluation]:
    """The rows of history.json as records; Damaged where one is not an evaluation."""
    records = []
    for number, row in enumerate(rows, 1):
        try:
            records.append(Evaluation.from_json(row))
        except ValueError as error:
            raise Damaged(f"history.json, row {number}: {error}") from None
    return records
