"""Random network distillation of pictures (Burda et al. 2019): a picture is worth what is unknown of it.

A predictor learns to say what a frozen random CNN says of a picture; its error, over the deviation of all
errors so far, is the bonus. The same idea for sights without pictures is exploration/rnd.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rematch.agents.learners.adam import Adam
from rematch.agents.networks.layout import named
from rematch.agents.networks.observation_codec import LEVELS, Senses
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Bytes, Floats
from rematch.core.component import Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.spec import Role
from rematch.exploration.rnd import Deviation, Distilled
from rematch.rollout.reward_term import RewardTermComponent
from rematch.rollout.rollout_buffer import RolloutBuffer

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 64  # pictures looked at together


@dataclass(frozen=True, kw_only=True)
class RndImagesConfig:
    """Intrinsic reward for new images: random network distillation of the screen."""

    weight: float = knob(0.0, "weight of the reward term; 0: off", low=0)
    embed: int = knob(64, "output size of both networks", unit="units", low=1, high=4096, needs="weight")
    lr: float = knob(3e-4, "learning rate of the predictor network", low=0, needs="weight")
    update_every: int = knob(
        256, "images per gradient step of the predictor network; it trains on a quarter of them",
        unit="images", low=4, needs="weight",
    )  # fmt: skip


class Glance(Policy):
    """A small CNN of one picture: weights in one flat vector."""

    def __init__(self, shape: tuple[int, ...], embed: int, name: str) -> None:
        import torch
        from torch import nn

        kernels = ((8, 4), (4, 2)) if min(shape) >= 36 else ((3, 1), (3, 2))
        eye = nn.Sequential(nn.Conv2d(1, 8, *kernels[0]), nn.LeakyReLU(), nn.Conv2d(8, 16, *kernels[1]),
                            nn.LeakyReLU(), nn.Flatten())
        with torch.no_grad():
            features = eye(torch.zeros(1, 1, *shape)).shape[1]
        self.net = nn.Sequential(eye, nn.Linear(features, embed))
        self.name, self.layout, at = name, [], 0
        for key, parameter in self.net.named_parameters():
            self.layout.append((key, tuple(parameter.shape), at))
            at += parameter.numel()
        self.weights = np.zeros(at, np.float32)
        flat = torch.from_numpy(self.weights)
        for (_, form, begin), parameter in zip(self.layout, self.net.parameters()):
            parameter.data = flat[begin : begin + parameter.numel()].view(form)

    def set(self, weights: Floats) -> None:
        if weights is not self.weights:
            self.weights[:] = weights

    def initialise(self, seed: int) -> None:
        for i, view in enumerate(named(self.weights, self.layout).values()):
            draw = rng.generator(seed, rng.INIT, i).standard_normal(view.shape)
            view[:] = draw * (2.0 / view[0].size) ** 0.5 if view.ndim > 1 else 0.1 * draw


class ImageDistillation(Distilled):
    """One role's networks, over its newest picture."""

    predictor: Glance

    def __init__(self, config: RndImagesConfig, role: Role, seed: int) -> None:
        self.config, self.role, self.seed = config, role, seed
        self.senses = Senses(role)
        names = ("target", "predictor")
        self.target, self.predictor = (Glance(self.senses.shape, config.embed, name) for name in names)
        for index, net in enumerate((self.target, self.predictor)):
            net.initialise(rng.key(seed, rng.RND, index))
        self.adam = Adam(self.predictor.weights.size)
        self.deviation = Deviation()

    def score(self, tape: RolloutBuffer, iteration: int) -> Floats:
        """The whole rollout is scored before the predictor moves."""
        import torch

        torch.set_num_threads(1)  # of the calling thread: results do not depend on their number
        seen = self.senses.unpack(self.senses.pack(tape[self.role.name].obs[:, :, 0])).frames
        assert seen is not None
        frames: Bytes = seen.reshape(-1, 1, *self.senses.shape)
        with torch.no_grad():
            blocks = [self._shown(frames[at : at + BLOCK]) for at in range(0, len(frames), BLOCK)]
            target = torch.cat([self.target.net(block) for block in blocks])
            guess = torch.cat([self.predictor.net(block) for block in blocks])
        error = ((guess - target) ** 2).mean(1).numpy().astype(np.float64)
        self.deviation.add(error)
        self._learn(frames, target, iteration)
        values = (error / max(float(self.deviation), 1e-8)).reshape(tape.steps, tape.games, 1)
        return values.astype(np.float32)

    def _shown(self, frames: Bytes) -> Tensor:
        import torch

        return torch.from_numpy(frames).float().div_(LEVELS)

    def _learn(self, frames: Bytes, target: Tensor, iteration: int) -> None:
        import torch

        n, parameters = self.config.update_every, list(self.predictor.net.parameters())
        order = rng.generator(self.seed, rng.RND, 2, iteration).permutation(len(frames))
        for at in range(0, len(order), n):
            rows = order[at : at + n][: max(1, n // 4)]  # a quarter: the predictor must not be too quick
            apart = self.predictor.net(self._shown(frames[rows])) - target[torch.from_numpy(rows)]
            found = torch.autograd.grad((apart**2).mean(), parameters)
            grad = np.ascontiguousarray(torch.cat([g.flatten() for g in found]).numpy())
            self.adam.step(self.predictor, grad, self.config.lr)


class RndImages(RewardTermComponent):
    """Random network distillation over pictures, for roles with one seat that observe one."""

    name = "rnd_images"
    Config = RndImagesConfig

    @classmethod
    def check(cls, config: RndImagesConfig, setup: Setup) -> None:
        for role in setup.spec.roles.values() if config.weight else ():
            if not Senses(role).picture or len(role.seats) > 1:
                raise ConfigError(f"rnd_images.weight = {config.weight:g}: {role.name} observes no picture, "
                                  "or has several seats; expected 0")

    @classmethod
    def make_scorer(cls, config: RndImagesConfig, role: Role, games: int, seed: int) -> ImageDistillation:
        return ImageDistillation(config, role, seed)

    @classmethod
    def shrink(cls, config: RndImagesConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"update_every": max(4, min(config.update_every, small.steps_per_iteration // 4))}
