"""Lookahead: successors are the rules', small games are solved, values are learnt, play becomes perfect."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import toys
from support.trainers import advance, first_difference

from rematch import api
from rematch.agents.learners.lookahead import LookaheadPlayer, SuccessorSolver, best_response, check_spec
from rematch.agents.networks import fused
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy, digest
from rematch.core import config as settings
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.player import RngKey, Seat
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import DECIDED, World
from rematch.training.trainer import Trainer
from rematch.worlds import registry
from rematch.worlds.numpy_world import NumpyWorld, Rows, States, Uniform


@dataclass(frozen=True, kw_only=True)
class NimConfig:
    most: int = knob(9, "most sticks at the start", low=4)


class Nim(NumpyWorld):
    """Two seats of one role take one to three sticks in turn; the seat that takes the last one wins."""

    masked = True

    @classmethod
    def make_spec(cls, config: NimConfig) -> Spec:
        fields = (
            Field(name="pile", columns=("sticks",), low=0, high=config.most, categories=(config.most + 1,)),
            Field(name="turn", columns=("mine",), low=0, high=1, categories=(2,)),
        )
        take = Actions(kind="discrete", names=("one", "two", "three"))
        role = Role(name="player", fields=fields, actions=take, seats=(0, 1))
        return Spec(world="nim", roles={"player": role})

    def layout(self) -> list[Any]:
        return [("pile", "i4"), ("turn", "i4")]

    def reset_games(self, rows: Rows, uniform: Uniform) -> None:
        self.state["pile"][rows] = 1 + (uniform[:, 0] * self.config.most).astype(np.int32)
        self.state["turn"][rows] = (uniform[:, 1] * 2).astype(np.int32)

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        pile, turn = states["pile"], states["turn"]
        return np.asarray((pile >= 1) & (pile <= self.config.most) & (turn >= 0) & (turn < 2))

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        state, rows = self.state, np.arange(self.games)
        turn = state["turn"].copy()
        taken = np.asarray(actions["player"])[rows, turn] + 1
        assert (taken <= state["pile"]).all(), "an illegal move"
        state["pile"] -= taken
        state["turn"] = 1 - turn
        over = np.flatnonzero(state["pile"] == 0)
        self.view.ended[over] = DECIDED
        self.view.outcome[over, turn[over]] = 1
        self.view.reward[over] = 2 * self.view.outcome[over] - 1

    def write_observations(self) -> None:
        fields = self.view.fields["player"]
        for seat in (0, 1):
            fields["pile"][:, seat, 0] = self.state["pile"]
            fields["turn"][:, seat, 0] = self.state["turn"] == seat
        self.view.acting[:] = self.state["turn"][:, None] == np.arange(2)
        self.view.mask["player"][:] = (np.arange(3) < self.state["pile"][:, None])[:, None]


nim = toys.game(Nim, NimConfig, {"random": toys._any_legal}, ("player",))


def solver(module: Any, config: Any) -> tuple[SuccessorSolver, World]:
    def make(games: int, first: int, seed: int) -> World:
        world: World = module.make(config, games, first, seed)
        return world

    world = make(40, 0, 3)
    value = Policy(world.spec.role_of(0), NetworkConfig(hidden=(16,)), "value")
    value.initialise(1)
    return SuccessorSolver(make, world.spec, value), world


def seat_of(world: World, seat: int) -> Seat:
    role_spec = world.spec.role_of(seat)
    rows = np.flatnonzero(world.view.acting[:, seat]).astype(np.int32)
    j = role_spec.seats.index(seat)
    obs = np.concatenate([world.view[role_spec.name][f.name][rows, j] for f in role_spec.fields], axis=-1)
    mask = world.view.mask.get(role_spec.name)
    return Seat(role_spec, seat, world, rows, obs, None if mask is None else mask[rows, j])


def test_matrix_games_are_solved() -> None:
    payoff = np.random.default_rng(0).random((50, 2, 3))
    value, rows, columns = np.empty(50), np.empty((50, 2)), np.empty((50, 3))
    fused.matrix_games(payoff, value, rows, columns)
    row_value = np.einsum("na,nab->nb", rows, payoff).min(1)
    column_value = np.einsum("nab,nb->na", payoff, columns).max(1)
    assert np.allclose(row_value, value, atol=1e-9) and np.allclose(column_value, value, atol=1e-9)
    with pytest.raises(ValueError):
        fused.matrix_games(payoff, value, rows, rows)


@pytest.mark.parametrize("fixed_opponent", [0, 1])
def test_best_response_is_the_best_pure_strategy(fixed_opponent: int) -> None:
    generator = np.random.default_rng(fixed_opponent)
    payoff = generator.random((60, 2, 3))
    mix = (generator.dirichlet(np.ones(2), 60), generator.dirichlet(np.ones(3), 60))
    opponent_mix = mix[fixed_opponent].copy()
    value = best_response(payoff, fixed_opponent, mix)
    assert np.array_equal(mix[fixed_opponent], opponent_mix)
    for n in range(60):
        if fixed_opponent == 1:
            values = [sum(payoff[n, a, b] * opponent_mix[n, b] for b in range(3)) for a in range(2)]
            assert value[n] == pytest.approx(max(values)) and mix[0][n, int(np.argmax(values))] == 1
        else:
            values = [sum(payoff[n, a, b] * opponent_mix[n, a] for a in range(2)) for b in range(3)]
            assert value[n] == pytest.approx(min(values)) and mix[1][n, int(np.argmin(values))] == 1
    assert np.array_equal(mix[1 - fixed_opponent].sum(1), np.ones(60))


@pytest.mark.parametrize("fixed_opponent", [0, 1])
def test_fixed_opponent_plays_its_own_probabilities(fixed_opponent: int) -> None:
    """The best response wins at least as much in each matrix game as the solution."""
    module = registry.find("lattice")
    equilibrium, world = solver(module, module.Config(n=5, horizon=3))
    other = Policy(world.spec.role_of(fixed_opponent), NetworkConfig(hidden=(8,)), "other")
    other.initialise(5)
    other.set(other.weights * 3)
    response = SuccessorSolver(
        equilibrium.make, world.spec, equilibrium.value, fixed_opponent=(fixed_opponent, other)
    )
    rows = np.arange(0, world.games, 2, dtype=np.int32)
    role_spec = seat_of(world, fixed_opponent)
    obs = role_spec.obs[rows]
    asked = Seat(role_spec.role, fixed_opponent, world, rows, obs, None)
    solved, equal = response.solve(world, rows), equilibrium.solve(world, rows)
    assert np.allclose(solved.mix[fixed_opponent], other.action_probs(asked), atol=1e-6)
    gain = solved.value - equal.value if fixed_opponent == 1 else equal.value - solved.value
    assert gain.min() > -1e-9 and gain.max() > 1e-3


def test_successors_follow_the_rules() -> None:
    module = registry.find("lattice")
    config = module.Config(n=5, horizon=3, skip=2)
    ahead, world = solver(module, config)
    rows = np.arange(world.games, dtype=np.int32)
    payoff = ahead._successors(world.save(rows))
    for a in range(3):
        for b in range(3):
            one = module.make(config, world.games)
            one.load(rows, world.save(rows))
            actions = {"pursuer": np.full((40, 1), a, np.int32), "evader": np.full((40, 1), b, np.int32)}
            view = one.step(actions)
            logit = ahead.value.forward(np.ascontiguousarray(view["pursuer"]["state"][:, 0]))[1]
            chance = 1 / (1 + np.exp(-logit.astype(np.float64)))
            assert np.allclose(payoff[:, a, b], np.where(view.ended, view.outcome[:, 0], chance), atol=1e-12)


def test_the_last_round_of_matching_pennies_is_played_half_and_half() -> None:
    """Every successor is decided, so the answer does not depend on the network."""
    ahead, world = solver(toys.matching, toys.MatchingConfig(rounds=1))
    for seat, role in enumerate(world.spec.roles):
        player = LookaheadPlayer(ahead, role)
        assert player.model_based and np.allclose(player.action_probs(seat_of(world, seat)), 0.5)
        move = player.act(seat_of(world, seat), RngKey(1, 3, 0))
        assert move.value is not None and np.allclose(move.value, 0.5) and set(move.action) == {0, 1}


def test_changed_network_invalidates_the_cache() -> None:
    ahead, world = solver(toys.matching, toys.MatchingConfig(rounds=3))
    rows = np.arange(40, dtype=np.int32)
    before = ahead.solve(world, rows)
    assert ahead.solve(world, rows) is before  # the other seat's question
    ahead.value.initialise(9)
    ahead.clear_cache()
    assert not np.allclose(ahead.solve(world, rows).value, before.value)


def trained(monkeypatch: pytest.MonkeyPatch, iterations: int) -> Trainer:
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: nim if name == "nim" else find(name))
    config = settings.replace(api.default("nim"), {
        "learner": "lookahead", "games": 64, "steps": 8, "total_steps": 64 * 8 * iterations,
        "network.hidden": (32,),
        "lookahead.minibatch_size": 128, "lookahead.replay_size": 2048, "lookahead.lr": 0.02,
        "lookahead.explore": 0.3,
    })
    trainer = Trainer(config)
    advance(trainer, iterations)
    return trainer


def test_turns_and_masks_are_learned_perfectly(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Nim a multiple of four is lost; from all other piles the winning move leaves one."""
    trainer = trained(monkeypatch, 30)
    world = trainer.setup.make_world(200, 0, 5)
    for seat in (0, 1):
        at = seat_of(world, seat)
        pile = at.obs[:, 0].astype(int)
        action = trainer.agents.players["player"].act(at, RngKey(0, 3, 0)).action
        winning = pile % 4 != 0
        assert (action[winning] + 1 == pile[winning] % 4).all()
        value = trainer.agents.players["player"].act(at, RngKey(0, 3, 0)).value
        won = winning if seat == 0 else ~winning
        assert np.abs(value - won).max() < 0.2


def test_state_and_restore_continue_identically(monkeypatch: pytest.MonkeyPatch) -> None:
    straight = trained(monkeypatch, 6)
    halted, again = Trainer(straight.config), Trainer(straight.config)
    advance(halted, 3)
    again.load_state_dict(copy.deepcopy(halted.state_dict()))
    advance(again, 3)
    ours, opponent_mix = (trainer.agents.networks["value"].weights for trainer in (again, straight))
    assert digest(ours) == digest(opponent_mix)
    assert first_difference(again.state_dict(), straight.state_dict()) == ""


@pytest.mark.parametrize(("game", "message"), [
    ("pursuit", "continuous actions"), ("gymnasium", "1 seats"),
])
def test_unsupported_worlds_are_refused(game: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings.replace(api.default(game), {"learner": "lookahead"})


def test_game_that_is_not_zero_sum_is_refused() -> None:
    """Seat 1 plays against seat 0's chance to win: where both win together that is the wrong game."""
    spec = registry.find("lattice").make(registry.find("lattice").Config(n=5, horizon=3), 1).spec
    check_spec(spec)
    with pytest.raises(ConfigError, match="lattice is not zero-sum"):
        check_spec(dataclasses.replace(spec, zero_sum=False))


def test_settings_of_the_other_learner_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"ppo.lr = .* has no effect: learner is 'lookahead'"):
        api.configure("lattice", changes={"learner": "lookahead", "ppo.lr": 0.1})
    with pytest.raises(ConfigError, match=r"lookahead.replay_ratio = .* has no effect: learner is 'ppo'"):
        api.configure("lattice", changes={"lookahead.replay_ratio": 3.0})
