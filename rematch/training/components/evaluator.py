"""Evaluations as a component: when they are made, and the record that other components add to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rematch.core.clock import Clock, Request
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.errors import ConfigError
from rematch.evaluation.evaluation import Evaluation, read_history
from rematch.evaluation.evaluator import EvaluationConfig, best_scripted, check_rivals, evaluate, set_beside
from rematch.evaluation.match import Result, Scoreboard
from rematch.evaluation.text import evaluation_lines, verdict_line
from rematch.evaluation.verdict import verdict

FIRST_FIELDS, LATER_FIELDS = ("phase", "role"), ("rollbacks",)  # their places in a row of history.json
FEW = 3  # scripted opponents of each role that a short trial's evaluations meet


@dataclass
class EvaluationDraft:
    """One evaluation: the row of history.json, and what other components need to judge it."""

    row: dict[str, Any]
    history: Sequence[dict[str, Any]]  # the rows before it
    attach_best_bots: Callable[[], None]  # puts the best bot's score beside each entry of the row
    on_last_level: bool = True
    lines: list[str] = field(default_factory=list)  # for train.log and the console, after the row's own

    def records(self) -> list[Evaluation]:
        """The evaluations so far, this one last, as typed records."""
        return [*read_history(self.history), Evaluation.from_json(self.row)]


class Evaluator(Component):
    """Plays the current policies against each other and against bots."""

    name = "evaluation"
    Config = EvaluationConfig

    def __init__(self, config: EvaluationConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        c = setup.config
        self.scoreboard = Scoreboard(setup.make_level, c.seed, c.threads)
        self.best: dict[str, dict[str, Result]] = {}  # level -> what the best bots reach

    @classmethod
    def check(cls, config: EvaluationConfig, setup: Setup) -> None:
        check_rivals(setup.game, config.opponents, "evaluation.opponents")
        random = setup.game.defaults.random or not setup.learner_class.deterministic_play(
            setup.config
        )
        if not random and config.games > 1:
            raise ConfigError(
                "dqn.evaluation_epsilon = 0: neither the world nor the player is random, all evaluated "
                "games would be the same; expected more than 0, or evaluation.games 1"
            )

    @classmethod
    def no_effect(cls, key: str, config: EvaluationConfig, setup: Setup) -> str:
        two = len(setup.spec.roles) == 2
        return "there is a gap between two roles only" if key.startswith("alarm") and not two else ""

    @classmethod
    def shrink(cls, config: EvaluationConfig, small: SmallRun) -> Mapping[str, Any]:
        setup = small.setup
        slow = setup.game.defaults.slow_bots
        quick = [
            name for names in setup.game.bots.values() for name in [n for n in names if n not in slow][:FEW]
        ]
        return {"every": setup.learner_class.evaluation_every, "games": min(config.games, 4),
                "opponents": config.opponents or tuple(dict.fromkeys(quick))}

    def requests(self, clock: Clock) -> Iterable[Request]:
        if clock.iteration % self.config.every == 0:
            yield Request.EVALUATE

    def evaluate(self, clock: Clock, fields: Mapping[str, Any], last: bool) -> Sequence[EvaluationDraft]:
        c, setup = self.config, self.setup
        ask = (c.games, c.opponents, clock.iteration << 12)
        first = {name: fields[name] for name in FIRST_FIELDS if name in fields}
        row: dict[str, Any] = {"iteration": clock.iteration, "step": clock.step, **first}
        row |= evaluate(self.scoreboard, setup.game, setup.spec, setup.agents.players, ask)
        for role, name in setup.game.defaults.rate_names.items():
            row[name] = row["rates"][role]["rate"]
        later = {name: fields[name] for name in LATER_FIELDS if name in fields}
        row |= later | {name: value for name, value in fields.items() if name not in row}
        made = EvaluationDraft(row, setup.log.history, partial(self._attach_best_bots, row))
        if last:
            made.attach_best_bots()
            if "level" in row:
                row["levels"] = self._lower_levels(row["level"], ask)
        return [made]

    def _attach_best_bots(self, row: dict[str, Any]) -> None:
        """What the best bots reach, played once per level: it does not depend on the iteration."""
        c, level = self.config, str(row.get("level", 0))
        if level not in self.best:
            ask = (c.games, c.opponents, 1 << 60)
            self.best[level] = best_scripted(self.scoreboard, self.setup.game, self.setup.spec, ask)
        set_beside(row, self.best[level])

    def _lower_levels(self, top: int, ask: tuple[int, Sequence[str], int]) -> list[dict[str, Any]]:
        """The same on every level below: whether what was learned there is still known."""
        setup, out = self.setup, []
        games, opponents, index = ask
        for level in range(top):
            board = Scoreboard(
                partial(setup.make_level, level=level), setup.config.seed, setup.config.threads
            )
            asked = (games, opponents, index | level + 1 << 50)
            result = evaluate(board, setup.game, setup.spec, setup.agents.players, asked)
            out.append({"level": level, "level_name": setup.level_name(level)} | result)
        return out

    def after_evaluation(self, evaluation: EvaluationDraft, rollout: Any, clock: Clock) -> None:
        """The other components have added their entries: judge, store and show it."""
        row, log = evaluation.row, self.setup.log
        row["verdict"] = verdict(evaluation.records(), self.config)
        log.evaluation(row, [*evaluation_lines(row), verdict_line(row)])
        for line in evaluation.lines:
            log.line(line)
        counters = [f"{name} {count}" for name, count in self.setup.world.counters.items() if count]
        if counters:
            log.line(f"World: {', '.join(counters)}")

    def evidence(self, record: Record) -> Iterable[Evidence]:
        rows = record.evaluations
        what = f"{len(rows[-1]['table'])} pairings" if rows and rows[-1]["table"] else "returns"
        yield Evidence("evaluation", f"{len(rows)} evaluations of {what}" if rows else "")
