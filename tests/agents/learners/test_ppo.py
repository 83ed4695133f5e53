"""PPO: its gradient against finite differences of a reference loss, Adam against torch, metrics and state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.networks import Batch, minibatch, policy, role

from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.networks.layout import weight_views
from rematch.agents.policy import Policy, digest
from rematch.core.errors import ConfigError, LearnError
from rematch.core.spec import Spec
from rematch.core.world import DECIDED
from rematch.rollout.rollout_buffer import RolloutBuffer

# --- a loss from the papers, in numpy and float64, one decision at a time -------------------------------


def log_sum_exp(x: Any) -> float:
    return float(np.max(x) + np.log(np.exp(x - np.max(x)).sum()))


def reference_loss(
    made: Policy, weights: Any, batch: Batch, config: PpoConfig, entropy_weight: float
) -> float:
    w = weight_views(weights, made.layout)
    batch = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in batch.items()}
    total = 0.0
    n = len(batch["logp"])
    for i in range(n):

        def tower(name: str, i: int = i) -> Any:
            x = batch["obs"][i]
            for layer in range(len(made.config.hidden)):
                x = np.tanh(w[f"{name}.{layer}.weight"] @ x + w[f"{name}.{layer}.bias"])
            return x

        actor, critic = (tower("trunk"),) * 2 if made.config.shared else (tower("policy"), tower("value"))
        heads = w["policy.head.weight"] @ actor + w["policy.head.bias"]
        value = float((w["value.head.weight"] @ critic + w["value.head.bias"])[0])
        if "policy.log_std" in w:
            s, m = w["policy.log_std"], batch["magnet_log_std"]
            density = np.exp(-((batch["action"][i] - heads) ** 2) / (2 * np.exp(2 * s))) / np.sqrt(
                2 * np.pi * np.exp(2 * s)
            )
            logp = float(np.log(density).sum())
            entropy = float((0.5 * np.log(2 * np.pi * np.e * np.exp(2 * s))).sum())
            # KL divergence of two Gaussians
            distance = np.exp(2 * s) + (heads - batch["magnet"][i]) ** 2
            magnet_kl = float((m - s + distance / (2 * np.exp(2 * m)) - 0.5).sum())
        else:
            legal = np.flatnonzero(batch["mask"][i])
            logs = heads[legal] - log_sum_exp(heads[legal])
            magnet_logp = batch["magnet"][i][legal]
            magnet_logp = magnet_logp - log_sum_exp(magnet_logp)
            logp = float(logs[np.flatnonzero(legal == batch["action"][i])[0]])
            entropy = -float((np.exp(logs) * logs).sum())
            magnet_kl = float((np.exp(logs) * (logs - magnet_logp)).sum())
        ratio, advantage = np.exp(logp - batch["logp"][i]), float(batch["advantage"][i])
        bounded = min(max(ratio, 1 - config.clip), 1 + config.clip)
        old, target = float(batch["value"][i]), float(batch["target"][i])
        near = old + min(max(value - old, -config.value_clip), config.value_clip)
        error = max((value - target) ** 2, (near - target) ** 2 if config.value_clip else 0.0)
        total += -min(ratio * advantage, bounded * advantage) + config.value_weight * error
        total += -entropy_weight * entropy + config.magnet_weight * magnet_kl
    return total / n


@pytest.mark.parametrize("gradient", ["native", "torch"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("discrete", [True, False])
def test_gradient_equals_finite_differences(discrete: bool, shared: bool, gradient: str) -> None:
    made = policy(role(obs=3, actions=3, discrete=discrete), hidden=(4, 3), shared=shared)
    batch = minibatch(made, 14, seed=3, masked=discrete, magnet=True)
    config = PpoConfig(clip=0.15, value_clip=0.2, value_weight=0.4, magnet_weight=0.3, gradient=gradient)
    grad, _ = Ppo(made, config, 0, 1).gradient(batch, np.arange(14), 0.05)
    weights = made.weights.astype(np.float64)
    expected = np.zeros_like(weights)
    for i in range(len(weights)):
        step = np.zeros_like(weights)
        step[i] = 1e-5
        up, down = (reference_loss(made, weights + sign * step, batch, config, 0.05) for sign in (1, -1))
        expected[i] = (up - down) / 2e-5
    assert np.abs(expected).max() > 0.05
    assert np.abs(grad - expected).max() < 3e-6 * np.abs(expected).max()


@pytest.mark.parametrize("gradient", ["native", "torch"])
def test_temperature_divides_logits_in_the_update(gradient: str) -> None:
    """The gradient at a temperature is that of a network with a divided head, by the chain rule."""
    made = policy(role(obs=3, actions=3), hidden=(4, 3))
    batch = minibatch(made, 14, seed=3, masked=True, magnet=True)
    config = PpoConfig(clip=0.15, value_clip=0.2, value_weight=0.4, magnet_weight=0.3, gradient=gradient)
    learner = Ppo(made, config, 0, 1)
    learner.temperature = 0.4
    grad = learner.gradient(batch, np.arange(14), 0.05)[0].copy()
    weights = made.weights.astype(np.float64)

    def at(flat: Any) -> float:
        cooled = flat.copy()
        for name in ("policy.head.weight", "policy.head.bias"):
            weight_views(cooled, made.layout)[name] /= 0.4
        return reference_loss(made, cooled, batch, config, 0.05)

    expected = np.zeros_like(weights)
    for i in range(len(weights)):
        step = np.zeros_like(weights)
        step[i] = 1e-5
        expected[i] = (at(weights + step) - at(weights - step)) / 2e-5
    assert np.abs(expected).max() > 0.05
    assert np.abs(grad - expected).max() < 3e-6 * np.abs(expected).max()


def test_ratio_is_one_at_the_temperature_of_the_games() -> None:
    """Before the first step the policy is unchanged: only at another temperature the ratio is not 1."""
    learner = fresh(temperature=0.5, temperature_final=2.0, epochs=1, minibatch_size=1000, actions=3)
    for progress, temperature in ((0.0, 0.5), (0.5, 1.25), (1.0, 2.0)):
        acts = Policy(learner.policy.role, learner.policy.config, "acts", learner.acting(progress))
        obs = np.random.default_rng(0).uniform(-1, 1, (9, 2)).astype(np.float32)
        expected = learner.policy.forward(obs)[0] / temperature
        assert np.allclose(acts.forward(obs)[0], expected, atol=1e-6)
        metrics = learner.learn(one_step_games(acts, 500, hit), progress, 0)
        assert metrics["kl"] < 1e-9 and metrics["temperature"] == temperature
        assert learner.learn(one_step_games(learner.policy, 500, hit), progress, 1)["kl"] > 1e-9


# --- rollouts to learn from ---------------------------------------------------------------------------


def one_step_games(made: Policy, n: int, pay: Any, seed: int = 0) -> RolloutBuffer:
    """n games of one decision each; `pay(obs, action)` is the reward."""
    spec = Spec(world="toy", roles={"player": made.role})
    rollout = RolloutBuffer(spec, 1, n)
    role_rollout = rollout["player"]
    rng = np.random.default_rng(seed)
    role_rollout.obs[:] = rng.uniform(-1, 1, role_rollout.obs.shape)
    flat = role_rollout.action[0].reshape((n,) if role_rollout.action.ndim == 3 else (n, -1))
    made.network.act(
        made.packed,
        np.zeros(n, np.int32),
        role_rollout.obs.reshape(n, -1),
        np.arange(n, dtype=np.uint32),
        (seed, 0),
        flat,
        role_rollout.logp.reshape(n),
        role_rollout.value.reshape(n),
    )
    role_rollout.acted[:], rollout.ended[:] = 1, DECIDED
    role_rollout.reward[0, :, 0] = pay(role_rollout.obs[0, :, 0], flat)
    return rollout


def hit(obs: Any, action: Any) -> Any:
    """Reward for choosing the larger of the first two numbers."""
    return (action == (obs[:, 1] > obs[:, 0])).astype(np.float32)


def fresh(discrete: bool = True, actions: int = 2, **settings: Any) -> Ppo:
    made = Policy(
        role(obs=2, actions=actions, discrete=discrete), settings.pop("network", policy(role()).config), "p"
    )
    made.initialise(1)
    return Ppo(made, PpoConfig(**({"minibatch_size": 100} | settings)), 7, 1)


def weights_of(learner: Ppo) -> Any:
    return learner.policy.weights.copy()


def test_discrete_action_is_learned() -> None:
    learner = fresh(lr=3e-3, anneal="none")
    for i in range(40):
        rollout = one_step_games(learner.policy, 512, hit, seed=i)
        metrics = learner.learn(rollout, i / 40, i)
    assert rollout["player"].reward.mean() > 0.9
    assert metrics["decisions"] == 512 and metrics["updates"] == 24 and metrics["explained_variance"] <= 1


def test_continuous_action_is_learned() -> None:
    learner = fresh(discrete=False, actions=1, lr=3e-3, anneal="none", entropy_weight=0.0)
    for i in range(40):
        rollout = one_step_games(learner.policy, 512, lambda s, a: -((a[:, 0] - s[:, 0]) ** 2), seed=i)
        learner.learn(rollout, i / 40, i)
    heads, _ = learner.policy.forward(rollout["player"].obs.reshape(-1, 2))
    assert np.abs(heads[:, 0] - rollout["player"].obs[0, :, 0, 0]).mean() < 0.15


def test_learning_rate_zero_changes_nothing() -> None:
    learner = fresh(lr=0.0, lr_final=0.0)
    before = digest(learner.policy.weights)
    learner.learn(one_step_games(learner.policy, 300, hit), 0.0, 0)
    assert digest(learner.policy.weights) == before


def test_native_and_torch_updates_agree() -> None:
    for discrete in (True, False):
        learners = [fresh(discrete, gradient=g, epochs=2, magnet_weight=0.1) for g in ("native", "torch")]
        metrics = []
        for learner in learners:
            pay = hit if discrete else lambda s, a: -(a**2).sum(1)
            metrics.append(learner.learn(one_step_games(learner.policy, 300, pay), 0.5, 3))
        a, b = (learner.policy.weights for learner in learners)
        assert np.abs(a - b).max() < 1e-5 and np.abs(a - fresh(discrete).policy.weights).max() > 1e-3
        assert metrics[0].keys() == metrics[1].keys()
        for name, value in metrics[0].items():
            assert value == pytest.approx(metrics[1][name], rel=1e-3, abs=1e-5), name


def test_learning_depends_on_seed_and_iteration_not_on_threads() -> None:
    def learn(seed: int = 7, threads: int = 1, iteration: int = 3) -> str:
        learner = fresh()
        learner.seed, learner.threads = seed, threads
        learner.learn(one_step_games(learner.policy, 700, hit), 0.0, iteration)
        return digest(learner.policy.weights)

    assert learn() == learn() == learn(threads=3)
    assert len({learn(), learn(seed=8), learn(iteration=4)}) == 3  # the order of rows follows both


def test_adam_equals_torch() -> None:
    learner = fresh(discrete=False)
    mirror = torch.from_numpy(learner.policy.weights.copy()).requires_grad_()
    optimiser = torch.optim.Adam([mirror], lr=1e-3, eps=1e-5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        grad = rng.standard_normal(learner.policy.weights.size).astype(np.float32)
        learner.adam.step(learner.policy, grad, 1e-3)
        mirror.grad = torch.from_numpy(grad)
        optimiser.step()
    assert np.abs(learner.policy.weights - mirror.detach().numpy()).max() < 1e-6
    assert (
        learner.policy.packed
        == Policy(learner.policy.role, learner.policy.config, "q", learner.policy.weights).packed
    ).all()


def test_standard_deviation_stays_in_bounds() -> None:
    learner = fresh(discrete=False)
    net = learner.policy.config
    for sign, bound in ((1, net.log_std_low), (-1, net.log_std_high)):
        for _ in range(20):
            learner.adam.step(learner.policy, np.full_like(learner.policy.weights, sign), 0.5)
        assert (
            weight_views(learner.policy.weights, learner.policy.layout)["policy.log_std"] == np.float32(bound)
        ).all()


def test_gradients_are_clipped() -> None:
    for limit, expected in ((0.01, 0.01), (1e9, None), (0.0, None)):  # 0 is off
        learner = fresh(max_grad_norm=limit, epochs=1, minibatch_size=300)
        metrics = learner.learn(one_step_games(learner.policy, 300, hit), 0.0, 0)
        assert metrics["grad_norm_pre_clip"] > 0.02
        expected = metrics["grad_norm_pre_clip"] if expected is None else expected
        assert metrics["grad_norm_post_clip"] == pytest.approx(expected, rel=1e-5)


def test_target_kl_ends_an_iteration_early() -> None:
    free, bound = fresh(lr=0.05, epochs=10), fresh(lr=0.05, epochs=10, target_kl=0.01)
    counts = [
        learner.learn(one_step_games(learner.policy, 300, hit), 0.0, 0)["updates"]
        for learner in (free, bound)
    ]
    assert counts[0] == 30 and 1 < counts[1] < 30


def test_every_decision_is_used_once_per_epoch() -> None:
    learner = fresh(epochs=3, minibatch_size=64)
    seen: list[Any] = []
    gradient = learner.gradient

    def spy(batch: Batch, rows: Any, weight: float) -> Any:
        seen.append(rows.copy())
        return gradient(batch, rows, weight)

    learner.gradient = spy  # type: ignore[method-assign]
    rollout = one_step_games(learner.policy, 150, hit)
    rollout["player"].slot[0, ::3] = 1  # decisions of opponents: 50 of 150
    learner.learn(rollout, 0.0, 0)
    assert [len(rows) for rows in seen] == [64, 36] * 3
    epochs = [np.concatenate(seen[i : i + 2]) for i in (0, 2, 4)]
    for rows in epochs:
        assert sorted(rows.tolist()) == [i for i in range(150) if i % 3]
    assert (epochs[0] != epochs[1]).any()


def test_advantages_are_normalised_over_decisions_of_the_learner() -> None:
    learner = fresh()
    rollout = one_step_games(learner.policy, 120, hit)
    rollout["player"].slot[0, :60] = 2
    rollout["player"].reward[0, :60] = 1000.0  # an opponent's reward must not affect the scale
    batch, index = learner.batch(rollout)
    learner_advantage = batch["advantage"][index]
    assert index.tolist() == list(range(60, 120))
    assert learner_advantage.mean() == pytest.approx(0, abs=1e-5)
    assert learner_advantage.std() == pytest.approx(1, abs=1e-4)


def test_rollout_without_decisions_changes_nothing() -> None:
    learner = fresh()
    rollout = one_step_games(learner.policy, 20, hit)
    rollout["player"].slot[:] = 1
    before = weights_of(learner)
    assert learner.learn(rollout, 0.0, 0) == {"decisions": 0.0}
    assert (weights_of(learner) == before).all() and learner.adam.updates == 0


def test_single_decision_gives_finite_weights() -> None:
    learner = fresh()
    metrics = learner.learn(one_step_games(learner.policy, 1, hit), 0.0, 0)
    assert metrics["decisions"] == 1 and np.isfinite(learner.policy.weights).all()
    assert all(np.isfinite(value) for value in metrics.values())


def test_learning_rate_and_entropy_follow_progress() -> None:
    for shape, rate, weight in (("linear", 0.75, 0.5), ("none", 1.0, 0.9)):
        learner = fresh(lr=1.0, lr_final=0.5, entropy_weight=0.9, entropy_weight_final=0.1, anneal=shape)
        metrics = learner.learn(one_step_games(learner.policy, 50, hit), 0.5, 0)
        assert (metrics["lr"], metrics["entropy_weight"]) == (rate, pytest.approx(weight))


def test_magnet_is_a_slow_average_and_regularizes() -> None:
    learner = fresh(magnet_weight=0.5, magnet_decay=0.9, lr=1e-2)
    start = learner.magnet.copy()
    learner.learn(one_step_games(learner.policy, 300, hit), 0.0, 0)
    assert np.allclose(learner.magnet, 0.9 * start + 0.1 * learner.policy.weights, atol=1e-6)
    moved = []
    for strength in (0.001, 100.0):
        learner = fresh(magnet_weight=strength, magnet_decay=1.0, lr=1e-2, epochs=8)
        for i in range(5):
            learner.learn(one_step_games(learner.policy, 300, hit, seed=i), 0.0, i)
        moved.append(np.abs(learner.policy.forward(np.eye(2, dtype=np.float32))[0]).max())
    assert moved[1] < 0.25 * moved[0]


def test_final_policy_is_the_mean_of_the_last_iterations() -> None:
    learner = fresh(average_fraction=0.5, lr=1e-2)
    none = "Average: player keeps its newest weights: no iteration in the last 50.000% of the run"
    assert learner.finish() == none
    seen = []
    for i in range(6):
        metrics = learner.learn(one_step_games(learner.policy, 100, hit, seed=i), i / 6, i)
        seen.append(learner.policy.weights.copy())
        assert metrics["averaged"] == max(0, i - 2)
    assert learner.finish() == "Average: player is the mean of its last 3 iterations"
    assert np.allclose(learner.policy.weights, np.mean(seen[3:], 0), atol=1e-6)
    assert not np.allclose(learner.policy.weights, seen[-1], atol=1e-4)
    made = learner.policy
    same = Policy(made.role, made.config, "the same", made.weights.copy())
    assert np.array_equal(made.packed, same.packed)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("reward", "player: a reward or value is not finite"),
        ("obs", "an observation is not finite .*column after.a0"),
        ("logp", "a log-probability is not finite"),
        ("weights", "weights are not finite"),
    ],
)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_error_names_what_is_not_finite(where: str, message: str, bad: float) -> None:
    learner = fresh()
    rollout = one_step_games(learner.policy, 64, hit)
    role_rollout = rollout["player"]
    if where == "reward":
        role_rollout.reward[0, 7] = bad
    elif where == "obs":
        role_rollout.obs[0, 7, 0, 1] = bad
    elif where == "logp":
        role_rollout.logp[0, 7] = -bad
    else:
        broken = weights_of(learner)
        broken[3] = bad
        learner.policy.set(broken)
    before = weights_of(learner)
    with pytest.raises(LearnError, match=message) as caught:
        learner.learn(rollout, 0.0, 0)
    assert len(str(caught.value).splitlines()) == 1 and isinstance(caught.value, ConfigError)
    if where != "weights":
        assert (weights_of(learner) == before).all()  # no update


def test_weights_that_overflow_stop_the_run() -> None:
    learner = fresh(lr=3e38, anneal="none", epochs=1, minibatch_size=64)
    with np.errstate(over="ignore"), pytest.raises(LearnError, match="weights are not finite after update"):
        for i in range(3):
            learner.learn(one_step_games(learner.policy, 64, hit), 0.0, i)


def test_state_and_restore_continue_identically() -> None:
    first = fresh(magnet_weight=0.1, average_fraction=1.0)
    first.learn(one_step_games(first.policy, 200, hit), 0.0, 0)
    state = {
        name: np.copy(value) if isinstance(value, np.ndarray) else value
        for name, value in first.state_dict().items()
    }
    second = fresh(magnet_weight=0.1, average_fraction=1.0)
    second.load_state_dict(state)
    for learner in (first, second):
        learner.learn(one_step_games(learner.policy, 200, hit, seed=1), 0.1, 1)
    for name, value in first.state_dict().items():
        assert np.array_equal(value, second.state_dict()[name]), name
