"""Random network distillation: errors, gradient, deviation by their definitions; who is paid, who is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import networks, toys

from rematch import api
from rematch.agents.networks.layout import named
from rematch.core import config as settings
from rematch.core.spec import Role
from rematch.exploration.rnd import MAGNET_ALONE, Deviation, Rnd, RndConfig, curious
from rematch.rehearsal.shrink import event_log, play
from rematch.training.trainer import Config, Session
from rematch.worlds import registry


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))


def small(game: str, **changes: Any) -> Config:
    tiny: dict[str, Any] = {
        "threads": 1, "games": 32, "steps": 8, "total_steps": 4 * 32 * 8, "network.hidden": (8,),
        "ppo.minibatch": 64, "league.history": 0.0, "evaluation.every": 4, "evaluation.games": 4,
        "evaluation.rivals": ("random",), "rnd.coef": 0.1, "rnd.hidden": 16, "rnd.embed": 8,
    }
    return settings.replace(api.default(game), tiny | {k.replace("__", "."): v for k, v in changes.items()})


def collected(config: Config) -> tuple[Session, Any]:
    session = Session(config)
    session.begin()
    session.seat()
    return session, session.rollout.collect(0)


# --- by the definitions -------------------------------------------------------------------------------------


def slow_network(weights: Any, about: Role, sight: Any) -> Any:
    """[n, E]: two layers of relu and a linear one; columns that name things as one-hot vectors."""
    hot = [np.eye(n)[sight[:, i].astype(int)] if n else None for i, n in enumerate(about.choices)]
    numbers = sight[:, [i for i, n in enumerate(about.choices) if not n]].astype(np.float64)
    x = numbers @ weights["trunk.0.weight"].T + weights["trunk.0.bias"]
    rows = [part for part in hot if part is not None]
    if rows:
        x = x + np.concatenate(rows, 1) @ weights["trunk.0.table"]
    x = np.maximum(x, 0) @ weights["trunk.1.weight"].T + weights["trunk.1.bias"]
    return np.maximum(x, 0) @ weights["policy.head.weight"].T + weights["policy.head.bias"]


@pytest.mark.parametrize("names", [(), (3, 4)])
def test_the_error_is_that_of_two_plain_networks(names: tuple[int, ...]) -> None:
    about = networks.role(sight=5, names=names)
    rnd = Rnd(RndConfig(coef=1.0, hidden=12, embed=6), about, 3)
    sight = networks.minibatch(networks.policy(about), 90)["sight"]
    outs = {}
    for name, network in (("target", rnd.target), ("predictor", rnd.predictor)):
        outs[name] = slow_network(named(network.weights, network.layout), about, sight)
        np.testing.assert_allclose(network.forward(sight)[0], outs[name], rtol=1e-4, atol=1e-5)
    assert 0.05 < ((outs["target"] - outs["predictor"]) ** 2).mean() < 50  # neither nothing nor everything


@pytest.mark.parametrize("names", [(), (3, 4)])
def test_the_predictor_s_gradient_is_that_of_half_the_squared_distance(names: tuple[int, ...]) -> None:
    import torch

    from rematch.agents.networks import mlp

    about = networks.role(sight=5, names=names)
    rnd = Rnd(RndConfig(coef=1.0, hidden=12, embed=6), about, 3)
    sight = networks.minibatch(networks.policy(about), 90)["sight"]
    target = rnd.target.forward(sight)[0]
    none = np.zeros(90, np.float32)
    batch = {"sight": sight, "magnet": target, "magnet_log_std": np.zeros(6, np.float32),
             "action": np.zeros((90, 6), np.float32)}
    batch |= dict.fromkeys(("logp", "advantage", "target", "value"), none)
    rnd.predictor.network.gradient(rnd.predictor.packed[0], np.arange(90), batch, MAGNET_ALONE, 1, rnd.grad)
    flat = torch.from_numpy(rnd.predictor.weights.copy()).requires_grad_()
    play, _ = mlp.forward(flat, rnd.predictor.role, rnd.predictor.config, torch.from_numpy(sight))
    loss = 0.5 * ((play.heads - torch.from_numpy(target)) ** 2).sum(1).mean()
    (wanted,) = torch.autograd.grad(loss, flat)
    np.testing.assert_allclose(rnd.grad, wanted.numpy(), rtol=1e-3, atol=1e-5)
    assert not named(rnd.grad, rnd.predictor.layout)["policy.log_std"].any()


def test_the_deviation_is_that_of_all_values_in_any_batches() -> None:
    rng = np.random.default_rng(0)
    values, deviation = 1e3 + rng.standard_normal(1000), Deviation()
    for part in np.split(values, [1, 2, 10, 500]):
        deviation.add(part)
    assert float(deviation) == pytest.approx(values.std(), rel=1e-9)
    assert deviation.mean == pytest.approx(values.mean()) and deviation.count == 1000


# --- who is paid --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", ["matching", "sticks", "drift", "pursuit", "lattice"])
def test_bonus_of_each_decision(game: str) -> None:
    """Several fields (the toys), one field, columns that name things; only the learner's own decisions."""
    session, tape = collected(small(game))
    role = list(session.spec.roles)[-1]
    track, rnd = tape[role], session.bonuses[role]
    assert list(session.bonuses) == [role]
    track.slot[:, ::3] = 1  # somebody else sat there
    own = track.reward.copy()
    sight = track.sight.reshape(-1, track.role.size)
    error = ((rnd.predictor.forward(sight)[0] - rnd.target.forward(sight)[0]) ** 2).mean(1)
    error = error.reshape(track.reward.shape)
    mine = (track.slot == 0) & (track.acted != 0)
    told = rnd.score(tape, 0)
    assert track.bonus is not None
    np.testing.assert_allclose(track.bonus[mine], 0.1 * error[mine] / error[mine].std(), rtol=1e-3)
    assert not track.bonus[~mine].any() and (~mine).any() and mine.any()
    assert np.array_equal(track.reward, own)  # the world's own stays what it was
    here = track.slot == 0
    assert told["rnd_extrinsic"] == pytest.approx(own[here].mean(), abs=1e-6)
    assert told["rnd_intrinsic"] == pytest.approx(track.bonus[here].mean(), rel=1e-5)
    assert told["rnd_total"] == pytest.approx((own + track.bonus)[here].mean(), rel=1e-4, abs=1e-6)


def test_advantages_see_the_sum_and_only_they_do() -> None:
    session, tape = collected(small("matching"))
    session.bonuses["hider"].score(tape, 0)
    track = tape["hider"]
    with_bonus = tape.advantages("hider", 0.9, 0.8)
    bonus, own = track.bonus, track.reward.copy()
    assert bonus is not None
    track.bonus = None
    without = tape.advantages("hider", 0.9, 0.8)
    track.reward = own + bonus
    for got, wanted in zip(with_bonus, tape.advantages("hider", 0.9, 0.8)):
        assert np.array_equal(got, wanted)
    assert not np.array_equal(with_bonus[0], without[0])


def test_nothing_is_paid_twice_and_nothing_leaks_into_the_next_rollout(tmp_path: Path) -> None:
    """Returns and wins are the world's: with a bonus that learning cannot use, they are as without it."""
    still = {"ppo__lr": 0.0, "ppo__anneal": "none", "total_steps": 8 * 256}
    paid = play(small("drift", **still), tmp_path / "paid")
    plain = play(small("drift", rnd__coef=0.0, **still), tmp_path / "plain")
    names = [name for name in plain.rows[-1] if name.startswith("rollout/")]
    assert "rollout/reward_rafter" in names
    assert [[row.get(n) for n in names] for row in paid.rows] == [
        [row.get(n) for n in names] for row in plain.rows]
    assert paid.evaluations[-1]["returns"] == plain.evaluations[-1]["returns"]
    ended = [row for row in paid.rows if "rollout/length" in row]
    assert ended and all(row["rafter/rnd_intrinsic"] > 0 for row in ended)
    for row in ended:
        assert row["rafter/rnd_extrinsic"] == pytest.approx(row["rollout/reward_rafter"], abs=1e-6)


def test_what_is_seen_often_is_worth_less_than_what_is_new() -> None:
    session, tape = collected(small("matching"))
    rnd = Rnd(RndConfig(coef=1.0, hidden=32, embed=16, update_every=16), session.spec.roles["hider"], 0)
    track = tape["hider"]
    rng = np.random.default_rng(0)
    old, new = (centre + 0.1 * rng.standard_normal(track.sight.shape) for centre in (-1, 1))
    for iteration in range(30):
        track.sight[:] = old
        rnd.score(tape, iteration)
    frozen = rnd.target.weights.copy()
    track.sight[:, ::2] = new[:, ::2]
    rnd.score(tape, 30)
    assert track.bonus is not None
    assert track.bonus[:, ::2].mean() > 20 * track.bonus[:, 1::2].mean() > 0
    assert np.array_equal(rnd.target.weights, frozen)


def test_the_predictor_steps_once_per_so_many_decisions_of_a_learning_role(tmp_path: Path) -> None:
    per = 256
    session = play(small("matching", rnd__update_every=100, rnd__roles="all"), tmp_path / "both").session
    assert {name: rnd.adam.updates for name, rnd in session.bonuses.items()} == {"matcher": 12, "hider": 12}
    turns = {"schedule__kind": "alternate", "schedule__phase_steps": per, "schedule__cold_start_steps": 0}
    session = play(small("matching", rnd__update_every=100, **turns), tmp_path / "turns").session
    assert session.bonuses["hider"].adam.updates == 6 and session.bonuses["hider"].deviation.count == 2 * per


def test_state_is_everything() -> None:
    session, tape = collected(small("matching"))
    one = session.bonuses["hider"]
    one.score(tape, 0)
    two = curious(session.config.rnd, list(session.spec.roles.values()), session.config.seed)["hider"]
    two.restore({name: value.copy() if isinstance(value, np.ndarray) else value
                 for name, value in one.state().items()})
    for rnd in (one, two):
        rnd.score(tape, 1)
    assert np.array_equal(one.predictor.weights, two.predictor.weights)
    assert vars(one.deviation) == vars(two.deviation) and one.adam.updates == two.adam.updates


def test_threads_do_not_change_it() -> None:
    assert len({event_log(small("pursuit", threads=n, world__max_steps=9)) for n in (1, 2)}) == 1


def test_off_it_costs_nothing() -> None:
    session, tape = collected(small("pursuit", rnd__coef=0.0))
    session.learn(tape)
    assert session.bonuses == {} and all(track.bonus is None for track in tape.tracks.values())
    assert not any(name.startswith("rnd") for name in session.state())
