"""A network in torch, with an encoder or of tokens: what policies and rollouts ask of fused.Network.

Rows go through in blocks of one size, on one thread, so that a row's answer depends on that row alone: not on
who is asked with it, nor on the number of threads. Draws are those of agents/networks/fused_act.h, by the
same keys. The gradient is autograd's of `learners.ppo.loss`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rematch.agents.networks import fused, mlp
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout, named
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.spec import Role

BLOCK, GPU_BLOCK = 64, 4096  # rows


class Recurrent:
    """The shape of one network; holds no weights. Packed weights are the flat ones."""

    def __init__(self, role: Role, config: NetworkConfig) -> None:
        self.role, self.config, self.layout = role, config, layout(role, config)
        self.inputs, self.actions = role.size, role.actions.size
        self.discrete = role.actions.kind == "discrete"
        self.device = torch.device(config.device)
        if config.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("network.device = cuda: there is no GPU here; expected --network.device cpu")
        self.size = self.packed_size = sum(int(np.prod(shape)) for _, shape, _ in self.layout)

    def pack(self, flat: Floats, out: Floats) -> None:
        if flat.shape[1] != self.size or out.shape[1] != self.size or len(out) < len(flat):
            raise ValueError("weights do not have this network's size")
        out[: len(flat)] = flat

    def act(
        self, packed: Floats, slot: NDArray[Any], obs: Floats, number: NDArray[Any], draw: tuple[int, int],
        *out: NDArray[Any], acting: NDArray[Any] | None = None, mask: NDArray[Any] | None = None,
        heads: Floats | None = None, greedy: bool = False, privileged: Floats | None = None,
    ) -> None:  # fmt: skip
        """As fused.Network.act; out: action, logp, value."""
        action, logp, value = out
        if packed.shape[1] != self.size or obs.shape[1] != self.inputs:
            raise ValueError("network and arrays do not fit")
        if len({len(array) for array in (slot, obs, number, *out)}) > 1:
            raise ValueError("arrays of different length")
        playing = np.ones(len(slot), bool) if acting is None else acting != 0
        for s, weights in enumerate(packed):
            rows = np.flatnonzero((slot == s) & playing)
            if not len(rows):
                continue
            said, judged = self._look(weights, obs[rows], None if privileged is None else privileged[rows])
            drawn, likely = np.empty_like(action[rows]), np.empty(len(rows), np.float32)
            spread = named(weights, self.layout).get("policy.log_std")
            legal = None if mask is None else np.ascontiguousarray(mask[rows])
            fused.sample(said, spread, number[rows], draw, drawn, likely, legal, greedy)
            action[rows], logp[rows] = drawn, likely
            if judged is not None:
                value[rows] = judged
            if heads is not None:
                heads[rows] = said

    def belief(self, weights: Floats, obs: Floats) -> tuple[Floats, Floats, Floats]:
        """Of bimdn: weights [n, K], means [n, K, 2] and standard deviations [n, K, 2] of its Gaussians."""
        found = [said.belief for said in self._blocks(weights, obs, None) if said.belief is not None]
        parts = [(b.log_weight.exp(), b.mean, b.log_sd.exp()) for b in found]
        weight, mean, sd = (torch.cat(arrays)[: len(obs)].numpy() for arrays in zip(*parts))
        return weight, mean, sd

    def _look(self, weights: Floats, obs: Floats, privileged: Floats | None) -> tuple[Floats, Floats | None]:
        """Means or logits [n, A], and values [n] where the critic has what it looks at."""
        said = self._blocks(weights, obs, privileged)
        heads = torch.cat([block.play.heads for block in said])[: len(obs)].cpu().numpy()
        values = [block.value for block in said if block.value is not None]
        return heads, torch.cat(values)[: len(obs)].cpu().numpy() if values else None

    def _blocks(self, weights: Floats, obs: Floats, privileged: Floats | None) -> list[mlp.Answer]:
        """What the network says, BLOCK rows at a time; the last block is filled up with zeros."""
        torch.set_num_threads(1)  # of the calling thread: rollouts have threads of their own
        rows_at_once = BLOCK if self.config.device == "cpu" else GPU_BLOCK
        full = -(-len(obs) // rows_at_once) * rows_at_once

        def blocks(rows: Floats) -> list[torch.Tensor]:
            padded = np.zeros((full, rows.shape[1]), np.float32)
            padded[: len(rows)] = rows
            return list(torch.from_numpy(padded).to(self.device).chunk(full // rows_at_once))

        told: list[Any] = [None] * (full // rows_at_once) if privileged is None else blocks(privileged)
        with torch.no_grad():
            flat = torch.from_numpy(weights).to(self.device)
            pairs = zip(blocks(obs), told)
            return [mlp.answer(flat, self.role, self.config, seen, None, more) for seen, more in pairs]
