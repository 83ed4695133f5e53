"""Networks and minibatches of any shape, for the tests of policies, networks and learners."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import weight_views
from rematch.agents.policy import Policy
from rematch.core.spec import Actions, Field, Role

Batch = dict[str, Any]


def role(
    obs: int = 5,
    actions: int = 3,
    discrete: bool = True,
    names: tuple[int, ...] = (),
    privileged: tuple[int, ...] = (),
) -> Role:
    """`obs` numeric columns with categorical ones in the middle; names: their numbers of categories.

    privileged: for each privileged column the number of its categories, 0 for a number.
    """
    before, after = obs // 2, obs - obs // 2
    fields = (
        Field(name="before", columns=tuple(f"b{i}" for i in range(before))),
        Field(name="named", columns=tuple(f"n{i}" for i in range(len(names))), categories=names),
        Field(name="after", columns=tuple(f"a{i}" for i in range(after))),
    )
    kind: Any = "discrete" if discrete else "continuous"
    action_spec = Actions(kind=kind, names=tuple(f"a{i}" for i in range(actions)))
    hidden = tuple(
        Field(name=f"privileged{i}", columns=("it",), categories=(n,) if n else ())
        for i, n in enumerate(privileged)
    )
    return Role(name="player", fields=fields, actions=action_spec, seats=(0,), privileged=hidden)


def policy(role_spec: Role, seed: int = 0, **settings: Any) -> Policy:
    """A policy with random weights; its head is large enough that actions differ in probability."""
    made = Policy(role_spec, NetworkConfig(**settings), "test")
    made.initialise(seed)
    rng = np.random.default_rng(seed)
    weights = made.weights + 0.1 * rng.standard_normal(made.weights.size).astype(np.float32)
    views = weight_views(weights, made.layout)
    views["policy.head.weight"][:] = rng.standard_normal(views["policy.head.weight"].shape) * 0.3
    made.set(weights)
    return made


def minibatch(made: Policy, rows: int, seed: int = 0, masked: bool = False, magnet: bool = False) -> Batch:
    """Decisions of a slightly different policy: ratios and values on all sides of the clip ranges."""
    rng = np.random.default_rng(seed)
    role_spec = made.role
    n, size = rows, role_spec.actions.size
    discrete = role_spec.actions.kind == "discrete"
    batch: Batch = {"obs": rng.uniform(-1, 1, (n, role_spec.size)).astype(np.float32)}
    if made.config.reads_privileged:
        batch["privileged"] = rng.uniform(-1, 1, (n, role_spec.privileged_size)).astype(np.float32)
    privileged_categories = role_spec.privileged_categories * made.config.reads_privileged
    for name, categories in (("obs", role_spec.categories), ("privileged", privileged_categories)):
        for column, count in enumerate(categories):
            if count:
                batch[name][:, column] = rng.integers(0, count, n)
    if masked:
        mask = (rng.random((n, size)) < 0.6).astype(np.uint8)
        mask[np.arange(n), rng.integers(0, size, n)] = 1
        batch["mask"] = mask
    action: Any = np.zeros(n, np.int32) if discrete else np.zeros((n, size), np.float32)
    logp, value = np.zeros(n, np.float32), np.zeros(n, np.float32)
    made.network.act(
        made.packed,
        np.zeros(n, np.int32),
        batch["obs"],
        np.arange(n, dtype=np.uint32),
        (seed, 0),
        action,
        logp,
        value,
        mask=batch.get("mask"),
        privileged=batch.get("privileged"),
    )
    normal = rng.standard_normal((4, n)).astype(np.float32)
    batch |= {"action": action, "logp": logp + 0.4 * normal[0], "value": value + 0.3 * normal[1]}
    batch |= {"advantage": normal[2], "target": value + 0.5 * normal[3]}
    if magnet:
        batch["magnet"] = rng.standard_normal((n, size)).astype(np.float32)
        if not discrete:
            batch["magnet_log_std"] = rng.uniform(-1, 0.5, size).astype(np.float32)
    return batch
