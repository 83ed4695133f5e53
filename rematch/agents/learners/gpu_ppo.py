"""State of a PPO learner on the GPU: weights, moments and magnet, with copies on the host for checkpoints."""

from __future__ import annotations

from torch import Tensor

from rematch.agents.learners.ppo import Ppo
from rematch.agents.policy import Policy
from rematch.core.arrays import Floats, Tree


class GpuPpo(Ppo):
    """The learner of one role; a subclass says how arrays are copied, and how it learns."""

    name = "ppo"
    weights: Tensor
    first: Tensor  # moments of Adam
    second: Tensor
    magnet_tensor: Tensor

    def send(self) -> None:
        """Copy weights, moments and magnet from the host to the GPU."""
        raise NotImplementedError

    def fetch(self) -> None:
        """The inverse of `send`."""
        raise NotImplementedError

    def pairs(self) -> list[tuple[Tensor, Floats]]:
        """Tensors of the GPU, each with its array of the host."""
        return [
            (self.weights, self.policy.weights),
            (self.first, self.adam.first),
            (self.second, self.adam.second),
            (self.magnet_tensor, self.magnet),
        ]

    def load_weights(self, policy: Policy) -> None:
        super().load_weights(policy)
        self.send()

    def state_dict(self) -> Tree:
        self.fetch()
        return super().state_dict()

    def load_state_dict(self, tree: Tree) -> None:
        super().load_state_dict(tree)
        self.send()

    def finish(self) -> str:
        self.fetch()  # the mean becomes the policy of the GPU too, or the next `fetch` would undo it
        line = super().finish()
        self.send()
        return line
