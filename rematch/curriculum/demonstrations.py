"""Demonstrations: episodes that are forced along a part of the best known trajectory, then play the policy.

The inputs of the frontier (savestate_archive.py) are a demonstration from power-on. The starts that lie on it
cut it into sections; each section starts at power-on or in a savestate. An episode that starts a section is
forced along a random part of it, sometimes beyond its end. Then the policy plays, with somewhat more steps
than the demonstration needs to the next milestone. So every state of the demonstration is a start, near its
goal as often as far from it (Salimans, Chen 2018). Forced steps stand in the rollout like other steps: an
off-policy learner learns from them too (Hester et al. 2018). Milestones that are reached while actions are
forced do not count: the collector moves such events to `rollout.forced_events`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Ints, Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, PlayState, Record, Setup
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.rollout.forced_actions import OFF, ForcedActions, ForcedActionsState
from rematch.rollout.rollout_buffer import FORCED, RolloutBuffer

MAX_FORCED = 1.25  # largest forced part, as a fraction of the section's length
# Actions of the policy after the forced ones: BASE + PER_ACTION * actions to the next milestone, at most MAX.
BASE_PATIENCE, PATIENCE_PER_ACTION, MAX_PATIENCE = 40, 2.0, 300


@dataclass(frozen=True)
class Section:
    """A part of the demonstration: its start, and the inputs from there to the end of the demonstration."""

    start: int  # number of a savestate, or POWER_ON
    length: int  # actions to the next section
    to_milestone: int  # actions to the next milestone
    inputs: bytes  # to the end of the demonstration, one byte per action


def cut_into_sections(
    demonstration: Sequence[int], starts: Sequence[tuple[int, Sequence[int], bool]]
) -> list[Section]:
    """Sections in order; starts: (number, inputs from power-on, whether it lies at a milestone).

    Starts whose inputs are no prefix of the demonstration are not used.
    """
    actions = bytes(demonstration)
    on_it = sorted((len(inputs), number, at_milestone) for number, inputs, at_milestone in starts
                   if actions.startswith(bytes(inputs)))  # fmt: skip
    out: list[Section] = []
    end, goal = len(actions), len(actions)
    for index, number, at_milestone in reversed(on_it):
        if end > index:
            out.append(Section(number, end - index, goal - index, actions[index:]))
        end, goal = index, index if at_milestone else goal
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
    changed_by_play = True
    in_play = True

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
        self, actions: bytes, sections: Mapping[int, Section], starts: NDArray[np.int64],
        uniform: NDArray[np.float64],
    ) -> Ints:  # fmt: skip
        """Choose how far the next episodes, from `starts` [N], are forced. Returns patience [N]; 0: default.

        uniform [N] in [0, 1) chooses the length. A game whose start is on no section, or whose number is
        negative, is not forced.
        """
        if not actions.startswith(self.demonstration):  # running episodes follow the previous demonstration
            self.forced.index[:] = OFF
        self.demonstration = actions
        games = len(starts)
        patience, index = np.zeros(games, np.int32), np.full(games, OFF, np.int64)
        low, high = np.zeros(games, np.int64), np.zeros(games, np.int64)
        for game, start in enumerate(starts.tolist()):
            section = sections.get(start)
            if section is None:
                continue
            index[game] = len(actions) - len(section.inputs)
            if uniform[game] < 0:
                continue
            length = min(int(uniform[game] * (MAX_FORCED * section.length + 1)), len(section.inputs) - 1)
            low[game], high[game] = index[game], index[game] + length
            extra = BASE_PATIENCE + int(PATIENCE_PER_ACTION * max(0, section.to_milestone - length))
            patience[game] = length + min(MAX_PATIENCE, extra)
        self.forced.push(actions, (low, high), index)
        return patience

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        self.forced_steps += int(np.sum(rollout.host("forced") == FORCED))

    def evidence(self, record: Record) -> Iterable[Evidence]:
        yield Evidence("demonstrations", f"{self.forced_steps:,} forced steps" if self.forced_steps else "")

    def play_state(self) -> PlayState:
        return ForcedActionsState(self.forced, self.setup.world.first)

    def state_dict(self) -> Tree:
        state = self.forced.state_dict() | {"demonstration": np.frombuffer(self.demonstration, np.uint8)}
        return state | ({"next": self.forced.next_state()} if self.setup.config.lag else {})

    def load_state_dict(self, tree: Tree) -> None:
        self.forced.load_state_dict(tree)
        self.demonstration = tree["demonstration"].tobytes()
        if self.setup.config.lag:
            self.forced.load_next_state(tree["next"])
