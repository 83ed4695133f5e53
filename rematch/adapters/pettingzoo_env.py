"""A world as a PettingZoo environment: `ZooParallel` where all seats move at once, `ZooTurns` where one does.

An agent is named after its role, with a number where the role has several seats.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.adapters.common import (
    ERROR,
    ILLEGAL_REWARD,
    LOSE,
    StoredWorld,
    check_illegal_option,
    config_of,
    flat,
    game_of,
    illegal_action,
    last_obs,
)
from rematch.core import rng
from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.spec import Role
from rematch.core.stepping import empty_actions
from rematch.core.world import CUT_OFF, DECIDED, RUNNING

try:
    import gymnasium
    from pettingzoo import AECEnv, ParallelEnv

    from rematch.adapters.gymnasium_env import action_space, observation_space
except ImportError:
    raise NotInstalled("PettingZoo", "pettingzoo") from None

Info = dict[str, Any]


class AgentGame(StoredWorld):
    """One game of a world, by names of agents: what the two kinds of environment share."""

    def __init__(self, world: Any, config: Any, illegal: str) -> None:
        self.game = game_of(world)
        self.config = config_of(self.game, config)
        self.illegal = check_illegal_option(illegal)
        self.losers: list[str] = []  # agents whose illegal action ended the game
        self.make_world(1, 0)
        self.places: dict[str, tuple[Role, int]] = {}  # agent -> its role, its place among that role's seats
        for seat in range(self.world.spec.seats):
            role = self.world.spec.role_of(seat)
            place = role.seats.index(seat)
            self.places[role.name if len(role.seats) == 1 else f"{role.name}_{place}"] = (role, place)
        self.masked = set(self.world.view.mask)
        self.first_seed, self.resets = 0, 0

    def begin(self, seed: int | None) -> None:
        """A new game; without a seed the next one of the series that the last seed began."""
        if seed is not None:
            self.first_seed, self.resets = seed, 0
        self.make_world(1, rng.key(self.first_seed, rng.GAME, self.resets))
        self.resets += 1
        self.losers = []

    def space(self, agent: str) -> Any:
        role, _ = self.places[agent]
        obs = observation_space(role)
        if role.name not in self.masked:
            return obs
        mask = gymnasium.spaces.Box(0, 1, (role.actions.size,), np.int8)
        return gymnasium.spaces.Dict({"observation": obs, "action_mask": mask})

    def observations(self) -> dict[str, Any]:
        return {
            agent: self._obs(agent, flat(self.world.view.fields, *self.places[agent])[0])
            for agent in self.places
        }

    def last_observations(self, before: dict[str, Any]) -> dict[str, Any]:
        """Observations after the end of the game; `before` are those before the final move."""
        if self.losers:
            return before
        out: dict[str, Any] = {}
        for agent, (role, place) in self.places.items():
            seen = before[agent]["observation"] if role.name in self.masked else before[agent]
            seen = last_obs(self.world.view, role, place, seen[None])[0]
            out[agent] = {**before[agent], "observation": seen} if role.name in self.masked else seen
        return out

    def _obs(self, agent: str, seen: Any) -> Any:
        role, place = self.places[agent]
        if role.name not in self.masked:
            return seen
        return {"observation": seen, "action_mask": self.world.view.mask[role.name][0, place].astype(np.int8)}

    def step(self, actions: dict[str, Any]) -> dict[str, float]:
        """Play these actions; returns the reward of every agent."""
        moves = empty_actions(self.world)
        for agent, action in actions.items():
            role, place = self.places[agent]
            moves[role.name][0, place] = action
            if line := illegal_action(self.world, role, place, moves[role.name][:, place]):
                if self.illegal == ERROR:
                    raise ConfigError(line)
                self.losers.append(agent)
        if self.losers:
            return {agent: ILLEGAL_REWARD if agent in self.losers else 0.0 for agent in self.places}
        view = self.world.step(moves)
        return {agent: float(view.reward[0, self.seat(agent)]) for agent in self.places}

    def seat(self, agent: str) -> int:
        role, place = self.places[agent]
        return role.seats[place]

    @property
    def ended(self) -> int:
        return DECIDED if self.losers else int(self.world.view.ended[0])

    def outcomes(self) -> dict[str, Info]:
        """Outcome and length of the ended game; after an illegal action as in a match after a resignation."""
        view = self.world.view
        if self.losers:
            others, length = 1.0 if len(self.places) == 2 else 0.5, int(view.length[0]) + 1
            return {
                agent: {"outcome": 0.0, "length": length, "illegal_action": True}
                if agent in self.losers
                else {"outcome": others, "length": length}
                for agent in self.places
            }
        return {
            agent: {"outcome": float(view.outcome[0, self.seat(agent)]), "length": int(view.length[0])}
            for agent in self.places
        }

    def acting(self) -> list[str]:
        return [agent for agent in self.places if self.world.view.acting[0, self.seat(agent)]]


class ZooParallel(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # PettingZoo has no types
    """All agents move at every step.

    An illegal action loses the game, or with `illegal="error"` raises ConfigError.
    """

    def __init__(self, world: Any, config: Any = None, illegal: str = LOSE) -> None:
        self.game = AgentGame(world, config, illegal)
        self.metadata = {"render_modes": [], "name": self.game.world.spec.world}
        self.render_mode = None
        self.possible_agents = list(self.game.places)
        self.agents: list[str] = []
        self.observation_spaces = {agent: self.game.space(agent) for agent in self.possible_agents}
        self.action_spaces = {agent: action_space(role) for agent, (role, _) in self.game.places.items()}
        self._all_to_move()

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: Info | None = None
    ) -> tuple[dict[str, Any], dict[str, Info]]:
        self.game.begin(seed)
        self._all_to_move()
        self.agents = list(self.possible_agents)
        return self.game.observations(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]:
        if set(actions) != set(self.agents) or not self.agents:
            wanted = ", ".join(self.agents) or "no agent: the game has ended, call reset first"
            raise ConfigError(
                f"step: actions of {', '.join(actions) or 'no agent'}: expected those of {wanted}"
            )
        before = self.game.observations()
        rewards = self.game.step(actions)
        ended = self.game.ended
        agents = self.agents
        observations, infos = self.game.observations(), {agent: Info() for agent in agents}
        if ended != RUNNING:
            observations, infos, self.agents = self.game.last_observations(before), self.game.outcomes(), []
        else:
            self._all_to_move()
        return (
            observations,
            rewards,
            dict.fromkeys(agents, ended == DECIDED),
            dict.fromkeys(agents, ended == CUT_OFF),
            infos,
        )

    def render(self) -> None:
        """These environments draw nothing; `rematch watch` films games."""

    def close(self) -> None:
        """Nothing to close."""

    def _all_to_move(self) -> None:
        if len(self.game.acting()) != len(self.possible_agents):
            raise ConfigError(f"{self.game.world.spec.world} is turn-based: use ZooTurns")


class ZooTurns(AECEnv[str, Any, Any]):  # type: ignore[misc]  # PettingZoo has no types
    """One agent moves at a time.

    An illegal action loses the game, or with `illegal="error"` raises ConfigError.
    """

    def __init__(self, world: Any, config: Any = None, illegal: str = LOSE) -> None:
        super().__init__()
        self.game = AgentGame(world, config, illegal)
        self.metadata = {"render_modes": [], "name": self.game.world.spec.world, "is_parallelizable": False}
        self.render_mode = None
        self.possible_agents = list(self.game.places)
        self.agents: list[str] = []
        self.observation_spaces = {agent: self.game.space(agent) for agent in self.possible_agents}
        self.action_spaces = {agent: action_space(role) for agent, (role, _) in self.game.places.items()}
        self._one_to_move()

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def observe(self, agent: str) -> Any:
        return self.observations[agent]

    def reset(self, seed: int | None = None, options: Info | None = None) -> None:
        self.game.begin(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Info] = {agent: {} for agent in self.agents}
        self.observations = self.game.observations()
        self.agent_selection = self._one_to_move()

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)  # PettingZoo's own way of letting finished agents leave
            return
        self._cumulative_rewards[agent] = 0.0
        self.rewards = self.game.step({agent: action})
        ended = self.game.ended
        if ended == RUNNING:
            self.observations = self.game.observations()
            self.agent_selection = self._one_to_move()
        else:
            self.observations = self.game.last_observations(self.observations)
            self.infos = self.game.outcomes()
            self.terminations = dict.fromkeys(self.agents, ended == DECIDED)
            self.truncations = dict.fromkeys(self.agents, ended == CUT_OFF)
        self._accumulate_rewards()

    def render(self) -> None:
        """These environments draw nothing; `rematch watch` films games."""

    def close(self) -> None:
        """Nothing to close."""

    def _one_to_move(self) -> str:
        acting = self.game.acting()
        if len(acting) != 1:
            raise ConfigError(
                f"{self.game.world.spec.world}: {len(acting)} agents move at once: use ZooParallel"
            )
        return acting[0]
