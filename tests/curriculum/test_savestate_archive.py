"""Savestates on the tiny cartridge: captures, files, starts, quotas, frontier, cold start, exact resume."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gameboy_worlds, savestate_runs, single_seat_worlds
from support.archive_world import ArchiveWorld

from rematch import api
from rematch.agents.learners import dqn
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.world import CUT_OFF
from rematch.curriculum import archive_files
from rematch.curriculum.savestate_archive import Archive
from rematch.curriculum.savestates import Savestates
from rematch.curriculum.start_states import POWER_ON, START_GROUPS, SavestatesConfig, Start, apportion
from rematch.rehearsal.compare import differences
from rematch.reporting.status import status
from rematch.reporting.text import scoreboard_lines
from rematch.storage.run_folder import Run
from rematch.training.loop import iterate
from rematch.training.trainer import Trainer
from rematch.verbs.evaluate import evaluate
from rematch.worlds.gameboy.emulator import pyboy_emulator
from rematch.worlds.gameboy.savestates import unpack

gameboy_worlds.need_pyboy()


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dqn, "SIZES", single_seat_worlds.SIZES)


# --- a whole run --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Episodes of 60 actions where the way takes 200: only a chain of savestates gets to the end."""
    folder, sizes = tmp_path_factory.mktemp("swarm") / "run", dqn.SIZES
    dqn.SIZES = single_seat_worlds.SIZES
    try:
        return folder, savestate_runs.go_on(
            folder, savestate_runs.config(total_steps=4 * 20 * 18, evaluation__games=2)
        )
    finally:
        dqn.SIZES = sizes


def archive_of(trainer: Trainer) -> Archive:
    savestates = trainer.setup.get(Savestates)
    assert savestates is not None
    return savestates.archive


def index_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "savestates" / "index.json").read_text())
    return rows


@pytest.mark.slow
def test_the_frontier_replays_from_power_on_to_the_same_bytes(finished: tuple[Path, Any]) -> None:
    """By inputs alone, on a bare emulator."""
    frontier = json.loads((finished[0] / "frontier.inputs").read_text())
    assert frontier["finished"] and "HALL-OF-FAME" in frontier["milestones"]
    rom = gameboy_worlds.tiny().rom
    assert hashlib.sha1(rom).hexdigest() == frontier["rom"]
    bare = pyboy_emulator.acquire(rom)
    bare.load(pyboy_emulator.power_on(rom))
    names = finished[1].trainer.setup.spec.roles["joypad"].actions.names
    pressed = [names.index(name) for name, times in frontier["inputs"] for _ in range(times)]
    assert pressed == list(gameboy_worlds.tiny().solution)
    for action in pressed:
        bare.press(action)
    assert hashlib.sha256(bare.save()).hexdigest() == frontier["sha256"]


def test_frontier_and_cold_start_are_two_numbers(finished: tuple[Path, Any]) -> None:
    """Nobody gets further than 60 actions from power-on, but chains do."""
    result = json.loads((finished[0] / "milestones.json").read_text())
    times = result["milestones"]
    assert result["steps"] == 4 * 20 * 18 and result["swarm"] == "bands"
    assert times["HALL-OF-FAME"] == {"frontier": times["HALL-OF-FAME"]["frontier"], "cold": None}
    assert times["DAWN"]["frontier"] == times["DAWN"]["cold"] < times["HALL-OF-FAME"]["frontier"]
    summary = archive_files.summary_lines(finished[0])
    assert "end of the game, 11 of 11" in summary[0] and "11 of 11" not in summary[1]
    facts = status(finished[0])
    assert facts["frontier"] == summary and set(summary) <= set(facts["lines"])
    assert facts["cold_start"].startswith("joypad from power-on, without savestates: ")


def test_each_capture_is_a_file_and_a_line(finished: tuple[Path, Any]) -> None:
    folder = finished[0]
    power_on, *starts = index_of(folder)
    assert power_on["file"] == "" and power_on["visits"] >= 4
    names = {row["file"] for row in starts}
    assert names == set(os.listdir(folder / "savestates")) - {"index.json"} and len(names) == len(starts) > 6
    sets = {frozenset(row["milestones"]) for row in starts}
    assert len(sets) == len(starts), "one for each set of milestones"
    assert not any("HALL-OF-FAME" in row["milestones"] for row in starts), "nobody begins at the end"
    for number, row in enumerate(starts):
        bundle = unpack((folder / "savestates" / row["file"]).read_bytes())
        assert (bundle.sha256, bundle.start_group, bundle.map) == (row["sha256"], row["band"], row["map"])
        assert row["milestone"] in bundle.milestones and row["file"].endswith(f"_{row['step']}.state")
        parent = "" if row["parent"] == POWER_ON else starts[row["parent"]]["sha256"]
        assert bundle.parent == parent and row["parent"] < number
        assert bundle.actions == list(gameboy_worlds.tiny().solution[: len(bundle.actions)])
    assert any(row["parent"] != POWER_ON for row in starts)
    assert {row["band"] for row in starts} == set(START_GROUPS)


def test_visits_and_successes_add_up(finished: tuple[Path, Any]) -> None:
    folder, seen = finished
    rows, trainer = index_of(folder), seen.trainer
    assert sum(row["visits"] for row in rows) == 4 + trainer.clock.finished_games
    assert all(0 <= row["successes"] <= row["visits"] for row in rows)
    assert sum(row["successes"] for row in rows) > 0
    began, world = Counter(archive_of(trainer).episode_start.tolist()), trainer.world
    origins = Counter(POWER_ON if (o := world._origin(row)) is None else world.library.add(o)
                      for row in range(4))
    assert began == origins, "where the engine believes that games began is where they did"
    late = [row for row in seen.rows if row["rollout/savestates"] > 6][-1]
    assert late["rollout/spawn_early"] + late["rollout/spawn_mid"] + late["rollout/spawn_late"] == 1.0
    assert late["joypad/theta_DAWN"] > 0.5 and any(row["joypad/r_milestones"] > 0 for row in seen.rows)


def test_what_a_savestate_has_behind_it_is_set(finished: tuple[Path, Any]) -> None:
    """A map that was left is no bit of memory: it must not count again for who begins further on."""
    row = next(r for r in index_of(finished[0])[1:] if r["map"] == "GYM-1")
    assert "ROUTE-1" in row["milestones"]
    world = gameboy_worlds.world(1)
    bundle = unpack((finished[0] / "savestates" / row["file"]).read_bytes())
    world.next.stage[:, 0] = world.library.add(bundle)
    world.restart()
    assert set(world.milestones(0)) == set(row["milestones"]) and world.milestones(0, since=True) == ()


def test_an_evaluation_begins_at_power_on(finished: tuple[Path, Any]) -> None:
    row = evaluate(finished[0], games=2)
    summary = row["returns"]["joypad"]
    assert summary["success"] == 0.0 and summary["milestones"]["HALL-OF-FAME"]["rate"] == 0.0
    assert summary["milestones"]["DAWN"]["games"] == 2
    assert 0 < summary["milestones"]["HALL-OF-FAME"]["high"] < 1, "n and interval with every rate"
    text = "\n".join(scoreboard_lines(row))
    assert "joypad from power-on, without savestates: 0.000 [0.000, " in text
    assert "HALL-OF-FAME" in text


# --- kinds --------------------------------------------------------------------------------------------


def test_all_begin_from_the_newest_record(tmp_path: Path) -> None:
    made = savestate_runs.config(savestates__mode="all", total_steps=4 * 20 * 6)
    seen = savestate_runs.go_on(tmp_path / "run", made)
    archive = archive_of(seen.trainer)
    best = max(range(len(archive.starts)), key=lambda number: len(archive.starts[number].milestones))
    assert archive.next_stage(99).tolist() == [[best, 0]] * 4
    assert seen.rows[-1]["rollout/spawn_power_on"] == 0.0


def test_off_writes_no_savestates_but_keeps_what_was_reached(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    seen = savestate_runs.go_on(folder, savestate_runs.config(savestates__mode="off", total_steps=4 * 20 * 6))
    assert not (folder / "savestates").exists() and not len(archive_of(seen.trainer).world.library)
    frontier = json.loads((folder / "frontier.inputs").read_text())
    times = json.loads((folder / "milestones.json").read_text())["milestones"]
    reached = {name for name, result in times.items() if result["cold"] is not None}
    assert reached == set(frontier["milestones"]) and len(reached) == 3
    assert all(result["cold"] == result["frontier"] for result in times.values())


@pytest.mark.slow
def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    """Two parts capture the same milestones in the same rollout; the first by (step, game) is kept."""
    for threads in (1, 2):
        made = savestate_runs.config(threads=threads, total_steps=4 * 20 * 6)
        savestate_runs.go_on(tmp_path / f"{threads}", made, astray=0.2)
    unlike = [name for name in differences(tmp_path / "1", tmp_path / "2") if "manifest" not in name]
    assert unlike == ["config.yaml"]


# --- starts -------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=4), st.integers(1, 200))
def test_games_are_allotted_by_their_shares(shares: list[float], games: int) -> None:
    out = apportion(shares, games)
    assert sum(out) == games and min(out) >= 0
    if games >= len(shares):
        assert min(out) >= 1, "all are always present"
    fair = [share / sum(shares) * games for share in shares]
    assert all(abs(got - part) < len(shares) for got, part in zip(out, fair))


def make_archive(games: int, bands: str, **changes: float) -> Archive:
    """With a start for each letter of `bands`: e, m or l."""
    archive = Archive(SavestatesConfig(mode="bands", **changes), ArchiveWorld(games), 5, 0.98)
    for number, letter in enumerate(bands):
        start_group = next(name for name in START_GROUPS if name.startswith(letter))
        name = str(number)
        archive.starts.append(Start(name, "x", number, 0, start_group, "map", (name,), POWER_ON, name))
        archive.posteriors.append()
    return archive


def starts_of(archive: Archive, iteration: int) -> list[int]:
    next_stage = archive.next_stage(iteration)
    assert next_stage.shape == (len(archive.episode_start), 2)
    return next_stage[:, 0].astype(int).tolist()


def shares_of(archive: Archive, times: int) -> Counter[int]:
    return Counter(n for i in range(times) for n in starts_of(archive, i))


def test_quotas_hold_in_every_draw() -> None:
    archive = make_archive(40, "eemml", power_on=0.25, early=0.5, mid=0.3, late=0.2)
    for iteration in range(20):
        out = starts_of(archive, iteration)
        assert not archive.next_stage(iteration)[:, 1].any(), "as patient as the settings say"
        bands = Counter(archive.start(number).start_group for number in out)
        assert bands == {"early": 25, "mid": 9, "late": 6}
        assert out.count(POWER_ON) >= 10
    fixed = [game for game in range(40) if all(starts_of(archive, i)[game] == POWER_ON for i in range(20))]
    assert len(fixed) == 10 and max(np.diff(fixed)) <= 5, "spread over the ladder of epsilons"


def test_empty_start_group_leaves_its_quota_to_the_one_before() -> None:
    assert set(starts_of(make_archive(8, ""), 0)) == {POWER_ON}
    quotas = {"power_on": 0.2, "early": 0.25, "mid": 0.25, "late": 0.5}
    for letters, expected in {"e": (20, 0, 0), "m": (8, 12, 0), "l": (12, 0, 8), "ml": (8, 4, 8)}.items():
        archive = make_archive(20, letters, **quotas)
        bands = Counter(archive.start(n).start_group for n in starts_of(archive, 0))
        assert tuple(bands[start_group] for start_group in START_GROUPS) == expected, letters
    few = make_archive(4, "eml")
    assert {few.start(n).start_group for n in starts_of(few, 3)} == set(START_GROUPS), "all with four games"


def test_within_a_start_group_visits_and_uncertainty_decide() -> None:
    archive = make_archive(30, "mmm", power_on=0.0, early=0.0, mid=1.0, late=0.0)
    archive.starts[0].visits, archive.starts[1].visits = 99, 3
    for _ in range(50):
        archive.posteriors.update(2, True)  # of start 1: mastered
    start_weights = archive.start_weights()[1:]
    assert start_weights[0] == pytest.approx(12**-0.5 / 10) and start_weights[1] < start_weights[2] / 10
    seen = shares_of(archive, 200)
    for number in range(3):
        expected = start_weights[number] / start_weights.sum()
        assert seen[number] / 6000 == pytest.approx(expected, abs=4 * (expected / 6000) ** 0.5)


def test_a_state_in_quarantine_is_not_drawn() -> None:
    archive = make_archive(12, "ml")
    archive.world.library.quarantine["1"] = "crashes"
    assert 1 not in shares_of(archive, 20) and 0 in shares_of(archive, 20)


# --- resume -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["guided", "scouted"])
def test_killed_runs_end_as_an_undisturbed_one(tmp_path: Path, kind: str) -> None:
    ours = os.pathsep.join([str(Path(api.__file__).parents[1]), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, savestate_runs.__file__, str(tmp_path), "4", "7", kind],
        capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": ours, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_a_resume_brings_the_folder_back(tmp_path: Path) -> None:
    folder, made = tmp_path / "run", savestate_runs.config(total_steps=4 * 20 * 6, save_every=2)
    savestate_runs.go_on(tmp_path / "twin", made)
    savestate_runs.go_on(folder, made, stop=4)
    place = folder / "savestates"
    rows = index_of(folder)
    hurt, gone = (rows[number]["file"] for number in (1, 2))
    (place / hurt).write_bytes(b"rubbish")
    (place / gone).unlink()
    # What a killed run had reached after its checkpoint: named by the index, and to be reached again.
    later = rows[-1] | {"file": "LATER_999.state"}
    (place / "index.json").write_text(json.dumps([*rows, later, {"file": "../../twin/config.yaml"}]))
    (place / "LATER_999.state").write_bytes(b"later")
    (place / "mine.state").write_bytes(b"somebody's")
    lines = savestate_runs.go_on(folder).__dict__["said"]
    notes = [line for line in lines if "savestates" in line and "Milestone" not in line]
    assert len(notes) == 3 and sum("written again from the checkpoint" in line for line in notes) == 2
    assert any("mine.state: not a savestate of this run" in line for line in notes)
    assert (place / "mine.state").read_bytes() == b"somebody's" and not (place / "LATER_999.state").exists()
    (place / "mine.state").unlink()
    assert differences(tmp_path / "twin", folder) == []


@pytest.mark.slow
def test_a_resume_from_the_beginning_removes_what_was_reached(tmp_path: Path) -> None:
    """Killed before its first checkpoint: another machine may not reach the same states again."""
    folder, made = tmp_path / "run", savestate_runs.config(total_steps=4 * 20 * 3, save_every=3)

    class Killed(Exception):
        pass

    with pytest.raises(Killed), Run.create(folder, settings.to_yaml(made)) as run:
        trainer = savestate_runs.trainer(made)
        trainer.bind(run, savestate_runs.Lines(trainer))
        trainer.start()
        iterate(trainer)
        raise Killed
    rows, place = index_of(folder), folder / "savestates"
    (place / "index.json").write_text(json.dumps([*rows, rows[-1] | {"file": "OTHER_999.state"}]))
    (place / "OTHER_999.state").write_bytes(b"other")
    savestate_runs.go_on(folder)
    savestate_runs.go_on(tmp_path / "twin", made)
    assert differences(tmp_path / "twin", folder) == []


def test_an_index_that_is_no_index_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    savestate_runs.go_on(folder, savestate_runs.config(total_steps=4 * 20 * 3), stop=2)
    whole = (folder / "savestates" / "index.json").read_bytes()
    for bad in (b"", b"{", b"[1]", b'[{"file": 3}]', b"\xff", b"null"):
        (folder / "savestates" / "index.json").write_bytes(bad)
        assert archive_files._listed(folder / "savestates") == set()
    savestate_runs.go_on(folder)
    assert len((folder / "savestates" / "index.json").read_bytes()) >= len(whole)


# --- refusals -----------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"savestates\.mode = bands: pursuit has no savestates"):
        settings.replace(api.default("pursuit"), {"savestates.mode": "bands"})
    with pytest.raises(ConfigError, match=r"early \+ mid \+ late = 1.1: the fractions must add up"):
        savestate_runs.config(savestates__early=0.5)
    with pytest.raises(ConfigError, match=r"savestates\.power_on = 1.5"):
        savestate_runs.config(savestates__power_on=1.5)
    with pytest.raises(ConfigError, match=r"milestones\.budgets = 'DWAN=3'.*nearest: DAWN"):
        savestate_runs.config(milestones__budgets=("DWAN=3",))


def test_demonstrations_need_mode_bands() -> None:
    """Where all begin from the newest record nobody is led: any learner may learn there."""
    asked = {"learner": "ppo", "savestates.mode": "all", "world.workers": 0}
    assert api.configure("tiny", changes=asked).learner == "ppo"
    with pytest.raises(ConfigError, match="ppo cannot learn from actions that it did not choose"):
        api.configure("tiny", changes=asked | {"savestates.mode": "bands"})


def test_quotas_without_bands_have_no_effect() -> None:
    made = savestate_runs.config(savestates__mode="all")
    for key in ("savestates.late", "savestates.power_on"):
        assert "savestates.mode" in settings.has_effect(made, key)


# --- the world's part ---------------------------------------------------------------------------------


def test_a_game_that_is_cut_off_with_its_milestone_is_captured_before_it_begins_anew() -> None:
    way = gameboy_worlds.tiny().solution
    world = gameboy_worlds.world(2)
    asked: list[tuple[int, tuple[str, ...], bool]] = []
    world.set_capture_rule(lambda game, names, over, *more: asked.append((game, names, over)) or True)
    first = next(t for t, action in enumerate(way) if gameboy_worlds.press(world, action) and world.events)
    assert asked == [(0, ("DAWN",), False), (1, ("DAWN",), False)] and set(world.captured) == {0, 1}
    gameboy_worlds.press(world, way[first + 1])
    assert not world.captured, "of the step just made"
    short = gameboy_worlds.world(1, max_steps=first + 1)
    short.set_capture_rule(lambda *asked: True)
    for action in way[: first + 1]:
        view = gameboy_worlds.press(short, action)
    assert view.ended[0] == CUT_OFF and short.state["time"][0] == 0
    assert short.captured[0].actions == list(way[: first + 1])
    assert short.captured[0].sha256 == world_at(first + 1)


def world_at(count: int) -> str:
    world = gameboy_worlds.world(1)
    gameboy_worlds.follow(world, count)
    return str(world.capture(0).sha256)


# --- every setting does something ---------------------------------------------------------------------

# Those of one part are handed on whole: that one of them arrives shows that all do.
KNOBS = {"savestates.mode": "all", "savestates.power_on": 1.0, "demonstrations.enabled": True,
         "milestones.weight": 0.1, "milestones.forgetting": 0.5}  # fmt: skip


def outcome(folder: Path, changes: dict[str, Any]) -> bytes:
    """All that a short run does."""
    made = settings.replace(
        savestate_runs.config(games=8, total_steps=8 * 20 * 3, world__max_steps=30), changes
    )
    savestate_runs.go_on(folder, made, astray=0.3)
    return b"".join((folder / name).read_bytes() for name in ("metrics.jsonl", "savestates/index.json"))


@pytest.mark.slow
def test_settings_change_what_a_run_does(tmp_path: Path) -> None:
    base = outcome(tmp_path / "base", {})
    for number, (key, value) in enumerate(KNOBS.items()):
        assert outcome(tmp_path / f"{number}", {key: value}) != base, key


def test_every_quota_changes_where_games_begin() -> None:
    base = shares_of(make_archive(20, "eml"), 10)
    other = {"power_on": {"power_on": 0.6}, "early": {"early": 0.1, "mid": 0.6},
             "mid": {"mid": 0.0, "early": 0.7}, "late": {"late": 0.0, "mid": 0.6}}  # fmt: skip
    known = {field.name for field in dataclasses.fields(SavestatesConfig)}
    assert set(other) | {"mode", "import_from"} == known, "these two have tests of their own"
    for key, changes in other.items():
        assert shares_of(make_archive(20, "eml", **changes), 10) != base, key
