"""The rollout buffer: the last T steps of N games, and the advantages along each seat's own decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.config import nearest
from rematch.core.spec import Role, Spec
from rematch.core.world import CUT_OFF, RUNNING

POLICY, HELPED, FORCED = range(3)  # a step of an episode that was never forced; was before; is now
Credit = Literal["decision", "arrival"]


@dataclass
class RewardTerm:
    """A column of reward that the world did not give: what each observation is worth, unweighted.

    `credit` says which decision earns it for learners that learn from the rollout itself: the one made at the
    observation, or the one that led to it.
    """

    values: NDArray[np.floating[Any]]  # [T, N, k]
    weight: float
    credit: Credit = "arrival"


@dataclass
class FinishedGames:
    """The m games that ended in a rollout; k is the number of a role's seats."""

    slot: dict[str, Ints]  # role -> [m, k]
    outcome: dict[str, Floats]  # role -> [m, k]
    length: Ints  # [m] steps


@dataclass(frozen=True)
class Tally:
    """The games that ended in a rollout of a world with two roles of one seat, counted per slot."""

    games: int
    length: int  # steps of all of them
    learner: dict[str, tuple[int, float]]  # role -> games of the learner in slot 0, and its score in them
    # role -> [slots] games of each opponent against a learner, and the learner's score in them
    opponents: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


class ColumnReads:
    """The columns that each component read on the host; `rematch check` prints them."""

    def __init__(self) -> None:
        self.reader = ""  # name of the component whose hook runs at present
        self.columns: dict[str, set[str]] = {}  # component -> columns

    def record(self, column: str) -> None:
        if self.reader:
            self.columns.setdefault(self.reader, set()).add(column)


class Columns:
    """Named arrays. Components read them with `host`: a column may lie on another device."""

    reads: ColumnReads

    def host(self, column: str) -> NDArray[Any]:
        """A column as an array of the host; records which component reads it."""
        try:
            array: NDArray[Any] = getattr(self, column)
        except AttributeError:
            names = sorted(name for name, value in vars(self).items() if isinstance(value, np.ndarray))
            near = nearest(column, names)
            raise AttributeError(f"there is no column {column!r}: expected one of {', '.join(names)}"
                                 + (f"; nearest: {near}" if near else "")) from None
        self.reads.record(column)
        return array


class RoleRollout(Columns):
    """One role's columns; k is the number of its seats, F the size of its observation, A of its actions."""

    def __init__(self, spec: Spec, role: str, steps: int, games: int, reads: ColumnReads) -> None:
        role_spec = spec.roles[role]
        shape = (steps, games, len(role_spec.seats))
        size = role_spec.actions.size
        discrete = role_spec.actions.kind == "discrete"
        self.role: Role = role_spec
        self.reads = reads
        self.obs: Floats = np.zeros((*shape, role_spec.size), np.float32)
        self.action: NDArray[Any] = (
            np.zeros(shape, np.int32) if discrete else np.zeros((*shape, size), np.float32)
        )
        self.mask: Bytes | None = None  # [T, N, k, A], where the world masks actions
        self.privileged: Floats | None = None  # [T, N, k, P], where a critic reads it
        self.logp: Floats = np.zeros(shape, np.float32)
        self.value: Floats = np.zeros(shape, np.float32)
        self.reward: Floats = np.zeros(shape, np.float32)
        self.reward_terms: dict[str, RewardTerm] = {}  # by component, in the order of the list
        self.acted: Bytes = np.zeros(shape, np.uint8)
        self.slot: Ints = np.zeros(shape, np.int32)  # slot of the player that decided: 0 is the learner
        self.outcome: Floats = np.zeros(shape, np.float32)  # where the game ended
        self.cut_value: Floats = np.zeros(shape, np.float32)  # of the last observation of a cut-off game
        self.last_value: Floats = np.zeros(shape[1:], np.float32)  # of the observation after the last step
        self.last_acting: Bytes = np.zeros(shape[1:], np.uint8)


class RolloutBuffer(Columns):
    """The columns of all roles and what they share: which games ended, and after how many steps."""

    def __init__(self, spec: Spec, steps: int, games: int) -> None:
        self.steps, self.games = steps, games
        self.reads = ColumnReads()
        self.tracks = {role: RoleRollout(spec, role, steps, games, self.reads) for role in spec.roles}
        self.ended: Bytes = np.zeros((steps, games), np.uint8)
        self.length: Ints = np.zeros((steps, games), np.int32)
        self.started: NDArray[np.bool_] = np.ones(games, bool)  # whether row 0 is an episode's first step
        # Of worlds with milestones, in the order of (step, game): (step, game, name), and the savestates that
        # were captured.
        self.events: list[tuple[int, int, str]] = []
        self.captured: list[tuple[int, int, Any]] = []
        self.forced_events: list[tuple[int, int, str]] = []  # removed from `events`: actions were forced
        self.episode_infos: list[tuple[int, int, dict[str, Any]]] = []  # (step, game, info) of ended episodes
        self.states: Bytes | None = None  # [T, N, S] before each step, where a component reads them
        self.forced: Bytes | None = None  # [T, N] (rollout/forced_actions.py), where actions can be forced
        self.demo_index: NDArray[np.int64] | None = None  # [T, N]
        self.demonstration = b""  # the actions that `demo_index` counts
        # What games of a run were played with, and how its world stood after them: with a lag the world and
        # the seating have moved on when components read a rollout (rollout/rollout_queue.py).
        self.players: dict[str, list[str]] = {}  # role -> name of the player in each slot; "" is the learner
        self.restart_stage: Floats = np.zeros((games, len(spec.stage)), np.float32)  # of `next`
        self.counters: dict[str, int] = {}  # of the world
        self.tally: Tally | None = None  # where the games were counted already, as on a GPU
        self.start_groups: list[str] = []  # [N] `EventLog.bands` of the running episodes

    def __getitem__(self, role: str) -> RoleRollout:
        return self.tracks[role]

    def share_reads(self, reads: ColumnReads) -> None:
        """Record the columns that are read in this buffer together with those of another one."""
        self.reads = reads
        for track in self.tracks.values():
            track.reads = reads

    def clear(self) -> None:
        """Before a rollout: lists are emptied, reward terms are gone; arrays are written over."""
        for column in (self.events, self.captured, self.forced_events, self.episode_infos):
            column.clear()
        for track in self.tracks.values():
            track.reward_terms.clear()

    def sort(self) -> None:
        """After a rollout of several threads: the order that one thread would have written."""
        for column in (self.events, self.captured, self.episode_infos):
            column.sort(key=lambda entry: entry[:2])

    def split_events(self, forced: Bytes) -> None:
        """Move the events that happened while actions were forced [T, N] to `forced_events`."""
        self.forced_events = [event for event in self.events if forced[event[0], event[1]] == FORCED]
        self.events = [event for event in self.events if forced[event[0], event[1]] != FORCED]

    def finished(self) -> FinishedGames:
        """The m games that ended in the rollout, in the order of (step, game)."""
        where = self.host("ended") != RUNNING
        return FinishedGames(
            slot={role: track.host("slot")[where] for role, track in self.tracks.items()},
            outcome={role: track.host("outcome")[where] for role, track in self.tracks.items()},
            length=self.host("length")[where],
        )

    def results(self, role: str) -> tuple[Ints, Floats]:
        """(slot, outcome) of every game of this role's seats that ended in the rollout, both [m]."""
        games = self.finished()
        return games.slot[role].reshape(-1), games.outcome[role].reshape(-1)

    def total_reward(self, role: str) -> Floats:
        """[T, N, k] the world's reward plus every weighted reward term, added one at a time."""
        track = self.tracks[role]
        total: Floats = track.host("reward")
        for term in track.reward_terms.values():
            weighted = (term.weight * term.values).astype(np.float32)
            total = total + (weighted if term.credit == "decision" else self._arrivals(weighted))
        return total

    def _arrivals(self, values: Floats) -> Floats:
        """Values of observations [T, N, k], moved to the steps that led to them.

        What an episode's first observation is worth was earned by no step. The step before a rollout's first
        row lies in the previous rollout: its value goes to the first row itself.
        """
        out = np.zeros_like(values)
        running = (self.host("ended")[:-1] == RUNNING)[:, :, None]
        out[:-1] = np.where(running, values[1:], np.float32(0))
        out[0] += np.where(self.host("started")[:, None], np.float32(0), values[0])
        return out

    def advantages(self, role: str, gamma: float, lam: float) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Generalised advantages (Schulman et al. 2016, eq. 16), value targets, and which decisions count.

        A reward belongs to the seat's latest decision, however many others move in between; chains run along
        (game, seat). After a decided end nothing follows; after a cut-off the value of the last observation
        does. The newest decision of a chain whose seat is not to move when the rollout ends has no successor
        yet: it serves its predecessor as bootstrap and is not learned from.
        All three results are [T, N, k].
        """
        t, ends = self.tracks[role], self.host("ended")
        reward = self.total_reward(role)
        value, cut_value = t.host("value"), t.host("cut_value")
        acts, slot = t.host("acted"), t.host("slot")
        if acts.all() and t.host("last_acting").all():
            advantage = self._advantages_of_all(role, reward, gamma, lam)
            return advantage, advantage + value, slot == 0
        advantage = np.zeros_like(value)
        counts = np.zeros(value.shape, bool)
        ahead = t.host("last_value").astype(np.float32, copy=True)  # value of the seat's next decision
        has_next = t.host("last_acting").astype(bool)  # whether that decision, or the end, is in the buffer
        next_advantage = np.zeros_like(ahead)
        due = np.zeros_like(ahead)  # reward since the decision we are walking back to
        for step in range(self.steps - 1, -1, -1):
            ended = (ends[step] != RUNNING)[:, None]
            cut = (ends[step] == CUT_OFF)[:, None]
            due = np.where(ended, reward[step], due + reward[step])
            ahead = np.where(ended, np.where(cut, cut_value[step], np.float32(0)), ahead)
            next_advantage = np.where(ended, np.float32(0), next_advantage)
            has_next = has_next | ended
            acted = acts[step].astype(bool)
            delta = due + np.float32(gamma) * ahead - value[step]
            estimate = np.where(has_next, delta + np.float32(gamma * lam) * next_advantage, np.float32(0))
            advantage[step] = np.where(acted, estimate, np.float32(0))
            counts[step] = acted & has_next
            next_advantage = np.where(acted, estimate, next_advantage)
            ahead = np.where(acted, value[step], ahead)
            due = np.where(acted, np.float32(0), due)
            has_next = has_next | acted
        return advantage, advantage + value, counts & (slot == 0)

    def _advantages_of_all(self, role: str, reward: Floats, gamma: float, lam: float) -> Floats:
        """The same where every seat decides at every step: few operations per step, with the same bits."""
        t, ends = self.tracks[role], self.host("ended")[:, :, None]
        value, running = t.host("value"), ends == RUNNING
        ahead = np.concatenate([value[1:], t.host("last_value")[None].astype(np.float32, copy=False)])
        ahead = np.where(running, ahead, np.where(ends == CUT_OFF, t.host("cut_value"), np.float32(0)))
        delta = reward + np.float32(gamma) * ahead - value
        advantage = np.empty_like(value)
        following, decay = np.zeros_like(value[0]), np.float32(gamma * lam)
        for step in range(self.steps - 1, -1, -1):
            following = delta[step] + decay * np.where(running[step], following, np.float32(0))
            advantage[step] = following
        return advantage
