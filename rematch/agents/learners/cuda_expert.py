"""Expert iteration on the GPU: games, searches, the replay buffer and the updates stay there.

The positions, their random numbers and the rows of every minibatch are those of the CPU (one that is larger
than the filled part of the replay buffer has some rows twice). Playouts of bots have the same bits; a policy
plays playouts in bfloat16 (HalfNetwork of agents/networks/torch_network.py). One CUDA graph is a gradient
step: it takes rows of the replay buffer, observes them, and steps Adam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.agents.learners.expert_iteration import ExpertIteration
from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.learners.torch_ppo import TorchPpo
from rematch.agents.networks.torch_network import HalfNetwork
from rematch.core import rng
from rematch.core.arrays import Tree
from rematch.core.errors import LearnError
from rematch.core.player import RngKey
from rematch.core.system import cuda
from rematch.rollout import cuda_rollout
from rematch.rollout.cuda_rollout import CudaRolloutBuffer
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.worlds.registry import find

if TYPE_CHECKING:
    from rematch.core.run_config import Config as RunConfig

METRICS = ("value_loss", "entropy", "magnet_kl", "grad_norm_pre_clip", "grad_norm_post_clip")


class CudaStudent(TorchPpo):
    """The gradient step: rows of the replay buffer, with the results of the search as magnet."""

    replay: CudaExpert

    def fill_batch(self) -> None:
        replay, batch = self.replay, self.kernels.batch
        rows = replay.order.index_select(0, self.position.view(1))[0]
        replay.batch_states.copy_(replay.state_tensor[rows])
        replay.observe_batch()
        batch["target"].copy_(replay.value_tensor[rows])
        batch["action"].copy_(replay.batch_mask.argmax(1))
        self.kernels.magnet.copy_(replay.q_tensor[rows])

    def fill_magnet(self) -> None:
        """The results of the search are the magnet: `fill_batch` writes them."""

    def begin(self, lr: float) -> None:
        """Before the gradient steps of an iteration."""
        self.settings.copy_(torch.tensor([lr, 0.0, 1.0, 0.0], dtype=torch.float64))
        self.learning.copy_(torch.from_numpy(self._learning_weights()))
        for tensor in (self.position, self.sums, self.stopped, self.failed):
            tensor.zero_()

    def end(self) -> dict[str, float]:
        """The policy of the host gets the new weights; the means of the gradient steps."""
        self.policy.set(self.weights.cpu().numpy())
        self.adam.updates = int(self.updates)
        if self.failed or not np.isfinite(self.policy.weights).all():
            raise LearnError(f"{self.policy.role.name}: the gradient is not finite")
        *sums, steps = self.sums.tolist()
        return {name: number / max(steps, 1) for name, number in zip(self.names, sums) if name in METRICS}


class CudaExpert(ExpertIteration):
    """The learner of one role on the GPU."""

    student: CudaStudent

    def make_student(self, terms: PpoConfig) -> Ppo:
        return CudaStudent(self.policy, terms, self.seed, self.threads)

    def prepare(self, config: RunConfig) -> None:
        game, c, role = find(config.game), self.config, self.policy.role
        assert game.cuda is not None and game.cuda.search is not None, "needs_cpu refuses other games"
        self.search = game.cuda.search(config.world)
        self.device = device = cuda_rollout.DEVICE
        self.network = HalfNetwork(role, self.policy.config, device)
        rows, size = c.minibatch_size, self.states.shape[1]
        self.state_tensor = torch.zeros((c.replay_size, size), dtype=torch.uint8, device=device)
        self.q_tensor = torch.zeros((c.replay_size, role.actions.size), device=device)
        self.value_tensor = torch.zeros(c.replay_size, device=device)
        self.batch_states = torch.zeros((rows, size), dtype=torch.uint8, device=device)
        self.batch_obs, self.batch_mask = self.search.observe(self.batch_states)
        self.order = torch.zeros((1, rows), dtype=torch.int64, device=device)
        self.observe_batch = self.search.observer(self.batch_states, self.batch_obs, self.batch_mask)
        zeros = {name: torch.zeros(rows, device=device) for name in ("logp", "advantage", "value", "target")}
        self.student.replay = self
        self.student.allocate_step(zeros | {
            "obs": self.batch_obs, "mask": self.batch_mask,
            "action": torch.zeros(rows, dtype=torch.int32, device=device),
        })  # fmt: skip
        self.student.kernels.share.fill_(1.0 / rows)
        self.graph: Any = None

    # --- state: the replay buffer of the host is written for checkpoints only ---

    def state_dict(self) -> Tree:
        for array, tensor in self._pairs():
            array[:] = tensor.cpu().numpy()
        return super().state_dict()

    def load_state_dict(self, tree: Tree) -> None:
        super().load_state_dict(tree)
        for array, tensor in self._pairs():
            tensor.copy_(torch.from_numpy(array))

    def _pairs(self) -> list[tuple[NDArray[Any], Tensor]]:
        return [(self.states, self.state_tensor), (self.q_targets, self.q_tensor),
                (self.value_targets, self.value_tensor)]

    # --- one iteration ---

    def _train(self, updates: int, filled: int, lr: float, iteration: int) -> dict[str, float]:
        generators = (rng.generator(self.seed, rng.SHUFFLE, update, iteration) for update in range(updates))
        orders = [generator.integers(0, filled, self.config.minibatch_size) for generator in generators]
        self._set_order(torch.from_numpy(np.stack(orders)))
        self.student.begin(lr)
        if self.graph is None:
            self._record()
        for _ in range(updates):
            self.graph.replay()
        return self.student.end()

    def _set_order(self, rows: Tensor) -> None:
        """The rows of every minibatch; the graph reads them in their place."""
        if len(rows) > len(self.order):
            self.order = torch.zeros((2 * len(rows), rows.shape[1]), dtype=torch.int64, device=self.device)
            self.graph = None
        self.order[: len(rows)] = rows.to(self.device)

    def _record(self) -> None:
        """Record a gradient step, after one that changes nothing: libraries allocate memory in it."""
        self.student.failed.fill_(True)
        self.student._minibatch()
        self.student.failed.zero_()
        self.student.position.zero_()
        self.graph = cuda.record_graph(self.student._minibatch)

    def search_positions(self, rollout: RolloutBuffer, iteration: int) -> dict[str, float]:
        assert isinstance(rollout, CudaRolloutBuffer) and rollout.states_tensor is not None
        c, track = self.config, rollout.role_tracks[self.policy.role.name]
        slot, acting = rollout.slot_tensor[:-1, :, track.seats], rollout.acting_tensor[:-1, :, track.seats]
        decisions = torch.nonzero((slot == 0) & (acting != 0))
        order = rng.generator(self.seed, rng.EXPERT, 0, iteration).permutation(len(decisions))
        decisions = decisions[torch.from_numpy(np.sort(order[: c.positions])).to(self.device)]
        rows = len(decisions)
        if not rows:
            return {"decisions": 0.0}
        states = rollout.states_tensor[decisions[:, 0], decisions[:, 1]]
        self.network.set(self.student.weights)
        rng_key = RngKey(rng.key(self.seed, rng.EXPERT, 1), rng.BOT, iteration)
        players = self._seated(rollout, slot[decisions[:, 0], decisions[:, 1]])
        values = self._searched(states, rng_key, players)
        legal = values.isfinite()
        values = values.masked_fill(~legal, 0.0)
        logits = self.network(self.search.observe(states)[0])[0].double().masked_fill(~legal, -torch.inf)
        expected = (logits.softmax(1) * values).sum(1)
        index = (self.count + torch.arange(rows, device=self.device)) % c.replay_size
        self.state_tensor[index], self.q_tensor[index] = states, (values / c.tau).float()
        self.value_tensor[index] = expected.clamp(-1, 1).float()
        self.count += rows
        best = values.masked_fill(~legal, -torch.inf).amax(1)
        return {"search_value": float(expected.mean()), "search_gain": float((best - expected).mean()),
                "decisions": float(rows)}

    def _seated(self, rollout: RolloutBuffer, slots: Tensor) -> Tensor:
        """[n, k] as `_players`, on the GPU; slots [n, k] of the players in the game of each decision."""
        if self.playouts != "seated":
            return torch.full_like(slots, -1)
        numbers = self.bot_numbers(rollout.players[self.policy.role.name])
        return torch.tensor(numbers, dtype=torch.int32, device=self.device)[slots.long()]

    def _searched(self, states: Tensor, rng_key: RngKey, players: Tensor) -> Tensor:
        """[n, A] action values; the policy plays with the weights at the start of this iteration."""
        c, number = self.config, torch.arange(len(states), device=self.device)
        positions = (states, number, None)
        if self.playouts == "bot" and c.plies < 0:
            values: Tensor = self.search.action_values(positions, c.completions, rng_key)
            return values
        budget = (c.completions, c.plies)
        if self.playouts == "bot":
            players = torch.full_like(players, self.search.playout_bot)
        values = self.search.policy_values(positions, budget, rng_key, players, self.network)
        return values
