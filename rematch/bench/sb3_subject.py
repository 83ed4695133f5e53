"""PPO of Stable-Baselines3 on the same worlds, as fast as we could make it.

It steps the same compiled world through GymVector, with one call per step; Python objects are built only
for games that have just ended. One seat learns against a bot, so every step is a learner step.
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


class GymVecEnv(VecEnv):  # type: ignore[misc, unused-ignore]  # untyped where it is not installed
    """A GymVector as a vectorised environment of Stable-Baselines3."""

    def __init__(self, games: GymVector) -> None:
        self.games, self.actions = games, np.zeros(0, np.float32)
        super().__init__(games.num_envs, games.single_observation_space, games.single_action_space)
        self.empty_infos: list[dict[str, Any]] = [{} for _ in range(games.num_envs)]

    def reset(self) -> Any:
        return self.games.reset(seed=0)[0]

    def step_async(self, actions: Any) -> None:
        self.actions = actions

    def step_wait(self) -> Any:
        obs, reward, terminated, truncated, info = self.games.step(self.actions)
        done = terminated | truncated
        infos = self.empty_infos.copy()
        for i in np.flatnonzero(done):
            final_observation = info["final_obs"][i]
            infos[i] = {"terminal_observation": final_observation, "TimeLimit.truncated": bool(truncated[i])}
        return obs, reward, done, infos

    def close(self) -> None: ...

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.games, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self.games, attr_name, value)

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **named: Any) -> list[Any]:
        return [getattr(self.games, method_name)(*arguments, **named)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class CategoryEmbedding(torch.nn.Module):
    """First layer over categorical columns (Field.categories): the sum of one embedding row per column.

    It equals a linear layer over the concatenated one-hot vectors, and is the fastest form in torch.
    """

    def __init__(self, categories: Sequence[int], width: int) -> None:
        super().__init__()
        self.offsets = torch.tensor([0, *np.cumsum(categories[:-1]).tolist()])
        self.embedding = torch.nn.EmbeddingBag(sum(categories), width, mode="sum")

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.embedding(observations.long() + self.offsets)
        return out


class FeatureTrunk(BaseFeaturesExtractor):  # type: ignore[misc, unused-ignore]
    """Hidden layers before the policy and value heads; the default of Stable-Baselines3 has two networks."""

    def __init__(self, observation_space: Any, hidden: Sequence[int], categories: Sequence[int] = ()) -> None:
        super().__init__(observation_space, hidden[-1])
        widths = [observation_space.shape[0], *hidden]
        layers = [(torch.nn.Linear(a, b), torch.nn.Tanh()) for a, b in zip(widths, hidden)]
        if categories:
            layers[0] = (CategoryEmbedding(categories, hidden[0]), torch.nn.Tanh())  # type: ignore[assignment]
        self.layers = torch.nn.Sequential(*(part for layer in layers for part in layer))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(observations)
        return out


class Sb3Training:
    """PPO of Stable-Baselines3 with the settings of `config`: games, steps, network, epochs, batch, rates."""

    unit = "learner steps"

    def __init__(
        self, name: str, config: Config, threads: int, role_and_opponent: tuple[str, str],
        device: str = "cpu",
    ) -> None:  # fmt: skip
        role, opponent = role_and_opponent
        self.name, self.threads = name, threads
        net, ppo = config.network, config.ppo
        self.settings = {
            "world": config.game, "games": config.games, "steps": config.steps, "network": list(net.hidden),
            "activation": "tanh", "shared_trunk": net.shared, "epochs": ppo.epochs,
            "batch": ppo.minibatch_size,
            "learning": [role], "rival": opponent,
        }  # fmt: skip
        torch.set_num_threads(threads)
        games = GymVector(config.game, config.world, role, opponent, config.games)
        categories = games.world.spec.roles[role].categories
        if any(categories) and not all(categories):
            raise ConfigError(
                f"bench: {config.game} mixes categorical and numeric columns; expected one kind"
            )
        policy_kwargs: dict[str, Any] = {"net_arch": list(net.hidden), "activation_fn": torch.nn.Tanh}
        if net.shared or any(categories):
            separate_layers = (
                0 if net.shared else len(net.hidden) - 1
            )  # layers of each network after the trunk
            trunk = list(net.hidden[: len(net.hidden) - separate_layers])
            policy_kwargs |= {
                "net_arch": list(net.hidden[len(trunk) :]), "features_extractor_class": FeatureTrunk,
                "features_extractor_kwargs": {
                    "hidden": trunk, "categories": categories if any(categories) else (),
                },
                "share_features_extractor": net.shared,
            }  # fmt: skip
        self.model = PPO(
            "MlpPolicy", GymVecEnv(games),
            learning_rate=ppo.lr, n_steps=config.steps, batch_size=ppo.minibatch_size, n_epochs=ppo.epochs,
            gamma=ppo.gamma, gae_lambda=ppo.gae_lambda, clip_range=ppo.clip, ent_coef=ppo.entropy_weight,
            vf_coef=ppo.value_weight,
            max_grad_norm=ppo.max_grad_norm, policy_kwargs=policy_kwargs, device=device, seed=0,
        )  # fmt: skip
        self.per_iteration = config.games * config.steps
        self.seconds_per_iteration = 0.0  # measured in the last call of `run`

    def run(self, seconds: float) -> int:
        torch.set_num_threads(self.threads)
        steps = self.per_iteration * max(
            1, round(seconds / self.seconds_per_iteration) if self.seconds_per_iteration else 1
        )
        started = time.perf_counter()
        self.model.learn(steps, reset_num_timesteps=False)
        self.seconds_per_iteration = (time.perf_counter() - started) * self.per_iteration / steps
        return steps
