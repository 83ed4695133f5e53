"""Stored games of every world on the page, replay files of the user, and the policies that can meet."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import gameboy_worlds
from support.recorded_games import recorded
from support.served_pages import Client, serving
from support.tiny_run import SMALL

import rematch
from rematch.core.errors import ConfigError, Damaged
from rematch.evaluation.replay import Playback
from rematch.storage import replay_files
from rematch.web import replay_routes
from rematch.web.run_data import identifier
from rematch.web.worlds import beasty_replays

pytestmark = pytest.mark.usefixtures("blank_pictures")
CLIENT = "0" * 32
TINY_BEASTY = {"games": 8, "steps": 4, "total_steps": 64, "save_every": 1, "evaluation.every": 1,
               "evaluation.games": 4, "network.hidden": [8]}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of pursuit with past policies, one of Beasty Bar, one that says to be of the Game Boy."""
    folder = tmp_path_factory.mktemp("served")
    rematch.train("quick", SMALL | {"past_policies.count": 3}, folder=folder / "one")
    shutil.copytree(folder / "one", folder / "other")
    rematch.train("beasty", TINY_BEASTY, folder=folder / "cards")
    shutil.copytree(folder / "cards", folder / "cartridge")
    config = folder / "cartridge/config.yaml"
    text = config.read_text().replace("game: beasty", "game: gameboy")
    config.write_text(text.partition("world:")[0] + "world:\n  cartridge: tiny\n")
    return folder


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[Client]:
    with serving(root) as port:
        yield Client(port)


def base(root: Path, name: str, world: str) -> str:
    return f"/api/worlds/{world}/runs/{identifier(root, root / name)}"


def shown_file(client: Client, world: str, text: Any) -> Any:
    status, job = client.post(f"/api/worlds/{world}/file", {"file": text})
    assert status == 200, job
    return client.finished(world, job["job"])


# --- policies -----------------------------------------------------------------------------------------------


def test_policies_of_any_iteration_of_any_run_meet(client: Client, root: Path) -> None:
    overview = client.json(base(root, "one", "pursuit"))
    other = identifier(root, root / "other")
    for role in ("pursuer", "evader"):
        choices = {one["id"]: one for one in overview["players"][role]}
        iterations = replay_routes.past_iterations(root / "other")
        assert iterations and {f"past:{i}" for i in iterations} <= choices.keys()
        assert {f"run:{other}", *(f"run:{other}@{i}" for i in iterations)} <= choices.keys()
        assert {one["group"] for one in choices.values()} == {"this run", "scripted players", "run other"}
    body = {"players": [f"run:{other}@{iterations[0]}", f"past:{iterations[-1]}"], "choose": "", "seed": 1}
    status, job = client.post(f"{base(root, 'one', 'pursuit')}/match", body)
    assert status == 200, job
    done = client.finished("pursuit", job["job"])
    assert done["state"] == "done", done["text"]
    names = [player["name"] for player in done["result"]["players"]]
    assert names == [f"run other, iteration {iterations[0]}", f"iteration {iterations[-1]}"]
    stored = [replay_files.decode(done["result"]["file"].encode(), "x").players[0].digest]
    past = root / "other/past" / f"{iterations[0]:08d}.safetensors"
    assert past.is_file() and len(stored[0]) == 64


def test_many_past_policies_are_offered_evenly_spaced(tmp_path: Path) -> None:
    (tmp_path / "past").mkdir()
    for iteration in range(0, 4000, 8):
        (tmp_path / "past" / f"{iteration:08d}.json").write_bytes(b"{}")
    offered = replay_routes.past_iterations(tmp_path)
    assert len(offered) == replay_routes.MOST_PAST and offered[0] == 0 and offered[-1] == 3992


# --- Beasty Bar ---------------------------------------------------------------------------------------------


def test_stored_card_game_shows_every_position_and_its_review(client: Client, root: Path) -> None:
    overview = client.json(base(root, "cards", "beasty"))
    assert overview["name"] == "cards" and overview["replays"]
    name = overview["replays"][-1]["id"]
    scene = client.json(f"{base(root, 'cards', 'beasty')}/replays/{name}")
    replay = replay_files.read(root / f"cards/replays/{name}.replay")
    assert scene["caption"] == replay.caption() and scene["outcomes"] == list(replay.outcome)
    playback = Playback(replay)
    world: Any = playback.world
    for step in playback.steps():
        (state,) = world.read(np.zeros(1, np.int32))
        position = scene["positions"][step]
        assert [(card["owner"], card["animal"]) for card in position["line"]] == list(state.line)
        assert position["turn"] == state.turn == scene["turns"][step]["seat"]
        assert [set(player["hand"]) for player in position["players"]] == [set(hand) for hand in state.hands]
    assert len(scene["positions"]) == replay.length + 1
    review = client.json(f"{base(root, 'cards', 'beasty')}/replays/{name}/review")
    assert review["seat"] == 0 and all(0 <= one["played"] <= one["best"] <= 1 for one in review["chances"])
    assert str(root) not in json.dumps([overview, scene, review])


@pytest.mark.parametrize("players", [3, 4])
def test_recorded_game_of_more_players_is_shown(players: int) -> None:
    replay = recorded("beasty", players=players)
    scene = beasty_replays.scene(replay)
    assert len(scene["names"]) == players == len(scene["positions"][0]["players"])
    assert scene["outcomes"] == list(replay.outcome)


def test_illegal_and_foreign_moves_of_a_replay_are_one_line() -> None:
    replay = recorded("beasty")
    (actions,) = replay.actions.values()
    actions[2] = (actions[2] + 1) % 33
    with pytest.raises((Damaged, ConfigError)):
        for shift in range(33):
            actions[2] = (actions[2] + shift) % 33
            beasty_replays.scene(replay)
    with pytest.raises(ConfigError, match="earlier_rules"):
        beasty_replays.scene(recorded("beasty", earlier_rules=True, first=0))


# --- replay files of the user -------------------------------------------------------------------------------


@pytest.mark.parametrize(("world", "changes"), [("pursuit", {"max_steps": 40}), ("lattice", {"n": 4}),
                                                ("beasty", {})])
def test_replay_file_of_the_user_is_shown(client: Client, world: str, changes: dict[str, Any]) -> None:
    replay = recorded(world, **changes)
    text = replay_files.encode(replay).decode()
    done = shown_file(client, world, text)
    assert done["state"] == "done", done["text"]
    result = done["result"]
    assert (result["caption"], result["length"], result["file"]) == (replay.caption(), replay.length, text)
    assert ("review" in result) == (world == "beasty")


def test_wrong_replay_files_are_one_line(client: Client) -> None:
    game = replay_files.encode(recorded("lattice", n=4)).decode()
    for text, problem in (("", "not well-formed JSON"), ("{}", "is not a replay of Rematch"),
                          ("[" * 50_000, "not well-formed JSON"),
                          (game, "is a game of lattice, not of pursuit"),
                          (game.replace('"n": 4', '"n": 9').replace('"n":4', '"n":9'), "")):  # fmt: skip
        done = shown_file(client, "pursuit", text)
        assert done["state"] == "failed" and problem in done["text"] and "\n" not in done["text"], done
        assert "Traceback" not in done["text"]
    for body in ({"file": 1}, {"file": game, "more": 1}, {"name": game}):
        assert client.post("/api/worlds/pursuit/file", body)[0] == 400
    status, text = client.post("/api/worlds/pursuit/file", {"file": "x" * (replay_routes.MOST_FILE + 1)})
    assert status == 400 and "larger than 1 MiB" in text
    for lone in (b"\\ud800", b"\\udfff x"):  # half of a pair: no text has it
        body = b'{"file": "' + lone + b'"}'
        status, _, answer = client.send("/api/worlds/pursuit/file", "POST", body=body,
                                        Content_Type="application/json")
        assert status == 400 and answer == b"expected file, the text of a replay file"
    large = b'{"file": "' + b"x" * (3 << 20) + b'"}'
    status = client.send("/api/worlds/pursuit/file", "POST", body=large, Content_Type="application/json")[0]
    assert status == 413


# --- Game Boy -----------------------------------------------------------------------------------------------


def open_replay(client: Client, root: Path, name: str, step: Any) -> tuple[int, Any]:
    body = {"client": CLIENT, "replay": name, "step": step}
    return client.post(f"{base(root, 'cartridge', 'gameboy')}/open", body)


def test_stored_cartridge_game_opens_at_any_step(client: Client, root: Path) -> None:
    gameboy_worlds.need_pyboy()
    replay = recorded("gameboy", limit=30, cartridge="tiny", max_steps=100)
    inner = root / "cartridge/replays"
    for old in inner.iterdir():
        old.unlink()
    replay_files.write(inner / "00000002-1.replay", replay)
    (inner / "00000003-1.replay").write_bytes(b"{}")
    overview = client.json(base(root, "cartridge", "gameboy"))
    assert overview["replays"][0]["caption"] == replay.caption() and "problem" in overview["replays"][1]
    screens, playback = [], Playback(replay)
    world: Any = playback.world
    for _ in playback.steps():
        screens.append(world.screen(0) >> 6)
    (column,) = replay.actions.values()
    for step in (0, 1, 17, replay.length - 1):
        status, state = open_replay(client, root, "00000002-1", step)
        assert status == 200, state
        assert state["recorded"] == column[:, 0].tolist() and state["step"] == step
        packed = np.frombuffer(base64.b64decode(state["screen"]), np.uint8)
        shown = (packed[:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(144, 160)
        assert (shown == screens[step]).all(), step
    press = f"/api/worlds/gameboy/sessions/{state['session']}/press"
    assert client.post(press, {"client": CLIENT, "actions": [0]})[0] == 200, "the game is the user's now"
    for name, step in (("00000002-1", replay.length + 1), ("00000002-1", -1), ("00000002-1", True),
                       ("00000002-1", "0"), ("00000009-1", 0), ("../00000002-1", 0), (None, 0),
                       ("00000003-1", 0)):  # fmt: skip
        status, text = open_replay(client, root, name, step)  # type: ignore[arg-type]
        assert status == 400 and "\n" not in text, (name, step)
    replay_files.write(inner / "00000004-1.replay", recorded("lattice", n=4))
    assert "not of gameboy" in open_replay(client, root, "00000004-1", 0)[1]
