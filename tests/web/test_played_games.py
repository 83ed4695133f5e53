"""Games that a person plays on the page of pursuit or lattice: real rules, one game per client, bounded."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.served_pages import Client, serving
from support.tiny_run import SMALL

import rematch
from rematch.core.errors import ConfigError
from rematch.core.spec import Actions
from rematch.evaluation.replay import Playback
from rematch.storage import replay_files
from rematch.web import play_process, played_games
from rematch.web.run_data import identifier

pytestmark = pytest.mark.usefixtures("blank_pictures")
BOARD = {"games": 8, "steps": 4, "total_steps": 64, "save_every": 1, "evaluation.games": 4, "world.n": 5,
         "world.block": 0, "world.horizon": 4, "network.hidden": [8]}  # fmt: skip
ME = "0123456789abcdef" * 2
DRIVE = {"pursuit": [1.0, 0.5], "lattice": 1}
RUNS = {"pursuit": "chase", "lattice": "board"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trained")
    rematch.train("quick", SMALL, folder=root / "chase")
    rematch.train("lattice", BOARD, folder=root / "board")
    return root


@pytest.fixture
def client(root: Path) -> Iterator[Client]:
    with serving(root) as port:
        yield Client(port)


def start(client: Client, root: Path, world: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    whole = {"client": ME, "role": "evader", "opponent": "newest", "seed": 3} | (body or {})
    return client.post(f"/api/worlds/{world}/runs/{identifier(root, root / RUNS[world])}/play", whole)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Games whose process answers {} to everything: for rules that do not depend on the game."""
    echo = "import sys\nfor line in sys.stdin: print('{}', flush=True)"
    monkeypatch.setattr(played_games, "COMMAND", (sys.executable, "-c", echo))


def act(client: Client, world: str, game: str, action: Any, who: str = ME) -> tuple[int, Any]:
    return client.post(f"/api/worlds/{world}/games/{game}/act", {"client": who, "action": action})


@pytest.mark.slow
@pytest.mark.parametrize("world", ["pursuit", "lattice"])
def test_game_of_a_person_follows_the_rules_and_becomes_a_replay(
    client: Client, root: Path, world: str
) -> None:
    status, state = start(client, root, world)
    assert status == 200 and state["step"] == 0, state
    frames = [state["frame"]]
    while True:
        status, state = act(client, world, state["game"], DRIVE[world])
        assert status == 200, state
        if state.get("over"):
            break
        frames.append(state["frame"])
    scene = state["scene"]
    replay = replay_files.decode(scene["file"].encode(), "game.replay")
    Playback(replay).verify()
    assert [player.name for player in replay.players] == ["newest policy of this run", "you"]
    assert scene["length"] == replay.length == len(frames)
    key = {"pursuit": "x", "lattice": "cells"}[world]
    assert scene[key] == [frame[key] for frame in frames], "the page has shown the states of the game"
    played = scene["actions"][1]["rows"]
    assert played == [pytest.approx(DRIVE[world])] * len(frames), "and played what the person chose"
    assert act(client, world, state["game"], DRIVE[world]) == (400, played_games.ENDED)


@pytest.mark.slow
def test_move_of_a_person_is_the_one_on_the_board(client: Client, root: Path) -> None:
    """With `symmetry` a policy may observe a reflection; a person sees the board."""
    reflected = set()
    for seed in range(12):
        _, state = start(client, root, "lattice", {"seed": seed, "opponent": "bot:random"})
        before = state["frame"]
        reflected.add(before["mirrored"])
        _, state = act(client, "lattice", state["game"], 0)
        if not state.get("over"):
            assert (state["frame"]["headings"][1] - before["headings"][1]) % 8 == 1, "left"
        if len(reflected) == 2:
            return
    raise AssertionError("no reflected board among these starts")


def test_client_has_one_game_and_the_server_few(client: Client, root: Path, fake: None) -> None:
    _, first = start(client, root, "lattice")
    _, second = start(client, root, "lattice")
    assert act(client, "lattice", first["game"], 1)[0] == 400, "the earlier game has ended"
    assert act(client, "lattice", second["game"], 1, who="f" * 32)[0] == 400, "a game of someone else"
    games = {ME: second["game"]}
    for number in range(1, played_games.MOST_GAMES):
        status, state = start(client, root, "lattice", {"client": f"{number:032x}"})
        assert status == 200
        games[f"{number:032x}"] = state["game"]
    status, text = start(client, root, "lattice", {"client": "e" * 32})
    assert status == 400 and "games are being played here" in text
    assert client.post(f"/api/worlds/lattice/games/{second['game']}/close", {"client": ME}) == (200, {})
    status, state = start(client, root, "lattice", {"client": "e" * 32})
    assert status == 200
    for who, game in games.items():
        client.post(f"/api/worlds/lattice/games/{game}/close", {"client": who})
    client.post(f"/api/worlds/lattice/games/{state['game']}/close", {"client": "e" * 32})


@pytest.mark.parametrize("changes", [
    {"client": "x"}, {"client": 3}, {"role": "judge"}, {"role": ["evader"]}, {"opponent": "../../etc/passwd"},
    {"opponent": "bot:nobody"}, {"opponent": None}, {"seed": -1}, {"seed": "1"}, {"seed": True}, {"more": 1},
])  # fmt: skip
def test_wrong_requests_start_no_game(
    monkeypatch: pytest.MonkeyPatch, client: Client, root: Path, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(played_games, "COMMAND", ("/no/such/program",))
    status, text = start(client, root, "pursuit", changes)
    assert status == 400 and text and str(root) not in text


def test_run_of_another_world_is_refused(client: Client, root: Path, fake: None) -> None:
    other = identifier(root, root / "board")
    body = {"client": ME, "role": "evader", "opponent": "newest", "seed": 3}
    status, text = client.post(f"/api/worlds/pursuit/runs/{other}/play", body)
    assert (status, text) == (400, "this is not a run of pursuit")
    assert client.post(f"/api/worlds/pursuit/runs/{'0' * 16}/play", body)[0] == 404


def test_policy_that_is_gone_is_one_line(client: Client, root: Path) -> None:
    shutil.copytree(root / "board", root / "lost")
    shutil.rmtree(root / "lost/policies")
    shutil.rmtree(root / "lost/checkpoints")
    body = {"client": ME, "role": "evader", "opponent": "newest", "seed": 3}
    status, text = client.post(f"/api/worlds/lattice/runs/{identifier(root, root / 'lost')}/play", body)
    shutil.rmtree(root / "lost")
    assert status == 400 and "\n" not in text and text != played_games.ENDED


def test_game_whose_process_has_died_is_said(client: Client, root: Path, fake: None) -> None:
    _, state = start(client, root, "lattice")
    game = next(game for games in played_games.GAMES.values() for game in games._games.values()
                if game.id == state["game"])  # fmt: skip
    game._child.kill()
    for _ in range(1000):
        if not game.alive:
            break
        time.sleep(0.02)
    assert not game.alive
    assert act(client, "lattice", state["game"], 1) == (400, played_games.ENDED)


def test_idle_game_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(play_process, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stdin", os.fdopen(reader))
    with pytest.raises(play_process.Gone):
        play_process.read_line()
    os.write(writer, b"[1, 2]\n")
    assert play_process.read_line() == [1, 2]
    os.close(writer)
    with pytest.raises(play_process.Gone):
        play_process.read_line()


@pytest.mark.parametrize("value", [None, "left", -1, 3, 1.5, True, [0], {"a": 1}])
def test_wrong_choice_is_one_line(value: Any) -> None:
    actions = Actions(kind="discrete", names=("left", "straight", "right"))
    with pytest.raises(ConfigError, match="expected a whole number from 0 to 2"):
        play_process.checked(actions, value)
    assert play_process.checked(actions, 2) == 2


@pytest.mark.parametrize("value", [None, 0.5, [0.5], [0.5, 2.0], [0.5, "1"], [0.5, True], [float("nan"), 0]])
def test_wrong_numbers_are_one_line(value: Any) -> None:
    actions = Actions(kind="continuous", names=("speed", "turn"))
    with pytest.raises(ConfigError, match="expected 2 numbers from -1 to 1"):
        play_process.checked(actions, value)
    assert play_process.checked(actions, [1, -0.5]).tolist() == [1.0, -0.5]
