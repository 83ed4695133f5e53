"""PPO: its gradient against finite differences of a loss written here, Adam against torch's, and the rest."""

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


def slow_loss(made: Policy, weights: Any, batch: Batch, config: PpoConfig, entropy_weight: float) -> float:
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
            # Kullback and Leibler's divergence of two Gaussians
            far = np.exp(2 * s) + (heads - batch["magnet"][i]) ** 2
            pull = float((m - s + far / (2 * np.exp(2 * m)) - 0.5).sum())
        else:
            legal = np.flatnonzero(batch["mask"][i])
            logs = heads[legal] - log_sum_exp(heads[legal])
            centre = batch["magnet"][i][legal]
            centre = centre - log_sum_exp(centre)
            logp = float(logs[np.flatnonzero(legal == batch["action"][i])[0]])
            entropy = -float((np.exp(logs) * logs).sum())
            pull = float((np.exp(logs) * (logs - centre)).sum())
        ratio, advantage = np.exp(logp - batch["logp"][i]), float(batch["advantage"][i])
        bounded = min(max(ratio, 1 - config.clip), 1 + config.clip)
        old, target = float(batch["value"][i]), float(batch["target"][i])
        near = old + min(max(value - old, -config.value_clip), config.value_clip)
        error = max((value - target) ** 2, (near - target) ** 2 if config.value_clip else 0.0)
        total += -min(ratio * advantage, bounded * advantage) + config.value_weight * error
        total += -entropy_weight * entropy + config.magnet_weight * pull
    return total / n


@pytest.mark.parametrize("gradient", ["native", "torch"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("discrete", [True, False])
def test_the_gradient_is_the_slope_of_the_loss(discrete: bool, shared: bool, gradient: str) -> None:
    made = policy(role(obs=3, actions=3, discrete=discrete), hidden=(4, 3), shared=shared)
    batch = minibatch(made, 14, seed=3, masked=discrete, magnet=True)
    config = PpoConfig(clip=0.15, value_clip=0.2, value_weight=0.4, magnet_weight=0.3, gradient=gradient)
    found, _ = Ppo(made, config, 0, 1).gradient(batch, np.arange(14), 0.05)
    weights = made.weights.astype(np.float64)
    wanted = np.zeros_like(weights)
    for i in range(len(weights)):
        step = np.zeros_like(weights)
        step[i] = 1e-5
        up, down = (slow_loss(made, weights + sign * step, batch, config, 0.05) for sign in (1, -1))
        wanted[i] = (up - down) / 2e-5
    assert np.abs(wanted).max() > 0.05
    assert np.abs(found - wanted).max() < 3e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("gradient", ["native", "torch"])
def test_a_temperature_divides_logits_in_the_update_too(gradient: str) -> None:
    """The slope at a temperature is that of a network whose head is divided, by the chain rule."""
    made = policy(role(obs=3, actions=3), hidden=(4, 3))
    batch = minibatch(made, 14, seed=3, masked=True, magnet=True)
    config = PpoConfig(clip=0.15, value_clip=0.2, value_weight=0.4, magnet_weight=0.3, gradient=gradient)
    learner = Ppo(made, config, 0, 1)
    learner.temperature = 0.4
    found = learner.gradient(batch, np.arange(14), 0.05)[0].copy()
    weights = made.weights.astype(np.float64)

    def at(flat: Any) -> float:
        cooled = flat.copy()
        for name in ("policy.head.weight", "policy.head.bias"):
            weight_views(cooled, made.layout)[name] /= 0.4
        return slow_loss(made, cooled, batch, config, 0.05)

    wanted = np.zeros_like(weights)
    for i in range(len(weights)):
        step = np.zeros_like(weights)
        step[i] = 1e-5
        wanted[i] = (at(weights + step) - at(weights - step)) / 2e-5
    assert np.abs(wanted).max() > 0.05
    assert np.abs(found - wanted).max() < 3e-6 * np.abs(wanted).max()


def test_who_acts_at_a_temperature_has_ratio_one() -> None:
    """Before the first step nothing has moved: a ratio of policies at other temperatures would not be 1."""
    learner = fresh(temperature=0.5, temperature_final=2.0, epochs=1, minibatch_size=1000, actions=3)
    for progress, temperature in ((0.0, 0.5), (0.5, 1.25), (1.0, 2.0)):
        acts = Policy(learner.policy.role, learner.policy.config, "acts", learner.acting(progress))
        obs = np.random.default_rng(0).uniform(-1, 1, (9, 2)).astype(np.float32)
        wanted = learner.policy.forward(obs)[0] / temperature
        assert np.allclose(acts.forward(obs)[0], wanted, atol=1e-6)
        told = learner.learn(one_step_games(acts, 500, hit), progress, 0)
        assert told["kl"] < 1e-9 and told["temperature"] == temperature
        assert learner.learn(one_step_games(learner.policy, 500, hit), progress, 1)["kl"] > 1e-9


# --- tapes to learn from -------------------------------------------------------------------------------


def one_step_games(made: Policy, n: int, pay: Any, seed: int = 0) -> RolloutBuffer:
    """n games of one decision each; `pay(sight, action)` is the reward."""
    spec = Spec(world="toy", roles={"player": made.role})
    tape = RolloutBuffer(spec, 1, n)
    track = tape["player"]
    rng = np.random.default_rng(seed)
    track.obs[:] = rng.uniform(-1, 1, track.obs.shape)
    flat = track.action[0].reshape((n,) if track.action.ndim == 3 else (n, -1))
    made.network.act(
        made.packed,
        np.zeros(n, np.int32),
        track.obs.reshape(n, -1),
        np.arange(n, dtype=np.uint32),
        (seed, 0),
        flat,
        track.logp.reshape(n),
        track.value.reshape(n),
    )
    track.acted[:], tape.ended[:] = 1, DECIDED
    track.reward[0, :, 0] = pay(track.obs[0, :, 0], flat)
    return tape


def hit(obs: Any, action: Any) -> Any:
    """Pays for naming the larger of the first two numbers seen."""
    return (action == (obs[:, 1] > obs[:, 0])).astype(np.float32)


def fresh(discrete: bool = True, actions: int = 2, **settings: Any) -> Ppo:
    made = Policy(
        role(obs=2, actions=actions, discrete=discrete), settings.pop("network", policy(role()).config), "p"
    )
    made.initialise(1)
    return Ppo(made, PpoConfig(**({"minibatch_size": 100} | settings)), 7, 1)


def weights_of(learner: Ppo) -> Any:
    return learner.policy.weights.copy()


def test_it_learns_a_choice() -> None:
    learner = fresh(lr=3e-3, anneal="none")
    for i in range(40):
        tape = one_step_games(learner.policy, 512, hit, seed=i)
        metrics = learner.learn(tape, i / 40, i)
    assert tape["player"].reward.mean() > 0.9
    assert metrics["decisions"] == 512 and metrics["updates"] == 24 and metrics["explained_variance"] <= 1


def test_it_learns_a_number() -> None:
    learner = fresh(discrete=False, actions=1, lr=3e-3, anneal="none", entropy_weight=0.0)
    for i in range(40):
        tape = one_step_games(learner.policy, 512, lambda s, a: -((a[:, 0] - s[:, 0]) ** 2), seed=i)
        learner.learn(tape, i / 40, i)
    heads, _ = learner.policy.forward(tape["player"].obs.reshape(-1, 2))
    assert np.abs(heads[:, 0] - tape["player"].obs[0, :, 0, 0]).mean() < 0.15


def test_without_a_rate_nothing_is_learnt() -> None:
    learner = fresh(lr=0.0, lr_final=0.0)
    before = digest(learner.policy.weights)
    learner.learn(one_step_games(learner.policy, 300, hit), 0.0, 0)
    assert digest(learner.policy.weights) == before


def test_native_and_torch_learn_alike() -> None:
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


def test_adam_is_torchs() -> None:
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


def test_the_standard_deviation_stays_in_bounds() -> None:
    learner = fresh(discrete=False)
    net = learner.policy.config
    for sign, bound in ((1, net.log_std_low), (-1, net.log_std_high)):
        for _ in range(20):
            learner.adam.step(learner.policy, np.full_like(learner.policy.weights, sign), 0.5)
        assert (
            weight_views(learner.policy.weights, learner.policy.layout)["policy.log_std"] == np.float32(bound)
        ).all()


def test_long_gradients_are_shortened() -> None:
    for limit, wanted in ((0.01, 0.01), (1e9, None), (0.0, None)):  # 0 is off
        learner = fresh(max_grad_norm=limit, epochs=1, minibatch_size=300)
        metrics = learner.learn(one_step_games(learner.policy, 300, hit), 0.0, 0)
        assert metrics["grad_norm_pre_clip"] > 0.02
        wanted = metrics["grad_norm_pre_clip"] if wanted is None else wanted
        assert metrics["grad_norm_post_clip"] == pytest.approx(wanted, rel=1e-5)


def test_target_kl_ends_an_iteration_early() -> None:
    free, bound = fresh(lr=0.05, epochs=10), fresh(lr=0.05, epochs=10, target_kl=0.01)
    counts = [
        learner.learn(one_step_games(learner.policy, 300, hit), 0.0, 0)["updates"]
        for learner in (free, bound)
    ]
    assert counts[0] == 30 and 1 < counts[1] < 30


def test_every_decision_is_seen_once_per_epoch() -> None:
    learner = fresh(epochs=3, minibatch_size=64)
    seen: list[Any] = []
    gradient = learner.gradient

    def spy(batch: Batch, rows: Any, weight: float) -> Any:
        seen.append(rows.copy())
        return gradient(batch, rows, weight)

    learner.gradient = spy  # type: ignore[method-assign]
    tape = one_step_games(learner.policy, 150, hit)
    tape["player"].slot[0, ::3] = 1  # rivals' decisions: 50 of 150
    learner.learn(tape, 0.0, 0)
    assert [len(rows) for rows in seen] == [64, 36] * 3
    epochs = [np.concatenate(seen[i : i + 2]) for i in (0, 2, 4)]
    for rows in epochs:
        assert sorted(rows.tolist()) == [i for i in range(150) if i % 3]
    assert (epochs[0] != epochs[1]).any()


def test_advantages_are_normalised_over_the_learners_own_decisions() -> None:
    learner = fresh()
    tape = one_step_games(learner.policy, 120, hit)
    tape["player"].slot[0, :60] = 2
    tape["player"].reward[0, :60] = 1000.0  # a rival's fortune must not move our scale
    batch, index = learner.batch(tape)
    mine = batch["advantage"][index]
    assert index.tolist() == list(range(60, 120))
    assert mine.mean() == pytest.approx(0, abs=1e-5) and mine.std() == pytest.approx(1, abs=1e-4)


def test_nothing_to_learn_from_changes_nothing() -> None:
    learner = fresh()
    tape = one_step_games(learner.policy, 20, hit)
    tape["player"].slot[:] = 1
    before = weights_of(learner)
    assert learner.learn(tape, 0.0, 0) == {"decisions": 0.0}
    assert (weights_of(learner) == before).all() and learner.adam.updates == 0


def test_one_decision_alone_is_survived() -> None:
    learner = fresh()
    metrics = learner.learn(one_step_games(learner.policy, 1, hit), 0.0, 0)
    assert metrics["decisions"] == 1 and np.isfinite(learner.policy.weights).all()
    assert all(np.isfinite(value) for value in metrics.values())


def test_rate_and_entropy_follow_progress() -> None:
    for shape, rate, weight in (("linear", 0.75, 0.5), ("none", 1.0, 0.9)):
        learner = fresh(lr=1.0, lr_final=0.5, entropy_weight=0.9, entropy_weight_final=0.1, anneal=shape)
        metrics = learner.learn(one_step_games(learner.policy, 50, hit), 0.5, 0)
        assert (metrics["lr"], metrics["entropy_weight"]) == (rate, pytest.approx(weight))


def test_the_magnet_follows_slowly_and_holds() -> None:
    learner = fresh(magnet_weight=0.5, magnet_decay=0.9, lr=1e-2)
    start = learner.magnet.copy()
    learner.learn(one_step_games(learner.policy, 300, hit), 0.0, 0)
    assert np.allclose(learner.magnet, 0.9 * start + 0.1 * learner.policy.weights, atol=1e-6)
    moved = []
    for strength in (0.001, 100.0):
        held = fresh(magnet_weight=strength, magnet_decay=1.0, lr=1e-2, epochs=8)
        for i in range(5):
            held.learn(one_step_games(held.policy, 300, hit, seed=i), 0.0, i)
        moved.append(np.abs(held.policy.forward(np.eye(2, dtype=np.float32))[0]).max())
    assert moved[1] < 0.25 * moved[0]


def test_the_mean_of_the_last_part_is_the_player_at_the_end() -> None:
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
    ("where", "said"),
    [
        ("reward", "player: a reward or value is not finite"),
        ("obs", "an observation is not finite .*column after.a0"),
        ("logp", "a log-probability is not finite"),
        ("weights", "weights are not finite"),
    ],
)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_is_named(where: str, said: str, bad: float) -> None:
    learner = fresh()
    tape = one_step_games(learner.policy, 64, hit)
    track = tape["player"]
    if where == "reward":
        track.reward[0, 7] = bad
    elif where == "obs":
        track.obs[0, 7, 0, 1] = bad
    elif where == "logp":
        track.logp[0, 7] = -bad
    else:
        broken = weights_of(learner)
        broken[3] = bad
        learner.policy.set(broken)
    before = weights_of(learner)
    with pytest.raises(LearnError, match=said) as caught:
        learner.learn(tape, 0.0, 0)
    assert len(str(caught.value).splitlines()) == 1 and isinstance(caught.value, ConfigError)
    if where != "weights":
        assert (weights_of(learner) == before).all()  # nothing was learnt from it


def test_weights_that_overflow_are_never_kept() -> None:
    learner = fresh(lr=3e38, anneal="none", epochs=1, minibatch_size=64)
    with np.errstate(over="ignore"), pytest.raises(LearnError, match="weights are not finite after update"):
        for i in range(3):
            learner.learn(one_step_games(learner.policy, 64, hit), 0.0, i)


def test_state_and_restore_continue_identically() -> None:
    first = fresh(magnet_weight=0.1, average_fraction=1.0)
    first.learn(one_step_games(first.policy, 200, hit), 0.0, 0)
    kept = {
        name: np.copy(value) if isinstance(value, np.ndarray) else value
        for name, value in first.state_dict().items()
    }
    second = fresh(magnet_weight=0.1, average_fraction=1.0)
    second.load_state_dict(kept)
    for learner in (first, second):
        learner.learn(one_step_games(learner.policy, 200, hit, seed=1), 0.1, 1)
    for name, value in first.state_dict().items():
        assert np.array_equal(value, second.state_dict()[name]), name
