"""Random network distillation of images (Burda et al. 2019): intrinsic reward for rare images.

A predictor learns the output of a frozen random CNN; its error, divided by the standard deviation of all
errors so far, is the reward. For observations without images see exploration/rnd.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rematch.agents.learners.adam import Adam
from rematch.agents.networks.layout import weight_views
from rematch.agents.networks.observation_codec import MAX_LEVEL, ObservationCodec
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Bytes, Floats
from rematch.core.component import Setup, SmallRun
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.spec import Role
from rematch.exploration.rnd import DistillationState, RunningStd
from rematch.rollout.reward_term import RewardTermComponent
from rematch.rollout.rollout_buffer import RolloutBuffer

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 64  # images per forward pass


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


class ImageEncoder(Policy):
    """A small CNN of one image, with weights in one flat vector."""

    def __init__(self, shape: tuple[int, ...], embed: int, name: str) -> None:
        import torch
        from torch import nn

        kernels = ((8, 4), (4, 2)) if min(shape) >= 36 else ((3, 1), (3, 2))
        convs = nn.Sequential(nn.Conv2d(1, 8, *kernels[0]), nn.LeakyReLU(), nn.Conv2d(8, 16, *kernels[1]),
                            nn.LeakyReLU(), nn.Flatten())
        with torch.no_grad():
            features = convs(torch.zeros(1, 1, *shape)).shape[1]
        self.net = nn.Sequential(convs, nn.Linear(features, embed))
        self.name, self.layout, at = name, [], 0
        for key, parameter in self.net.named_parameters():
            self.layout.append((key, tuple(parameter.shape), at))
            at += parameter.numel()
        self.weights = np.zeros(at, np.float32)
        flat = torch.from_numpy(self.weights)
        for (_, weight_shape, offset), parameter in zip(self.layout, self.net.parameters()):
            parameter.data = flat[offset : offset + parameter.numel()].view(weight_shape)

    def set(self, weights: Floats) -> None:
        if weights is not self.weights:
            self.weights[:] = weights

    def initialise(self, seed: int) -> None:
        for i, view in enumerate(weight_views(self.weights, self.layout).values()):
            normal = rng.generator(seed, rng.INIT, i).standard_normal(view.shape)
            view[:] = normal * (2.0 / view[0].size) ** 0.5 if view.ndim > 1 else 0.1 * normal


class ImageDistillation(DistillationState):
    """The target and predictor networks of one role, over its newest image."""

    predictor: ImageEncoder

    def __init__(self, config: RndImagesConfig, role: Role, seed: int) -> None:
        self.config, self.role, self.seed = config, role, seed
        self.codec = ObservationCodec(role)
        names = ("target", "predictor")
        self.target, self.predictor = (ImageEncoder(self.codec.shape, config.embed, name) for name in names)
        for index, net in enumerate((self.target, self.predictor)):
            net.initialise(rng.key(seed, rng.RND, index))
        self.adam = Adam(self.predictor.weights.size)
        self.deviation = RunningStd()

    def score(self, rollout: RolloutBuffer, iteration: int) -> Floats:
        """Scores [T, N, 1]; the whole rollout is scored before the predictor learns."""
        import torch

        torch.set_num_threads(1)  # of the calling thread: results do not depend on the number of threads
        obs = rollout[self.role.name].host("obs")
        images = self.codec.unpack(self.codec.pack(obs[:, :, 0])).frames
        assert images is not None
        frames: Bytes = images.reshape(-1, 1, *self.codec.shape)
        with torch.no_grad():
            blocks = [self._image_tensor(frames[at : at + BLOCK]) for at in range(0, len(frames), BLOCK)]
            target = torch.cat([self.target.net(block) for block in blocks])
            prediction = torch.cat([self.predictor.net(block) for block in blocks])
        error = ((prediction - target) ** 2).mean(1).numpy().astype(np.float64)
        self.deviation.add(error)
        self._learn(frames, target, iteration)
        values = (error / max(float(self.deviation), 1e-8)).reshape(rollout.steps, rollout.games, 1)
        return values.astype(np.float32)

    def _image_tensor(self, frames: Bytes) -> Tensor:
        import torch

        return torch.from_numpy(frames).float().div_(MAX_LEVEL)

    def _learn(self, frames: Bytes, target: Tensor, iteration: int) -> None:
        import torch

        n, parameters = self.config.update_every, list(self.predictor.net.parameters())
        order = rng.generator(self.seed, rng.RND, 2, iteration).permutation(len(frames))
        for at in range(0, len(order), n):
            rows = order[at : at + n][: max(1, n // 4)]  # a quarter: the predictor must not learn too fast
            difference = self.predictor.net(self._image_tensor(frames[rows])) - target[torch.from_numpy(rows)]
            grads = torch.autograd.grad((difference**2).mean(), parameters)
            grad = np.ascontiguousarray(torch.cat([g.flatten() for g in grads]).numpy())
            self.adam.step(self.predictor, grad, self.config.lr)


class RndImages(RewardTermComponent):
    """Random network distillation over images, for roles with one seat that observe an image."""

    name = "rnd_images"
    Config = RndImagesConfig

    @classmethod
    def check(cls, config: RndImagesConfig, setup: Setup) -> None:
        for role in setup.spec.roles.values() if config.weight else ():
            if not ObservationCodec(role).image_field or len(role.seats) > 1:
                raise ConfigError(f"rnd_images.weight = {config.weight:g}: {role.name} observes no image, "
                                  "or has several seats; expected 0")

    @classmethod
    def make_scorer(cls, config: RndImagesConfig, role: Role, games: int, seed: int) -> ImageDistillation:
        return ImageDistillation(config, role, seed)

    @classmethod
    def shrink(cls, config: RndImagesConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"update_every": max(4, min(config.update_every, small.steps_per_iteration // 4))}
