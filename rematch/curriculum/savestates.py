"""Savestates as a component: captures new states, stores them, and chooses where episodes start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rematch.core.arrays import Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Metrics, PlayState, Record, Setup
from rematch.core.errors import ConfigError
from rematch.core.world import Next
from rematch.curriculum import archive_files
from rematch.curriculum.capture_state import CaptureState
from rematch.curriculum.demonstrations import Demonstrations
from rematch.curriculum.imported_states import import_folder
from rematch.curriculum.savestate_archive import Archive
from rematch.curriculum.start_states import STAGE, SavestatesConfig
from rematch.rollout.rollout_buffer import RolloutBuffer


class Savestates(Component):
    """The savestate curriculum of a world whose games can be captured and started from again."""

    name = "savestates"
    Config = SavestatesConfig
    in_play = True

    def __init__(self, config: SavestatesConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.archive = Archive(config, setup.world, setup.config.seed, setup.config.milestones.forgetting)
        self.stage_columns = [setup.spec.stage.index(name) for name in STAGE]
        form = setup.game.savestates
        self.captures = CaptureState(self.archive, form.pack, form.unpack)
        self.logged: Metrics = {}

    @classmethod
    def check(cls, config: SavestatesConfig, setup: Setup) -> None:
        if config.mode != "off" and setup.game.savestates is None:
            raise ConfigError(f"savestates.mode = {config.mode}: {setup.spec.world} has no savestates; "
                              "expected off")

    @classmethod
    def no_effect(cls, key: str, config: SavestatesConfig, setup: Setup) -> str:
        return "" if setup.game.savestates is not None else "the world has no savestates"

    @classmethod
    def off(cls, config: SavestatesConfig, setup: Setup) -> str:
        return cls.no_effect("", config, setup)

    def connect(self) -> None:
        self.archive.demonstrations = self.setup.get(Demonstrations)

    def start(self, clock: Clock) -> None:
        """Import the user's savestates; the first games start from them."""
        if not self.config.import_from:
            return
        lines = import_folder(self.config.import_from, self.archive)
        self.publish(lines, 0, clock.step)
        self.before_rollout(clock, self.setup.world.next)
        self.archive.world.restart()

    def resumed(self, clock: Clock) -> None:
        for line in archive_files.restore_files(self.archive, self.setup.log, clock.step):
            self.setup.log.console(line)

    def before_rollout(self, clock: Clock, next: Next) -> None:
        if clock.iteration == clock.first:
            self.archive.record_first_episodes()
        next.stage[:, self.stage_columns] = self.archive.next_stage(clock.iteration)

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        stored = len(self.archive.starts)
        lines = self.archive.record_rollout(rollout, clock.iteration)
        self.publish(lines, stored, clock.step + rollout.steps * rollout.games)

    def publish(self, lines: Sequence[str], stored: int, step: int) -> None:
        """Write discoveries to the run folder and the log; the first `stored` starts have files already."""
        if lines or len(self.archive.starts) > stored:
            archive_files.write_files(self.archive, self.setup.log, step, stored)
        for line in lines:
            self.setup.log.line(line)

    def metrics(self) -> Metrics:
        return {f"rollout/{name}": value for name, value in self.archive.metrics().items()}

    def before_checkpoint(self, clock: Clock) -> None:
        archive_files.write_files(self.archive, self.setup.log, clock.step, len(self.archive.starts))

    def evidence(self, record: Record) -> Iterable[Evidence]:
        off = "savestates.mode is off" if self.config.mode == "off" else ""
        visits = sum(start.visits for start in self.archive.starts)
        count = f"{len(self.archive.starts)} savestates, {visits} episodes started from one"
        # With demonstrations a short trial may find one milestone only, and force games from power-on.
        demonstrations = self.archive.demonstrations
        forced = demonstrations.forced_steps if demonstrations else 0
        yield Evidence(self.name, count if visits or forced else "", off)

    def play_state(self) -> PlayState:
        return self.captures

    def state_dict(self) -> Tree:
        basis = {"capture_basis": self.archive.basis_state()} if self.setup.config.lag else {}
        return self.archive.state_dict() | basis

    def load_state_dict(self, tree: Tree) -> None:
        self.archive.load_state_dict(tree)
        if self.setup.config.lag:
            self.archive.load_basis_state(tree["capture_basis"])
