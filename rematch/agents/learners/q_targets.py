"""TD errors of sequences: n-step returns, double Q, and the gradient of the Huber loss."""

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

from rematch.agents.learners.q_policy import QPolicy, network_inputs
from rematch.agents.learners.replay_buffer import ENV, Batch
from rematch.agents.networks.cuda_graphs import Inputs
from rematch.core.arrays import Bytes, Floats
from rematch.core.world import CUT_OFF, RUNNING

if TYPE_CHECKING:
    from rematch.agents.learners.dqn import DqnConfig

CHUNK = 8  # sequences per thread and call: results do not depend on the number of threads
CHUNK_WITHOUT_IMAGES = 16  # more of them where the loop over small steps gains nothing from threads


def total_reward(reward: Mapping[str, Floats], ended: Bytes, weights: Mapping[str, float]) -> Floats:
    """Total reward [B, S - 1]: that of the world, and each weighted term of the observation after the step in
    the same episode. reward: name -> [B, S]; weights: of the terms, in the order in which they are added.
    """
    running = ended[:, :-1] == RUNNING
    terms = np.zeros(running.shape, np.float32)
    for name, weight in weights.items():
        terms += np.float32(weight) * (reward[name][:, 1:] * running)
    return np.asarray(reward[ENV][:, :-1] + terms, np.float32)


def n_step_returns(
    reward: Floats, ended: Bytes, n: int, gamma: float
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """For steps 0 .. S - n - 1: the sum of n discounted rewards, the weight of the bootstrap value, validity.

    reward [B, S - 1], ended [B, S]. The value after the end of an episode is 0. After a truncation the next
    observation is not stored: a sum that contains a truncation is not valid.
    """
    steps = ended.shape[1] - n
    total = np.zeros((len(ended), steps), np.float32)
    weight, valid = np.ones_like(total), np.ones(total.shape, bool)
    for k in range(n):
        end = ended[:, k : k + steps]
        total += weight * reward[:, k : k + steps]
        valid &= ~((end == CUT_OFF) & (weight > 0))
        weight = np.where(end == RUNNING, weight * np.float32(gamma), np.float32(0))
    return total, weight, valid


@dataclass
class TrainingBatch:
    """Sequences and the n-step returns of their trained steps [B, L]."""

    sequences: Batch
    total: Floats  # [B, L] sum of n discounted rewards
    weight: Floats  # [B, L] of the bootstrap value
    counts: Floats  # [B, L] weight of each step in the loss; 0: not trained on

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The inputs of the loss, each [B, ...], frames stacked."""
        b = self.sequences
        episode_start = np.concatenate([np.zeros_like(b.ended[:, :1]), b.ended[:, :-1] != RUNNING], 1)
        out = b.obs.arrays() | {
            "episode_start": episode_start.astype(np.float32), "recurrent_state": b.recurrent_state,
            "action": b.action, "legal": b.legal, "total": self.total, "weight": self.weight,
            "counts": self.counts,
        }  # fmt: skip
        stack = stack_frames(b)
        return out if stack is None else out | {"frames": stack}


def stack_frames(batch: Batch) -> Bytes | None:
    """[B, S, H, W, STACK] each frame with the two before it in its episode, newest first.

    Bytes, with channels last, once for both networks: stacking floats took longer than the convolutions.
    """
    frames, previous = batch.obs.frames, batch.previous_frames
    if frames is None or previous is None:
        return None
    out = np.empty((*frames.shape, 3), np.uint8)
    out[..., 0] = frames
    out[:, 1:, ..., 1], out[:, 0, ..., 1] = frames[:, :-1], previous[:, 1]
    out[:, 1:, ..., 2], out[:, 0, ..., 2] = out[:, :-1, ..., 1], previous[:, 0]
    for b, t in np.argwhere(batch.ended[:, :-1] != RUNNING):
        out[b, t + 1, ..., 1:] = 0
        out[b, t + 2 : t + 3, ..., 2] = 0
    return out


SequenceInputs = tuple[Tensor | None, tuple[Tensor, Tensor | None], Tensor]


def sequence_inputs(inputs: Inputs, burn_in: int) -> list[SequenceInputs]:
    """The inputs of both networks (see `network_inputs`) and the episode starts; the burn-in comes first."""
    cuts = (slice(burn_in), slice(burn_in, None)) if burn_in else (slice(None),)
    return [(*network_inputs(inputs, cut), inputs["episode_start"][:, cut]) for cut in cuts]


def unroll(policy: QPolicy, parts: list[SequenceInputs], state: Tensor) -> Tensor:
    """Q [B, S - burn_in, A] along sequences from the stored state; no gradient through the burn-in."""
    for frames, structured, episode_start in parts[:-1]:
        with torch.no_grad():
            _, state, _ = policy.net(frames, structured, state, episode_start)
    frames, structured, episode_start = parts[-1]
    q: Tensor = policy.net(frames, structured, state, episode_start)[0]
    return q


def lambda_returns(inputs: Inputs, best: Tensor, greedy: Tensor, config: DqnConfig) -> Tensor:
    """[B, L] targets of Q(lambda) along a sequence; without trace_lambda those of the n-step return.

    G[t] = r[t] + gamma ((1 - c) best[t] + c G[t + 1]), where best[t] is the value after step t, and c is
    trace_lambda if the next action was greedy (Watkins 1989), else 0. With trace_cut `better`, c is
    trace_lambda also where G[t + 1] > best[t]: in a deterministic game a return that was reached once bounds
    Q from below (He et al. 2017).
    """
    trace, better = config.trace_lambda, config.trace_cut == "better"
    weight, valid = inputs["weight"], inputs["counts"] > 0
    target_values = inputs["total"] + weight * best
    for t in range(target_values.shape[1] - 2, -1, -1) if trace else ():
        excess = target_values[:, t + 1] - best[:, t]
        not_cut = greedy[:, t] | (excess > 0) if better else greedy[:, t]
        target_values[:, t] += weight[:, t] * trace * excess * (not_cut & valid[:, t + 1])
    return target_values


def td_errors(
    online: QPolicy, target: QPolicy, inputs: Inputs, config: DqnConfig
) -> tuple[Tensor, Tensor]:
    """TD errors [B, L]: Q of the taken actions minus their targets; and that Q.

    Double Q (van Hasselt et al. 2016): the online network selects the next action, the target network
    evaluates it. Advantage learning (Bellemare et al. 2016, eq. 6): the target of an action is lowered by
    advantage_gap times its distance to the best one, which widens gaps by 1 / (1 - advantage_gap).
    """
    steps, burn_in = inputs["total"].shape[1], config.burn_in
    parts, state = sequence_inputs(inputs, burn_in), inputs["recurrent_state"]
    q = unroll(online, parts, state)
    done, ahead = slice(steps), slice(q.shape[1] - steps, None)  # n steps later
    legal, action = inputs["legal"][:, burn_in:], inputs["action"][:, burn_in:, None]
    with torch.no_grad():
        target_q = unroll(target, parts, state)
        selector = (q if config.double else target_q)[:, ahead].masked_fill(~legal[:, ahead], -torch.inf)
        best_action = selector.argmax(2, keepdim=True)
        best = target_q[:, ahead].gather(2, best_action)[..., 0]
        greedy = (action[:, ahead] == best_action)[..., 0] | (config.trace_cut == "always")
        target_values = lambda_returns(inputs, best, greedy, config)
        if config.advantage_gap:
            done_q = target_q[:, done]
            max_q = done_q.masked_fill(~legal[:, done], -torch.inf).amax(2)
            target_values -= config.advantage_gap * (max_q - done_q.gather(2, action[:, done])[..., 0])
    q_done = q[:, done].gather(2, action[:, done])[..., 0]
    return q_done - target_values, q_done


def loss_gradient(inputs: Inputs, online: QPolicy, target: QPolicy, config: DqnConfig) -> tuple[Tensor, ...]:
    """The gradient [P] of the Huber loss, |TD error| [B, L], and sums: loss, error, Q."""
    delta, q = td_errors(online, target, inputs, config)
    counts = inputs["counts"]
    loss = (functional.huber_loss(delta, torch.zeros_like(delta), reduction="none") * counts).sum()
    grads = torch.autograd.grad(loss, list(online.net.parameters()))
    error = delta.detach().abs()
    sums = torch.stack([loss.detach(), (error * counts).sum(), (q.detach() * counts).sum()])
    return torch.cat([g.flatten() for g in grads]), error, sums


def gradient(
    online: QPolicy, target: QPolicy, batch: TrainingBatch, config: DqnConfig, threads: int
) -> tuple[Floats, Floats, dict[str, float]]:
    """The gradient [P] of the loss, |TD error| [B, L] and logged sums; chunks are added in order."""
    arrays = batch.arrays()

    def part_of(cut: slice) -> list[NDArray[Any]]:
        torch.set_num_threads(1)  # of the calling thread
        parts = {name: x[cut] for name, x in arrays.items()}
        return online.compute(loss_gradient, parts, online, target, config)

    size = CHUNK if online.codec.image_field else CHUNK_WITHOUT_IMAGES
    if online.device.type != "cpu":
        size = len(batch.total)
    cuts = [slice(at, at + size) for at in range(0, len(batch.total), size)]
    if len(cuts) == 1 or threads == 1:
        parts = [part_of(cut) for cut in cuts]
    else:
        with ThreadPoolExecutor(min(threads, len(cuts))) as pool:
            parts = list(pool.map(part_of, cuts))
    grad, sums_total = parts[0][0], parts[0][2].astype(np.float64)
    for other_grad, _, sums in parts[1:]:
        grad, sums_total = grad + other_grad, sums_total + sums
    means = dict(zip(("loss", "td_error", "q_mean"), sums_total.tolist()))
    return np.ascontiguousarray(grad), np.concatenate([part[1] for part in parts]), means
