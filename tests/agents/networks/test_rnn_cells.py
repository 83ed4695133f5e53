"""GRU and LSTM with hand-written derivatives, compared with plain loops and autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rematch.agents.networks.rnn_cells import Gru, GruSteps, Lstm, LstmSteps


def gru_loop(layer: Any, x: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    out, both = [], 2 * layer.width  # the two gates come first
    for projected, keep_t in zip(layer.input(x).unbind(1), keep.unbind(1)):
        state = state * keep_t
        recurrent = layer.recurrent(state)
        reset, update = torch.sigmoid(projected[:, :both] + recurrent[:, :both]).chunk(2, 1)
        new = torch.tanh(projected[:, both:] + reset * recurrent[:, both:])
        state = (1 - update) * new + update * state
        out.append(state)
    return torch.stack(out, 1), state


def lstm_loop(layer: Any, x: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    out = []
    hidden, cell = state.chunk(2, 1)
    for projected, keep_t in zip(layer.input(x).unbind(1), keep.unbind(1)):
        hidden, cell = hidden * keep_t, cell * keep_t
        gates = projected + layer.recurrent(hidden)
        input_gate, forget_gate, output_gate = torch.sigmoid(gates[:, : 3 * layer.width]).chunk(3, 1)
        cell = forget_gate * cell + input_gate * torch.tanh(gates[:, 3 * layer.width :])
        hidden = output_gate * torch.tanh(cell)
        out.append(hidden)
    return torch.stack(out, 1), torch.cat([hidden, cell], 1)


@pytest.mark.parametrize("steps", [1, 2, 13])
@pytest.mark.parametrize(("kind", "loop"), [(Gru, gru_loop), (Lstm, lstm_loop)])
def test_outputs_and_gradients_are_those_of_the_loop(kind: Any, loop: Any, steps: int) -> None:
    torch.manual_seed(steps)
    layer = kind(5, 7).double()
    x = torch.randn(4, steps, 5, dtype=torch.float64, requires_grad=True)
    state = torch.randn(4, layer.recurrent_size, dtype=torch.float64, requires_grad=True)
    keep = (torch.rand(4, steps, 1) > 0.3).double()
    tensors = [x, state, *layer.parameters()]
    results = []
    for cell in (layer, lambda *arguments: loop(layer, *arguments)):
        out, after = cell(x, state, keep)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
        loss = (out * weights).sum() + (after * after).sum()
        results.append([out, after, *torch.autograd.grad(loss, tensors)])
    for ours, expected in zip(*results):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-10)
    assert all(grad.abs().max() > 0 for grad in results[0][2:])


def test_derivatives_equal_finite_differences() -> None:
    torch.manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    keep = torch.tensor([[1.0, 0, 1], [1, 1, 1]], dtype=torch.float64)[..., None]
    gru = (random(2, 3, 9), random(2, 3), keep, random(9, 3), random(9))
    assert torch.autograd.gradcheck(GruSteps.apply, gru)
    lstm = (random(2, 3, 12), random(2, 3), random(2, 3), keep, random(12, 3))
    assert torch.autograd.gradcheck(LstmSteps.apply, lstm)


def test_no_gradient_passes_an_episode_start() -> None:
    torch.manual_seed(0)
    layer = Gru(2, 3)
    state = torch.randn(1, 3, requires_grad=True)
    keep = torch.tensor([[[0.0], [1.0]]])
    (grad,) = torch.autograd.grad(layer(torch.randn(1, 2, 2), state, keep)[0].sum(), state)
    assert not grad.any()
