"""User-defined networks: any torch module, behind the interface of the fused network.

    class Net(torch.nn.Module):
        def __init__(self, observation_size: int, action_size: int) -> None: ...
        def forward(self, observation):       # [n, F]
            return logits, value              # [n, A] (means, for continuous actions) and [n]

Its parameters are views of the policy's flat weights, so snapshots, leagues, optimisers and checkpoints work
as with every other network. A module must not have state or draw random numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rematch.agents.networks.config import NetworkConfig
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Role
from rematch.core.system.user_code import described, load_class

if TYPE_CHECKING:
    from torch import Tensor

    from rematch.agents.networks.mlp import NetworkOutput

PREFIX, LOG_STD = "net.", "policy.log_std"
Entries = list[tuple[str, tuple[int, ...]]]


_modules = threading.local()  # modules of each thread: functional_call replaces their weights for one call


def module_for(role: Role, config: NetworkConfig) -> Any:
    """The module of a role for the calling thread; its own weights are never used."""
    import torch

    kind = load_class(config.module, torch.nn.Module, "network.module")
    cache = _modules.__dict__.setdefault("cache", {})
    key = (kind, role.size, role.actions.size)
    if key not in cache:
        with torch.random.fork_rng(devices=[]):
            try:
                module = kind(role.size, role.actions.size)
                problem = _problem(module, role)
            except Exception as error:
                raise ConfigError(f"network.module = {config.module}: {described(error)}") from error
        if problem:
            raise ConfigError(f"network.module = {config.module}: {problem}")
        cache[key] = module
    return cache[key]


def _problem(module: Any, role: Role) -> str:
    """Why a module cannot be the network of a role, found by one call of it; empty: it can."""
    import torch

    if any(True for _ in module.buffers()):
        return "it has buffers, which checkpoints do not store; expected parameters only"
    wanted = f"logits [n, {role.actions.size}] and values [n]"
    with torch.no_grad():
        output = module(torch.zeros(2, role.size))
    if not (isinstance(output, tuple) and len(output) == 2):
        return f"forward returned a {type(output).__name__}, expected {wanted}"
    for name, array, shapes in (("logits", output[0], [(2, role.actions.size)]),
                                ("values", output[1], [(2,), (2, 1)])):  # fmt: skip
        if tuple(array.shape) not in shapes:
            return f"forward returned {name} {list(array.shape)}, expected {list(shapes[0])}: {wanted}, n = 2"
    return ""


def entries(role: Role, config: NetworkConfig) -> Entries:
    """Names and shapes of the weights, for agents/networks/layout.py."""
    module = module_for(role, config)
    out = [(PREFIX + name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]
    if role.actions.kind == "continuous":
        out.append((LOG_STD, (role.actions.size,)))
    return out


def initialise(weights: dict[str, Floats], role: Role, config: NetworkConfig, seed: int) -> None:
    """Write the module's own initial weights, drawn from `seed`, into these views."""
    import torch

    kind = type(module_for(role, config))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        initial = dict(kind(role.size, role.actions.size).named_parameters())
    for name, view in weights.items():
        if name == LOG_STD:
            view[:] = config.log_std
        else:
            view[:] = initial[name.removeprefix(PREFIX)].detach().numpy().astype(np.float32)


def forward(weights: Mapping[str, Tensor], role: Role, config: NetworkConfig, obs: Tensor,
            mask: Tensor | None) -> NetworkOutput:
    """The output of the module for observations [n, F]; weights: name -> view of the flat vector."""
    from torch.func import functional_call

    from rematch.agents.networks.mlp import Distribution, NetworkOutput, masked

    parameters = {
        name.removeprefix(PREFIX): view for name, view in weights.items() if name.startswith(PREFIX)
    }
    heads, value = functional_call(module_for(role, config), parameters, (obs,))
    log_std = weights.get(LOG_STD)
    distribution = Distribution(masked(heads, mask) if log_std is None else heads, log_std)
    return NetworkOutput(distribution, value.reshape(-1), None)
