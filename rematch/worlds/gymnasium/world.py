"""Any Gymnasium environment with one player: `--world.id CartPole-v1`.

A world holds N environments, Python objects that are stepped one after another. A state stores the seed and
the actions of the episode; `load` replays them. Environments that are not reproducible are detected when they
are described; on resume they start a new episode. `terminated` is a decided end, `truncated` a cut-off one,
whose last observation is in View.final.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Role, Spec
from rematch.core.world import CUT_OFF, DECIDED, RUNNING, View
from rematch.worlds.gymnasium_spaces import episode_seed as episode_seed
from rematch.worlds.gymnasium_spaces import one_line
from rematch.worlds.numpy_world import States
from rematch.worlds.replayed_world import ReplayedWorld

from .bots import ROLE
from .config import Config

NAME = __name__.split(".")[-2]  # name of this folder, so that a copied folder is another game


class GymnasiumWorld(ReplayedWorld):
    """See rematch.core.world.World. A part shares its environment objects with the whole world."""

    config: Config

    @classmethod
    def make_spec(cls, config: Config) -> Spec:
        description = config.describe()
        fields, actions = (description.encoder.field,), description.decoder.actions
        role = Role(name=ROLE, fields=fields, actions=actions, seats=(0,))
        return Spec(
            world=NAME,
            roles={ROLE: role},
            resume="replay" if description.reproducible else "episode",
            cutoffs=True,
            zero_sum=False,
            reward_scale=config.reward_scale,
        )

    def layout(self) -> list[Any]:
        decoder, max_steps = self.description.decoder, self.description.max_steps
        if not self.description.reproducible:
            return []
        shape = (max_steps,) if decoder.discrete else (max_steps, decoder.actions.size)
        return [("actions", decoder.dtype.newbyteorder("="), shape)]

    def __init__(self, config: Config, games: int, first: int = 0, seed: int = 0) -> None:
        self.envs: list[Any] = []
        self.description = config.describe()
        super().__init__(config, games, first, seed)

    # --- stepping ---------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        view, state = self.view, self.state
        description, decoder = self.description, self.description.decoder
        action = np.asarray(actions[ROLE])
        shape = (self.games, 1) if decoder.discrete else (self.games, 1, decoder.actions.size)
        if action.shape != shape:
            raise ConfigError(
                f"actions of {ROLE}: expected an array {list(shape)}, found {list(action.shape)}"
            )
        stored = decoder.to_stored(action[:, 0])
        if description.reproducible:
            state["actions"][np.arange(self.games), state["time"]] = stored
        rewards, ends = self._step_envs(decoder.decode(stored))
        state["time"] += 1
        view.length[:] = state["time"]
        view.ended[:], view.outcome[:] = RUNNING, 0
        np.multiply(rewards, self.config.reward_scale, out=view.reward[:, 0], casting="unsafe")
        if not np.isfinite(view.reward).all():
            game = self._first_game(~np.isfinite(view.reward[:, 0]))
            raise ConfigError(f"{description.id}: the reward of game {game} is not finite")
        if ends:
            rows = np.fromiter(ends, np.intp, len(ends))
            for row, (end, outcome) in ends.items():
                view.ended[row], view.outcome[row, 0] = end, outcome
            self.write_observations()
            cut = view.ended == CUT_OFF
            name = description.encoder.field.name
            view.final[ROLE][name][cut] = view.fields[ROLE][name][cut]
            self._restart(rows)
        self.write_observations()
        return view

    def _step_envs(self, actions: list[Any]) -> tuple[list[float], dict[int, tuple[int, float]]]:
        """Step all environments: rewards, and for ended games row -> (DECIDED or CUT_OFF, outcome)."""
        rewards: list[float] = []
        ends: dict[int, tuple[int, float]] = {}
        row = 0
        try:
            for row, env in enumerate(self.envs):
                obs, reward, terminated, truncated, info = env.step(actions[row])
                self._store_observation(row, obs)
                rewards.append(float(reward))
                if terminated or truncated:
                    # The outcome is 0.5, unless the environment reports success (Gymnasium-Robotics' key).
                    outcome = float(bool(info["is_success"])) if "is_success" in info else 0.5
                    ends[row] = (DECIDED if terminated else CUT_OFF, outcome)
        except Exception as error:
            raise ConfigError(
                f"{self.description.id}: game {self.first + row} failed in a step: {one_line(error)}"
            ) from None
        return rewards, ends

    def _store_observation(self, row: int, obs: Any) -> None:
        encoder = self.description.encoder
        if encoder.categorical:
            self.raw[row] = np.ravel(obs) - encoder.starts
        else:
            self.raw[row] = obs if encoder.flat else np.ravel(obs)

    def write_observations(self) -> None:
        encoder = self.description.encoder
        outside = encoder.outside(self.raw)
        if outside.any():
            reason = "is outside its space" if encoder.categorical else "is not finite"
            game = self._first_game(outside)
            raise ConfigError(f"{self.description.id}: the observation of game {game} {reason}")
        encoder.encode(self.raw, self.view.fields[ROLE][encoder.field.name][:, 0])

    def _first_game(self, mask: NDArray[np.bool_]) -> int:
        """The number of the first game of a mask [N]."""
        return self.first + int(np.flatnonzero(mask)[0])

    def make_environments(self) -> None:
        self.envs = [self.description.make() for _ in range(self.games)]
        self.raw: Floats = np.zeros((self.games, self.description.encoder.field.size), np.float32)

    def reset_environment(self, row: int) -> None:
        seed = episode_seed(int(self.state["seed"][row]), int(self.state["episode"][row]))
        try:
            self._store_observation(row, self.envs[row].reset(seed=seed)[0])
        except Exception as error:
            raise ConfigError(
                f"{self.description.id}: game {self.first + row} failed in a reset: {one_line(error)}"
            ) from None

    # --- states ---------------------------------------------------------------------------------------

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        valid = np.asarray((states["time"] < self.description.max_steps) & (states["slot"][:, 0] >= 0))
        if not self.description.reproducible:
            return valid
        actions, decoder = states["actions"], self.description.decoder
        legal = actions < decoder.actions.size if decoder.discrete else np.abs(actions) <= 1  # false for NaN
        return np.asarray(valid & legal.reshape(len(states), -1).all(1))

    def replay(self, row: int) -> bool:
        """Replay the actions of the running episode; False where it ends before the last of them."""
        self.reset_environment(row)
        time = int(self.state["time"][row])
        if not time:
            return True
        obs, env = None, self.envs[row]
        for action in self.description.decoder.decode(self.state["actions"][row, :time]):
            obs, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                return False
        self._store_observation(row, obs)
        return True

    # --- parts ----------------------------------------------------------------------------------------

    def _part(self, cut: slice) -> Self:
        part = super()._part(cut)
        part.description = self.description
        part.envs, part.raw = self.envs[cut], self.raw[cut]
        return part
