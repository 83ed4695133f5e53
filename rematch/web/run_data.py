"""What the page shows of run folders, as JSON. It only reads, and the folders may come from someone else.

A client never names a path: runs have identifiers, digests of their place in the served folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.evaluation.text import clean
from rematch.reporting import run_summary, untrusted_folder
from rematch.reporting.html.run_payoff import stored_matrix
from rematch.reporting.status import recent_speed
from rematch.reporting.untrusted_folder import Unreadable
from rematch.storage.run_folder import PAST_FOLDER
from rematch.training.recipes import nearest_recipe
from rematch.verbs import runs
from rematch.web.comparison import MOST_RUNS, comparison
from rematch.web.jobs import Jobs
from rematch.web.league_table import league
from rematch.web.metric_columns import MetricColumns

Json = dict[str, Any]

SPARK = 40  # points of the small curve in the list of runs
LOOK = 0.9  # seconds between two looks at the run folders
MOST_CACHED, MOST_FOLLOWED = 2000, 50  # values in memory; runs whose metrics are in memory
METRICS = ("metrics.jsonl",)
SPEED = "learner_steps_per_second"  # column of timing.jsonl
TEXTS = {"name": 200, "verdict": 400, "world": 80, "problem": 300, "state": 40}  # field -> characters
CONTINUED = ("stopped", "killed", "failed")  # states of a run that `rematch resume` continues
LOG_BYTES = 1 << 15  # of the end of train.log
WATCHED = ("config.yaml", "metrics.jsonl", "history.json", "timing.jsonl", "train.log", "match.gif", "lock",
           "learning.png", "report.html", "world_map.json", "checkpoints", "payoff.json", "exploit.json",
           untrusted_folder.FILMS)  # fmt: skip
EPISODE = "episode.gif"  # the newest film of films/
FILMS = {"match.gif": "image/gif", "learning.png": "image/png", EPISODE: "image/gif"}


class UnknownRun(Exception):
    """There is no run of this identifier (any more)."""


class RunData:
    """The runs of a folder. Results are cached until a file of the run changes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, Path] = {}
        self._cache: dict[tuple[str, str], tuple[Any, Json]] = {}
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._making: dict[tuple[str, str], threading.Lock] = {}  # one thread makes a value, others wait
        self._metrics: dict[str, RunColumns] = {}
        self._entries: dict[str, tuple[str, float, Json]] = {}  # run -> version, time, line of the list
        self._versions: tuple[float, dict[str, str]] = (-math.inf, {})
        self.jobs = Jobs()

    # --- all runs ---

    def scan(self) -> dict[str, Path]:
        """identifier -> folder of every run; the runs of a sweep are listed one by one."""
        folders: dict[str, Path] = {}
        for path in runs.run_folders(self.root):
            members = [path]
            if not os.path.lexists(path / runs.CONFIG):
                members = runs.run_folders(path)
            for folder in members:
                folders[identifier(self.root, folder)] = folder
        self._folders = folders
        return folders

    def folder(self, run: str) -> Path:
        """The folder of an identifier; UnknownRun where there is none."""
        folder = self._folders.get(run) or self.scan().get(run)
        if folder is None or not os.path.lexists(folder / runs.CONFIG):
            raise UnknownRun(run)
        return folder

    def list(self) -> Json:
        """The list of runs, the most recently written first."""
        entries = [self._entry(run, folder) for run, folder in self.scan().items()]
        entries.sort(key=lambda entry: (entry["age"] is None, entry["age"], entry["name"]))
        return {"root": clean(str(self.root))[:200], "runs": entries}

    def _entry(self, run: str, folder: Path) -> Json:
        """The line of a run; read again after a change of its files, and while it runs."""
        now, cached = version(folder, WATCHED), self._entries.get(run)
        if cached is not None and cached[0] == now and cached[2]["state"] != "running":
            age = cached[2]["age"]
            return cached[2] | {"age": None if age is None else age + time.monotonic() - cached[1]}
        entry = self._info(folder)
        entry["id"] = run
        entry["recipe"] = self._cached(run, "recipe", ("config.yaml",), partial(recipe, folder))
        entry["spark"] = self._cached(run, "spark", ("history.json",), partial(spark, folder))
        entry["group"] = clean(str(Path(entry["name"]).parent)) if "/" in entry["name"] else ""
        if len(self._entries) >= MOST_CACHED:
            self._entries.clear()
        self._entries[run] = now, time.monotonic(), entry
        return entry

    def versions(self) -> dict[str, str]:
        """identifier -> a text that changes whenever a watched file of the run changes.

        All open pages share one look at the folders per LOOK seconds.
        """
        with self._looking:
            if time.monotonic() - self._versions[0] >= LOOK:
                versions = {run: version(folder, WATCHED) for run, folder in self.scan().items()}
                self._versions = time.monotonic(), versions
            return self._versions[1]

    # --- one run ---

    def run(self, run: str) -> Json:
        """Everything about one run but its curves."""
        folder = self.folder(run)
        files = ("history.json", "config.yaml", "payoff.json", "exploit.json")
        facts: Json = self._cached(run, "facts", files, partial(summary, folder))
        info = self._info(folder)
        keys = ("name", "state", "step", "total_steps", "age", "world", "command", "speed", "seconds_left")
        return facts | {key: info[key] for key in keys} | {
            "id": run, "films": films(folder),
            "league": self._cached(run, "league", ("checkpoints",), partial(league, folder)),
        }  # fmt: skip

    def _info(self, folder: Path) -> Json:
        """The entry of a run in the list, as text and numbers."""
        info = asdict(runs.info(self.root, folder))
        info |= {key: clean(info[key])[:most] for key, most in TEXTS.items()}
        info |= pace(folder, info)
        del info["folder"]
        info["command"] = clean(f"rematch resume {typed(folder)}")[:400] if info["state"] in CONTINUED else ""
        return info

    def compare(self, chosen: str) -> Sequence[Json]:
        """The curves of several runs; `chosen`: identifiers with commas between them."""
        ids = list(dict.fromkeys(chosen.split(",")))[: MOST_RUNS + 1]
        return comparison([self.run(run) for run in ids])

    def curves(self, run: str) -> Json:
        """The logged metrics as columns over steps, with a bounded number of points."""
        folder = self.folder(run)
        columns: Json = self._cached(run, "curves", METRICS, partial(self._curves, run, folder))
        return columns

    def curves_text(self, run: str) -> bytes:
        """The JSON text of `curves`, which is made once for all open pages."""
        text: bytes = self._cached(run, "curves text", METRICS,
                                   lambda: json.dumps(self.curves(run), allow_nan=False).encode())
        return text

    def _curves(self, run: str, folder: Path) -> Json:
        columns = self._metrics.setdefault(run, RunColumns())
        while len(self._metrics) > MOST_FOLLOWED:
            del self._metrics[next(iter(self._metrics))]
        return curves(folder, columns)

    def log(self, run: str) -> Json:
        """The last lines of train.log."""
        try:
            lines = untrusted_folder.last_lines(self.folder(run) / "train.log", LOG_BYTES)
        except Unreadable as error:
            return {"lines": [], "problem": str(error)}
        return {"lines": [clean(line.decode("utf-8", "replace"))[:2000] for line in lines if line]}

    def film(self, run: str, name: str) -> tuple[bytes, str]:
        """A picture of the run and its media type."""
        if name not in FILMS:
            raise UnknownRun(name)
        try:
            folder = self.folder(run)
            if name == EPISODE:
                return untrusted_folder.newest_film(folder)[1], FILMS[name]
            return untrusted_folder.picture(folder, name), FILMS[name]
        except Unreadable:
            raise UnknownRun(name) from None

    def world(self, run: str) -> str:
        """The name of a run's world."""
        folder = self.folder(run)
        return str(self._cached(run, "world", ("config.yaml",), lambda: runs.info(self.root, folder).world))

    def name(self, run: str) -> str:
        """The name of a run as text."""
        return clean(os.path.relpath(self.folder(run), self.root))[:200]

    def cached_file(self, path: Path, make: Callable[[], Any]) -> Any:
        """The value of `make`, again only after a file below a run has changed."""
        return self._value((str(path), "file"), lambda: version(path.parent, (path.name,)), make)

    def _cached(self, run: str, kind: str, files: tuple[str, ...], make: Callable[[], Any]) -> Any:
        """The value of `make`, again only after one of the files has changed."""
        folder = self._folders.get(run, self.root)
        return self._value((run, kind), lambda: version(folder, files), make)

    def _value(self, key: tuple[str, str], stamp: Callable[[], str], make: Callable[[], Any]) -> Any:
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            now = stamp()
            with self._lock:
                cached = self._cache.get(key)
            if cached is not None and cached[0] == now:
                return cached[1]
            value = make()
            with self._lock:
                self._cache[key] = now, value
                while len(self._cache) > MOST_CACHED:
                    oldest = next(iter(self._cache))
                    del self._cache[oldest]
                    self._making.pop(oldest, None)
            return value


def typed(folder: Path) -> str:
    """The folder as the user types it where the server was started."""
    present = Path.cwd()
    return shlex.quote(str(folder.relative_to(present) if folder.is_relative_to(present) else folder))


def identifier(root: Path, folder: Path) -> str:
    """A run's name in addresses: a digest of its place below the served folder."""
    return hashlib.sha256(os.fsencode(os.path.relpath(folder, root))).hexdigest()[:16]


def version(folder: Path, files: tuple[str, ...]) -> str:
    """Sizes and times of these files."""
    parts = []
    for name in files:
        try:
            info = os.lstat(folder / name)
            parts.append(f"{info.st_size}.{info.st_mtime_ns}")
        except OSError:
            parts.append("-")
    return " ".join(parts)


def pace(folder: Path, info: Json) -> Json:
    """Steps of all games per second and the seconds left at this speed, of a run that trains."""
    speed = seconds_left = None
    try:
        if info["state"] == "running" and (per_iteration := runs.steps_per_iteration(folder)):
            speed = recent_speed(folder, per_iteration)
    except Unreadable:
        pass
    if speed and info["step"] is not None and info["total_steps"]:
        seconds_left = max(0, info["total_steps"] - info["step"]) / speed
    return {"speed": speed, "seconds_left": seconds_left}


def spark(folder: Path) -> list[float]:
    """Head-to-head win rates of the first role at the evaluations; of one role its score or mean return."""
    try:
        rows = untrusted_folder.history(folder)
    except Unreadable:
        return []
    values = [value for row in rows if (value := headline(row)) is not None]
    stride = -(-len(values) // SPARK) or 1
    return values[::stride]


def headline(row: Json) -> float | None:
    """One number of an evaluation: a rate, else the mean score, else a mean return."""
    for key, name in (("rates", "rate"), ("returns", "mean")):
        entries = row.get(key)
        if isinstance(entries, dict) and entries:
            first = next(iter(entries.values()))
            value = first.get(name) if isinstance(first, dict) else None
            if isinstance(value, int | float):
                return float(value)
    entries = row.get("table")
    entries = entries if isinstance(entries, list) else []
    scores = [entry.get("score") for entry in entries if isinstance(entry, dict)]
    numbers = [score for score in scores if isinstance(score, int | float)]
    return sum(numbers) / len(numbers) if numbers else None


def recipe(folder: Path) -> str:
    """The recipe whose settings those of the run agree with best; empty where they agree with none."""
    try:
        text = untrusted_folder.first_bytes(folder / runs.CONFIG, runs.HEAD).decode("utf-8", "replace")
        return nearest_recipe(settings.read_yaml(text, runs.CONFIG))
    except (Unreadable, ConfigError):
        return ""


def films(folder: Path) -> dict[str, str]:
    """name -> a text that changes with the film."""
    files = {name: untrusted_folder.FILMS if name == EPISODE else name for name in FILMS}
    return {name: hashlib.sha256(version(folder, (file,)).encode()).hexdigest()[:8]
            for name, file in files.items() if os.path.lexists(folder / file)}


def summary(folder: Path) -> Json:
    """The facts of the report that the page shows."""
    matrix = stored_matrix(folder)
    # the page reads metrics.jsonl for its curves
    facts = run_summary.facts(folder, matrix, from_metrics=False)
    keys = ("title", "label", "game", "seed", "verdict", "findings", "evaluations", "table", "returns",
            "exact", "exploit", "curriculum", "rollbacks", "alarms", "causes", "changed", "events",
            "frontier", "lineage", "problems", "payoff", "cyclic")
    past = untrusted_folder.policy_names(folder, PAST_FOLDER)
    path = shlex.quote(str(folder))
    missing = [row | {"command": row["command"].replace(path, typed(folder))} for row in facts["missing"]]
    return {key: facts[key] for key in keys} | {"has_past": len(past) > 1, "missing": missing}


class RunColumns:
    """metrics.jsonl over steps, and timing.jsonl over iterations."""

    def __init__(self) -> None:
        self.metrics, self.timing = MetricColumns(), MetricColumns("iteration")


def curves(folder: Path, columns: RunColumns | None = None) -> Json:
    """Columns of metrics.jsonl: {"step": [...], "series": {name: [...]}}; None where a row lacks a value.

    "speed" has the same form and comes from timing.jsonl.
    """
    columns = RunColumns() if columns is None else columns
    metrics = columns.metrics
    try:
        metrics.update(folder / "metrics.jsonl")
    except Unreadable as error:
        return {"step": [], "series": {}, "speed": {"step": [], "series": {}}, "problem": str(error)}
    series = metrics.rows(range(len(metrics.step)))
    problem = f"{metrics.damaged} lines of metrics.jsonl could not be read" if metrics.damaged else ""
    named = {clean(name)[:80]: values for name, values in series.items()}
    return {"step": metrics.step.tolist(), "series": named, "speed": speed(folder, columns.timing),
            "problem": problem}  # fmt: skip


def speed(folder: Path, timing: MetricColumns) -> Json:
    """Speed over steps; empty where timing.jsonl cannot be read."""
    try:
        timing.update(folder / "timing.jsonl")
        per_iteration = runs.steps_per_iteration(folder) or 0
    except Unreadable:
        return {"step": [], "series": {}}
    series = timing.rows(range(len(timing.step)))
    return {"step": [iteration * per_iteration for iteration in timing.step],
            "series": {name: values for name, values in series.items() if name == SPEED}}  # fmt: skip
