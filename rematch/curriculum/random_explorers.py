"""Explorers: games with random actions, beside the training games, that search for the next milestone.

They start at the frontier and play the world's exploring bot. A state that reaches a new cell of a map, or a
new part of a match, is stored in that cell; later explorers start from the least tried cells. A cell keeps
the strongest state: levels first, then HP (after Ecoffet et al. 2021). A state that reaches a milestone is a
new frontier: its trajectory is shortened and becomes a start of the archive, all cells are deleted, and the
search continues from there.

A long introduction has no cells. So explorers that found none in an iteration start once more from the root
without a limit of patience, and continue in the next iterations until one of them finds a cell or a
milestone.

Nothing is learned from these games, and their steps are counted separately (the metric `scouted`). Otherwise
they restart in every iteration; results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematch.core import rng
from rematch.core.arrays import Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.world import DECIDED
from rematch.curriculum.savestate_archive import Archive
from rematch.curriculum.savestates import Savestates
from rematch.curriculum.start_states import POWER_ON, LibraryChunks, Strength
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.seating import BotsOnly, RoleSeating

EXPLORER_GAME = -1  # `game` of a start that an explorer reached
CANDIDATES = 20  # sampled cells per explorer, of which the least tried one is its start
HP_MARGIN = 8.0  # HP by which a new state must exceed the stored state of a cell, at equal levels
NO_LIMIT = float(1 << 20)  # patience without effect: longer than any episode
PASS_WEIGHT = 0.1  # weight of passing a cell, in trials; starting there counts 1


@dataclass
class Cell:
    """A stored state from which explorers start."""

    number: int  # in the library of the explorers' world, or POWER_ON
    strength: Strength
    tried: float = 0.0  # number of trials


def is_stronger(new: Strength, stored: Strength) -> bool:
    return new[0] > stored[0] or (new[0] == stored[0] and new[1] >= stored[1] + HP_MARGIN)


@dataclass(frozen=True, kw_only=True)
class ExplorersConfig:
    """Additional games with random actions that search for the next milestone."""

    games: int = knob(0, "games that explore; 0: off", unit="games", low=0, high=1024)
    steps: int = knob(
        64, "steps of each exploring game per iteration", unit="steps", low=1, high=10_000, needs="games"
    )
    patience: int = knob(
        32, "steps without a new cell or milestone after which an exploring game restarts", unit="steps",
        low=1, high=10_000, needs="games",
    )  # fmt: skip
    cell_size: int = knob(
        2, "side of the square map cells that store one state each", unit="tiles", low=1, high=256,
        needs="games",
    )  # fmt: skip


class Search:
    """The exploring games of one run; `search` is called once per iteration."""

    def __init__(
        self, config: ExplorersConfig, archive: Archive, world: Any, collector: Any, seed: int
    ) -> None:
        self.config, self.archive, self.world = config, archive, world
        self.seed = rng.key(seed, rng.EXPLORER)
        self.collector = collector
        self.root = ""  # sha256 of the state from which all cells were reached; "": power-on
        self.cells: dict[str, Cell] = {"": Cell(POWER_ON, (0.0, 0.0))}
        self.captured: list[dict[str, Strength]] = []  # by game: cells captured in this iteration
        self.passed: list[list[str]] = []  # by game: cells that it passed in this iteration
        self.empty_iterations = 0  # iterations in a row without a cell, since the frontier moved
        self.chunks = LibraryChunks("scout", world.library)
        world.set_capture_rule(self.should_capture, config.cell_size)

    def should_capture(
        self, game: int, milestones: tuple[str, ...], decided: bool, cell: str, strength: Strength
    ) -> bool:
        """Whether to capture an explorer in this cell. Called by several threads.

        The answer does not depend on captures of other games in the same iteration.
        """
        captured = self.captured[game]
        stored = captured.get(cell) or (self.cells[cell].strength if cell in self.cells else None)
        if cell and stored and not is_stronger(strength, stored):
            self.passed[game].append(cell)
            return False
        captured[cell] = strength
        return True

    def search(self, iteration: int, step: int) -> list[str]:
        """One rollout of all explorers. Returns lines for the log."""
        archive, world = self.archive, self.world
        if archive.frontier and archive.frontier.finished:
            return []
        self._follow_frontier()
        if self.empty_iterations < 2:  # else the games continue
            self._choose_starts(iteration)
            world.restart()
        self.captured = [{} for _ in range(world.games)]
        self.passed = [[] for _ in range(world.games)]
        rollout = self.collector.collect(iteration)
        archive.explorer_steps += rollout.steps * rollout.games
        for t, game, bundle in rollout.captured:
            if not bundle.place:
                return self._add_milestone(bundle, step, bool(rollout.host("ended")[t, game] == DECIDED))
        for name in (name for names in self.passed for name in names if name in self.cells):
            self.cells[name].tried += PASS_WEIGHT
        # The last capture of a game in a cell is its strongest one.
        last = {(game, bundle.place): bundle for _, game, bundle in rollout.captured}
        for (game, name), bundle in last.items():
            stored, strength = self.cells.get(name), self.captured[game][name]
            if stored is None or is_stronger(strength, stored.strength):  # else another game was first
                self.cells[name] = Cell(world.library.add(bundle), strength)
        self.empty_iterations = self.empty_iterations + 1 if len(self.cells) == 1 else 0
        return []

    def _choose_starts(self, iteration: int) -> None:
        """Each explorer starts from the least tried of CANDIDATES random cells."""
        games, names = self.world.games, sorted(self.cells)
        uniform = rng.units(self.seed, rng.SAVESTATE, games * CANDIDATES, iteration)
        uniform = uniform.reshape(games, CANDIDATES)
        for game, candidates in enumerate((uniform * len(names)).astype(int).tolist()):
            cell = min((self.cells[names[i]] for i in candidates), key=lambda cell: cell.tried)
            cell.tried += 1
            patience = NO_LIMIT if self.empty_iterations else self.config.patience
            self.world.next.stage[game] = cell.number, patience

    def _add_milestone(self, bundle: Any, step: int, decided: bool) -> list[str]:
        """A milestone was reached: its shortened trajectory leads to the new frontier."""
        archive = self.archive
        root = self.world.library.find(self.root)
        before = len(root.actions) if root else 0
        trajectory = archive.world.shorten(root, bundle.actions[before:], self.collector.before_step)
        end = trajectory.end if trajectory else bundle
        reached_before = set(root.milestones if root else ())
        parent = POWER_ON if root is None else archive.world.library.numbers[self.root]
        new = [name for name in end.milestones if name not in reached_before]
        if not new:  # the search started at power-on because the state of the frontier is in quarantine
            return []
        lines = [line for name in new for line in archive.record_milestone(name, step, parent, False)]
        origin = {"milestone": new[-1], "step": step, "game": EXPLORER_GAME, "parent": parent}
        for waypoint in trajectory.waypoints if trajectory else []:
            archive.add_start(waypoint, origin)
        archive.add(end, decided, origin)
        return lines

    def _follow_frontier(self) -> None:
        """Delete all cells and start from the frontier, if it has moved."""
        frontier = self.archive.frontier
        if frontier is None or frontier.sha256 == self.root:
            return
        bundle = self.archive.world.library.find(frontier.sha256)
        self.chunks.clear()
        self.root, self.empty_iterations = frontier.sha256, 0
        self.cells = {"": Cell(self.world.library.add(bundle), (0.0, 0.0))}

    def state_dict(self) -> Tree:
        names = sorted(self.cells)
        cells = [self.cells[name] for name in names]
        running = self.empty_iterations > 1  # else the games restart
        rows = np.arange(self.world.games if running else 0, dtype=np.int32)
        return self.chunks.state_dict() | {
            "empty_iterations": self.empty_iterations, "running": self.world.save(rows),
            "stage": self.world.next.stage.copy() if running else np.zeros((0, 2), np.float32),
            "root": self.root, "names": names,
            "numbers": np.array([cell.number for cell in cells], np.int64),
            "strength": np.array([cell.strength for cell in cells], np.float64),
            "tried": np.array([cell.tried for cell in cells], np.float64),
        }  # fmt: skip

    def load_state_dict(self, tree: Tree) -> None:
        self.root = tree["root"]
        self.chunks.load_state_dict(tree)
        rows = zip(tree["names"], tree["numbers"].tolist(), tree["strength"].tolist(), tree["tried"].tolist())
        self.cells = {name: Cell(number, (strength[0], strength[1]), tried)
                      for name, number, strength, tried in rows}  # fmt: skip
        self.empty_iterations = int(tree.get("empty_iterations", 0))
        if self.empty_iterations > 1:
            self.world.next.stage[:] = tree["stage"]
            self.world.load(np.arange(self.world.games, dtype=np.int32), tree["running"])


class Explorers(Component):
    """Searches for the next milestone beside the training."""

    name = "explorers"
    Config = ExplorersConfig
    needs = "savestates.mode=bands"

    def __init__(self, config: ExplorersConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        savestates = setup.get(Savestates)
        assert savestates is not None
        self.savestates = savestates
        (role,) = setup.spec.roles
        seed = setup.config.seed
        world = setup.make_world(config.games, 0, seed)
        seating = RoleSeating(BotsOnly(setup.spec.roles[role]), 0)
        seating.seat_player(setup.game.bot(setup.game.savestates.explorer, role))
        collector = setup.make_collector(world, {role: seating}, config.steps, rng.key(seed, rng.EXPLORER))
        self.search = Search(config, savestates.archive, world, collector, seed)

    @classmethod
    def off(cls, config: ExplorersConfig, setup: Setup) -> str:
        if setup.config.savestates.mode != "bands":
            return f"savestates.mode is {setup.config.savestates.mode}"
        return "" if config.games else "explorers.games is 0"

    @classmethod
    def shrink(cls, config: ExplorersConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"games": min(config.games, 2), "steps": min(config.steps, 32),
                "patience": min(config.patience, 32)}

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        stored = len(self.search.archive.starts)
        lines = self.search.search(clock.iteration, clock.step + rollout.steps * rollout.games)
        self.savestates.publish(lines, stored, clock.step + rollout.steps * rollout.games)

    def evidence(self, record: Record) -> Iterable[Evidence]:
        steps = self.search.archive.explorer_steps
        yield Evidence("explorers", f"{steps:,} steps of {self.config.games} games" if steps else "")

    def state_dict(self) -> Tree:
        return self.search.state_dict()

    def load_state_dict(self, tree: Tree) -> None:
        self.search.load_state_dict(tree)
