"""Policies: players that are networks. Weights are one flat float32 vector with named views.

Digests, opponents' slots, optimisers, checkpoints and averages of policies are operations on that one array.
agents/networks/fused.h computes the network; agents/networks/mlp.py is the same network in torch, the
readable reference. Networks with an encoder and transformers are agents/networks/torch_network.py.

Two field names have a meaning: an encoder reads `history`, a field of shape (steps, numbers); `bimdn` learns
the opponent's position from `other`, a privileged field with two columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.networks import fused
from rematch.core import rng
from rematch.core.arrays import Bytes, Floats, aligned_zeros
from rematch.core.errors import ConfigError
from rematch.core.native_build import refuse_stale
from rematch.core.player import Decision, RngKey, Seat
from rematch.core.spec import Role
from rematch.storage import migrations

if TYPE_CHECKING:
    from rematch.agents.networks.torch_network import HalfNetwork, TorchNetwork
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import HEAD, TABLE_FROZEN, critic_categories, layout, weight_views

refuse_stale("rematch.agents.networks.fused", fused.BUILD, Path(__file__).parent / "networks" / "fused.pyx")


TABLE_HEAD_GAIN, TABLE_SCALE = 3.0, 0.02  # tabular policy: gain of its head, scale of its first rows
MAX_WEIGHTS = 1 << 26  # fused.h has 32-bit offsets into the padded weights


def build_network(role: Role, config: NetworkConfig) -> fused.Network | TorchNetwork:
    size = sum(int(np.prod(shape)) for _, shape, _ in layout(role, config))
    if size > MAX_WEIGHTS:
        key, value = "hidden", ",".join(map(str, config.hidden))
        if config.kind == "transformer":
            key, value = "width", str(config.width)
        raise ConfigError(f"network.{key} = {value}: {size:,} weights; expected at most {MAX_WEIGHTS:,}")
    if config.in_torch:
        from rematch.agents.networks.torch_network import TorchNetwork

        return TorchNetwork(role, config)
    shape = (role.categories, role.actions.size, role.actions.kind == "discrete")
    return fused.Network(
        *shape, config.hidden, config.one_tower, config.activation, config.fourier,
        critic_categories(role, config),
    )  # fmt: skip


def digest(weights: Floats) -> str:
    return hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()


class Policy:
    """One role's network with weights [P]; `act` samples unless `greedy`."""

    def __init__(self, role: Role, config: NetworkConfig, name: str, weights: Floats | None = None) -> None:
        self.role, self.config, self.name = role, config, name
        self.network = build_network(role, config)
        self.layout = layout(role, config)
        self.weights: Floats = np.zeros(self.network.size, np.float32)
        self.packed = aligned_zeros((1, self.network.packed_size))
        self.greedy = False
        if weights is not None:
            self.set(weights)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are made from the weights: the compiled network cannot be copied."""
        return _rebuild, (type(self), self.role, self.config, self.name, self.weights, self.greedy)

    def set(self, weights: Floats) -> None:
        if weights.shape != self.weights.shape:
            raise ConfigError(f"policy {self.name}: {weights.size} weights, expected {self.weights.size}")
        if weights is not self.weights:
            self.weights[:] = weights
        self.network.pack(self.weights[None], self.packed)

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU computes its network: all rows at once, faster than parts of them on threads."""
        return self.config.device == "cuda"

    def on_tensors(self, device: Any) -> HalfNetwork:
        """Its network in bfloat16, for many rows on a device of torch; later weights have no effect on it."""
        import torch

        from rematch.agents.networks import torch_network

        if not torch_network.half_can_compute(self.config):
            raise ConfigError(f"policy {self.name}: expected a network of kind mlp with shared layers, "
                              "without encoder, table and fourier")
        network = torch_network.HalfNetwork(self.role, self.config, device)
        network.set(torch.from_numpy(self.weights).to(device))
        return network

    def zero_frozen_gradients(self, grad: Floats) -> None:
        """Set the gradient [P] of the constant weights of a tabular policy to 0."""
        if self.config.table:
            for name in TABLE_FROZEN:
                weight_views(grad, self.layout)[name][:] = 0.0

    def with_temperature(self, temperature: float) -> Floats:
        """Weights [P] of the policy whose logits are this one's divided by `temperature`."""
        weights = self.weights.copy()
        for name in HEAD:
            weight_views(weights, self.layout)[name] /= np.float32(temperature)
        return weights

    def initialise(self, seed: int) -> None:
        """Orthogonal weights (Saxe et al. 2014); a small policy head, so that play starts near uniform."""
        if self.config.module:
            from rematch.agents.networks import user_network

            user_network.initialise(weight_views(self.weights, self.layout), self.role, self.config, seed)
            self.set(self.weights.copy())
            return
        gain = 2.0**0.5
        for i, (name, view) in enumerate(weight_views(self.weights, self.layout).items()):
            if name == "policy.log_std":
                view[:] = self.config.log_std
            elif name.endswith(".table"):  # an observation adds one row per categorical column
                more = critic_categories(self.role, self.config) if name == "value.0.table" else ()
                summed_rows = sum(n > 0 for n in self.role.categories + more)
                normal = rng.generator(seed, rng.INIT, i).standard_normal(view.shape)
                view[:] = normal / max(1, summed_rows) ** 0.5
                if self.config.table and name == "policy.0.table":
                    view *= np.float32(TABLE_SCALE)
            elif self.config.table and name == "policy.0.weight":
                view[:] = 0.0  # a tabular policy does not read numbers
            elif name == "encoder.belief.bias":  # Gaussians with equal weights would stay equal
                view[:] = 0.5 * rng.generator(seed, rng.INIT, i).standard_normal(view.shape)
            elif name.endswith(".weight") and view.size:
                rows, columns = view.shape
                normal = rng.generator(seed, rng.INIT, i).standard_normal(
                    (max(rows, columns), min(rows, columns))
                )
                q, r = np.linalg.qr(normal)
                q = q * np.sign(np.diag(r))
                scale = {"policy.head.weight": 0.01, "value.head.weight": 1.0}.get(name, gain)
                scale = 1.0 if name.startswith(("encoder.", "layer.", "embed.", "field.")) else scale
                scale = TABLE_HEAD_GAIN if self.config.table and name == "policy.head.weight" else scale
                view[:] = scale * (q if rows >= columns else q.T)
            else:
                view[:] = 0.0
                if name in ("encoder.forward.bias", "encoder.backward.bias"):
                    view.reshape(4, -1)[1] = 1.0  # of the forget gate (Jozefowicz et al. 2015)
        self.set(self.weights.copy())

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        """Sampled actions for n rows; rng_key and game number determine the random numbers."""
        n, role = len(seat.rows), self.role
        discrete = role.actions.kind == "discrete"
        action: NDArray[Any] = (
            np.zeros(n, np.int32) if discrete else np.zeros((n, role.actions.size), np.float32)
        )
        logp, value = np.zeros(n, np.float32), np.zeros(n, np.float32) if seat.value_wanted else None
        key = rng.key(rng_key.seed, rng_key.stream, seat.seat)
        number = (seat.rows + seat.world.first).astype(np.uint32)
        self.network.act(
            self.packed,
            np.zeros(n, np.int32),
            seat.obs,
            number,
            (key, rng_key.step),
            action,
            logp,
            value,
            mask=seat.mask,
            greedy=self.greedy,
        )
        return Decision(action, logp, value if self.config.critic == "own" else None)

    def forward(
        self, obs: Floats, mask: Bytes | None = None, privileged: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Means or logits [n, A] and values [n]; 0 from a centralized critic without `privileged`."""
        n, size = len(obs), self.role.actions.size
        discrete = self.role.actions.kind == "discrete"
        action: NDArray[Any] = np.zeros(n, np.int32) if discrete else np.zeros((n, size), np.float32)
        heads, logp, value = np.zeros((n, size), np.float32), np.zeros(n, np.float32), np.zeros(n, np.float32)
        slot, number = np.zeros(n, np.int32), np.zeros(n, np.uint32)
        self.network.act(
            self.packed, slot, obs, number, (0, 0), action, logp, value,
            mask=mask, heads=heads, greedy=True, privileged=privileged,
        )  # fmt: skip
        return heads, value

    def heads(self, obs: Floats, wanted: Bytes) -> Floats:
        """Means or logits [n, A] of the wanted rows, 0 elsewhere; no values are computed."""
        n, size = len(obs), self.role.actions.size
        discrete = self.role.actions.kind == "discrete"
        action: NDArray[Any] = np.zeros(n, np.int32) if discrete else np.zeros((n, size), np.float32)
        heads, logp = np.zeros((n, size), np.float32), np.zeros(n, np.float32)
        slot, number = np.zeros(n, np.int32), np.zeros(n, np.uint32)
        self.network.act(
            self.packed, slot, obs, number, (0, 0), action, logp, None,
            acting=wanted, heads=heads, greedy=True,
        )  # fmt: skip
        return heads

    def action_probs(self, seat: Seat) -> Floats:
        """[n, A] the probabilities from which `act` samples a discrete action."""
        if self.role.actions.kind != "discrete":
            raise ConfigError(f"policy {self.name}: continuous actions have no probabilities")
        logits = self.forward(np.ascontiguousarray(seat.obs), seat.mask)[0].astype(np.float64)
        if seat.mask is not None:
            logits[seat.mask == 0] = -np.inf
        if self.greedy:
            return np.asarray(np.arange(logits.shape[1]) == logits.argmax(1)[:, None], np.float32)
        out = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(out / out.sum(1, keepdims=True), np.float32)

    def arrays(self) -> dict[str, Floats]:
        """name -> copy of the weights, for a file."""
        return {name: view.copy() for name, view in weight_views(self.weights, self.layout).items()}

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Set the weights from a file, also from one with the names of an older version."""
        arrays = migrations.present_weights(arrays)
        flat = self.weights.copy()
        for name, view in weight_views(flat, self.layout).items():
            if name not in arrays or arrays[name].shape != view.shape or arrays[name].dtype != np.float32:
                raise ConfigError(
                    f"policy {self.name}: {name} is missing or not float32 {view.shape}"
                )
            view[:] = arrays[name]
        if not np.isfinite(flat).all():
            raise ConfigError(f"policy {self.name}: weights are not finite")
        self.set(flat)


def _rebuild(
    kind: type[Policy], role: Role, config: NetworkConfig, name: str, weights: Floats, greedy: bool
) -> Policy:
    policy = kind(role, config, name, weights)
    policy.greedy = greedy
    return policy
