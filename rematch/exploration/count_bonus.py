"""Count bonus: the n-th visit of a place in an episode gives a reward of 1 / sqrt(n).

A place is the combination of values of some observation columns: map, x and y of a walker. With `lifelong` a
place gives a reward once per episode, 1 / sqrt(n) in the n-th episode of the run that visits it (counts:
Strehl & Littman 2008). The counts are shared by all games.
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

DIGEST_SIZE = 8  # bytes of a place's digest


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
    """The visit counts of one role, per game; they are cleared at the end of an episode."""

    def __init__(self, config: CountBonusConfig, role: Role, games: int) -> None:
        self.role, self.columns = role, find_columns(role, config.columns)
        self.counts: list[dict[bytes, int]] = [{} for _ in range(games)]
        self.lifelong = config.lifelong
        self.episodes: dict[bytes, int] = {}  # digest of a place -> episodes of the run that visited it

    def score(self, rollout: RolloutBuffer, iteration: int) -> Floats:
        obs = np.ascontiguousarray(rollout[self.role.name].host("obs")[:, :, 0, self.columns])
        out: Floats = np.zeros(obs.shape[:2], np.float32)
        ended = rollout.host("ended")
        for game, counts in enumerate(self.counts):
            for t in range(rollout.steps):
                place = obs[t, game].tobytes()
                counts[place] = counts.get(place, 0) + 1
                count = counts[place]
                out[t, game] = self._lifelong_reward(place, count) if self.lifelong else count**-0.5
                if ended[t, game] != RUNNING:
                    counts.clear()
        return out[:, :, None]

    def copy_from(self, other: VisitCounts) -> None:
        """Copy the lifelong counts of another scorer."""
        self.episodes = dict(other.episodes)

    def _lifelong_reward(self, place: bytes, count: int) -> float:
        """The lifelong reward of a place on its `count`-th visit in an episode."""
        if count > 1:
            return 0.0
        digest = hashlib.blake2b(place, digest_size=DIGEST_SIZE).digest()
        self.episodes[digest] = self.episodes.get(digest, 0) + 1
        return float(self.episodes[digest] ** -0.5)

    def state_dict(self) -> Tree:
        places = [place for counts in self.counts for place in counts]
        shape = (len(places), len(self.columns))
        return {
            "places": np.frombuffer(b"".join(places), np.float32).reshape(shape).copy(),
            "counts": np.array([n for counts in self.counts for n in counts.values()], np.int64),
            "sizes": np.array([len(counts) for counts in self.counts], np.int64),
            "known": np.frombuffer(b"".join(self.episodes), np.uint8).reshape(-1, DIGEST_SIZE).copy(),
            "episodes": np.array(list(self.episodes.values()), np.int64),
        }

    def load_state_dict(self, tree: Tree) -> None:
        rows = zip(tree["places"], tree["counts"].tolist())
        for counts, size in zip(self.counts, tree["sizes"].tolist()):
            counts.clear()
            for _ in range(size):
                place, n = next(rows)
                counts[place.tobytes()] = n
        episodes = zip(tree["known"], tree["episodes"].tolist())
        self.episodes = {digest.tobytes(): n for digest, n in episodes}


class CountBonus(RewardTermComponent):
    """Visit counts of places, for roles with one seat."""

    name = "count_bonus"
    Config = CountBonusConfig

    @classmethod
    def check(cls, config: CountBonusConfig, setup: Setup) -> None:
        for role in setup.spec.roles.values() if config.weight else ():
            find_columns(role, config.columns)
            if len(role.seats) > 1:
                raise ConfigError(f"count_bonus.weight = {config.weight:g}: {role.name} has "
                                  f"{len(role.seats)} seats; expected roles with one seat, or 0")

    @classmethod
    def make_scorer(cls, config: CountBonusConfig, role: Role, games: int, seed: int) -> VisitCounts:
        return VisitCounts(config, role, games)
