"""What an update by torch computes beside the network, in few launches: the kernels of minibatch.cu.

As operations of torch, a minibatch is 200 small kernels, of which 40 are the network's, and the advantages of
a long rollout are thousands; a GPU needs some microseconds for each. The readable versions are ppo_loss.py,
adam.py and RolloutBuffer.advantages.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.agents.learners.adam import BETA_1, BETA_2, EPSILON
from rematch.agents.learners.cuda_update import fill
from rematch.agents.networks.cuda_network import ADVANTAGES, c_struct
from rematch.agents.networks.layout import layout
from rematch.core.system.cuda import Program
from rematch.rollout.cuda_rollout import CudaRolloutBuffer, on_device

if TYPE_CHECKING:
    from rematch.agents.learners.torch_ppo import TorchPpo

FILE = Path(__file__).parent / "minibatch.cu"
# of minibatch.cu
MAX_COLUMNS, LOSS_MEANS, DECISIONS = 8, 6, 4
ROW_THREADS, LOSS_THREADS, ADAM_THREADS, ADVANTAGE_THREADS = 128, 64, 256, 64
COLUMN = np.dtype([("from", "u8"), ("to", "u8"), ("bytes", "i8")])
ROWS = np.dtype([("order", "u8"), ("count", "u8"), ("position", "u8"), ("share", "u8"),
                 ("column", COLUMN, MAX_COLUMNS), ("columns", "i4"), ("epochs", "i4"), ("size", "i4"),
                 ("minibatch", "i4")], align=True)  # fmt: skip
LOSS = c_struct("""
    log_std action choice logp old_value advantage target share magnet magnet_log_std settings
    heads_gradient value_gradient numbers rows:i4 actions:i4 clip:f4 value_clip:f4 value_weight:f4
    magnet_weight:f4""")
STEP = c_struct("""
    weights first second share settings decided updates sums stopped failed position
    size:i4 means:i4 log_std_at:i4 log_stds:i4 max_norm:f4 target_kl:f4 log_std_low:f4 log_std_high:f4
    epsilon:f4 beta1:f8 beta2:f8""")
Struct = NDArray[Any]


@cache
def program() -> Any:
    return Program(FILE, {})


class MinibatchKernels:
    """The buffers, the arguments and the launches of a gradient step of one learner."""

    def __init__(self, learner: TorchPpo, batch: dict[str, Tensor]) -> None:
        """batch: the columns of a minibatch [n, ...], which lie in the same place in every step."""
        self.learner, self.batch, self.device = learner, batch, learner.device
        self.rows = minibatch = len(batch["obs"])
        self.discrete = learner.policy.role.actions.kind == "discrete"
        self.actions, self.size = learner.policy.role.actions.size, learner.weights.numel()
        entries = {name: at for name, _, at in layout(learner.policy.role, learner.policy.config)}
        self.log_std = slice(0, 0)  # in the flat weights
        if not self.discrete:
            self.log_std = slice(entries["policy.log_std"], entries["policy.log_std"] + self.actions)
        self.share = self._zeros(minibatch)
        self.heads_gradient, self.magnet = (self._zeros(minibatch, self.actions) for _ in range(2))
        self.value_gradient = self._zeros(minibatch)
        self.loss_blocks = -(-minibatch // LOSS_THREADS)
        self.numbers = self._zeros(minibatch, LOSS_MEANS + self.actions)
        self.decided = self._zeros(DECISIONS)
        self.loss_struct = on_device(self._loss_arguments())
        self.step_struct = on_device(self._step_arguments())
        self.kernels = {name: program().kernel(name) for name in ("loss", "decide", "adam")}

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    # --- arguments ---

    def _loss_arguments(self) -> Struct:
        learner, c, struct, batch = self.learner, self.learner.config, np.zeros(1, LOSS), self.batch
        with_magnet = c.magnet_weight > 0
        tensors: dict[str, Tensor | None] = {
            "choice" if self.discrete else "action": batch["action"], "logp": batch["logp"],
            "old_value": batch["value"], "advantage": batch["advantage"], "target": batch["target"],
            "share": self.share, "settings": learner.settings, "heads_gradient": self.heads_gradient,
            "value_gradient": self.value_gradient, "numbers": self.numbers,
            "magnet": self.magnet if with_magnet else None,
        }  # fmt: skip
        if not self.discrete:
            tensors["log_std"] = learner.weights[self.log_std]
            tensors["magnet_log_std"] = learner.magnet_tensor[self.log_std] if with_magnet else None
        fill(struct, tensors, {
            "rows": self.rows, "actions": self.actions, "clip": c.clip, "value_clip": c.value_clip,
            "value_weight": c.value_weight, "magnet_weight": c.magnet_weight,
        })  # fmt: skip
        return struct

    def _step_arguments(self) -> Struct:
        learner, c, struct = self.learner, self.learner.config, np.zeros(1, STEP)
        network = learner.policy.config
        names = ("weights", "first", "second", "settings", "updates", "sums", "stopped", "failed",
                 "position")  # fmt: skip
        own = {"share": self.share, "decided": self.decided}
        fill(struct, {name: getattr(learner, name) for name in names} | own, {
            "size": self.size, "means": len(learner.names) - 2, "log_std_at": self.log_std.start,
            "log_stds": self.log_std.stop - self.log_std.start, "max_norm": c.max_grad_norm,
            "target_kl": c.target_kl, "log_std_low": network.log_std_low,
            "log_std_high": network.log_std_high, "epsilon": EPSILON, "beta1": BETA_1, "beta2": BETA_2,
        })  # fmt: skip
        return struct

    # --- launches, which a CUDA graph can record ---

    def loss(self, heads: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the gradient with respect to logits or means [n, A] and values [n] of the network; returns
        the means of ppo_loss.py [LOSS_MEANS] and the gradient of log_std [A]."""
        grid = (self.loss_blocks, 1)
        self.kernels["loss"](grid, LOSS_THREADS, self.loss_struct, heads.contiguous(), values.contiguous())
        totals = self.numbers.sum(0, dtype=torch.float64)
        return totals[:LOSS_MEANS], totals[LOSS_MEANS:]

    def step(self, gradient: Tensor, means: Tensor) -> None:
        """Clip the gradient [P] and take a step of Adam; add the means to the sums."""
        norm = torch.linalg.vector_norm(gradient)
        self.kernels["decide"]((1, 1), 1, self.step_struct, means, norm)
        self.kernels["adam"]((-(-self.size // ADAM_THREADS), 1), ADAM_THREADS, self.step_struct, gradient)


class RowKernels:
    """The advantages of a rollout, and the rows of each minibatch; made anew for another rollout buffer."""

    def __init__(self, learner: TorchPpo, rollout: CudaRolloutBuffer, kernels: MinibatchKernels) -> None:
        self.learner, self.kernels = learner, kernels
        self.advantage_struct = on_device(self._advantage_arguments(rollout))
        self.row_struct = on_device(self._row_arguments())
        self.blocks = -(-rollout.games * len(learner.track.role.seats) // ADVANTAGE_THREADS)
        self.advantage_kernel, self.row_kernel = map(program().kernel, ("advantages", "gather_rows"))

    def _advantage_arguments(self, rollout: CudaRolloutBuffer) -> Struct:
        learner, c, struct = self.learner, self.learner.config, np.zeros(1, ADVANTAGES)
        seats = learner.policy.role.seats
        fill(struct, {
            "reward": learner.reward, "ended": rollout.ended_tensor, "acting": rollout.acting_tensor,
            "slot": rollout.slot_tensor, "value": learner.track.value_tensor,
            "advantage": learner.raw_advantage, "target": learner.target, "counts": learner.counts,
        }, {
            "rows": rollout.games * len(seats), "seats": len(seats), "first_seat": seats[0],
            "all_seats": rollout.slot_tensor.shape[2], "reward_seats": learner.reward.stride(1),
            "reward_first": 0, "steps": rollout.steps, "gamma": c.gamma,
            "gamma_lambda": c.gamma * c.gae_lambda,
        })  # fmt: skip
        return struct

    def _row_arguments(self) -> Struct:
        learner, batch, struct = self.learner, self.kernels.batch, np.zeros(1, ROWS)
        fill(struct, {"order": learner.order, "count": learner.count, "position": learner.position,
                      "share": self.kernels.share},
             {"columns": len(batch), "epochs": learner.config.epochs, "size": learner.order.shape[1],
              "minibatch": self.kernels.rows})  # fmt: skip
        for entry, (name, source) in zip(struct["column"][0], columns(learner).items()):
            entry["from"], entry["to"] = source.data_ptr(), batch[name].data_ptr()
            entry["bytes"] = source[0].numel() * source.element_size()
        return struct

    def advantages(self) -> None:
        """Compute the advantages, the targets of the value, and which rows to learn from."""
        self.advantage_kernel((self.blocks, 1), ADVANTAGE_THREADS, self.advantage_struct)

    def gather(self) -> None:
        """Copy the rows of the next minibatch."""
        self.row_kernel((self.kernels.rows, 1), ROW_THREADS, self.row_struct)


def columns(learner: TorchPpo) -> dict[str, Tensor]:
    """The columns of the rollout that a gradient step reads, [M, ...] by name."""
    track = learner.track
    every = {
        "obs": track.obs_tensor, "mask": track.mask_tensor, "privileged": track.privileged_tensor,
        "action": track.action_tensor, "logp": track.logp_tensor, "value": track.value_tensor,
    }  # fmt: skip
    out = {name: column.flatten(0, 2) for name, column in every.items() if column is not None}
    return out | {"advantage": learner.advantage, "target": learner.target}
