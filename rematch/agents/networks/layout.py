"""Names, shapes and offsets of a network's weights in one flat vector."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.agents.networks.config import NetworkConfig
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Role

Layout = list[tuple[str, tuple[int, ...], int]]  # name, shape, offset into the flat vector
MIXTURE, LATENT = 5, 32  # bimdn: number of Gaussians in the belief, width of the latent output
GAUSSIAN_SIZE = 5  # numbers of a 2D Gaussian: weight, mean x and y, log standard deviation of x and y


def history_columns(role: Role, config: NetworkConfig) -> tuple[slice, int, int]:
    """Columns of the field `history` in an observation, its steps, and its numbers per step."""
    offset = 0
    for f in role.fields:
        if f.name == "history" and len(f.shape) == 2 and not f.categories:
            return slice(offset, offset + f.size), f.shape[0], f.shape[1]
        offset += f.size
    raise ConfigError(
        f"network.encoder = {config.encoder}: {role.name} observes no field `history` with a shape (steps, "
        "numbers); expected mlp"
    )


def opponent_columns(role: Role) -> slice:
    """Columns of the opponent's true position in the privileged observation."""
    offset = 0
    for f in role.privileged:
        if f.name == "other" and f.size == 2:
            return slice(offset, offset + 2)
        offset += f.size
    raise ConfigError(
        f"network.encoder = bimdn: {role.name} has no privileged field `other` of two columns; expected lstm"
    )


def tower_columns(role: Role, config: NetworkConfig) -> list[bool]:
    """[F] whether each observation column is a direct input of the towers: all but the encoder's."""
    encoded = slice(0, 0) if config.encoder == "mlp" else history_columns(role, config)[0]
    return [not encoded.start <= column < encoded.stop for column in range(role.size)]


def layout(role: Role, config: NetworkConfig) -> Layout:
    """Names, shapes and offsets of a role's weights, in the order of fused.h; those of an encoder come first.

    ConfigError for an encoder without the field `history` and for a centralized critic without privileged
    fields.
    """
    if config.module:
        from rematch.agents.networks import user_network

        return with_offsets(user_network.entries(role, config))
    entries: list[tuple[str, tuple[int, ...]]] = []
    if config.kind == "transformer":
        return with_offsets(transformer_entries(role, config))

    def dense(name: str, inputs: int, outputs: int) -> None:
        entries.append((f"{name}.weight", (outputs, inputs)))
        entries.append((f"{name}.bias", (outputs,)))

    code, width = 0, config.encoder_hidden
    if config.encoder != "mlp":
        _, _, numbers = history_columns(role, config)
        for direction in ("forward", "backward")[: 1 + (config.encoder == "bimdn")]:  # one bias
            entries.append((f"encoder.{direction}.input.weight", (4 * width, numbers)))
            entries.append((f"encoder.{direction}.state.weight", (4 * width, width)))
            entries.append((f"encoder.{direction}.bias", (4 * width,)))
        code = width
    if config.encoder == "bimdn":
        opponent_columns(role)
        dense("encoder.latent", 2 * width, LATENT)
        dense("encoder.belief", 2 * width, MIXTURE * GAUSSIAN_SIZE)
        code = LATENT + MIXTURE * 3  # weights and means of the belief (history_encoders.py)

    def tower(name: str, categories: tuple[int, ...]) -> None:
        inputs = categories.count(0) * (1 + 2 * config.fourier) + code
        for i, width in enumerate(config.hidden):
            dense(f"{name}.{i}", config.hidden[i - 1] if i else inputs, width)
            if i == 0 and any(categories):
                entries.append((f"{name}.0.table", (sum(categories), width)))

    actor_categories = tuple(n for n, direct in zip(role.categories, tower_columns(role, config)) if direct)
    if config.table and not any(actor_categories):
        raise ConfigError(f"network.table = true: {role.name} observes no categorical column; expected "
                          "false")
    tower("trunk" if config.one_tower else "policy", actor_categories)
    dense("policy.head", config.hidden[-1], role.actions.size)
    if not config.one_tower:
        tower("value", actor_categories + critic_categories(role, config))
    dense("value.head", config.hidden[-1], 1)
    if role.actions.kind == "continuous":
        entries.append(("policy.log_std", (role.actions.size,)))
    return with_offsets(entries)


def with_offsets(entries: list[tuple[str, tuple[int, ...]]]) -> Layout:
    out: Layout = []
    offset = 0
    for name, shape in entries:
        out.append((name, shape, offset))
        offset += int(np.prod(shape))
    return out


def numeric_fields(role: Role) -> list[tuple[str, list[int]]]:
    """(field, observation columns) of every field that has numeric columns."""
    out, offset = [], 0
    for f in role.fields:
        columns = [offset + i for i in range(f.size) if not (f.categories and f.categories[i])]
        if columns:
            out.append((f.name, columns))
        offset += f.size
    return out


def transformer_entries(role: Role, config: NetworkConfig) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the weights of agents/networks/transformer.py.

    Layer norms multiply by 1 + scale, so that all norm parameters start at 0.
    """
    width, category_counts = config.width, [n for n in role.categories if n]
    entries: list[tuple[str, tuple[int, ...]]] = []

    def dense(name: str, inputs: int, outputs: int) -> None:
        entries.extend([(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))])

    if category_counts:
        entries.append(("embed.table", (sum(category_counts), config.embedding)))
        dense("embed", config.embedding, width)
    for name, columns in numeric_fields(role):
        dense(f"field.{name}", len(columns), width)
    tokens = len(category_counts) + len(numeric_fields(role)) + 1
    entries.append(("position.table", (tokens, width)))
    for layer in range(config.layers):
        prefix = f"layer.{layer}"
        entries += [(f"{prefix}.norm1.scale", (width,)), (f"{prefix}.norm1.bias", (width,))]
        dense(f"{prefix}.attn.qkv", width, 3 * width)
        dense(f"{prefix}.attn.out", width, width)
        entries += [(f"{prefix}.norm2.scale", (width,)), (f"{prefix}.norm2.bias", (width,))]
        dense(f"{prefix}.up", width, 4 * width)
        dense(f"{prefix}.down", 4 * width, width)
    entries += [("final_norm.scale", (width,)), ("final_norm.bias", (width,))]
    dense("policy.head", width, role.actions.size)
    dense("value.head", width, 1)
    if role.actions.kind == "continuous":
        entries.append(("policy.log_std", (role.actions.size,)))
    return entries


def critic_categories(role: Role, config: NetworkConfig) -> tuple[int, ...]:
    """`Role.privileged_categories` where the critic is centralized, else ()."""
    if config.critic == "own":
        return ()
    if not role.privileged:
        raise ConfigError(f"network.critic = centralized: the world has no privileged fields for "
                          f"{role.name}; expected own")
    return role.privileged_categories


def weight_views(flat: Floats, entries: Layout) -> dict[str, Floats]:
    """name -> view of the flat vector."""
    return {name: flat[at : at + int(np.prod(shape))].reshape(shape) for name, shape, at in entries}


HEAD = ("policy.head.weight", "policy.head.bias")
TABLE_FROZEN = ("policy.0.weight", "policy.0.bias", *HEAD)  # constant in a tabular policy


def network_bytes(role: Role, config: Any) -> int:
    """Bytes of one copy of the weights that `config.network` gives this role."""
    return 4 * sum(int(np.prod(shape)) for _, shape, _ in layout(role, config.network))
