"""Policies as ONNX files whose graph contains scaling, legal-action mask and clipping of actions.

    observation [n, F] in the units of the metadata, legal [n, A]  ->  action, probabilities
    observation [n, F]                                             ->  action [n, A] in its units, mean
    observation, legal, recurrent_state [n, M]                     ->  action, q, next_recurrent_state

The metadata (agents/deployed_policy.py) is JSON text under the key `rematch`.
"""

from __future__ import annotations

import importlib.util
import io
import json
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rematch.agents import deployed_policy
from rematch.agents.deployed_policy import action_quantities, quantities
from rematch.agents.learners.q_policy import QPolicy
from rematch.agents.policy import Policy
from rematch.core.errors import NotInstalled
from rematch.core.spec import Quantity
from rematch.storage.atomic_files import os_errors_as_run_error, replace_file

KEY = "rematch"  # of the metadata
OPSET = 17
Inputs = dict[str, Any]  # name -> tensor


def check() -> None:
    """NotInstalled before any file is written."""
    if importlib.util.find_spec("onnx") is None:
        raise NotInstalled("--onnx: onnx", "onnx")


def write(policy: Policy, exported: Mapping[str, Any], path: Path) -> Path:
    """Write the policy to `path`; exported: the metadata of its policy file."""
    check()
    import onnx

    model = onnx.load_from_string(graph(policy))
    model.producer_name = "rematch"
    text = json.dumps(deployed_policy.metadata(policy, exported), allow_nan=False)
    onnx.helper.set_model_props(model, {KEY: text})
    onnx.checker.check_model(model)
    with os_errors_as_run_error(f"{path.name} was not written"):
        replace_file(path, model.SerializeToString())
    return path


def graph(policy: Policy) -> bytes:
    """The graph of a policy as the bytes of an ONNX file, without metadata."""
    import torch

    names = [[tensor.name for tensor in tensors]
             for tensors in (deployed_policy.inputs(policy), deployed_policy.outputs(policy))]
    # Two rows to trace: a legal mask of ones, everything else 0.
    makers: dict[str, Any] = {"float32": torch.zeros, "uint8": partial(torch.ones, dtype=torch.uint8)}
    inputs = deployed_policy.inputs(policy)
    examples = tuple(makers[tensor.type](2, int(tensor.shape[1])) for tensor in inputs)

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if isinstance(policy, QPolicy):
                self.net = policy.net  # its parameters become weights of the file

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(compute(policy, dict(zip(names[0], tensors))))

    file: Any = io.BytesIO()
    dynamic = {name: {0: "n"} for name in (*names[0], *names[1])}
    with warnings.catch_warnings():  # about traced constants
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Graph(), examples, file, dynamo=False, opset_version=OPSET, input_names=names[0],
            output_names=names[1], dynamic_axes=dynamic,
        )  # fmt: skip
    return bytes(file.getvalue())


def compute(policy: Policy, inputs: Inputs) -> Iterable[Any]:
    """The outputs of deployed_policy.outputs, in torch."""
    import torch

    from rematch.agents.networks import mlp

    role = policy.role
    numbers = scaled(quantities(role), inputs["observation"])
    if isinstance(policy, QPolicy):
        q, after = q_step(policy, numbers, inputs["recurrent_state"])
        q = mlp.masked(q, inputs["legal"])
        return q.argmax(1), q, after
    weights = torch.from_numpy(policy.weights.copy())
    heads = mlp.forward(weights, role, policy.config, numbers).distribution.heads
    if role.actions.kind == "discrete":
        logits = mlp.masked(heads, inputs["legal"])
        return logits.argmax(1), logits.softmax(1)
    units = action_quantities(role)
    middle, half = (torch.tensor([getattr(unit, name) for unit in units]) for name in ("middle", "half"))
    return middle + half * heads.clamp(-1.0, 1.0), heads


def scaled(units: tuple[Quantity, ...], observation: Any) -> Any:
    """Measured quantities [n, F] as the numbers that the network observes."""
    import torch

    def constants(values: Iterable[float]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.float32)

    x = observation
    if any(unit.middle != 0.0 or unit.half != 1.0 for unit in units):
        x = (x - constants(unit.middle for unit in units)) / constants(unit.half for unit in units)
    if any(unit.root for unit in units):
        root = 2.0 * torch.sign(x) * (torch.sqrt(torch.abs(x) + 1.0) - 1.0)
        x = torch.where(torch.tensor([unit.root for unit in units]), root, x)
    if any(unit.low > -torch.inf or unit.high < torch.inf for unit in units):
        x = torch.maximum(x, constants(unit.low for unit in units))
        x = torch.minimum(x, constants(unit.high for unit in units))
    if any(unit.if_negative is not None for unit in units):
        has_code = torch.tensor([unit.if_negative is not None for unit in units])
        codes = constants(unit.if_negative or 0.0 for unit in units)
        x = torch.where(has_code & (observation < 0), codes, x)
    return x


def q_step(policy: QPolicy, numbers: Any, recurrent_state: Any) -> tuple[Any, Any]:
    """Q [n, A] and the recurrent state after the step, from numbers [n, F]."""
    import torch

    frames, visited, structured = policy.codec.tensors(numbers)
    episode_start = torch.zeros_like(structured[:, :1])
    visited_step = None if visited is None else visited[:, None]
    frames_step = None if frames is None else frames[:, None]
    q, after, _ = policy.net(frames_step, (structured[:, None], visited_step), recurrent_state, episode_start)
    return q[:, 0], after
