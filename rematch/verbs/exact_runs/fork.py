"""Fork a run: continue its state of any iteration under other settings, in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rematch import api
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.reporting.console import Console
from rematch.storage import atomic_files, checkpoint, lineage, run_copy
from rematch.storage.lineage import Change, Lineage
from rematch.storage.run_folder import CONFIG_FILE, Run
from rematch.training.fingerprint import fingerprint
from rematch.training.recipes import CODE_SETTINGS, refuse_unused
from rematch.training.setup import RunSetup
from rematch.training.trainer import Trainer
from rematch.verbs.arguments import RUNS, folder_of
from rematch.verbs.exact_runs.rerun import StoredRun, rerun

FIXED = ("game", "games", "steps", "start_iteration", *CODE_SETTINGS)  # a fork continues these games


def fork(
    run: Path | str,
    changes: Mapping[str, Any] | None = None,
    folder: Path | str | None = None,
    console: Console | None = None,
    minutes: float | None = None,
) -> api.Trained:
    """Continue a run from one of its iterations with changed settings, and train the fork to its end.

    `run` is RUN@ITERATION, RUN@STEPS with a letter (2.5M), or RUN for its newest checkpoint. An iteration
    without a checkpoint is reached by training again from the one before it, to the same bits. The new folder
    has the logs up to that iteration, and lineage.json.
    """
    return train(make(run, changes or {}, folder), console, minutes)


def train(folder: Path, console: Console | None = None, minutes: float | None = None) -> api.Trained:
    """Train a fork that `make` has written."""
    return api.resume(folder, console, minutes)


def make(
    run: Path | str, changes: Mapping[str, Any], folder: Path | str | None = None, text: bool = False
) -> Path:
    """Write the folder of a fork without training it. With `text` values are those of a command line."""
    source, iteration = parse_source(run)
    config = changed_config(source.config, changes, iteration, text)
    target = free_folder(source.folder) if folder is None else Path(folder)
    Run.refuse_used(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".tmp-{target.name}-{os.getpid()}")
    try:
        copy_state(source, iteration, draft)
        change_settings(source, config, iteration, draft)
        os.rename(draft, target)  # an empty folder of this name is replaced
        atomic_files.sync_folder(target.parent)
    finally:
        atomic_files.remove(draft)
    return target


def parse_source(run: Path | str) -> tuple[StoredRun, int]:
    """RUN@MOMENT as the stored run and the iteration; without a moment its newest checkpoint."""
    name, at, moment = str(run).rpartition("@")
    if not at or folder_of(run).is_dir():
        source = StoredRun.read(folder_of(run))
        if not source.checkpoints:
            raise ConfigError(f"{source.folder}: no checkpoint yet; expected RUN@0, or a run that has saved")
        return source, source.checkpoints[-1]
    source = StoredRun.read(folder_of(name))
    return source, source.iteration_of(moment, str(run))


def free_folder(parent: Path) -> Path:
    """runs/PARENT-fork-1, or the next number that is free."""
    return api.free_folder(parent.parent if parent.parent != Path() else RUNS, f"{parent.name}-fork")


def changed_config(config: Config, changes: Mapping[str, Any], iteration: int, text: bool) -> Config:
    """The settings of the fork; ConfigError for one that cannot change while games run or has no effect."""
    where = "command line" if text else "changes"
    changes = settings.present_names(config, changes, where)
    for key in changes:
        if key.replace("-", "_") in FIXED:
            raise ConfigError(f"{where}: {key} cannot change in a fork, which continues the games of the run")
    forked = settings.apply(config, changes, where, text=text)
    settings.validate(forked)
    refuse_unused(forked, changes, where, RunSetup(forked))
    if iteration >= forked.iterations:
        raise ConfigError(f"total_steps = {forked.total_steps}: the fork starts after "
                          f"{iteration * forked.games * forked.steps} steps; expected more")
    return forked


def copy_state(source: StoredRun, iteration: int, draft: Path) -> None:
    """A copy of the run in `draft` with a checkpoint of this iteration, trained again if none is stored."""
    if iteration in source.checkpoints:
        with Run.open(source.folder, write=False) as run:
            saved = run.load(until=iteration)
        if saved is not None and saved.iteration == iteration:
            run_copy.copy_run(source.folder, draft, saved)
            return
    if iteration == source.config.start_iteration:
        source.require_start(iteration)
        run_copy.copy_run(source.folder, draft, None)
        return
    rerun(source, iteration, iteration, draft)
    for name in sorted(os.listdir(draft / "checkpoints")):
        if name != f"iter_{iteration:08d}":
            atomic_files.remove(draft / "checkpoints" / name)


def change_settings(source: StoredRun, config: Config, iteration: int, draft: Path) -> None:
    """Write the fork's settings, its lineage, and the checkpoint that it starts from."""
    with Run.open(draft, write=False) as run:
        saved = run.load()
    trainer = Trainer(config)
    text = settings.to_yaml(config)
    if saved is not None:
        fresh = {part.name: part.state_dict() for part in trainer.parts if part.name not in saved.parts}
        parts = {**saved.parts, **fresh}
        parts["clock"] = {**parts["clock"], "end_reason": ""}
        api.load_checkpoint(trainer, _with_parts(saved, parts))
    record = record_lineage(source, config, iteration, saved)
    atomic_files.replace_file(draft / CONFIG_FILE, text.encode())
    record.write(draft)
    with Run.open(draft, write=True) as run:
        run.rewind(saved)
        if saved is not None:
            run.log_line(f"This run was {record.sentences()[0]}")
            run.save(iteration, trainer.state_dict(), fingerprint(config), milestone=True)


def _with_parts(saved: checkpoint.Checkpoint, parts: dict[str, Any]) -> checkpoint.Checkpoint:
    return checkpoint.Checkpoint(iteration=saved.iteration, parts=parts, fingerprint=saved.fingerprint,
                                 folder=saved.folder, manifest=saved.manifest)


def record_lineage(
    source: StoredRun, config: Config, iteration: int, saved: checkpoint.Checkpoint | None
) -> Lineage:
    before = {key: value for key, _, value in settings.leaves(source.config)}
    changes = tuple(Change(key=key, before=before[key], after=value)
                    for key, _, value in settings.leaves(config) if before[key] != value)
    digests = [saved.manifest.files[name].sha256 for name in sorted(saved.manifest.files)] if saved else []
    config_digest = atomic_files.sha256_hex((source.folder / CONFIG_FILE).read_bytes())
    return Lineage(kind=lineage.FORK, source=source.folder.resolve().name, iteration=iteration,
                   step=iteration * config.games * config.steps, config=config_digest,
                   state=atomic_files.sha256_hex("".join(digests).encode()), changes=changes,
                   parent=lineage.read(source.folder))
