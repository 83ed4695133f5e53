"""Stored replays: one per evaluation, evenly spaced, without effect on the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tiny_run import SMALL

import rematch
from rematch.core.errors import ConfigError
from rematch.evaluation.replay import Playback
from rematch.rehearsal.compare import comparable_files
from rematch.storage import replay_files
from rematch.storage.run_folder import Run
from rematch.training.player_lookup import find_player

pytestmark = pytest.mark.usefixtures("blank_pictures")
OFTEN = SMALL | {"evaluation.every": 1, "total_steps": 8 * 4 * 6}  # six evaluations


def trained(folder: Path, **changes: Any) -> Path:
    rematch.train("quick", OFTEN | {k.replace("__", "."): v for k, v in changes.items()}, folder=folder)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "replays").glob("*"))


def test_every_evaluation_stores_a_game_that_verifies(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run")
    assert names(folder) == [f"{iteration:08d}-1.replay" for iteration in range(1, 7)]
    seeds = set()
    for name in names(folder):
        replay = replay_files.read(folder / "replays" / name)
        Playback(replay).verify()
        seeds.add(replay.seed)
        assert replay.step == 32 * int(name[:8]) and all(player.digest for player in replay.players)
        assert set(replay.values) == {0, 1} and (folder / "replays" / name).stat().st_size < 10_000
    assert len(seeds) == 6, "every evaluation records other games"


def test_replays_do_not_change_the_training(tmp_path: Path) -> None:
    skipped = ("config.yaml", "manifest.json", "report.html")  # they show the settings
    runs = [trained(tmp_path / "a"), trained(tmp_path / "b", replays__games=0),
            trained(tmp_path / "c", replays__games=3)]  # fmt: skip
    files = [{name: path.read_bytes() for name, path in comparable_files(run).items()
              if path.name not in skipped and not name.startswith("replays/")} for run in runs]  # fmt: skip
    assert files[0] == files[1] == files[2] and any("weights" in name or "state" in name for name in files[0])
    assert len(names(runs[2])) == 18 and not (runs[1] / "replays").exists()


def test_old_replays_are_thinned_out_evenly(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", replays__count=2)
    assert names(folder) == ["00000004-1.replay", "00000006-1.replay"]  # multiples of four, and the newest
    folder = trained(tmp_path / "long", replays__count=3)
    assert names(folder) == ["00000002-1.replay", "00000004-1.replay", "00000006-1.replay"]


def test_long_games_are_broken_off(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", replays__max_steps=2)
    assert {replay_files.read(folder / "replays" / name).length for name in names(folder)} <= {1, 2}


def test_folder_of_replays_is_reserved(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run")
    with Run.open(folder, write=True) as run, pytest.raises(ConfigError, match="cannot be the name"):
        run.write_file("replays/x.replay", b"")


def test_policies_of_an_earlier_iteration_play_under_their_name(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run@7")  # a name that looks like one of an iteration
    config = rematch.load(folder).config
    newest = find_player(str(folder), "pursuit", config.world, "evader")
    past = find_player(f"{folder}@4", "pursuit", config.world, "evader")
    assert past.name == f"{folder}@4" and not (newest.weights == past.weights).all()  # type: ignore[attr-defined]
    last = find_player(f"{folder}@6", "pursuit", config.world, "evader")
    assert (newest.weights == last.weights).all()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="expected 1, 2, 3, 4, 5, 6"):
        find_player(f"{folder}@5000", "pursuit", config.world, "evader")
    with pytest.raises(ConfigError, match="is a run of pursuit, not of lattice"):
        find_player(f"{folder}@4", "lattice", None, "evader")
