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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Ints, Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Record, Setup
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.rollout.forced_actions import OFF, ForcedActions
from rematch.rollout.rollout_buffer import FORCED, RolloutBuffer

BEYOND = 1.25  # of a stretch, the most that a game is led
LEAVE, SLOWER, MOST = 40, 2.0, 300  # actions that it then has; more for each that the way takes; at most


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


@dataclass(frozen=True, kw_only=True)
class DemonstrationsConfig:
    """Episodes whose first actions follow a demonstration: the furthest known trajectory."""

    enabled: bool = knob(
        False, "start games with a part of the demonstration; games that start at power-on are excluded"
    )


class Demonstrations(Component):
    """Plans how far each next episode is forced along the demonstration (rollout/forced_actions.py)."""

    name = "demonstrations"
    Config = DemonstrationsConfig
    needs = "savestates.mode=bands"

    def __init__(self, config: DemonstrationsConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        self.forced = ForcedActions(setup.world.games, setup.config.steps)
        self.demonstration = b""
        self.forced_steps = 0

    def connect(self) -> None:
        self.setup.collector.force(self.forced)

    @classmethod
    def check(cls, config: DemonstrationsConfig, setup: Setup) -> None:
        learner = setup.learner_class
        if not cls.off(config, setup) and not learner.learns_forced_actions:
            raise ConfigError(f"demonstrations.enabled = True: {learner.name} cannot learn from actions that "
                              "it did not choose; expected learner dqn, or False")

    @classmethod
    def off(cls, config: DemonstrationsConfig, setup: Setup) -> str:
        if setup.config.savestates.mode != "bands":
            return f"savestates.mode is {setup.config.savestates.mode}"
        return "" if config.enabled else "demonstrations.enabled is False"

    def plan(
        self, actions: bytes, parts: Mapping[int, Stretch], starts: NDArray[np.int64],
        draws: NDArray[np.float64],
    ) -> Ints:  # fmt: skip
        """How far each game's next episode, from start `starts` [N], is forced. Its patience [N]; 0: any.

        draws [N] in [0, 1) choose; games that start on no part, or whose draw is negative, are not forced.
        """
        if not actions.startswith(self.demonstration):  # running episodes follow the previous demonstration
            self.forced.index[:] = OFF
        self.demonstration = actions
        games = len(starts)
        patience, index = np.zeros(games, np.int32), np.full(games, OFF, np.int64)
        low, high = np.zeros(games, np.int64), np.zeros(games, np.int64)
        for game, start in enumerate(starts.tolist()):
            part = parts.get(start)
            if part is None:
                continue
            index[game] = len(actions) - len(part.inputs)
            if draws[game] < 0:
                continue
            far = min(int(draws[game] * (BEYOND * part.length + 1)), len(part.inputs) - 1)
            low[game], high[game] = index[game], index[game] + far
            patience[game] = far + min(MOST, LEAVE + int(SLOWER * max(0, part.ahead - far)))
        self.forced.push(actions, (low, high), index)
        return patience

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        self.forced_steps += int((self.forced.forced == FORCED).sum())

    def evidence(self, record: Record) -> Iterable[Evidence]:
        yield Evidence("demonstrations", f"{self.forced_steps:,} forced steps" if self.forced_steps else "")

    def state_dict(self) -> Tree:
        return self.forced.state_dict() | {"demonstration": np.frombuffer(self.demonstration, np.uint8)}

    def load_state_dict(self, tree: Tree) -> None:
        self.forced.load_state_dict(tree)
        self.demonstration = tree["demonstration"].tobytes()
