"""Practice: episodes that are led along the furthest way known for a part, and then left to the policy.

The frontier's inputs (savestates.py) are a way from power-on. Its milestones cut it into stretches, each of
which begins at power-on or in a savestate. An episode that begins a stretch is led by those inputs for a part
of it, sometimes beyond its end; from there on the policy plays, and has a little longer than the way itself
takes. So every place of the way is a beginning, near its goal as often as far from it (Salimans, Chen 2018).
What a game is led through stands on the tape like its own moves: a learner that learns from others' moves
sees how it is done (Hester et al. 2018). Who was led to a milestone has not reached it: such events are
taken off the tape before anybody counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Ints, Tree
from rematch.core.world import RUNNING
from rematch.rollout.rollout_buffer import Tape

BEYOND = 1.25  # of a stretch, the most that a game is led
LEAVE, SLOWER, MOST = 40, 2.0, 300  # actions that it then has; more for each that the way takes; at most
FREE = -1  # no action: the policy plays
OFF = -1  # no index on the way: not there, or unknown
ALONE, HELPED, LED = range(3)  # an episode that is, or was, led


@dataclass(frozen=True)
class Stretch:
    """A part of the way: where it begins, and the inputs from there to the end of the way."""

    start: int  # a savestate's number, or POWER_ON
    length: int  # to the next stretch
    ahead: int  # to the next milestone
    inputs: bytes  # on to the end of the way, one an action


def stretches(way: Sequence[int], known: Sequence[tuple[int, Sequence[int], bool]]) -> list[Stretch]:
    """Of a way; known: (start, its inputs from power-on, whether at a milestone). Those on it cut it."""
    whole = bytes(way)
    on = sorted((len(inputs), start, marked) for start, inputs, marked in known
                if whole.startswith(bytes(inputs)))  # fmt: skip
    out, end, goal = [], len(whole), len(whole)
    for at, start, marked in reversed(on):
        if end > at:
            out.append(Stretch(start, end - at, goal - at, whole[at:]))
        end, goal = at, at if marked else goal
    return out[::-1]


class Practice:
    """Which games of a run are being led, and by which inputs."""

    def __init__(self, games: int, steps: int) -> None:
        self.next: list[bytes] = [b""] * games  # of the episodes that begin in this rollout
        self.left: list[bytes] = [b""] * games  # of those that run
        self.helped = np.zeros(games, bool)  # [N] whether a running episode was led at all
        self.how = np.zeros((steps, games), np.uint8)  # [T, N] of the rollout at hand: ALONE, HELPED or LED
        self.way = b""
        self.next_at = np.full(games, OFF, np.int64)  # [N] where on the way they begin
        self.at = np.full(games, OFF, np.int64)  # [N] where those that run are, while that is known
        self.index = np.full((steps, games), OFF, np.int64)  # [T, N] that of the rollout at hand

    def plan(
        self, way: bytes, parts: dict[int, Stretch], starts: NDArray[np.int64], luck: NDArray[np.float64]
    ) -> Ints:
        """How far each game's next episode, from start `starts` [N], is led. Its patience [N]; 0: any.

        luck [N] in [0, 1) chooses; games that begin on no stretch, or whose luck is negative, are not led.
        """
        if not way.startswith(self.way):  # who is under way is on another one
            self.at[:] = OFF
        self.way = way
        patience = np.zeros(len(self.next), np.int32)
        for game, start in enumerate(starts.tolist()):
            part = parts.get(start)
            self.next[game] = b""
            self.next_at[game] = OFF if part is None else len(way) - len(part.inputs)
            if part is None or luck[game] < 0:
                continue
            far = min(int(luck[game] * (BEYOND * part.length + 1)), len(part.inputs) - 1)
            self.next[game] = part.inputs[:far]
            patience[game] = far + min(MOST, LEAVE + int(SLOWER * max(0, part.ahead - far)))
        return patience

    def lead(self, games: NDArray[np.integer], began: NDArray[np.bool_], step: int) -> Ints:
        """What these games must do now, [n]; FREE where the policy plays. began [n]: their first step."""
        out = np.full(len(games), FREE, np.int32)
        t = step % len(self.how)
        for i, game in enumerate(games.tolist()):
            if began[i] and t:  # who ended with a rollout has begun anew in `judge`
                self._begin(game)
            left = self.left[game]
            self.how[t, game] = LED if left else self.helped[game]
            self.index[t, game] = at = self.at[game]
            self.at[game] = at + 1 if left and at != OFF else OFF
            if left:
                out[i], self.left[game] = left[0], left[1:]
        return out

    def judge(self, tape: Tape) -> None:
        """After a rollout: take off the tape what nobody reached by himself."""
        tape.led = [event for event in tape.events if self.how[event[0], event[1]] == LED]
        tape.events[:] = [event for event in tape.events if self.how[event[0], event[1]] != LED]
        for game in np.flatnonzero(tape.ended[-1] != RUNNING).tolist():
            self._begin(game)

    def _begin(self, game: int) -> None:
        self.left[game], self.helped[game] = self.next[game], bool(self.next[game])
        self.at[game] = self.next_at[game]

    def state(self) -> Tree:
        return {"left": np.frombuffer(b"".join(self.left), np.uint8), "helped": self.helped,
                "way": np.frombuffer(self.way, np.uint8), "at": self.at,
                "sizes": np.array([len(left) for left in self.left], np.int64)}  # fmt: skip

    def restore(self, tree: Tree) -> None:
        whole, ends = tree["left"].tobytes(), np.cumsum(tree["sizes"]).tolist()
        self.left = [whole[low:high] for low, high in zip([0, *ends], ends)]
        self.helped, self.at = tree["helped"].copy(), tree["at"].copy()
        self.way = tree["way"].tobytes()
