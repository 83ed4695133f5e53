"""The interface of a deployed policy: names, units and ranges of its inputs and outputs.

A deployed policy (agents/onnx_export.py, agents/c_header.py) takes measured quantities, scales and clips
them, and returns actions in the units that the world executes. Fields without `quantities` are
taken as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rematch.agents.learners.q_policy import QPolicy
from rematch.agents.policy import Policy, digest
from rematch.core.spec import Quantity, Role

FORMAT = 1  # version of the metadata
UNSCALED = Quantity(low=-math.inf, high=math.inf)


@dataclass(frozen=True)
class Column:
    """One input or output number."""

    name: str
    unit: str
    low: float | None = None  # smallest quantity that is not clipped; None: unbounded
    high: float | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value not in (None, "") or key == "unit"}


@dataclass(frozen=True)
class Tensor:
    """One input or output of a deployed policy, n rows."""

    name: str
    type: str
    shape: tuple[str | int, ...]
    columns: tuple[Column, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.type, "shape": list(self.shape),
                "columns": [column.to_dict() for column in self.columns]}


def quantities(role: Role) -> tuple[Quantity, ...]:
    """The quantity of every observation column."""
    fields = (field.quantities or (UNSCALED,) * field.size for field in role.fields)
    return tuple(quantity for field in fields for quantity in field)


def action_quantities(role: Role) -> tuple[Quantity, ...]:
    """The quantity of every continuous action."""
    return role.actions.quantities or (Quantity(),) * role.actions.size


def observation_columns(role: Role) -> Iterator[Column]:
    """The input columns, in the order of the observation."""
    for name, quantity, categories in zip(role.columns, quantities(role), role.categories):
        if categories:
            first = int(quantity.middle)
            yield Column(name, "category", first, first + categories - 1)
        else:
            note = "" if quantity.if_negative is None else "any negative number: not visible"
            yield Column(name, quantity.unit, *limits(quantity), note)


def limits(quantity: Quantity) -> tuple[float | None, float | None]:
    """The smallest and the largest quantity that is not clipped."""
    low, high = (quantity.middle + quantity.half * edge for edge in (quantity.low, quantity.high))
    return finite(low), finite(high)


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def action_columns(role: Role) -> Iterator[Column]:
    """The output columns of continuous actions."""
    for name, quantity in zip(role.actions.names, action_quantities(role)):
        yield Column(name, quantity.unit, *limits(quantity))


def inputs(policy: Policy) -> list[Tensor]:
    role = policy.role
    tensors = [Tensor("observation", "float32", ("n", role.size), tuple(observation_columns(role)))]
    if role.actions.kind == "discrete":
        legal = tuple(Column(name, "0 or 1", note="1: the action is legal") for name in role.actions.names)
        tensors.append(Tensor("legal", "uint8", ("n", role.actions.size), legal))
    if isinstance(policy, QPolicy):
        tensors.append(state_tensor("recurrent_state", policy))
    return tensors


def outputs(policy: Policy) -> list[Tensor]:
    role = policy.role
    size = role.actions.size
    if role.actions.kind == "continuous":
        mean = tuple(Column(name, "", -1.0, 1.0, "mean before clipping and scaling")
                     for name in role.actions.names)
        return [Tensor("action", "float32", ("n", size), tuple(action_columns(role))),
                Tensor("mean", "float32", ("n", size), mean)]
    action = Column("action", "index", 0, size - 1, "the best legal action: " + ", ".join(role.actions.names))
    if isinstance(policy, QPolicy):
        values = tuple(Column(name, "return", note="-inf: not legal") for name in role.actions.names)
        scores = [Tensor("q", "float32", ("n", size), values), state_tensor("next_recurrent_state", policy)]
    else:
        shares = tuple(Column(name, "probability", 0.0, 1.0) for name in role.actions.names)
        scores = [Tensor("probabilities", "float32", ("n", size), shares)]
    return [Tensor("action", "int64", ("n",), (action,)), *scores]


def state_tensor(name: str, policy: QPolicy) -> Tensor:
    note = "zeros at the start of an episode, then next_recurrent_state of the step before"
    return Tensor(name, "float32", ("n", policy.state_size), (Column(name, "", note=note),))


def metadata(policy: Policy, exported: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a deployed policy as JSON values; exported: the metadata of its policy file."""
    fields = {key: exported[key] for key in ("game", "role", "iteration", "step", "learner", "world")}
    out = {"format": FORMAT, **fields, "weights_sha256": digest(policy.weights),
           "inputs": described(inputs(policy)), "outputs": described(outputs(policy))}
    if "policy.log_std" in (arrays := policy.arrays()):
        out["log_std"] = arrays["policy.log_std"].tolist()  # of the numbers, before scaling
    return out


def described(tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
    return [tensor.to_dict() for tensor in tensors]
