"""Encoders, against torch.nn.LSTM and torch.distributions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import distributions

from rematch.agents.networks import history_encoders
from rematch.agents.networks.layout import BELIEF, LATENT, MIXTURE

N, STEPS, NUMBERS, WIDE = 7, 5, 3, 6


def weights(ways: tuple[str, ...]) -> dict[str, torch.Tensor]:
    torch.manual_seed(len(ways))
    shapes: dict[str, tuple[int, ...]] = {}
    for way in ways:
        shapes |= {f"encoder.{way}.input.weight": (4 * WIDE, NUMBERS), f"encoder.{way}.bias": (4 * WIDE,)}
        shapes |= {f"encoder.{way}.state.weight": (4 * WIDE, WIDE)}
    for name, size in (("latent", LATENT), ("belief", MIXTURE * BELIEF)):
        shapes |= {f"encoder.{name}.weight": (size, 2 * WIDE), f"encoder.{name}.bias": (size,)}
    return {name: torch.randn(shape, dtype=torch.float64).requires_grad_() for name, shape in shapes.items()}


def history() -> torch.Tensor:
    torch.manual_seed(9)
    return torch.randn(N, STEPS, NUMBERS, dtype=torch.float64)


@pytest.mark.parametrize("ways", [("forward",), ("forward", "backward")])
def test_reading_is_torchs_lstm(ways: tuple[str, ...]) -> None:
    w, both = weights(ways), len(ways) == 2
    theirs = torch.nn.LSTM(NUMBERS, WIDE, batch_first=True, bidirectional=both).double()
    with torch.no_grad():
        for way, end in zip(ways, ("", "_reverse")):
            getattr(theirs, f"weight_ih_l0{end}").copy_(w[f"encoder.{way}.input.weight"])
            getattr(theirs, f"weight_hh_l0{end}").copy_(w[f"encoder.{way}.state.weight"])
            getattr(theirs, f"bias_ih_l0{end}").copy_(w[f"encoder.{way}.bias"])
            getattr(theirs, f"bias_hh_l0{end}").zero_()
    out, _ = theirs(history())
    last = torch.cat([out[:, -1, :WIDE], out[:, 0, WIDE:]], -1)  # each way where it has read everything
    assert torch.allclose(history_encoders.read(w, ways, history()), last, atol=1e-12)


@pytest.mark.parametrize("encoder", ["lstm", "bimdn"])
def test_every_step_of_a_history_counts_and_so_does_their_order(encoder: str) -> None:
    w, seen = weights(("forward", "backward")), history().requires_grad_()
    code, _ = history_encoders.encode(w, encoder, seen)
    (slope,) = torch.autograd.grad(code.sum(), seen)
    assert (slope.abs().sum(-1) > 0).all()
    swapped = seen.detach()[:, [1, 0, *range(2, STEPS)]]
    assert ((history_encoders.encode(w, encoder, swapped)[0] - code).abs().sum(-1) > 1e-6).all()


def test_a_belief_is_torchs_mixture() -> None:
    _, belief = history_encoders.encode(weights(("forward", "backward")), "bimdn", history())
    assert belief is not None and belief.mean.shape == (N, MIXTURE, 2)
    place = torch.randn(N, 2, dtype=torch.float64)
    each = distributions.Independent(distributions.Normal(belief.mean, belief.log_sd.exp()), 1)
    theirs: Any = distributions.MixtureSameFamily(distributions.Categorical(logits=belief.log_weight), each)
    assert torch.allclose(belief.nll(place), -theirs.log_prob(place))
    assert (belief.log_sd > history_encoders.NARROW).all() and (belief.log_sd < history_encoders.BROAD).all()


def test_towers_read_a_belief_and_do_not_pull_at_it() -> None:
    w = weights(("forward", "backward"))
    code, belief = history_encoders.encode(w, "bimdn", history())
    assert belief is not None
    told = code[:, LATENT:]
    assert torch.allclose(told[:, :MIXTURE], belief.log_weight.exp())
    assert torch.equal(told[:, MIXTURE:], belief.mean.flatten(1))
    slopes = torch.autograd.grad(code.sum(), list(w.values()), allow_unused=True)
    still = {name for name, slope in zip(w, slopes) if slope is None or not slope.any()}
    assert still == {"encoder.belief.weight", "encoder.belief.bias"}
    _, belief = history_encoders.encode(w, "bimdn", history())
    assert belief is not None
    slopes = torch.autograd.grad(belief.nll(torch.zeros(N, 2)).sum(), list(w.values()), allow_unused=True)
    still = {name for name, slope in zip(w, slopes) if slope is None or not slope.any()}
    assert still == {"encoder.latent.weight", "encoder.latent.bias"}
