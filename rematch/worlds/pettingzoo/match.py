"""One running PettingZoo game: the same few methods for the AEC (turn-based) and the parallel interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.world import CUT_OFF, DECIDED, RUNNING

OBSERVATION, MASK = "observation", "action_mask"  # keys of a Dict observation, as the classic games have
Seen = tuple[Any, Any]  # an observation and its mask, or None where all actions are legal


class AecMatch:
    """A game in which one agent moves at a time. Agents that have ended are removed by empty moves."""

    def __init__(self, env: Any, agents: Sequence[str]) -> None:
        self.env, self.agents = env, list(agents)
        self.last: dict[int, Seen] = {}  # what each seat observed when its game ended

    def reset(self, seed: int) -> None:
        self.env.reset(seed=seed)
        self._remove_ended()

    def acting(self) -> list[int]:
        """Seats that are to move; none where the game has ended."""
        return [self.agents.index(self.env.agent_selection)] if self.env.agents else []

    def step(self, actions: Mapping[int, Any]) -> tuple[list[float], int]:
        """Rewards of all seats, and RUNNING, DECIDED or CUT_OFF."""
        env = self.env
        ((_, action),) = actions.items()
        env.step(action)
        rewards = [float(env.rewards.get(agent, 0.0)) for agent in self.agents]
        terminated = any(env.terminations.values())
        if terminated or any(env.truncations.values()):
            self.last = {seat: self._seen(agent) for seat, agent in enumerate(self.agents)
                         if agent in env.agents}
        self._remove_ended()
        if env.agents:
            return rewards, RUNNING
        return rewards, DECIDED if terminated else CUT_OFF

    def seen(self, seat: int) -> Seen | None:
        """Observation and mask of a seat; None where its agent is not in the game."""
        agent = self.agents[seat]
        if agent not in self.env.agents:
            return self.last.get(seat)
        return self._seen(agent)

    def _seen(self, agent: str) -> Seen:
        return split(self.env.observe(agent), self.env.infos.get(agent, {}))

    def _remove_ended(self) -> None:
        env = self.env
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)


class ParallelMatch:
    """A game in which all agents move at the same time."""

    def __init__(self, env: Any, agents: Sequence[str]) -> None:
        self.env, self.agents = env, list(agents)
        self.observations: dict[str, Any] = {}
        self.infos: dict[str, Any] = {}

    def reset(self, seed: int) -> None:
        self.observations, self.infos = self.env.reset(seed=seed)

    def acting(self) -> list[int]:
        return [self.agents.index(agent) for agent in self.env.agents]

    def step(self, actions: Mapping[int, Any]) -> tuple[list[float], int]:
        named = {self.agents[seat]: action for seat, action in actions.items()}
        observations, rewards, terminated, _, self.infos = self.env.step(named)
        self.observations |= observations  # an agent that has left keeps its last one
        values = [float(rewards.get(agent, 0.0)) for agent in self.agents]
        if self.env.agents:
            return values, RUNNING
        return values, DECIDED if any(terminated.values()) else CUT_OFF

    def seen(self, seat: int) -> Seen | None:
        agent = self.agents[seat]
        if agent not in self.observations:
            return None
        return split(self.observations[agent], self.infos.get(agent, {}))


def split(observation: Any, info: Mapping[str, Any]) -> Seen:
    """Observation and mask; a mask is part of a Dict observation or of the info."""
    if isinstance(observation, Mapping):
        return observation[OBSERVATION], observation.get(MASK)
    return observation, info.get(MASK)


def legal(mask: Any, size: int) -> NDArray[np.uint8]:
    """A mask [size] as 0 and 1; None: all actions are legal."""
    if mask is None:
        return np.ones(size, np.uint8)
    return np.asarray(np.asarray(mask).reshape(-1) != 0, np.uint8)
