"""Names, shapes and offsets of a network's weights in one flat vector."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.agents.networks.config import NetworkConfig
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Role

Layout = list[tuple[str, tuple[int, ...], int]]  # name, shape, offset into the flat vector
MIXTURE, LATENT = 5, 32  # of bimdn: Gaussians in its belief, and the width of its other output
BELIEF = 5  # numbers of a Gaussian in the plane: weight, mean x and y, log standard deviation of x and y


def history(role: Role, config: NetworkConfig) -> tuple[slice, int, int]:
    """Where the encoder's field lies in a sight, its steps and its numbers per step."""
    at = 0
    for f in role.fields:
        if f.name == "history" and len(f.shape) == 2 and not f.categories:
            return slice(at, at + f.size), f.shape[0], f.shape[1]
        at += f.size
    raise ConfigError(
        f"network.encoder = {config.encoder}: {role.name} sees no field `history` with a shape (steps, "
        "numbers); expected mlp"
    )


def opponent(role: Role) -> slice:
    """Where the true place of the opponent lies in what is aside."""
    at = 0
    for f in role.privileged:
        if f.name == "other" and f.size == 2:
            return slice(at, at + 2)
        at += f.size
    raise ConfigError(
        f"network.encoder = bimdn: {role.name} has no field `other` of two columns aside; expected lstm"
    )


def plain(role: Role, config: NetworkConfig) -> list[bool]:
    """Which columns of a sight the towers look at themselves: all but what an encoder reads."""
    where = slice(0, 0) if config.encoder == "mlp" else history(role, config)[0]
    return [not where.start <= column < where.stop for column in range(role.size)]


def layout(role: Role, config: NetworkConfig) -> Layout:
    """Names, shapes and offsets of a role's weights, in the order fused.h keeps them; an encoder's first.

    What a role cannot have is refused: an encoder without a history, a critic of things aside without any.
    """
    if config.module:
        from rematch.agents.networks import user_network

        return offsets(user_network.entries(role, config))
    entries: list[tuple[str, tuple[int, ...]]] = []
    if config.kind == "transformer":
        return offsets(transformer(role, config))

    def dense(name: str, inputs: int, outputs: int) -> None:
        entries.append((f"{name}.weight", (outputs, inputs)))
        entries.append((f"{name}.bias", (outputs,)))

    code, wide = 0, config.encoder_hidden
    if config.encoder != "mlp":
        _, _, numbers = history(role, config)
        for way in ("forward", "backward")[: 1 + (config.encoder == "bimdn")]:  # torch.nn.LSTM's, one bias
            entries.append((f"encoder.{way}.input.weight", (4 * wide, numbers)))
            entries.append((f"encoder.{way}.state.weight", (4 * wide, wide)))
            entries.append((f"encoder.{way}.bias", (4 * wide,)))
        code = wide
    if config.encoder == "bimdn":
        opponent(role)
        dense("encoder.latent", 2 * wide, LATENT)
        dense("encoder.belief", 2 * wide, MIXTURE * BELIEF)
        code = LATENT + MIXTURE * 3  # weights and means of the belief: agents/networks/history_encoders.py

    def tower(name: str, categories: tuple[int, ...]) -> None:
        inputs = categories.count(0) * (1 + 2 * config.fourier) + code
        for i, width in enumerate(config.hidden):
            dense(f"{name}.{i}", config.hidden[i - 1] if i else inputs, width)
            if i == 0 and any(categories):
                entries.append((f"{name}.0.table", (sum(categories), width)))

    seen = tuple(n for n, here in zip(role.categories, plain(role, config)) if here)
    if config.table and not any(seen):
        raise ConfigError(f"network.table = true: {role.name} sees nothing that is named; expected false")
    tower("trunk" if config.one_tower else "policy", seen)
    dense("policy.head", config.hidden[-1], role.actions.size)
    if not config.one_tower:
        tower("value", seen + privileged(role, config))
    dense("value.head", config.hidden[-1], 1)
    if role.actions.kind == "continuous":
        entries.append(("policy.log_std", (role.actions.size,)))
    return offsets(entries)


def offsets(entries: list[tuple[str, tuple[int, ...]]]) -> Layout:
    out: Layout = []
    offset = 0
    for name, shape in entries:
        out.append((name, shape, offset))
        offset += int(np.prod(shape))
    return out


def quantities(role: Role) -> list[tuple[str, list[int]]]:
    """(field, columns of a sight) for every field that measures something."""
    out, at = [], 0
    for f in role.fields:
        columns = [at + i for i in range(f.size) if not (f.categories and f.categories[i])]
        if columns:
            out.append((f.name, columns))
        at += f.size
    return out


def transformer(role: Role, config: NetworkConfig) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the weights of agents/networks/transformer.py."""
    wide, names = config.width, [n for n in role.categories if n]
    entries: list[tuple[str, tuple[int, ...]]] = []

    def dense(name: str, inputs: int, outputs: int) -> None:
        entries.extend([(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))])

    if names:
        entries.append(("embed.table", (sum(names), config.embedding)))
        dense("embed", config.embedding, wide)
    for name, columns in quantities(role):
        dense(f"field.{name}", len(columns), wide)
    entries.append(("place.table", (len(names) + len(quantities(role)) + 1, wide)))
    for layer in range(config.layers):
        at = f"layer.{layer}"
        entries += [(f"{at}.first.scale", (wide,)), (f"{at}.first.bias", (wide,))]
        dense(f"{at}.ask", wide, 3 * wide)
        dense(f"{at}.told", wide, wide)
        entries += [(f"{at}.second.scale", (wide,)), (f"{at}.second.bias", (wide,))]
        dense(f"{at}.up", wide, 4 * wide)
        dense(f"{at}.down", 4 * wide, wide)
    entries += [("last.scale", (wide,)), ("last.bias", (wide,))]
    dense("policy.head", wide, role.actions.size)
    dense("value.head", wide, 1)
    if role.actions.kind == "continuous":
        entries.append(("policy.log_std", (role.actions.size,)))
    return entries


def privileged(role: Role, config: NetworkConfig) -> tuple[int, ...]:
    """`Role.aside_choices` where the critic looks at them, else nothing."""
    if config.critic == "own":
        return ()
    if not role.privileged:
        raise ConfigError(f"network.critic = centralized: the world has nothing aside for {role.name}; "
                          "expected own")
    return role.privileged_categories


def named(weights: Floats, where: Layout) -> dict[str, Floats]:
    """The flat vector as named views of itself."""
    return {name: weights[at : at + int(np.prod(shape))].reshape(shape) for name, shape, at in where}


HEAD = ("policy.head.weight", "policy.head.bias")
SHARED = ("policy.0.weight", "policy.0.bias", *HEAD)  # of a policy that is a table: they stay as they began


def network_bytes(role: Role, config: Any) -> int:
    """Bytes of one copy of the weights that `config.network` gives this role."""
    return 4 * sum(int(np.prod(shape)) for _, shape, _ in layout(role, config.network))
