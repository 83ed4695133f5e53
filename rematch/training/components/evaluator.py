"""Evaluations as a component: their times, and the record to which other components add entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rematch.core.clock import Clock, Request
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.errors import ConfigError
from rematch.evaluation.evaluation import Evaluation, read_history
from rematch.evaluation.evaluator import (
    EvaluationConfig,
    MatchRequest,
    attach_best_bots,
    best_bots,
    check_bot_names,
    evaluate,
    limited_games,
)
from rematch.evaluation.match import Result, Scoreboard
from rematch.evaluation.text import evaluation_lines, verdict_line
from rematch.evaluation.verdict import verdict
from rematch.training.device import gpu_matches

FIRST_FIELDS, LATER_FIELDS = ("phase", "role"), ("rollbacks",)  # their places in a row of history.json
FEW = 3  # bots of each role in the evaluations of `rematch check`


@dataclass
class EvaluationDraft:
    """One evaluation before it is stored: the row of history.json, and what components need to extend it."""

    row: dict[str, Any]
    history: Sequence[dict[str, Any]]  # the rows before it
    attach_best_bots: Callable[[], None]  # adds the best bot's result to each entry of the row
    on_last_level: bool = True
    lines: list[str] = field(default_factory=list)  # for train.log and console, after the lines of the row

    def records(self) -> list[Evaluation]:
        """The evaluations so far, this one last, as typed records."""
        return [*read_history(self.history), Evaluation.from_json(self.row)]


class Evaluator(Component):
    """Plays the current policies against each other and against bots."""

    name = "evaluation"
    Config = EvaluationConfig

    def __init__(self, config: EvaluationConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.games, self.max_steps = limited_games(config, setup.game, setup.config.world)
        self.many = gpu_matches(setup)
        self.scoreboard = self._board(setup.make_level)
        self.best: dict[str, dict[str, Result]] = {}  # level -> results of the best bots

    @classmethod
    def check(cls, config: EvaluationConfig, setup: Setup) -> None:
        check_bot_names(setup.game, config.opponents, "evaluation.opponents")
        deterministic = setup.learner_class.deterministic_play(setup.config)
        random = not deterministic or setup.game.random(setup.config.world)
        if not random and config.games > 1:
            raise ConfigError(
                "dqn.evaluation_epsilon = 0: neither the world nor the player is random, so all evaluated "
                "games are the same; expected more than 0, or evaluation.games 1"
            )

    @classmethod
    def no_effect(cls, key: str, config: EvaluationConfig, setup: Setup) -> str:
        two = len(setup.spec.roles) == 2
        return "only a game of two roles has a gap" if key.startswith("alarm") and not two else ""

    @classmethod
    def shrink(cls, config: EvaluationConfig, small: SmallRun) -> Mapping[str, Any]:
        setup = small.setup
        slow = setup.game.defaults.slow_bots
        quick: list[str] = []
        for names in setup.game.bots.values():
            quick += [name for name in names if name not in slow][:FEW]
        return {"every": setup.learner_class.evaluation_every, "games": min(config.games, 4),
                "opponents": config.opponents or tuple(dict.fromkeys(quick))}

    def requests(self, clock: Clock) -> Iterable[Request]:
        if clock.iteration % self.config.every == 0:
            yield Request.EVALUATE

    def evaluate(self, clock: Clock, fields: Mapping[str, Any], last: bool) -> Sequence[EvaluationDraft]:
        c, setup = self.config, self.setup
        request = (self.games, c.opponents, clock.iteration << 12)
        first = {name: fields[name] for name in FIRST_FIELDS if name in fields}
        row: dict[str, Any] = {"iteration": clock.iteration, "step": clock.step, **first}
        row |= evaluate(self.scoreboard, setup.game, setup.spec, setup.agents.players, request)
        for role, name in setup.game.defaults.rate_names.items():
            row[name] = row["rates"][role]["rate"]
        later = {name: fields[name] for name in LATER_FIELDS if name in fields}
        row |= later | {name: value for name, value in fields.items() if name not in row}
        draft = EvaluationDraft(row, setup.log.history, partial(self._attach_best_bots, row))
        entries = [*row["rates"].values(), *row.get("returns", {}).values(), *row["table"]]
        if self.games < c.games or any(entry.get("unfinished") for entry in entries):
            row["step_limit"] = self.max_steps
        if last:
            draft.attach_best_bots()
            if "level" in row:
                row["levels"] = self._lower_levels(row["level"], request)
        return [draft]

    def _board(self, make: Any) -> Scoreboard:
        c = self.setup.config
        board = Scoreboard(make, c.seed, c.threads, watch=self._watch, max_steps=self.max_steps)
        board.many = self.many
        return board

    def _watch(self, text: str) -> None:
        self.setup.watch(f"evaluation: {text}")

    def _attach_best_bots(self, row: dict[str, Any]) -> None:
        """Add the results of the best bots; they are played once per level, because they do not change."""
        c, level = self.config, str(row.get("level", 0))
        if level not in self.best:
            request = (self.games, c.opponents, 1 << 60)
            self.best[level] = best_bots(self.scoreboard, self.setup.game, self.setup.spec, request)
        attach_best_bots(row, self.best[level])

    def _lower_levels(self, top: int, request: MatchRequest) -> list[dict[str, Any]]:
        """The same evaluation on every level below `top`: it shows what was forgotten since."""
        setup, rows = self.setup, []
        games, bots, index = request
        for level in range(top):
            board = self._board(partial(setup.make_level, level=level))
            level_request = (games, bots, index | level + 1 << 50)
            result = evaluate(board, setup.game, setup.spec, setup.agents.players, level_request)
            rows.append({"level": level, "level_name": setup.level_name(level)} | result)
        return rows

    def after_evaluation(self, evaluation: EvaluationDraft, rollout: Any, clock: Clock) -> None:
        """All components have added their entries: add the verdict, store the row and print it."""
        row, log = evaluation.row, self.setup.log
        row["verdict"] = verdict(evaluation.records(), self.config)
        log.evaluation(row, [*evaluation_lines(row), verdict_line(row)])
        for line in evaluation.lines:
            log.line(line)
        counters = [f"{name} {count}" for name, count in rollout.counters.items() if count]
        if counters:
            log.line(f"World: {', '.join(counters)}")

    def evidence(self, record: Record) -> Iterable[Evidence]:
        rows = record.evaluations
        subject = f"{len(rows[-1]['table'])} pairings" if rows and rows[-1]["table"] else "returns"
        yield Evidence("evaluation", f"{len(rows)} evaluations of {subject}" if rows else "")
