"""The page of worlds without one of their own: every stored game of every world is shown step by step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorded_games import recorded
from support.served_pages import Client, serving

import rematch
from rematch.core.errors import ConfigError
from rematch.core.stepping import seat_at
from rematch.evaluation.replay import Playback
from rematch.storage import replay_files
from rematch.web.run_data import identifier
from rematch.web.worlds import other

pytestmark = pytest.mark.usefixtures("blank_pictures")
TINY = {"games": 8, "steps": 4, "total_steps": 64, "save_every": 1, "evaluation.games": 4, "world.n": 4,
        "world.block": 0, "world.horizon": 4, "network.hidden": [8]}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "one"
    rematch.train("lattice", TINY, folder=folder)
    return folder


@pytest.fixture
def root(tmp_path: Path, trained: Path) -> Path:
    shutil.copytree(trained, tmp_path / "one")
    return tmp_path


@pytest.fixture
def client(root: Path) -> Iterator[Client]:
    with serving(root) as port:
        yield Client(port)


def base(root: Path) -> str:
    return f"/api/worlds/other/runs/{identifier(root, root / 'one')}"


@pytest.mark.parametrize("world", ["lattice", "pursuit", "beasty"])
def test_scene_has_what_each_seat_observes_and_does(world: str) -> None:
    replay = recorded(world, limit=20)
    scene = other.scene(replay)
    json.dumps(scene, allow_nan=False)
    playback = Playback(replay)
    for step in playback.steps():
        acting = np.flatnonzero(playback.world.view.acting[0]).tolist()
        assert scene["acting"][step] == acting
        for seat in range(len(replay.players)):
            numbers = seat_at(playback.world, seat, np.zeros(1, np.int32)).obs[0][: other.MOST_COLUMNS]
            shown = scene["observed"][seat][step]
            assert shown == pytest.approx(numbers.tolist(), abs=6e-5)
            assert len(shown) == len(scene["columns"][seat])
    assert len(scene["observed"][0]) == len(scene["acting"]) == replay.length
    assert [len(seat["rows"]) for seat in scene["actions"]] == [replay.length] * len(replay.players)


def test_stored_games_are_listed_and_shown_by_a_job(client: Client, root: Path) -> None:
    overview = client.json(base(root))
    assert overview["name"] == "one" and overview["world"] == "lattice" and overview["replays"]
    newest = overview["replays"][-1]
    status, job = client.post(f"{base(root)}/show", {"replay": newest["id"]})
    assert status == 200
    scene = client.finished("other", job["job"])["result"]
    assert scene["caption"] == newest["caption"] and scene["length"] == newest["length"]
    text = (root / "one/replays" / f"{newest['id']}.replay").read_text()
    _, job = client.post("/api/worlds/other/file", {"file": text})
    assert client.finished("other", job["job"])["result"]["observed"] == scene["observed"]


@pytest.mark.parametrize("body", [
    {}, {"replay": 3}, {"replay": "../../etc/passwd"}, {"replay": "00000000-9"}, {"replay": None, "more": 1},
])  # fmt: skip
def test_wrong_requests_start_no_job(client: Client, root: Path, body: dict[str, Any]) -> None:
    assert client.post(f"{base(root)}/show", body) == (400, "there is no such replay (any more)")


def test_code_that_a_replay_names_is_not_imported(client: Client, root: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nGAME = None\n")
    replay = replace(recorded("lattice", limit=3), world=f"{tmp_path / 'evil.py'}:GAME")
    text = replay_files.encode(replay).decode()
    _, job = client.post("/api/worlds/other/file", {"file": text})
    answer = client.finished("other", job["job"])
    assert answer["state"] == "failed" and answer["text"] and not (tmp_path / "ran").exists()


def test_long_games_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other, "MOST_STEPS", 2)
    with pytest.raises(ConfigError, match="the page shows at most 2"):
        other.scene(recorded("lattice", limit=5))
