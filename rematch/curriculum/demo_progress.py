"""The way: what is paid for coming on along the furthest way known (curriculum/demonstrations.py).

Between two milestones may lie hundreds of actions: with a discount of 0.98 a reward 300 actions ahead is
worth 0.002 here, less than a network's own error. The way's own places are nearer. r_way of a sight is the
number of the way's inputs by which it lies further on than the episode had come, none for what lies behind.
So a way pays its length once, whoever walks it, and a shortcut all at once what it saves.

A place is what some named columns say together, as for count_bonus.py. Where on the way each lies is learnt
from the games that are led along it. A sight is looked for in the next `way_window` inputs only: a way may
come by the same place again later. `way_marks` are columns that say what was reached so far. With them a
place lies on the way only for who has reached what the way had there: who leaves something out is paid no
more by going on, and who reached the same in another order is on the way again.
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
        self.marks = len(self.columns)  # where a place's required milestones begin
        # In a world without milestones none can be required.
        marks = tuple(m for m in config.required_milestones if role.milestones or not m.startswith(MILESTONE))
        self.columns += find_columns(role, marks, "demo_progress.required_milestones")
        self.newest: bytes | None = None  # the demonstration that games follow; None: all start where it does
        self.way = b""
        self.places: list[bytes] = []  # by index on the way; b"" where nobody was led yet
        self.found: dict[bytes, list[int]] = {}  # place -> where on the way, in order
        self.begins: dict[bytes, int] = {}  # marks -> where on the way they are first so
        self.at = np.full(games, OFF, np.int64)  # [N] how far each episode has come; OFF: not on the way
        self.over = np.ones(games, bool)  # [N] whether its last sight was an episode's last

    def score(self, tape: RolloutBuffer, iteration: int) -> Floats:
        """[T, N] by how much each sight is further on than any before it in its episode."""
        if self.newest is not None:
            self._follow(self.newest)
        obs = np.ascontiguousarray(tape[self.role.name].obs[:, :, 0, self.columns])
        out: Floats = np.zeros(obs.shape[:2], np.float32)
        for t in range(tape.steps):
            for game in range(tape.games):
                place = obs[t, game].tobytes()
                if self.newest is not None and tape.demo_index is not None:
                    index = int(tape.demo_index[t, game])
                else:
                    index = 0 if self.over[game] else OFF
                if index != OFF:
                    self._learn(index, place)
                before = index if self.over[game] else int(self.at[game])
                now = self._furthest(place, before)
                out[t, game] = 0 if self.over[game] else now - before
                self.at[game], self.over[game] = now, tape.ended[t, game] != RUNNING
        return out[:, :, None]

    def _furthest(self, place: bytes, before: int) -> int:
        """Where on the way a place lies beyond `before`, within the window; else `before`."""
        if before == OFF or place not in self.found:
            return before
        on = self.found[place]
        since = self.begins[self._marks(place)] if self.marks < len(self.columns) else 0
        last = bisect_right(on, max(before, since) + self.window) - 1
        return max(before, on[last]) if last >= 0 else before

    def _learn(self, index: int, place: bytes) -> None:
        if self.newest is not None and not self.places[index]:
            self.places[index] = place
            self._note(index, place)

    def _note(self, index: int, place: bytes) -> None:
        insort(self.found.setdefault(place, []), index)
        marks = self._marks(place)
        self.begins[marks] = min(index, self.begins.get(marks, index))

    def _marks(self, place: bytes) -> bytes:
        return place[self.marks * 4 :]  # of numbers of four bytes

    def _follow(self, way: bytes) -> None:
        """Another way: what both begin with is known already."""
        if way == self.way:
            return
        both = zip(way, self.way)
        same = next((at for at, (a, b) in enumerate(both) if a != b), min(len(way), len(self.way)))
        same = same if self.way else OFF
        self.at[self.at > same] = OFF
        self._know(way, self.places[: same + 1])

    def _know(self, way: bytes, places: list[bytes]) -> None:
        self.way, self.found, self.begins = way, {}, {}
        self.places = places + [b""] * (len(way) + 1 - len(places))
        for index, place in enumerate(self.places):
            if place:
                self._note(index, place)

    def copy_from(self, other: DemonstrationPlaces) -> None:
        """Know the way that another knows."""
        self._know(other.way, list(other.places))

    def state_dict(self) -> Tree:
        known = [index for index, place in enumerate(self.places) if place]
        shape = (len(known), len(self.columns))
        return {
            "way": np.frombuffer(self.way, np.uint8), "known": np.array(known, np.int64), "at": self.at,
            "places": np.frombuffer(b"".join(self.places), np.float32).reshape(shape), "over": self.over,
        }  # fmt: skip

    def load_state_dict(self, tree: Tree) -> None:
        way = tree["way"].tobytes()
        places = [b""] * (len(way) + 1 if way else 0)
        for index, place in zip(tree["known"].tolist(), tree["places"]):
            places[index] = place.tobytes()
        self._know(way, places)
        self.at[:], self.over[:] = tree["at"], tree["over"]


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
        demonstrations = self.setup.get(Demonstrations)
        assert demonstrations is not None
        for scorer in self.scorers.values():
            assert isinstance(scorer, DemonstrationPlaces)
            scorer.newest = demonstrations.demonstration
        super().after_rollout(rollout, clock)
