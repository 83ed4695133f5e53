"""Rematch from Python: the same few verbs as the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rematch.agents import policy_export
from rematch.agents.build import build_agents
from rematch.agents.learners.dqn import DqnConfig
from rematch.agents.learners.q_policy import QPolicy
from rematch.agents.policy import Policy, digest
from rematch.core import config as settings
from rematch.core.errors import ConfigError, LearnError
from rematch.core.system.interrupts import StopRequest
from rematch.core.world import World
from rematch.curriculum import archive_files
from rematch.curriculum.levels import LevelProgress, begin_on, stored_level
from rematch.reporting import run_outputs
from rematch.reporting.console import Console
from rematch.reporting.result import PrintableRun
from rematch.storage.run_folder import FAILED_EVENT, Run
from rematch.training import memory_estimate
from rematch.training.components.learners import Learners
from rematch.training.config import Config
from rematch.training.config import default as default
from rematch.training.fingerprint import fingerprint
from rematch.training.loop import train as loop
from rematch.training.recipes import configure as configure
from rematch.training.recipes import recipes as recipes
from rematch.training.recipes import stored as stored
from rematch.training.trainer import ComponentError, Trainer
from rematch.worlds import registry

UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # of state that is not a run's
GENERAL_SUM = "Rewards are general-sum: the roles' rewards do not cancel"
EPISODE = "This world does not repeat itself: a resumed run begins its games anew, not to the same bits"
COLD = "All of this run is its warm-up phase: the other role never learns; expected fewer warmup_steps"
LONELY = "league.opponent_share has no effect: the world has one seat, and so no rivals"


def free_folder(runs: Path, recipe: str) -> Path:
    """runs/RECIPE-1, -2, ...: the first number not taken."""
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
) -> Trained:
    """Start a run and train it to its end (or for some minutes); refuses to overwrite one.

    `notes` are said first, on the console and in train.log.
    """
    config = configure(recipe, changes=changes) if isinstance(recipe, str) else recipe
    if folder is None:
        folder = free_folder(Path("runs"), recipe if isinstance(recipe, str) else config.game)
    return _start(config, {}, Path(folder), console, minutes, notes)


def train_from(
    source: Path | str,
    config: Config,
    folder: Path | str,
    console: Console | None = None,
    minutes: float | None = None,
    notes: Sequence[str] = (),
) -> Trained:
    """As `train`, beginning with the weights of a policy's file or of another run's policies."""
    settings.validate(config)
    policies = policy_export.starts(Path(source), config)
    names = ", ".join(f"{role} {digest(policy.weights)[:12]}" for role, policy in policies.items())
    begins = f"Begins with the weights of {Path(source).name}: {names}"
    return _start(config, policies, Path(folder), console, minutes, [*notes, begins])


def _start(
    config: Config, policies: Mapping[str, Policy], folder: Path, console: Console | None,
    minutes: float | None, notes: Sequence[str],
) -> Trained:  # fmt: skip
    settings.validate(config)
    if len(text := settings.to_yaml(config)) > settings.MAX_CHARACTERS:
        raise ConfigError(f"settings of {len(text)} characters: no resume could read them; expected at most "
                          f"{settings.MAX_CHARACTERS}")
    Run.refuse_used(folder)  # before the costly part; `create` looks again, under its lock
    memory_estimate.check(config)
    trainer = Trainer(config)
    start_from(trainer, policies)
    with StopRequest(minutes) as stop, Run.create(folder, text) as run:
        for note in notes:
            run.log_line(note)
            if console is not None and not run.stdout_is_log:
                console.line(note)
        _announce(trainer, run)
        if policies:  # they are in no setting: a run that is killed at once must find them again
            run.save(trainer.clock.iteration, trainer.state_dict(), fingerprint(config), temporary=True)
        return _go(trainer, run, console, stop, resumed=False)


def start_from(trainer: Trainer, policies: Mapping[str, Policy]) -> None:
    """Begin with the weights of these policies, by role; all else is as new."""
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
) -> Trained:
    """Go on with a run exactly where its newest whole checkpoint stands."""
    with StopRequest(minutes) as stop, Run.open(Path(folder), write=True) as run:
        config = stored(run)
        memory_estimate.check(config)
        trainer = Trainer(config)
        checkpoint = run.load()
        notes = (
            [f"checkpoint {name} does not verify: {why}" for name, why in checkpoint.skipped]
            if checkpoint
            else []
        )
        if checkpoint is not None:
            here = fingerprint(config)
            differ = [k for k in here if checkpoint.fingerprint.get(k) != here[k]]
            if differ and not other_machine:
                raise ConfigError(
                    f"{folder}: saved with another {', '.join(differ)}: it would go on, but not to the same "
                    "bits; allow that with --other-machine"
                )
            try:
                trainer.load_state_dict(checkpoint.parts)
                if trainer.clock.iteration != checkpoint.iteration:
                    raise ValueError(f"its manifest says iteration {checkpoint.iteration}")
            except UNFIT as error:
                raise ConfigError(f"{checkpoint.folder}: not a checkpoint of this run: {error}") from None
        notes += run.rewind(checkpoint)
        if checkpoint is None:
            _announce(trainer, run)
        iteration = trainer.clock.iteration
        run.timing({"event": "resume", "iteration": iteration, "time": time.time()})
        if console is not None:
            for note in notes:
                console.line(note)
            source = f"checkpoint {checkpoint.folder.name}" if checkpoint else "the beginning"
            console.line(f"resumed {run.folder} at iteration {iteration}, from {source}")
        return _go(trainer, run, console, stop, resumed=True)


def _announce(trainer: Trainer, run: Run) -> None:
    c = trainer.config
    run.log_line(
        f"Run {c.game} seed {c.seed}: {c.iterations} iterations of {c.games} games x {c.steps} steps"
    )
    for note in _notes(trainer):
        run.log_line(note)
    for name in trainer.setup.user_code:
        run.log_line(f"Component from {name}")


def _notes(trainer: Trainer) -> list[str]:
    """What is worth knowing about a run before it starts."""
    config, spec = trainer.config, trainer.setup.spec
    lonely, schedule = spec.seats == 1, config.schedule
    cold = schedule.kind != "simultaneous" and schedule.warmup_steps >= config.total_steps
    said = {GENERAL_SUM: not spec.zero_sum and not lonely, EPISODE: spec.resume == "episode", COLD: cold,
            LONELY: lonely and config.league.opponent_share > 0
            and not settings.has_effect(config, "league.opponent_share")}
    return [note for note, holds in said.items() if holds]


def _go(trainer: Trainer, run: Run, console: Console | None, stop: StopRequest, resumed: bool) -> Trained:
    show = Console(live=False) if console is None else console
    if console is None or run.stdout_is_log:
        show.off = True
    c, clock = trainer.config, trainer.clock
    trainer.bind(run, show)
    trained = Trained(run.folder, c, trainer.agents.players, run.history)
    if clock.done:
        why = f" ({clock.end_reason})" if clock.end_reason else ""
        show.line(f"{run.folder} is complete{why}: {clock.step} steps are done, nothing is left to train")
        finish(trainer, run, show, missing=True)
        return trained
    show.line(
        f"run {run.folder}: {c.game}, seed {c.seed}, {c.iterations - clock.iteration} iterations of "
        f"{c.games} games x {c.steps} steps"
    )
    for note in _notes(trainer):
        show.line(note)
    show.start(f"{run.folder.name} ({c.game})", clock.total_steps)
    try:
        trainer.start(resumed)
        done = loop(trainer, stop)
    except (LearnError, ComponentError) as error:  # an alarm of its own: `status` tells of it
        event = {"event": FAILED_EVENT, "why": str(error), "iteration": clock.iteration, "time": time.time()}
        run.timing(event)
        raise
    finally:
        show.stop()
    trained.history = run.history
    if done:
        finish(trainer, run, show, missing=False)
    else:
        event = {"event": "stop", "why": stop.reason, "iteration": clock.iteration, "time": time.time()}
        run.timing(event)
        at = f"stopped ({stop.reason}) at iteration {clock.iteration} of {c.iterations}"
        show.line(f"{at}; go on with: rematch resume {run.folder}")
    return trained


def finish(trainer: Trainer, run: Run, show: Console, missing: bool) -> None:
    """The end of a run: its outputs, the scoreboard, and where things lie."""
    where = run_outputs.make(trainer, run, missing)
    if run.history:
        show.scoreboard(run.history[-1])
    for line in archive_files.summary_lines(run.folder):
        show.line(line)
    show.list_files(where)


class Trained(PrintableRun):
    """A run as it stands: its settings, its policies (players like any other), its evaluations."""

    def __init__(
        self, folder: Path, config: Config, policies: dict[str, Any], history: list[dict[str, Any]]
    ) -> None:
        self.folder, self.config, self.policies, self.history = folder, config, policies, history
        self.iteration = 0  # of the checkpoint that the policies come from
        self.step: int | None = None  # the same in steps, where it is known
        self.curriculum: LevelProgress | None = None  # as it stood then

    def scoreboard(self) -> list[dict[str, Any]]:
        """The newest evaluation's table, a dict per row with n and interval."""
        return list(self.history[-1]["table"]) if self.history else []


def builder(config: Config, level: LevelProgress | None = None) -> Callable[[int, int, int], World]:
    """Makes the worlds of a run: (games, first, seed) -> World; of a curriculum on its present level."""
    game = registry.find(config.game)

    def make(games: int, first: int, seed: int) -> World:
        world = game.make(config.world, games, first, seed)
        if level:
            begin_on(world, level.here)
        return world

    return make


def playable(config: Config) -> Config:
    """The same, where nobody has a GPU: what was learnt on one plays on any machine."""
    devices = [key for key in ("dqn.device", "network.device") if settings.get(config, key) == "cuda"]
    if devices:
        import torch

        if not torch.cuda.is_available():
            return settings.replace(config, dict.fromkeys(devices, "cpu"))
    return config


def load(folder: Path | str) -> Trained:
    """A run's settings, newest policies and evaluations, or those of an exported policy; changes nothing."""
    if Path(folder).suffix == policy_export.SUFFIX:
        made = policy_export.read(Path(folder))
        named: dict[str, Any] = {"network": made.policy.config}
        if isinstance(made.policy, QPolicy):
            dqn = settings.replace(made.policy.config,
                                   {"replay_size": DqnConfig().replay_size})  # a run's, not its own
            named = {"learner": "dqn", "dqn": dqn, "games": 1}
        basis = settings.replace(default(made.game), {"world": made.world} | named)
        trained = Trained(Path(folder), basis, {made.policy.role.name: made.player}, [])
        trained.iteration, trained.step = made.iteration, made.step
        return trained
    with Run.open(Path(folder), write=False) as run:
        config = stored(run)
        checkpoint = run.load(verify_chunks=False)  # the weights, not the replay
        if checkpoint is None:
            raise ConfigError(f"{folder}: no checkpoint yet")
        make = builder(config)
        agents = build_agents(playable(config), make(1, 0, 0).spec, make)
        try:
            for role, learner in agents.learners.items():
                learner.policy.set(checkpoint.parts[Learners.name][role]["weights"])
            curriculum = stored_level(config, checkpoint.parts)
        except UNFIT as error:
            raise ConfigError(f"{checkpoint.folder}: not a checkpoint of this run: {error}") from None
        trained = Trained(run.folder, config, agents.players, run.history)
        trained.iteration, trained.curriculum = checkpoint.iteration, curriculum
        trained.step = checkpoint.iteration * config.games * config.steps
        return trained
