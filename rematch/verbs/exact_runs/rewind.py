"""Train a stretch of a run again, to the same bits, and record what the run did not log."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rematch.agents import policy_export
from rematch.core import rng
from rematch.core.clock import Clock
from rematch.core.component import Metrics
from rematch.core.errors import ConfigError
from rematch.core.world import CUT_OFF, RUNNING
from rematch.evaluation import replay
from rematch.evaluation.past_policies import policy_metadata
from rematch.reporting import match_film
from rematch.reporting.result import Block, Printable, Table
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.storage import atomic_files, policy_files, replay_files
from rematch.storage.run_folder import METRICS_FILE
from rematch.training.trainer import Trainer
from rematch.verbs.arguments import folder_of
from rematch.verbs.exact_runs.rerun import Recorder, StoredRun, rerun

SCRATCH, FACTS = ".tmp-run", "rewind.json"
FILM_STREAM = 1 << 61  # index of the random streams of films: no evaluation uses it
FILM_STEPS = 5000  # longest recorded game


class MetricsRecorder(Recorder):
    """metrics.jsonl: the metrics of every iteration, with the size of the weights and of their change."""

    def __init__(self, trainer: Trainer, folder: Path, stretch: range) -> None:
        self.trainer, self.stretch = trainer, stretch
        self.file = folder / METRICS_FILE
        self.rows: list[str] = []
        self.before: dict[str, Any] = {}

    def before_rollout(self, clock: Clock, next: Any) -> None:
        networks = self.trainer.agents.networks
        self.before = {name: policy.weights.copy() for name, policy in networks.items()}

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        if clock.iteration not in self.stretch:
            return
        row: dict[str, Any] = {"iteration": clock.iteration, "step": clock.step, **metrics}
        for name, policy in self.trainer.agents.networks.items():
            row[f"{name}/weight_norm"] = float(np.linalg.norm(policy.weights))
            if name in self.before:
                row[f"{name}/weight_change"] = float(np.linalg.norm(policy.weights - self.before[name]))
        self.rows.append(atomic_files.json_line(row, METRICS_FILE))

    def close(self) -> None:
        self.file.write_text("".join(f"{row}\n" for row in self.rows))


class EpisodeRecorder(Recorder):
    """episodes.csv: every training game that ended, with its players, its length and its outcome."""

    def __init__(self, trainer: Trainer, folder: Path, stretch: range) -> None:
        self.spec, self.stretch = trainer.setup.spec, stretch
        self.stream = (folder / "episodes.csv").open("w", newline="")
        self.table = csv.writer(self.stream, lineterminator="\n")
        seats = [f"{self.spec.role_of(seat).name}_{seat}" for seat in range(self.spec.seats)]
        columns = [f"{kind}_{seat}" for seat in seats for kind in ("player", "outcome")]
        self.table.writerow(["iteration", "step_of_rollout", "game", "length", "end", *columns])

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        if clock.iteration + 1 not in self.stretch:
            return
        ended = rollout.host("ended")
        for t, game in np.argwhere(ended != RUNNING).tolist():
            cells: list[Any] = []
            for seat in range(self.spec.seats):
                role = self.spec.role_of(seat)
                place = role.seats.index(seat)
                slot = int(rollout[role.name].host("slot")[t, game, place])
                name = rollout.players[role.name][slot] if rollout.players.get(role.name) else ""
                cells += [name or "learner", float(rollout[role.name].host("outcome")[t, game, place])]
            end = "cut off" if ended[t, game] == CUT_OFF else "decided"
            length = int(rollout.host("length")[t, game])
            self.table.writerow([clock.iteration + 1, t, game, length, end, *cells])

    def close(self) -> None:
        self.stream.close()


class PolicyRecorder(Recorder):
    """policies/: the policies after every iteration, as files that `rematch eval --players` can name."""

    def __init__(self, trainer: Trainer, folder: Path, stretch: range) -> None:
        self.trainer, self.stretch = trainer, stretch
        self.folder = folder / "policies"
        self.folder.mkdir()

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        if clock.iteration not in self.stretch:
            return
        for name, policy in self.trainer.agents.networks.items():
            path = self.folder / f"{name}-{clock.iteration:08d}{policy_export.SUFFIX}"
            metadata = policy_metadata(self.trainer.config, policy, clock.iteration)
            policy_files.write_file(path, policy.arrays(), metadata, replace=False)

    def close(self) -> None:
        """Every file is written at once."""


class FilmRecorder(Recorder):
    """films/: one game of the policies of every iteration, as a film (.gif) and as data (.replay)."""

    def __init__(self, trainer: Trainer, folder: Path, stretch: range) -> None:
        self.trainer, self.stretch = trainer, stretch
        self.folder = folder / "films"
        self.folder.mkdir()

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        if clock.iteration not in self.stretch:
            return
        setup, config = self.trainer.setup, self.trainer.config
        seed = rng.key(config.seed, rng.EVALUATION, clock.iteration, FILM_STREAM)
        players = [setup.agents.players[setup.spec.role_of(seat).name] for seat in range(setup.spec.seats)]
        match = replay.Match(world=config.game, config=config.world, seed=seed, step=clock.step)
        world = setup.make_level(1, 0, seed)
        game = replay.record(world, players, match, FILM_STEPS, lambda step: setup.check_stop())[0]
        target = self.folder / f"{clock.iteration:08d}{replay_files.SUFFIX}"
        replay_files.write(target, game)
        target.with_suffix(".gif").write_bytes(match_film.MatchFilm(game, before_step=setup.check_stop).gif())

    def close(self) -> None:
        """Every file is written at once."""


KINDS = {"metrics": MetricsRecorder, "episodes": EpisodeRecorder, "policies": PolicyRecorder,
         "films": FilmRecorder}


@dataclass(frozen=True, repr=False)
class Rewound(Printable):
    """A stretch of a run that was trained again: what was compared, and the recorded files."""

    run: Path
    folder: Path
    first: int
    last: int
    compared: str

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file() and path.name != FACTS)

    def blocks(self) -> Iterator[Block]:
        yield f"{self.run}: iterations {self.first + 1} to {self.last} trained again; {self.compared}"
        counts: dict[str, tuple[int, int]] = {}
        for path in self.files:
            inside = path.relative_to(self.folder)
            name = f"{inside.parts[0]}/" if len(inside.parts) > 1 else str(inside)
            number, size = counts.get(name, (0, 0))
            counts[name] = number + 1, size + path.stat().st_size
        rows = [(name, str(number), f"{size:,}") for name, (number, size) in counts.items()]
        yield Table([("recorded", "files", "bytes"), *rows], right=(1, 2))
        yield f"folder  {self.folder}"

    def to_dict(self) -> dict[str, Any]:
        return {"run": str(self.run), "folder": str(self.folder), "from": self.first, "to": self.last,
                "compared": self.compared, "files": [str(path) for path in self.files]}


def rewind(
    run: Path | str, first: int | str, last: int | str, log: Sequence[str], out: Path | str | None = None
) -> Rewound:
    """Train the iterations after `first` up to `last` again and record them; the run itself is not changed.

    It starts from the newest checkpoint at or before `first`, or from the beginning. `log`: metrics,
    episodes, policies, films. ConfigError, and no recorded file, where one bit differs from what the run has
    stored: rows of metrics, evaluations, checkpoints. It goes on to the next checkpoint where that is at most
    `save_every` iterations away.
    """
    stored = StoredRun.read(folder_of(run))
    begin, end = stored.iteration_of(str(first), "--from"), stored.iteration_of(str(last), "--to")
    kinds = check_kinds(log)
    if begin >= end:
        raise ConfigError(f"--from = {first}, --to = {last}: expected an earlier and a later iteration")
    name = f"{stored.folder.name}-rewind-{begin}-{end}"
    target = stored.folder.with_name(name) if out is None else Path(out)
    if os.path.lexists(target) or not (target.parent.is_dir() or out is None):
        raise ConfigError(f"--out = {str(target)!r}: expected the name of a new folder")
    draft = target.with_name(f".tmp-{target.name}-{os.getpid()}")
    draft.mkdir(0o700)
    try:
        compared = record(stored, (begin, end), draft, kinds)
        facts = {"run": stored.folder.name, "from": begin, "to": end, "log": kinds, "compared": compared}
        (draft / FACTS).write_text(json.dumps(facts, indent=1) + "\n")
        os.rename(draft, target)
    finally:
        atomic_files.remove(draft)
    return Rewound(stored.folder, target, begin, end, compared)


def check_kinds(log: Sequence[str]) -> list[str]:
    for kind in log:
        if kind not in KINDS:
            raise ConfigError(f"--log = {kind!r}: expected one or more of {', '.join(KINDS)}")
    if not log:
        raise ConfigError(f"--log: expected one or more of {', '.join(KINDS)}")
    return list(dict.fromkeys(log))


def record(stored: StoredRun, stretch: tuple[int, int], folder: Path, kinds: Sequence[str]) -> str:
    """Train the stretch again and record it in `folder`; a sentence about what was compared."""
    first, last = stretch
    later = [i for i in stored.checkpoints if last <= i <= last + stored.config.save_every]
    end = min(later, default=last)
    open_recorders: list[Any] = []

    def recorders(trainer: Trainer) -> Iterable[Recorder]:
        for kind in kinds:
            open_recorders.append(KINDS[kind](trainer, folder, range(first + 1, last + 1)))
        return open_recorders

    try:
        comparison = rerun(stored, first, end, folder / SCRATCH, recorders)
    finally:
        for recorder in open_recorders:
            recorder.close()
        atomic_files.remove(folder / SCRATCH)
    return comparison.sentence()
