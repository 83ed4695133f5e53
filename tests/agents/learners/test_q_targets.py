"""TD errors: returns and targets against step-by-step references; gradients of chunks add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import single_seat_worlds
from support.single_seat_worlds import little
from support.trainers import advance

from rematch.agents.learners import q_targets
from rematch.agents.learners.dqn import Dqn, DqnConfig
from rematch.agents.learners.q_policy import network_inputs
from rematch.core.world import CUT_OFF, DECIDED, RUNNING
from rematch.training.trainer import Trainer

__all__ = ["little"]


def reference(
    reward: list[float], ended: list[int], t: int, n: int, gamma: float
) -> tuple[float, float, bool]:
    """(sum, weight of the bootstrap value, validity) of step t, by definition."""
    total = 0.0
    for k in range(n):
        total += gamma**k * reward[t + k]
        if ended[t + k] == DECIDED:
            return total, 0.0, True
        if ended[t + k] == CUT_OFF:
            return total, 0.0, False
    return total, gamma**n, True


@given(st.integers(1, 4), st.lists(st.sampled_from([RUNNING, RUNNING, RUNNING, DECIDED, CUT_OFF]), min_size=6,
                                   max_size=9))
def test_n_step_returns_equal_reference(n: int, ends: list[int]) -> None:
    reward = np.linspace(-1, 2, len(ends) - 1)
    result = q_targets.n_step_returns(reward[None].astype(np.float32), np.array([ends], np.uint8), n, 0.9)
    for t in range(len(ends) - n):
        total, weight, valid = reference(reward.tolist(), ends, t, n, 0.9)
        assert result[2][0, t] == valid
        if valid:
            assert result[0][0, t] == pytest.approx(total, abs=1e-5)
            assert result[1][0, t] == pytest.approx(weight, abs=1e-6)


def test_reward_term_belongs_to_the_step_before_in_its_episode() -> None:
    columns = {"env": (1, 2, 3, 4), "rnd_images": (10, 20, 30, 40), "count_bonus": (5, 6, 7, 8)}
    reward = {name: np.array([column], np.float32) for name, column in columns.items()}
    ended = np.array([[0, 1, 0, 0]], np.uint8)
    weights = {"rnd_images": 0.1, "count_bonus": 2.0}
    assert q_targets.total_reward(reward, ended, weights).tolist() == [[1 + 2 + 12, 2, 3 + 4 + 16]]


@pytest.fixture
def learner(little: None) -> Dqn:
    trainer = Trainer(single_seat_worlds.small(dqn__replay_ratio=0.0, dqn__n_step=2, dqn__epsilon_final=0.9))
    advance(trainer, 4)
    result = trainer.agents.learners["joypad"]
    assert isinstance(result, Dqn)
    result.target.initialise(99)  # another network, so that double Q is not the same as single
    return result


def training_batch(learner: Dqn, count: int) -> q_targets.TrainingBatch:
    c, starts = learner.config, learner.replay.sequence_starts()
    batch = learner.replay.sequences(np.resize(starts, count), np.arange(count) % 4)
    reward = q_targets.total_reward(batch.reward, batch.ended, learner.term_weights)[:, c.burn_in :]
    total, bootstrap, valid = q_targets.n_step_returns(reward, batch.ended[:, c.burn_in :], c.n_step, c.gamma)
    return q_targets.TrainingBatch(batch, total, bootstrap, (valid / valid.sum()).astype(np.float32))


def tensors(training: q_targets.TrainingBatch) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in training.arrays().items()}


@pytest.mark.parametrize(("double", "gap"), [(True, 0.0), (False, 0.0), (False, 0.6)])
def test_targets_equal_reference(learner: Dqn, double: bool, gap: float) -> None:
    """Each Q from the stored recurrent state, each target by definition."""
    c, training = learner.config, training_batch(learner, 6)
    inputs = tensors(training)
    delta, done = q_targets.td_errors(
        learner.online, learner.target, inputs, replace(c, double=double, advantage_gap=gap)
    )
    with torch.no_grad():
        parts, nets = q_targets.sequence_inputs(inputs, 0), (learner.online, learner.target)
        online_q, target_q = (q_targets.unroll(net, parts, inputs["recurrent_state"]).numpy() for net in nets)
    sequences, checked, masked = training.sequences, 0, 0
    for b in range(6):
        row = slice(b, b + 1)
        columns = {name: column[row] for name, column in sequences.reward.items()}
        reward = q_targets.total_reward(columns, sequences.ended[row], learner.term_weights)[0].tolist()
        for t in range(c.burn_in, c.sequence - c.n_step):
            total, weight, is_valid = reference(reward, sequences.ended[b].tolist(), t, c.n_step, c.gamma)
            later = t + c.n_step
            q_later = (online_q if double else target_q)[b, later]
            selector = np.where(sequences.legal[b, later], q_later, -np.inf)
            target = total + weight * target_q[b, later, selector.argmax()]
            before = np.where(sequences.legal[b, t], target_q[b, t], -np.inf)
            target -= gap * (before.max() - target_q[b, t, sequences.action[b, t]])
            q = online_q[b, t, sequences.action[b, t]]
            assert done[b, t - c.burn_in].item() == pytest.approx(q, abs=1e-5)
            if is_valid:
                assert delta[b, t - c.burn_in].item() == pytest.approx(q - target, abs=1e-4)
                checked += 1
            masked += not sequences.legal[b, later].all()
    assert checked > 5 and masked > 0


@pytest.mark.parametrize(
    ("trace", "kind"), [(0.7, "best"), (1.0, "always"), (0.0, "best"), (0.7, "better"), (1.0, "better")]
)
@given(data=st.data())
def test_lambda_returns_equal_reference(trace: float, kind: str, data: st.DataObject) -> None:
    """Each step by its own recursion: it continues while actions are greedy, never past an end or truncation.

    With `better` also where the return exceeds the value.
    """
    steps = data.draw(st.integers(1, 8))
    ends = data.draw(st.lists(st.sampled_from((RUNNING,) * 4 + (DECIDED, CUT_OFF)), min_size=steps + 1,
                              max_size=steps + 1))  # fmt: skip
    draw = np.random.default_rng(data.draw(st.integers(0, 99)))
    reward = draw.normal(size=(1, steps)).astype(np.float32)
    best, greedy = draw.normal(size=steps), draw.random(steps) < 0.7
    ended = np.array([ends], np.uint8)
    total, weight, valid = q_targets.n_step_returns(reward, ended, 1, 0.9)
    arrays = {"total": total, "weight": weight, "counts": valid.astype(np.float32)}
    inputs = {name: torch.from_numpy(x) for name, x in arrays.items()}
    not_cut = torch.from_numpy(greedy[None] | (kind == "always"))
    config = DqnConfig(trace_lambda=trace, trace_cut=kind)
    values = torch.from_numpy(best[None]).float()
    result = q_targets.lambda_returns(inputs, values, not_cut, config)[0].tolist()

    def target_value(t: int) -> float:
        if ends[t] == DECIDED:
            return float(reward[0, t])
        later, last = float(best[t]), t + 1 == steps or ends[t + 1] == CUT_OFF
        if not last and (greedy[t] or kind == "always" or (kind == "better" and target_value(t + 1) > later)):
            later = (1 - trace) * later + trace * target_value(t + 1)
        return float(reward[0, t]) + 0.9 * later

    for t in range(steps):
        if ends[t] != CUT_OFF:
            assert result[t] == pytest.approx(target_value(t), abs=1e-4)


def test_stacked_frames_equal_those_of_the_network(learner: Dqn) -> None:
    """The network stacks single frames, as in play, as the learner does."""
    batch, net = training_batch(learner, 20).sequences, learner.online.net
    assert batch.previous_frames is not None and batch.obs.frames is not None
    assert (batch.ended[:, :-1] != 0).any()
    inputs = tensors(training_batch(learner, 20))
    frames, done = network_inputs(inputs)[0], inputs["episode_start"]
    one, past = (torch.from_numpy(x).float() / 3 for x in (batch.obs.frames, batch.previous_frames))
    stack, after = net.stack_frames(one, past, (1 - done)[..., None])
    assert frames is not None and torch.equal(stack, frames)
    assert torch.equal(after, frames[:, -1, :-1].flip(1)), "the frames of the state after are the same"


def test_gradient_of_chunks_does_not_depend_on_threads(learner: Dqn) -> None:
    c, training = learner.config, training_batch(learner, 19)
    one, error, metrics = q_targets.gradient(learner.online, learner.target, training, c, 1)
    three, _, _ = q_targets.gradient(learner.online, learner.target, training, c, 3)
    assert np.array_equal(one, three)
    delta, _ = q_targets.td_errors(learner.online, learner.target, tensors(training), c)
    size, counts = delta.abs(), torch.from_numpy(training.counts)
    loss = (torch.where(size < 1, 0.5 * size**2, size - 0.5) * counts).sum()  # Huber 1964
    whole = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(learner.online.net.parameters()))])
    assert np.allclose(one, whole.numpy(), atol=1e-5)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert np.allclose(error, size.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("gap", [0.0, 0.5, 0.9])
def test_advantage_learning_widens_gaps_and_keeps_the_best(gap: float) -> None:
    """A corridor of five cells with an exit on the right, solved by sweeps of the same rule over a table."""
    gamma, places = 0.9, 5
    q, plain = np.zeros((places, 2)), np.zeros((places, 2))
    for table, widen in ((plain, 0.0), (q, gap)):
        for _ in range(2000):
            best = np.append(table.max(1), 0.0)
            for s in range(places):
                for a, to in enumerate((max(0, s - 1), s + 1)):
                    target = float(to == places) + gamma * best[to]
                    table[s, a] = target - widen * (table[s].max() - table[s, a])
    assert np.allclose(q.max(1), plain.max(1)) and (q.argmax(1) == plain.argmax(1)).all()
    assert np.allclose((q.max(1) - q.min(1)) * (1 - gap), plain.max(1) - plain.min(1), rtol=0.02)
