"""`rematch search`: Optuna chooses settings, evaluations stop bad ones early, fresh seeds confirm the best.

    runs/NAME/
      search.yaml          recipe, varied settings, objective, seeds: the same command continues the search
      settings.yaml        all other settings
      journal.jsonl        every trial (Optuna's journal): a killed search loses no finished one
      trials/DIGEST/seed-0 a run like any other; a trial that was interrupted goes on from its checkpoints
      search.json          the table

Every suggestion follows from the seed of the search and the finished trials, so that a search that was killed
and continued ends with the same table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rematch.cluster.place import RemotePlace
from rematch.cluster.request import ClusterRequest, place_of
from rematch.core import config as settings
from rematch.core import rng
from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.run_config import Config
from rematch.core.settings import strict_yaml
from rematch.core.system.interrupts import StopRequest, StopRequested
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.text import clean, number
from rematch.reporting.result import Block, Result, Table
from rematch.storage import atomic_files
from rematch.storage.run_folder import CONFIG_FILE
from rematch.storage.run_lock import LOCK_FILE, RunLock
from rematch.sweeps.search_objective import STEPS, Objective, over_seeds
from rematch.sweeps.search_space import Parameter, flags, read_space
from rematch.sweeps.search_training import advance, evaluation_count
from rematch.training import memory_estimate, recipes
from rematch.worlds import registry

FILE, SETTINGS, JOURNAL = "search.yaml", "settings.yaml", "journal.jsonl"
RESULT, TRIALS = "search.json", "trials"
CONFIRM_SEED = 1_000_000  # first of the fresh seeds: no trial uses it
STREAM = 77  # of the random numbers that seed Optuna's sampler
Configure = Callable[[Sequence[str]], Config]


class SearchResult(Result):
    """The trials of a search, its winner, and how the winner did on fresh seeds."""

    def blocks(self) -> Iterator[Block]:
        yield (f"Search {self['search']}: {self['recipe']}, objective {self['objective']} "
               f"({'larger' if self['maximize'] else 'smaller'} is better), {self['seeds']} seeds per trial")
        yield Table([("trial", "state", *self["over"], "value", "95 % interval"), *self._rows()], right=(0,))
        if self["winner"] is None:
            yield "no trial has finished yet"
            return
        yield ""
        yield f"best trial: {self['winner']['trial']}"
        yield from self._confirmation()

    def _rows(self) -> Iterator[list[str]]:
        for row in self["trials"]:
            values = [short(row["values"].get(key, "-")) for key in self["over"]]
            yield [str(row["trial"]), row["state"], *values, number(row["value"]), _bounds(row)]

    def _confirmation(self) -> Iterator[Block]:
        rows = self["confirmation"]
        if not rows:
            yield "not confirmed on fresh seeds yet"
            return
        yield Table([("settings", "in the search", "on fresh seeds", "95 % interval", "seeds"),
                     *([row["settings"], number(row["searched"]), number(row["value"]), _bounds(row),
                        str(row["n"])] for row in rows)])
        best = rows[0]
        change = "shrank" if best["shrunk"] >= 0 else "grew"
        yield (f"The best of {len(self['trials'])} trials looked like {number(best['searched'])}; on "
               f"{best['n']} fresh seeds it is {number(best['value'])}: it {change} by "
               f"{number(abs(best['shrunk']))}. All values of fresh seeds: "
               f"{', '.join(number(value) for value in best['values'])}")
        gain = self["gain"]
        yield (f"Better than the recipe on the same fresh seeds by {number(gain['mean'])} "
               f"{_bounds(gain)} (95 % interval, paired by seed)")


def short(text: str) -> str:
    """A value of a setting for the table: four significant digits of a number."""
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def _bounds(row: Mapping[str, Any]) -> str:
    return "-" if row["low"] is None else f"[{number(row['low'])}, {number(row['high'])}]"


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What a search looks for, and how many runs it trains."""

    objective: str = "score"  # score, nash_conv, or steps:X
    trials: int = 20
    seeds: int = 2  # of each trial
    confirm: int = 3  # fresh seeds of the best trial and of the recipe itself
    seed: int = 0  # of the suggestions

    def check(self) -> None:
        """ConfigError where a number is out of its range."""
        for name, low, high in (("trials", 1, 10_000), ("seeds", 1, 100), ("confirm", 0, 100),
                                ("seed", 0, 2**32 - 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigError(f"{name} = {value!r}: expected a whole number from {low} to {high}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that determines a search."""

    recipe: str
    folder: Path
    space: Sequence[Parameter]
    request: SearchRequest
    objective: Objective
    configure: Configure
    place: RemotePlace | None = None  # where training games are played; None: here

    def identity(self) -> dict[str, Any]:
        """What must be equal when a search goes on; the numbers of trials and of fresh seeds may grow."""
        over = [" ".join([each.key, *each.ends(), *(["log"] if each.log else [])]) for each in self.space]
        return {"recipe": self.recipe, "over": over, "objective": self.objective.text,
                "seeds": self.request.seeds, "seed": self.request.seed}

    def config(self, values: Mapping[str, str]) -> Config:
        return self.configure(flags(values))

    def run_folder(self, values: Mapping[str, str], seed: int) -> Path:
        text = json.dumps(dict(sorted(values.items())))
        return self.folder / TRIALS / atomic_files.sha256_hex(text.encode())[:16] / f"seed-{seed}"


def optuna() -> Any:
    """The library; NotInstalled with the install command where it is missing."""
    try:
        import optuna as library
    except ImportError:
        raise NotInstalled("Optuna", "optuna") from None
    library.logging.set_verbosity(library.logging.ERROR)
    return library


def search(
    recipe: str = "quick",
    *,
    over: Mapping[str, str] | Sequence[str],
    request: SearchRequest | None = None,
    changes: Mapping[str, Any] | None = None,
    folder: Path | str | None = None,
    minutes: float | None = None,
    cluster: ClusterRequest | None = None,
) -> SearchResult:
    """Search settings of a recipe with Optuna; `over` is {"ppo.lr": "1e-4..1e-2:log"} or such texts.

    Each trial trains several seeds and is stopped at an evaluation where it is worse than most others there.
    The best trial is trained again on fresh seeds, beside the recipe itself. The same call again continues a
    search that was stopped or killed. `cluster`: actors of a Ray cluster play the training games.
    """
    texts = [f"{key}={value}" for key, value in over.items()] if isinstance(over, Mapping) else list(over)

    def configure(more: Sequence[str]) -> Config:
        return recipes.configure(recipe, flags=more, changes=changes)

    target = Path(folder) if folder is not None else usual_folder(recipe)
    return run(make_plan(recipe, target, texts, configure, request or SearchRequest()), minutes, cluster)


def usual_folder(recipe: str) -> Path:
    """The default folder of a recipe's search; it never changes, so the same command continues it."""
    return Path("runs") / f"{Path(recipe).stem}-search"


def make_plan(
    recipe: str, folder: Path, over: Sequence[str], configure: Configure, request: SearchRequest
) -> Plan:
    """The plan of a search; ConfigError before any work where a value of the space is not valid."""
    request.check()
    optuna()
    config = configure([])
    space = read_space(over, config)
    for parameter in space:
        for end in parameter.ends():
            configure(flags({parameter.key: end}))
    memory_estimate.check(config)
    objective = Objective.parse(request.objective)
    objective.check(registry.find(config.game))
    return Plan(recipe=recipe, folder=folder, space=space, request=request, objective=objective,
                configure=configure)


def run(plan: Plan, minutes: float | None = None, cluster: ClusterRequest | None = None) -> SearchResult:
    """Search until all trials have ended, then confirm; the table so far where it is stopped."""
    with place_of(cluster) as place:
        return _run(replace(plan, place=place), minutes)


def _run(plan: Plan, minutes: float | None) -> SearchResult:
    with atomic_files.os_errors_as_run_error(f"{plan.folder} cannot be made"):
        refuse_other(plan)
        plan.folder.mkdir(0o700, parents=True, exist_ok=True)
        lock = RunLock(plan.folder)
    try:
        refuse_other(plan)  # again: another process may have been faster
        atomic_files.replace_file(plan.folder / FILE, strict_yaml.dump(plan.identity()).encode())
        atomic_files.replace_file(plan.folder / SETTINGS, settings.to_yaml(plan.config({})).encode())
        with StopRequest(minutes) as stop:
            study = open_study(plan)
            confirmation: list[dict[str, Any]] = []
            try:
                with PROGRESS.part(0.0, 0.8):
                    run_trials(plan, study, stop)
                with PROGRESS.part(0.8, 1.0):
                    confirmation = confirm_winner(plan, study, stop)
            except StopRequested:
                pass
        table = SearchResult(result(plan, study, confirmation) | {"stopped": stop.reason})
        data = json.dumps(table.to_dict(), indent=1) + "\n"
        atomic_files.replace_file(plan.folder / RESULT, data.encode())
        return table
    finally:
        lock.release()


def refuse_other(plan: Plan) -> None:
    """Refuse a folder that holds another search, a run or other files."""
    if not os.path.lexists(plan.folder):
        return
    if os.path.lexists(plan.folder / CONFIG_FILE):
        raise ConfigError(f"{plan.folder} holds a run: choose another --name")
    file = plan.folder / FILE
    if not file.exists():
        others = set(os.listdir(plan.folder)) - {LOCK_FILE}
        if [name for name in others if not name.startswith(".tmp-")]:
            raise ConfigError(f"{plan.folder} is not empty and not a search: choose another --name")
        return
    text = atomic_files.read_regular_file(file, atomic_files.MAX_TEXT_BYTES).decode(errors="replace")
    stored = settings.read_yaml(text, str(file))
    different = [key for key, value in plan.identity().items() if stored.get(key) != value]
    if different:
        key = different[0]
        raise ConfigError(f"{plan.folder} holds another search: {key} is {stored.get(key)!r:.60} there; "
                          "choose another --name, or give the same request")
    old, new = recipes.configure(str(plan.folder / SETTINGS)), plan.config({})
    if old != new:
        keys = [key for key, _, value in settings.leaves(new) if settings.get(old, key) != value]
        before = settings.get(old, keys[0])
        raise ConfigError(f"{plan.folder} holds another search: {keys[0]} is {before!r:.40} there; choose "
                          "another --name, or give the same settings")


# --- trials -------------------------------------------------------------------------------------------------


def open_study(plan: Plan) -> Any:
    """The study in the journal. The folder is locked by us, so a lock file of the journal is a dead one."""
    library = optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    path = plan.folder / JOURNAL
    atomic_files.remove(path.with_name(f"{JOURNAL}.lock"))
    backend = JournalFileBackend(str(path), lock_obj=JournalFileOpenLock(str(path)))
    direction = "maximize" if plan.objective.maximize else "minimize"
    pruner = library.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=0)
    study = library.create_study(storage=JournalStorage(backend), study_name="search", direction=direction,
                                 pruner=pruner, load_if_exists=True)
    states = library.trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):  # of a process that was killed
        study.tell(trial.number, state=states.FAIL)
        study.enqueue_trial(trial.params, user_attrs={"again": trial.number})
    return study


def ended_trials(study: Any) -> list[Any]:
    """Trials that have a result, in their order: those of a killed process do not count."""
    states = optuna().trial.TrialState
    return list(study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)))


def run_trials(plan: Plan, study: Any, stop: StopRequest) -> None:
    library = optuna()
    while (done := len(ended_trials(study))) < plan.request.trials:
        if stop():
            raise StopRequested(stop.reason)
        # the next suggestion depends on the finished trials alone, not on this process
        sampler_seed = int(rng.key(plan.request.seed, STREAM, done) % 2**32)
        study.sampler = library.samplers.TPESampler(seed=sampler_seed, n_startup_trials=5)
        trial = study.ask()
        values = {parameter.key: parameter.suggest(trial) for parameter in plan.space}
        with PROGRESS.part(done / plan.request.trials, (done + 1) / plan.request.trials):
            run_trial(plan, study, trial, values, stop)


def run_trial(plan: Plan, study: Any, trial: Any, values: Mapping[str, str], stop: StopRequest) -> None:
    """Train all seeds of a trial from evaluation to evaluation, together; tell the study how it ended."""
    states = optuna().trial.TrialState
    shown = ", ".join(f"{key} {value:.12}" for key, value in values.items())
    evaluations = evaluation_count(plan.config(values))
    histories: list[list[dict[str, Any]]] = []
    for number_of in range(1, evaluations + 1):
        histories = train_seeds(plan, values, range(plan.request.seeds), number_of, stop)
        PROGRESS.report(number_of / evaluations, f"trial {trial.number}: {shown}")
        newest = over_seeds([plan.objective.intermediate(rows) for rows in histories])
        trial.report(newest.mean, number_of)
        if number_of < evaluations and trial.should_prune():
            record(trial, newest)
            study.tell(trial, state=states.PRUNED)
            return
        if min(map(len, histories)) < number_of:
            break  # the runs ended early, by a condition of theirs
    steps = plan.config(values).total_steps
    mean = over_seeds([plan.objective.final(rows, steps) for rows in histories])
    record(trial, mean)
    study.tell(trial, mean.mean)


def record(trial: Any, mean: Any) -> None:
    trial.set_user_attr("interval", [mean.low, mean.high])


def train_seeds(
    plan: Plan, values: Mapping[str, str], seeds: Sequence[int], evaluations: int, stop: StopRequest
) -> list[list[dict[str, Any]]]:
    """Train these seeds until each has so many evaluations; their evaluations."""
    out = []
    for seed in seeds:
        config = plan.configure([*flags(values), f"--seed={seed}"])
        out.append(advance(plan.run_folder(values, seed), config, evaluations, stop, plan.place))
    return out


# --- the winner ---------------------------------------------------------------------------------------------


def confirm_winner(plan: Plan, study: Any, stop: StopRequest) -> list[dict[str, Any]]:
    """The best trial and the recipe itself on fresh seeds: rows of the table, the best trial first."""
    if not plan.request.confirm or best_trial(plan, study) is None:
        return []
    best = best_trial(plan, study)
    rows = []
    for name, values, searched in (("best trial", flag_values(plan, best), best.value), ("recipe", {}, None)):
        fresh = range(CONFIRM_SEED, CONFIRM_SEED + plan.request.confirm)
        config = plan.config(values)
        results = []
        for seed in PROGRESS.each(fresh):
            (rows_of_seed,) = train_seeds(plan, values, [seed], evaluation_count(config), stop)
            results.append(plan.objective.final(rows_of_seed, config.total_steps))
        mean = over_seeds(results)
        shrunk = None if searched is None else abs(searched - mean.mean) * _sign(plan, searched, mean.mean)
        rows.append({"settings": name, "searched": searched, "value": mean.mean, "low": mean.low,
                     "high": mean.high, "n": len(results), "values": results, "shrunk": shrunk})
    return rows


def _sign(plan: Plan, searched: float, confirmed: float) -> int:
    """1 where the fresh seeds are worse than the search said, -1 where they are better."""
    return -1 if plan.objective.better(confirmed, searched) else 1


def best_trial(plan: Plan, study: Any) -> Any:
    """The complete trial with the best value; None where none has finished."""
    complete = [trial for trial in ended_trials(study) if trial.state.name == "COMPLETE"]
    if not complete:
        return None
    return (max if plan.objective.maximize else min)(complete, key=lambda trial: trial.value)


def flag_values(plan: Plan, trial: Any) -> dict[str, str]:
    """The values of a finished trial as texts of a command line."""
    kinds = {parameter.key: parameter for parameter in plan.space}
    out = {}
    for key, value in trial.params.items():
        is_float = not kinds[key].choices and not kinds[key].whole
        out[key] = repr(float(value)) if is_float else str(value)
    return out


def result(plan: Plan, study: Any, confirmation: list[dict[str, Any]]) -> dict[str, Any]:
    """The table as JSON values."""
    rows = []
    for index, trial in enumerate(ended_trials(study)):
        low, high = trial.user_attrs.get("interval", [None, None])
        pruned = trial.state.name == "PRUNED"
        value = trial.intermediate_values[max(trial.intermediate_values)] if pruned else trial.value
        state = f"stopped at evaluation {max(trial.intermediate_values)}" if pruned else "complete"
        if pruned and plan.objective.kind == STEPS:  # its evaluations are scores, no steps
            value, low, high = None, None, None
        values = {key: clean(text) for key, text in flag_values(plan, trial).items()}
        rows.append({"trial": index, "state": state, "values": values, "value": value, "low": low,
                     "high": high})
    best = best_trial(plan, study)
    numbers = [trial.number for trial in ended_trials(study)]
    winner = None
    if best is not None:
        winner = {"trial": numbers.index(best.number), "values": flag_values(plan, best)}
    gain = None
    if len(confirmation) == 2:
        pairs = zip(confirmation[0]["values"], confirmation[1]["values"])
        sign = 1 if plan.objective.maximize else -1  # a gain is positive where the best trial is better
        gain = asdict(over_seeds([sign * (one - two) for one, two in pairs]))
    return {"search": plan.folder.name, **plan.identity(), "over": [each.key for each in plan.space],
            "maximize": plan.objective.maximize, "trials": rows, "winner": winner,
            "confirmation": confirmation, "gain": gain}


