"""Calibration: the value of a numeric setting at which trained agents reach a target win rate.

    runs/NAME/
      settings.yaml            all settings; a run adds its value and its seed as flags
      calibration.yaml         recipe, setting, target, role, seeds, range
      KEY=VALUE/seed-0/        a run like any other
      calibration.json         the result

Runs are trained at both ends of a range, then at values inside the bracket, chosen by bisection. A value is
above (below) the target when the 95 % interval of its win rate over the seeds lies above (below) it. The
result is an interval that assumes no model: it ends at the nearest values whose intervals exclude the target.
The same command again continues: every value follows from the results of the earlier ones.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.settings import strict_yaml
from rematch.core.system.interrupts import StopRequest
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.evaluation import Evaluation
from rematch.evaluation.statistics import student, wilson
from rematch.storage import atomic_files
from rematch.storage.run_folder import Run
from rematch.storage.run_lock import RunLock
from rematch.sweeps.plan import SETTINGS, Configure, Plan, cell_name, make_plan
from rematch.sweeps.processes import Task
from rematch.sweeps.run_place import Limits, RunPlace, run_place
from rematch.training import recipes

FILE, RESULT = "calibration.yaml", "calibration.json"
MOST_ROUNDS = 60
DIGITS = 6  # significant digits of a value: it is part of a folder's name
ABOVE, BELOW, UNDECIDED = "above", "below", "undecided"
Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to calibrate: `key` within [low, high], so that `role` wins the fraction `target` of its games."""

    recipe: str
    key: str
    low: float
    high: float
    role: str
    target: float = 0.5
    tolerance: float = 0.0  # width of the bracket at which the search ends; 0: 1 % of the range
    precision: float = 0.03  # or: the distance of a measured win rate from the target
    rounds: int = 8  # values inside the range, at most
    seeds: tuple[int, ...] = (0, 1, 2)

    def check(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"--range = {self.low:g},{self.high:g}: expected LOW,HIGH with LOW below HIGH")
        if not 0 < self.target < 1:
            raise ConfigError(f"--target = {self.target:g}: expected a win rate between 0 and 1")

    @property
    def width(self) -> float:
        return self.tolerance or 0.01 * (self.high - self.low)


@dataclass(frozen=True)
class Point:
    """The win rate at one value: of every seed, and their mean with its 95 % interval."""

    value: float
    rates: tuple[float, ...]
    games: int
    low: float
    high: float
    target: float

    @property
    def mean(self) -> float:
        return fmean(self.rates)

    @property
    def side(self) -> str:
        if self.low > self.target:
            return ABOVE
        return BELOW if self.high < self.target else UNDECIDED


def interval_over_seeds(rates: Sequence[float], games: int) -> tuple[float, float]:
    """The 95 % interval of the mean win rate of runs that differ in their seed.

    Student's interval over the seeds, never narrower than that of all games together; with one seed only the
    games count, and the interval says nothing about other seeds.
    """
    mean = fmean(rates)
    low, high = wilson(mean * games * len(rates), games * len(rates))
    if len(rates) > 1:
        half = student(len(rates) - 1) * stdev(rates) / math.sqrt(len(rates))
        low, high = min(low, mean - half), max(high, mean + half)
    return max(0.0, low), min(1.0, high)


def bracket(points: Sequence[Point]) -> tuple[Point, Point] | None:
    """The neighbouring values, by their means, between which the win rate crosses the target."""
    ordered = sorted(points, key=lambda point: point.value)
    rising = ordered[-1].mean > ordered[0].mean
    for left, right in itertools.pairwise(ordered):
        crosses = left.mean <= left.target <= right.mean if rising else left.mean >= left.target >= right.mean
        if crosses:
            return left, right
    return None


def crossing(left: Point, right: Point) -> float:
    """The value between two points at which the line through their log-odds meets the target's."""

    def log_odds(rate: float) -> float:
        inside = min(max(rate, 0.005), 0.995)
        return math.log(inside / (1 - inside))

    a, b, goal = log_odds(left.mean), log_odds(right.mean), log_odds(left.target)
    share = 0.5 if a == b else (goal - a) / (b - a)
    return left.value + min(max(share, 0.0), 1.0) * (right.value - left.value)


def next_value(left: Point, right: Point, whole: bool) -> float | None:
    """A value inside the bracket: the crossing, but not in its outer fifths; None where there is none."""
    width = right.value - left.value
    value = min(max(crossing(left, right), left.value + 0.2 * width), right.value - 0.2 * width)
    value = float(round(value)) if whole else float(f"{value:.{DIGITS}g}")
    return value if left.value < value < right.value else None


def confidence_interval(points: Sequence[Point], low: float, high: float) -> tuple[float, float]:
    """The nearest values on both sides whose intervals exclude the target; else the ends of the range."""
    ordered = sorted(points, key=lambda point: point.value)
    rising = ordered[-1].mean > ordered[0].mean
    first, last = (BELOW, ABOVE) if rising else (ABOVE, BELOW)
    lower = [point.value for point in ordered if point.side == first]
    upper = [point.value for point in ordered if point.side == last]
    return max(lower, default=low), min(upper, default=high)


def summary(request: Request, points: Sequence[Point], steps: int) -> dict[str, Any]:
    """The result as JSON values; `value` is None where the range does not contain the target."""
    pair = bracket(points) if len(points) > 1 else None
    value, low, high = None, request.low, request.high
    if pair is not None:
        nearest = min(points, key=lambda point: abs(point.mean - request.target))
        exact = abs(nearest.mean - request.target) <= request.precision
        value = nearest.value if exact else crossing(*pair)
        low, high = confidence_interval(points, request.low, request.high)
    return {
        "recipe": request.recipe, "key": request.key, "role": request.role, "target": request.target,
        "value": value, "low": low, "high": high, "runs": sum(len(point.rates) for point in points),
        "seeds": list(request.seeds), "steps": steps, "range": [request.low, request.high],
        "points": [{"value": point.value, "rates": list(point.rates), "games": point.games,
                    "mean": point.mean, "low": point.low, "high": point.high, "side": point.side}
                   for point in sorted(points, key=lambda point: point.value)],
    }  # fmt: skip


class Calibration:
    """Trains runs at one value after the other in a folder of its own."""

    def __init__(self, request: Request, folder: Path, configure: Configure, log: Log) -> None:
        request.check()
        self.request, self.folder, self.configure, self.log = request, folder, configure, log
        self.points: list[Point] = []
        self.steps = 0
        self.failed = ""  # why a run failed
        self.whole = isinstance(settings.get(configure([]), request.key), int)
        for value in (request.low, request.high):
            self.plan(value)  # settings that are not valid are refused before any run starts

    def plan(self, value: float) -> Plan:
        text = str(int(value)) if self.whole else f"{value:.{DIGITS}g}"
        grid: dict[str, tuple[str, ...]] = {self.request.key: (text,)}
        return make_plan(self.folder, self.request.recipe, self.request.seeds, grid, self.configure)

    def run(self, place: RunPlace, jobs: int | None, stop: StopRequest) -> None:
        """Measure the ends of the range, then values inside the bracket, until it is narrow enough."""
        request = self.request
        for value in (request.low, request.high):
            if not self.measure(value, place, jobs, stop):
                return
        for _ in range(request.rounds):
            pair = bracket(self.points)
            if pair is None or self.done(pair):
                return
            inside = next_value(*pair, self.whole)
            if inside is None or not self.measure(inside, place, jobs, stop):
                return

    def done(self, pair: tuple[Point, Point]) -> bool:
        precise = any(abs(point.mean - self.request.target) <= self.request.precision for point in pair)
        return precise or pair[1].value - pair[0].value <= self.request.width

    def measure(self, value: float, place: RunPlace, jobs: int | None, stop: StopRequest) -> bool:
        """Train all seeds at a value; False where that was not finished."""
        plan = self.plan(value)
        tasks = plan.tasks()
        sizes = place.sizes(plan.configs, len(tasks), jobs)
        self.log(f"{self.request.key} = {value:g}: {len(tasks)} runs, {sizes[0]} at a time")
        values = 2 + self.request.rounds  # at most
        with PROGRESS.part(len(self.points) / values, (len(self.points) + 1) / values):
            place.children(plan.configs, tasks, sizes, self.log).run(stop)
        self.failed = next((f"{task.name}: {task.why}" for task in tasks if task.state == "failed"), "")
        if self.failed or not all(task.state == "finished" for task in tasks):
            return False
        point = self.point(value, tasks)
        self.points.append(point)
        self.steps += sum(cell.config.total_steps for cell in plan.cells) * len(tasks)
        rates = ", ".join(f"{rate:.3f}" for rate in point.rates)
        self.log(f"{self.request.key} = {value:g}: {self.request.role} wins {point.mean:.3f} "
                 f"[{point.low:.3f}, {point.high:.3f}] ({rates}; {point.games} games each): {point.side}")
        return True

    def point(self, value: float, tasks: Sequence[Task]) -> Point:
        rates, games = [], []
        for task in tasks:
            with Run.open(task.folder, write=False) as run:
                evaluation = Evaluation.from_json(run.history[-1])
            rate = evaluation.rates[self.request.role]
            rates.append(rate.rate)
            games.append(rate.games)
        low, high = interval_over_seeds(rates, min(games))
        return Point(value, tuple(rates), min(games), low, high, self.request.target)


def check_key(config: Config, key: str) -> float:
    """The value of a numeric setting; ConfigError where it is none."""
    known = {name for name, _, _ in settings.leaves(config)}
    if key not in known:
        near = settings.nearest(key, sorted(known))
        raise ConfigError(f"--by = {key}: unknown setting" + (f"; nearest: {near}" if near else ""))
    value = settings.get(config, key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"--by = {key}: its value is {value!r}; expected a setting that is a number")
    return float(value)


def check_role(roles: Sequence[str], role: str) -> str:
    """The role whose win rate is calibrated: the first one where none is named."""
    if len(roles) < 2:
        raise ConfigError("calibrate: the world has one role, and a game against itself is always even; "
                          "expected a world with two roles")
    if role and role not in roles:
        raise ConfigError(f"--role = {role}: expected one of {', '.join(roles)}")
    return role or roles[0]


def open_folder(request: Request, folder: Path, config: Config) -> None:
    """Make the folder of a new calibration, or refuse one that holds another."""
    metadata = {"recipe": request.recipe, "by": request.key, "role": request.role,
                "target": request.target, "range": [request.low, request.high],
                "seeds": list(request.seeds)}
    if (folder / FILE).is_file():
        text = atomic_files.read_regular_file(folder / FILE, atomic_files.MAX_TEXT_BYTES).decode()
        stored = settings.read_yaml(text, str(folder / FILE))
        unlike = [f"{key} = {value!r} instead of {stored.get(key)!r:.60}" for key, value in metadata.items()
                  if stored.get(key) != value]
        before = recipes.configure(str(folder / SETTINGS))
        same = {"seed": config.seed, request.key: settings.get(config, request.key)}  # each run has its own
        if settings.replace(before, same) != config:
            unlike.append("other settings")
        if unlike:
            raise ConfigError(f"{folder} holds another calibration: {', '.join(unlike)}; choose another "
                              "--name, or give the same settings")
        return
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty and no calibration: choose another --name")
    with atomic_files.os_errors_as_run_error(f"{folder} cannot be written"):
        folder.mkdir(0o700, parents=True, exist_ok=True)
        atomic_files.replace_file(folder / SETTINGS, settings.to_yaml(config).encode())
        atomic_files.replace_file(folder / FILE, strict_yaml.dump(metadata).encode())


def calibrate(
    request: Request, folder: Path, configure: Configure, limits: Limits, log: Log
) -> dict[str, Any]:
    """Train until the value is found, or until a stop; the result as JSON values.

    `failed` says which run failed, `stopped` that the search was stopped before its end.
    """
    calibration = Calibration(request, folder, configure, log)
    with run_place(limits.cluster) as place:  # first: a cluster that cannot be used leaves no folder
        open_folder(request, folder, configure([]))
        lock = RunLock(folder)
        try:
            with StopRequest(limits.minutes) as stop:
                calibration.run(place, limits.jobs, stop)
                result = summary(request, calibration.points, calibration.steps)
                result |= {"failed": calibration.failed, "stopped": stop.reason or ""}
                text = json.dumps(without_stop(result), indent=1) + "\n"
                atomic_files.replace_file(folder / RESULT, text.encode())
            return result
        finally:
            lock.release()


def without_stop(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "stopped"}


def usual_folder(recipe: str, key: str) -> Path:
    """The default folder; it never changes, so the same command continues."""
    return Path("runs") / f"{Path(recipe).stem}-calibrate-{cell_name({key: ''}).rstrip('=')}"
