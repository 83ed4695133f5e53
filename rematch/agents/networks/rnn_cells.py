"""GRU and LSTM along a sequence in which episodes begin anew: `keep` clears the memory before such a step.

The loops over time are written out with their derivatives, each operation into memory that is there already:
by autograd's own book-keeping an update took twice as long. What needs no loop (the inputs' share, the
gradients of the weights) is one product for all steps. tests/agents/networks/test_rnn_cells.py has both as
plain loops.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Steps = tuple[Tensor, ...]  # views of a [T, B, n], one a step


def by_step(x: Tensor) -> Steps:
    """[B, T, n] -> T times [B, n], each of them contiguous."""
    return x.transpose(0, 1).contiguous().unbind(0)


def blank(like: Tensor, steps: int, width: int) -> tuple[Tensor, Steps]:
    """Memory for so many steps, whole and step by step."""
    whole = like.new_empty(steps, like.shape[0], width)
    return whole, whole.unbind(0)


def recall_slope(weights: Tensor, change: Tensor, before: Tensor) -> Tensor:
    """Gradient of W in W m + ..., summed over steps: [gates, width]."""
    slope: Tensor = change.flatten(0, 1).t() @ before.flatten(0, 1)
    return slope.view_as(weights)


class GruSteps(torch.autograd.Function):
    """r, z = s(u + W m), n = tanh(u + r W m), m' = n + z (m - n), m being the kept part of the memory."""

    @staticmethod
    def forward(
        ctx: Any, seen: Tensor, memory: Tensor, keep: Tensor, weights: Tensor, bias: Tensor
    ) -> Tensor:
        """seen [B, T, 3 H] (reset, update, new), memory [B, H], keep [B, T, 1] -> [B, T, H]."""
        steps, width = seen.shape[1], memory.shape[1]
        before, befores = blank(memory, steps, width)
        known, knowns = blank(memory, steps, 3 * width)
        gates, gated = blank(memory, steps, 2 * width)
        new, news = blank(memory, steps, width)
        out, outs = blank(memory, steps, width)
        across, keeps = weights.t(), by_step(keep)
        for t, u in enumerate(by_step(seen)):
            torch.mul(memory, keeps[t], out=befores[t])
            torch.addmm(bias, befores[t], across, out=knowns[t])
            torch.add(u[:, : 2 * width], knowns[t][:, : 2 * width], out=gated[t]).sigmoid_()
            reset, update = gated[t].chunk(2, 1)
            torch.addcmul(u[:, 2 * width :], reset, knowns[t][:, 2 * width :], out=news[t]).tanh_()
            memory = torch.lerp(news[t], befores[t], update, out=outs[t])
        ctx.save_for_backward(before, known[..., 2 * width :], gates, new, keep, weights)
        return out.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, ...]:
        before, known, gates, new, keep, weights = ctx.saved_tensors
        steps, width = slope.shape[1], new.shape[2]
        reset, update = gates.chunk(2, 2)
        # All but what comes back from the step after is known before the loop: d m' -> d a of each gate.
        to_new = (1 - update) * (1 - new * new)
        to_update = (before - new) * update * (1 - update)
        to_reset = known * reset * (1 - reset)
        news, updates, resets = (x.unbind(0) for x in (to_new, to_update, to_reset))
        passes, rs = update.unbind(0), reset.unbind(0)
        seen, seens = blank(new[0], steps, 3 * width)
        told, tolds = blank(new[0], steps, 3 * width)
        slopes, keeps = by_step(slope), by_step(keep)
        back = torch.zeros_like(new[0])
        for t in range(steps - 1, -1, -1):
            back = back + slopes[t]
            a_reset, a_update, a_new = seens[t].chunk(3, 1)
            torch.mul(back, news[t], out=a_new)
            torch.mul(back, updates[t], out=a_update)
            torch.mul(a_new, resets[t], out=a_reset)
            tolds[t][:, : 2 * width] = seens[t][:, : 2 * width]
            torch.mul(a_new, rs[t], out=tolds[t][:, 2 * width :])
            back = torch.addmm(back * passes[t], tolds[t], weights) * keeps[t]
        return seen.transpose(0, 1), back, None, recall_slope(weights, told, before), told.sum((0, 1))  # type: ignore[return-value]


class LstmSteps(torch.autograd.Function):
    """i, f, o = s(u + W h), g = tanh(u + W h), c' = f c + i g, h' = o tanh(c'), h and c being kept parts."""

    @staticmethod
    def forward(
        ctx: Any, seen: Tensor, said: Tensor, cell: Tensor, keep: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """seen [B, T, 4 H]: take, forget, tell, new; said, cell [B, H]; keep [B, T, 1] -> [B, T, H], cell."""
        steps, width = seen.shape[1], cell.shape[1]
        before, befores = blank(cell, steps, width)
        held, helds = blank(cell, steps, width)
        gates, gated = blank(cell, steps, 4 * width)
        curved, curves = blank(cell, steps, width)
        out, outs = blank(cell, steps, width)
        across, keeps = weights.t(), by_step(keep)
        for t, u in enumerate(by_step(seen)):
            torch.mul(said, keeps[t], out=befores[t])
            torch.mul(cell, keeps[t], out=helds[t])
            torch.addmm(u, befores[t], across, out=gated[t])
            gated[t][:, : 3 * width].sigmoid_()
            gated[t][:, 3 * width :].tanh_()
            take, forget, tell, new = gated[t].chunk(4, 1)
            cell = torch.addcmul(forget * helds[t], take, new)
            said = torch.mul(tell, torch.tanh(cell, out=curves[t]), out=outs[t])
        ctx.save_for_backward(before, held, gates, curved, keep, weights)
        return out.transpose(0, 1), cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
        before, held, gates, curved, keep, weights = ctx.saved_tensors
        steps, width = slope.shape[1], curved.shape[2]
        take, forget, tell, new = gates.chunk(4, 2)
        # d c' -> d a of take, forget and new; d h' -> d a of tell and d c'.
        to_take, to_forget = new * take * (1 - take), held * forget * (1 - forget)
        to_tell, to_new = curved * tell * (1 - tell), take * (1 - new * new)
        to_cell = tell * (1 - curved * curved)
        takes, forgets, tells, news, cells, passes = (
            x.unbind(0) for x in (to_take, to_forget, to_tell, to_new, to_cell, forget)
        )
        seen, seens = blank(curved[0], steps, 4 * width)
        slopes, keeps = by_step(slope), by_step(keep)
        back = torch.zeros_like(curved[0])
        for t in range(steps - 1, -1, -1):
            back = back + slopes[t]
            cell = torch.addcmul(cell, back, cells[t])
            a_take, a_forget, a_tell, a_new = seens[t].chunk(4, 1)
            torch.mul(cell, takes[t], out=a_take)
            torch.mul(cell, forgets[t], out=a_forget)
            torch.mul(back, tells[t], out=a_tell)
            torch.mul(cell, news[t], out=a_new)
            back = (seens[t] @ weights) * keeps[t]
            cell = cell * passes[t] * keeps[t]
        return seen.transpose(0, 1), back, cell, None, recall_slope(weights, seen, before)  # type: ignore[return-value]


class Gru(nn.Module):
    """A gated recurrent unit (Cho et al. 2014) whose memory is cleared where a step is fresh."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width, self.memory = width, width
        self.look, self.recall = nn.Linear(inputs, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, x: Tensor, memory: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, inputs], memory [B, width], keep [B, T, 1] -> outputs [B, T, width], memory after."""
        given = self.look(x), memory, keep, self.recall.weight, self.recall.bias
        out: Tensor = GruSteps.apply(*given)  # type: ignore[no-untyped-call]
        return out, out[:, -1]


class Lstm(nn.Module):
    """Long short-term memory (Hochreiter, Schmidhuber 1997); its memory is output and cell side by side."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width, self.memory = width, 2 * width
        self.look, self.recall = nn.Linear(inputs, 4 * width), nn.Linear(width, 4 * width, bias=False)

    def forward(self, x: Tensor, memory: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        said, cell = memory.chunk(2, 1)
        given = self.look(x), said, cell, keep, self.recall.weight
        out, cell = LstmSteps.apply(*given)  # type: ignore[no-untyped-call]
        return out, torch.cat([out[:, -1], cell], 1)
