"""Encoders, against torch.nn.LSTM and torch.distributions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import distributions

from rematch.agents.networks import history_encoders
from rematch.agents.networks.layout import GAUSSIAN_SIZE, LATENT, MIXTURE

N, STEPS, NUMBERS, WIDTH = 7, 5, 3, 6


def weights(directions: tuple[str, ...]) -> dict[str, torch.Tensor]:
    torch.manual_seed(len(directions))
    shapes: dict[str, tuple[int, ...]] = {}
    for direction in directions:
        shapes[f"encoder.{direction}.input.weight"] = (4 * WIDTH, NUMBERS)
        shapes[f"encoder.{direction}.bias"] = (4 * WIDTH,)
        shapes[f"encoder.{direction}.state.weight"] = (4 * WIDTH, WIDTH)
    for name, size in (("latent", LATENT), ("belief", MIXTURE * GAUSSIAN_SIZE)):
        shapes |= {f"encoder.{name}.weight": (size, 2 * WIDTH), f"encoder.{name}.bias": (size,)}
    return {name: torch.randn(shape, dtype=torch.float64).requires_grad_() for name, shape in shapes.items()}


def history() -> torch.Tensor:
    torch.manual_seed(9)
    return torch.randn(N, STEPS, NUMBERS, dtype=torch.float64)


@pytest.mark.parametrize("directions", [("forward",), ("forward", "backward")])
def test_lstm_outputs_equal_torch(directions: tuple[str, ...]) -> None:
    w, bidirectional = weights(directions), len(directions) == 2
    reference = torch.nn.LSTM(NUMBERS, WIDTH, batch_first=True, bidirectional=bidirectional).double()
    with torch.no_grad():
        for direction, end in zip(directions, ("", "_reverse")):
            getattr(reference, f"weight_ih_l0{end}").copy_(w[f"encoder.{direction}.input.weight"])
            getattr(reference, f"weight_hh_l0{end}").copy_(w[f"encoder.{direction}.state.weight"])
            getattr(reference, f"bias_ih_l0{end}").copy_(w[f"encoder.{direction}.bias"])
            getattr(reference, f"bias_hh_l0{end}").zero_()
    out, _ = reference(history())
    last = torch.cat([out[:, -1, :WIDTH], out[:, 0, WIDTH:]], -1)  # each direction after its last step
    assert torch.allclose(history_encoders.lstm_outputs(w, directions, history()), last, atol=1e-12)
    steps = [history_encoders.lstm_steps(w, direction, history()) for direction in directions]
    assert torch.allclose(torch.cat(steps, -1), last, atol=1e-12)


@pytest.mark.parametrize("encoder", ["lstm", "bimdn"])
def test_code_depends_on_every_step_and_on_their_order(encoder: str) -> None:
    w, inputs = weights(("forward", "backward")), history().requires_grad_()
    code, _ = history_encoders.encode(w, encoder, inputs)
    (grad,) = torch.autograd.grad(code.sum(), inputs)
    assert (grad.abs().sum(-1) > 0).all()
    swapped = inputs.detach()[:, [1, 0, *range(2, STEPS)]]
    assert ((history_encoders.encode(w, encoder, swapped)[0] - code).abs().sum(-1) > 1e-6).all()


def test_belief_equals_torch_mixture() -> None:
    _, belief = history_encoders.encode(weights(("forward", "backward")), "bimdn", history())
    assert belief is not None and belief.mean.shape == (N, MIXTURE, 2)
    position = torch.randn(N, 2, dtype=torch.float64)
    each = distributions.Independent(distributions.Normal(belief.mean, belief.log_sd.exp()), 1)
    weights_of = distributions.Categorical(logits=belief.log_weight)
    reference: Any = distributions.MixtureSameFamily(weights_of, each)
    assert torch.allclose(belief.nll(position), -reference.log_prob(position))
    assert (belief.log_sd > history_encoders.MIN_LOG_SD).all()
    assert (belief.log_sd < history_encoders.MAX_LOG_SD).all()


def test_code_has_no_gradient_into_the_belief() -> None:
    w = weights(("forward", "backward"))
    code, belief = history_encoders.encode(w, "bimdn", history())
    assert belief is not None
    belief_code = code[:, LATENT:]
    assert torch.allclose(belief_code[:, :MIXTURE], belief.log_weight.exp())
    assert torch.equal(belief_code[:, MIXTURE:], belief.mean.flatten(1))
    grads = torch.autograd.grad(code.sum(), list(w.values()), allow_unused=True)
    without_gradient = {name for name, grad in zip(w, grads) if grad is None or not grad.any()}
    assert without_gradient == {"encoder.belief.weight", "encoder.belief.bias"}
    _, belief = history_encoders.encode(w, "bimdn", history())
    assert belief is not None
    grads = torch.autograd.grad(belief.nll(torch.zeros(N, 2)).sum(), list(w.values()), allow_unused=True)
    without_gradient = {name for name, grad in zip(w, grads) if grad is None or not grad.any()}
    assert without_gradient == {"encoder.latent.weight", "encoder.latent.bias"}
