"""Encoders: what a history [n, L steps, D numbers] comes to, in torch, from a policy's own flat weights.

`lstm` hands on the last output of an LSTM (Hochreiter and Schmidhuber 1997). `bimdn` reads the history from
both ends and hands on a latent and a belief: a mixture of Gaussians (Bishop 1994) of where the opponent is.
The belief is taught the opponent's true place, which no player sees; the towers read its weights and means
without pulling at them, so that it stays a belief and is not bent into a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from rematch.agents.networks.layout import MIXTURE

HALF_LOG_2PI = 0.9189385332046727
NARROW, BROAD = -4.0, 1.0  # bounds of a Gaussian's log standard deviation: no place is ever quite certain

Weights = Mapping[str, Tensor]


@dataclass
class Belief:
    """A mixture of K Gaussians in the plane for each of n rows."""

    log_weight: Tensor  # [n, K]
    mean: Tensor  # [n, K, 2]
    log_sd: Tensor  # [n, K, 2]

    def nll(self, place: Tensor) -> Tensor:
        """[n] negative log-likelihood of true places [n, 2]."""
        z = (place[:, None] - self.mean) * torch.exp(-self.log_sd)
        each = (-0.5 * z * z - self.log_sd - HALF_LOG_2PI).sum(-1)
        return -torch.logsumexp(self.log_weight + each, -1)


def read(w: Weights, ways: tuple[str, ...], history: Tensor) -> Tensor:
    """[n, H * ways] the last outputs of an LSTM per way: torch.nn.LSTM with one bias and the same gates."""
    inner = w[f"encoder.{ways[0]}.state.weight"]
    start = history.new_zeros(len(ways), len(history), inner.shape[1])
    params = []
    for way in ways:
        bias = w[f"encoder.{way}.bias"]
        params += [w[f"encoder.{way}.input.weight"], w[f"encoder.{way}.state.weight"]]
        params += [bias, torch.zeros_like(bias)]
    both = len(ways) == 2
    _, last, _ = torch.lstm(history, (start, start), params, True, 1, 0.0, False, both, True)
    return torch.cat(last.unbind(0), -1)


def encode(w: Weights, encoder: str, history: Tensor) -> tuple[Tensor, Belief | None]:
    """The code [n, C] that stands beside the other numbers of a sight, and the belief of bimdn."""
    if encoder == "lstm":
        return read(w, ("forward",), history), None
    told = read(w, ("forward", "backward"), history)
    latent = torch.tanh(linear(told, w["encoder.latent.weight"], w["encoder.latent.bias"]))
    raw = linear(told, w["encoder.belief.weight"], w["encoder.belief.bias"])
    logit, mean, spread = torch.split(raw, [MIXTURE, 2 * MIXTURE, 2 * MIXTURE], -1)
    log_sd = NARROW + (BROAD - NARROW) * torch.sigmoid(spread)
    shape = (len(raw), MIXTURE, 2)
    belief = Belief(logit.log_softmax(-1), mean.reshape(shape), log_sd.reshape(shape))
    code = torch.cat([latent, logit.softmax(-1).detach(), mean.detach()], -1)
    return code, belief
