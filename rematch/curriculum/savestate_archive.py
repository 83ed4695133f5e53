"""The swarm: savestates that are found on the way, and which of them each new episode begins from.

A game that reaches a set of milestones that nobody had before is captured on the spot, joins the library and
is a file of the run; later episodes may begin there. Which do:

    bands   a share of the games always begins at power-on; the others are split into early, mid and late by
            quotas; while a band has no state, the one before it has its games too. A game keeps its band,
            and neighbours on the ladder of epsilons have different ones.
            Within a band, a start's chance is 1 / sqrt(visits + 1) times the deviation of what is believed
            (milestones.Beliefs) of its success: an episode from there that reaches something new.
            With `practice` only starts on the way to the frontier count, and games are led along it for a
            part (demonstrations.py); with `scouts` others look for what comes next (random_explorers.py).
    all     every game begins from the newest record: the state with the most milestones.
    off     every game begins at power-on. What was reached, and when, is kept all the same.

An episode begins without memory, wherever it begins: as the learner's sequences and a cold start do.
Where files lie and how they come back after a kill: archive_files.py.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Floats, Tree
from rematch.core.beta_posterior import Beliefs
from rematch.core.spec import Spec
from rematch.core.world import DECIDED, RUNNING
from rematch.curriculum.demonstrations import Demonstrations, Stretch, stretches
from rematch.curriculum.start_states import (
    BANDS,
    POWER_ON,
    START,
    Frontier,
    Kept,
    SavestatesConfig,
    SavestateWorld,
    Start,
    Strength,
    allot,
)
from rematch.rollout.rollout_buffer import POLICY, RolloutBuffer

GOLDEN = (5**0.5 - 1) / 2
MASTERED = 0.05  # how much a start is still practised from that always succeeds
PRIOR = (1.0, 1.0)  # of an episode's success


class Archive:
    """The starts of one run, where each running episode started, and how far any game came."""

    def __init__(self, config: SavestatesConfig, world: Any, seed: int, forgetting: float) -> None:
        self.kind, self.config, self.seed = config.mode, config, seed
        self.world: SavestateWorld = world
        spec: Spec = world.spec
        (role,) = spec.roles.values()
        self.names, self.actions, games = role.milestones, role.actions.names, world.games
        self.power_on = Start("", "power-on", 0, 0, "early", "", (), POWER_ON, "", visits=games)
        self.starts: list[Start] = []  # by number in the library
        self.sets: dict[frozenset[str], int] = {}  # milestones -> the number of who came first
        self.kept = Kept("savestate", world.library)
        self.beliefs = Beliefs(1, PRIOR, forgetting)  # of power-on, then of the starts
        self.at = np.full(games, POWER_ON, np.int32)  # [N] where the running episodes began
        self.new = np.zeros(games, bool)  # [N] whether they reached anything new
        self.frontier: Frontier | None = None
        self.reached: dict[str, dict[str, int]] = {}  # milestone -> "frontier", "cold": the first time
        self.locally: dict[int, set[frozenset[str]]] = {}  # captured in this rollout, by game
        self.practice: Demonstrations | None = None
        self.scouted = 0  # steps that scouts have made
        self.turn = np.argsort(np.argsort(np.arange(games) * GOLDEN % 1.0))  # neighbours lie far apart
        world.watch(self.wants)

    # --- capturing ---

    def wants(
        self, game: int, milestones: tuple[str, ...], over: bool, place: str, strength: Strength
    ) -> bool:
        """Whether a game that has just reached these is worth 14 ms. Asked by threads.

        A game never looks at what others capture in the same rollout, so what is captured first does not
        depend on their number; `report` drops what came second.
        """
        mine, found = self.locally.setdefault(game, set()), frozenset(milestones)
        if found in mine or found in self.sets:
            return False
        if over or self.kind == "off":  # nobody begins there: only a new record counts
            held = [len(one) for one in mine] if not over else []
            best = max([*held, len(self.frontier.milestones) if self.frontier else 0])
            if (self.frontier and self.frontier.finished) or (not over and len(milestones) <= best):
                return False
        mine.add(found)
        return True

    # --- beginning ---

    def stage(self, iteration: int) -> Floats:
        """[N, 2] the savestate that each game's next episode begins from, or POWER_ON; and its patience."""
        self.locally.clear()
        out: Floats = np.zeros((len(self.at), 2), np.float32)
        out[:, 0] = POWER_ON
        usable = [number for number, start in enumerate(self.starts)
                  if start.sha256 not in self.world.library.quarantine]
        if self.kind == "all" and usable:
            out[:, 0] = max(usable, key=lambda number: (len(self.starts[number].milestones), -number))
        if self.kind != "bands" or not usable:
            if self.practice:  # nothing to begin on: nobody is led
                self.practice.plan(b"", {}, out[:, 0].astype(np.int64), np.zeros(len(out)))
            return out
        c, weights = self.config, self.weights()
        parts = {part.start: part for part in self.stretches()} if self.practice else {}
        choices = {band: [k for k in usable if self.starts[k].band == band and (not parts or k in parts)]
                   for band in BANDS}  # fmt: skip
        choices["early"].insert(0, POWER_ON)
        shares, groups = [c.power_on], [[POWER_ON]]
        for band in BANDS:  # while a band has no state, the one before it has its quota too
            if choices[band]:
                shares.append(0.0)
                groups.append(choices[band])
            shares[-1] += (1 - c.power_on) * getattr(c, band)
        if self.practice:  # a band that is mastered leaves most of its games to the others
            failing = 1 + MASTERED - self.beliefs.mean
            needs = [share * float(failing[np.array(group) + 1].sum())
                     for share, group in zip(shares[1:], groups[1:])]  # fmt: skip
            shares[1:] = [(1 - c.power_on) * need / (sum(needs) or 1) for need in needs]
        last = np.cumsum(allot(shares, len(out)))
        luck = rng.units(self.seed, rng.SAVESTATE, len(out), iteration)
        group = np.searchsorted(last, self.turn, side="right")
        for game, which in enumerate(group.tolist()):
            odds = np.cumsum(weights[np.array(groups[which]) + 1])
            drawn = min(int(np.searchsorted(odds, luck[game] * odds[-1], side="right")), len(odds) - 1)
            out[game, 0] = groups[which][drawn]
        if self.practice:
            far = rng.units(self.seed, rng.DEMONSTRATION, len(out), iteration)
            far[group == 0] = -1  # these always play alone
            way = bytes(self.frontier.actions) if self.frontier else b""
            out[:, 1] = self.practice.plan(way, parts, out[:, 0].astype(np.int64), far)
        return out

    def stretches(self) -> list[Stretch]:
        """The way to the frontier, cut where a start lies on it."""
        if self.frontier is None:
            return []
        library = self.world.library
        known = [(number, library[number].actions, not library[number].place)
                 for number in range(len(self.starts)) if not library[number].root]  # fmt: skip
        return stretches(self.frontier.actions, [(POWER_ON, [], True), *known])

    def weights(self) -> NDArray[np.float64]:
        """[1 + starts] how much each is wanted within its band; power-on first."""
        visits = np.array([start.visits for start in (self.power_on, *self.starts)])
        wanted = self.beliefs.deviation
        if self.practice:  # the way on is known from each of them: what is mastered can wait
            wanted = wanted * (1 + MASTERED - self.beliefs.mean)
        return np.asarray(wanted / np.sqrt(visits + 1))

    def start(self, number: int) -> Start:
        return self.power_on if number < 0 else self.starts[number]

    # --- what happened ---

    def report(self, tape: RolloutBuffer, iteration: int) -> list[str]:
        """Of a rollout: who reached what and who began where; lines worth telling."""
        first = iteration * tape.steps * tape.games
        lines: list[str] = []
        born = {(t, game): int(self.at[game]) for t, game, _ in tape.captured}
        events = [(t, 0, game, name) for t, game, name in tape.events]
        events += [(t, 1, game, "") for t, game in np.argwhere(tape.ended != RUNNING).tolist()]
        for t, ended, game, name in sorted(events, key=lambda event: event[:3]):
            step = first + t * tape.games + game + 1
            number = int(self.at[game])
            if (t, game) in born:
                born[t, game] = number
            if not ended:
                alone = tape.forced is None or tape.forced[t, game] == POLICY
                lines += self.reach(name, step, number, alone and number == POWER_ON)
                if not self.new[game]:
                    self.start(number).successes += 1
                    self.beliefs.judge(number + 1, True)
                self.new[game] = True
                continue
            if not self.new[game]:
                self.beliefs.judge(number + 1, False)
            self.at[game], self.new[game] = self._began(game), False
            self.start(int(self.at[game])).visits += 1
        newest = {(t, game): name for t, game, name in tape.events}
        for t, game, bundle in tape.captured:
            about = {"milestone": newest.get((t, game), "record"), "step": first + t * tape.games + game + 1,
                     "game": game, "parent": born[t, game]}
            self.keep(bundle, bool(tape.ended[t, game] == DECIDED), about)
        return lines

    def _began(self, game: int) -> int:
        """Where the game begins that has replaced an ended one; power-on if its savestate was not fit."""
        number = int(self.world.next.stage[game, self.world.spec.stage.index(START)])
        unfit = number >= 0 and self.starts[number].sha256 in self.world.library.quarantine
        return POWER_ON if unfit else number

    def reach(self, name: str, step: int, number: int, cold: bool) -> list[str]:
        """A line for a milestone that nobody had reached before, by any chain or from power-on alone."""
        known = self.reached.setdefault(name, {})
        kinds = [kind for kind in ("frontier", "cold") if kind not in known and (kind == "frontier" or cold)]
        known |= dict.fromkeys(kinds, step)
        if "frontier" in kinds and self.scouted:
            known["scouted"] = self.scouted
        how = " from power-on" if cold else f" from {self.start(number).file or 'power-on'}"
        return [f"Milestone {name}: first reached at step {step:,}{how}"] if kinds else []

    def keep(self, bundle: Any, over: bool, about: dict[str, Any]) -> None:
        """A captured game becomes a start, unless one with its milestones came first, and the frontier."""
        found = frozenset(bundle.milestones)
        if found in self.sets:
            return
        came = Frontier(step=about["step"], finished=over, milestones=bundle.milestones, map=bundle.map,
                        rom=bundle.rom, pyboy=bundle.pyboy, sha256=bundle.sha256, actions=bundle.actions)
        if not bundle.root and (self.frontier is None or came.rank > self.frontier.rank):
            self.frontier = came
        if not over and self.kind != "off" and self.begin_from(bundle, about):
            self.sets[found] = len(self.starts) - 1

    def begin_from(self, bundle: Any, about: dict[str, Any]) -> bool:
        """Whether a state is a new start, from now on."""
        if self.world.library.add(bundle) < len(self.starts):
            return False
        plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in about["milestone"])
        name = f"{plain[:60]}_{about['step']}{bundle.place}.state"
        self.starts.append(Start(file=name, band=bundle.band, map=bundle.map, milestones=bundle.milestones,
                                 sha256=bundle.sha256, **about))
        self.beliefs.grow()
        return True

    def numbers(self) -> dict[str, float]:
        """Numbers for the log: where the running episodes began, savestates, and how far anybody came."""
        bands = [self.start(number).band for number in self.at.tolist()]
        shares = {f"spawn_{band}": bands.count(band) / len(bands) for band in BANDS}
        cold = sum("cold" in times for times in self.reached.values())
        return shares | {
            "spawn_power_on": float((self.at == POWER_ON).mean()), "savestates": float(len(self.starts)),
            "frontier_milestones": float(len(self.reached)), "cold_milestones": float(cold),
            "scouted": float(self.scouted),
        }  # fmt: skip

    # --- keeping ---

    def state_dict(self) -> Tree:
        return self.kept.state() | {
            "power_on": asdict(self.power_on), "starts": [asdict(start) for start in self.starts],
            "alpha": self.beliefs.alpha, "beta": self.beliefs.beta, "at": self.at, "new": self.new,
            "frontier": asdict(self.frontier) if self.frontier else None,
            "reached": {name: dict(times) for name, times in self.reached.items()}, "scouted": self.scouted,
        }  # fmt: skip

    def load_state_dict(self, tree: Tree) -> None:
        """Before the world's own states: a game that began in a savestate needs it."""
        self.power_on = Start(**tree["power_on"])
        self.starts = [Start(**start) for start in tree["starts"]]
        self.kept.restore(tree)
        self.sets = {frozenset(start.milestones): number for number, start in enumerate(self.starts)
                     if not self.world.library[number].place}  # fmt: skip
        self.beliefs.alpha, self.beliefs.beta = tree["alpha"].copy(), tree["beta"].copy()
        self.at[:], self.new[:] = tree["at"], tree["new"]
        self.frontier = Frontier(**tree["frontier"]) if tree["frontier"] else None
        self.reached = {name: dict(times) for name, times in tree["reached"].items()}
        self.scouted = tree["scouted"]
