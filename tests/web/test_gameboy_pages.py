"""The page of gameboy: what the run folder holds, games in a worker process, and refusals."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import gameboy_worlds, savestate_runs, single_seat_worlds
from support.patience import wait_until
from support.served_pages import Client, client

from rematch.agents.learners import dqn
from rematch.storage.run_folder import Run
from rematch.web.run_data import identifier
from rematch.web.worlds import gameboy as page
from rematch.web.worlds import gameboy_map, gameboy_play
from rematch.worlds.gameboy.savestates import unpack

__all__ = ["client"]
gameboy_worlds.need_pyboy()
CLIENT, OTHER = "0" * 32, "1" * 32


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, sizes = tmp_path_factory.mktemp("trained") / "walk", dqn.SIZES
    dqn.SIZES = single_seat_worlds.SIZES
    try:
        savestate_runs.go_on(folder, savestate_runs.config(total_steps=4 * 20 * 8, episode_log__interval=80))
    finally:
        dqn.SIZES = sizes
    return folder


@pytest.fixture
def root(tmp_path: Path, trained: Path) -> Path:
    shutil.copytree(trained, tmp_path / "runs/walk")
    return tmp_path / "runs"


def base(root: Path) -> str:
    return f"/api/worlds/gameboy/runs/{identifier(root, root / 'walk')}"


def open_game(server: Client, root: Path, /, **body: Any) -> tuple[int, Any]:
    return server.post(f"{base(root)}/open", {"client": CLIENT, "savestate": None, "game": None} | body)


def press(client: Client, session: str, *actions: int, client_id: str = CLIENT) -> tuple[int, Any]:
    path = f"/api/worlds/gameboy/sessions/{session}/press"
    return client.post(path, {"client": client_id, "actions": list(actions)})


def pixels(state: Any) -> Any:
    """The screen [144, 160] of 0 to 3."""
    packed = np.frombuffer(base64.b64decode(state["screen"]), np.uint8)
    return (packed[:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(144, 160)


# --- what it shows ----------------------------------------------------------------------------------------


def test_overview_shows_map_games_savestates_and_posteriors(client: Client, root: Path) -> None:
    shown = client.json(base(root))
    stored = json.loads((root / "walk/world_map.json").read_text())
    assert shown["problem"] == "" and shown["name"] == "walk" and shown["step"] == stored["step"] == 640
    assert shown["maps"] == stored["maps"] and shown["frontier"] == stored["frontier"]
    assert [game["path"] for game in shown["games"]] == [game["path"] for game in stored["games"]]
    assert all("inputs" not in game and game["replayable"] for game in shown["games"])
    index = json.loads((root / "walk/savestates/index.json").read_text())[1:]
    assert [one["id"] for one in shown["savestates"]] == [row["sha256"] for row in index]
    places = {one["sha256"]: one["place"] for one in stored["savestates"]}
    assert all(one["place"] == places[one["id"]] for one in shown["savestates"])
    reached = json.loads((root / "walk/milestones.json").read_text())["milestones"]
    assert {one["name"]: one["frontier"] for one in shown["milestones"]} == {
        name: entry["frontier"] for name, entry in reached.items()}
    curves = [one["curve"] for one in shown["milestones"] if one["curve"]]
    assert curves and all(curve["step"] == [*range(80, 641, 80)] for curve in curves)
    assert all(low <= mean <= high for curve in curves
               for mean, low, high in zip(curve["mean"], curve["low"], curve["high"]))
    assert str(root) not in json.dumps(shown)


def test_long_posteriors_become_few_points_with_the_newest(tmp_path: Path) -> None:
    rows = "".join(f"{step},BADGE-1,1,1,0.5,0.1,0.9,0\n" for step in range(1, 30_001))
    header = "step,milestone,alpha,beta,mean,low95,high95,alarm_triggered"
    (tmp_path / "progress.csv").write_text(f"{header}\n{rows}7,BAD")
    curve = gameboy_map.read_posteriors(tmp_path)["BADGE-1"]
    assert len(curve["step"]) <= gameboy_map.CURVE_POINTS and curve["step"][-1] == 30_000


def test_every_dot_opens_the_screen_of_its_game(client: Client, root: Path) -> None:
    """The replayed game stands where the map says, and its screen is that of a world with the same inputs."""
    stored = json.loads((root / "walk/world_map.json").read_text())["games"]
    for number, game in enumerate(stored):
        status, state = open_game(client, root, game=number)
        assert status == 200, state
        assert state["place"] == game["path"][-1] and state["note"] == ""
        world = gameboy_worlds.world(max_steps=500)
        if game["start"]:
            files = (root / "walk/savestates").glob("*.state")
            bundles = [unpack(path.read_bytes()) for path in files]
            bundle = next(one for one in bundles if one.sha256 == game["start"])
            world.next.stage[:, 0] = world.library.add(bundle)
            world.restart()
        for digit in game["inputs"]:
            gameboy_worlds.press(world, int(digit))
        assert (pixels(state) == world.screen(0) >> 6).all()


def test_play_from_a_savestate_equals_the_world(client: Client, root: Path) -> None:
    shown = client.json(base(root))["savestates"][0]
    status, state = open_game(client, root, savestate=shown["id"])
    assert status == 200 and state["place"] == shown["place"] and len(set(pixels(state).ravel())) > 1
    (file,) = [path for path in (root / "walk/savestates").glob("*.state")
               if unpack(path.read_bytes()).sha256 == shown["id"]]  # fmt: skip
    world = gameboy_worlds.world(max_steps=500)
    world.next.stage[:, 0] = world.library.add(unpack(file.read_bytes()))
    world.restart()
    for actions in ([0, 1], [2], [3, 4, 5, 6, 0, 0, 1, 1]):
        status, state = press(client, state["session"], *actions)
        for action in actions:
            gameboy_worlds.press(world, action)
        facts = world._facts()
        assert status == 200 and state["place"] == [int(facts.map[0]), int(facts.y[0]), int(facts.x[0])]
        assert (pixels(state) == world.screen(0) >> 6).all()
    assert state["actions"] == 11


def test_power_on_shows_the_title_screen(client: Client, root: Path) -> None:
    status, state = open_game(client, root)
    assert status == 200 and state["place"] == [0, 0, 0] and len(set(pixels(state).ravel())) > 1


def test_run_without_a_map_and_damaged_files_are_said(client: Client, root: Path) -> None:
    file = root / "walk/world_map.json"
    whole = json.loads(file.read_text())
    game = {"group": "mid", "start": "", "inputs": "", "path": [[0, 1, 2]]}
    bad: list[Any] = [[], {}, whole | {"step": "9"},
                      whole | {"maps": [{"map": 300, "name": "x", "tiles": []}]},
                      whole | {"games": [game | {"group": "x"}]},
                      whole | {"games": [game | {"start": "../.."}]},
                      whole | {"frontier": [[1, 2]]}, whole | {"games": [{"group": "mid", "inputs": "9"}]},
                      whole | {"savestates": [{"sha256": "x" * 64, "place": [0, 0, 0]}]}]  # fmt: skip
    for content in (*(json.dumps(one).encode() for one in bad), b"", b"[" * 50_000, os.urandom(300)):
        file.write_bytes(content)
        shown = client.json(base(root))
        assert shown["problem"].startswith("world_map.json is damaged") and shown["savestates"]
    file.unlink()
    assert client.json(base(root))["problem"].startswith("this run has no map yet")
    file.symlink_to("/etc/passwd")
    assert b"root:" not in client.send(base(root))[2]
    (root / "walk/savestates/index.json").write_text("[{}]")
    (root / "walk/progress.csv").write_text("step,mean\n1,2\n")
    (root / "walk/milestones.json").write_text("3")
    shown = client.json(base(root))
    assert shown["savestates"] == [] and shown["milestones"] == []


# --- limits -----------------------------------------------------------------------------------------------


def test_client_has_one_session_and_the_server_few(client: Client, root: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(gameboy_play, "MOST_SESSIONS", 1)
    _, first = open_game(client, root)
    _, second = open_game(client, root)
    assert press(client, first["session"], 0)[0] == 400 and press(client, second["session"], 0)[0] == 200
    status, text = open_game(client, root, client=OTHER)
    assert status == 400 and "games are being played" in text
    assert press(client, second["session"], 0, client_id=OTHER)[0] == 400, "a session belongs to its client"
    close = f"/api/worlds/gameboy/sessions/{second['session']}/close"
    assert client.post(close, {"client": CLIENT}) == (200, {})
    assert press(client, second["session"], 0)[0] == 400
    assert open_game(client, root, client=OTHER)[0] == 200


def test_idle_session_ends_with_its_process(client: Client, root: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(gameboy_play, "IDLE_SECONDS", 0.4)
    consoles: list[Any] = []
    make = gameboy_play.Console.__init__

    def made(self: Any, folder: Path) -> None:
        make(self, folder)
        consoles.append(self.pool.workers[0].child)

    monkeypatch.setattr(gameboy_play.Console, "__init__", made)
    _, state = open_game(client, root)
    wait_until(lambda: consoles[0].poll() is not None, "its process does not end")
    status, text = press(client, state["session"], 0)
    assert status == 400 and text.startswith("this game has ended")


def test_actions_are_limited_in_number_and_rate(client: Client, root: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(gameboy_play, "MOST_ACTIONS", 10)
    monkeypatch.setattr(gameboy_play, "ACTIONS_PER_SECOND", 0.01)
    _, state = open_game(client, root)
    assert press(client, state["session"], *[0] * 8)[0] == 200
    status, text = press(client, state["session"], 0, 0)
    assert status == 400 and "actions a second" in text
    monkeypatch.setattr(gameboy_play, "ACTIONS_PER_SECOND", 1e6)
    assert press(client, state["session"], 0, 0)[0] == 200
    status, text = press(client, state["session"], 0)
    assert status == 400 and "10 actions" in text


def test_game_that_cannot_be_replayed_is_said(client: Client, root: Path, monkeypatch: Any) -> None:
    file = root / "walk/world_map.json"
    whole = json.loads(file.read_text())
    whole["games"][0]["inputs"] = None
    whole["games"][1]["path"][-1] = [0, 1, 1]
    whole["games"][2]["start"] = "a" * 64
    file.write_text(json.dumps(whole))
    monkeypatch.setattr(page, "MOST_REPLAYED", 1)
    assert "began before the run's first step" in open_game(client, root, game=0)[1]
    assert "at most 1 are replayed" in open_game(client, root, game=3)[1]
    monkeypatch.setattr(page, "MOST_REPLAYED", 1000)
    assert "another place" in open_game(client, root, game=1)[1]["note"]
    assert open_game(client, root, game=2)[1] == "there is no such savestate (any more)"


# --- hostile requests and folders -------------------------------------------------------------------------


def test_hostile_bodies_are_refused(client: Client, root: Path) -> None:
    names = ["", "..", "../../etc/passwd", "/etc/passwd", "%2e%2e%2f", "DAWN_1.state", "a" * 64, "A" * 64, 0,
             1.5, True, [], {}, "\x00", "é", "index.json", "a" * 5000]  # fmt: skip
    for name in names:
        for key in ("savestate", "game", "client"):
            if (key, name) == ("game", 0):
                continue
            status, text = open_game(client, root, **{key: name})
            assert status == 400 and "root:" not in text and str(root) not in text, (key, name, text)
    _, state = open_game(client, root)
    path = f"/api/worlds/gameboy/sessions/{state['session']}/press"
    bad: list[Any] = [None, [], [7], [-1], [True], [0.0], ["0"], [[0]], [0] * 9, "0", {"0": 0}, 0]
    for actions in bad:
        assert client.post(path, {"client": CLIENT, "actions": actions})[0] == 400, actions
    more = {"client": CLIENT, "actions": [0], "more": 1}
    for body in ({}, {"client": CLIENT}, {"actions": [0]}, more, [], "x"):
        assert client.post(path, body)[0] == 400, body
    assert press(client, state["session"], 0)[0] == 200, "it still plays"


def test_hostile_savestates_are_refused_before_the_emulator(
    client: Client, root: Path, tmp_path: Path
) -> None:
    folder = root / "walk/savestates"
    (entry, *_) = json.loads((folder / "index.json").read_text())[1:]
    file, good = folder / entry["file"], (folder / entry["file"]).read_bytes()
    for content in (b"", good[:-1], good[:200], good + b"x", os.urandom(5000), b"\0" * len(good),
                    good[:3000] + b"!" + good[3001:]):  # fmt: skip
        file.write_bytes(content)
        status, text = open_game(client, root, savestate=entry["sha256"])
        assert status == 400 and str(root) not in text, text
    outside = tmp_path / "outside.state"
    outside.write_bytes(good)
    file.unlink()
    file.symlink_to(outside)
    assert open_game(client, root, savestate=entry["sha256"])[0] == 400, "links are not followed"
    index = folder / "index.json"
    rows = json.loads(index.read_text())
    for name in ("../walk/config.yaml", "/etc/passwd", "..", "a/b.state", "x\n.state", 7):
        rows[1]["file"] = name
        index.write_text(json.dumps(rows))
        assert open_game(client, root, savestate=entry["sha256"])[0] == 400, name
    shutil.move(folder, tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    assert client.json(base(root))["savestates"] == []


def test_run_of_a_foreign_cartridge_says_so_without_paths(client: Client, root: Path) -> None:
    config = root / "walk/config.yaml"
    text = config.read_text()
    for rom in (str(root / "nothing.gb"), "/etc/passwd", "/proc/self/environ"):
        config.write_text(text.replace("rom: ''", f"rom: {rom}"))
        status, answer = open_game(client, root)
        assert status == 400 and str(root) not in answer and "/etc/" not in answer, answer
    config.write_text("game: gameboy\n[")
    assert open_game(client, root)[0] == 400
    assert client.json("/api/runs")["runs"], "the server stays up"


def test_page_of_another_world_is_refused(client: Client, root: Path) -> None:
    config = root / "walk/config.yaml"
    config.write_text(config.read_text().replace("game: gameboy", "game: pursuit"))
    assert client.send(base(root))[0] == 400


def test_opening_the_page_starts_no_emulator(client: Client, root: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(gameboy_play.Console, "__init__", lambda *_: pytest.fail("an emulator was started"))
    client.json(base(root))


def test_folder_is_not_changed_by_the_page(client: Client, root: Path) -> None:
    def snapshot() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted((root / "walk").rglob("*")) if path.is_file()}

    before = snapshot()
    with Run.open(root / "walk", write=True):  # a training that writes here
        _, state = open_game(client, root, game=0)
        press(client, state["session"], 0, 1, 2)
        client.json(base(root))
        after = snapshot()
        after.pop(str(root / "walk/lock"), None)
    before.pop(str(root / "walk/lock"), None)
    assert before == after
