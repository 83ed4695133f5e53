"""Settings of the networks that PPO, lookahead and expert iteration train."""

from __future__ import annotations

from dataclasses import dataclass

from rematch.core.config import knob
from rematch.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The network of every role: a policy head and a value head."""

    kind: str = knob(
        "mlp", "architecture of the network; mlp: fully connected layers; transformer: self-attention over "
        "tokens (PyTorch, slower)", choices=("mlp", "transformer"),
    )  # fmt: skip
    module: str = knob(
        "", "user-defined network that replaces the built-in one: module:Class or file.py:Class of a "
        "torch.nn.Module", needs="kind=mlp",
    )  # fmt: skip
    width: int = knob(
        256, "embedding size of a transformer token", unit="units", low=1, high=4096,
        needs="kind=transformer",
    )  # fmt: skip
    heads: int = knob(
        8, "attention heads per layer; they divide the token width among them", unit="heads", low=1,
        needs="kind=transformer",
    )  # fmt: skip
    layers: int = knob(4, "attention layers", unit="layers", low=1, high=64, needs="kind=transformer")
    dropout: float = knob(
        0.1, "dropout probability in gradient steps", low=0, high=0.9, needs="kind=transformer"
    )
    embedding: int = knob(
        64, "embedding size of a categorical column before its projection to the token width", unit="units",
        low=1, high=4096, needs="kind=transformer",
    )  # fmt: skip
    device: str = knob(
        "cpu", "device of the transformer in games on the processor: evaluations, and training without "
        "device cuda; cpu: the processor; cuda: the NVIDIA GPU", choices=("cpu", "cuda"),
        needs="kind=transformer",
    )  # fmt: skip
    hidden: tuple[int, ...] = knob(
        (64, 64), "widths of the hidden layers", unit="units", low=1, high=4096, needs="kind=mlp"
    )
    activation: str = knob(
        "tanh", "activation function of the hidden layers; tanh: hyperbolic tangent; relu: rectified linear "
        "unit", choices=("tanh", "relu"), needs="kind=mlp",
    )  # fmt: skip
    critic: str = knob(
        "own", "input of the value head; own: the observation of the seat; centralized: in training also the "
        "privileged observation (centralized critic)", choices=("own", "centralized"), needs="kind=mlp",
    )  # fmt: skip
    shared: bool = knob(
        True, "policy and value share the hidden layers; false: each has its own hidden layers",
        needs="critic=own",
    )  # fmt: skip
    table: bool = knob(
        False, "tabular policy: separate logits for each value of a categorical column, no shared weights; "
        "needs one hidden layer and shared = false", needs="kind=mlp",
    )  # fmt: skip
    fourier: int = knob(
        0, "octaves of Fourier features (sine and cosine) added to each input number; 0: none",
        unit="octaves", low=0, high=8, needs="kind=mlp",
    )  # fmt: skip
    log_std: float = knob(-0.5, "initial log standard deviation of continuous actions", low=-5, high=2)
    log_std_low: float = knob(
        -2.0, "lower bound of the log standard deviation; it keeps a minimum of exploration", low=-5, high=2
    )
    log_std_high: float = knob(0.5, "upper bound of the log standard deviation", low=-5, high=2)
    encoder: str = knob(
        "mlp", "encoder of the observation field `history`; mlp: no encoder, its numbers are plain inputs; "
        "lstm: a bidirectional LSTM; bimdn: that LSTM with a mixture density for the opponent's position "
        "(belief)", choices=("mlp", "lstm", "bimdn"), needs="kind=mlp",
    )  # fmt: skip
    encoder_hidden: int = knob(
        64, "width of the encoder's LSTM in each direction", unit="units", low=1, high=1024,
        needs="encoder=lstm|bimdn",
    )  # fmt: skip
    belief_weight: float = knob(
        0.5, "weight of the belief loss: negative log-likelihood of the opponent's position", low=0,
        needs="encoder=bimdn",
    )  # fmt: skip

    @property
    def reads_privileged(self) -> bool:
        """Whether training reads privileged fields."""
        return self.critic == "centralized" or self.encoder == "bimdn"

    @property
    def in_torch(self) -> bool:
        """Whether the network is computed by torch instead of agents/networks/fused.h."""
        return self.encoder != "mlp" or self.kind == "transformer" or bool(self.module)

    @property
    def one_tower(self) -> bool:
        """Whether policy and value share their hidden layers."""
        return self.shared and self.critic == "own"

    def check(self) -> None:
        for name, default in (("critic", "own"), ("encoder", "mlp"), ("table", False)):
            if self.module and getattr(self, name) != default:
                raise ConfigError(f"{name} = {getattr(self, name)}: not with network.module; expected "
                                  f"{default}")
        if self.kind == "transformer":
            if self.width % self.heads:
                raise ConfigError(f"heads = {self.heads}: expected a divisor of width = {self.width}")
            for name, value, default in (("critic", self.critic, "own"), ("encoder", self.encoder, "mlp")):
                if value != default:
                    raise ConfigError(f"{name} = {value}: not with kind transformer; expected {default}")
        if not 1 <= len(self.hidden) <= 8:
            raise ConfigError(f"hidden = {list(self.hidden)}: expected one to eight layers")
        if self.table and self.one_tower:
            raise ConfigError("table = true: a tabular policy shares no weights; "
                              "expected critic = centralized or shared = false")
        if self.table and (len(self.hidden) != 1 or self.encoder != "mlp"):
            raise ConfigError("table = true: expected one hidden layer and no encoder")
        if not self.log_std_low <= self.log_std <= self.log_std_high:
            raise ConfigError(
                f"log_std = {self.log_std:g}: expected between log_std_low {self.log_std_low:g} "
                f"and log_std_high {self.log_std_high:g}"
            )
