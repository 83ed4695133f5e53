"""Policies: players that are networks. Weights are one flat float32 vector with named views.

One vector makes everything else short: a digest, a rival's slot, an optimiser, a checkpoint and an
average of policies are all operations on one array. Acting is done by agents/networks/fused.h;
agents/networks/mlp.py is the
same network in torch, for reading and for checking. A network with an encoder is
agents/networks/torch_network.py, in torch.

Two names of fields mean something here: an encoder reads `history`, a field with a shape [steps, numbers];
`bimdn` learns where the opponent is from `other`, a field aside with two columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.networks import fused
from rematch.core import rng
from rematch.core.config import ConfigError, knob
from rematch.core.native_build import refuse_stale
from rematch.core.spec import Bytes, Floats, Move, Noise, Role, Seat

if TYPE_CHECKING:
    from rematch.agents.networks.torch_network import Recurrent

refuse_stale("rematch.agents.networks.fused", fused.BUILD, Path(__file__).parent / "networks" / "fused.pyx")


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The network of every role, with a policy head and a value head."""

    kind: str = knob(
        "mlp", "layers that look at everything at once, or tokens that look at each other (in torch, slow)",
        choices=("mlp", "transformer"),
    )  # fmt: skip
    width: int = knob(256, "numbers of a token", low=1, high=4096, needs="kind=transformer")
    heads: int = knob(8, "heads of attention, which share the width", low=1, needs="kind=transformer")
    layers: int = knob(4, "layers of attention", low=1, high=64, needs="kind=transformer")
    dropout: float = knob(
        0.1, "share of numbers left out in a gradient step", low=0, high=0.9, needs="kind=transformer"
    )
    embedding: int = knob(
        64, "numbers of a thing that a column names, before they are widened", low=1, high=4096,
        needs="kind=transformer",
    )  # fmt: skip
    device: str = knob(
        "cpu", "where it is computed", choices=("cpu", "cuda"), needs="kind=transformer"
    )
    hidden: tuple[int, ...] = knob(
        (64, 64), "widths of the hidden layers", low=1, high=4096, needs="kind=mlp"
    )
    activation: str = knob("tanh", "between layers", choices=("tanh", "relu"), needs="kind=mlp")
    critic: str = knob(
        "own", "what a value is judged by: the seat's own sight, or in training what is aside too",
        choices=("own", "all"), needs="kind=mlp",
    )  # fmt: skip
    shared: bool = knob(
        True, "policy and value share the hidden layers (else each has its own)", needs="critic=own"
    )
    table: bool = knob(
        False, "the policy is a table: a row for each thing that is named and nothing that rows share; needs "
        "one hidden layer, and a critic apart", needs="kind=mlp",
    )  # fmt: skip
    fourier: int = knob(
        0, "octaves of sine and cosine added to each number seen", low=0, high=8, needs="kind=mlp"
    )
    log_std: float = knob(-0.5, "log standard deviation of continuous actions at the start", low=-5, high=2)
    log_std_low: float = knob(
        -2.0, "floor of log standard deviation: exploration never dies below it", low=-5, high=2
    )
    log_std_high: float = knob(0.5, "ceiling of log standard deviation", low=-5, high=2)
    encoder: str = knob(
        "mlp", "how a field `history` is read: as numbers like any other, step by step, or as a belief",
        choices=("mlp", "lstm", "bimdn"), needs="kind=mlp",
    )  # fmt: skip
    encoder_hidden: int = knob(
        64, "width of the encoder's LSTM, each way", low=1, high=1024, needs="encoder=lstm|bimdn"
    )
    belief_weight: float = knob(
        0.5, "weight of the belief's negative log-likelihood of where the opponent is", low=0,
        needs="encoder=bimdn",
    )  # fmt: skip

    @property
    def reads_aside(self) -> bool:
        """Whether it learns from fields aside."""
        return self.critic == "all" or self.encoder == "bimdn"

    @property
    def in_torch(self) -> bool:
        """Whether torch computes it, and not agents/networks/fused.h."""
        return self.encoder != "mlp" or self.kind == "transformer"

    def check(self) -> None:
        if self.kind == "transformer":
            if self.width % self.heads:
                raise ConfigError(f"heads = {self.heads}: expected a divisor of width = {self.width}")
            for name, value, usual in (("critic", self.critic, "own"), ("encoder", self.encoder, "mlp")):
                if value != usual:
                    raise ConfigError(f"{name} = {value}: not with kind transformer; expected {usual}")
        if not 1 <= len(self.hidden) <= 8:
            raise ConfigError(f"hidden = {list(self.hidden)}: expected one to eight layers")
        if self.table and one_tower(self):
            raise ConfigError("table = true: its rows share nothing; expected critic = all or shared = false")
        if self.table and (len(self.hidden) != 1 or self.encoder != "mlp"):
            raise ConfigError("table = true: expected one hidden layer, the rows themselves, and no encoder")
        if not self.log_std_low <= self.log_std <= self.log_std_high:
            raise ConfigError(
                f"log_std = {self.log_std:g}: expected between log_std_low {self.log_std_low:g} "
                f"and log_std_high {self.log_std_high:g}"
            )


Layout = list[tuple[str, tuple[int, ...], int]]  # name, shape, offset into the flat vector


MIXTURE, LATENT = 5, 32  # of bimdn: Gaussians in its belief, and the width of what else it tells
BELIEF = 5  # numbers of a Gaussian in the plane: weight, mean x and y, log standard deviation of x and y


def history(role: Role, config: NetworkConfig) -> tuple[slice, int, int]:
    """Where the encoder's field lies in a sight, its steps and its numbers per step."""
    at = 0
    for f in role.fields:
        if f.name == "history" and len(f.shape) == 2 and not f.choices:
            return slice(at, at + f.size), f.shape[0], f.shape[1]
        at += f.size
    raise ConfigError(
        f"network.encoder = {config.encoder}: {role.name} sees no field `history` with a shape (steps, "
        "numbers); expected mlp"
    )


def opponent(role: Role) -> slice:
    """Where the true place of the opponent lies in what is aside."""
    at = 0
    for f in role.aside:
        if f.name == "other" and f.size == 2:
            return slice(at, at + 2)
        at += f.size
    raise ConfigError(
        f"network.encoder = bimdn: {role.name} has no field `other` of two columns aside; expected lstm"
    )


def plain(role: Role, config: NetworkConfig) -> list[bool]:
    """Which columns of a sight the towers look at themselves: all but what an encoder reads."""
    where = slice(0, 0) if config.encoder == "mlp" else history(role, config)[0]
    return [not where.start <= column < where.stop for column in range(role.size)]


def layout(role: Role, config: NetworkConfig) -> Layout:
    """Names, shapes and offsets of a role's weights, in the order fused.h keeps them; an encoder's first.

    What a role cannot have is refused: an encoder without a history, a critic of things aside without any.
    """
    entries: list[tuple[str, tuple[int, ...]]] = []
    if config.kind == "transformer":
        return offsets(transformer(role, config))

    def dense(name: str, inputs: int, outputs: int) -> None:
        entries.append((f"{name}.weight", (outputs, inputs)))
        entries.append((f"{name}.bias", (outputs,)))

    code, wide = 0, config.encoder_hidden
    if config.encoder != "mlp":
        _, _, numbers = history(role, config)
        for way in ("forward", "backward")[: 1 + (config.encoder == "bimdn")]:  # torch.nn.LSTM's, one bias
            entries.append((f"encoder.{way}.input.weight", (4 * wide, numbers)))
            entries.append((f"encoder.{way}.state.weight", (4 * wide, wide)))
            entries.append((f"encoder.{way}.bias", (4 * wide,)))
        code = wide
    if config.encoder == "bimdn":
        opponent(role)
        dense("encoder.latent", 2 * wide, LATENT)
        dense("encoder.belief", 2 * wide, MIXTURE * BELIEF)
        code = LATENT + MIXTURE * 3  # weights and means of the belief: agents/networks/history_encoders.py

    def tower(name: str, choices: tuple[int, ...]) -> None:
        inputs = choices.count(0) * (1 + 2 * config.fourier) + code
        for i, width in enumerate(config.hidden):
            dense(f"{name}.{i}", config.hidden[i - 1] if i else inputs, width)
            if i == 0 and any(choices):
                entries.append((f"{name}.0.table", (sum(choices), width)))

    seen = tuple(n for n, here in zip(role.choices, plain(role, config)) if here)
    if config.table and not any(seen):
        raise ConfigError(f"network.table = true: {role.name} sees nothing that is named; expected false")
    tower("trunk" if one_tower(config) else "policy", seen)
    dense("policy.head", config.hidden[-1], role.actions.size)
    if not one_tower(config):
        tower("value", seen + aside(role, config))
    dense("value.head", config.hidden[-1], 1)
    if role.actions.kind == "continuous":
        entries.append(("policy.log_std", (role.actions.size,)))
    return offsets(entries)


def offsets(entries: list[tuple[str, tuple[int, ...]]]) -> Layout:
    out: Layout = []
    offset = 0
    for name, shape in entries:
        out.append((name, shape, offset))
        offset += int(np.prod(shape))
    return out


def quantities(role: Role) -> list[tuple[str, list[int]]]:
    """(field, columns of a sight) for every field that measures something."""
    out, at = [], 0
    for f in role.fields:
        columns = [at + i for i in range(f.size) if not (f.choices and f.choices[i])]
        if columns:
            out.append((f.name, columns))
        at += f.size
    return out


def transformer(role: Role, config: NetworkConfig) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the weights of agents/networks/transformer.py."""
    wide, names = config.width, [n for n in role.choices if n]
    entries: list[tuple[str, tuple[int, ...]]] = []

    def dense(name: str, inputs: int, outputs: int) -> None:
        entries.extend([(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))])

    if names:
        entries.append(("embed.table", (sum(names), config.embedding)))
        dense("embed", config.embedding, wide)
    for name, columns in quantities(role):
        dense(f"field.{name}", len(columns), wide)
    entries.append(("place.table", (len(names) + len(quantities(role)) + 1, wide)))
    for layer in range(config.layers):
        at = f"layer.{layer}"
        entries += [(f"{at}.first.scale", (wide,)), (f"{at}.first.bias", (wide,))]
        dense(f"{at}.ask", wide, 3 * wide)
        dense(f"{at}.told", wide, wide)
        entries += [(f"{at}.second.scale", (wide,)), (f"{at}.second.bias", (wide,))]
        dense(f"{at}.up", wide, 4 * wide)
        dense(f"{at}.down", 4 * wide, wide)
    entries += [("last.scale", (wide,)), ("last.bias", (wide,))]
    dense("policy.head", wide, role.actions.size)
    dense("value.head", wide, 1)
    if role.actions.kind == "continuous":
        entries.append(("policy.log_std", (role.actions.size,)))
    return entries


def one_tower(config: NetworkConfig) -> bool:
    return config.shared and config.critic == "own"


def aside(role: Role, config: NetworkConfig) -> tuple[int, ...]:
    """`Role.aside_choices` where the critic looks at them, else nothing."""
    if config.critic == "own":
        return ()
    if not role.aside:
        raise ConfigError(f"network.critic = all: the world has nothing aside for {role.name}; expected own")
    return role.aside_choices


def named(weights: Floats, where: Layout) -> dict[str, Floats]:
    """The flat vector as named views of itself."""
    return {name: weights[at : at + int(np.prod(shape))].reshape(shape) for name, shape, at in where}


HEAD = ("policy.head.weight", "policy.head.bias")
SHARED = ("policy.0.weight", "policy.0.bias", *HEAD)  # of a policy that is a table: they stay as they began
ROW_GAIN, ROW_START = 3.0, 0.02  # length of its head's directions; how small rows begin: play is near uniform
MOST_WEIGHTS = 1 << 26  # fused.h counts them, padded, in 32 bits


def network(role: Role, config: NetworkConfig) -> fused.Network | Recurrent:
    size = sum(int(np.prod(shape)) for _, shape, _ in layout(role, config))
    if size > MOST_WEIGHTS:
        wide = str(config.width) if config.kind == "transformer" else ",".join(map(str, config.hidden))
        key = "width" if config.kind == "transformer" else "hidden"
        raise ConfigError(f"network.{key} = {wide}: {size:,} weights; expected at most {MOST_WEIGHTS:,}")
    if config.in_torch:
        from rematch.agents.networks.torch_network import Recurrent

        return Recurrent(role, config)
    shape = (role.choices, role.actions.size, role.actions.kind == "discrete")
    more = aside(role, config)
    return fused.Network(
        *shape, config.hidden, one_tower(config), config.activation, config.fourier, more
    )


def digest(weights: Floats) -> str:
    return hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()


class Policy:
    """One role's network with weights [P]; `act` samples unless `greedy`."""

    def __init__(self, role: Role, config: NetworkConfig, name: str, weights: Floats | None = None) -> None:
        self.role, self.config, self.name = role, config, name
        self.network = network(role, config)
        self.layout = layout(role, config)
        self.weights: Floats = np.zeros(self.network.size, np.float32)
        self.packed: Floats = np.zeros((1, self.network.packed_size), np.float32)
        self.greedy = False
        if weights is not None:
            self.set(weights)

    def set(self, weights: Floats) -> None:
        if weights.shape != self.weights.shape:
            raise ConfigError(f"policy {self.name}: {weights.size} weights, expected {self.weights.size}")
        if weights is not self.weights:
            self.weights[:] = weights
        self.network.pack(self.weights[None], self.packed)

    def hold(self, grad: Floats) -> None:
        """No slope [P] for weights that do not learn: what the rows of a table would share."""
        if self.config.table:
            for name in SHARED:
                named(grad, self.layout)[name][:] = 0.0

    def tempered(self, temperature: float) -> Floats:
        """Weights [P] of the policy whose logits are this one's divided by `temperature`."""
        weights = self.weights.copy()
        for name in HEAD:
            named(weights, self.layout)[name] /= np.float32(temperature)
        return weights

    def initialise(self, seed: int) -> None:
        """Orthogonal weights (Saxe et al. 2014); a small policy head, so that play starts near uniform."""
        gain = 2.0**0.5
        for i, (name, view) in enumerate(named(self.weights, self.layout).items()):
            if name == "policy.log_std":
                view[:] = self.config.log_std
            elif name.endswith(".table"):  # each sight adds one row per column that names something
                more = aside(self.role, self.config) if name == "value.0.table" else ()
                names = sum(n > 0 for n in self.role.choices + more)
                draw = rng.generator(seed, rng.INIT, i).standard_normal(view.shape)
                view[:] = draw / max(1, names) ** 0.5
                if self.config.table and name == "policy.0.table":
                    view *= np.float32(ROW_START)
            elif self.config.table and name == "policy.0.weight":
                view[:] = 0.0  # numbers are not looked at
            elif name == "encoder.belief.bias":  # Gaussians that begin alike would stay alike
                view[:] = 0.5 * rng.generator(seed, rng.INIT, i).standard_normal(view.shape)
            elif name.endswith(".weight") and view.size:
                rows, columns = view.shape
                draw = rng.generator(seed, rng.INIT, i).standard_normal(
                    (max(rows, columns), min(rows, columns))
                )
                q, r = np.linalg.qr(draw)
                q = q * np.sign(np.diag(r))
                scale = {"policy.head.weight": 0.01, "value.head.weight": 1.0}.get(name, gain)
                scale = 1.0 if name.startswith(("encoder.", "layer.", "embed.", "field.")) else scale
                scale = ROW_GAIN if self.config.table and name == "policy.head.weight" else scale
                view[:] = scale * (q if rows >= columns else q.T)
            else:
                view[:] = 0.0
                if name in ("encoder.forward.bias", "encoder.backward.bias"):
                    view.reshape(4, -1)[1] = 1.0  # of the forget gate (Jozefowicz et al. 2015)
        self.set(self.weights.copy())

    def act(self, seat: Seat, noise: Noise, memory: NDArray[Any] | None = None) -> Move:
        """Sampled actions for n rows; draws are named by (noise, game number)."""
        n, role = len(seat.rows), self.role
        discrete = role.actions.kind == "discrete"
        action: NDArray[Any] = (
            np.zeros(n, np.int32) if discrete else np.zeros((n, role.actions.size), np.float32)
        )
        logp, value = np.zeros(n, np.float32), np.zeros(n, np.float32)
        key = rng.key(noise.seed, noise.stream, seat.seat)
        number = (seat.rows + seat.world.first).astype(np.uint32)
        self.network.act(
            self.packed,
            np.zeros(n, np.int32),
            seat.sight,
            number,
            (key, noise.step),
            action,
            logp,
            value,
            mask=seat.mask,
            greedy=self.greedy,
        )
        return Move(action, logp, value if self.config.critic == "own" else None)

    def forward(
        self, sight: Floats, mask: Bytes | None = None, aside: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Means or logits [n, A] and values [n]; 0 from a critic of what is aside that is not told it."""
        n, size = len(sight), self.role.actions.size
        discrete = self.role.actions.kind == "discrete"
        action: NDArray[Any] = np.zeros(n, np.int32) if discrete else np.zeros((n, size), np.float32)
        heads, logp, value = np.zeros((n, size), np.float32), np.zeros(n, np.float32), np.zeros(n, np.float32)
        slot, number = np.zeros(n, np.int32), np.zeros(n, np.uint32)
        self.network.act(
            self.packed, slot, sight, number, (0, 0), action, logp, value,
            mask=mask, heads=heads, greedy=True, aside=aside,
        )  # fmt: skip
        return heads, value

    def chances(self, seat: Seat) -> Floats:
        """[n, A] the probabilities that `act` draws a discrete action from."""
        if self.role.actions.kind != "discrete":
            raise ConfigError(f"policy {self.name}: continuous actions have densities, not chances")
        logits = self.forward(np.ascontiguousarray(seat.sight), seat.mask)[0].astype(np.float64)
        if seat.mask is not None:
            logits[seat.mask == 0] = -np.inf
        if self.greedy:
            return np.asarray(np.arange(logits.shape[1]) == logits.argmax(1)[:, None], np.float32)
        out = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(out / out.sum(1, keepdims=True), np.float32)

    def arrays(self) -> dict[str, Floats]:
        """Named copies, for a file."""
        return {name: view.copy() for name, view in named(self.weights, self.layout).items()}

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        flat = self.weights.copy()
        for name, view in named(flat, self.layout).items():
            if name not in arrays or arrays[name].shape != view.shape or arrays[name].dtype != np.float32:
                raise ConfigError(
                    f"policy {self.name}: {name} of shape {view.shape} is missing or has another shape"
                )
            view[:] = arrays[name]
        if not np.isfinite(flat).all():
            raise ConfigError(f"policy {self.name}: weights are not finite")
        self.set(flat)
