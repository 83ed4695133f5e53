"""Novelty: a place is worth 1 / sqrt(n) when it is met for the n-th time in its episode.

A place is what some named columns say together: map, x and y of a walker. With `lifelong` a place is paid
once an episode, 1 / sqrt(n) in the n-th episode of the run that meets it (counts: Strehl & Littman 2008).
What all games know by heart pays next to nothing, what few have seen pays much, whoever comes there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from rematch.core.arrays import Floats, Tree
from rematch.core.component import Setup
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.spec import Role
from rematch.core.world import RUNNING
from rematch.rollout.columns import find_columns
from rematch.rollout.reward_term import RewardTermComponent
from rematch.rollout.rollout_buffer import RolloutBuffer

DIGEST = 8  # bytes by which a run knows a place


@dataclass(frozen=True, kw_only=True)
class CountBonusConfig:
    """Intrinsic reward for places that are new in the episode (visit counts)."""

    weight: float = knob(0.0, "weight of the reward term; 0: off", low=0)
    columns: tuple[str, ...] = knob(
        ("map", "x", "y"), "observation columns that together identify a place", needs="weight"
    )
    lifelong: bool = knob(
        False, "count the episodes of the whole run that visited a place: its first visit in an episode "
        "pays 1 / sqrt(count)", needs="weight",
    )  # fmt: skip


class VisitCounts:
    """One role's counts, by game; those of an episode go with it."""

    def __init__(self, config: CountBonusConfig, role: Role, games: int) -> None:
        self.role, self.columns = role, find_columns(role, config.columns)
        self.counts: list[dict[bytes, int]] = [{} for _ in range(games)]
        self.lifelong = config.lifelong
        self.episodes: dict[bytes, int] = {}  # by a place's digest: how many of the run have met it

    def score(self, tape: RolloutBuffer, iteration: int) -> Floats:
        obs = np.ascontiguousarray(tape[self.role.name].obs[:, :, 0, self.columns])
        out: Floats = np.zeros(obs.shape[:2], np.float32)
        for game, counts in enumerate(self.counts):
            for t in range(tape.steps):
                place = obs[t, game].tobytes()
                counts[place] = counts.get(place, 0) + 1
                out[t, game] = self._known(place, counts[place]) if self.lifelong else counts[place] ** -0.5
                if tape.ended[t, game] != RUNNING:
                    counts.clear()
        return out[:, :, None]

    def copy_from(self, other: VisitCounts) -> None:
        """Know what another knows: in which episodes of the run a place was met."""
        self.episodes = dict(other.episodes)

    def _known(self, place: bytes, times: int) -> float:
        """What a place is worth to an episode that has met it so often, in the run as a whole."""
        if times > 1:
            return 0.0
        short = hashlib.blake2b(place, digest_size=DIGEST).digest()
        self.episodes[short] = self.episodes.get(short, 0) + 1
        return float(self.episodes[short] ** -0.5)

    def state_dict(self) -> Tree:
        places = [place for counts in self.counts for place in counts]
        shape = (len(places), len(self.columns))
        return {
            "places": np.frombuffer(b"".join(places), np.float32).reshape(shape).copy(),
            "counts": np.array([n for counts in self.counts for n in counts.values()], np.int64),
            "sizes": np.array([len(counts) for counts in self.counts], np.int64),
            "known": np.frombuffer(b"".join(self.episodes), np.uint8).reshape(-1, DIGEST).copy(),
            "episodes": np.array(list(self.episodes.values()), np.int64),
        }

    def load_state_dict(self, tree: Tree) -> None:
        rows = zip(tree["places"], tree["counts"].tolist())
        for counts, size in zip(self.counts, tree["sizes"].tolist()):
            counts.clear()
            for _ in range(size):
                place, n = next(rows)
                counts[place.tobytes()] = n
        known = zip(tree["known"], tree["episodes"].tolist())
        self.episodes = {digest.tobytes(): n for digest, n in known}


class CountBonus(RewardTermComponent):
    """Counts of places, for roles with one seat."""

    name = "count_bonus"
    Config = CountBonusConfig

    @classmethod
    def check(cls, config: CountBonusConfig, setup: Setup) -> None:
        for role in setup.spec.roles.values() if config.weight else ():
            find_columns(role, config.columns)
            if len(role.seats) > 1:
                raise ConfigError(f"count_bonus.weight = {config.weight:g}: {role.name} has "
                                  f"{len(role.seats)} seats, places are counted for one; expected 0")

    @classmethod
    def make_scorer(cls, config: CountBonusConfig, role: Role, games: int, seed: int) -> VisitCounts:
        return VisitCounts(config, role, games)
