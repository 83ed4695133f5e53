"""Temporal differences of sequences: n-step returns, double Q, and the gradient of the Huber loss."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from rematch.agents.learners.q_policy import QPolicy, shown
from rematch.agents.learners.replay_buffer import ENV, Batch
from rematch.agents.networks.cuda_graphs import Given
from rematch.core.arrays import Bytes, Floats
from rematch.core.world import CUT_OFF, RUNNING

if TYPE_CHECKING:
    from rematch.agents.learners.dqn import DqnConfig

CHUNK = 8  # sequences to a thread: results do not depend on how many threads there are
BLIND = 16  # the same without pictures: small steps of a loop, for which threads only wait for each other


def paid(reward: Mapping[str, Floats], ended: Bytes, weights: Mapping[str, float]) -> Floats:
    """Total reward [B, S - 1]: the world's own, and each weighted term of the observation that the step led
    to in its episode. reward: name -> [B, S]; weights: of the terms, in the order in which they are added.
    """
    running = ended[:, :-1] == RUNNING
    terms = np.zeros(running.shape, np.float32)
    for name, weight in weights.items():
        terms += np.float32(weight) * (reward[name][:, 1:] * running)
    return np.asarray(reward[ENV][:, :-1] + terms, np.float32)


def returns(
    reward: Floats, ended: Bytes, n: int, gamma: float
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Of steps 0 .. S - n - 1: the sum of n rewards, the weight of what follows, whether it may be learnt.

    reward [B, S - 1], ended [B, S]. A decided end is worth nothing more. What a cut-off episode would have
    led to is not on the tape: a sum that meets a cut is not learnt from.
    """
    steps = ended.shape[1] - n
    total = np.zeros((len(ended), steps), np.float32)
    weight, known = np.ones_like(total), np.ones(total.shape, bool)
    for k in range(n):
        over = ended[:, k : k + steps]
        total += weight * reward[:, k : k + steps]
        known &= ~((over == CUT_OFF) & (weight > 0))
        weight = np.where(over == RUNNING, weight * np.float32(gamma), np.float32(0))
    return total, weight, known


@dataclass
class Lesson:
    """A batch with what its learnt steps [B, L] are to be worth."""

    batch: Batch
    total: Floats
    weight: Floats
    counts: Floats  # [B, L] the share of each step in the loss; 0: not learnt from

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that the loss is computed from, each [B, ...], pictures stacked; `begins`: of an episode."""
        b = self.batch
        begins = np.concatenate([np.zeros_like(b.ended[:, :1]), b.ended[:, :-1] != RUNNING], 1)
        out = b.seen.arrays() | {"begins": begins.astype(np.float32), "memory": b.memory, "action": b.action,
                                 "legal": b.legal, "total": self.total, "weight": self.weight,
                                 "counts": self.counts}  # fmt: skip
        stack = stacked(b)
        return out if stack is None else out | {"frames": stack}


def stacked(batch: Batch) -> Bytes | None:
    """[B, S, H, W, STACK] each picture with the two before it in its episode, newest first.

    In bytes and in the order that convolutions like, once for both networks: stacking floats took longer
    than looking at them.
    """
    frames, past = batch.seen.frames, batch.past
    if frames is None or past is None:
        return None
    out = np.empty((*frames.shape, 3), np.uint8)
    out[..., 0] = frames
    out[:, 1:, ..., 1], out[:, 0, ..., 1] = frames[:, :-1], past[:, 1]
    out[:, 1:, ..., 2], out[:, 0, ..., 2] = out[:, :-1, ..., 1], past[:, 0]
    for b, t in np.argwhere(batch.ended[:, :-1] != RUNNING):
        out[b, t + 1, ..., 1:] = 0
        out[b, t + 2 : t + 3, ..., 2] = 0
    return out


Shown = tuple[Tensor | None, tuple[Tensor, Tensor | None], Tensor]


def show(given: Given, burn_in: int) -> list[Shown]:
    """What both networks look at, made once, the burn-in first: see `shown`; and where episodes begin."""
    cuts = (slice(burn_in), slice(burn_in, None)) if burn_in else (slice(None),)
    return [(*shown(given, cut), given["begins"][:, cut]) for cut in cuts]


def unroll(policy: QPolicy, seen: list[Shown], memory: Tensor) -> Tensor:
    """Q [B, S - burn_in, A] along sequences from the stored memory, which first burns in, no gradient."""
    for frames, rest, begins in seen[:-1]:
        with torch.no_grad():
            _, memory, _ = policy.net(frames, rest, memory, begins)
    frames, rest, begins = seen[-1]
    q: Tensor = policy.net(frames, rest, memory, begins)[0]
    return q


def followed(given: Given, best: Tensor, greedy: Tensor, config: DqnConfig) -> Tensor:
    """Q(lambda) along a sequence, n being 1: [B, L] what steps are worth, each looking as far as it may.

    G[t] = r[t] + gamma ((1 - c) best[t] + c G[t + 1]), best[t] being Q of what step t led to, and c = `trace`
    where the step after was the best one known (Watkins 1989: others say nothing of the best), else 0. With
    `trace_cut` better also where G[t + 1] > best[t]: where nothing is left to chance, what was once got
    can be got again, so it bounds Q from below (He et al. 2017).
    """
    trace, better = config.trace_lambda, config.trace_cut == "better"
    weight, known = given["weight"], given["counts"] > 0
    goal = given["total"] + weight * best
    for t in range(goal.shape[1] - 2, -1, -1) if trace else ():
        gain = goal[:, t + 1] - best[:, t]
        on = greedy[:, t] | (gain > 0) if better else greedy[:, t]
        goal[:, t] += weight[:, t] * trace * gain * (on & known[:, t + 1])
    return goal


def difference(
    online: QPolicy, target: QPolicy, given: Given, config: DqnConfig
) -> tuple[Tensor, Tensor]:
    """What steps are worth less what they should be [B, L], and Q of what was done.

    Double Q (van Hasselt et al. 2016): the online network names the best next action, the target's says what
    it is worth. Advantage learning (Bellemare et al. 2016, eq. 6): what is not the best loses `gap` times
    what it already lacks, so that gaps grow to 1 / (1 - gap) of what they are; the best stays the best.
    """
    steps, burn_in = given["total"].shape[1], config.burn_in
    seen, memory = show(given, burn_in), given["memory"]
    q = unroll(online, seen, memory)
    done, ahead = slice(steps), slice(q.shape[1] - steps, None)  # n steps later
    legal, action = given["legal"][:, burn_in:], given["action"][:, burn_in:, None]
    with torch.no_grad():
        other = unroll(target, seen, memory)
        judge = (q if config.double else other)[:, ahead].masked_fill(~legal[:, ahead], -torch.inf)
        named = judge.argmax(2, keepdim=True)
        best = other[:, ahead].gather(2, named)[..., 0]
        greedy = (action[:, ahead] == named)[..., 0] | (config.trace_cut == "always")
        goal = followed(given, best, greedy, config)
        if config.advantage_gap:
            before = other[:, done]
            most = before.masked_fill(~legal[:, done], -torch.inf).amax(2)
            goal -= config.advantage_gap * (most - before.gather(2, action[:, done])[..., 0])
    worth = q[:, done].gather(2, action[:, done])[..., 0]
    return worth - goal, worth


def slope(given: Given, online: QPolicy, target: QPolicy, config: DqnConfig) -> tuple[Tensor, ...]:
    """The gradient [P] of the Huber loss, |TD error| [B, L], and sums: loss, error, Q."""
    delta, q = difference(online, target, given, config)
    counts = given["counts"]
    loss = (functional.huber_loss(delta, torch.zeros_like(delta), reduction="none") * counts).sum()
    found = torch.autograd.grad(loss, list(online.net.parameters()))
    error = delta.detach().abs()
    sums = torch.stack([loss.detach(), (error * counts).sum(), (q.detach() * counts).sum()])
    return torch.cat([g.flatten() for g in found]), error, sums


def gradient(
    online: QPolicy, target: QPolicy, lesson: Lesson, config: DqnConfig, threads: int
) -> tuple[Floats, Floats, dict[str, float]]:
    """The gradient [P] of the loss, |TD error| [B, L] and sums that are logged; chunks are added in order."""
    arrays = lesson.arrays()

    def of(cut: slice) -> list[NDArray[Any]]:
        torch.set_num_threads(1)  # of the calling thread
        return online.compute(slope, {name: x[cut] for name, x in arrays.items()}, online, target, config)

    size = CHUNK if online.senses.picture else BLIND
    if online.device.type != "cpu":
        size = len(lesson.total)
    cuts = [slice(at, at + size) for at in range(0, len(lesson.total), size)]
    if len(cuts) == 1 or threads == 1:
        parts = [of(cut) for cut in cuts]
    else:
        with ThreadPoolExecutor(min(threads, len(cuts))) as pool:
            parts = list(pool.map(of, cuts))
    grad, told = parts[0][0], parts[0][2].astype(np.float64)
    for more, _, sums in parts[1:]:
        grad, told = grad + more, told + sums
    means = dict(zip(("loss", "td_error", "q_mean"), told.tolist()))
    return np.ascontiguousarray(grad), np.concatenate([part[1] for part in parts]), means
