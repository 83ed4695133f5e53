"""Networks and minibatches of any shape, for the tests of policy, nets and learners."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import named
from rematch.agents.policy import Policy
from rematch.core.spec import Actions, Field, Role

Batch = dict[str, Any]


def role(
    sight: int = 5,
    actions: int = 3,
    discrete: bool = True,
    names: tuple[int, ...] = (),
    aside: tuple[int, ...] = (),
) -> Role:
    """`sight` quantities, and columns that name one of so many things in the middle of them.

    aside: for each column there of how many things it names one; 0 where it is a quantity.
    """
    before, after = sight // 2, sight - sight // 2
    fields = (
        Field(name="before", columns=tuple(f"b{i}" for i in range(before))),
        Field(name="named", columns=tuple(f"n{i}" for i in range(len(names))), choices=names),
        Field(name="after", columns=tuple(f"a{i}" for i in range(after))),
    )
    kind: Any = "discrete" if discrete else "continuous"
    acts = Actions(kind=kind, names=tuple(f"a{i}" for i in range(actions)))
    hidden = tuple(
        Field(name=f"aside{i}", columns=("it",), choices=(n,) if n else ()) for i, n in enumerate(aside)
    )
    return Role(name="player", fields=fields, actions=acts, seats=(0,), aside=hidden)


def policy(about: Role, seed: int = 0, **settings: Any) -> Policy:
    """A policy with random weights, its head large enough to have opinions."""
    made = Policy(about, NetworkConfig(**settings), "test")
    made.initialise(seed)
    rng = np.random.default_rng(seed)
    weights = made.weights + 0.1 * rng.standard_normal(made.weights.size).astype(np.float32)
    views = named(weights, made.layout)
    views["policy.head.weight"][:] = rng.standard_normal(views["policy.head.weight"].shape) * 0.3
    made.set(weights)
    return made


def minibatch(made: Policy, rows: int, seed: int = 0, masked: bool = False, magnet: bool = False) -> Batch:
    """Decisions as a rollout records them, by an older self: ratios and values on all sides of the clips."""
    rng = np.random.default_rng(seed)
    about = made.role
    n, size = rows, about.actions.size
    discrete = about.actions.kind == "discrete"
    batch: Batch = {"sight": rng.uniform(-1, 1, (n, about.size)).astype(np.float32)}
    if made.config.reads_aside:
        batch["aside"] = rng.uniform(-1, 1, (n, about.aside_size)).astype(np.float32)
    for name, choices in (("sight", about.choices), ("aside", about.aside_choices * made.config.reads_aside)):
        for column, count in enumerate(choices):
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
        batch["sight"],
        np.arange(n, dtype=np.uint32),
        (seed, 0),
        action,
        logp,
        value,
        mask=batch.get("mask"),
        aside=batch.get("aside"),
    )
    noise = rng.standard_normal((4, n)).astype(np.float32)
    batch |= {"action": action, "logp": logp + 0.4 * noise[0], "value": value + 0.3 * noise[1]}
    batch |= {"advantage": noise[2], "target": value + 0.5 * noise[3]}
    if magnet:
        batch["magnet"] = rng.standard_normal((n, size)).astype(np.float32)
        if not discrete:
            batch["magnet_log_std"] = rng.uniform(-1, 0.5, size).astype(np.float32)
    return batch
