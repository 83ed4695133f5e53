"""Q networks as policies and players: weights in one flat vector, memory handed in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.networks.layout import named
from rematch.agents.networks.observation_codec import LEVELS, Senses
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.errors import ConfigError
from rematch.core.player import Decision, RngKey, Seat
from rematch.core.spec import Role

if TYPE_CHECKING:
    from torch import Tensor

    from rematch.agents.learners.dqn import DqnConfig
    from rematch.agents.networks.cuda_graphs import Given

Luck = NDArray[np.float64]

BLOCK = 16  # games that are looked at together: an answer depends on its own row alone


def shown(given: Given, cut: slice = slice(None)) -> tuple[Tensor | None, tuple[Tensor, Tensor | None]]:
    """Steps `cut` of what was seen, as the network takes it: pictures and (numbers, visited) in floats.

    Bytes are cut before they become floats, which each network would have to copy. Stacked pictures
    [B, T, H, W, STACK] are shown as [B, T, STACK, H, W].
    """
    frames, visited = given.get("frames"), given.get("visited")
    if frames is not None:
        frames = frames[:, cut].float().div_(LEVELS)
        frames = frames.permute(0, 1, 4, 2, 3) if frames.dim() == 5 else frames
    seen = None if visited is None else visited[:, cut].float()
    return frames, (given["numbers"][:, cut].contiguous(), seen)


class QPolicy(Policy):
    """One role's Q network (agents/networks/q_network.py). `weights` [P] are the network's own on the CPU."""

    def __init__(self, role: Role, config: DqnConfig, name: str) -> None:
        import torch

        from rematch.agents.networks.cuda_graphs import Recorder
        from rematch.agents.networks.q_network import Hierarchy

        if config.device == "cuda":
            if not torch.cuda.is_available():
                raise ConfigError("dqn.device = cuda: torch finds no CUDA device here; expected cpu")
            torch.backends.cudnn.deterministic = True
        self.role, self.name, self.greedy = role, name, False
        self.config: Any = config
        self.senses = s = Senses(role)
        self.net = Hierarchy(s.shape, s.side, s.categories, role.actions.size, config)
        self.layout, at = [], 0
        for key, parameter in self.net.named_parameters():
            self.layout.append((key, tuple(parameter.shape), at))
            at += parameter.numel()
        self.size = self.packed_size = at
        self.network: Any = self  # what tables ask of a network: its size
        self.weights = np.zeros(at, np.float32)
        self.device = torch.device(config.device)
        self.compute = Recorder(self.device)
        self.flat = torch.from_numpy(self.weights).to(self.device)  # on the CPU the very same memory
        self.net.bind(self.flat)
        self.hidden, self.carried = self.net.memory, self.net.carried

    def set(self, weights: Floats) -> None:
        import torch

        if weights.shape != self.weights.shape:
            raise ConfigError(f"policy {self.name}: {weights.size} weights, expected {self.weights.size}")
        if weights is not self.weights:
            self.weights[:] = weights
        if self.device.type != "cpu":
            self.flat.copy_(torch.from_numpy(self.weights))

    def initialise(self, seed: int) -> None:
        """He et al. (2015) before a ReLU, orthogonal within a memory, small heads, decays spread evenly."""
        from rematch.agents.networks.q_network import FASTEST, SLOWEST

        for i, (name, view) in enumerate(named(self.weights, self.layout).items()):
            draw = rng.generator(seed, rng.INIT, i)
            if name.endswith("fading"):  # 1 - a spread evenly in its logarithm
                away = np.geomspace(1 - FASTEST, 1 - SLOWEST, len(view))
                view[:] = np.log(-np.log1p(-away))
            elif name.endswith("angle"):
                view[:] = np.linspace(0, np.pi / 10, len(view))
            elif view.ndim == 1:
                norm = "norms." in name or name.startswith(("mixed.", "firsts."))
                view[:] = 1.0 if norm and name.endswith("weight") else 0.0
                if name == "layers.lstm.look.bias":
                    view.reshape(4, -1)[1] = 1.0  # of the forget gate (Jozefowicz et al. 2015)
            elif name.endswith("recall.weight"):
                width = view.shape[1]
                for gate in view.reshape(-1, width, width):
                    gate[:] = np.linalg.qr(draw.standard_normal((width, width)))[0]
            else:
                inputs = 1 if name == "table.weight" else view[0].size
                small = ("value.weight", "advantage.weight", "table.weight")  # names mean nothing as yet
                gain = 0.1 if name in small else 2.0**0.5
                view[:] = draw.standard_normal(view.shape) * gain / max(1, inputs) ** 0.5
        self.set(self.weights)

    def look(self, obs: Floats, recurrent_state: Floats) -> tuple[Floats, Floats]:
        """Sight [n, F] and memory [n, M] before it -> Q [n, A] and memory after."""
        import torch

        torch.set_num_threads(1)  # of the calling thread: rollouts have threads of their own
        q = np.empty((len(obs), self.role.actions.size), np.float32)
        after = np.empty_like(recurrent_state)
        for at in range(0, len(obs), BLOCK):
            part = slice(at, min(at + BLOCK, len(obs)))
            n = part.stop - at
            rows, carried = (np.zeros((BLOCK, 1, x.shape[1]), np.float32) for x in (obs, recurrent_state))
            rows[:n, 0], carried[:n, 0] = obs[part], recurrent_state[part]
            arrays = self.senses.unpack(self.senses.pack(rows)).arrays() | {"memory": carried[:, 0]}
            said, new = self.compute(self._answer, arrays)
            q[part], after[part] = said[:n, 0], new[:n]
        return q, after

    def _answer(self, given: Given) -> tuple[Tensor, Tensor]:
        """Q [B, 1, A] of one step, and the memory after it."""
        import torch

        with torch.no_grad():
            begins = torch.zeros_like(given["numbers"][..., 0])
            said, new, _ = self.net(*shown(given), given["memory"], begins)
        return said, new


def choose(q: Floats, mask: Bytes | None, epsilon: Luck | float, luck: Luck) -> Ints:
    """The best legal action, or with chance epsilon any legal one; one number of luck [n] decides both."""
    legal = np.ones(q.shape, bool) if mask is None else mask != 0
    best = np.where(legal, q, -np.inf).argmax(1)
    chance = np.broadcast_to(np.asarray(epsilon, np.float64), luck.shape)
    at = np.floor(luck / np.maximum(chance, 1e-12) * legal.sum(1))
    any_legal = (np.cumsum(legal, 1) <= at[:, None]).sum(1)
    return np.asarray(np.where(luck < chance, any_legal, best), np.int32)


def lucky(seat: Seat, rng_key: RngKey) -> Luck:
    games = (seat.world.first + np.asarray(seat.rows)).astype(np.int64)
    own = rng.key(rng_key.seed, rng_key.stream, seat.seat)
    return rng.units(own, rng_key.stream, int(games.max(initial=-1)) + 1, rng_key.step)[games]


class QPlayer:
    """As deployed: nearly greedy, memory carried by whoever seats it (spec.Player); None is a new episode."""

    def __init__(self, policy: QPolicy, epsilon: float) -> None:
        self.policy, self.epsilon, self.greedy, self.name = policy, epsilon, False, policy.name

    @property
    def weights(self) -> Floats:
        return self.policy.weights

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        if recurrent_state is None:
            recurrent_state = np.zeros((len(seat.rows), self.policy.carried), np.float32)
        q, after = self.policy.look(seat.obs, recurrent_state)
        action = choose(q, seat.mask, 0.0 if self.greedy else self.epsilon, lucky(seat, rng_key))
        return Decision(action, value=q.max(1), recurrent_state=after, scores=q)


class Explorer:
    """Who plays in training: a memory per game across rollouts, a rung of the epsilon ladder per game.

    It notes the memory before every step that is a multiple of `stride`: there sequences begin.
    """

    def __init__(self, policy: QPolicy, games: int, steps: int, stride: int, ladder: Luck) -> None:
        self.policy, self.name, self.stride = policy, policy.name, stride
        self.recurrent_state: Floats = np.zeros((games, policy.carried), np.float32)
        self.noted: Floats = np.zeros((steps // stride + 2, games, policy.hidden), np.float32)
        self.ladder = ladder  # [games] exponents
        self.epsilon = 1.0

    @property
    def explore_rates(self) -> Luck:
        """[games] how often each tries something (Horgan et al. 2018, section 4.1)."""
        return np.asarray(self.epsilon**self.ladder)

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        games = seat.world.first + np.asarray(seat.rows)
        began = seat.world.view.ended[seat.rows] != 0  # the step before was an episode's last
        self.recurrent_state[games[began]] = 0
        before = self.recurrent_state[games]
        if rng_key.step % self.stride == 0:
            self.noted[rng_key.step // self.stride % len(self.noted), games] = before[:, : self.policy.hidden]
        q, self.recurrent_state[games] = self.policy.look(seat.obs, before)
        action = choose(q, seat.mask, self.explore_rates[games], lucky(seat, rng_key))
        return Decision(action, value=q.max(1))

    def notes(self, first: int, last: int) -> Floats:
        """[k, games, hidden] what was noted before steps first .. last - 1."""
        numbers = np.arange(-(-first // self.stride), -(-last // self.stride))
        return self.noted[numbers % len(self.noted)]

    def forget(self, games: NDArray[Any]) -> None:
        """These games begin anew."""
        self.recurrent_state[games] = 0
