"""A short trial: a run that is trained to its end in this process, with a record of its events."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.core.component import Record
from rematch.core.recording import EpisodeRecording
from rematch.core.run_config import Config
from rematch.storage.run_folder import Run
from rematch.training.loop import train
from rematch.training.trainer import Trainer


@dataclass
class Recorder:
    """A display that records the evidence of components."""

    trainer: Trainer
    folder: Path = Path()  # of the run
    record: Record = field(default_factory=Record)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.record.metrics

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return self.record.evaluations

    def line(self, text: str) -> None:
        """Log lines are not recorded."""

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None:
        record, clock = self.record, self.trainer.clock
        record.metrics.append(metrics)
        for role, seating in self.trainer.setup.seating.items():
            rollout = self.trainer.setup.collector.rollout[role]
            counts = record.decisions.setdefault(role, {})
            for slot in set(rollout.slot[rollout.acted != 0].tolist()):
                name = seating.player_name(slot)
                acted = (rollout.slot == slot) & (rollout.acted != 0)
                counts[name] = counts.get(name, 0) + int(acted.sum())
        record.rate_factors.add(clock.learning_rate_factor)
        for role in clock.phase.roles if len(clock.phase.roles) < len(self.trainer.setup.spec.roles) else ():
            if metrics.get(f"{role}/updates"):
                record.phases[clock.phase.name] = role

    def evaluation(self, row: dict[str, Any]) -> None:
        self.record.evaluations.append(row)

    def activity(self, text: str) -> None:
        """Progress within an operation is not recorded."""

    def film(self, recording: EpisodeRecording) -> dict[str, bytes]:
        """Count the frames; no film is encoded."""
        self.record.films.append(len(recording.frames))
        return {}


def play(config: Config, folder: Path) -> Recorder:
    """Train `config` to its end in `folder`, in this process, without films."""
    trainer = Trainer(config)
    recorder = Recorder(trainer, folder)
    with Run.create(folder, settings.to_yaml(config)) as run:
        trainer.bind(run, recorder)
        trainer.start()
        train(trainer, lambda: False)
    return recorder
