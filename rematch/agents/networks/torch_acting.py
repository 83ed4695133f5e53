"""Acting on the GPU with networks that torch computes: the policies of all slots of one role.

Rows are sorted by slot into tiles of one size, and every tile has the weights of its slot: one batched
product per layer serves all policies (`torch.vmap` over the readable network of mlp.py). All shapes are fixed
and nothing is copied to the host, so the collector can record the steps as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rematch.agents.networks import mlp
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.few_rows.dense_acting import DenseActing, can_act
from rematch.agents.networks.history_encoders import HALF_LOG_2PI
from rematch.agents.networks.layout import layout
from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.spec import Role
from rematch.core.system import tensor_philox
from rematch.rollout.cuda_rollout import CudaRolloutBuffer
from rematch.rollout.seating import RoleSeating

SMALLEST_TILE, TILES = 64, 64  # rows; tiles beside one more per slot
# Attention whose backward pass adds in a fixed order; for few tokens both are faster than the others.
ATTENTION = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def is_half(config: NetworkConfig, device: torch.device) -> bool:
    """Whether matrix products have bfloat16 operands: those of a transformer's layers on the GPU."""
    return config.kind == "transformer" and device.type == "cuda"


@contextmanager
def arithmetic(config: NetworkConfig, device: torch.device) -> Iterator[None]:
    """How torch computes a network on this device."""
    half = torch.autocast(device.type, torch.bfloat16, is_half(config, device), cache_enabled=False)
    with half, sdpa_kernel(ATTENTION):
        yield


def uniforms(key: int | Tensor, number: Tensor, step: Tensor) -> Tensor:
    """The random numbers in [0, 1) with which discrete actions of these rows and steps are sampled."""
    low, high = tensor_philox.step_words(step)
    return tensor_philox.units(tensor_philox.words(key, (number, low, rng.ACT, high))[0])


def normals(key: int | Tensor, number: Tensor, step: Tensor, actions: int) -> Tensor:
    """[..., actions] standard normals of continuous actions; the last axis of the arguments has length 1."""
    low, high = tensor_philox.step_words(step)
    pairs = torch.arange(0, actions, 2, device=number.device)
    words = tensor_philox.words(key, (number, low, rng.ACT | pairs << 8, high))
    radius = (-2.0 * (tensor_philox.units(words[0]) + 2.0**-24).log()).sqrt()
    angle = 6.28318531 * tensor_philox.units(words[1])
    both = torch.stack([radius * angle.cos(), radius * angle.sin()], -1)  # Box and Muller (1958)
    return both.flatten(-2)[..., :actions]


class SlotWeights:
    """The named weights of all slots [S, ...]; those that matrix products round anyway are stored rounded."""

    def __init__(self, role: Role, config: NetworkConfig, slots: int, device: torch.device) -> None:
        self.layout = layout(role, config)
        names = {name for name, _, _ in self.layout}

        def kind(name: str) -> torch.dtype:
            is_rounded = name.rpartition(".")[0] + ".weight" in names and ".head." not in name
            return torch.bfloat16 if is_rounded and is_half(config, device) else torch.float32

        self.named = {
            name: torch.zeros((slots, *shape), dtype=kind(name), device=device)
            for name, shape, _ in self.layout
        }

    def set(self, slot: int, flat: Tensor) -> None:
        """The weights [P] of one slot."""
        for name, shape, at in self.layout:
            self.named[name][slot].copy_(flat[at : at + torch.Size(shape).numel()].view(shape))

    def of(self, slot: Tensor | int) -> dict[str, Tensor]:
        """The weights of one slot, or of several [n, ...]."""
        return {name: weights[slot] for name, weights in self.named.items()}


class TorchRoleActing:
    """See rollout.cuda_collector.RoleActing."""

    def __init__(
        self, role: Role, seating: RoleSeating, rollout: CudaRolloutBuffer, key: int, first: int
    ) -> None:
        self.role, self.seating, self.key = role, seating, key
        self.config: NetworkConfig = seating.policy.config
        self.track, seats = rollout.role_tracks[role.name], len(role.seats)
        self.slots, self.rows = len(seating.packed), rollout.games * seats
        self.device = self.track.obs_tensor.device
        self.weights = SlotWeights(role, self.config, self.slots, self.device)
        self.slot = rollout.slot_tensor[:, :, self.track.seats]
        self.acting = rollout.acting_tensor[:, :, self.track.seats]
        self.steps = torch.arange(rollout.steps, device=self.device)[:, None, None]
        self.number = torch.arange(first * seats, first * seats + self.rows, device=self.device)[:, None]
        most = rollout.games if rollout.one_seat_acts else self.rows  # rows that act in a step
        self.tile = max(SMALLEST_TILE, -(-most // TILES))
        self.tiles = -(-most // self.tile) + self.slots
        size = role.actions.size
        self.below = torch.ones((size, size), dtype=torch.float64, device=self.device).triu()
        self.noise = self._noise(self._step_0()).contiguous()
        self.few_rows: DenseActing | None = None
        if can_act(role, self.config, self.rows):
            self.few_rows = DenseActing(role, self.config, rollout, self.weights.named, self.noise)
        self.prepared = False

    def _step_0(self) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=self.device)

    def join(self, other: object) -> bool:
        return False

    def send_weights(self) -> None:
        for slot in sorted(self.seating.changed):
            flat = torch.from_numpy(self.seating.placed[slot])
            self.weights.set(slot, flat.to(self.device))
        self.seating.changed.clear()
        if not self.prepared:
            self._prepare()

    def _prepare(self) -> None:
        """Act once before the recording: libraries select kernels and allocate memory."""
        self.prepared = True
        try:
            self.act(0, self._step_0())
            self.act(len(self.slot) - 1, self._step_0(), only_values=True)
        except torch.OutOfMemoryError:
            raise ConfigError(
                f"device = cuda: the GPU has too little memory for {self.rows} rows of {self.role.name}; "
                "expected fewer games, or cpu"
            ) from None
        except RuntimeError as error:
            if self.config.module:
                raise ConfigError(f"network.module = {self.config.module}: cannot act on the GPU: "
                                  f"{str(error).splitlines()[0]}; expected --device cpu") from error
            raise

    def act(self, t: int, first_step: Tensor, only_values: bool = False) -> None:
        track = self.track
        if t == 0:
            self.noise.copy_(self._noise(first_step))
        if self.few_rows is not None:
            self.few_rows.act(t, only_values)
            return
        privileged = None if track.privileged_tensor is None else track.privileged_tensor[t].flatten(0, 1)
        rows = (track.obs_tensor[t].flatten(0, 1), privileged)
        with torch.no_grad(), arithmetic(self.config, self.device):
            if only_values or self.slots == 1:
                heads, values, log_std = self._compute(self.weights.of(0), *rows)
            else:
                heads, values, log_std = self._in_tiles(t, *rows)
        track.value_tensor[t].view(-1).copy_(values)
        if not only_values:
            mask = None if track.mask_tensor is None else track.mask_tensor[t].flatten(0, 1)
            self._sample(t, heads, mask, log_std)

    def _compute(
        self, weights: mlp.Weights, obs: Tensor, privileged: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits or means [n, A], values [n], and the logarithms of standard deviations [A or 0]."""
        output = mlp.apply(weights, self.role, self.config, obs, privileged=privileged)
        log_std = output.distribution.log_std
        assert output.value is not None
        return output.distribution.heads, output.value, obs[0, :0] if log_std is None else log_std

    def _in_tiles(
        self, t: int, obs: Tensor, privileged: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `_compute` for all rows, each with the weights of its slot; arbitrary where no policy acts."""
        source, place, tile_slot = self._arrange(self.slot[t].reshape(-1), self.acting[t].reshape(-1))
        shape = (self.tiles, self.tile, -1)
        weights = self.weights.of(tile_slot)
        privileged_tiles = None if privileged is None else privileged[source].view(shape)
        in_dims = (0, 0, None if privileged is None else 0)
        compute = torch.vmap(self._compute, in_dims)
        heads, values, log_std = compute(weights, obs[source].view(shape), privileged_tiles)
        log_std = log_std[:, None].expand(-1, self.tile, -1).flatten(0, 1)
        return heads.flatten(0, 1)[place], values.flatten()[place], log_std[place]

    def _arrange(self, slot: Tensor, acting: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows sorted by slot: the row of each place, the place of each row, the slot of each tile.

        The rows of a slot start with a new tile. Places without a row have row 0.
        """
        places = self.tiles * self.tile
        slot = torch.where((acting != 0) & (slot < self.slots), slot, self.slots).long()
        slots = torch.arange(self.slots + 1, device=self.device)
        count = (slot[:, None] == slots).sum(0)
        tiles = -(-count // self.tile)
        last_tile, last_row = tiles.cumsum(0), count.cumsum(0)
        order = slot.argsort(stable=True)
        sorted_slot = slot[order]
        rank = torch.arange(self.rows, device=self.device) - (last_row - count)[sorted_slot]
        place = (last_tile - tiles)[sorted_slot] * self.tile + rank
        place = torch.where(sorted_slot < self.slots, place, places).clamp(max=places)
        source = torch.zeros(places + 1, dtype=torch.int64, device=self.device)
        source = source.scatter(0, place, order)[:places]
        numbers = torch.arange(self.tiles, device=self.device)
        tile_slot = (numbers[:, None] >= last_tile[: self.slots]).sum(1).clamp(max=self.slots - 1)
        return source, torch.zeros_like(place).scatter(0, order, place.clamp(max=places - 1)), tile_slot

    # --- sampling, as fused_act.h does it ---

    def _noise(self, first_step: Tensor) -> Tensor:
        """Standard normals [T, rows, A] of continuous actions, uniform numbers [T, rows] of discrete ones."""
        step = first_step + self.steps
        if self.role.actions.kind == "discrete":
            return uniforms(self.key, self.number, step)[..., 0]
        return normals(self.key, self.number, step, self.role.actions.size)

    def _sample(self, t: int, heads: Tensor, mask: Tensor | None, log_std: Tensor) -> None:
        """Write the actions of step t and their log-probabilities."""
        noise, track = self.noise[t], self.track
        if self.role.actions.kind == "continuous":
            track.action_tensor[t].view(-1, self.role.actions.size).copy_(heads + noise * log_std.exp())
            logp = (-0.5 * noise * noise - log_std - HALF_LOG_2PI).sum(-1)
        else:
            every = mlp.masked(heads, mask).log_softmax(-1)
            cumulative = every.double().exp() @ self.below
            legal = torch.arange(heads.shape[1], device=self.device) * (every > -torch.inf)
            # the last legal action takes the rounding error
            choice = torch.minimum((cumulative <= noise[:, None]).sum(-1), legal.amax(-1))
            track.action_tensor[t].view(-1).copy_(choice)
            logp = every.gather(-1, choice[:, None])[:, 0]
        track.logp_tensor[t].view(-1).copy_(logp)
