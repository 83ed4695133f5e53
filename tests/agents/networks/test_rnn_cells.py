"""GRU and LSTM with written-out derivatives, beside plain loops that autograd follows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rematch.agents.networks.rnn_cells import Gru, GruSteps, Lstm, LstmSteps


def gru_loop(layer: Any, x: Tensor, memory: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    out, both = [], 2 * layer.width  # the two gates come first
    for seen, kept in zip(layer.look(x).unbind(1), keep.unbind(1)):
        memory = memory * kept
        known = layer.recall(memory)
        reset, update = torch.sigmoid(seen[:, :both] + known[:, :both]).chunk(2, 1)
        new = torch.tanh(seen[:, both:] + reset * known[:, both:])
        memory = (1 - update) * new + update * memory
        out.append(memory)
    return torch.stack(out, 1), memory


def lstm_loop(layer: Any, x: Tensor, memory: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    out = []
    said, cell = memory.chunk(2, 1)
    for seen, kept in zip(layer.look(x).unbind(1), keep.unbind(1)):
        said, cell = said * kept, cell * kept
        gates = seen + layer.recall(said)
        take, forget, tell = torch.sigmoid(gates[:, : 3 * layer.width]).chunk(3, 1)
        cell = forget * cell + take * torch.tanh(gates[:, 3 * layer.width :])
        said = tell * torch.tanh(cell)
        out.append(said)
    return torch.stack(out, 1), torch.cat([said, cell], 1)


@pytest.mark.parametrize("steps", [1, 2, 13])
@pytest.mark.parametrize(("kind", "loop"), [(Gru, gru_loop), (Lstm, lstm_loop)])
def test_outputs_and_gradients_are_those_of_the_loop(kind: Any, loop: Any, steps: int) -> None:
    torch.manual_seed(steps)
    layer = kind(5, 7).double()
    x = torch.randn(4, steps, 5, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(4, layer.memory, dtype=torch.float64, requires_grad=True)
    keep = (torch.rand(4, steps, 1) > 0.3).double()
    what = [x, memory, *layer.parameters()]
    found = []
    for play in (layer, lambda *given: loop(layer, *given)):
        out, after = play(x, memory, keep)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
        loss = (out * weights).sum() + (after * after).sum()
        found.append([out, after, *torch.autograd.grad(loss, what)])
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    assert all(grad.abs().max() > 0 for grad in found[0][2:])


def test_derivatives_by_differences() -> None:
    torch.manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    keep = torch.tensor([[1.0, 0, 1], [1, 1, 1]], dtype=torch.float64)[..., None]
    assert torch.autograd.gradcheck(GruSteps.apply, (some(2, 3, 9), some(2, 3), keep, some(9, 3), some(9)))
    given = (some(2, 3, 12), some(2, 3), some(2, 3), keep, some(12, 3))
    assert torch.autograd.gradcheck(LstmSteps.apply, given)


def test_nothing_passes_a_beginning() -> None:
    torch.manual_seed(0)
    layer = Gru(2, 3)
    memory = torch.randn(1, 3, requires_grad=True)
    keep = torch.tensor([[[0.0], [1.0]]])
    (grad,) = torch.autograd.grad(layer(torch.randn(1, 2, 2), memory, keep)[0].sum(), memory)
    assert not grad.any()
