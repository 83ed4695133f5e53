"""The savestate archive: stored states, and which of them each new episode starts from.

A game that reaches a set of milestones that no game had before is captured at once. Its state joins the
library and becomes a file of the run; later episodes may start there. `savestates.mode` chooses:

    bands   A fixed fraction of the games always starts at power-on. The others are divided by fractions into
            the start groups early, mid and late; the games of a group without a state go to the group before
            it. A game keeps its group, and neighbours in the list of exploration rates have different groups.
            Within a group, the weight of a start is 1 / sqrt(visits + 1) times the standard deviation of its
            success posterior (core/beta_posterior.py); an episode succeeds if it reaches something new.
            With demonstrations only starts on the trajectory to the frontier are used, and those that the
            user supplied with their successors; games are forced along a part of the trajectory
            (demonstrations.py); explorers search for the next milestone (random_explorers.py).
    all     Every game starts from the state with the most milestones.
    off     Every game starts at power-on. The archive still records which milestones were reached, and when.

An episode starts with an empty recurrent state, wherever it starts, as the sequences of the learner do.
archive_files.py describes the files and how they are restored after a kill.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Floats, Tree, stored_bool, stored_int
from rematch.core.beta_posterior import BetaPosteriors
from rematch.core.spec import Spec
from rematch.core.world import DECIDED, RUNNING
from rematch.curriculum.demonstrations import Demonstrations, Section, cut_into_sections
from rematch.curriculum.start_states import (
    POWER_ON,
    START,
    START_GROUPS,
    Frontier,
    LibraryChunks,
    SavestatesConfig,
    SavestateWorld,
    Start,
    Strength,
    apportion,
)
from rematch.rollout.rollout_buffer import POLICY, RolloutBuffer

GOLDEN = (5**0.5 - 1) / 2
MASTERED_WEIGHT = 0.05  # weight of a start, with demonstrations, whose episodes always succeed
PRIOR = (1.0, 1.0)  # Beta prior of an episode's success


@dataclass(frozen=True)
class CaptureBasis:
    """What the games of a rollout are compared with: the archive as it was before the rollout."""

    starts: int = 0  # number of starts
    known: frozenset[frozenset[str]] = frozenset()  # sets of milestones at which games were captured
    record: int = 0  # milestones of the frontier
    finished: bool = False  # whether the frontier has finished the game


class Archive:
    """The start states of one run, the start of each running episode, and the milestones reached so far."""

    def __init__(self, config: SavestatesConfig, world: Any, seed: int, forgetting: float) -> None:
        self.mode, self.config, self.seed = config.mode, config, seed
        self.world: SavestateWorld = world
        spec: Spec = world.spec
        (role,) = spec.roles.values()
        self.milestone_names, self.action_names = role.milestones, role.actions.names
        games = world.games
        self.power_on = Start("", "power-on", 0, 0, "early", "", (), POWER_ON, "", visits=games)
        self.starts: list[Start] = []  # by number in the library
        self.start_by_milestones: dict[frozenset[str], int] = {}  # milestones -> number of the first start
        self.chunks = LibraryChunks("savestate", world.library)
        self.posteriors = BetaPosteriors(1, PRIOR, forgetting)  # [1 + starts]: power-on, then the starts
        self.episode_start = np.full(games, POWER_ON, np.int32)  # [N] start of the running episodes
        self.succeeded = np.zeros(games, bool)  # [N] whether the running episode reached something new
        self.frontier: Frontier | None = None
        self.first_steps: dict[str, dict[str, int]] = {}  # milestone -> "frontier", "cold": step
        self.captured_sets: dict[int, set[frozenset[str]]] = {}  # by game: captured in this rollout
        self.capture_basis = CaptureBasis()
        self.demonstrations: Demonstrations | None = None
        self.explorer_steps = 0  # steps of all explorers together
        # Ranks of the multiples of the golden ratio: neighbouring games get distant ranks.
        self.rank = np.argsort(np.argsort(np.arange(games) * GOLDEN % 1.0))
        world.set_capture_rule(self.should_capture)

    # --- capturing ---

    def should_capture(
        self, game: int, milestones: tuple[str, ...], decided: bool, cell: str, strength: Strength
    ) -> bool:
        """Whether to capture a game that has just reached a milestone (14 ms). Called by several threads.

        The answer does not depend on captures of other games in the same rollout, nor on what is found while
        it is played, and therefore not on threads or timing; `record_rollout` drops duplicates.
        """
        captured, reached = self.captured_sets.setdefault(game, set()), frozenset(milestones)
        basis = self.capture_basis
        if reached in captured or reached in basis.known:
            return False
        if decided or self.mode == "off":  # no episode will start there: only a new record counts
            sizes = [] if decided else [len(one) for one in captured]
            best = max([*sizes, basis.record])
            if basis.finished or (not decided and len(milestones) <= best):
                return False
        captured.add(reached)
        return True

    # --- starts of the next episodes ---

    def next_stage(self, iteration: int) -> Floats:
        """[N, 2] of each game's next episode: the number of its savestate or POWER_ON, and its patience."""
        self.captured_sets.clear()
        frontier = self.frontier
        record = (len(frontier.milestones), frontier.finished) if frontier else (0, False)
        self.capture_basis = CaptureBasis(len(self.starts), frozenset(self.start_by_milestones), *record)
        out: Floats = np.zeros((len(self.episode_start), 2), np.float32)
        out[:, 0] = POWER_ON
        usable = [number for number, start in enumerate(self.starts)
                  if start.sha256 not in self.world.library.quarantine]
        if self.mode == "all" and usable:
            out[:, 0] = max(usable, key=lambda number: (len(self.starts[number].milestones), -number))
        if self.mode != "bands" or not usable:
            if self.demonstrations:  # no demonstration yet: no game is forced
                self.demonstrations.plan(b"", {}, out[:, 0].astype(np.int64), np.zeros(len(out)))
            return out
        weights = self.start_weights()
        sections = {section.start: section for section in self.sections()} if self.demonstrations else {}
        shares, groups = self._shares(usable, sections)
        last = np.cumsum(apportion(shares, len(out)))
        uniform = rng.units(self.seed, rng.SAVESTATE, len(out), iteration)
        group_index = np.searchsorted(last, self.rank, side="right")
        for game, index in enumerate(group_index.tolist()):
            cumulative = np.cumsum(weights[np.array(groups[index]) + 1])
            chosen = int(np.searchsorted(cumulative, uniform[game] * cumulative[-1], side="right"))
            out[game, 0] = groups[index][min(chosen, len(cumulative) - 1)]
        if self.demonstrations:
            uniform = rng.units(self.seed, rng.DEMONSTRATION, len(out), iteration)
            uniform[group_index == 0] = -1  # games of the power-on fraction are never forced
            demonstration = bytes(self.frontier.actions) if self.frontier else b""
            starts = out[:, 0].astype(np.int64)
            out[:, 1] = self.demonstrations.plan(demonstration, sections, starts, uniform)
        return out

    def _shares(
        self, usable: list[int], sections: dict[int, Section]
    ) -> tuple[list[float], list[list[int]]]:
        """Fractions of the games and the numbers of their starts: power-on first, then the start groups."""
        config, library = self.config, self.world.library
        choices = {name: [number for number in usable if self.starts[number].start_group == name
                          and (not sections or number in sections or library[number].root)]
                   for name in START_GROUPS}  # fmt: skip
        choices["early"].insert(0, POWER_ON)
        shares, groups = [config.power_on], [[POWER_ON]]
        for name in START_GROUPS:  # the share of a group without a state goes to the group before it
            if choices[name]:
                shares.append(0.0)
                groups.append(choices[name])
            shares[-1] += (1 - config.power_on) * getattr(config, name)
        if self.demonstrations:  # a mastered group leaves most of its games to the others
            failing = 1 + MASTERED_WEIGHT - self.posteriors.mean
            needs = [share * float(failing[np.array(group) + 1].sum())
                     for share, group in zip(shares[1:], groups[1:])]  # fmt: skip
            shares[1:] = [(1 - config.power_on) * need / (sum(needs) or 1) for need in needs]
        return shares, groups

    def sections(self) -> list[Section]:
        """The demonstration to the frontier, cut at the starts that lie on it."""
        if self.frontier is None:
            return []
        library = self.world.library
        starts = [(number, library[number].actions, not library[number].place)
                  for number in range(len(self.starts)) if not library[number].root]  # fmt: skip
        return cut_into_sections(self.frontier.actions, [(POWER_ON, [], True), *starts])

    def start_weights(self) -> NDArray[np.float64]:
        """[1 + starts] sampling weight of each start within its group; power-on first."""
        visits = np.array([start.visits for start in (self.power_on, *self.starts)])
        weights = self.posteriors.deviation
        if self.demonstrations:  # each start has a demonstration: starts that fail come first
            weights = weights * (1 + MASTERED_WEIGHT - self.posteriors.mean)
        return np.asarray(weights / np.sqrt(visits + 1))

    def start(self, number: int) -> Start:
        return self.power_on if number < 0 else self.starts[number]

    # --- results of a rollout ---

    def record_rollout(self, rollout: RolloutBuffer, iteration: int) -> list[str]:
        """Take milestones, ends and captures of a rollout, in order of time. Returns lines for the log."""
        first, all_ended = iteration * rollout.steps * rollout.games, rollout.host("ended")
        forced = None if rollout.forced is None else rollout.host("forced")
        lines: list[str] = []
        parents = {(t, game): int(self.episode_start[game]) for t, game, _ in rollout.captured}
        events = [(t, 0, game, name) for t, game, name in rollout.events]
        events += [(t, 1, game, "") for t, game in np.argwhere(all_ended != RUNNING).tolist()]
        for t, ended, game, name in sorted(events, key=lambda event: event[:3]):
            step = first + t * rollout.games + game + 1
            number = int(self.episode_start[game])
            if (t, game) in parents:
                parents[t, game] = number
            if not ended:
                unforced = forced is None or forced[t, game] == POLICY
                lines += self.record_milestone(name, step, number, unforced and number == POWER_ON)
                if not self.succeeded[game]:
                    self.start(number).successes += 1
                    self.posteriors.update(number + 1, True)
                self.succeeded[game] = True
                continue
            if not self.succeeded[game]:
                self.posteriors.update(number + 1, False)
            start = int(rollout.restart_stage[game, self.world.spec.stage.index(START)])
            self.episode_start[game], self.succeeded[game] = self.usable(start), False
            self.start(int(self.episode_start[game])).visits += 1
        newest = {(t, game): name for t, game, name in rollout.events}
        for t, game, bundle in rollout.captured:
            origin = {"milestone": newest.get((t, game), "record"),
                      "step": first + t * rollout.games + game + 1, "game": game, "parent": parents[t, game]}
            self.add(bundle, bool(all_ended[t, game] == DECIDED), origin)
        return lines

    def usable(self, number: int) -> int:
        """This start, or power-on if its savestate is in quarantine."""
        unusable = number >= 0 and self.starts[number].sha256 in self.world.library.quarantine
        return POWER_ON if unusable else number

    def record_milestone(self, name: str, step: int, number: int, cold: bool) -> list[str]:
        """A log line if the milestone is reached for the first time, by any chain or from power-on (cold)."""
        steps = self.first_steps.setdefault(name, {})
        kinds = [kind for kind in ("frontier", "cold") if kind not in steps and (kind == "frontier" or cold)]
        steps |= dict.fromkeys(kinds, step)
        if "frontier" in kinds and self.explorer_steps:
            steps["scouted"] = self.explorer_steps
        source = " from power-on" if cold else f" from {self.start(number).file or 'power-on'}"
        return [f"Milestone {name}: first reached at step {step:,}{source}"] if kinds else []

    def add(self, bundle: Any, decided: bool, origin: dict[str, Any]) -> None:
        """Make a captured game a start and, if it is the best so far, the frontier.

        A bundle whose milestones an earlier start has is dropped. origin: the fields milestone, step, game
        and parent of the Start.
        """
        reached = frozenset(bundle.milestones)
        if reached in self.start_by_milestones:
            return
        candidate = Frontier(step=origin["step"], finished=decided, milestones=bundle.milestones,
                             map=bundle.map, rom=bundle.rom, pyboy=bundle.pyboy, sha256=bundle.sha256,
                             actions=bundle.actions)
        if not bundle.root and (self.frontier is None or candidate.rank > self.frontier.rank):
            self.frontier = candidate
        if not decided and self.mode != "off" and self.add_start(bundle, origin):
            self.start_by_milestones[reached] = len(self.starts) - 1

    def add_imported(self, bundle: Any, origin: dict[str, Any]) -> bool:
        """Make a state of the user a start; False if the library has it already."""
        if bundle.place:  # of another run, between two milestones
            return self.add_start(bundle, origin)
        if frozenset(bundle.milestones) not in self.start_by_milestones:
            self.add(bundle, False, origin)
            return bool(self.starts) and self.starts[-1].sha256 == str(bundle.sha256)
        return self.add_start(bundle, origin)

    def record_first_episodes(self) -> None:
        """Before the first iteration: read from the world where the running episodes started."""
        self.episode_start[:] = self.world.episode_starts
        numbers = self.episode_start.tolist()
        for number in range(POWER_ON, len(self.starts)):
            self.start(number).visits = numbers.count(number)

    def add_start(self, bundle: Any, origin: dict[str, Any]) -> bool:
        """Append a state to the starts; False if the library has it already."""
        if self.world.library.add(bundle) < len(self.starts):
            return False
        plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in origin["milestone"])
        name = f"{plain[:60]}_{origin['step']}{bundle.place}.state"
        self.starts.append(Start(file=name, start_group=bundle.start_group, map=bundle.map,
                                 milestones=bundle.milestones, sha256=bundle.sha256, **origin))
        self.posteriors.append()
        return True

    def metrics(self) -> dict[str, float]:
        """Starts of the running episodes by group, number of savestates, and milestones reached so far."""
        groups = [self.start(number).start_group for number in self.episode_start.tolist()]
        shares = {f"spawn_{name}": groups.count(name) / len(groups) for name in START_GROUPS}
        cold = sum("cold" in steps for steps in self.first_steps.values())
        return shares | {
            "spawn_power_on": float((self.episode_start == POWER_ON).mean()),
            "savestates": float(len(self.starts)), "frontier_milestones": float(len(self.first_steps)),
            "cold_milestones": float(cold), "scouted": float(self.explorer_steps),
        }  # fmt: skip

    # --- state ---

    def state_dict(self) -> Tree:
        return self.chunks.state_dict() | {
            "power_on": self.power_on.to_dict(), "starts": [start.to_dict() for start in self.starts],
            "alpha": self.posteriors.alpha, "beta": self.posteriors.beta, "at": self.episode_start,
            "new": self.succeeded, "frontier": asdict(self.frontier) if self.frontier else None,
            "reached": {name: dict(steps) for name, steps in self.first_steps.items()},
            "scouted": self.explorer_steps,
        }  # fmt: skip

    def basis_state(self) -> Tree:
        """What captures of a pending rollout are compared with."""
        basis = self.capture_basis
        return {"starts": basis.starts, "record": basis.record, "finished": basis.finished}

    def load_basis_state(self, tree: Tree) -> None:
        count, library = stored_int(tree, "starts"), self.world.library
        known = frozenset(frozenset(start.milestones) for number, start in enumerate(self.starts[:count])
                          if not library[number].place)  # fmt: skip
        record, finished = stored_int(tree, "record"), stored_bool(tree, "finished")
        self.capture_basis = CaptureBasis(count, known, record, finished)

    def load_state_dict(self, tree: Tree) -> None:
        """To be called before the states of the world are loaded: their games need the savestates."""
        self.power_on = Start.from_dict(tree["power_on"])
        self.starts = [Start.from_dict(entry) for entry in tree["starts"]]
        self.chunks.load_state_dict(tree)
        self.start_by_milestones = {
            frozenset(start.milestones): number for number, start in enumerate(self.starts)
            if not self.world.library[number].place
        }  # fmt: skip
        self.posteriors.alpha, self.posteriors.beta = tree["alpha"].copy(), tree["beta"].copy()
        self.episode_start[:], self.succeeded[:] = tree["at"], tree["new"]
        self.frontier = Frontier(**tree["frontier"]) if tree["frontier"] else None
        self.first_steps = {name: dict(steps) for name, steps in tree["reached"].items()}
        self.explorer_steps = tree["scouted"]
