"""Temporal differences of sequences: n-step returns, double Q, and the gradient of the Huber loss."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from rematch.engine.learners.qpolicy import QPolicy
from rematch.engine.learners.replay import Batch
from rematch.engine.nets.senses import LEVELS, Seen
from rematch.spec import CUT_OFF, RUNNING, Bytes, Floats

if TYPE_CHECKING:
    from rematch.engine.learners.dqn import DqnConfig

CHUNK = 8  # sequences to a thread: results do not depend on how many threads there are
BLIND = 16  # the same without pictures: small steps of a loop, for which threads only wait for each other


def paid(reward: Floats, ended: Bytes, weights: Floats) -> Floats:
    """r_total [B, S - 1]: r_env of the step, and weighted bonuses of the sight it led to in its episode.

    reward [B, S, components], r_env first, its weight 1.
    """
    on = (ended[:, :-1] == RUNNING)[..., None]
    return np.asarray(reward[:, :-1, 0] + ((reward[:, 1:, 1:] * on) @ weights[1:]), np.float32)


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

    def part(self, cut: slice) -> Lesson:
        b = self.batch
        frames, visited = (None if a is None else a[cut] for a in (b.seen.frames, b.seen.visited))
        seen = Seen(frames, visited, b.seen.numbers[cut])
        own = Batch(seen, None if b.past is None else b.past[cut], b.action[cut], b.ended[cut], b.reward[cut],
                    b.legal[cut], b.memory[cut])
        return Lesson(own, self.total[cut], self.weight[cut], self.counts[cut])


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


def show(policy: QPolicy, batch: Batch, burn_in: int) -> list[Shown]:
    """What both networks look at, the burn-in first: stacked pictures, the rest, where episodes begin."""
    stack, seen = stacked(batch), batch.seen
    begins = np.concatenate([np.zeros_like(batch.ended[:, :1]), batch.ended[:, :-1] != RUNNING], 1)
    out: list[Shown] = []
    for cut in (slice(0, burn_in), slice(burn_in, None)) if burn_in else (slice(0, None),):
        frames = None
        if stack is not None:  # cut while they are bytes: a cut of floats would be copied by each network
            bytes_of = torch.from_numpy(np.ascontiguousarray(stack[:, cut])).to(policy.device)
            frames = bytes_of.float().div_(LEVELS).permute(0, 1, 4, 2, 3)
        visited = None if seen.visited is None else np.ascontiguousarray(seen.visited[:, cut])
        _, rest = policy.tensors(Seen(None, visited, np.ascontiguousarray(seen.numbers[:, cut])))
        done = torch.from_numpy(begins[:, cut].astype(np.float32)).to(policy.device)
        out.append((frames, rest, done))
    return out


def unroll(policy: QPolicy, shown: list[Shown], memory: Floats) -> Tensor:
    """Q [B, S - burn_in, A] along sequences from the stored memory, which first burns in, no gradient."""
    state = torch.from_numpy(memory).to(policy.device)
    for frames, rest, done in shown[:-1]:
        with torch.no_grad():
            _, state, _ = policy.net(frames, rest, state, done)
    frames, rest, done = shown[-1]
    q: Tensor = policy.net(frames, rest, state, done)[0]
    return q


def followed(lesson: Lesson, best: Tensor, greedy: Tensor, config: DqnConfig) -> Tensor:
    """Q(lambda) along a sequence, n being 1: [B, L] what steps are worth, each looking as far as it may.

    G[t] = r[t] + gamma ((1 - c) best[t] + c G[t + 1]), best[t] being Q of what step t led to, and c = `trace`
    where the step after was the best one known (Watkins 1989: others say nothing of the best), else 0. With
    `trace_while` better also where G[t + 1] > best[t]: where nothing is left to chance, what was once got
    can be got again, so it bounds Q from below (He et al. 2017).
    """
    trace, better = config.trace, config.trace_while == "better"
    total, weight = (torch.from_numpy(x).to(best.device) for x in (lesson.total, lesson.weight))
    known = torch.from_numpy(lesson.counts > 0).to(best.device)
    goal = total + weight * best
    for t in range(goal.shape[1] - 2, -1, -1) if trace else ():
        gain = goal[:, t + 1] - best[:, t]
        on = greedy[:, t] | (gain > 0) if better else greedy[:, t]
        goal[:, t] += weight[:, t] * trace * gain * (on & known[:, t + 1])
    return goal


def difference(
    online: QPolicy, target: QPolicy, lesson: Lesson, config: DqnConfig
) -> tuple[Tensor, Tensor]:
    """What steps are worth less what they should be [B, L], and Q of what was done.

    Double Q (van Hasselt et al. 2016): the online network names the best next action, the target's says what
    it is worth. Advantage learning (Bellemare et al. 2016, eq. 6): what is not the best loses `gap` times
    what it already lacks, so that gaps grow to 1 / (1 - gap) of what they are; the best stays the best.
    """
    b, steps, burn_in = lesson.batch, lesson.total.shape[1], config.burn_in
    shown = show(online, b, burn_in)
    q = unroll(online, shown, b.memory)
    with torch.no_grad():
        other = unroll(target, shown, b.memory)
        ahead = slice(q.shape[1] - steps, None)  # n steps later
        judge = (q if config.double else other)[:, ahead]
        legal = torch.from_numpy(b.legal[:, burn_in:][:, ahead]).to(q.device)
        judge = judge.masked_fill(~legal, -torch.inf)
        named = judge.argmax(2, keepdim=True)
        best = other[:, ahead].gather(2, named)[..., 0]
        later = torch.from_numpy(b.action[:, burn_in:][:, ahead]).to(q.device)
        greedy = (later == named[..., 0]) | (config.trace_while == "always")
        goal = followed(lesson, best, greedy, config)
        action = torch.from_numpy(b.action[:, burn_in : burn_in + steps, None]).to(q.device)
        if config.gap:
            allowed = torch.from_numpy(b.legal[:, burn_in : burn_in + steps]).to(q.device)
            before = other[:, :steps]
            most = before.masked_fill(~allowed, -torch.inf).amax(2)
            goal -= config.gap * (most - before.gather(2, action)[..., 0])
    done = q[:, :steps].gather(2, action)[..., 0]
    return done - goal, done


def gradient(
    online: QPolicy, target: QPolicy, lesson: Lesson, config: DqnConfig, threads: int
) -> tuple[Floats, Floats, dict[str, float]]:
    """The gradient [P] of the loss, |TD error| [B, L] and sums that are logged; chunks are added in order."""
    parameters = list(online.net.parameters())

    def slope(cut: slice) -> tuple[Floats, Floats, Floats]:
        torch.set_num_threads(1)  # of the calling thread
        part = lesson.part(cut)
        delta, q = difference(online, target, part, config)
        counts = torch.from_numpy(part.counts).to(delta.device)
        loss = (functional.huber_loss(delta, torch.zeros_like(delta), reduction="none") * counts).sum()
        found = torch.autograd.grad(loss, parameters)
        error, q = delta.detach().abs(), q.detach()
        told = torch.stack([loss.detach(), (error * counts).sum(), (q * counts).sum()])
        flat = torch.cat([g.flatten() for g in found])
        return flat.cpu().numpy(), error.cpu().numpy(), told.cpu().numpy()

    size = CHUNK if online.senses.picture else BLIND
    if online.device.type != "cpu":
        size = len(lesson.total)
    cuts = [slice(at, at + size) for at in range(0, len(lesson.total), size)]
    if len(cuts) == 1 or threads == 1:
        parts = [slope(cut) for cut in cuts]
    else:
        with ThreadPoolExecutor(min(threads, len(cuts))) as pool:
            parts = list(pool.map(slope, cuts))
    grad, told = parts[0][0], parts[0][2].astype(np.float64)
    for more, _, sums in parts[1:]:
        grad, told = grad + more, told + sums
    means = dict(zip(("loss", "td_error", "q_mean"), told.tolist()))
    return np.ascontiguousarray(grad), np.concatenate([part[1] for part in parts]), means
