"""What the page says of a run beside its curves: best responses, speed, time left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.served_pages import Client, serving
from support.tiny_run import SMALL

import rematch
from rematch.web.run_data import pace

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rematch.train("quick", SMALL, folder=tmp_path / "one")
    return tmp_path


def test_run_has_its_best_responses_or_the_command_that_trains_them(root: Path) -> None:
    with serving(root) as port:
        check_responses(Client(port), root)


def check_responses(client: Client, root: Path) -> None:
    (entry,) = client.json("/api/runs")["runs"]
    run = client.json(f"/api/runs/{entry['id']}")
    (first, *_) = [row for row in run["missing"] if "exploit" in row["what"]]
    assert run["exploit"] == [] and first["command"].startswith(f"rematch exploit {root.resolve() / 'one'} ")
    answer = {"score": 0.8, "low": 0.7, "high": 0.9, "games": 300, "gain": 0.3, "gain_low": 0.2,
              "gain_high": 0.4, "too_weak": False}  # fmt: skip
    question = {"frozen": {"iteration": 3}, "budget": 1000, "games": 300}
    stored = {"results": [{"question": question, "roles": {"evader": answer}}]}
    (root / "one/exploit.json").write_text(json.dumps(stored))
    (row,) = client.json(f"/api/runs/{entry['id']}")["exploit"]
    assert row["roles"] == {"evader": answer} and (row["step"], row["budget"]) == (96, 1000)
    (root / "one/exploit.json").write_text("[")
    run = client.json(f"/api/runs/{entry['id']}")
    assert run["exploit"] == [] and any("exploit.json" in problem for problem in run["problems"])


def test_run_that_trains_has_a_speed_and_the_time_left(root: Path) -> None:
    (root / "one/timing.jsonl").write_text("".join(f'{{"iteration": {i}, "seconds": 2}}\n' for i in range(9)))
    info = {"state": "running", "step": 160, "total_steps": 960}
    assert pace(root / "one", info) == {"speed": 16.0, "seconds_left": 50.0}  # 8 games, 4 steps each
    nothing = {"speed": None, "seconds_left": None}
    assert pace(root / "one", info | {"state": "stopped"}) == nothing
    (root / "one/timing.jsonl").write_text("[")
    assert pace(root / "one", info) == pace(root / "gone", info) == nothing
