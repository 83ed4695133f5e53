"""The world map of a run: visited places, games that can be replayed, savestates, the way to the frontier."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import gameboy_worlds, savestate_runs, single_seat_worlds

from rematch.agents.learners import dqn
from rematch.core.errors import ConfigError
from rematch.rehearsal.compare import comparable_files, differences
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.training.components.world_map import DIGITS, FILE, WorldMapRecord, without_repeats
from rematch.training.recipes import configure
from rematch.worlds.gameboy.game import GAME

gameboy_worlds.need_pyboy()
SHORT: dict[str, Any] = {"total_steps": 4 * 20 * 6, "evaluation__games": 1}


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dqn, "SIZES", single_seat_worlds.SIZES)


def seen_places(rollout: RolloutBuffer) -> Counter[tuple[int, int, int]]:
    """The places of all observations, one by one."""
    track, counts = rollout["joypad"], Counter[tuple[int, int, int]]()
    columns = [track.role.columns.index(f"structured.{name}") for name in ("map", "y", "x")]
    for row in track.host("obs")[:, :, 0].reshape(-1, track.role.size):
        counts[tuple(round(float(row[column]) * 255) for column in columns)] += 1  # type: ignore[index]
    return counts


def record_of(trainer: Any) -> WorldMapRecord:
    record = trainer.setup.get(WorldMapRecord)
    assert record is not None
    return record


@pytest.mark.slow
def test_file_holds_what_the_games_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles against a count of all observations; games, savestates and frontier against replays."""
    seen: Counter[tuple[int, int, int]] = Counter()
    after_rollout = WorldMapRecord.after_rollout

    def counted(self: WorldMapRecord, rollout: RolloutBuffer, clock: Any) -> None:
        seen.update(seen_places(rollout))
        after_rollout(self, rollout, clock)

    monkeypatch.setattr(WorldMapRecord, "after_rollout", counted)
    config = savestate_runs.config(total_steps=4 * 20 * 12, evaluation__games=1)
    trainer = savestate_runs.go_on(tmp_path / "run", config).trainer
    shown = json.loads((tmp_path / "run" / FILE).read_text())
    del seen[0, 0, 0]  # the title screen
    tiles = {(m["map"], y, x): steps for m in shown["maps"] for y, x, steps in m["tiles"]}
    assert shown["step"] == 4 * 20 * 12 and tiles == dict(seen) and len(tiles) > 20
    assert {m["map"]: m["name"] for m in shown["maps"]}[0] == "DAWN"
    archive = record_of(trainer).archive
    library = archive.world.library

    def follow(start: Any, inputs: Any) -> list[list[int]]:
        return [list(place) for place in GAME.world_map.follow(archive.world, start, inputs, lambda: None)]

    assert len(shown["games"]) == 4
    for game in shown["games"]:
        start = library.find(game["start"])
        assert game["group"] == ("early" if start is None else start.start_group)
        replayed = follow(start, [DIGITS.index(digit) for digit in game["inputs"]])
        assert replayed[-1] == game["path"][-1]
        assert any(game["path"] == list(map(list, tail)) for tail in endings(replayed))
    assert [one["sha256"] for one in shown["savestates"]] == [start.sha256 for start in archive.starts]
    for number, one in enumerate(shown["savestates"]):
        assert one["place"] == follow(library[number], ())[0]
    assert archive.frontier is not None and len(archive.starts) > 1
    trail = [place for place in follow(None, archive.frontier.actions) if any(place)]
    packed = without_repeats(np.array(trail) @ [1 << 16, 1 << 8, 1])
    assert [m << 16 | y << 8 | x for m, y, x in shown["frontier"]] == packed


def endings(places: list[list[int]]) -> list[list[list[int]]]:
    """The last 1, 2, ... 20 places, each without repetitions."""
    packed = [m << 16 | y << 8 | x for m, y, x in places]
    tails = [without_repeats(packed[-count:]) for count in range(1, 21)]
    return [[[place >> 16, place >> 8 & 255, place & 255] for place in tail] for tail in tails]


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 4])
def test_stopped_run_ends_with_the_same_map(tmp_path: Path, at: int) -> None:
    config = savestate_runs.config(**SHORT)
    savestate_runs.go_on(tmp_path / "whole", config)
    savestate_runs.go_on(tmp_path / "stopped", config, stop=at)
    savestate_runs.go_on(tmp_path / "stopped")
    assert not differences(tmp_path / "whole", tmp_path / "stopped")
    assert FILE in comparable_files(tmp_path / "whole")


@pytest.mark.slow
def test_map_does_not_change_the_training_and_interval_sets_its_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    write = WorldMapRecord.write

    def counted(self: WorldMapRecord, step: int) -> None:
        writes.append(step)
        write(self, step)

    monkeypatch.setattr(WorldMapRecord, "write", counted)
    monkeypatch.setattr(WorldMapRecord, "_follow_discoveries", lambda self: False)
    weights = []
    for name, interval in (("off", 0), ("often", 80), ("seldom", 160)):
        writes.clear()
        config = savestate_runs.config(**SHORT, world_map__interval=interval, save_every=6)
        trainer = savestate_runs.go_on(tmp_path / name, config).trainer
        weights.append([player.weights.tobytes() for player in trainer.agents.networks.values()])
        assert sorted(set(writes)) == [*range(interval, 481, interval)] if interval else not writes
        assert (tmp_path / name / FILE).exists() == bool(interval)
    assert weights[0] == weights[1] == weights[2]


def test_explored_frontier_is_followed_too(tmp_path: Path) -> None:
    """Explorers find savestates and the frontier beside the training games."""
    config = savestate_runs.config(**savestate_runs.SCOUTED)
    trainer = savestate_runs.go_on(tmp_path / "run", config, astray=None).trainer
    record = record_of(trainer)
    assert record.archive.frontier is not None and any(start.game == -1 for start in record.archive.starts)
    places = GAME.world_map.follow(record.archive.world, None, record.archive.frontier.actions, lambda: None)
    assert record.trail == [m << 16 | y << 8 | x for m, y, x in places]
    assert len(record.savestates) == len(record.archive.starts)
    shown = json.loads(record.content(1))
    places = [*shown["frontier"], *(one["place"] for one in shown["savestates"])]
    assert {place[0] for place in places} <= {one["map"] for one in shown["maps"]}


def test_interval_in_a_world_without_a_map_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"world_map.interval = 100 has no effect: the world has no map"):
        configure("quick", changes={"world_map.interval": 100})
