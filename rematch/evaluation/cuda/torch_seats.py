"""Policies of matches on the GPU that torch computes: every network that the kernels do not compute.

They are computed in float32, as they are deployed, and draw the random numbers of the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from rematch.agents.networks import mlp
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout
from rematch.agents.networks.torch_acting import ATTENTION, normals, uniforms
from rematch.core.spec import Role

if TYPE_CHECKING:
    from rematch.evaluation.cuda.matches import MatchTable, Seat


class TorchSeats:
    """The seats of one role that policies of one network play: entry [E] match * seats + seat of the role."""

    def __init__(self, table: MatchTable, role: Role, config: NetworkConfig, chunk: int) -> None:
        self.table, self.role, self.config, self.chunk = table, role, config, chunk
        self.seats, self.entries = len(role.seats), table.matches * len(role.seats)
        self.columns = slice(role.seats[0], role.seats[0] + self.seats)  # of arrays of all seats
        device = self.device = table.step.device
        self.weights = {
            name: torch.zeros((self.entries, *shape), device=device)
            for name, shape, _ in layout(role, config)
        }
        self.key = torch.zeros(self.entries, dtype=torch.int64, device=device)
        self.greedy = torch.zeros(self.entries, dtype=torch.bool, device=device)
        self.used = torch.zeros_like(self.greedy)
        self.games = torch.arange(table.games, device=device)
        self.steps = torch.arange(chunk, device=device)
        self.noise = self._noise()

    def send(self, seats: Sequence[Seat]) -> None:
        """The policies of the next matches."""
        used = [False] * self.entries
        for seat in seats:
            entry, policy = seat.match * self.seats + self.role.seats.index(seat.seat), seat.policy
            flat = torch.from_numpy(policy.weights).to(self.device)
            for name, shape, at in layout(self.role, self.config):
                self.weights[name][entry] = flat[at : at + torch.Size(shape).numel()].view(shape)
            self.key[entry] = seat.key - (1 << 64 if seat.key >> 63 else 0)  # the same bits, signed
            self.greedy[entry], used[entry] = policy.greedy, True
        self.used.copy_(torch.tensor(used))

    # --- parts of the graph ---

    def begin(self) -> None:
        """Draw the random numbers of the next `chunk` steps."""
        self.noise.copy_(self._noise())

    def _noise(self) -> Tensor:
        """[chunk, E, games] uniform numbers of discrete actions, or [chunk, E, games, A] standard normals."""
        step = (self.table.step + self.steps)[:, None, None]
        key = self.key[:, None]
        if self.role.actions.kind == "discrete":
            return uniforms(key, self.games, step)
        return normals(key[..., None], self.games[:, None], step[..., None], self.role.actions.size)

    def act(self, number: int) -> None:
        """Choose the actions of step `number` of the chunk."""
        obs, mask = self._observations()
        with torch.no_grad(), sdpa_kernel(ATTENTION):
            heads, log_std = torch.vmap(self._compute)(self.weights, obs)
        if self.role.actions.kind == "discrete":
            chosen = self._choices(mlp.masked(heads, mask), self.noise[number])
        else:
            noise = torch.where(self.greedy[:, None, None], 0.0, self.noise[number])
            chosen = heads + noise * log_std[:, None].exp()
        action = self._by_entry(self._array(f"action.{self.role.name}"))
        acting = self._by_entry(self._array("acting")[:, self.columns]) != 0
        write = self.used[:, None] & acting
        write = write if chosen.dim() == 2 else write[..., None]
        self._store(torch.where(write, chosen.to(action.dtype), action))

    def _compute(self, weights: mlp.Weights, obs: Tensor) -> tuple[Tensor, Tensor]:
        distribution = mlp.apply(weights, self.role, self.config, obs).distribution
        log_std = distribution.log_std
        return distribution.heads, obs[0, :0] if log_std is None else log_std

    def _observations(self) -> tuple[Tensor, Tensor | None]:
        """[E, games, F] observations and [E, games, A] masks."""
        fields = [self.table.world.fields[f"{self.role.name}.{field.name}"] for field in self.role.fields]
        obs = fields[0] if len(fields) == 1 else torch.cat(fields, -1)
        mask = self.table.arrays[f"mask.{self.role.name}"]
        return self._by_entry(obs), None if mask is None else self._by_entry(mask)

    def _array(self, name: str) -> Tensor:
        array = self.table.arrays[name]
        assert array is not None
        return array

    def _by_entry(self, column: Tensor) -> Tensor:
        """[E, games, ...] of a column [matches * games, seats, ...]."""
        split = column.view(self.table.matches, self.table.games, *column.shape[1:])
        return split.transpose(1, 2).reshape(self.entries, self.table.games, *column.shape[2:])

    def _store(self, action: Tensor) -> None:
        """Write the actions [E, games, ...] back."""
        column = self._array(f"action.{self.role.name}")
        split = action.view(self.table.matches, self.seats, self.table.games, *action.shape[2:])
        column.copy_(split.transpose(1, 2).reshape(column.shape))

    def _choices(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """[E, games] sampled actions; of greedy policies the first most probable one."""
        every = logits.log_softmax(-1)
        number = torch.arange(logits.shape[-1], device=self.device)
        legal = every > -torch.inf
        cumulative = every.double().exp().cumsum(-1)
        sampled = torch.minimum((cumulative <= uniform[..., None]).sum(-1), (number * legal).amax(-1))
        return torch.where(self.greedy[:, None], every.argmax(-1), sampled)


def kind_of(role: Role, config: NetworkConfig) -> Any:
    """Equal for policies that one TorchSeats computes."""
    return "torch", role.name, repr(config)
