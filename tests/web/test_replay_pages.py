"""The pages of pursuit and lattice: they show what the rules give; jobs are bounded and cancellable."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.patience import PATIENCE, wait_until
from support.recorded_games import recorded
from support.served_pages import Client, client
from support.tiny_run import SMALL

import rematch
from rematch.evaluation.replay import Playback
from rematch.storage import replay_files
from rematch.web import jobs
from rematch.web.run_data import identifier
from rematch.web.worlds import PAGES
from rematch.web.worlds import lattice as lattice_page
from rematch.web.worlds import pursuit as pursuit_page
from rematch.worlds.lattice.config import Config
from rematch.worlds.lattice.exploitability import evaluate_exactly
from rematch.worlds.lattice.optimal_player import OptimalPlayer

__all__ = ["client"]
pytestmark = pytest.mark.usefixtures("blank_pictures")
BOARD = {"games": 8, "steps": 4, "total_steps": 64, "save_every": 1, "evaluation.games": 4, "world.n": 4,
         "world.block": 0, "world.horizon": 4, "network.hidden": [8]}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trained")
    rematch.train("quick", SMALL, folder=root / "chase")
    rematch.train("lattice", BOARD, folder=root / "board")
    return root


@pytest.fixture
def root(tmp_path: Path, trained: Path) -> Path:
    shutil.copytree(trained, tmp_path / "runs")
    return tmp_path / "runs"


def base(root: Path, name: str, world: str) -> str:
    return f"/api/worlds/{world}/runs/{identifier(root, root / name)}"


def shown(client: Client, root: Path, name: str, world: str) -> tuple[Any, Any, Path]:
    """The overview of a run, the scene of its newest replay, and the file of that replay."""
    overview = client.json(base(root, name, world))
    newest = overview["replays"][-1]["id"]
    scene = client.json(f"{base(root, name, world)}/replays/{newest}")
    return overview, scene, root / name / "replays" / f"{newest}.replay"


# --- pursuit ----------------------------------------------------------------------------------------------


def test_pursuit_page_shows_the_states_of_the_stored_game(client: Client, root: Path) -> None:
    overview, scene, file = shown(client, root, "chase", "pursuit")
    replay = replay_files.read(file)
    playback = Playback(replay)
    world: Any = playback.world
    for step in playback.steps():
        state = world.state_of(0)
        for key in ("x", "y", "theta"):
            assert scene[key][step] == pytest.approx(list(state[key][:2]), abs=6e-5)
    assert scene["length"] == len(scene["x"]) == len(scene["actions"][0]["rows"]) == replay.length
    assert scene["values"][0] == pytest.approx(replay.values[0].tolist(), abs=6e-5)
    assert scene["caption"] == overview["replays"][-1]["caption"] == replay.caption()
    assert overview["roles"] == ["pursuer", "evader"] and overview["name"] == "chase"
    assert {"newest", "bot:lion"} <= {player["id"] for player in overview["players"]["pursuer"]}


def test_scene_of_a_world_with_sensors_has_lidar_and_view() -> None:
    replay = recorded("pursuit", limit=5, full_obs=False)
    scene = pursuit_page.scene(replay)
    playback = Playback(replay)
    for step in playback.steps():
        for role in ("pursuer", "evader"):
            assert scene["lidar"][role][step] == pytest.approx(
                playback.world.view[role]["lidar"][0, 0].tolist(), abs=6e-4)
    assert scene["lidar_range"] > 0 and scene["view"]["range"] > 0
    assert pursuit_page.scene(recorded("pursuit", limit=2))["lidar"] is None


@pytest.mark.parametrize(("end", "free"), [((4.0, 0.0), False), ((0.9, 0.0), True), ((0.0, 4.0), True),
                                            ((4.0, 2.5), True), ((4.0, 1.0), False), ((0.0, 0.0), True)])
def test_sight_line_is_blocked_by_a_disc_between_the_robots(end: tuple[float, float], free: bool) -> None:
    assert pursuit_page.free_line((0.0, 0.0), end, [[2.0, 0.0, 1.0]]) is free
    assert pursuit_page.free_line(end, (0.0, 0.0), [[2.0, 0.0, 1.0]]) is free


def test_new_game_is_played_in_a_child_and_ends_as_wanted(client: Client, root: Path) -> None:
    past = next(player["id"] for player in client.json(base(root, "chase", "pursuit"))["players"]["evader"]
                if player["id"].startswith("past:"))
    body = {"players": ["bot:lion", past], "choose": "evader loses", "seed": 3}
    status, job = client.post(f"{base(root, 'chase', 'pursuit')}/match", body)
    assert status == 200 and job["state"] == "running"
    done = client.finished("pursuit", job["job"])
    if done["state"] == "failed":  # a short game of twenty steps may never be lost: then it says so
        assert "none of 200 games ended so" in done["text"]
    else:
        assert done["result"]["outcome"] == [1.0, 0.0]
        assert str(root) not in json.dumps(done), "no path of this machine"
        assert done["result"]["players"][0]["name"] == "scripted: lion"


def test_job_is_one_at_a_time_cancellable_and_bounded(
    client: Client, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, body = f"{base(root, 'chase', 'pursuit')}/match", {"players": ["newest", "newest"]}
    monkeypatch.setattr(jobs, "COMMAND", ("sleep", "60"))
    status, job = client.post(path, body)
    assert status == 200
    status, text = client.post(path, body)
    assert status == 400 and text.startswith("another game or calculation is running")
    status, cancelled = client.post(f"/api/jobs/{job['job']}/cancel", {})
    assert status == 200 and cancelled["state"] == "cancelled"
    monkeypatch.setattr(jobs, "MOST_SECONDS", 0.3)
    _, job = client.post(path, body)
    started = time.monotonic()
    assert client.finished("pursuit", job["job"])["text"] == "no result after 0.3 s"
    assert time.monotonic() - started < 30  # the command takes 60 s
    monkeypatch.setattr(jobs, "MOST_SECONDS", PATIENCE)
    monkeypatch.setattr(jobs, "COMMAND", ("false",))
    _, job = client.post(path, body)
    assert client.finished("pursuit", job["job"])["state"] == "failed"
    monkeypatch.setattr(jobs, "COMMAND", ("yes",))
    monkeypatch.setattr(jobs, "MOST_RESULT", 1000)
    _, job = client.post(path, body)
    assert client.finished("pursuit", job["job"])["text"] == "the result is too large"


def test_job_ends_when_the_server_is_gone() -> None:
    job = jobs.Job({"world": "lattice", "job": "exact", "request": {"folder": "/nowhere"}})
    assert job._child.stdin is not None
    wait_until(lambda: job.state != "running")
    assert job.state == "failed" and "/nowhere" in job.text
    waiting = jobs.Job({"world": "lattice", "job": "exact", "request": {"folder": "/nowhere"}})
    assert waiting._child.stdin is not None
    waiting._child.stdin.close()
    assert waiting._child.wait(PATIENCE) is not None


# --- lattice ----------------------------------------------------------------------------------------------


def test_lattice_page_shows_the_states_of_the_stored_game(client: Client, root: Path) -> None:
    _, scene, file = shown(client, root, "board", "lattice")
    playback = Playback(replay_files.read(file))
    world: Any = playback.world
    for step in playback.steps():
        state = world.state_of(0)
        assert scene["cells"][step] == [int(robot) // 8 for robot in state["robot"]]
        assert scene["headings"][step] == [int(robot) % 8 for robot in state["robot"]]
        assert scene["moves_left"][step] == state["moves_left"]
    assert scene["probs"][0][0] == pytest.approx(playback.replay.probs[0][0].tolist(), abs=6e-5)
    assert sum(scene["free"]) == 16 and scene["n"] == 4


def test_actions_of_a_reflected_board_are_named_as_they_are_seen() -> None:
    """With `symmetry` a policy observes a reflection of some boards: its left is right on the board."""
    replay = recorded("lattice", seed=1)
    scene = lattice_page.scene(replay)
    mirrored = [frame["mirrored"] for frame in lattice_page.frames_of(Playback(replay))]
    assert any(mirrored) and not all(mirrored), "the case that this test is about"
    turns = {"left": 1, "straight": 0, "right": 7}  # eighths of a turn
    for step, (before, after) in enumerate(itertools.pairwise(scene["headings"])):
        for seat in (0, 1):
            name = scene["actions"][seat]["names"][scene["actions"][seat]["rows"][step]]
            assert (after[seat] - before[seat]) % 8 == turns[name], (step, seat)


def test_exact_tables_are_those_of_the_solver(client: Client, root: Path) -> None:
    status, job = client.post(f"{base(root, 'board', 'lattice')}/exact", {})
    assert status == 200
    result = client.finished("lattice", job["job"])["result"]
    run = rematch.load(root / "board")
    exact = evaluate_exactly(run.config.world, run.policies, 1)
    assert result["summary"] == pytest.approx(exact.summary())
    table = np.array(result["tables"]["evader"], float)
    expected = exact.board.by_cells(exact.regret["evader"])
    assert np.allclose(table[~np.isnan(table)], expected[~np.isnan(table)], atol=6e-5)
    stored = json.loads((root / "board/history.json").read_text())[-1]["exact"]
    assert result["summary"]["nash_conv"] == pytest.approx(stored["nash_conv"], abs=1e-6)


def test_game_from_a_start_begins_there_with_optimal_play(client: Client, root: Path) -> None:
    path = f"{base(root, 'board', 'lattice')}/game"
    body = {"cells": [0, 15], "players": ["optimal", "newest"], "seed": 1}
    _, job = client.post(path, body)
    scene = client.finished("lattice", job["job"])["result"]
    assert scene["cells"][0] == [0, 15] and scene["moves_left"][0] == 4
    saved = replay_files.decode(scene["file"].encode(), "game.replay")
    Playback(saved).verify()
    assert saved.players[0].name == "optimal play" and saved.length == scene["length"]
    assert [player["name"] for player in scene["players"]] == ["optimal play", "newest policy of this run"]
    _, job = client.post(path, body | {"cells": [0, 0]})
    assert "no game starts from these two cells" in client.finished("lattice", job["job"])["text"]


@pytest.mark.parametrize("changes", [{}, {"symmetry": False}, {"n": 5, "block": 1}, {"skip": 2}])
def test_optimal_play_cannot_be_exploited(changes: dict[str, Any]) -> None:
    config = Config(**({"n": 4, "horizon": 3} | changes))
    summary = evaluate_exactly(config, {"pursuer": OptimalPlayer(), "evader": OptimalPlayer()}, 1).summary()
    assert summary["nash_conv"] < 1e-6 and summary["played"] == pytest.approx(summary["value"], abs=1e-6)


# --- hostile requests and files ---------------------------------------------------------------------------


def test_hostile_requests_are_refused(client: Client, root: Path) -> None:
    own = f"http://127.0.0.1:{client.port}"
    good: dict[str, Any] = {"players": ["newest", "newest"], "choose": "", "seed": 0}
    posts = [f"{base(root, 'chase', 'pursuit')}/match", f"{base(root, 'board', 'lattice')}/match",
             f"{base(root, 'board', 'lattice')}/exact", f"{base(root, 'board', 'lattice')}/game"]  # fmt: skip
    attacks: list[dict[str, Any]] = [
        {"token": None}, {"token": "wrong"}, {"Host": "evil.example"},
        {"Host": f"evil.example:{client.port}"},
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"}, {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"}, {"Content_Type": "multipart/form-data"},
        {"Origin": f"{own}.evil.example"},
    ]  # fmt: skip
    for path, attack in itertools.product(posts, attacks):
        status, _ = client.post(path, good, **attack)
        assert status in (403, 415, 421), (path, attack, status)
    wrong: list[Any] = [
        [], 1, "x", None, {"players": ["newest"]}, {"players": "newest"}, {"players": ["newest", 1]},
        {"players": ["newest", "bot:rm"]}, {"players": ["newest", "policy:../../x"]},
        {"players": ["newest", "run:/etc"]}, {"players": ["newest", "past:../../etc/passwd"]},
        {"players": ["/etc/passwd", "newest"]}, good | {"seed": -1}, good | {"seed": 1.5},
        good | {"seed": True},
        good | {"choose": "evader explodes"}, good | {"choose": 5}, good | {"choose": "x" * 100_000},
        good | {"folder": "/etc"}, good | {"world": "beasty"},
    ]  # fmt: skip
    for value in wrong:
        status, text = client.post(posts[0], value)
        assert status in (400, 413), (str(value)[:80], status)
        assert "root:" not in text and "Traceback" not in text
    for value in ({}, {"cells": [0, 15]}, {"cells": [0, -1], "players": ["newest"] * 2, "seed": 0},
                  {"cells": ["0", 1], "players": ["newest"] * 2, "seed": 0},
                  {"cells": [0, 15], "players": ["newest", "/etc"], "seed": 0},
                  {"cells": [[0], 15], "players": ["newest"] * 2, "seed": 0}):  # fmt: skip
        assert client.post(posts[3], value)[0] == 400, value
    assert client.post(posts[2], {"folder": "/etc"})[0] == 400
    status, _, _ = client.send(posts[0], "POST", body=b"[" * 60_000, Content_Type="application/json")
    assert status == 400
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "GET"):
        assert client.send(posts[0], method)[0] in (400, 404, 405), method
    for name in ("..", "%2e%2e", "..%2f..%2fconfig.yaml", "0" * 16, "00000001-1.replay", "%00", "a" * 3000):
        for place in (f"{base(root, 'chase', 'pursuit')}/replays/{name}", f"/api/worlds/pursuit/runs/{name}",
                      f"/api/jobs/{name}"):  # fmt: skip
            assert client.send(place)[0] in (400, 404), place
    assert client.json(base(root, "chase", "pursuit"))["replays"], "the server stays up"


def test_run_of_another_world_is_refused(client: Client, root: Path) -> None:
    run = identifier(root, root / "board")
    assert client.send(f"/api/worlds/pursuit/runs/{run}")[0] == 400
    assert client.post(f"/api/worlds/pursuit/runs/{run}/match", {"players": ["newest", "newest"]})[0] == 400


@pytest.mark.parametrize("damage", ["empty", "binary", "deep", "link", "foreign", "newer", "huge", "half"])
def test_damaged_replays_are_one_line_and_the_rest_is_shown(client: Client, root: Path, damage: str) -> None:
    overview, _, file = shown(client, root, "chase", "pursuit")
    raw = file.read_bytes()
    bad = file.with_name("99999999-1.replay")
    other = replay_files.encode(recorded("lattice"))
    content = {"empty": b"", "binary": os.urandom(300), "deep": b"[" * 50_000, "foreign": other,
               "newer": raw.replace(b'"version": 1', b'"version": 9'), "half": raw[: len(raw) // 2]}
    if damage == "link":
        bad.symlink_to("/etc/passwd")
    elif damage == "huge":
        with bad.open("wb") as handle:
            handle.truncate(replay_files.MOST_FILE + 1)
    else:
        bad.write_bytes(content[damage])
    again = client.json(base(root, "chase", "pursuit"))
    assert again["replays"][:-1] == overview["replays"] and again["replays"][-1]["problem"]
    status, _, body = client.send(f"{base(root, 'chase', 'pursuit')}/replays/99999999-1")
    assert status == 400 and b"root:" not in body and b"\n" not in body


def test_names_in_replays_stay_text(client: Client, root: Path) -> None:
    _, _, file = shown(client, root, "chase", "pursuit")
    replay = replay_files.read(file)
    hostile = replace(replay.players[0], name="<img src=x onerror=alert(1)>\x1b[2J")
    replay_files.write(file, replace(replay, players=(hostile, replay.players[1])))
    _, scene, _ = shown(client, root, "chase", "pursuit")
    assert scene["players"][0]["name"].startswith("<img src=x") and "\x1b" not in scene["players"][0]["name"]


def test_every_page_is_listed_with_files_that_are_served(client: Client) -> None:
    listed = client.json("/api/worlds")
    assert [page["world"] for page in listed] == [page.world for page in PAGES]
    for page in PAGES:
        for name, kind in page.static.items():
            status, headers, body = client.send(f"/static/{name}")
            assert status == 200 and headers["content-type"].startswith(kind) and body
        assert b"export async function page(" in client.send(f"/static/{page.world}.js")[2]


def test_replay_with_numbers_that_json_has_not_is_shown(root: Path) -> None:
    replay = recorded("pursuit", limit=3)
    values = {0: np.array([1.0, math.nan, math.inf], np.float32)}
    scene = pursuit_page.scene(replace(replay, values=values))
    assert scene["values"] == [[1.0, None, None], None]
    json.dumps(scene, allow_nan=False)
