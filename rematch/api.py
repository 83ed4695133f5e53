"""Rematch from Python: the same few verbs as the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from rematch.agents import policy_export
from rematch.agents.build import build
from rematch.agents.learners.dqn import DqnConfig
from rematch.agents.learners.q_policy import QPolicy
from rematch.agents.policy import Policy, digest
from rematch.core import config as settings
from rematch.core.errors import ConfigError, LearnError
from rematch.core.interrupts import StopRequest
from rematch.core.spec import Spec
from rematch.core.world import World
from rematch.curriculum import archive_files
from rematch.curriculum.levels import Curriculum, climbed
from rematch.reporting import run_outputs
from rematch.reporting.console import Console
from rematch.storage.run_folder import FAILED_EVENT, Run
from rematch.training import memory_estimate
from rematch.training.config import idle_in
from rematch.training.fingerprint import fingerprint
from rematch.training.trainer import Config, Session, begin_on
from rematch.training.trainer import train as loop
from rematch.worlds import registry

UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # of state that is not a run's
GENERAL_SUM = "Rewards are general-sum: the roles' rewards do not cancel"
EPISODE = "This world does not repeat itself: a resumed run begins its games anew, not to the same bits"
COLD = "All of this run is its cold start: the other role never learns; expected fewer cold_start_steps"
LONELY = "league.history has no effect: the world has one seat, and so no rivals"


def recipes() -> dict[str, str]:
    """Name -> text of every recipe that ships with the package."""
    folder = resources.files("rematch") / "recipes"
    return {
        f.name.removesuffix(".yaml"): f.read_text()
        for f in sorted(folder.iterdir(), key=lambda f: f.name)
        if f.name.endswith(".yaml")
    }


def default(game: str) -> Config:
    """The code's own settings for a world."""
    return Config(game=game, world=registry.find(game).Config())


def configure(
    recipe: str, file: Path | None = None, flags: Sequence[str] = (), changes: Mapping[str, Any] | None = None
) -> Config:
    """Settings in their order: code defaults < recipe < file < flags (or `changes` from Python).

    `recipe` is a shipped recipe's name, a path to a YAML file, or a world's name for its bare defaults.
    """
    layers = [(source, layer, False) for source, layer in layers_of(recipe)]
    files = {recipe} if recipe.endswith((".yaml", ".yml")) else set()
    if file is not None:
        layers.append((str(file), _read(file), True))
        files.add(str(file))
    if changes:
        layers.append(("changes", dict(changes), True))
    game = next((layer["game"] for _, layer, _ in reversed(layers) if "game" in layer), "pursuit")
    if not isinstance(game, str):
        raise ConfigError(f"game = {game!r}: expected a world's name")
    if any(word == "--game" or word.startswith("--game=") for word in flags):
        raise ConfigError(
            "command line: --game cannot change a recipe's world; name the world instead of the recipe"
        )
    named = [layer["game"] for _, layer, own in layers if "game" in layer and not own]
    for source, layer, own in layers:
        if own and named and layer.get("game", named[-1]) != named[-1]:
            raise ConfigError(f"{source}: game = {layer['game']!r} cannot change the world of {recipe}; name "
                              "the world instead of the recipe")
    config = default(game)
    layers = [(source, settings.present_names(config, layer, source), own) for source, layer, own in layers]
    for source, layer, _ in layers:
        config = settings.apply(config, layer, source)
    filed, read = config, settings.read_flags(flags, config)
    config = settings.apply(config, read, "command line", text=True)
    settings.validate(config)
    spec = registry.find(game).make(config.world, 1, 0, 0).spec
    every = {key for key, _, _ in settings.leaves(config)}
    for source, layer in [*((source, layer) for source, layer, _ in layers), ("command line", read)]:
        # A file is judged without the flags over it, which may switch off what it sets. One that lists every
        # setting there is, a run's config.yaml, sets none on purpose.
        if source in files and not every <= set(layer):
            _refuse_idle(filed, layer, source, spec)
        elif source in ("changes", "command line"):
            _refuse_idle(config, layer, source, spec)
    return config


def _refuse_idle(config: Config, layer: Mapping[str, Any], source: str, spec: Spec) -> None:
    """What a user set is refused where nothing would read it: under these settings, or in such a world."""
    keys = [key.replace("-", "_") for key in layer]
    settings.refuse_inert(config, keys, source)
    for key in keys:
        if why := idle_in(config, spec, key):
            raise ConfigError(f"{source}: {key} = {settings.get(config, key)} has no effect: {why}")


def layers_of(recipe: str, below: tuple[str, ...] = ()) -> list[tuple[str, dict[str, Any]]]:
    """(source, settings) of a recipe after those of the one that it is `like`, and so on."""
    known = recipes()
    if recipe in known:
        source = f"recipe {recipe}"
        layer = settings.read_yaml(known[recipe], source)
    elif recipe.endswith((".yaml", ".yml")) and not below:
        source, layer = recipe, _read(Path(recipe))
    elif recipe in registry.names():
        return [(f"world {recipe}", {"game": recipe})]
    else:
        names = list(dict.fromkeys([*known, *registry.names()]))
        near = settings.nearest(recipe, names)
        hint = f"; nearest: {near}" if near else ""
        files = "" if below else ", or a .yaml file"
        asked = f"{below[-1]}: like = {recipe!r}" if below else f"unknown recipe {recipe!r}"
        raise ConfigError(f"{asked}: expected one of {', '.join(names)}{files}{hint}")
    if "like" not in layer:
        return [(source, layer)]
    if source in below:
        raise ConfigError(f"{source}: like = {layer['like']!r}: it would be like itself")
    return [*layers_of(str(layer.pop("like")), (*below, source)), (source, layer)]


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(4 * settings.MAX_CHARACTERS + 1)  # never all of it: it may be /dev/zero
        return settings.read_yaml(data.decode(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not text'}"
        ) from None


def stored(run: Run) -> Config:
    """The config that a run was started with, read as strictly as any other."""
    source = str(run.folder / "config.yaml")
    layer = settings.read_yaml(run.config_text, source)
    game = layer.get("game")
    if not isinstance(game, str):
        raise ConfigError(f"{source}: game = {game!r}: expected a world's name")
    try:
        basis = default(game)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    config = settings.apply(basis, layer, source, notes=False)
    try:
        settings.validate(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return config


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
    session = Session(config)
    session.start_from(policies)
    with StopRequest(minutes) as stop, Run.create(folder, text) as run:
        for note in notes:
            run.log_line(note)
            if console is not None and not run.stdout_is_log:
                console.line(note)
        _announce(session, run)
        if policies:  # they are in no setting: a run that is killed at once must find them again
            run.save(session.iteration, session.state(), fingerprint(config), temporary=True)
        return _go(session, run, console, stop)


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
        session = Session(config)
        checkpoint = run.load()
        notes = (
            [f"checkpoint {name} does not verify: {why}" for name, why in checkpoint.skipped]
            if checkpoint
            else []
        )
        if checkpoint is not None:
            here = fingerprint(session.config)
            differ = [k for k in here if checkpoint.fingerprint.get(k) != here[k]]
            if differ and not other_machine:
                raise ConfigError(
                    f"{folder}: saved with another {', '.join(differ)}: it would go on, but not to the same "
                    "bits; allow that with --other-machine"
                )
            try:
                session.restore(checkpoint.parts)
                if session.iteration != checkpoint.iteration:
                    raise ValueError(f"its manifest says iteration {checkpoint.iteration}")
            except UNFIT as error:
                raise ConfigError(f"{checkpoint.folder}: not a checkpoint of this run: {error}") from None
        notes += run.rewind(checkpoint)
        if checkpoint is None:
            _announce(session, run)
        run.timing({"event": "resume", "iteration": session.iteration, "time": time.time()})
        if console is not None:
            for note in notes:
                console.line(note)
            source = f"checkpoint {checkpoint.folder.name}" if checkpoint else "the beginning"
            console.line(f"resumed {run.folder} at iteration {session.iteration}, from {source}")
        return _go(session, run, console, stop)


def _announce(session: Session, run: Run) -> None:
    c = session.config
    run.log_line(
        f"Run {c.game} seed {c.seed}: {c.iterations} iterations of {c.games} games x {c.steps} steps"
    )
    for note in _notes(session):
        run.log_line(note)


def _notes(session: Session) -> list[str]:
    """What is worth knowing about a run before it starts."""
    spec, lonely = session.spec, session.spec.seats == 1
    cold = session.schedule.cold and session.config.schedule.cold_start_steps >= session.config.total_steps
    said = {GENERAL_SUM: not spec.zero_sum and not lonely, EPISODE: spec.resume == "episode", COLD: cold,
            LONELY: lonely and session.config.league.history > 0
            and not settings.has_effect(session.config, "league.history")}
    return [note for note, holds in said.items() if holds]


def _go(session: Session, run: Run, console: Console | None, stop: StopRequest) -> Trained:
    show = Console(live=False) if console is None else console
    if console is None or run.stdout_is_log:
        show.off = True
    c = session.config
    total = c.iterations * c.games * c.steps
    trained = Trained(run.folder, c, session.policies, run.history)
    if session.done:
        why = f" ({session.ended})" if session.ended else ""
        show.line(f"{run.folder} is complete{why}: {session.step} steps are done, nothing is left to train")
        finish(session, run, show, missing=True)
        return trained
    show.line(
        f"run {run.folder}: {c.game}, seed {c.seed}, {c.iterations - session.iteration} iterations of "
        f"{c.games} games x {c.steps} steps"
    )
    for note in _notes(session):
        show.line(note)
    show.start(f"{run.folder.name} ({c.game})", total)
    try:
        done = loop(session, run, show, stop)
    except LearnError as error:  # an alarm of its own: `status` tells of it
        row = {"event": FAILED_EVENT, "why": str(error), "iteration": session.iteration, "time": time.time()}
        run.timing(row)
        raise
    finally:
        show.stop()
    trained.history = run.history
    if done:
        finish(session, run, show, missing=False)
    else:
        event = {"event": "stop", "why": stop.reason, "iteration": session.iteration, "time": time.time()}
        run.timing(event)
        at = f"stopped ({stop.reason}) at iteration {session.iteration} of {c.iterations}"
        show.line(f"{at}; go on with: rematch resume {run.folder}")
    return trained


def finish(session: Session, run: Run, show: Console, missing: bool) -> None:
    """The end of a run: its products, the scoreboard, and where things lie."""
    where = run_outputs.make(session, run, missing)
    if run.history:
        show.scoreboard(run.history[-1])
    for line in archive_files.told(run.folder):
        show.line(line)
    show.where(where)


class Trained:
    """A run as it stands: its settings, its policies (players like any other), its evaluations."""

    def __init__(
        self, folder: Path, config: Config, policies: dict[str, Any], history: list[dict[str, Any]]
    ) -> None:
        self.folder, self.config, self.policies, self.history = folder, config, policies, history
        self.iteration = 0  # of the checkpoint that the policies come from
        self.step: int | None = None  # the same in steps, where it is known
        self.curriculum: Curriculum | None = None  # as it stood then

    def scoreboard(self) -> list[dict[str, Any]]:
        """The newest evaluation's table, a dict per row with n and interval."""
        return list(self.history[-1]["table"]) if self.history else []


def builder(config: Config, level: Curriculum | None = None) -> Callable[[int, int, int], World]:
    """Makes the worlds of a run: (games, first, seed) -> World; of a curriculum on its present level."""
    module = registry.find(config.game)

    def make(games: int, first: int, seed: int) -> World:
        world: World = module.make(config.world, games, first, seed)
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
            dqn = settings.replace(made.policy.config, {"replay": DqnConfig().replay})  # a run's, not its own
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
        minds = build(playable(config), make(1, 0, 0).spec, make)
        try:
            for role, learner in minds.learners.items():
                learner.policy.set(checkpoint.parts[f"learner.{role}"]["weights"])
            curriculum = climbed(config, checkpoint.parts)
        except UNFIT as error:
            raise ConfigError(f"{checkpoint.folder}: not a checkpoint of this run: {error}") from None
        trained = Trained(run.folder, config, minds.players, run.history)
        trained.iteration, trained.curriculum = checkpoint.iteration, curriculum
        trained.step = checkpoint.iteration * config.games * config.steps
        return trained
