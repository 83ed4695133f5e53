"""Rollouts on the emulated GPU that networks of torch play, from several slots beside a scripted player."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.torch_acting import TorchRoleActing
from rematch.agents.policy import Policy
from rematch.rollout.cuda_collector import CudaCollector
from rematch.rollout.seating import RoleSeating
from rematch.worlds.cuda_world import CudaWorld
from rematch.worlds.registry import find

GAMES, STEPS, SLOTS, FIRST, SEED = 40, 6, 3, 1000, 7
SENSORS = {"full_obs": False, "lidar_rays": 4, "history_length": 3, "max_steps": 7}
SUBJECTS: dict[str, tuple[str, dict[str, Any], NetworkConfig]] = {
    "categories": ("lattice", {"n": 5, "horizon": 9}, NetworkConfig(hidden=(32, 16))),
    "table": ("lattice", {"n": 5, "horizon": 9}, NetworkConfig(hidden=(16,), shared=False, table=True)),
    "two towers, privileged": ("beasty", {}, NetworkConfig(hidden=(24, 16), critic="centralized")),
    "transformer": ("beasty", {}, NetworkConfig(kind="transformer", width=16, heads=2, layers=2)),
    "Gaussian, three layers": ("pursuit", {}, NetworkConfig(hidden=(16, 24, 8), fourier=1)),
    "Gaussian, few rows": ("pursuit", {"max_steps": 5},
                           NetworkConfig(hidden=(6, 5), shared=False, fourier=0)),
    "two towers, relu": ("pursuit", {"max_steps": 5},
                         NetworkConfig(hidden=(9, 6, 5), shared=False, fourier=0, activation="relu")),
    "Gaussian, few rows, shared": ("pursuit", {}, NetworkConfig(hidden=(8,), activation="relu", fourier=0)),
    "sensors, belief": ("pursuit", SENSORS, NetworkConfig(hidden=(12,), encoder="bimdn", encoder_hidden=4)),
    "sensors, privileged": ("pursuit", SENSORS, NetworkConfig(hidden=(12,), critic="centralized")),
}  # fmt: skip


def collector_of(subject: str, slots: int = SLOTS) -> CudaCollector:
    """A collector whose slots have different policies, and one scripted player after them."""
    name, settings, network = SUBJECTS[subject]
    game = find(name)
    world = CudaWorld(game.make(game.Config(**settings), GAMES, FIRST, 5), game.cuda)
    seating, generator = {}, np.random.default_rng(1)
    for role_name, role in world.spec.roles.items():
        seating[role_name] = RoleSeating(Policy(role, network, role_name), slots)
        for slot in range(slots):
            policy = Policy(role, network, f"slot {slot}")
            policy.initialise(slot)
            noise = 0.1 * generator.standard_normal(policy.weights.size).astype(np.float32)
            seating[role_name].place(slot, policy.weights + noise)
        seating[role_name].seat_player(game.bot(game.bots[role_name][0], role_name))
    world.next.slot[:] = generator.integers(slots + 1, size=world.next.slot.shape)
    world.restart()
    return CudaCollector(world, seating, STEPS, SEED, TorchRoleActing)
