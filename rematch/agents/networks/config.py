"""Settings of the networks that PPO, lookahead and expert iteration train."""

from __future__ import annotations

from dataclasses import dataclass

from rematch.core.config import knob
from rematch.core.errors import ConfigError


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


def one_tower(config: NetworkConfig) -> bool:
    """Whether policy and value share their hidden layers."""
    return config.shared and config.critic == "own"
