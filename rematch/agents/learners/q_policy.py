"""Q networks as policies and players: flat weights; the recurrent state is an input and an output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.networks.layout import weight_views
from rematch.agents.networks.observation_codec import MAX_LEVEL, ObservationCodec
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Bytes, Floats, Ints, Tree, stored_array, stored_float, stored_list
from rematch.core.component import PlayState
from rematch.core.errors import ConfigError
from rematch.core.player import Decision, RngKey, Seat
from rematch.core.spec import Role

if TYPE_CHECKING:
    from torch import Tensor

    from rematch.agents.learners.dqn import DqnConfig
    from rematch.agents.networks.cuda_graphs import Inputs

Uniforms = NDArray[np.float64]

BLOCK = 16  # games per forward pass; an output depends on its own row alone


def network_inputs(
    inputs: Inputs, cut: slice = slice(None)
) -> tuple[Tensor | None, tuple[Tensor, Tensor | None]]:
    """Steps `cut` of the observations as the network reads them: frames and (numbers, visited) in floats.

    Bytes are cut before they become floats, which saves a copy. Stacked frames [B, T, H, W, STACK] become
    [B, T, STACK, H, W].
    """
    frames, visited = inputs.get("frames"), inputs.get("visited")
    if frames is not None:
        frames = frames[:, cut].float().div_(MAX_LEVEL)
        frames = frames.permute(0, 1, 4, 2, 3) if frames.dim() == 5 else frames
    visited = None if visited is None else visited[:, cut].float()
    return frames, (inputs["numbers"][:, cut].contiguous(), visited)


class QPolicy(Policy):
    """One role's Q network (agents/networks/q_network.py). `weights` [P] are the network's own on the CPU."""

    def __init__(self, role: Role, config: DqnConfig, name: str) -> None:
        import torch

        from rematch.agents.networks.cuda_graphs import Recorder
        from rematch.agents.networks.q_network import QNetwork

        if config.device == "cuda":
            if not torch.cuda.is_available():
                raise ConfigError("dqn.device = cuda: torch finds no CUDA device; expected cpu")
            torch.backends.cudnn.deterministic = True
        self.role, self.name, self.greedy = role, name, False
        self.config: Any = config
        self.codec = codec = ObservationCodec(role)
        self.net = QNetwork(codec.shape, codec.visited_side, codec.categories, role.actions.size, config)
        self.layout, at = [], 0
        for key, parameter in self.net.named_parameters():
            self.layout.append((key, tuple(parameter.shape), at))
            at += parameter.numel()
        self.size = self.packed_size = at
        self.network: Any = self  # for callers that read network.size
        self.weights = np.zeros(at, np.float32)
        self.device = torch.device(config.device)
        self.compute = Recorder(self.device)
        self.flat = torch.from_numpy(self.weights).to(self.device)  # on the CPU the same memory
        self.net.bind(self.flat)
        self.recurrent_size, self.state_size = self.net.recurrent_size, self.net.state_size

    def set(self, weights: Floats) -> None:
        import torch

        if weights.shape != self.weights.shape:
            raise ConfigError(f"policy {self.name}: {weights.size} weights, expected {self.weights.size}")
        if weights is not self.weights:
            self.weights[:] = weights
        if self.device.type != "cpu":
            self.flat.copy_(torch.from_numpy(self.weights))

    def initialise(self, seed: int) -> None:
        """He et al. (2015) before a ReLU, orthogonal recurrent weights, small heads, decays spread evenly."""
        from rematch.agents.networks.q_network import FASTEST_DECAY, SLOWEST_DECAY

        for i, (name, view) in enumerate(weight_views(self.weights, self.layout).items()):
            generator = rng.generator(seed, rng.INIT, i)
            if name.endswith("log_decay"):  # 1 - a spread evenly in its logarithm
                distance = np.geomspace(1 - FASTEST_DECAY, 1 - SLOWEST_DECAY, len(view))
                view[:] = np.log(-np.log1p(-distance))
            elif name.endswith("angle"):
                view[:] = np.linspace(0, np.pi / 10, len(view))
            elif view.ndim == 1:
                norm = "norms." in name or name.startswith(("input_norm.", "head_norm."))
                view[:] = 1.0 if norm and name.endswith("weight") else 0.0
                if name == "layers.lstm.input.bias":
                    view.reshape(4, -1)[1] = 1.0  # of the forget gate (Jozefowicz et al. 2015)
            elif name.endswith("recurrent.weight"):
                width = view.shape[1]
                for gate in view.reshape(-1, width, width):
                    gate[:] = np.linalg.qr(generator.standard_normal((width, width)))[0]
            else:
                fan_in = 1 if name == "embedding.weight" else view[0].size
                small = ("value.weight", "advantage.weight", "embedding.weight")
                gain = 0.1 if name in small else 2.0**0.5
                view[:] = generator.standard_normal(view.shape) * gain / max(1, fan_in) ** 0.5
        self.set(self.weights)

    def q_values(self, obs: Floats, recurrent_state: Floats) -> tuple[Floats, Floats]:
        """Observations [n, F] and recurrent states [n, M] -> Q [n, A] and the states after the step."""
        import torch

        torch.set_num_threads(1)  # of the calling thread: rollouts use several threads
        q = np.empty((len(obs), self.role.actions.size), np.float32)
        after = np.empty_like(recurrent_state)
        for at in range(0, len(obs), BLOCK):
            part = slice(at, min(at + BLOCK, len(obs)))
            n = part.stop - at
            rows, states = (np.zeros((BLOCK, 1, x.shape[1]), np.float32) for x in (obs, recurrent_state))
            rows[:n, 0], states[:n, 0] = obs[part], recurrent_state[part]
            arrays = self.codec.unpack(self.codec.pack(rows)).arrays()
            arrays["recurrent_state"] = states[:, 0]
            q_block, states_after = self.compute(self._step, arrays)
            q[part], after[part] = q_block[:n, 0], states_after[:n]
        return q, after

    def _step(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Q [B, 1, A] of one step, and the recurrent state after it."""
        import torch

        with torch.no_grad():
            episode_start = torch.zeros_like(inputs["numbers"][..., 0])
            q, state, _ = self.net(*network_inputs(inputs), inputs["recurrent_state"], episode_start)
        return q, state


def epsilon_greedy(q: Floats, mask: Bytes | None, epsilon: Uniforms | float, uniform: Uniforms) -> Ints:
    """The best legal action, with probability epsilon any legal one; uniform [n] in [0, 1) decides both."""
    legal = np.ones(q.shape, bool) if mask is None else mask != 0
    best = np.where(legal, q, -np.inf).argmax(1)
    probability = np.broadcast_to(np.asarray(epsilon, np.float64), uniform.shape)
    index = np.floor(uniform / np.maximum(probability, 1e-12) * legal.sum(1))
    any_legal = (np.cumsum(legal, 1) <= index[:, None]).sum(1)
    return np.asarray(np.where(uniform < probability, any_legal, best), np.int32)


def uniform_numbers(seat: Seat, rng_key: RngKey) -> Uniforms:
    """[n] one uniform random number per row."""
    games = (seat.world.first + np.asarray(seat.rows)).astype(np.int64)
    seat_key = rng.key(rng_key.seed, rng_key.stream, seat.seat)
    return rng.units(seat_key, rng_key.stream, int(games.max(initial=-1)) + 1, rng_key.step)[games]


class QPlayer:
    """The deployed player: nearly greedy. The caller stores the recurrent state; None: a new episode."""

    def __init__(self, policy: QPolicy, epsilon: float) -> None:
        self.policy, self.epsilon, self.greedy, self.name = policy, epsilon, False, policy.name

    @property
    def weights(self) -> Floats:
        return self.policy.weights

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        if recurrent_state is None:
            recurrent_state = np.zeros((len(seat.rows), self.policy.state_size), np.float32)
        q, after = self.policy.q_values(seat.obs, recurrent_state)
        epsilon = 0.0 if self.greedy else self.epsilon
        action = epsilon_greedy(q, seat.mask, epsilon, uniform_numbers(seat, rng_key))
        return Decision(action, value=q.max(1), recurrent_state=after, scores=q)


@dataclass
class Frozen:
    """What a rollout that is played ahead of the learner reads."""

    policy: QPolicy
    epsilon: float
    recurrent_state: Floats  # before the rollout


class EpsilonGreedyPlayer:
    """The player of training games: it keeps the recurrent state of each game; each game has its own epsilon.

    It stores the recurrent state before every step that is a multiple of `stride`: sequences start there.
    `steps` are those of all rollouts whose states are stored at the same time. With a lag it plays from
    copies that `freeze` makes of the policy and of epsilon: the learner changes both meanwhile.
    """

    def __init__(self, policy: QPolicy, games: int, steps: int, stride: int, exponents: Uniforms) -> None:
        self.policy, self.name, self.stride = policy, policy.name, stride
        self.frozen: Frozen | None = None  # with a lag
        self.recurrent_state: Floats = np.zeros((games, policy.state_size), np.float32)
        self.stored_states: Floats = np.zeros((steps // stride + 2, games, policy.recurrent_size), np.float32)
        self.recorded: set[int] | None = None  # numbers of `stored_states`, since a PlayState was loaded
        self.exponents = exponents  # [games] of epsilon
        self.epsilon = 1.0

    @property
    def epsilons(self) -> Uniforms:
        """[games] probability of a random action (Horgan et al. 2018, section 4.1)."""
        return np.asarray(self.epsilon**self.exponents)

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        games = seat.world.first + np.asarray(seat.rows)
        episode_start = seat.world.view.ended[seat.rows] != 0  # the previous step ended an episode
        self.recurrent_state[games[episode_start]] = 0
        before = self.recurrent_state[games]
        if rng_key.step % self.stride == 0:
            number = rng_key.step // self.stride
            if self.recorded is not None:
                self.recorded.add(number)
            index = number % len(self.stored_states)
            self.stored_states[index, games] = before[:, : self.policy.recurrent_size]
        policy, epsilons = self.policy, self.epsilons
        if self.frozen is not None:
            policy, epsilons = self.frozen.policy, self.frozen.epsilon**self.exponents
        q, self.recurrent_state[games] = policy.q_values(seat.obs, before)
        action = epsilon_greedy(q, seat.mask, epsilons[games], uniform_numbers(seat, rng_key))
        return Decision(action, value=q.max(1))

    def freeze(self) -> None:
        """Before a rollout that is played while the learner learns."""
        assert self.frozen is not None
        self.frozen.policy.set(self.policy.weights)
        self.frozen.epsilon, self.frozen.recurrent_state = self.epsilon, self.recurrent_state.copy()

    def states_before(self, first: int, last: int) -> Floats:
        """[k, games, recurrent_size] the states stored before steps first .. last - 1."""
        numbers = np.arange(-(-first // self.stride), -(-last // self.stride))
        return self.stored_states[numbers % len(self.stored_states)]

    def forget(self, games: NDArray[Any]) -> None:
        """Clear the state of these games: they start a new episode."""
        self.recurrent_state[games] = 0


class EpsilonGreedyState(PlayState):
    """What the player of training games reads and changes: weights, epsilon and recurrent states."""

    def __init__(self, player: EpsilonGreedyPlayer) -> None:
        self.player = player

    def shared(self) -> Tree:
        player = self.player
        if player.frozen is not None:
            return {"weights": player.frozen.policy.weights, "epsilon": player.frozen.epsilon}
        return {"weights": player.policy.weights, "epsilon": player.epsilon}

    def load_shared(self, tree: Tree) -> None:
        self.player.policy.set(stored_array(tree, "weights", self.player.policy.weights))
        self.player.epsilon = stored_float(tree, "epsilon", 0, 1)
        self.player.recorded = set()

    def inputs(self, games: slice) -> Tree:
        return {"recurrent_state": self.player.recurrent_state[games]}

    def load_inputs(self, tree: Tree, games: slice) -> None:
        rows = self.player.recurrent_state[games]
        rows[:] = stored_array(tree, "recurrent_state", rows)

    def results(self, games: slice) -> Tree:
        player, numbers = self.player, sorted(self.player.recorded or ())
        index = np.array(numbers, np.int64) % len(player.stored_states)
        return {"recurrent_state": player.recurrent_state[games], "numbers": numbers,
                "stored_states": player.stored_states[index][:, games]}

    def load_results(self, tree: Tree, games: slice) -> None:
        self.load_inputs(tree, games)
        player, numbers = self.player, np.array(stored_list(tree, "numbers"), np.int64)
        index = numbers % len(player.stored_states)
        rows = player.stored_states[index][:, games]
        player.stored_states[index, games] = stored_array(tree, "stored_states", rows)
