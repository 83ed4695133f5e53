"""Reward for progress along the demonstration (demonstrations.py).

Hundreds of actions may lie between two milestones: with a discount of 0.98 a reward 300 actions ahead is
worth 0.002 now, less than the error of a network. The places of the demonstration are nearer. The reward of
an observation is the number of demonstration inputs by which it lies further along than the episode was
before; places behind pay nothing. So an episode earns the length of the demonstration at most once, and a
shortcut earns at once what it saves.

A place is the joint value of some named columns, as in count_bonus.py. The position of each place on the
demonstration is learned from the games that are forced along it. A place is searched for in the next `window`
inputs only, because a demonstration may come to the same place again later. `required_milestones` are columns
that show what was reached so far. With them a place counts only if the episode has reached what the
demonstration had reached there: an episode that skipped a milestone earns nothing by going on, and one that
reached the same milestones in another order earns again.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

import numpy as np

from rematch.core.arrays import Floats, Tree
from rematch.core.clock import Clock
from rematch.core.component import Setup
from rematch.core.config import knob
from rematch.core.spec import MILESTONE, Role
from rematch.core.world import RUNNING
from rematch.curriculum.demonstrations import Demonstrations
from rematch.rollout.columns import find_columns
from rematch.rollout.forced_actions import OFF
from rematch.rollout.reward_term import RewardTermComponent
from rematch.rollout.rollout_buffer import RolloutBuffer


@dataclass(frozen=True, kw_only=True)
class DemoProgressConfig:
    """Intrinsic reward for progress along a demonstration."""

    weight: float = knob(0.0, "weight of the reward term, per action of the demonstration; 0: off", low=0)
    columns: tuple[str, ...] = knob(
        ("map", "x", "y", "enemy_species"), "observation columns that together identify a place",
        needs="weight",
    )  # fmt: skip
    required_milestones: tuple[str, ...] = knob(
        (), "columns that must equal those of the demonstration at the same place, for example milestone_*; "
        "where one differs, no reward is paid", needs="weight",
    )  # fmt: skip
    window: int = knob(
        64, "actions of the demonstration, ahead of the current one, that are searched for the place",
        unit="actions", low=1, needs="weight",
    )  # fmt: skip


class DemonstrationPlaces:
    """The places of a demonstration, and how far along it each game's episode has come."""

    def __init__(self, config: DemoProgressConfig, role: Role, games: int) -> None:
        self.window, self.role = config.window, role
        self.columns = find_columns(role, config.columns, "demo_progress.columns")
        self.place_columns = len(self.columns)  # columns after these are the required milestones
        # In a world without milestones none can be required.
        required = tuple(name for name in config.required_milestones
                         if role.milestones or not name.startswith(MILESTONE))  # fmt: skip
        self.columns += find_columns(role, required, "demo_progress.required_milestones")
        self.newest: bytes | None = None  # the demonstration that games follow; None: all start where it does
        self.demonstration = b""
        self.places: list[bytes] = []  # by index on the demonstration; b"": no game was forced there yet
        self.indices: dict[bytes, list[int]] = {}  # place -> its indices on the demonstration, sorted
        self.first_index: dict[bytes, int] = {}  # milestones -> first index at which they are reached
        self.progress = np.full(games, OFF, np.int64)  # [N] index that each episode has reached, or OFF
        self.ended = np.ones(games, bool)  # [N] whether the last observation was the last of its episode

    def score(self, rollout: RolloutBuffer, iteration: int) -> Floats:
        """[T, N, 1] inputs by which each observation is further along than all before it in its episode."""
        if self.newest is not None:
            self._follow(self.newest)
        obs = np.ascontiguousarray(rollout[self.role.name].host("obs")[:, :, 0, self.columns])
        out: Floats = np.zeros(obs.shape[:2], np.float32)
        ended = rollout.host("ended") != RUNNING
        followed = None if rollout.demo_index is None else rollout.host("demo_index")
        for t in range(rollout.steps):
            for game in range(rollout.games):
                place = obs[t, game].tobytes()
                if self.newest is not None and followed is not None:
                    index = int(followed[t, game])
                else:
                    index = 0 if self.ended[game] else OFF
                if index != OFF:
                    self._learn(index, place)
                before = index if self.ended[game] else int(self.progress[game])
                after = self._furthest(place, before)
                out[t, game] = 0 if self.ended[game] else after - before
                self.progress[game], self.ended[game] = after, ended[t, game]
        return out[:, :, None]

    def _furthest(self, place: bytes, before: int) -> int:
        """The last index of a place beyond `before` and within the window; `before` if there is none."""
        if before == OFF or place not in self.indices:
            return before
        indices = self.indices[place]
        has_required = self.place_columns < len(self.columns)
        first = self.first_index[self._milestones(place)] if has_required else 0
        last = bisect_right(indices, max(before, first) + self.window) - 1
        return max(before, indices[last]) if last >= 0 else before

    def _learn(self, index: int, place: bytes) -> None:
        if self.newest is not None and not self.places[index]:
            self.places[index] = place
            self._add_index(index, place)

    def _add_index(self, index: int, place: bytes) -> None:
        insort(self.indices.setdefault(place, []), index)
        milestones = self._milestones(place)
        self.first_index[milestones] = min(index, self.first_index.get(milestones, index))

    def _milestones(self, place: bytes) -> bytes:
        return place[self.place_columns * 4 :]  # four bytes per float32 column

    def _follow(self, demonstration: bytes) -> None:
        """Change to another demonstration; places of the common prefix are still valid."""
        if demonstration == self.demonstration:
            return
        both = zip(demonstration, self.demonstration)
        shorter = min(len(demonstration), len(self.demonstration))
        common = next((index for index, (a, b) in enumerate(both) if a != b), shorter)
        common = common if self.demonstration else OFF
        self.progress[self.progress > common] = OFF
        self._set_places(demonstration, self.places[: common + 1])

    def _set_places(self, demonstration: bytes, places: list[bytes]) -> None:
        self.demonstration, self.indices, self.first_index = demonstration, {}, {}
        self.places = places + [b""] * (len(demonstration) + 1 - len(places))
        for index, place in enumerate(self.places):
            if place:
                self._add_index(index, place)

    def copy_from(self, other: DemonstrationPlaces) -> None:
        """Copy the demonstration and its places."""
        self._set_places(other.demonstration, list(other.places))

    def state_dict(self) -> Tree:
        learned = [index for index, place in enumerate(self.places) if place]
        shape = (len(learned), len(self.columns))
        return {
            "way": np.frombuffer(self.demonstration, np.uint8), "known": np.array(learned, np.int64),
            "at": self.progress,
            "places": np.frombuffer(b"".join(self.places), np.float32).reshape(shape), "over": self.ended,
        }  # fmt: skip

    def load_state_dict(self, tree: Tree) -> None:
        demonstration = tree["way"].tobytes()
        places = [b""] * (len(demonstration) + 1 if demonstration else 0)
        for index, place in zip(tree["known"].tolist(), tree["places"]):
            places[index] = place.tobytes()
        self._set_places(demonstration, places)
        self.progress[:], self.ended[:] = tree["at"], tree["over"]


class DemoProgress(RewardTermComponent):
    """Reward for advancing along the demonstration that games are forced along."""

    name = "demo_progress"
    Config = DemoProgressConfig
    needs = "demonstrations.enabled"

    @classmethod
    def off(cls, config: DemoProgressConfig, setup: Setup) -> str:
        return Demonstrations.off(setup.config.demonstrations, setup) or super().off(config, setup)

    @classmethod
    def check(cls, config: DemoProgressConfig, setup: Setup) -> None:
        if not cls.off(config, setup):
            DemonstrationPlaces(config, setup.spec.role_of(0), 1)

    @classmethod
    def make_scorer(
        cls, config: DemoProgressConfig, role: Role, games: int, seed: int
    ) -> DemonstrationPlaces:
        return DemonstrationPlaces(config, role, games)

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        for scorer in self.scorers.values():
            assert isinstance(scorer, DemonstrationPlaces)
            scorer.newest = rollout.demonstration
        super().after_rollout(rollout, clock)
