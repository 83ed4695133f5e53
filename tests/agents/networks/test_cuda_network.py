"""The CUDA kernels beside the networks and the loss of the CPU, in an emulation that needs no GPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.cuda_emulation import EmulatedKernels

from rematch.agents.learners.ppo import Ppo, PpoConfig
from rematch.agents.networks import cuda_network as networks
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.system import cuda
from rematch.rollout.rollout_buffer import RolloutBuffer

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation")
SHAPES = {
    "continuous": (Actions(kind="continuous", names=("speed", "turn")), 21,
                   NetworkConfig(hidden=(64, 64), fourier=2)),
    "discrete": (Actions(kind="discrete", names=("left", "straight", "right")), 5,
                 NetworkConfig(hidden=(64, 128), activation="relu")),
    "continuous, warpgroups": (Actions(kind="continuous", names=("speed", "turn")), 19,
                               NetworkConfig(hidden=(64, 64), fourier=2)),
    "discrete, warpgroups": (Actions(kind="discrete", names=("left", "straight", "right")), 5,
                             NetworkConfig(hidden=(64, 64))),
}  # fmt: skip
KERNEL_NUMBERS = {"lr": 0.0, "clip": 0.2, "value_clip": 0.2, "value_weight": 0.5, "entropy_weight": 0.01,
                  "magnet_weight": 0.1, "max_norm": 0.5, "log_std_low": -3.0, "log_std_high": 0.5, "key": 9,
                  "epochs": 1, "minibatch": 1000}  # fmt: skip


@dataclass
class Subject:
    """One network, its kernels and a random generator."""

    policy: Policy
    kernels: EmulatedKernels
    order: networks.WeightOrder
    rng: np.random.Generator

    @property
    def role(self) -> Role:
        return self.policy.role

    @property
    def discrete(self) -> bool:
        return self.role.actions.kind == "discrete"


@pytest.fixture(scope="module", params=SHAPES)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "has_warpgroups", lambda: "warpgroups" in request.param)
        yield make_subject(request.param)


def make_subject(shape: str) -> Subject:
    actions, columns, config = SHAPES[shape]
    field = Field(name="state", columns=tuple(f"c{i}" for i in range(columns)))
    role = Role(name="robot", fields=(field,), privileged=(), actions=actions, seats=(0,), hidden=())
    policy, rng = Policy(role, config, "policy"), np.random.default_rng(0)
    policy.initialise(3)
    policy.set((policy.weights + 0.05 * rng.standard_normal(policy.weights.size)).astype(np.float32))
    kernels = EmulatedKernels(role, config)
    return Subject(policy, kernels, networks.WeightOrder(role, config), rng)


def test_weight_order_is_inverted_and_shared_memory_is_sufficient(subject: Subject) -> None:
    weights = subject.policy.weights
    back = np.zeros_like(weights)
    subject.order.to_flat(subject.order.to_device(weights), back)
    assert np.array_equal(back, weights) and subject.order.size % 4 == 0
    role, config = subject.role, subject.policy.config
    assert not networks.cannot_compute(role, config)
    needed = networks.update_bytes(role, config, networks.tile_rows(role, config))
    assert subject.kernels.library.weight_bytes() == networks.weight_bytes(role, config)
    assert subject.kernels.shared_bytes(1) <= needed <= networks.SHARED_MEMORY
    assert subject.kernels.shared_bytes(0) <= networks.act_bytes(role, config)
    assert subject.kernels.shared_bytes(2) <= networks.SELECT_BYTES


def test_act_computes_each_slot_with_its_weights_and_the_random_numbers_of_the_cpu(subject: Subject) -> None:
    games, size, rng = 150, subject.role.actions.size, subject.rng
    weights = [subject.policy.weights, subject.policy.weights * np.float32(0.5)]
    obs = rng.uniform(-1, 1, (games, subject.role.size)).astype(np.float32)
    slot = rng.integers(0, 3, (games, 2)).astype(np.int32)  # slot 2 is a scripted player
    acting = (rng.random((games, 2)) < 0.9).astype(np.uint8)
    mask = np.ones((games, size), np.uint8)
    mask[:, 0] = rng.random(games) < 0.5
    action = np.full((games, size), np.nan, np.float32)
    choice, logp = np.full(games, -1, np.int32), np.full(games, np.nan, np.float32)
    value, heads = np.full(games, np.nan, np.float32), np.full((games, size), np.nan, np.float32)
    packed = subject.kernels.pack(np.stack([subject.order.to_device(flat) for flat in weights]))
    values: dict[str, Any] = {
        "weights": packed, "obs": obs, "slot": slot, "acting": acting, "action": action, "choice": choice,
        "logp": logp, "value": value, "heads": heads, "key": 1234, "rows": games, "seats": 1, "all_seats": 2,
        "first_seat": 1, "slots": 2,
    }  # fmt: skip
    if subject.discrete:
        values["mask"] = mask
    subject.kernels.act(values, blocks=2 + 1, step=77)
    for number, flat in enumerate(weights):
        policy = Policy(subject.role, subject.policy.config, "slot", flat)
        expected_heads, expected_value = policy.forward(obs)
        rows = (slot[:, 1] == number) & (acting[:, 1] != 0)
        assert rows.any()
        np.testing.assert_allclose(heads[rows], expected_heads[rows], atol=0.02)
        np.testing.assert_allclose(value[rows], expected_value[rows], atol=0.03)
        if subject.discrete:
            assert mask[np.flatnonzero(rows), choice[rows]].all()
            continue
        drawn, drawn_logp = np.zeros((games, size), np.float32), np.zeros(games, np.float32)
        policy.network.act(
            policy.packed,
            np.zeros(games, np.int32),
            obs,
            np.arange(games, dtype=np.uint32),
            (1234, 77),
            drawn,
            drawn_logp,
            np.zeros(games, np.float32),
        )
        np.testing.assert_allclose(action[rows], drawn[rows], atol=0.02)
        np.testing.assert_allclose(logp[rows], drawn_logp[rows], atol=1e-4)
    others = (slot[:, 1] == 2) | (acting[:, 1] == 0)
    assert np.isnan(value[others]).all()


def minibatch(subject: Subject, rows: int) -> dict[str, Any]:
    """Random rows as a rollout has them."""
    policy, rng, size = subject.policy, subject.rng, subject.role.actions.size
    obs = rng.uniform(-1, 1, (rows, subject.role.size)).astype(np.float32)
    heads, value = policy.forward(obs)
    batch: dict[str, Any] = {
        "obs": obs,
        "magnet": (heads + rng.normal(0, 0.2, heads.shape)).astype(np.float32),
    }
    if subject.discrete:
        batch["mask"] = np.ones((rows, size), np.uint8)
        batch["mask"][::3, 0] = 0
        batch["action"] = rng.integers(1, size, rows).astype(np.int32)
        logits = np.where(batch["mask"], heads, -np.inf)
        logp = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        logp = logp[np.arange(rows), batch["action"]]
    else:
        log_std = policy.weights[-size:]
        batch["action"] = rng.normal(0, 0.6, (rows, size)).astype(np.float32)
        logp = (-0.5 * ((batch["action"] - heads) / np.exp(log_std)) ** 2 - log_std - 0.918938533).sum(1)
        batch["magnet_log_std"] = np.array([-0.4, -0.7], np.float32)
    moved = logp + away_from(-np.log([0.8, 1.2]), 0.04, rng.normal(0, 0.15, rows))
    batch["logp"] = moved.astype(np.float32)
    batch["advantage"], batch["target"] = rng.normal(0.3, 2, (2, rows)).astype(np.float32)
    batch["value"] = (value + away_from([-0.2, 0.2], 0.05, rng.normal(0, 0.3, rows))).astype(np.float32)
    return batch


def away_from(bounds: Any, distance: float, numbers: Any) -> Any:
    """These numbers; 0 where one is so near to a bound of clipping that rounding decides on its gradient."""
    return np.where((np.abs(numbers[:, None] - np.asarray(bounds)) < distance).any(1), 0.0, numbers)


def inputs_of(subject: Subject, obs: Any) -> Any:
    """The inputs of the first layer that `act` stores."""
    rows, size = len(obs), networks.inputs(subject.role, subject.policy.config)
    inputs, scratch = np.full((rows, size), 0x7FC0, np.uint16), np.zeros((2, rows), np.float32)
    packed = subject.kernels.pack(subject.order.to_device(subject.policy.weights)[None])
    values = {
        "weights": packed, "obs": obs, "slot": np.zeros(rows, np.int32), "acting": np.ones(rows, np.uint8),
        "action": np.zeros((rows, subject.role.actions.size), np.float32), "choice": np.zeros(rows, np.int32),
        "logp": scratch[0], "value": scratch[1], "rows": rows, "seats": 1, "all_seats": 1, "slots": 1,
        "inputs": inputs,
    }  # fmt: skip
    subject.kernels.act(values, blocks=-(-rows // 128))
    return inputs


def run_update(
    subject: Subject, batch: dict[str, Any], index: Any, blocks: int, **numbers: float
) -> dict[str, Any]:
    """The arrays of one launch; advantages of the indexed rows are normalised by the kernel."""
    size = subject.order.size
    chosen = batch["advantage"][index].astype(np.float64)
    arrays: dict[str, Any] = {name: array for name, array in batch.items() if name not in ("action", "obs")}
    arrays["inputs"] = inputs_of(subject, batch["obs"])
    arrays["choice" if subject.discrete else "action"] = batch["action"]
    epochs, rows = int(numbers.get("epochs", 1)), int(numbers.get("minibatch", KERNEL_NUMBERS["minibatch"]))
    minibatches, tile = -(-len(index) // rows), networks.tile_rows(subject.role, subject.policy.config)
    tiles = epochs * minibatches * -(-rows // tile)
    arrays |= {
        "weights": subject.order.to_device(subject.policy.weights), "first": np.zeros(size, np.float32),
        "second": np.zeros(size, np.float32), "new_weights": np.zeros(size, np.float32),
        "partial": np.full((networks.groups(subject.role, subject.policy.config), size), np.nan, np.float32),
        "count": np.array([len(index)], np.int32),
        "chunk_sums": np.full(-(-size // 4 // networks.CHUNK) + 1, np.nan), "index": index,
        "tile_stats": np.full((tiles, networks.ROW_STATS), np.nan, np.float32),
        "numbers": np.zeros(len(networks.NUMBERS)), "barrier": np.zeros(1, np.uint32),
        "scaling": np.array([chosen.mean(), 1 / (chosen.std() + 1e-8)]), "updates": np.zeros(1, np.int32),
        "failed": np.zeros(1, np.int32),
        "records": np.full((len(batch["logp"]), networks.record_size(subject.role)), np.nan, np.float32),
    }  # fmt: skip
    arrays["order"] = np.full((epochs, len(index)), -1, np.int32)
    numbers["capacity"] = len(index)
    arrays["packed"] = subject.kernels.pack(arrays["weights"][None])
    subject.kernels.update(arrays | KERNEL_NUMBERS | numbers, blocks)
    assert not arrays["failed"][0]
    assert np.array_equal(arrays["packed"], subject.kernels.pack(arrays["weights"][None]))
    if numbers.get("active", 1):
        assert all(np.array_equal(np.sort(order), np.sort(index)) for order in arrays["order"])
    return arrays


def test_update_has_the_gradient_of_the_cpu(subject: Subject) -> None:
    batch = minibatch(subject, 300)
    index = np.sort(subject.rng.permutation(300)[:200]).astype(np.int32)
    arrays = run_update(subject, batch, index, blocks=2)
    found = np.zeros_like(subject.policy.weights)
    subject.order.to_flat(arrays["partial"][0], found)
    mean, scale = arrays["scaling"]
    normalised = batch | {"advantage": ((batch["advantage"] - mean) * scale).astype(np.float32)}
    config = PpoConfig(magnet_weight=0.1, value_clip=0.2)
    expected, means = Ppo(subject.policy, config, 0, 1).gradient(normalised, index.astype(np.int64), 0.01)
    assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected)
    stats = dict(zip(networks.NUMBERS, arrays["numbers"]))
    for name in ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "magnet_kl"):
        assert stats[name] == pytest.approx(means[name], rel=0.03, abs=3e-3), name
    assert stats["grad_norm_pre_clip"] == pytest.approx(np.linalg.norm(expected), rel=0.02)


def test_update_visits_every_row_once_per_epoch_and_counts_its_steps(subject: Subject) -> None:
    batch = minibatch(subject, 260)
    index = np.arange(260, dtype=np.int32)
    arrays = run_update(subject, batch, index, blocks=2, epochs=2, minibatch=100)
    stats = dict(zip(networks.NUMBERS, arrays["numbers"]))
    assert arrays["updates"][0] == stats["updates"] == 2 * 3
    # With a learning rate of 0 the value loss of an epoch is that of all rows, whatever their order.
    whole = run_update(subject, batch, index, blocks=1, minibatch=260)
    by_size = run_update(subject, batch, index, blocks=3, epochs=1, minibatch=130)
    total = dict(zip(networks.NUMBERS, whole["numbers"]))["value_loss"]
    halves = dict(zip(networks.NUMBERS, by_size["numbers"]))["value_loss"]
    assert halves / 2 == pytest.approx(total, rel=1e-4)


def test_update_has_the_same_bits_whenever_it_is_repeated_and_moves_the_weights(subject: Subject) -> None:
    batch, index = minibatch(subject, 140), np.arange(140, dtype=np.int32)
    runs = [run_update(subject, batch, index, blocks=2, lr=0.01, epochs=2, minibatch=64) for _ in range(2)]
    assert runs[0]["weights"].tobytes() == runs[1]["weights"].tobytes()
    before = subject.order.to_device(subject.policy.weights)
    assert 0.001 < np.abs(runs[0]["weights"] - before).max() < 0.2


@pytest.mark.slow
def test_update_has_the_same_bits_with_any_number_of_blocks(subject: Subject) -> None:
    """Alone a learner has many blocks, beside others a few: chains of groups, or of adders."""
    tile = networks.tile_rows(subject.role, subject.policy.config)
    rows = 9 * tile + 5
    batch, index = minibatch(subject, rows), np.arange(rows, dtype=np.int32)
    settings = {"lr": 0.01, "epochs": 1, "minibatch": 9 * tile, "target_kl": 100.0}
    runs = [run_update(subject, batch, index, blocks=blocks, **settings) for blocks in (1, 3, 8, 9)]
    for name in ("weights", "first", "second", "numbers", "new_weights"):
        assert len({run[name].tobytes() for run in runs}) == 1, name
    assert runs[0]["numbers"][networks.NUMBERS.index("updates")] == 2


def test_rows_to_learn_from_are_listed_in_order_with_their_moments(subject: Subject) -> None:
    rows, rng = networks.SELECT_ROWS + 300, subject.rng
    counts = (rng.random(rows) < 0.4).astype(np.int32)
    arrays: dict[str, Any] = {
        "counts": counts, "advantage": rng.normal(2, 3, rows).astype(np.float32),
        "target": rng.normal(-1, 2, rows).astype(np.float32),
        "value": rng.normal(0, 1, rows).astype(np.float32),
        "index": np.full(rows, -1, np.int32), "count": np.zeros(1, np.int32), "scaling": np.zeros(2),
        "block_counts": np.full(2, -1, np.int32), "block_moments": np.full((2, networks.MOMENTS), np.nan),
        "numbers": np.zeros(len(networks.NUMBERS)), "barrier": np.ones(1, np.uint32),
        "failed": np.ones(1, np.int32), "capacity": rows,
    }  # fmt: skip
    subject.kernels.select(arrays)
    chosen = np.flatnonzero(counts)
    assert np.array_equal(arrays["index"][: len(chosen)], chosen) and arrays["count"][0] == len(chosen)
    advantage = arrays["advantage"][chosen].astype(np.float64)
    assert arrays["scaling"] == pytest.approx([advantage.mean(), 1 / (advantage.std() + 1e-8)])
    numbers = dict(zip(networks.NUMBERS, arrays["numbers"]))
    target, value = arrays["target"][chosen].astype(np.float64), arrays["value"][chosen]
    assert numbers["target_variance"] == pytest.approx(target.var())
    assert numbers["residual_variance"] == pytest.approx((target - value).var())
    assert numbers["decisions"] == len(chosen) and not arrays["barrier"][0] and not arrays["failed"][0]


def test_a_learner_that_is_not_active_changes_nothing(subject: Subject) -> None:
    batch, index = minibatch(subject, 40), np.arange(40, dtype=np.int32)
    arrays = run_update(subject, batch, index, blocks=1, lr=0.01, active=0)
    assert np.array_equal(arrays["weights"], subject.order.to_device(subject.policy.weights))
    assert not arrays["numbers"].any()


def test_target_kl_ends_the_epochs(subject: Subject) -> None:
    batch, index = minibatch(subject, 140), np.arange(140, dtype=np.int32)
    arrays = run_update(subject, batch, index, blocks=1, epochs=4, minibatch=70, target_kl=1e-9)
    assert arrays["updates"][0] == 1


def test_advantages_are_those_of_the_rollout_buffer(subject: Subject) -> None:
    steps, games, seats, rng = 7, 20, 2, subject.rng
    role = Role(
        name="robot",
        fields=subject.role.fields,
        privileged=(),
        actions=subject.role.actions,
        seats=(0, 1),
        hidden=(),
    )
    rollout = RolloutBuffer(Spec(world="toy", roles={"robot": role}), steps, games)
    part = rollout["robot"]
    rollout.ended[:] = rng.random((steps, games)) < 0.2
    part.reward[:], part.value[:] = rng.standard_normal((2, steps, games, seats))
    part.last_value[:] = rng.standard_normal((games, seats))
    part.acted[:], part.last_acting[:] = (
        rng.random((steps, games, seats)) < 0.6,
        rng.random((games, seats)) < 0.6,
    )
    part.slot[:] = rng.random((steps, games, seats)) < 0.3
    expected = rollout.advantages("robot", 0.99, 0.95)
    rows = games * seats
    arrays: dict[str, Any] = {
        "reward": part.reward, "ended": rollout.ended, "slot": np.concatenate([part.slot, part.slot[:1]]),
        "acting": np.concatenate([part.acted, part.last_acting[None]]),
        "value": np.concatenate([part.value, part.last_value[None]]),
        "advantage": np.zeros((steps, rows), np.float32), "target": np.zeros((steps, rows), np.float32),
        "counts": np.zeros((steps, rows), np.int32),
    }  # fmt: skip
    numbers = {
        "rows": rows,
        "seats": seats,
        "all_seats": seats,
        "reward_seats": seats,
        "steps": steps,
        "gamma": 0.99,
        "gamma_lambda": 0.99 * 0.95,
    }
    subject.kernels.advantages(arrays | numbers, rows)
    counts = expected[2].reshape(steps, rows)
    assert np.array_equal(arrays["counts"] != 0, counts)
    for name, wanted in (("advantage", expected[0]), ("target", expected[1])):
        np.testing.assert_allclose(arrays[name][counts], wanted.reshape(steps, rows)[counts], atol=1e-5)


@pytest.mark.parametrize(("changes", "reason"), [
    ({"hidden": (64,)}, "expected two layers"), ({"hidden": (64, 48)}, "expected two layers"),
    ({"shared": False}, "separate layers"), ({"fourier": 8, "hidden": (128, 128)}, "shared memory"),
    ({"kind": "transformer"}, "PyTorch"),
])  # fmt: skip
def test_networks_that_the_kernels_do_not_compute_are_named(changes: dict[str, Any], reason: str) -> None:
    field = Field(name="state", columns=tuple(f"c{i}" for i in range(40)))
    actions = Actions(kind="continuous", names=("turn",))
    role = Role(name="robot", fields=(field,), privileged=(), actions=actions, seats=(0,), hidden=())
    assert reason in networks.cannot_compute(role, NetworkConfig(**changes))
