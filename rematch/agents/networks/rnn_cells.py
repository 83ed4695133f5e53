"""GRU and LSTM over a sequence that may contain episode starts: there `keep` is 0 and clears the state.

The loops over time have hand-written derivatives that write into preallocated memory: with autograd an update
took twice as long. What needs no loop (the input projections, the gradients of the weights) is one product
for all steps. tests/agents/networks/test_rnn_cells.py compares both cells with plain loops.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Steps = tuple[Tensor, ...]  # views of a tensor [T, B, n], one per step


def by_step(x: Tensor) -> Steps:
    """[B, T, n] -> T times [B, n], each of them contiguous."""
    return x.transpose(0, 1).contiguous().unbind(0)


def empty_steps(like: Tensor, steps: int, width: int) -> tuple[Tensor, Steps]:
    """An uninitialised tensor [steps, B, width], and its views per step."""
    whole = like.new_empty(steps, like.shape[0], width)
    return whole, whole.unbind(0)


def recurrent_weight_grad(weights: Tensor, grad_gates: Tensor, before: Tensor) -> Tensor:
    """Gradient of W in W h + ..., summed over steps: [gates, width]."""
    grad: Tensor = grad_gates.flatten(0, 1).t() @ before.flatten(0, 1)
    return grad.view_as(weights)


class GruSteps(torch.autograd.Function):
    """r, z = s(u + W h), n = tanh(u + r W h), h' = n + z (h - n), where h is the state times `keep`."""

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, state: Tensor, keep: Tensor, weights: Tensor, bias: Tensor
    ) -> Tensor:
        """projected [B, T, 3 H] (reset, update, new), state [B, H], keep [B, T, 1] -> [B, T, H]."""
        steps, width = projected.shape[1], state.shape[1]
        before, befores = empty_steps(state, steps, width)
        recurrent, recurrents = empty_steps(state, steps, 3 * width)
        gates, gated = empty_steps(state, steps, 2 * width)
        new, news = empty_steps(state, steps, width)
        out, outs = empty_steps(state, steps, width)
        weights_t, keeps = weights.t(), by_step(keep)
        for t, u in enumerate(by_step(projected)):
            torch.mul(state, keeps[t], out=befores[t])
            torch.addmm(bias, befores[t], weights_t, out=recurrents[t])
            torch.add(u[:, : 2 * width], recurrents[t][:, : 2 * width], out=gated[t]).sigmoid_()
            reset, update = gated[t].chunk(2, 1)
            torch.addcmul(u[:, 2 * width :], reset, recurrents[t][:, 2 * width :], out=news[t]).tanh_()
            state = torch.lerp(news[t], befores[t], update, out=outs[t])
        ctx.save_for_backward(before, recurrent[..., 2 * width :], gates, new, keep, weights)
        return out.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, ...]:
        before, recurrent, gates, new, keep, weights = ctx.saved_tensors
        steps, width = grad_output.shape[1], new.shape[2]
        reset, update = gates.chunk(2, 2)
        # Derivatives of h' with respect to the pre-activation of each gate, for all steps at once.
        to_new = (1 - update) * (1 - new * new)
        to_update = (before - new) * update * (1 - update)
        to_reset = recurrent * reset * (1 - reset)
        d_new, d_update, d_reset = (x.unbind(0) for x in (to_new, to_update, to_reset))
        update_steps, reset_steps = update.unbind(0), reset.unbind(0)
        grad_projected, grad_projected_steps = empty_steps(new[0], steps, 3 * width)
        grad_recurrent, grad_recurrent_steps = empty_steps(new[0], steps, 3 * width)
        grad_outputs, keeps = by_step(grad_output), by_step(keep)
        grad_state = torch.zeros_like(new[0])
        for t in range(steps - 1, -1, -1):
            grad_state = grad_state + grad_outputs[t]
            grad_reset, grad_update, grad_new = grad_projected_steps[t].chunk(3, 1)
            torch.mul(grad_state, d_new[t], out=grad_new)
            torch.mul(grad_state, d_update[t], out=grad_update)
            torch.mul(grad_new, d_reset[t], out=grad_reset)
            grad_recurrent_steps[t][:, : 2 * width] = grad_projected_steps[t][:, : 2 * width]
            torch.mul(grad_new, reset_steps[t], out=grad_recurrent_steps[t][:, 2 * width :])
            direct = grad_state * update_steps[t]
            grad_state = torch.addmm(direct, grad_recurrent_steps[t], weights) * keeps[t]
        grad_weights = recurrent_weight_grad(weights, grad_recurrent, before)
        grad_bias = grad_recurrent.sum((0, 1))
        return grad_projected.transpose(0, 1), grad_state, None, grad_weights, grad_bias  # type: ignore[return-value]


class LstmSteps(torch.autograd.Function):
    """i, f, o = s(u + W h), g = tanh(u + W h), c' = f c + i g, h' = o tanh(c'), with h and c times `keep`."""

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """projected [B, T, 4 H]: input, forget, output, cell; hidden, cell [B, H]; keep [B, T, 1].

        Returns the outputs [B, T, H] and the cell [B, H] after the last step.
        """
        steps, width = projected.shape[1], cell.shape[1]
        before, befores = empty_steps(cell, steps, width)
        kept_cell, kept_cells = empty_steps(cell, steps, width)
        gates, gated = empty_steps(cell, steps, 4 * width)
        tanh_cell, tanh_cells = empty_steps(cell, steps, width)
        out, outs = empty_steps(cell, steps, width)
        weights_t, keeps = weights.t(), by_step(keep)
        for t, u in enumerate(by_step(projected)):
            torch.mul(hidden, keeps[t], out=befores[t])
            torch.mul(cell, keeps[t], out=kept_cells[t])
            torch.addmm(u, befores[t], weights_t, out=gated[t])
            gated[t][:, : 3 * width].sigmoid_()
            gated[t][:, 3 * width :].tanh_()
            input_gate, forget_gate, output_gate, candidate = gated[t].chunk(4, 1)
            cell = torch.addcmul(forget_gate * kept_cells[t], input_gate, candidate)
            hidden = torch.mul(output_gate, torch.tanh(cell, out=tanh_cells[t]), out=outs[t])
        ctx.save_for_backward(before, kept_cell, gates, tanh_cell, keep, weights)
        return out.transpose(0, 1), cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor, grad_cell: Tensor) -> tuple[Tensor, ...]:
        before, kept_cell, gates, tanh_cell, keep, weights = ctx.saved_tensors
        steps, width = grad_output.shape[1], tanh_cell.shape[2]
        input_gate, forget_gate, output_gate, candidate = gates.chunk(4, 2)
        # d c' -> pre-activations of input, forget and cell gate; d h' -> that of output, and d c'.
        to_input = candidate * input_gate * (1 - input_gate)
        to_forget = kept_cell * forget_gate * (1 - forget_gate)
        to_output = tanh_cell * output_gate * (1 - output_gate)
        to_candidate = input_gate * (1 - candidate * candidate)
        to_cell = output_gate * (1 - tanh_cell * tanh_cell)
        d_input, d_forget, d_output, d_candidate, d_cell, forget_steps = (
            x.unbind(0) for x in (to_input, to_forget, to_output, to_candidate, to_cell, forget_gate)
        )
        grad_projected, grad_projected_steps = empty_steps(tanh_cell[0], steps, 4 * width)
        grad_outputs, keeps = by_step(grad_output), by_step(keep)
        grad_hidden = torch.zeros_like(tanh_cell[0])
        for t in range(steps - 1, -1, -1):
            grad_hidden = grad_hidden + grad_outputs[t]
            grad_cell = torch.addcmul(grad_cell, grad_hidden, d_cell[t])
            grad_input, grad_forget, grad_out, grad_candidate = grad_projected_steps[t].chunk(4, 1)
            torch.mul(grad_cell, d_input[t], out=grad_input)
            torch.mul(grad_cell, d_forget[t], out=grad_forget)
            torch.mul(grad_hidden, d_output[t], out=grad_out)
            torch.mul(grad_cell, d_candidate[t], out=grad_candidate)
            grad_hidden = (grad_projected_steps[t] @ weights) * keeps[t]
            grad_cell = grad_cell * forget_steps[t] * keeps[t]
        grad_weights = recurrent_weight_grad(weights, grad_projected, before)
        return grad_projected.transpose(0, 1), grad_hidden, grad_cell, None, grad_weights  # type: ignore[return-value]


class Gru(nn.Module):
    """A gated recurrent unit (Cho et al. 2014) whose state is cleared at episode starts."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width, self.recurrent_size = width, width
        self.input, self.recurrent = nn.Linear(inputs, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, x: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, inputs], state [B, width], keep [B, T, 1] -> outputs [B, T, width], state after."""
        if torch.onnx.is_in_onnx_export():
            return self.traced_step(x[:, 0], state * keep[:, 0])
        arguments = self.input(x), state, keep, self.recurrent.weight, self.recurrent.bias
        out: Tensor = GruSteps.apply(*arguments)  # type: ignore[no-untyped-call]
        return out, out[:, -1]

    def traced_step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step in plain operations, for ONNX files: x [B, inputs] -> [B, 1, width], state after."""
        reset, update, new = self.input(x).chunk(3, 1)
        reset_state, update_state, new_state = self.recurrent(state).chunk(3, 1)
        candidate = torch.tanh(new + torch.sigmoid(reset + reset_state) * new_state)
        after = candidate + torch.sigmoid(update + update_state) * (state - candidate)
        return after[:, None], after


class Lstm(nn.Module):
    """Long short-term memory (Hochreiter, Schmidhuber 1997); its state is output and cell, concatenated."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width, self.recurrent_size = width, 2 * width
        self.input, self.recurrent = nn.Linear(inputs, 4 * width), nn.Linear(width, 4 * width, bias=False)

    def forward(self, x: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        hidden, cell = state.chunk(2, 1)
        if torch.onnx.is_in_onnx_export():
            return self.traced_step(x[:, 0], hidden * keep[:, 0], cell * keep[:, 0])
        arguments = self.input(x), hidden, cell, keep, self.recurrent.weight
        out, cell = LstmSteps.apply(*arguments)  # type: ignore[no-untyped-call]
        return out, torch.cat([out[:, -1], cell], 1)

    def traced_step(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step in plain operations, for ONNX files: x [B, inputs] -> [B, 1, width], state after."""
        gates = self.input(x) + self.recurrent(hidden)
        input_gate, forget_gate, output_gate, candidate = gates.chunk(4, 1)
        kept_cell = torch.sigmoid(forget_gate) * cell
        cell = kept_cell + torch.sigmoid(input_gate) * torch.tanh(candidate)
        hidden = torch.sigmoid(output_gate) * torch.tanh(cell)
        return hidden[:, None], torch.cat([hidden, cell], 1)
