"""`rematch report`: what run folders show, judged by the engine; as one page and as the same numbers in JSON.

Everything on a page comes from the facts gathered here. A folder is read as a stranger's: what cannot be read
is one line among the problems and costs what would have been made of it, nothing else.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rematch import __version__, api
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.curriculum import archive_files as chains
from rematch.curriculum.levels import climbed
from rematch.evaluation import payoff_matrix
from rematch.evaluation.diagnosis import Evidence, likely
from rematch.evaluation.match import Scoreboard, wilson
from rematch.evaluation.past_policies import chosen, selves
from rematch.evaluation.payoff_matrix import Payoff
from rematch.evaluation.verdict import findings, pairings, raised, strength
from rematch.reporting import untrusted_folder
from rematch.reporting.seed_groups import groups
from rematch.reporting.text import clean, exact_words
from rematch.storage import atomic_files
from rematch.storage.policy_files import policy_names
from rematch.storage.run_folder import PAST_FOLDER, Run
from rematch.training.best_response import BUDGET
from rematch.training.config import idle_in
from rematch.training.trainer import Config

Row = dict[str, Any]

MATRIX, PAGE = "payoff.json", "report.html"
BUDGETS = (BUDGET // 10, 3 * BUDGET // 10, BUDGET)  # exploitability is told at three


# --- one run ------------------------------------------------------------------------------------------------


class Folder:
    """A run's folder while facts are gathered from it: its files, and what could not be read."""

    def __init__(self, path: Path) -> None:
        self.path, self.problems = path, list[str]()
        self.config: Config | None = self.noted(self._settings)
        config = self.config
        self.spec = self.noted(lambda: api.builder(config)(1, 0, 0).spec) if config else None
        self.history: list[Row] = self.noted(lambda: untrusted_folder.history(path)) or []
        rows = self.noted(lambda: untrusted_folder.json_lines(path, "metrics.jsonl"))
        self.metrics: list[Row] = rows[0] if rows else []
        if rows and rows[1]:
            self.problems.append(f"{rows[1]} lines of metrics.jsonl could not be read")

    def _settings(self) -> Config:
        with Run.open(self.path, write=False) as run:
            return api.stored(run)

    def noted(self, act: Callable[[], Any]) -> Any:
        """What `act` gives; None, and one line among the problems, where it fails."""
        try:
            return act()
        except (untrusted_folder.Unreadable, ConfigError) as why:
            line = clean(why).replace(f"{self.path}", "the run")
        except Exception as error:  # a file of the right name with a wrong inside; the others stand
            line = f"a file does not hold what it should ({type(error).__name__})"
        if line not in self.problems:
            self.problems.append(" ".join(line.split())[:300])
        return None


def facts(path: Path, matrix: Payoff | None = None, named: bool = True) -> Row:
    """All that is told of one run, as JSON. Not `named`: nothing of its place or of the clock is in it."""
    run = Folder(path)
    config, spec = run.config, run.spec
    last: Row = run.history[-1] if run.history else {}
    known = (run.noted(lambda: findings(run.history, config.evaluation, matrix)) if config else None) or \
        [str(last.get("verdict") or "inconclusive: there is nothing to judge by")]
    where = shlex.quote(str(path)) if named else "RUN"
    told: Row = {
        "title": untrusted_folder.title(path), "label": path.name if named else "",
        "game": config.game if config else None, "seed": config.seed if config else None,
        "progress": _progress(run), "verdict": clean(known[0]), "findings": [clean(word) for word in known],
        "evaluations": run.noted(lambda: _evaluations(run.history)) or [],
        "table": run.noted(lambda: [dict(entry) for entry in last.get("table") or []]) or [],
        "returns": _entries(last.get("returns")), "frontier": run.noted(lambda: chains.told(path)) or [],
        "exact": run.noted(lambda: exact_words(last)) or [],
        "exploit": run.noted(lambda: _exploit(run)) or [],
        "payoff": _matrix(matrix), "cyclic": payoff_matrix.cyclic(matrix) if matrix else None,
        "forgetting": payoff_matrix.forgetting(matrix) if matrix else None,
        "curriculum": run.noted(lambda: _curriculum(run)) or {"levels": [], "promotions": [], "log": []},
        "rollbacks": run.noted(lambda: _rollbacks(run)) or {"events": [], "log": []},
    }
    sight = run.noted(lambda: _sight(path))
    told["sight"] = sight or {}
    told["alarms"] = (run.noted(lambda: _alarms(run, told["sight"])) if config and spec else None) or []
    told["missing"] = run.noted(lambda: _missing(run, told, where)) or []
    told |= _provenance(run, named)
    told["problems"] = run.problems
    return told


def _progress(run: Folder) -> Row:
    last: Row = run.metrics[-1] if run.metrics else {}
    about: Row = {key: last.get(key) for key in ("iteration", "step", "games")}
    return about | {"iterations": run.config.iterations if run.config else None, "rows": len(run.metrics)}


def _evaluations(history: Sequence[Row]) -> list[Row]:
    """Every evaluation: rates, gap, NashConv, strength over the rivals that all of them played, returns."""
    tables = [row for row in history if row.get("table")]
    among = set.intersection(*map(pairings, tables)) if tables else set()
    out = []
    figures = ("iteration", "step", "gap", "gap_low", "gap_high", "rollbacks", "level")
    for row in history:
        entry: Row = {key: _figure(row.get(key)) for key in figures}
        entry |= {key: None if row.get(key) is None else clean(row[key])[:40]
                  for key in ("phase", "role", "level_name")}
        entry |= {key: _entries(row.get(key)) for key in ("rates", "returns")}
        entry["nash_conv"] = _figure(_dict(row.get("exact")).get("nash_conv"))
        entry["strength"] = None
        if row.get("table") and among:
            mean, below, above = strength(row, among)
            games = min(e["games"] for e in row["table"])
            entry["strength"] = {"score": mean, "low": mean - below, "high": mean + above, "games": games,
                                 "pairings": len(among)}
        out.append(entry)
    return out


def _figure(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _dict(value: Any) -> Row:
    return value if isinstance(value, dict) else {}


def _entries(value: Any) -> dict[str, Row]:
    return {key: entry for key, entry in _dict(value).items() if isinstance(entry, dict)}


def _exploit(run: Folder) -> list[Row]:
    """What best responses found, by budget: `rematch exploit` left it in exploit.json."""
    try:
        found = untrusted_folder.read_json(run.path, "exploit.json")
    except untrusted_folder.Unreadable as why:
        if "missing" in str(why):
            return []
        raise
    out = []
    for result in found["results"]:
        asked, iteration = result["question"], result["question"]["frozen"]["iteration"]
        keys = ("score", "low", "high", "games", "gain", "gain_low", "gain_high", "too_weak")
        roles = {role: {key: answer.get(key) for key in keys} for role, answer in result["roles"].items()}
        per = run.config.games * run.config.steps if run.config else 0
        out.append({"iteration": iteration, "step": iteration * per, "budget": asked["budget"],
                    "roles": roles, "games": asked["games"],
                    "nash_conv_at_least": result.get("nash_conv_at_least")})
    return sorted(out, key=lambda row: (row["iteration"], row["budget"]))


def _matrix(matrix: Payoff | None) -> Row | None:
    if matrix is None:
        return None
    score = matrix.score
    ends = [[wilson(p * matrix.games, matrix.games) for p in row] for row in score.tolist()]
    return matrix.tree() | {"score": score.tolist(), "low": [[low for low, _ in row] for row in ends],
                            "high": [[high for _, high in row] for row in ends],
                            "widest": max((high - low) / 2 for row in ends for low, high in row)}


def _sight(path: Path) -> dict[str, list[Row]]:
    found = untrusted_folder.read_json(path, "sight.json")
    return {role: [dict(column) for column in columns] for role, columns in found.items()}


def _alarms(run: Folder, sight: dict[str, list[Row]]) -> list[Row]:
    assert run.config is not None and run.spec is not None
    evidence = Evidence(config=run.config, spec=run.spec, metrics=run.metrics, history=run.history,
                        sight=sight)
    return [alarm | {"causes": [clean(cause) for cause in likely(alarm, evidence)]}
            for alarm in raised(run.history, run.config.evaluation)]


def _curriculum(run: Folder) -> Row:
    """The levels that evaluations saw, each change with its evidence, and what the log says of them."""
    levels = [{"step": row.get("step"), "level": row["level"], "name": row.get("level_name"),
               "evidence": row.get("evidence") or None}
              for row in run.history if isinstance(row.get("level"), int)]
    moves = [{**after, "since": before["step"], "before": before["level"], "evidence": before["evidence"]}
             for before, after in pairwise(levels) if before["level"] != after["level"]]
    return {"levels": levels, "promotions": moves, "log": _log(run, "CURRICULUM")}


def _rollbacks(run: Folder) -> Row:
    counts = [(row.get("step"), row["rollbacks"]) for row in run.history
              if isinstance(row.get("rollbacks"), int)]  # of each row, those since the row before
    events = [{"since": before[0], "step": after[0], "count": after[1]}
              for before, after in pairwise([(0, 0), *counts]) if after[1]]
    return {"events": events, "log": _log(run, "ROLLBACK")}


def _log(run: Folder, start: str) -> list[str]:
    try:
        return [clean(line) for line in untrusted_folder.log_lines(run.path, start)]
    except untrusted_folder.Unreadable:
        return []


def _missing(run: Folder, told: Row, where: str) -> list[Row]:
    """What could be known and is not, each with the command that finds out."""
    if run.spec is None or run.spec.seats == 1:
        return []
    out = []
    solved = any(row["nash_conv"] is not None for row in told["evaluations"])
    newest = max((row["iteration"] for row in told["exploit"]), default=-1)
    here = {row["budget"] for row in told["exploit"] if row["iteration"] == newest}
    if not solved and len(here) < len(BUDGETS):
        for budget in [budget for budget in BUDGETS if budget not in here][: len(BUDGETS) - len(here)]:
            out.append({"what": f"exploitability with {budget:,} steps for each response",
                        "command": f"rematch exploit {where} --budget {budget}"})
    if told["payoff"] is None:
        what = "payoff matrix, its cyclic share and the forgetting curve"
        if len(policy_names(run.path, PAST_FOLDER)) > 1:
            out.append({"what": what, "command": f"rematch report {where}"})
        else:
            out.append({"what": f"{what}, of a run that keeps its past selves",
                        "command": "rematch train RECIPE --evaluation.past 40"})
    return out


def _provenance(run: Folder, named: bool) -> Row:
    """Settings, those that differ from the code's own, those without effect; stops and resumes; the files."""
    out: Row = {"settings": "", "changed": [], "unused": [], "events": [], "files": []}
    text = run.noted(lambda: untrusted_folder.read(run.path, "config.yaml").decode("utf-8", "replace"))
    out["settings"] = text or ""
    if run.config is not None:
        usual = {key: value for key, _, value in settings.leaves(api.default(run.config.game))}
        for key, _, value in settings.leaves(run.config):
            why = settings.has_effect(run.config, key)
            why = why or (idle_in(run.config, run.spec, key) if run.spec else "")
            shown = list(value) if isinstance(value, tuple) else value
            if why:
                out["unused"].append({"key": key, "value": shown, "why": clean(why)})
            elif value != usual[key]:
                before = usual[key]
                out["changed"].append({"key": key, "value": shown,
                                       "default": list(before) if isinstance(before, tuple) else before})
    if named:
        clock = run.noted(lambda: untrusted_folder.json_lines(run.path, "timing.jsonl")[0]) or []
        keys = ("event", "iteration", "why", "time")
        out["events"] = [{key: row.get(key) for key in keys} for row in clock if "event" in row]
    for name in untrusted_folder.FILES:
        try:
            data = untrusted_folder.read(run.path, name)
            out["files"].append({"name": name, "bytes": len(data), "sha256": atomic_files.sha256_hex(data)})
        except untrusted_folder.Unreadable as why:
            out["files"].append({"name": name, "bytes": None, "sha256": str(why)})
    return out


# --- the payoff matrix of a run -----------------------------------------------------------------------------


def stored_matrix(path: Path, level: str | None = None) -> Payoff | None:
    """The matrix that an earlier report left in the folder, if it is of these settings, and of this level of
    a curriculum where one is named."""
    try:
        found = untrusted_folder.read_json(path, MATRIX)
        if found["config"] != atomic_files.sha256_hex(untrusted_folder.read(path, "config.yaml")):
            return None
        if level is not None and found["level"] != level:
            return None
        return payoff_matrix.from_tree(found["payoff"])
    except (untrusted_folder.Unreadable, ConfigError, KeyError, TypeError):
        return None


def matrix_of(path: Path, games: int | None, tell: Callable[[str], None]) -> Payoff | None:
    """The payoff matrix of a run's past selves: from its folder, or played now and put there."""
    with Run.open(path, write=False) as run:
        config = api.playable(api.stored(run))
        checkpoint = run.load(verify_chunks=False)
    if checkpoint is None:
        return None
    curriculum = climbed(config, checkpoint.parts)
    make, level = api.builder(config, curriculum), curriculum.name if curriculum else ""
    if make(1, 0, 0).spec.seats == 1:
        return None
    found, problems = selves(path, config, make, checkpoint.iteration, payoff_matrix.SELVES)
    for problem in problems:
        tell(clean(problem))
    if len(found) < 2:
        return None
    known, wanted = stored_matrix(path, level), [self.iteration for self in found]
    if known is not None and games in (None, known.games):
        fewer = len(wanted) if games else max(2, len(known.iterations))  # perhaps it was slow
        if list(known.iterations) == chosen(wanted, fewer):
            return known
    tell(f"{path}: payoff matrix of {len(found)} past selves ...")
    board = Scoreboard(make, payoff_matrix.SEED_OFFSET + config.seed, config.threads)
    played = payoff_matrix.play(board, found, games, tell)
    try:
        with Run.open(path, write=True) as run:
            about = {"config": atomic_files.sha256_hex(run.config_text.encode()), "level": level,
                     "payoff": played.tree()}
            run.write_file(MATRIX, json.dumps(about).encode())
    except ConfigError as why:  # somebody trains there, or nothing may be written: then it is played again
        tell(f"the matrix was not kept: {clean(why)}")
    return played


# --- the whole ----------------------------------------------------------------------------------------------


def gather(
    folders: Sequence[Path], games: int | None = None, tell: Callable[[str], None] = lambda line: None
) -> Row:
    """The facts of some runs and what they show together. ConfigError where a folder is no run."""
    for path in folders:  # all of them, before the first matrix is played
        with Run.open(path, write=False):
            pass
    runs = []
    for path in folders:
        try:
            matrix = matrix_of(path, games, tell)
        except ConfigError as why:
            tell(f"{path}: no payoff matrix: {clean(why)}")
            matrix = None
        runs.append(facts(path, matrix))
    return {"rematch": __version__, "runs": runs, "groups": groups(runs)}


def report(
    folders: Sequence[Path | str], out: Path | str | None = None, games: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[Path, Row]:
    """Write the page about these runs; its path, and the facts on it.

    Of one run it goes into its folder, of several into this one. Only a page of ours is ever overwritten.
    """
    from rematch.reporting.html import page as show

    paths = [Path(folder) for folder in folders]
    for index, path in enumerate(paths):  # twice in a band over seeds it would count as two
        if path.resolve() in [other.resolve() for other in paths[:index]]:
            raise ConfigError(f"{path} is given twice; expected each run once")
    target = Path(out) if out is not None else (paths[0] if len(paths) == 1 else Path()) / PAGE
    if out is not None or len(paths) > 1:  # in a run's folder it is the run's own
        check_target(target)
    whole = gather(paths, games, tell)
    data = show.page(whole, [show.pictures(path) for path in paths]).encode("utf-8", "replace")
    with atomic_files.os_errors_as_run_error(f"{target} was not written"):
        atomic_files.replace_file(target, data)
    return target, whole


def check_target(target: Path) -> None:
    """Refuse a file that cannot be written, or that somebody else's work would be lost in."""
    from rematch.reporting.html.page import MARK

    if target.suffix != ".html" or target.is_dir() or not target.parent.is_dir():
        raise ConfigError(f"--out = {str(target)!r}: expected a name that ends in .html, in a folder that is "
                          "there")
    if target.is_symlink() or target.exists():
        with atomic_files.os_errors_as_run_error(f"--out = {str(target)!r} cannot be read"):
            plain = target.is_file() and not target.is_symlink()
            ours = plain and MARK.encode() in target.open("rb").read(400)
        if not ours:
            raise ConfigError(f"--out = {str(target)!r}: there is a file that no report wrote; expected "
                              "another name")


def page(path: Path) -> str:
    """The page that a run leaves in its own folder: of its files alone, whatever the folder is called."""
    from rematch.reporting.html import page

    run = facts(path, stored_matrix(path), named=False)
    whole = {"rematch": __version__, "runs": [run], "groups": groups([run])}
    return page.page(whole, [page.pictures(path)])
