"""Temporal differences: returns and targets against slow ones that walk step by step; chunks add up."""

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
from rematch.agents.learners.q_policy import shown
from rematch.core.world import CUT_OFF, DECIDED, RUNNING
from rematch.training.trainer import Trainer

__all__ = ["little"]


def slow(reward: list[float], ended: list[int], t: int, n: int, gamma: float) -> tuple[float, float, bool]:
    """(sum, weight of what follows, known) of step t, by the words of the definition."""
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
def test_returns_are_the_slow_ones(n: int, ends: list[int]) -> None:
    reward = np.linspace(-1, 2, len(ends) - 1)
    found = q_targets.returns(reward[None].astype(np.float32), np.array([ends], np.uint8), n, 0.9)
    for t in range(len(ends) - n):
        total, weight, known = slow(reward.tolist(), ends, t, n, 0.9)
        assert found[2][0, t] == known
        if known:
            assert found[0][0, t] == pytest.approx(total, abs=1e-5)
            assert found[1][0, t] == pytest.approx(weight, abs=1e-6)


def test_a_bonus_pays_the_step_that_led_to_it_within_its_episode() -> None:
    columns = {"env": (1, 2, 3, 4), "rnd_images": (10, 20, 30, 40), "count_bonus": (5, 6, 7, 8)}
    reward = {name: np.array([column], np.float32) for name, column in columns.items()}
    ended = np.array([[0, 1, 0, 0]], np.uint8)
    weights = {"rnd_images": 0.1, "count_bonus": 2.0}
    assert q_targets.paid(reward, ended, weights).tolist() == [[1 + 2 + 12, 2, 3 + 4 + 16]]


@pytest.fixture
def learner(little: None) -> Dqn:
    trainer = Trainer(single_seat_worlds.small(dqn__replay_ratio=0.0, dqn__n_step=2, dqn__epsilon_final=0.9))
    advance(trainer, 4)
    found = trainer.agents.learners["joypad"]
    assert isinstance(found, Dqn)
    found.target.initialise(99)  # another network, so that double Q is not the same as single
    return found


def lesson(learner: Dqn, count: int) -> q_targets.Lesson:
    c, starts = learner.config, learner.replay.beginnings()
    batch = learner.replay.take(np.resize(starts, count), np.arange(count) % 4)
    reward = q_targets.paid(batch.reward, batch.ended, learner.term_weights)[:, c.burn_in :]
    total, follow, known = q_targets.returns(reward, batch.ended[:, c.burn_in :], c.n_step, c.gamma)
    return q_targets.Lesson(batch, total, follow, (known / known.sum()).astype(np.float32))


def tensors(some: q_targets.Lesson) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in some.arrays().items()}


@pytest.mark.parametrize(("double", "gap"), [(True, 0.0), (False, 0.0), (False, 0.6)])
def test_targets_are_the_slow_ones(learner: Dqn, double: bool, gap: float) -> None:
    """Each Q by its own unrolling from the stored memory, each target by words."""
    c, some = learner.config, lesson(learner, 6)
    known = tensors(some)
    delta, done = q_targets.difference(
        learner.online, learner.target, known, replace(c, double=double, advantage_gap=gap)
    )
    with torch.no_grad():
        seen, nets = q_targets.show(known, 0), (learner.online, learner.target)
        ours, other = (q_targets.unroll(net, seen, known["memory"]).numpy() for net in nets)
    checked = masked = 0
    for b in range(6):
        own = slice(b, b + 1)
        columns = {name: column[own] for name, column in some.batch.reward.items()}
        reward = q_targets.paid(columns, some.batch.ended[own], learner.term_weights)[0].tolist()
        for t in range(c.burn_in, c.sequence - c.n_step):
            total, weight, learnt = slow(reward, some.batch.ended[b].tolist(), t, c.n_step, c.gamma)
            then = t + c.n_step
            judge = np.where(some.batch.legal[b, then], (ours if double else other)[b, then], -np.inf)
            goal = total + weight * other[b, then, judge.argmax()]
            before = np.where(some.batch.legal[b, t], other[b, t], -np.inf)
            goal -= gap * (before.max() - other[b, t, some.batch.action[b, t]])
            q = ours[b, t, some.batch.action[b, t]]
            assert done[b, t - c.burn_in].item() == pytest.approx(q, abs=1e-5)
            if learnt:
                assert delta[b, t - c.burn_in].item() == pytest.approx(q - goal, abs=1e-4)
                checked += 1
            masked += not some.batch.legal[b, then].all()
    assert checked > 5 and masked > 0


@pytest.mark.parametrize(
    ("trace", "kind"), [(0.7, "best"), (1.0, "always"), (0.0, "best"), (0.7, "better"), (1.0, "better")]
)
@given(data=st.data())
def test_traces_follow_the_slow_recursion(trace: float, kind: str, data: st.DataObject) -> None:
    """Every step by its own walk ahead: on while moves are the best known, none over an end or a cut.

    With `better` also where the walk itself turned out better than what was known.
    """
    steps = data.draw(st.integers(1, 8))
    ends = data.draw(st.lists(st.sampled_from((RUNNING,) * 4 + (DECIDED, CUT_OFF)), min_size=steps + 1,
                              max_size=steps + 1))  # fmt: skip
    draw = np.random.default_rng(data.draw(st.integers(0, 99)))
    reward = draw.normal(size=(1, steps)).astype(np.float32)
    best, greedy = draw.normal(size=steps), draw.random(steps) < 0.7
    ended = np.array([ends], np.uint8)
    total, weight, known = q_targets.returns(reward, ended, 1, 0.9)
    arrays = {"total": total, "weight": weight, "counts": known.astype(np.float32)}
    told = {name: torch.from_numpy(x) for name, x in arrays.items()}
    on = torch.from_numpy(greedy[None] | (kind == "always"))
    config = DqnConfig(trace_lambda=trace, trace_cut=kind)
    found = q_targets.followed(told, torch.from_numpy(best[None]).float(), on, config)[0].tolist()

    def worth(t: int) -> float:
        if ends[t] == DECIDED:
            return float(reward[0, t])
        then, last = float(best[t]), t + 1 == steps or ends[t + 1] == CUT_OFF
        if not last and (greedy[t] or kind == "always" or (kind == "better" and worth(t + 1) > then)):
            then = (1 - trace) * then + trace * worth(t + 1)
        return float(reward[0, t]) + 0.9 * then

    for t in range(steps):
        if ends[t] != CUT_OFF:
            assert found[t] == pytest.approx(worth(t), abs=1e-4)


def test_stacks_are_the_networks_own(learner: Dqn) -> None:
    """From single pictures and what is past, as in acting, the network makes what the learner does."""
    batch, net = lesson(learner, 20).batch, learner.online.net
    assert batch.past is not None and batch.seen.frames is not None and (batch.ended[:, :-1] != 0).any()
    known = tensors(lesson(learner, 20))
    frames, done = shown(known)[0], known["begins"]
    one, past = (torch.from_numpy(x).float() / 3 for x in (batch.seen.frames, batch.past))
    stack, after = net.stacked(one, past, (1 - done)[..., None])
    assert frames is not None and torch.equal(stack, frames)
    assert torch.equal(after, frames[:, -1, :-1].flip(1)), "and carries the same on"


def test_the_gradient_is_that_of_the_whole_and_does_not_depend_on_threads(learner: Dqn) -> None:
    c, some = learner.config, lesson(learner, 19)
    one, error, told = q_targets.gradient(learner.online, learner.target, some, c, 1)
    three, _, _ = q_targets.gradient(learner.online, learner.target, some, c, 3)
    assert np.array_equal(one, three)
    delta, _ = q_targets.difference(learner.online, learner.target, tensors(some), c)
    size, counts = delta.abs(), torch.from_numpy(some.counts)
    loss = (torch.where(size < 1, 0.5 * size**2, size - 0.5) * counts).sum()  # Huber 1964
    whole = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(learner.online.net.parameters()))])
    assert np.allclose(one, whole.numpy(), atol=1e-5) and told["loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert np.allclose(error, size.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("gap", [0.0, 0.5, 0.9])
def test_advantage_learning_widens_gaps_and_keeps_the_best(gap: float) -> None:
    """A corridor of five places with an end to the right, solved by sweeps of the same rule over a table."""
    gamma, places = 0.9, 5
    q, plain = np.zeros((places, 2)), np.zeros((places, 2))
    for table, widen in ((plain, 0.0), (q, gap)):
        for _ in range(2000):
            best = np.append(table.max(1), 0.0)
            for s in range(places):
                for a, to in enumerate((max(0, s - 1), s + 1)):
                    goal = float(to == places) + gamma * best[to]
                    table[s, a] = goal - widen * (table[s].max() - table[s, a])
    assert np.allclose(q.max(1), plain.max(1)) and (q.argmax(1) == plain.argmax(1)).all()
    assert np.allclose((q.max(1) - q.min(1)) * (1 - gap), plain.max(1) - plain.min(1), rtol=0.02)
