"""What the Game Boy tells of its episodes, and a run that is watched, stopped and gone on with."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import gameboy_worlds
from support.commands import ROOT
from support.patience import PATIENCE, wait_until

from rematch.worlds.gameboy import episode_info, titles


def test_episode_infos_are_recorded_before_games_restart() -> None:
    world = gameboy_worlds.world(2, max_steps=40)
    episode_infos = []
    for action in gameboy_worlds.tiny().solution[:40]:
        gameboy_worlds.press(world, action)
        episode_infos += world.episode_infos
    assert [row for row, _ in episode_infos] == [0, 1] and world.bands() == ["early"] * 2
    _, end = episode_infos[0]
    assert end["map"] == "ROUTE-1" and end["badges"] == 0 and end["savestate"] == ""
    assert "DAWN" in end["milestones"] and "ROUTE-1" in end["milestones"] and world.milestones(0) == ()
    assert gameboy_worlds.press(world, 0).ended.any() == bool(world.episode_infos), "nothing is told twice"


def test_episode_info_names_the_start_state() -> None:
    world = gameboy_worlds.world(2, max_steps=60)
    gameboy_worlds.follow(world, 50)
    bundle = world.capture(0)
    world.next.stage[1, 0] = world.library.add(bundle)
    world.restart()
    while not world.episode_infos:
        gameboy_worlds.press(world, 5)
    ends = dict(world.episode_infos)
    assert ends[0]["savestate"] == "" and ends[1]["savestate"] == bundle.sha256
    assert ends[1]["milestones"] == (), "what the savestate had is not the episode's own"


def test_parts_tell_their_own_games() -> None:
    world = gameboy_worlds.world(3, max_steps=2)
    parts = world.parts(3)
    for part in parts:
        for _ in range(2):
            gameboy_worlds.press(part, 5)
    assert [[row for row, _ in part.episode_infos] for part in parts] == [[0]] * 3


def test_headlines_are_the_badges_in_order() -> None:
    assert episode_info.headlines(titles.included_title(gameboy_worlds.tiny())) == ("BADGE-1", "HALL-OF-FAME")
    assert episode_info.headlines(titles.red())[:3] == ("badge_Boulder", "badge_Cascade", "badge_Thunder")


FLAGS = {
    "learner": "dqn", "threads": "1", "games": "2", "steps": "8", "total-steps": "100000",
    "save-every": "1000", "world.cartridge": "tiny", "world.max-steps": "12",
    "dqn.sequence": "6", "dqn.burn-in": "1", "dqn.batch": "2",
    "dqn.replay_size": "400", "dqn.warmup": "0", "watch.log-interval": "32", "watch.video-interval": "32",
    "watch.video-steps": "5", "evaluation.every": "100000", "evaluation.games": "1",
}  # fmt: skip


def command(*words: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "rematch", *words],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def episodes(folder: Path) -> list[int]:
    with (folder / "episodes.csv").open(newline="") as file:
        return [int(row["episode_id"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_sigterm_saves_and_a_time_limit_stops(tmp_path: Path) -> None:
    """As a cluster does it: SIGTERM, exit code 0; then the same job again with --max-minutes."""
    gameboy_worlds.need_pyboy()
    folder = tmp_path / "big"
    words = [word for name, value in FLAGS.items() for word in (f"--{name}", value)]
    child = command("train", "gameboy", *words, "--name", str(folder))
    wait_until(lambda: child.poll() is not None
               or (any(folder.glob("films/*.gif")) and (folder / "episodes.csv").exists()))  # fmt: skip
    assert child.poll() is None, child.stdout and child.stdout.read()
    child.send_signal(signal.SIGTERM)
    output, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0 and "stopped (SIGTERM)" in output, output
    assert "[EP 1 env=0] len=12  R_env=" in output and "savestate_tag=power_on  theta_BADGE-1=" in output
    assert "step=32/100000  sps=" in output and "spawn: early 100% | mid 0% | late 0%" in output
    before = episodes(folder)
    assert before == list(range(1, len(before) + 1)) and before
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert {"film", "episode"} <= {event["event"] for event in events}
    assert (folder / "progress.csv").read_text().startswith("step,milestone,alpha,beta,mean,low95,high95,")
    child = command("resume", str(folder), "--max-minutes", "0.02")
    output, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0 and "stopped (time)" in output, output
    after = episodes(folder)
    assert after[: len(before)] == before and after == list(range(1, len(after) + 1))
