"""`rematch report`: the facts of one run or several, as a page and as JSON with the same numbers.

Everything on the page comes from the facts that this module gathers. A folder may come from someone else: a
file that cannot be read is one line among the problems, and only the sections that need it are missing.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from rematch import __version__
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.system.progress import PROGRESS
from rematch.curriculum import archive_files
from rematch.evaluation import payoff_matrix
from rematch.evaluation.diagnosis import WEAK_WORDS, Evidence, likely_causes, verdict_causes
from rematch.evaluation.evaluation import Evaluation, MatchUp, read_history
from rematch.evaluation.payoff_matrix import Payoff, cycle_share, find_forgetting
from rematch.evaluation.text import clean, verdict_word
from rematch.evaluation.verdict import alarms, findings
from rematch.reporting import untrusted_folder
from rematch.reporting.html.map_section import map_facts
from rematch.reporting.html.run_payoff import matrix_of, stored_matrix
from rematch.reporting.learning_curves import user_curves
from rematch.reporting.seed_groups import groups
from rematch.reporting.text import count_of, exact_sentences, learning_sentence
from rematch.storage import atomic_files, lineage
from rematch.storage.policy_files import policy_names
from rematch.storage.run_folder import PAST_FOLDER, Run
from rematch.training.best_response import BUDGET
from rematch.training.component_list import COMPONENTS
from rematch.training.config import components_of, defaults_of, no_effect
from rematch.training.recipes import stored_config
from rematch.worlds import registry

Row = dict[str, Any]

OBSERVATIONS, OLD_OBSERVATIONS = "observations.json", "sight.json"  # the second: of earlier versions
PAGE = "report.html"
BUDGETS = (BUDGET // 10, 3 * BUDGET // 10, BUDGET)  # steps of best responses that a complete report shows
UNKNOWN_VERDICT = "inconclusive: there is no evaluation"


# --- one run ------------------------------------------------------------------------------------------------


class Folder:
    """The files of a run's folder that the facts are gathered from, and the problems with them."""

    def __init__(self, path: Path) -> None:
        self.path, self.problems = path, list[str]()
        self.config: Config | None = self.attempt(self._config)
        config = self.config
        self.spec = self.attempt(lambda: registry.find(config.game).spec(config.world)) if config else None
        self.rows: list[Row] = self.attempt(lambda: untrusted_folder.history(path)) or []
        self.evaluations: list[Evaluation] = self.attempt(lambda: read_history(self.rows)) or []

    @cached_property
    def metrics(self) -> list[Row]:
        """The rows of metrics.jsonl; of a long run this is the largest file."""
        metrics = self.attempt(lambda: untrusted_folder.json_lines(self.path, "metrics.jsonl"))
        if metrics and metrics[1]:
            self.problems.append(f"{count_of(metrics[1], 'line')} of metrics.jsonl could not be read")
        return metrics[0] if metrics else []

    def _config(self) -> Config:
        with Run.open(self.path, write=False) as run:
            return stored_config(run)

    def attempt(self, read: Callable[[], Any]) -> Any:
        """The value of `read`; None, and one line among the problems, where it fails."""
        try:
            return read()
        except (untrusted_folder.Unreadable, ConfigError) as error:
            line = re.sub(rf"(?<![\w./-]){re.escape(clean(self.path))}(?=/|:| is )", "the run", clean(error))
        except Exception as error:  # a file with unexpected content; the other files are still used
            line = f"a file has unexpected content ({type(error).__name__})"
        if line not in self.problems:
            self.problems.append(" ".join(line.split())[:300])
        return None


def facts(path: Path, matrix: Payoff | None = None, named: bool = True, from_metrics: bool = True) -> Row:
    """All facts of one run, as JSON. Without `named`, nothing depends on the folder's name or the clock.

    Without `from_metrics`, the entries `progress` and `learning` are empty, and metrics.jsonl is read only to
    explain an alarm.
    """
    run = Folder(path)
    config, spec = run.config, run.spec
    newest: Row = run.rows[-1] if run.rows else {}
    verdicts = run.attempt(lambda: findings(run.evaluations, config.evaluation, matrix)) if config else None
    verdicts = verdicts or [str(newest.get("verdict") or UNKNOWN_VERDICT)]
    folder = shlex.quote(str(path)) if named else "RUN"
    result: Row = {
        "title": untrusted_folder.title(path), "label": path.name if named else "",
        "game": config.game if config else None, "seed": config.seed if config else None,
        "lineage": run.attempt(lambda: list(map(clean, lineage.sentences(path)))) or [],
        "progress": _progress(run) if from_metrics else {},
        "learning": run.attempt(lambda: learning_sentence(run.metrics)) or "" if from_metrics else "",
        "verdict": clean(verdicts[0]), "findings": [clean(text) for text in verdicts],
        "evaluations": run.attempt(lambda: _evaluations(run.evaluations)) or [],
        "table": run.attempt(lambda: [dict(entry) for entry in newest.get("table") or []]) or [],
        "returns": _entries(newest.get("returns")),
        "frontier": run.attempt(lambda: archive_files.summary_lines(path)) or [],
        "milestones": run.attempt(lambda: archive_files.first_steps(path)) or {},
        "savestates": run.attempt(lambda: archive_files.savestate_rows(path)) or [],
        "world_map": run.attempt(lambda: map_facts(path)),
        "exact": run.attempt(lambda: exact_sentences(newest)) or [],
        "exploit": run.attempt(lambda: _exploit(run)) or [],
        **matrix_facts(matrix),
        "curriculum": run.attempt(lambda: _curriculum(run)) or {"levels": [], "promotions": [], "log": []},
        "rollbacks": run.attempt(lambda: _rollbacks(run)) or {"events": [], "log": []},
    }
    result["observations"] = run.attempt(lambda: observations(path)) or {}
    result["user_metrics"] = (run.attempt(lambda: _user_metrics(config, run)) if config else None) or {}
    result["alarms"], result["causes"] = [], []
    if config is not None and spec is not None:
        seen = result["observations"]
        result["alarms"] = run.attempt(lambda: alarms_with_causes(run, seen)) or []
        result["causes"] = run.attempt(lambda: _causes(verdicts[0], run, seen)) or []
    result["missing"] = run.attempt(lambda: _missing(run, result, folder)) or []
    result |= _provenance(run, named)
    result["problems"] = run.problems
    return result


def _progress(run: Folder) -> Row:
    newest: Row = run.metrics[-1] if run.metrics else {}
    progress: Row = {key: newest.get(key) for key in ("iteration", "step", "games")}
    return progress | {"iterations": run.config.iterations if run.config else None, "rows": len(run.metrics)}


def _evaluations(history: Sequence[Evaluation]) -> list[Row]:
    """Every evaluation: rates, gap, NashConv, returns, strength over the match-ups that all played."""
    match_ups = [entry.match_ups for entry in history if entry.matches]
    common = set.intersection(*match_ups) if match_ups else set()
    return [_evaluation(entry, common) for entry in history]


def _evaluation(evaluation: Evaluation, common: set[MatchUp]) -> Row:
    row: Row = {key: getattr(evaluation, key)
                for key in ("iteration", "step", "gap", "gap_low", "gap_high", "rollbacks", "level")}
    for key in ("phase", "role", "level_name"):
        value = getattr(evaluation, key)
        row[key] = None if value is None else clean(value)[:40]
    row["rates"] = {role: rate.to_json() for role, rate in evaluation.rates.items()}
    row["returns"] = {role: entry.to_json() for role, entry in evaluation.returns.items()}
    row["nash_conv"] = evaluation.nash_conv
    row["strength"] = None
    if evaluation.matches and common:
        score, below, above = evaluation.strength(common)
        games = min(entry.games for entry in evaluation.matches)
        row["strength"] = {"score": score, "low": score - below, "high": score + above, "games": games,
                           "match_ups": len(common)}
    return row


def _entries(value: Any) -> dict[str, Row]:
    entries = value if isinstance(value, dict) else {}
    return {key: entry for key, entry in entries.items() if isinstance(entry, dict)}


def _exploit(run: Folder) -> list[Row]:
    """Best responses by budget, from exploit.json, which `rematch exploit` writes."""
    try:
        stored = untrusted_folder.read_json(run.path, "exploit.json")
    except untrusted_folder.Absent:
        return []
    out = []
    for result in stored["results"]:
        question, iteration = result["question"], result["question"]["frozen"]["iteration"]
        keys = ("score", "low", "high", "games", "gain", "gain_low", "gain_high", "too_weak")
        roles = {role: {key: answer.get(key) for key in keys} for role, answer in result["roles"].items()}
        steps = run.config.games * run.config.steps if run.config else 0
        out.append({"iteration": iteration, "step": iteration * steps, "budget": question["budget"],
                    "roles": roles, "games": question["games"],
                    "nash_conv_at_least": result.get("nash_conv_at_least")})
    return sorted(out, key=lambda row: (row["iteration"], row["budget"]))


def matrix_facts(matrix: Payoff | None) -> Row:
    if matrix is None:
        return {"payoff": None, "cyclic": None, "forgetting": None}
    return {"payoff": payoff_matrix.with_bounds(matrix), "cyclic": asdict(cycle_share(matrix)),
            "forgetting": asdict(find_forgetting(matrix))}


def observations(path: Path) -> dict[str, list[Row]]:
    """The observation columns of every role, as measured on the first rollout."""
    old = os.path.lexists(path / OLD_OBSERVATIONS) and not os.path.lexists(path / OBSERVATIONS)
    stored = untrusted_folder.read_json(path, OLD_OBSERVATIONS if old else OBSERVATIONS)
    return {role: [dict(column) for column in columns] for role, columns in stored.items()}


def _user_metrics(config: Config, run: Folder) -> Row:
    names = [kind.name for kind in components_of(config) if kind not in COMPONENTS]
    return user_curves(names, run.metrics) if names else {}


def _evidence(run: Folder, seen: dict[str, list[Row]]) -> Evidence:
    assert run.config is not None and run.spec is not None
    return Evidence(config=run.config, spec=run.spec, metrics=run.metrics, history=run.evaluations,
                    observations=seen)


def alarms_with_causes(run: Folder, seen: dict[str, list[Row]]) -> list[Row]:
    """The alarms of a run, each with its likely causes; seen: its observation columns."""
    assert run.config is not None
    raised = alarms(run.evaluations, run.config.evaluation)
    evidence = _evidence(run, seen) if raised else None
    return [asdict(alarm) | {"causes": [clean(cause) for cause in likely_causes(alarm, evidence)]}
            for alarm in raised if evidence is not None]


def _causes(verdict: str, run: Folder, seen: dict[str, list[Row]]) -> list[str]:
    """Likely causes of a verdict that reports weak play."""
    if verdict_word(verdict) not in WEAK_WORDS:
        return []
    return [clean(cause) for cause in verdict_causes(verdict, _evidence(run, seen))]


def _curriculum(run: Folder) -> Row:
    """The level at every evaluation, each change of level with its evidence, and the lines of the log."""
    levels = [{"step": row.get("step"), "level": row["level"], "name": row.get("level_name"),
               "evidence": row.get("evidence") or None}
              for row in run.rows if isinstance(row.get("level"), int)]
    moves = [{**after, "since": before["step"], "before": before["level"], "evidence": before["evidence"]}
             for before, after in pairwise(levels) if before["level"] != after["level"]]
    return {"levels": levels, "promotions": moves, "log": _log(run, "CURRICULUM")}


def _rollbacks(run: Folder) -> Row:
    """The evaluations before which rollbacks happened, and the lines of the log."""
    counts = [(row.get("step"), row["rollbacks"]) for row in run.rows
              if isinstance(row.get("rollbacks"), int)]  # rollbacks since the previous evaluation
    events = [{"since": before[0], "step": after[0], "count": after[1]}
              for before, after in pairwise([(0, 0), *counts]) if after[1]]
    return {"events": events, "log": _log(run, "ROLLBACK")}


def _log(run: Folder, start: str) -> list[str]:
    try:
        return [clean(line) for line in untrusted_folder.log_lines(run.path, start)]
    except untrusted_folder.Unreadable:
        return []


def _missing(run: Folder, result: Row, folder: str) -> list[Row]:
    """Facts that the report lacks, each with the command that adds it."""
    if run.spec is None or run.spec.seats == 1:
        return []
    out = []
    solved = any(row["nash_conv"] is not None for row in result["evaluations"])
    newest = max((row["iteration"] for row in result["exploit"]), default=-1)
    done = {row["budget"] for row in result["exploit"] if row["iteration"] == newest}
    if not solved and len(done) < len(BUDGETS):
        for budget in [budget for budget in BUDGETS if budget not in done][: len(BUDGETS) - len(done)]:
            out.append({"what": f"exploitability, {budget:,} training steps for each best response",
                        "command": f"rematch exploit {folder} --budget {budget}"})
    if result["payoff"] is None:
        what = "payoff matrix, its share of cycles and the forgetting curve"
        if len(policy_names(run.path, PAST_FOLDER)) > 1:
            out.append({"what": what, "command": f"rematch report {folder}"})
        else:
            out.append({"what": f"{what} (only for a run that keeps past policies)",
                        "command": "rematch train RECIPE --past_policies.count 40"})
    return out


def _provenance(run: Folder, named: bool) -> Row:
    """Settings, those that differ from the defaults, those without effect; stops and resumes; the files."""
    out: Row = {"settings": "", "changed": [], "unused": [], "events": [], "files": []}
    text = run.attempt(lambda: untrusted_folder.read(run.path, "config.yaml").decode("utf-8", "replace"))
    out["settings"] = text or ""
    if run.config is not None:
        out["changed"], out["unused"] = _settings(run, run.config)
    if named:
        timing = run.attempt(lambda: untrusted_folder.json_lines(run.path, "timing.jsonl")[0]) or []
        keys = ("event", "iteration", "why", "time")
        out["events"] = [{key: row.get(key) for key in keys} for row in timing if "event" in row]
    for name in untrusted_folder.FILES:
        try:
            data = untrusted_folder.read(run.path, name)
            out["files"].append({"name": name, "bytes": len(data), "sha256": atomic_files.sha256_hex(data)})
        except untrusted_folder.Unreadable as error:
            out["files"].append({"name": name, "bytes": None, "sha256": str(error)})
    return out


def _settings(run: Folder, config: Config) -> tuple[list[Row], list[Row]]:
    """The settings that differ from the defaults, and those without effect in this run."""
    changed, unused = [], []
    defaults = {key: value for key, _, value in settings.leaves(defaults_of(config))}
    for key, _, value in settings.leaves(config):
        reason = settings.has_effect(config, key)
        reason = reason or no_effect(config, key)
        if reason:
            unused.append({"key": key, "value": _plain(value), "why": clean(reason)})
        elif value != defaults[key]:
            changed.append({"key": key, "value": _plain(value), "default": _plain(defaults[key])})
    return changed, unused


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# --- the report ---------------------------------------------------------------------------------------------


def gather(
    folders: Sequence[Path], games: int | None = None, log: Callable[[str], None] = lambda line: None,
    quick: bool = False,
) -> Row:
    """The facts of some runs and of their groups. ConfigError where a folder is not a run.

    With `quick` no games are played: a payoff matrix is shown where an earlier report stored it.
    """
    for path in folders:  # check all of them before the first matrix is played
        with Run.open(path, write=False):
            pass
    runs = []
    for path in PROGRESS.each(folders):
        try:
            matrix = stored_matrix(path) if quick else matrix_of(path, games, log)
        except ConfigError as error:
            log(f"{clean(path)}: no payoff matrix: {clean(error)}")
            matrix = None
        runs.append(facts(path, matrix))
    return {"rematch": __version__, "runs": runs, "groups": groups(runs), "quick": quick}


def report(
    folders: Sequence[Path | str], out: Path | str | None = None, games: int | None = None,
    log: Callable[[str], None] = lambda line: None, quick: bool = False,
) -> tuple[Path, Row]:
    """Write the page about these runs; returns its path and the facts on it.

    The page of one run goes into its folder, that of several into the current folder. Only a page that
    rematch wrote is ever overwritten.
    """
    from rematch.reporting.html import page as html

    paths = [Path(folder) for folder in folders]
    for index, path in enumerate(paths):  # the same run twice would count as two seeds
        if path.resolve() in [other.resolve() for other in paths[:index]]:
            raise ConfigError(f"{path} is given twice; expected each run once")
    target = Path(out) if out is not None else (paths[0] if len(paths) == 1 else Path()) / PAGE
    if out is not None or len(paths) > 1:  # report.html in a run's folder belongs to the run
        check_target(target)
    summary = gather(paths, games, log, quick)
    text = html.page(summary, [html.pictures(path, linked=target.parent == path) for path in paths])
    with atomic_files.os_errors_as_run_error(f"{target} was not written"):
        atomic_files.replace_file(target, text.encode("utf-8", "replace"))
    return target, summary


def check_target(target: Path) -> None:
    """ConfigError for a file that cannot be written, or that exists and was not written by rematch."""
    from rematch.reporting.html.page import GENERATOR

    if target.suffix != ".html" or target.is_dir() or not target.parent.is_dir():
        raise ConfigError(f"--out = {str(target)!r}: expected a name that ends in .html, in a folder that "
                          "exists")
    if target.is_symlink() or target.exists():
        with atomic_files.os_errors_as_run_error(f"--out = {str(target)!r} cannot be read"):
            regular = target.is_file() and not target.is_symlink()
            is_report = regular and GENERATOR.encode() in target.open("rb").read(400)
        if not is_report:
            raise ConfigError(f"--out = {str(target)!r}: this file exists and is not a report; expected "
                              "another name")


def page(path: Path) -> str:
    """The page inside a run's folder: it depends on the files of the run, not on the folder's name."""
    from rematch.reporting.html import page as html

    run = facts(path, stored_matrix(path), named=False)
    summary = {"rematch": __version__, "runs": [run], "groups": groups([run])}
    return html.page(summary, [html.pictures(path)])
