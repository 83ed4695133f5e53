"""Stable-Baselines3's PPO on the same worlds, as fast as we could make it go.

Its side gets the same compiled world through GymVector, in one call per step; a Python object is built only
for games that have just ended. One seat learns, against a scripted rival: every step is a learner step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv

from rematch.adapters.gymnasium_env import GymVector
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config

VERSION: str = stable_baselines3.__version__


class Games(VecEnv):  # type: ignore[misc, unused-ignore]  # untyped where it is not installed
    """A GymVector as Stable-Baselines3's vectorised environment."""

    def __init__(self, games: GymVector) -> None:
        self.games, self.moves = games, np.zeros(0, np.float32)
        super().__init__(games.num_envs, games.single_observation_space, games.single_action_space)
        self.nothing: list[dict[str, Any]] = [{} for _ in range(games.num_envs)]

    def reset(self) -> Any:
        return self.games.reset(seed=0)[0]

    def step_async(self, actions: Any) -> None:
        self.moves = actions

    def step_wait(self) -> Any:
        obs, reward, terminated, truncated, info = self.games.step(self.moves)
        over = terminated | truncated
        infos = self.nothing.copy()
        for i in np.flatnonzero(over):
            last = info["final_obs"][i]
            infos[i] = {"terminal_observation": last, "TimeLimit.truncated": bool(truncated[i])}
        return obs, reward, over, infos

    def close(self) -> None: ...

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.games, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self.games, attr_name, value)

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **named: Any) -> list[Any]:
        return [getattr(self.games, method_name)(*arguments, **named)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Tables(torch.nn.Module):
    """The first layer over columns that name things (Field.choices): a sum of rows, one per column.

    The same as a linear layer over their one-hot vectors side by side, and as fast as torch can make it.
    """

    def __init__(self, categories: Sequence[int], width: int) -> None:
        super().__init__()
        self.starts = torch.tensor([0, *np.cumsum(categories[:-1]).tolist()])
        self.rows = torch.nn.EmbeddingBag(sum(categories), width, mode="sum")

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.rows(observations.long() + self.starts)
        return out


class Trunk(BaseFeaturesExtractor):  # type: ignore[misc, unused-ignore]
    """Hidden layers before policy and value part; the peer's own default is two separate networks."""

    def __init__(self, observation_space: Any, hidden: Sequence[int], categories: Sequence[int] = ()) -> None:
        super().__init__(observation_space, hidden[-1])
        widths = [observation_space.shape[0], *hidden]
        layers = [(torch.nn.Linear(a, b), torch.nn.Tanh()) for a, b in zip(widths, hidden)]
        if categories:
            layers[0] = (Tables(categories, hidden[0]), torch.nn.Tanh())  # type: ignore[assignment]
        self.layers = torch.nn.Sequential(*(part for layer in layers for part in layer))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(observations)
        return out


class Peer:
    """PPO of Stable-Baselines3 with the settings of `config`: games, steps, network, epochs, batch, rates."""

    unit = "learner steps"

    def __init__(self, name: str, config: Config, threads: int, players: tuple[str, str]) -> None:
        role, rival = players
        self.name, self.threads = name, threads
        net, ppo = config.network, config.ppo
        self.settings = {
            "world": config.game, "games": config.games, "steps": config.steps, "network": list(net.hidden),
            "activation": "tanh", "shared_trunk": net.shared, "epochs": ppo.epochs,
            "batch": ppo.minibatch_size,
            "learning": [role], "rival": rival,
        }  # fmt: skip
        torch.set_num_threads(threads)
        games = GymVector(config.game, config.world, role, rival, config.games)
        categories = games.world.spec.roles[role].categories
        if any(categories) and not all(categories):
            raise ConfigError(f"bench: {config.game} shows names and quantities; expected one kind")
        shape: dict[str, Any] = {"net_arch": list(net.hidden), "activation_fn": torch.nn.Tanh}
        if net.shared or any(categories):
            apart = 0 if net.shared else len(net.hidden) - 1  # layers after the tables, of each network
            before = list(net.hidden[: len(net.hidden) - apart])
            shape |= {
                "net_arch": list(net.hidden[len(before) :]), "features_extractor_class": Trunk,
                "features_extractor_kwargs": {
                    "hidden": before, "categories": categories if any(categories) else (),
                },
                "share_features_extractor": net.shared,
            }  # fmt: skip
        self.model = PPO(
            "MlpPolicy", Games(games),
            learning_rate=ppo.lr, n_steps=config.steps, batch_size=ppo.minibatch_size, n_epochs=ppo.epochs,
            gamma=ppo.gamma, gae_lambda=ppo.gae_lambda, clip_range=ppo.clip, ent_coef=ppo.entropy_weight,
            vf_coef=ppo.value_weight,
            max_grad_norm=ppo.max_grad_norm, policy_kwargs=shape, device="cpu", seed=0,
        )  # fmt: skip
        self.per_iteration = config.games * config.steps
        self.pace = 0.0  # seconds per iteration, last time

    def run(self, seconds: float) -> int:
        torch.set_num_threads(self.threads)
        steps = self.per_iteration * max(1, round(seconds / self.pace) if self.pace else 1)
        started = time.perf_counter()
        self.model.learn(steps, reset_num_timesteps=False)
        self.pace = (time.perf_counter() - started) * self.per_iteration / steps
        return steps
