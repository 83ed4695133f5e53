"""Distillation of images: frequent images give less reward than new ones; it survives a restore."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import single_seat_worlds

from rematch.core.errors import ConfigError
from rematch.core.spec import Spec
from rematch.exploration.rnd_images import ImageDistillation, RndImages, RndImagesConfig
from rematch.rollout.rollout_buffer import RolloutBuffer

SPEC: Spec = single_seat_worlds.stroll.make(
    single_seat_worlds.StrollConfig(height=12, width=16, side=4), 1
).spec
ROLE = SPEC.roles["joypad"]
CONFIG = RndImagesConfig(weight=1.0, embed=8, lr=1e-2, update_every=8)


def rollout_of(seed: int) -> RolloutBuffer:
    """Thirty-two images, each of one of four kinds that `seed` determines."""
    made = RolloutBuffer(SPEC, 8, 4)
    kinds = np.random.default_rng(seed).integers(0, 4, (4, 192)).astype(np.float32) / 3
    made["joypad"].obs[:, :, 0, :192] = kinds[np.arange(32).reshape(8, 4) % 4]
    return made


def test_new_images_give_more_reward() -> None:
    bonus = ImageDistillation(CONFIG, ROLE, 1)
    target = bonus.target.weights.copy()
    for i in range(30):
        known_score = bonus.score(rollout_of(0), i).mean()
    assert bonus.score(rollout_of(1), 30).mean() > 3 * known_score
    assert np.array_equal(target, bonus.target.weights), "the random network stays what it was"


def test_restored_distillation_continues_identically() -> None:
    first, second = (ImageDistillation(CONFIG, ROLE, 1) for _ in range(2))
    first.score(rollout_of(0), 0)
    second.load_state_dict(first.state_dict())
    assert np.array_equal(first.score(rollout_of(1), 1), second.score(rollout_of(1), 1))
    assert np.array_equal(first.predictor.weights, second.predictor.weights)


def test_role_without_image_is_refused() -> None:
    spec = single_seat_worlds.errand.make(single_seat_worlds.ErrandConfig(), 1).spec
    setup: Any = SimpleNamespace(spec=spec)
    with pytest.raises(ConfigError, match=r"rnd_images.weight = 1: walker observes no image.*expected 0"):
        RndImages.check(CONFIG, setup)
