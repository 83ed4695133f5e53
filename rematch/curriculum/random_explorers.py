"""Scouts: games beside those that learn, which look for the next milestone at random.

They begin where the frontier is and wander (the world's bot of that name). Who comes to a square of a map
that nobody had come to since, or in a match further than anybody, is kept there; others begin from it later,
those least tried first. A place keeps who came there stronger: levels first, then HP (after Ecoffet et al.
2021). Who reaches a milestone has found a new frontier. Its way is walked again without detours, becomes the
swarm's, and everything is forgotten but where it ends.

Nothing is learnt from these games, and their steps are told apart (`scouted`). They begin anew in every
iteration, so a checkpoint need not hold them; results do not depend on the number of threads.
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
from rematch.curriculum.start_states import POWER_ON, Kept, Strength
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.seating import BotsOnly, RoleSeating

NOBODY = -1  # the game of a start that none of those that learn has reached
DRAWS = 20  # places of which the least tried is begun from
STRONGER = 8.0  # HP by which a newcomer must exceed who is kept in a place, at equal levels
PASSING = 0.1  # what it counts, beside beginning there, that others come by


@dataclass
class Place:
    """A state that scouts begin from."""

    number: int  # in the scouts' library, or POWER_ON
    strength: Strength
    tried: float = 0.0


def stronger(one: Strength, other: Strength) -> bool:
    return one[0] > other[0] or (one[0] == other[0] and one[1] >= other[1] + STRONGER)


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
    """The exploring games of one run; `search` once an iteration."""

    def __init__(
        self, config: ExplorersConfig, swarm: Archive, world: Any, collector: Any, seed: int
    ) -> None:
        self.config, self.swarm, self.world, self.seed = config, swarm, world, rng.key(seed, rng.EXPLORER)
        self.rollout = collector
        self.root = ""  # sha256 of the state that all places were come to from; "": power-on
        self.places: dict[str, Place] = {"": Place(POWER_ON, (0.0, 0.0))}
        self.mine: list[dict[str, Strength]] = []  # by game: captured in this burst
        self.kept = Kept("scout", world.library)
        self.passed: list[list[str]] = []  # by game: places that it came by
        world.watch(self.wants, config.cell_size)

    def wants(
        self, game: int, milestones: tuple[str, ...], over: bool, place: str, strength: Strength
    ) -> bool:
        """Whether a scout is worth keeping there. Asked by threads: none looks at what others just found."""
        mine = self.mine[game]
        kept = mine.get(place) or (self.places[place].strength if place in self.places else None)
        if place and kept and not stronger(strength, kept):
            self.passed[game].append(place)
            return False
        mine[place] = strength
        return True

    def search(self, iteration: int, step: int) -> list[str]:
        """A burst of all scouts; lines worth telling."""
        swarm, world, c = self.swarm, self.world, self.config
        if swarm.frontier and swarm.frontier.finished:
            return []
        self._follow()
        names = sorted(self.places)
        luck = rng.units(self.seed, rng.SAVESTATE, world.games * DRAWS, iteration).reshape(world.games, DRAWS)
        for game, drawn in enumerate((luck * len(names)).astype(int).tolist()):
            place = min((self.places[names[i]] for i in drawn), key=lambda place: place.tried)
            place.tried += 1
            world.next.stage[game] = place.number, c.patience
        self.mine, self.passed = [{} for _ in range(world.games)], [[] for _ in range(world.games)]
        world.restart()
        tape = self.rollout.collect(iteration)
        swarm.scouted += tape.steps * tape.games
        for t, game, bundle in tape.captured:
            if not bundle.place:
                return self._found(bundle, step, bool(tape.ended[t, game] == DECIDED))
        for name in (name for names in self.passed for name in names if name in self.places):
            self.places[name].tried += PASSING
        last = {(game, bundle.place): bundle for _, game, bundle in tape.captured}  # each game's strongest
        for (game, name), bundle in last.items():
            kept, strength = self.places.get(name), self.mine[game][name]
            if kept is None or stronger(strength, kept.strength):  # else another of this burst came first
                self.places[name] = Place(world.library.add(bundle), strength)
        return []

    def _found(self, bundle: Any, step: int, over: bool) -> list[str]:
        """A milestone: the way there is the frontier from now on."""
        swarm = self.swarm
        since = self.world.library.find(self.root)
        before = len(since.actions) if since else 0
        way = swarm.world.shortened(since, bundle.actions[before:])
        end = way.end if way else bundle
        known = set(since.milestones if since else ())
        parent = POWER_ON if since is None else swarm.world.library.numbers[self.root]
        new = [name for name in end.milestones if name not in known]
        if not new:  # from power-on, since the frontier's own state is in quarantine
            return []
        lines = [line for name in new for line in swarm.reach(name, step, parent, False)]
        about = {"milestone": new[-1], "step": step, "game": NOBODY, "parent": parent}
        for mark in way.marks if way else []:
            swarm.begin_from(mark, about)
        swarm.keep(end, over, about)
        return lines

    def _follow(self) -> None:
        """Begin anew where the frontier is, whoever found it, if it has moved."""
        frontier = self.swarm.frontier
        if frontier is None or frontier.sha256 == self.root:
            return
        bundle = self.swarm.world.library.find(frontier.sha256)
        self.kept.clear()
        self.root = frontier.sha256
        self.places = {"": Place(self.world.library.add(bundle), (0.0, 0.0))}

    def state_dict(self) -> Tree:
        names = sorted(self.places)
        kept = [self.places[name] for name in names]
        return self.kept.state() | {
            "root": self.root, "names": names,
            "numbers": np.array([place.number for place in kept], np.int64),
            "strength": np.array([place.strength for place in kept], np.float64),
            "tried": np.array([place.tried for place in kept], np.float64),
        }  # fmt: skip

    def load_state_dict(self, tree: Tree) -> None:
        self.root = tree["root"]
        self.kept.restore(tree)
        rows = zip(tree["names"], tree["numbers"].tolist(), tree["strength"].tolist(), tree["tried"].tolist())
        self.places = {name: Place(number, (strength[0], strength[1]), tried)
                       for name, number, strength, tried in rows}  # fmt: skip


class Explorers(Component):
    """Searches for the next milestone beside the training."""

    name = "explorers"
    Config = ExplorersConfig
    needs = "savestates.mode=bands"

    def __init__(self, config: ExplorersConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        savestates = setup.get(Savestates)
        assert savestates is not None
        self.archive = savestates
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
        stored = len(self.search.swarm.starts)
        lines = self.search.search(clock.iteration, clock.step + rollout.steps * rollout.games)
        self.archive.publish(lines, stored, clock.step + rollout.steps * rollout.games)

    def evidence(self, record: Record) -> Iterable[Evidence]:
        steps = self.search.swarm.scouted
        yield Evidence("explorers", f"{steps:,} steps of {self.config.games} games" if steps else "")

    def state_dict(self) -> Tree:
        return self.search.state_dict()

    def load_state_dict(self, tree: Tree) -> None:
        self.search.load_state_dict(tree)
