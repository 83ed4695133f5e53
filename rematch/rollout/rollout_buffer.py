"""The tape: the last T steps of N games, and the advantages along each seat's own decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.spec import Spec
from rematch.core.world import CUT_OFF, RUNNING


class Track:
    """One role's part of the tape; k is the number of its seats, F the numbers it sees, A its actions."""

    def __init__(self, spec: Spec, role: str, steps: int, games: int) -> None:
        about = spec.roles[role]
        shape = (steps, games, len(about.seats))
        size = about.actions.size
        discrete = about.actions.kind == "discrete"
        self.role = about
        self.sight: Floats = np.zeros((*shape, about.size), np.float32)
        self.action: NDArray[Any] = (
            np.zeros(shape, np.int32) if discrete else np.zeros((*shape, size), np.float32)
        )
        self.mask: Bytes | None = None  # [T, N, k, A], made when the world first sends one
        self.aside: Floats | None = None  # [T, N, k, aside], made where the network learns from it
        self.logp: Floats = np.zeros(shape, np.float32)
        self.value: Floats = np.zeros(shape, np.float32)
        self.reward: Floats = np.zeros(shape, np.float32)
        self.bonus: Floats | None = None  # [T, N, k] what was added to it before learning, where anything was
        self.acted: Bytes = np.zeros(shape, np.uint8)
        self.slot: Ints = np.zeros(shape, np.int32)  # who decided: 0 is the learner
        self.outcome: Floats = np.zeros(shape, np.float32)  # where the game ended
        self.cut_value: Floats = np.zeros(shape, np.float32)  # value of the last sight of a cut-off game
        self.last_value: Floats = np.zeros(shape[1:], np.float32)  # of what is seen after the last step
        self.last_acting: Bytes = np.zeros(shape[1:], np.uint8)


class Tape:
    """Tracks of all roles and what they share: which games ended, and after how many steps."""

    def __init__(self, spec: Spec, steps: int, games: int) -> None:
        self.steps, self.games = steps, games
        self.tracks = {role: Track(spec, role, steps, games) for role in spec.roles}
        self.ended: Bytes = np.zeros((steps, games), np.uint8)
        self.length: Ints = np.zeros((steps, games), np.int32)
        # Of worlds that tell milestones, in the order of (step, game): (step, game, name), and the savestates
        # that were asked for.
        self.events: list[tuple[int, int, str]] = []
        self.captured: list[tuple[int, int, Any]] = []
        # taken off `events`: nobody's own (curriculum/demonstrations.py)
        self.led: list[tuple[int, int, str]] = []
        self.told: list[tuple[int, int, dict[str, Any]]] = []  # (step, game, what) at ends
        self.states: Bytes | None = None  # [T, N, S] before each step, made where a learner searches them

    def __getitem__(self, role: str) -> Track:
        return self.tracks[role]

    def results(self, role: str) -> tuple[Ints, Floats]:
        """(slot, outcome) of every game of this role's seats that ended on the tape, both [m]."""
        track = self.tracks[role]
        where = np.broadcast_to((self.ended != RUNNING)[:, :, None], track.slot.shape)
        return track.slot[where], track.outcome[where]

    def advantages(self, role: str, gamma: float, lam: float) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Generalised advantages (Schulman et al. 2016, eq. 16), value targets, and which decisions count.

        A reward belongs to the seat's latest decision, however many others move in between; chains run along
        (game, seat). A decided end is worth nothing more; a cut-off one is worth the value of its last sight.
        The newest decision of a chain whose seat is not to move when the tape ends has no successor yet: it
        serves its predecessor as bootstrap and is not learnt from.
        All three results are [T, N, k].
        """
        t = self.tracks[role]
        reward = t.reward if t.bonus is None else t.reward + t.bonus
        advantage = np.zeros_like(t.value)
        counts = np.zeros(t.value.shape, bool)
        ahead = t.last_value.astype(np.float32, copy=True)  # value of the seat's next decision
        known = t.last_acting.astype(bool)  # whether that next decision, or the end, is on record
        run = np.zeros_like(ahead)  # the advantage of the next decision
        due = np.zeros_like(ahead)  # reward since the decision we are walking back to
        for step in range(self.steps - 1, -1, -1):
            over = (self.ended[step] != RUNNING)[:, None]
            cut = (self.ended[step] == CUT_OFF)[:, None]
            due = np.where(over, reward[step], due + reward[step])
            ahead = np.where(over, np.where(cut, t.cut_value[step], np.float32(0)), ahead)
            run = np.where(over, np.float32(0), run)
            known = known | over
            acted = t.acted[step].astype(bool)
            delta = due + np.float32(gamma) * ahead - t.value[step]
            here = np.where(known, delta + np.float32(gamma * lam) * run, np.float32(0))
            advantage[step] = np.where(acted, here, np.float32(0))
            counts[step] = acted & known
            run = np.where(acted, here, run)
            ahead = np.where(acted, t.value[step], ahead)
            due = np.where(acted, np.float32(0), due)
            known = known | acted
        return advantage, advantage + t.value, counts & (t.slot == 0)
