"""Matches on the GPU beside those of the CPU, in an emulation that needs no GPU."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from support.emulated_training import emulated_gpu, emulated_training

from rematch import api
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.evaluation.cuda.matches import CudaMatches
from rematch.evaluation.evaluator import best_bots, evaluate
from rematch.evaluation.match import MatchKey, Played, Scoreboard
from rematch.worlds.registry import find

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation")
__all__ = ["emulated_gpu", "emulated_training"]
GAMES = 37
CHANGES = {"world.max_steps": 40, "world.arena_width": 6.0}


def boards() -> tuple[Any, Scoreboard, Scoreboard]:
    """The game, a board of the CPU and one of the GPU."""
    config = api.configure("pursuit", changes=CHANGES)
    game = find("pursuit")

    def make(games: int, first: int, seed: int) -> Any:
        return game.make(config.world, games, first, seed)

    on_cpu, on_gpu = Scoreboard(make, 3, 1), Scoreboard(make, 3, 1)
    on_gpu.many = CudaMatches(game)
    return game, on_cpu, on_gpu


def policies(spec: Any) -> dict[str, Policy]:
    out = {}
    for number, (name, role) in enumerate(spec.roles.items()):
        out[name] = Policy(role, NetworkConfig(hidden=(64, 64), fourier=2), name)
        out[name].initialise(number)
    return out


def test_scripted_matches_have_the_bits_of_the_cpu(emulated_training: None) -> None:
    game, on_cpu, on_gpu = boards()
    pursuers, evaders = (("lion", "random"), ("flee_to_corner", "random", "wall_runner"))
    for index, (pursuer, evader) in enumerate((p, e) for p in pursuers for e in evaders):
        players = [game.bot(pursuer, "pursuer"), game.bot(evader, "evader")]
        played = on_cpu.match(players, GAMES, index), on_gpu.match(players, GAMES, index)
        for name, expected, actual in zip(Played._fields, *played):
            assert expected.dtype == actual.dtype and expected.tobytes() == actual.tobytes(), name


def test_best_bots_are_those_of_the_cpu(emulated_training: None) -> None:
    game, on_cpu, on_gpu = boards()
    request = (8, ("lion", "flee_straight"), 1 << 60)
    assert best_bots(on_gpu, game, on_gpu.spec, request) == best_bots(on_cpu, game, on_cpu.spec, request)


def test_policies_act_as_on_the_cpu_up_to_rounding(emulated_training: None) -> None:
    game, on_cpu, on_gpu = boards()
    players = policies(on_cpu.spec)
    request = (GAMES, ("lion", "flee_straight", "random"), 7 << 12)
    rows = [evaluate(board, game, board.spec, players, request) for board in (on_cpu, on_gpu)]
    assert on_gpu.expected == {}  # all matches were played at once, and all were used
    for expected, actual in zip(rows[0]["table"], rows[1]["table"]):
        assert expected["rival"] == actual["rival"] and expected["games"] == actual["games"] == GAMES
        assert abs(expected["score"] - actual["score"]) <= 2.5 / GAMES
        assert expected["length"] == pytest.approx(actual["length"], rel=0.05)


def test_one_greedy_game_is_that_of_the_cpu(emulated_training: None) -> None:
    """A single game of greedy policies ends before rounding matters."""
    _, on_cpu, on_gpu = boards()
    players = list(policies(on_cpu.spec).values())
    for player in players:
        player.greedy = True
    lengths = [board.match(players, GAMES, 5).length for board in (on_cpu, on_gpu)]
    assert np.mean(lengths[0] == lengths[1]) > 0.8


def test_a_limit_of_steps_breaks_games_off(emulated_training: None) -> None:
    game, on_cpu, on_gpu = boards()
    players = [game.bot("stand_still", "pursuer"), game.bot("stand_still", "evader")]
    on_cpu.max_steps = on_gpu.max_steps = 30 * GAMES
    expected, actual = on_cpu.match(players, GAMES, 0), on_gpu.match(players, GAMES, 0)
    assert actual.unfinished.all() and (actual.length == 30).all()
    assert np.array_equal(expected.outcome, actual.outcome) and np.array_equal(expected.length, actual.length)


def test_players_that_the_gpu_cannot_seat_are_left_to_the_cpu(emulated_training: None) -> None:
    game, _, on_gpu = boards()
    role = on_gpu.spec.roles["pursuer"]
    own = Policy(role, NetworkConfig(hidden=(64, 64)), "own")
    own.config = NetworkConfig(module="mine.py:Net")
    match = ([own, game.bot("random", "evader")], MatchKey(3, 0))
    assert on_gpu.many is not None and on_gpu.many.play(on_gpu, [match]) == [None]


TORCH_SUBJECTS: dict[str, tuple[str, dict[str, Any], NetworkConfig]] = {
    "two towers": ("pursuit", {}, NetworkConfig(hidden=(16, 12), shared=False)),
    "sensors": ("pursuit", {"full_obs": False, "lidar_rays": 4, "history_length": 2},
                NetworkConfig(hidden=(12,), encoder="lstm", encoder_hidden=6)),
    "categories": ("lattice", {"n": 5, "horizon": 9}, NetworkConfig(hidden=(16,), critic="own")),
    "one role": ("beasty", {}, NetworkConfig(hidden=(12,), critic="centralized")),
    "transformer": ("beasty", {}, NetworkConfig(kind="transformer", width=8, heads=2, layers=1)),
}  # fmt: skip


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("subject", TORCH_SUBJECTS)
def test_networks_of_torch_act_as_on_the_cpu(subject: str, greedy: bool, emulated_training: None) -> None:
    """Equal games but for the few in which rounding changes an action."""
    name, settings, network = TORCH_SUBJECTS[subject]
    game = find(name)
    config = game.Config(**settings | ({"max_steps": 20} if name == "pursuit" else {}))
    on_cpu, on_gpu = (Scoreboard(lambda *place: game.make(config, *place), 3, 1) for _ in range(2))
    on_gpu.many = CudaMatches(game)
    players: list[Any] = []
    for seat in range(on_cpu.spec.seats):
        role = on_cpu.spec.role_of(seat)
        players.append(Policy(role, network, f"{role.name} {seat}"))
        players[-1].initialise(seat)
        players[-1].greedy = greedy
    other = on_cpu.spec.role_of(1).name
    against_bot = [players[0], game.bot(game.bots[other][-1], other)]
    for match in (players, against_bot):
        expected, actual = on_cpu.match(match, GAMES, 5), on_gpu.match(match, GAMES, 5)
        same = expected.length == actual.length
        assert np.mean(same) > 0.9
        assert np.abs(expected.outcome - actual.outcome)[same].mean() < 0.05
    if on_cpu.spec.role_of(0).actions.kind == "discrete":
        assert np.mean(expected.actions == actual.actions) > 0.9
    (table,) = on_gpu.many.tables.values()
    assert len(table.torch_seats) == len(on_cpu.spec.roles)
