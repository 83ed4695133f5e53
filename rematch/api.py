"""Rematch from Python: train, resume and load runs. The other commands are in rematch/verbs/."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rematch.agents import policy_export
from rematch.agents.policy import Policy, digest
from rematch.cluster.request import ClusterRequest as ClusterRequest
from rematch.cluster.request import place_of
from rematch.core import config as settings
from rematch.core.errors import ConfigError, LearnError, TrainingError, UserCodeError
from rematch.core.system import user_code
from rematch.core.system.gpu_errors import is_gpu_error
from rematch.core.system.interrupts import StopRequest, StopRequested
from rematch.core.system.progress import PROGRESS
from rematch.curriculum import archive_files
from rematch.reporting import run_outputs
from rematch.reporting.console import Console
from rematch.reporting.html import notebook
from rematch.reporting.result import PrintableRun
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.reporting.text import count_of
from rematch.storage import lineage
from rematch.storage.checkpoint import Checkpoint
from rematch.storage.lineage import Lineage
from rematch.storage.run_folder import CODE_FAILED, FAILED_EVENT, Run
from rematch.training import memory_estimate
from rematch.training.config import Config, start_notes
from rematch.training.config import default as default
from rematch.training.fingerprint import CODE, changed_code, fingerprint
from rematch.training.loop import train as loop
from rematch.training.recipes import code_flag
from rematch.training.recipes import configure as configure
from rematch.training.recipes import recipes as recipes
from rematch.training.recipes import stored_config as stored_config
from rematch.training.setup import Place
from rematch.training.trained_run import STATE_ERRORS, TrainedRun, load_run
from rematch.training.trained_run import world_builder as world_builder
from rematch.training.trainer import Trainer
from rematch.worlds import conformance


class Trained(PrintableRun, TrainedRun):
    """A run as it stands; it prints its newest scoreboard and verdict."""


class RunWithPlace(Protocol):
    """Trains a run whose games are played at a place; None: in this process."""

    def __call__(self, *, place: Place | None) -> Trained: ...


def load(folder: Path | str) -> Trained:
    """A run's settings, newest policies and evaluations, or those of an exported policy; changes no file."""
    return Trained(**vars(load_run(folder)))


def free_folder(runs: Path, recipe: str) -> Path:
    """The first of runs/RECIPE-1, runs/RECIPE-2, ... that does not exist."""
    stem = Path(recipe).stem
    number = 1
    while (runs / f"{stem}-{number}").exists():
        number += 1
    return runs / f"{stem}-{number}"


def train(
    recipe: str | Config = "quick",
    changes: Mapping[str, Any] | None = None,
    folder: Path | str | None = None,
    console: Console | None = None,
    minutes: float | None = None,
    notes: Sequence[str] = (),
    *,
    cluster: ClusterRequest | None = None,
) -> Trained:
    """Start a run and train it to its end, or for `minutes`. ConfigError if the folder has a run already.

    `notes` are the first lines on the console and in train.log. `cluster` plays the training games on the
    actors of a Ray cluster; the files are the same.
    """
    config = configure(recipe, changes=changes) if isinstance(recipe, str) else recipe
    if folder is None:
        folder = free_folder(Path("runs"), recipe if isinstance(recipe, str) else config.game)
    run = partial(_start, config, None, Path(folder), console, minutes, notes)
    return _last_iteration_saved(run, Path(folder), console, cluster)


def train_from(
    source: Path | str,
    config: Config,
    folder: Path | str,
    console: Console | None = None,
    minutes: float | None = None,
    notes: Sequence[str] = (),
    *,
    cluster: ClusterRequest | None = None,
) -> Trained:
    """As `train`, from the weights of a policy file or of another run's policies."""
    settings.validate(config)
    policies = policy_export.initial_policies(Path(source), config)
    names = ", ".join(f"{role} {digest(policy.weights)[:12]}" for role, policy in policies.items())
    origin = f"Starts from the weights of {Path(source).name}: {names}"
    start = StartingPolicies(policies, Lineage(kind=lineage.POLICIES, source=Path(source).name, state=names))
    run = partial(_start, config, start, Path(folder), console, minutes, [*notes, origin])
    return _last_iteration_saved(run, Path(folder), console, cluster)


@dataclass(frozen=True)
class StartingPolicies:
    """The policies that a run starts from, by role, and the record of where they come from."""

    policies: Mapping[str, Policy]
    lineage: Lineage


def _start(
    config: Config, start: StartingPolicies | None, folder: Path, console: Console | None,
    minutes: float | None, notes: Sequence[str], *, place: Place | None,
) -> Trained:  # fmt: skip
    settings.validate(config)
    if len(text := settings.to_yaml(config)) > settings.MAX_CHARACTERS:
        raise ConfigError(f"settings of {len(text)} characters: `resume` could not read them; expected at "
                          f"most {settings.MAX_CHARACTERS}")
    Run.refuse_used(folder)  # before the costly part; `create` checks again under its lock
    notes = [*notes, *conformance.check_user_game(config.game, config.world)]
    memory_estimate.check(config)
    with memory_estimate.gpu_errors(config):
        trainer = Trainer(config, place=place)
    if start is not None:
        start_from(trainer, start.policies)
    with StopRequest(minutes) as stop, Run.create(folder, text) as run:
        for note in notes:
            run.log_line(note)
            if console is not None and not run.stdout_is_log:
                console.line(note)
        announce(trainer, run)
        if start is not None:  # no setting holds them: a run that is killed now can still be resumed
            start.lineage.write(run.folder)
            run.save(trainer.clock.iteration, trainer.state_dict(), fingerprint(config), temporary=True)
        return _run_loop(trainer, run, console, stop, resumed=False)


def start_from(trainer: Trainer, policies: Mapping[str, Policy]) -> None:
    """Give the learners the weights of these policies, by role; all other state is that of a new run."""
    learners = trainer.agents.learners
    for role, policy in policies.items():
        if role not in learners:
            raise ConfigError(f"--from: a policy for {role}; learners are {', '.join(learners)}")
        learners[role].load_weights(policy)
    if policies:
        trainer.policies_loaded()


def resume(
    folder: Path | str,
    console: Console | None = None,
    minutes: float | None = None,
    other_machine: bool = False,
    *,
    cluster: ClusterRequest | None = None,
) -> Trained:
    """Continue a run from its newest valid checkpoint, to the same bits as without the interruption.

    `other_machine` allows a machine or library versions with which the bits differ. `cluster` is that of
    `train`; the run may have been started without one, or with another number of actors.
    """
    run = partial(_resume, Path(folder), console, minutes, other_machine)
    return _last_iteration_saved(run, Path(folder), console, cluster)


def _resume(
    folder: Path, console: Console | None, minutes: float | None, other_machine: bool, *, place: Place | None
) -> Trained:
    with StopRequest(minutes) as stop, Run.open(folder, write=True) as run:
        trainer, notes = restored(run, other_machine, place)
        run.timing({"event": "resume", "iteration": trainer.clock.iteration, "time": time.time()})
        if console is not None:
            for note in notes:
                console.line(note)
        return _run_loop(trainer, run, console, stop, resumed=True)


def restored(
    run: Run, other_machine: bool = False, place: Place | None = None
) -> tuple[Trainer, list[str]]:
    """A trainer in the state of the newest checkpoint, and lines for the console; its files are rewound."""
    config = stored_config(run)
    notes = conformance.check_user_game(config.game, config.world)
    memory_estimate.check(config)
    with memory_estimate.gpu_errors(config):
        trainer = Trainer(config, place=place)
    checkpoint = run.load()
    if checkpoint is not None:
        notes += [f"checkpoint {name} does not verify: {why}" for name, why in checkpoint.skipped]
        check_fingerprint(run.folder, config, checkpoint, other_machine)
        load_checkpoint(trainer, checkpoint)
    notes += run.rewind(checkpoint)
    if checkpoint is None:
        announce(trainer, run)
    source = f"checkpoint {checkpoint.folder.name}" if checkpoint else "the beginning"
    notes.append(f"resumed {run.folder} at iteration {trainer.clock.iteration}, from {source}")
    return trainer, notes


def check_fingerprint(
    folder: Path | str, config: Config, checkpoint: Checkpoint, other_machine: bool = False
) -> None:
    """ConfigError where this machine or the user's code would give other bits than the checkpoint has."""
    if other_machine:
        return
    remedy = "the run can continue, but not to the same bits; allow that with --other-machine"
    if changed := changed_code(config, checkpoint.fingerprint):
        raise ConfigError(f"{folder}: changed since the checkpoint was saved: {', '.join(changed)}; {remedy}")
    present = fingerprint(config)
    different = [key for key in present
                 if not key.startswith(CODE) and checkpoint.fingerprint.get(key) != present[key]]
    if different:
        raise ConfigError(f"{folder}: saved with another {', '.join(different)}: {remedy}")


def load_checkpoint(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Bring a trainer to the state of a checkpoint; ConfigError where the state belongs to another run."""
    try:
        trainer.load_state_dict(checkpoint.parts)
        if trainer.clock.iteration != checkpoint.iteration:
            raise ValueError(f"its manifest has iteration {checkpoint.iteration}")
    except UserCodeError:
        raise
    except STATE_ERRORS as error:
        why = user_code.described(error)
        raise ConfigError(f"{checkpoint.folder}: not a checkpoint of this run: {why}") from None


def announce(trainer: Trainer, run: Run) -> None:
    """The first lines of train.log."""
    c = trainer.config
    iterations = count_of(c.iterations, "iteration")
    run.log_line(f"Run {c.game} seed {c.seed}: {iterations} of {c.games} games x {c.steps} steps")
    for note in start_notes(trainer.config, trainer.setup.spec):
        run.log_line(note)
    for name in trainer.setup.user_code:
        run.log_line(f"Component from {name}")


def _run_loop(
    trainer: Trainer, run: Run, console: Console | None, stop: StopRequest, resumed: bool
) -> Trained:
    """Train to the end or until `stop`, then write the outputs of the run."""
    if console is None and notebook.kernel() is not None:
        console = notebook.NotebookConsole()
    display = Console(live=False) if console is None else console
    if console is None or run.stdout_is_log:
        display.off = True
    c, clock = trainer.config, trainer.clock
    first = clock.iteration
    trainer.bind(run, display, stop)
    stop.announce_with(display.notice)
    trained = Trained(run.folder, c, trainer.agents.players, run.history)
    if clock.done:
        why = f" ({clock.end_reason})" if clock.end_reason else ""
        display.line(f"{run.folder} is complete{why} after {clock.step} steps: there is nothing to train")
        trainer.start(resumed=True)  # files that were damaged since
        finish(trainer, run, display, missing=True)
        return trained
    before = f"after {first} of " if first else ""
    iterations = count_of(c.iterations, "iteration")
    display.line(f"run {run.folder}: {c.game}, seed {c.seed}, {before}{iterations} of {c.games} games x "
                 f"{c.steps} steps")
    for note in start_notes(trainer.config, trainer.setup.spec):
        display.line(note)
    display.start(f"{run.folder.name} ({c.game})", clock.total_steps, clock.step,
                  run.history[-1] if run.history else {})
    done, repeated = False, ""
    try:
        with PROGRESS.shown_by(display.share):
            done = _iterations(trainer, stop, resumed)
    except StopRequested:
        saved = first if trainer.log.saved_iteration is None else trainer.log.saved_iteration
        repeated = f", inside a long operation; a resumed run repeats what follows iteration {saved}"
    except TrainingError as error:  # `rematch status` reads this event
        cause = "learning" if isinstance(error, LearnError) else CODE_FAILED
        run.timing({"event": FAILED_EVENT, "cause": cause, "why": str(error), "iteration": clock.iteration,
                    "time": time.time()})
        raise
    finally:
        display.stop()
    trained.history = run.history
    if done:
        finish(trainer, run, display, missing=False)
    else:
        event = {"event": "stop", "why": stop.reason, "iteration": clock.iteration, "time": time.time()}
        run.timing(event)
        state = f"stopped ({stop.reason}) at iteration {clock.iteration} of {c.iterations}{repeated}"
        display.line(f"{state}; continue with: rematch resume {run.folder}{code_flag(c)}")
    return trained


def _iterations(trainer: Trainer, stop: Callable[[], bool], resumed: bool) -> bool:
    """Train until the end or until `stop()`; an error of the run's code states its last whole iteration."""
    try:
        with memory_estimate.gpu_errors(trainer.config), user_code.one_line_errors():
            trainer.start(resumed)
            return loop(trainer, stop)
    except TrainingError as error:
        error.unsaved = trainer.log.unsaved_iteration
        raise


def _last_iteration_saved(
    run: RunWithPlace, folder: Path, console: Console | None, cluster: ClusterRequest | None
) -> Trained:
    """What `run` returns; if code of the run fails, its last whole iteration is saved before the error.

    The hook that raised has left a state that is half changed. So the iterations since the newest checkpoint
    are trained again, to the same bits.
    """
    try:
        with place_of(cluster) as place:
            return run(place=place)
    except TrainingError as error:
        failure = error
    last, latest = failure.unsaved, failure
    while last is not None:
        _release(latest)
        try:
            with place_of(cluster) as place:
                _train_again(folder, last, console is None or console.off, place)
            last = None
        except TrainingError as error:  # code that fails at random: in an earlier iteration than before
            last, latest = error.unsaved, error
        except (ConfigError, OSError, MemoryError, StopRequested, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_gpu_error(error):
                raise
            if console is not None:
                console.line(f"iteration {last} could not be saved: {str(error).partition(chr(10))[0]}")
            last = None
    raise failure


def _release(error: BaseException | None) -> None:
    """Keep the traceback of an exception as text: its frames refer to a trainer, which may hold gigabytes."""
    while error is not None:
        error.add_note("".join(traceback.format_tb(error.__traceback__)))
        error.__traceback__ = None
        error = error.__cause__
    gc.collect()


def _train_again(folder: Path, last: int, quiet: bool, place: Place | None) -> None:
    """Train a run from its newest checkpoint to the end of iteration `last`, as before, and save that."""
    with StopRequest(None) as stop, Run.open(folder, write=True) as run, ProgressDisplay(quiet) as display:
        trainer, _ = restored(run, True, place)  # this process has trained from that checkpoint
        clock, first = trainer.clock, trainer.clock.iteration
        display.line(f"training iterations {first + 1} to {last} again, to save the last whole iteration")

        def reached() -> bool:
            PROGRESS.report((clock.iteration - first) / max(1, last - first), f"iteration {clock.iteration}")
            return stop() or (clock.iteration >= last and not clock.evaluation_pending)

        silent = Console(live=False)
        silent.off = True
        trainer.bind(run, silent, stop)
        _iterations(trainer, reached, resumed=True)
        display.line(f"saved iteration {clock.iteration}; continue with: rematch resume {folder}"
                     f"{code_flag(trainer.config)}")


def finish(trainer: Trainer, run: Run, display: Console, missing: bool) -> None:
    """Write the outputs of a finished run (only those that are `missing`), and print scoreboard and files."""
    try:
        with ProgressDisplay(quiet=display.off):
            files = run_outputs.make(trainer, run, missing)
    except StopRequested as reason:
        display.line(f"stopped ({reason}): the training is complete and saved; write the missing files with: "
                     f"rematch resume {run.folder}")
        return
    if run.history:
        display.scoreboard(run.history[-1])
    for line in archive_files.summary_lines(run.folder):
        display.line(line)
    display.list_files(files)
