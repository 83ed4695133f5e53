"""Encoders of an observation history [n, L steps, D numbers], in torch, from a policy's flat weights.

`lstm` returns the last output of an LSTM (Hochreiter and Schmidhuber 1997). `bimdn` is a bidirectional LSTM
that returns a latent and a belief: a mixture of Gaussians (Bishop 1994) for the position of the opponent.
The belief is trained on the opponent's true position, a privileged field. The towers read its weights and
means without a gradient, so that the policy loss does not change the belief.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from rematch.agents.networks.layout import MIXTURE

HALF_LOG_2PI = 0.9189385332046727
MIN_LOG_SD, MAX_LOG_SD = -4.0, 1.0  # bounds of the log standard deviation of a Gaussian

Weights = Mapping[str, Tensor]


@dataclass
class Belief:
    """A mixture of K two-dimensional Gaussians for each of n rows."""

    log_weight: Tensor  # [n, K]
    mean: Tensor  # [n, K, 2]
    log_sd: Tensor  # [n, K, 2]

    def nll(self, position: Tensor) -> Tensor:
        """[n] negative log-likelihood of true positions [n, 2]."""
        z = (position[:, None] - self.mean) * torch.exp(-self.log_sd)
        each = (-0.5 * z * z - self.log_sd - HALF_LOG_2PI).sum(-1)
        return -torch.logsumexp(self.log_weight + each, -1)


def lstm_outputs(w: Weights, directions: tuple[str, ...], history: Tensor) -> Tensor:
    """[n, H * directions] the last output of each direction; as torch.nn.LSTM, with one bias."""
    if history.device.type != "cpu":  # cuDNN's LSTM cannot have other weights in every tile
        return torch.cat([lstm_steps(w, direction, history) for direction in directions], -1)
    recurrent = w[f"encoder.{directions[0]}.state.weight"]
    start = history.new_zeros(len(directions), history.shape[0], recurrent.shape[1])
    params = []
    for direction in directions:
        bias = w[f"encoder.{direction}.bias"]
        params += [w[f"encoder.{direction}.input.weight"], w[f"encoder.{direction}.state.weight"]]
        params += [bias, torch.zeros_like(bias)]
    bidirectional = len(directions) == 2
    _, last, _ = torch.lstm(history, (start, start), params, True, 1, 0.0, False, bidirectional, True)
    return torch.cat(last.unbind(0), -1)


def lstm_steps(w: Weights, direction: str, history: Tensor) -> Tensor:
    """[n, H] as `lstm_outputs` for one direction, step by step."""
    inputs = linear(history, w[f"encoder.{direction}.input.weight"], w[f"encoder.{direction}.bias"])
    state = w[f"encoder.{direction}.state.weight"]
    output = cell = history.new_zeros(history.shape[0], state.shape[1])
    steps = inputs.unbind(1) if direction == "forward" else inputs.unbind(1)[::-1]
    for step in steps:
        i, f, g, o = (step + linear(output, state)).chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        output = o.sigmoid() * cell.tanh()
    return output


def encode(w: Weights, encoder: str, history: Tensor) -> tuple[Tensor, Belief | None]:
    """The code [n, C], an input of the towers beside the other columns, and the belief of bimdn."""
    if encoder == "lstm":
        return lstm_outputs(w, ("forward",), history), None
    outputs = lstm_outputs(w, ("forward", "backward"), history)
    latent = torch.tanh(linear(outputs, w["encoder.latent.weight"], w["encoder.latent.bias"]))
    raw = linear(outputs, w["encoder.belief.weight"], w["encoder.belief.bias"])
    logit, mean, spread = torch.split(raw, [MIXTURE, 2 * MIXTURE, 2 * MIXTURE], -1)
    log_sd = MIN_LOG_SD + (MAX_LOG_SD - MIN_LOG_SD) * torch.sigmoid(spread)
    shape = (-1, MIXTURE, 2)
    belief = Belief(logit.log_softmax(-1), mean.reshape(shape), log_sd.reshape(shape))
    code = torch.cat([latent, logit.softmax(-1).detach(), mean.detach()], -1)
    return code, belief
