"""The fused network equals its reference in torch: every output, every gradient, every shape."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from support.networks import Batch, minibatch, policy, role

from rematch.agents.learners.ppo import PpoConfig
from rematch.agents.learners.ppo_loss import loss
from rematch.agents.networks import fused, mlp
from rematch.agents.policy import Policy

# Float32 sums of 64 .. 1000 products differ from float64 by about this much of their size. Octaves of sine
# and cosine are polynomials that are right to 4e-6 in the first octave, twice that in each further one.
CLOSE = 2e-6


def tolerance(made: Policy) -> float:
    return CLOSE if not made.config.fourier else 4e-6 * 2.0**made.config.fourier


def doubles(batch: Batch) -> Batch:
    return {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in batch.items()}


def reference(made: Policy, obs: Any, mask: Any = None, privileged: Any = None) -> tuple[Any, Any]:
    """The distribution and values of the readable network in float64."""
    flat = torch.from_numpy(made.weights.astype(np.float64))
    mask = None if mask is None else torch.from_numpy(mask)
    privileged = None if privileged is None else torch.from_numpy(privileged.astype(np.float64))
    obs = torch.from_numpy(obs.astype(np.float64))
    output = mlp.forward(flat, made.role, made.config, obs, mask, privileged=privileged)
    return output.distribution, output.value


def both_gradients(
    made: Policy, batch: Batch, rows: Any, config: PpoConfig, entropy: float
) -> tuple[Any, Any, dict[str, float], dict[str, float]]:
    """(fused gradient, float64 autograd gradient, fused means, autograd means)"""
    native = np.empty_like(made.weights)
    weights = (config.clip, config.value_clip, config.value_weight, entropy, config.magnet_weight)
    means = made.network.gradient(made.packed[0], rows, batch, weights, 1, native)
    flat = torch.from_numpy(made.weights.astype(np.float64)).requires_grad_()
    part = {k: v if k == "magnet_log_std" else v[rows] for k, v in doubles(batch).items()}
    total, tensors = loss(made, config, flat, part, entropy)
    (slope,) = torch.autograd.grad(total, flat)
    return native, slope.numpy(), means, {k: float(v.detach()) for k, v in tensors.items()}


SHAPES: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    # role, network, rows: every option together with every other, sizes on and off multiples of 4, 8, 16, 64
    ({"discrete": True}, {"hidden": (64, 64)}, 192),
    ({"discrete": True, "obs": 1, "actions": 1}, {"hidden": (1,)}, 1),
    ({"discrete": True, "obs": 17, "actions": 33}, {"hidden": (19, 7), "activation": "relu"}, 65),
    ({"discrete": True, "obs": 3, "actions": 2}, {"hidden": (5, 9, 3), "shared": False}, 63),
    ({"discrete": True, "obs": 4}, {"hidden": (16,), "fourier": 1}, 130),
    (
        {"discrete": True, "obs": 2, "actions": 7},
        {"hidden": (31, 65), "shared": False, "activation": "relu", "fourier": 2},
        77,
    ),
    ({"discrete": False, "actions": 2}, {"hidden": (64, 64)}, 128),
    ({"discrete": False, "obs": 1, "actions": 1}, {"hidden": (1,), "shared": False}, 1),
    ({"discrete": False, "obs": 33, "actions": 5}, {"hidden": (130,), "activation": "relu"}, 100),
    ({"discrete": False, "obs": 7, "actions": 3}, {"hidden": (8,) * 8, "shared": False}, 67),
    ({"discrete": False, "obs": 6, "actions": 1}, {"hidden": (24, 48), "fourier": 3}, 1030),
    (
        {"discrete": False, "obs": 2, "actions": 4},
        {"hidden": (17,), "shared": False, "activation": "relu", "fourier": 3},
        2,
    ),
    # categorical columns: with numbers, alone, few and many, a single category
    ({"discrete": True, "names": (5, 300, 2)}, {"hidden": (64, 64)}, 200),
    ({"discrete": True, "obs": 0, "names": (7, 1)}, {"hidden": (19,), "activation": "relu"}, 65),
    ({"discrete": True, "obs": 3, "names": (40,)}, {"hidden": (5, 9), "shared": False, "fourier": 1}, 1030),
    ({"discrete": False, "obs": 0, "names": (3, 3, 3, 90)}, {"hidden": (130, 8), "shared": False}, 63),
    # a centralized critic: numbers, categories or both, with and without observed categories
    ({"discrete": True, "privileged": (0,) * 13}, {"hidden": (64, 64), "critic": "centralized"}, 200),
    ({"discrete": False, "privileged": (0, 4, 0, 9)},
     {"hidden": (19, 7), "critic": "centralized", "fourier": 2},
     65),
    ({"discrete": True, "names": (5, 3), "privileged": (0,)},
     {"hidden": (8,), "critic": "centralized", "fourier": 1}, 99),
    ({"discrete": False, "obs": 0, "names": (7,), "privileged": (3, 0)},
     {"hidden": (33,), "critic": "centralized"}, 63),
]  # fmt: skip


@pytest.mark.parametrize(("role_spec", "net", "rows"), SHAPES)
def test_forward(role_spec: dict[str, Any], net: dict[str, Any], rows: int) -> None:
    made = policy(role(**role_spec), **net)
    batch = minibatch(made, rows, seed=1)
    obs, privileged = batch["obs"], batch.get("privileged")
    heads, value = made.forward(obs, privileged=privileged)
    play, expected = reference(made, obs, None, privileged)
    scale = max(1.0, float(play.heads.abs().max()))
    assert np.abs(heads - play.heads.numpy()).max() < tolerance(made) * scale
    assert np.abs(value - expected.numpy()).max() < tolerance(made) * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize(("role_spec", "net", "rows"), SHAPES)
def test_log_probabilities_belong_to_the_sampled_actions(
    role_spec: dict[str, Any], net: dict[str, Any], rows: int
) -> None:
    made = policy(role(**role_spec), **net)
    batch = minibatch(made, rows, masked=role_spec["discrete"])
    n = rows
    action = np.zeros_like(batch["action"])
    logp, value = np.zeros(n, np.float32), np.zeros(n, np.float32)
    for greedy in (False, True):
        made.network.act(
            made.packed,
            np.zeros(n, np.int32),
            batch["obs"],
            np.arange(n, dtype=np.uint32),
            (9, 2**33),
            action,
            logp,
            value,
            mask=batch.get("mask"),
            greedy=greedy,
        )
        play, _ = reference(made, batch["obs"], batch.get("mask"))
        expected = play.log_prob(
            torch.from_numpy(action.astype(np.float64) if action.ndim > 1 else action)
        ).numpy()
        assert np.abs(logp - expected).max() < 20 * tolerance(made)


TERMS: dict[str, dict[str, float]] = {
    "surrogate": {"value_weight": 0.0},
    "tight clip": {"value_weight": 0.0, "clip": 0.05},
    "no clip": {"value_weight": 0.0, "clip": 0.0},
    "value": {"value_weight": 0.7},
    "value clip": {"value_weight": 0.7, "value_clip": 0.2},
    "entropy": {"value_weight": 0.0, "entropy": 0.3},
    "magnet": {"value_weight": 0.0, "magnet_weight": 0.5},
    "all": {"value_weight": 0.7, "value_clip": 0.25, "entropy": 0.02, "magnet_weight": 0.3},
}


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(("discrete", "masked"), [(False, False), (True, False), (True, True)])
def test_gradient_of_every_term(term: str, masked: bool, discrete: bool) -> None:
    settings = dict(TERMS[term])
    entropy = settings.pop("entropy", 0.0)
    for net in ({"hidden": (20, 11)}, {"hidden": (20, 11), "shared": False, "activation": "relu"}):
        made = policy(role(actions=4, discrete=discrete), **net)  # type: ignore[arg-type]
        batch = minibatch(made, 300, masked=masked, magnet="magnet_weight" in settings)
        rows = np.random.default_rng(2).permutation(300)[:133].astype(np.int64)
        native, expected, means, mean = both_gradients(made, batch, rows, PpoConfig(**settings), entropy)  # type: ignore[arg-type]
        assert np.isfinite(native).all() and np.abs(expected).max() > 0
        assert np.linalg.norm(native - expected) < CLOSE * np.linalg.norm(expected)
        assert np.abs(native - expected).max() < CLOSE * np.abs(expected).max()
        for name, value in means.items():
            assert value == pytest.approx(mean[name], rel=2e-6, abs=2e-6), name
        assert means["clip_fraction"] > 0.05 or term == "value"


@pytest.mark.parametrize(("role_spec", "net", "rows"), SHAPES)
def test_gradient_of_every_shape(role_spec: dict[str, Any], net: dict[str, Any], rows: int) -> None:
    made = policy(role(**role_spec), **net)
    batch = minibatch(made, rows, masked=role_spec["discrete"], magnet=True)
    config = PpoConfig(value_clip=0.2, magnet_weight=0.2)
    native, expected, _, _ = both_gradients(made, batch, np.arange(rows), config, 0.05)
    # a row whose ratio or value lies on a bound to the last bit may fall on either side: there is none
    assert np.linalg.norm(native - expected) < 3 * tolerance(made) * np.linalg.norm(expected)


@pytest.mark.parametrize("adv", [-1.0, 1.0])
@pytest.mark.parametrize("moved", [-0.5, -0.1, 0.1, 0.5])
def test_clip_stops_the_gradient_on_the_right_side(adv: float, moved: float) -> None:
    """eq. 7: no gradient once the ratio of a good action is above 1.2 or that of a bad one below 0.8."""
    made = policy(role())
    batch = minibatch(made, 1)
    play, _ = reference(made, batch["obs"])
    now = float(play.log_prob(torch.from_numpy(batch["action"]))[0])
    batch |= {"logp": np.array([now - moved], np.float32), "advantage": np.array([adv], np.float32)}
    out = np.empty_like(made.weights)
    made.network.gradient(made.packed[0], np.arange(1), batch, (0.2, 0.0, 0.0, 0.0, 0.0), 1, out)
    stopped = (adv > 0 and moved > 0.2) or (adv < 0 and moved < -0.25)
    assert (np.abs(out).max() == 0) == stopped


@pytest.mark.parametrize("discrete", [False, True])
def test_gradients_do_not_depend_on_threads(discrete: bool) -> None:
    made = policy(role(discrete=discrete, names=(50, 3)), hidden=(33, 20), shared=False)
    for rows in (1, 64, 65, 1000, 3000):
        batch = minibatch(made, rows, masked=discrete, magnet=True)
        order = np.random.default_rng(0).permutation(rows).astype(np.int64)
        first: Any = None
        for threads in (1, 2, 3, 16, 64, 1000):
            out = np.full_like(made.weights, np.nan)
            means = made.network.gradient(
                made.packed[0], order, batch, (0.2, 0.2, 0.5, 0.01, 0.1), threads, out
            )
            if first is None:
                first = (out.tobytes(), means)
            assert (out.tobytes(), means) == first


@pytest.mark.parametrize("discrete", [False, True])
def test_row_depends_on_itself_alone(discrete: bool) -> None:
    """Alone, with other rows, in another order, among other slots: the same bits."""
    made = policy(role(discrete=discrete), hidden=(33, 20), fourier=1)
    other = policy(role(discrete=discrete), seed=5, hidden=(33, 20), fourier=1)
    packed = np.concatenate([made.packed, other.packed])
    n = 200
    rng = np.random.default_rng(3)
    obs = rng.uniform(-1, 1, (n, made.role.size)).astype(np.float32)
    slot = rng.integers(0, 2, n).astype(np.int32)
    number = rng.integers(0, 2**32, n).astype(np.uint32)

    def act(rows: Any) -> tuple[Any, Any, Any]:
        m = len(rows)
        action: Any = np.zeros(m, np.int32) if discrete else np.zeros((m, made.role.actions.size), np.float32)
        logp, value = np.zeros(m, np.float32), np.zeros(m, np.float32)
        made.network.act(packed, slot[rows], obs[rows], number[rows], (4, 7), action, logp, value)
        return action, logp, value

    whole = act(np.arange(n))
    for rows in (np.arange(1), np.array([77]), rng.permutation(n), np.arange(60, 130)):
        for all_of_it, part in zip(whole, act(rows)):
            assert all_of_it[rows].tobytes() == part.tobytes()


def test_rows_of_other_slots_and_waiting_seats_do_not_change() -> None:
    made = policy(role())
    n = 130
    slot = (np.arange(n) % 5 - 1).astype(np.int32)  # -1 .. 3, of which 0 and 1 exist
    acting = (np.arange(n) % 3 > 0).astype(np.uint8)
    packed = np.concatenate([made.packed, made.packed])
    action, logp, value = np.full(n, -7, np.int32), np.full(n, -7, np.float32), np.full(n, -7, np.float32)
    heads = np.full((n, 3), -7, np.float32)
    obs = np.random.default_rng(0).uniform(-1, 1, (n, 5)).astype(np.float32)
    number = np.arange(n, dtype=np.uint32)
    made.network.act(packed, slot, obs, number, (0, 0), action, logp, value, acting=acting, heads=heads)
    played = (slot >= 0) & (slot < 2) & (acting == 1)
    assert (action[played] >= 0).all() and (logp[played] < 0).all()
    for array in (action, logp, value, heads):
        assert (array[~played] == -7).all() and (array[played] != -7).all()


# --- sampling --------------------------------------------------------------------------------------


def draw(made: Policy, obs: Any, n: int, draw: tuple[int, int] = (11, 3), **more: Any) -> Any:
    """n samples of one observation."""
    discrete, size = made.role.actions.kind == "discrete", made.role.actions.size
    action: Any = np.zeros(n, np.int32) if discrete else np.zeros((n, size), np.float32)
    logp, value = np.zeros(n, np.float32), np.zeros(n, np.float32)
    rows = np.repeat(obs[None].astype(np.float32), n, 0)
    if "mask" in more:
        more["mask"] = np.repeat(np.array(more["mask"], np.uint8)[None], n, 0)
    made.network.act(
        made.packed,
        np.zeros(n, np.int32),
        rows,
        np.arange(n, dtype=np.uint32),
        draw,
        action,
        logp,
        value,
        **more,
    )
    return action


@pytest.mark.parametrize(
    "mask", [(1, 1, 1, 1, 1), (0, 1, 1, 0, 1), (1, 0, 0, 0, 0), (0, 0, 0, 0, 1), (0, 1, 0, 1, 0)]
)
def test_discrete_samples_follow_probabilities_and_masks(mask: tuple[int, ...]) -> None:
    made = policy(role(actions=5), seed=4)
    obs = np.array([0.3, -0.8, 0.1, 0.9, -0.2])
    n = 40_000
    counts = np.bincount(draw(made, obs, n, mask=mask), minlength=5)
    play, _ = reference(made, obs[None], np.array([mask], np.uint8))
    expected = play.heads.softmax(-1).numpy()[0] * n
    legal = np.array(mask, bool)
    assert (counts[~legal] == 0).all()
    # chi-square with at most 4 degrees of freedom: beyond 27.9 once in 80 000
    assert ((counts - expected)[legal] ** 2 / expected[legal]).sum() < 27.9


def test_gaussian_samples_have_mean_deviation_and_independence() -> None:
    made = policy(role(actions=3, discrete=False), seed=4)
    weights = made.weights.copy()
    weights[-3:] = (-1.0, 0.0, 0.5)
    made.set(weights)
    obs = np.array([0.3, -0.8, 0.1, 0.9, -0.2])
    n = 40_000
    actions = draw(made, obs, n).astype(np.float64)
    play, _ = reference(made, obs[None])
    assert play.log_std is not None
    z = (actions - play.heads.numpy()) / play.log_std.exp().numpy()
    assert np.abs(z.mean(0)).max() < 4.5 / n**0.5
    assert np.abs(z.var(0) - 1).max() < 4.5 * (2 / n) ** 0.5
    assert (
        np.abs((z**3).mean(0)).max() < 4.5 * (15 / n) ** 0.5
        and np.abs((z**4).mean(0) - 3).max() < 4.5 * (96 / n) ** 0.5
    )
    for a, b in itertools.combinations(range(3), 2):
        assert abs((z[:, a] * z[:, b]).mean()) < 4.5 / n**0.5
        assert abs((z[:, a] ** 2 * z[:, b] ** 2).mean() - 1) < 4.5 * (8 / n) ** 0.5


@pytest.mark.parametrize("discrete", [False, True])
def test_samples_depend_on_key_step_and_number(discrete: bool) -> None:
    made = policy(role(actions=4, discrete=discrete))
    obs = np.zeros(5)
    base = draw(made, obs, 500, (11, 3))
    assert (base == draw(made, obs, 500, (11, 3))).all()
    for other in ((12, 3), (11 + 2**40, 3), (11, 4), (11, 3 + 2**32)):
        assert (base != draw(made, obs, 500, other)).any()


def test_greedy_takes_the_most_likely_legal_action() -> None:
    made = policy(role(actions=5), seed=4)
    obs = np.random.default_rng(0).uniform(-1, 1, (100, 5)).astype(np.float32)
    for mask in ((1, 1, 1, 1, 1), (0, 1, 0, 1, 1), (0, 0, 0, 1, 0)):
        legal = np.repeat(np.array([mask], np.uint8), 100, 0)
        play, _ = reference(made, obs, legal)
        action, logp, value = np.zeros(100, np.int32), np.zeros(100, np.float32), np.zeros(100, np.float32)
        made.network.act(
            made.packed,
            np.zeros(100, np.int32),
            obs,
            np.zeros(100, np.uint32),
            (0, 0),
            action,
            logp,
            value,
            mask=legal,
            greedy=True,
        )
        assert (action == play.heads.argmax(-1).numpy()).all()
    gaussian = policy(role(actions=2, discrete=False))
    assert (
        draw(gaussian, np.zeros(5), 3, greedy=True) == gaussian.forward(np.zeros((3, 5), np.float32))[0]
    ).all()


def test_extreme_logits_stay_finite_and_legal() -> None:
    made = policy(role(actions=3))
    weights = made.weights.copy()
    for name, shape, at in made.layout:
        if name == "policy.head.bias":
            weights[at : at + shape[0]] = (80.0, -80.0, 0.0)
    made.set(weights)
    assert set(draw(made, np.zeros(5), 2000).tolist()) == {0}
    assert set(draw(made, np.zeros(5), 2000, mask=(0, 1, 1)).tolist()) == {2}
    assert set(draw(made, np.zeros(5), 2000, mask=(0, 1, 0)).tolist()) == {1}
    batch = minibatch(made, 70)
    out = np.empty_like(made.weights)
    made.network.gradient(made.packed[0], np.arange(70), batch, (0.2, 0.0, 0.5, 0.01, 0.0), 1, out)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_non_finite_inputs_give_non_finite_outputs(bad: float, discrete: bool) -> None:
    """No operation is undefined either: tools/checks/sanitize.py runs this."""
    made = policy(role(discrete=discrete), fourier=2)
    batch = minibatch(made, 70, magnet=True)
    out = np.empty_like(made.weights)
    for name in ("obs", "weights"):
        weights, obs = made.weights.copy(), batch["obs"].copy()
        (obs if name == "obs" else weights)[:] = bad
        broken = Policy(made.role, made.config, "test", weights)
        heads, value = broken.forward(obs)
        taken = draw(broken, obs[0], 70)
        assert not discrete or set(taken.tolist()) <= {0, 1, 2}
        means = broken.network.gradient(
            broken.packed[0], np.arange(70), batch | {"obs": obs}, (0.2, 0.2, 0.5, 0.01, 0.1), 2, out
        )
        if np.isnan(bad):
            assert np.isnan(heads).all() and np.isnan(value).all()
            assert np.isnan(means["value_loss"]) and np.isnan(out).any()


# --- errors ----------------------------------------------------------------------------------------


def test_arrays_that_do_not_fit_are_refused() -> None:
    made = policy(role())
    net, n = made.network, 4
    slot, number = np.zeros(n, np.int32), np.zeros(n, np.uint32)
    obs, action, logp, value = (
        np.zeros((n, 5), np.float32),
        slot.copy(),
        np.zeros(n, np.float32),
        np.zeros(n, np.float32),
    )
    net.act(made.packed, slot, obs, number, (0, 0), action, logp, value)
    wrong: list[dict[int, Any]] = [
        {1: slot[:3]},
        {2: obs[:, :4].copy()},
        {3: number[:3]},
        {5: action[:3]},
        {6: logp[:3]},
        {7: value[:3]},
        {0: made.packed[:, :-1].copy()},
        {1: slot.astype(np.int64)},
        {2: obs.astype(np.float64)},
    ]
    for change in wrong:
        given: list[Any] = [made.packed, slot, obs, number, (0, 0), action, logp, value]
        for i, array in change.items():
            given[i] = array
        with pytest.raises(ValueError):
            net.act(*given)
    for name, bad in (
        ("mask", np.ones((n, 2), np.uint8)),
        ("acting", np.ones(3, np.uint8)),
        ("heads", np.ones((n, 2), np.float32)),
    ):
        with pytest.raises(ValueError):
            net.act(made.packed, slot, obs, number, (0, 0), action, logp, value, **{name: bad})  # type: ignore[arg-type]
    batch, out = minibatch(made, n), np.empty_like(made.weights)
    for rows in (np.array([], np.int64), np.array([-1]), np.array([n])):
        with pytest.raises(ValueError):
            net.gradient(made.packed[0], rows, batch, (0.2, 0, 0.5, 0, 0), 1, out)
    for name, bad in (
        ("logp", logp[:3]),
        ("action", np.full(n, 3, np.int32)),
        ("action", np.full(n, -1, np.int32)),
        ("mask", np.ones((n, 4), np.uint8)),
        ("magnet", np.ones((3, 3), np.float32)),
    ):
        with pytest.raises(ValueError):
            net.gradient(made.packed[0], np.arange(n), batch | {name: bad}, (0.2, 0, 0.5, 0, 0), 1, out)
    steady = policy(role(actions=2, discrete=False))
    batch, out = minibatch(steady, n, magnet=True), np.empty_like(steady.weights)
    for length in (0, 1, 3):  # a shorter one would be read past its end
        wrong_spread = batch | {"magnet_log_std": np.zeros(length, np.float32)}
        with pytest.raises(ValueError, match="magnet_log_std"):
            steady.network.gradient(
                steady.packed[0], np.arange(n), wrong_spread, (0.2, 0, 0.5, 0, 0.1), 1, out
            )
    with pytest.raises(ValueError):
        fused.Network((0,) * 3, 2, True, (4,) * 9, True, "tanh")
    with pytest.raises(ValueError):
        fused.Network((0,) * 3, 2, True, (4,), True, "gelu")
    net.act(made.packed, slot[:0], obs[:0], number[:0], (0, 0), action[:0], logp[:0], value[:0])
