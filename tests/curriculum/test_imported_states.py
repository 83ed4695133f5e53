"""`--savestates.import_from`: the user's states become starts, with the names of a manifest."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support import gameboy_worlds, savestate_runs
from support.gameboy_worlds import follow

from rematch.core.errors import ConfigError
from rematch.curriculum.imported_states import IMPORTED_GAME, state_files
from rematch.curriculum.savestates import Savestates
from rematch.storage.run_folder import Run
from rematch.training.trainer import Trainer
from rematch.worlds.gameboy.savestates import FOREIGN

DATA = Path(__file__).resolve().parents[1] / "data" / "pyboy_states"
MILESTONES = ("DAWN", "BADGE-1")


@pytest.fixture
def states(tmp_path: Path) -> Path:
    """Three plain states of PyBoy, one that an old PyBoy wrote, two that are none, and a manifest."""
    gameboy_worlds.need_pyboy()
    world, folder = gameboy_worlds.world(), tmp_path / "mine"
    folder.mkdir()
    done = 0
    for count in (12, 60, 120):
        follow(world, count - done, done)
        done = count
        (folder / f"after_{count}.state").write_bytes(world.capture(0).emulator())
    (folder / "old.state").write_bytes(gzip.decompress((DATA / "pyboy_1.3.0.state.gz").read_bytes()))
    (folder / "short.state").write_bytes((folder / "after_12.state").read_bytes()[:-7])
    manifest = {"first_steps": "after_12.state",
                "gym_door": {"file": "after_60.state", "start_group": "late", "milestones": ["BADGE-1"]}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def imported(trainer: Trainer) -> list[Any]:
    savestates = trainer.setup.get(Savestates)
    assert savestates is not None
    return [start for start in savestates.archive.starts if start.game == IMPORTED_GAME]


@pytest.mark.slow
@pytest.mark.parametrize("demonstrations", [False, True])
def test_imported_states_are_starts_and_survive_a_resume(
    states: Path, tmp_path: Path, demonstrations: bool
) -> None:
    changes = savestate_runs.SCOUTED if demonstrations else {"total_steps": 4 * 20 * 8}
    config = savestate_runs.config(**changes, savestates__import_from=str(states))
    seen = savestate_runs.go_on(tmp_path / "run", config)
    starts = {start.milestone: start for start in imported(seen.trainer)}
    assert set(starts) == {"first_steps", "gym_door", "after_120"}
    assert starts["gym_door"].start_group == "late" and "BADGE-1" in starts["gym_door"].milestones
    assert starts["first_steps"].file == "first-steps_0.state"
    assert sum(start.visits for start in starts.values()) >= 2
    log = (tmp_path / "run" / "train.log").read_text()
    assert "Savestate gym_door: late, " in log and "from after_60.state" in log
    assert "Savestate refused: old.state: written by PyBoy 1.1 to 1.3: state version 5" in log
    assert "Savestate refused: short.state: written by PyBoy 2.8: state version 29" in log
    with Run.open(tmp_path / "run", write=False) as run:
        checkpoint = run.load()
    assert checkpoint is not None
    for path in states.iterdir():  # a resumed run does not need the folder
        path.unlink()
    other = Trainer(config)
    other.load_state_dict(checkpoint.parts)
    again = {start.milestone: start for start in imported(other)}
    assert again == starts and other.world.library[0].root == FOREIGN  # type: ignore[attr-defined]


def test_first_games_start_from_imported_states(states: Path) -> None:
    trainer = Trainer(savestate_runs.config(savestates__import_from=str(states), savestates__power_on=0.25))
    trainer.start()
    archive = trainer.setup.get(Savestates).archive  # type: ignore[union-attr]
    trainer.before_rollout()
    assert archive.episode_start.tolist() == trainer.world.episode_starts.tolist()  # type: ignore[attr-defined]
    assert (archive.episode_start >= 0).sum() >= 2 and (archive.episode_start < 0).any()
    assert archive.power_on.visits + sum(start.visits for start in archive.starts) == 4


@pytest.mark.slow
def test_plain_files_load_in_pyboy_and_come_back(states: Path, tmp_path: Path) -> None:
    """The run's pyboy_states/ are files that bare PyBoy loads, and that another run imports."""
    config = savestate_runs.config(total_steps=4 * 20 * 3, savestates__import_from=str(states))
    seen = savestate_runs.go_on(tmp_path / "run", config)
    plain = tmp_path / "run" / "pyboy_states"
    archive = seen.trainer.setup.get(Savestates).archive
    at_milestones = {start.file for number, start in enumerate(archive.starts)
                     if not archive.world.library[number].place}  # fmt: skip
    assert {path.name for path in plain.iterdir()} == at_milestones >= {"after-120_0.state"}
    from rematch.worlds.gameboy.emulator.pyboy_emulator import load_pyboy

    boy = load_pyboy().PyBoy(io.BytesIO(gameboy_worlds.tiny().rom), window="null", sound_emulated=False)
    with (plain / "after-120_0.state").open("rb") as file:
        boy.load_state(file)
    world = gameboy_worlds.world()
    follow(world, 120)
    facts = world._facts()
    assert (boy.memory[0xD361], boy.memory[0xD362]) == (facts.y[0], facts.x[0])
    boy.stop(save=False)
    again = Trainer(savestate_runs.config(savestates__import_from=str(plain)))
    again.start()
    assert {start.sha256 for start in imported(again)} == {archive.starts[n].sha256 for n, start
        in enumerate(archive.starts) if start.file in at_milestones}  # fmt: skip


def test_bundles_of_another_run_are_imported_with_their_inputs(states: Path, tmp_path: Path) -> None:
    world = gameboy_worlds.world()
    follow(world, 60)
    folder = tmp_path / "bundles"
    folder.mkdir()
    (folder / "mine.state").write_bytes(world.capture(0).pack())
    trainer = Trainer(savestate_runs.config(savestates__import_from=str(folder)))
    trainer.start()
    frontier = trainer.setup.get(Savestates).archive.frontier  # type: ignore[union-attr]
    assert frontier is not None and len(frontier.actions) == 60


@pytest.mark.parametrize(("text", "line"), [
    ("[]", "manifest.json: expected an object"),
    ("{", "manifest.json is not well-formed JSON"),
    ('{"a": "b.stat"}', "a: file 'b.stat' is unknown; nearest: b.state"),
    ('{"a": {"file": "b.state", "group": "late"}}', "a: key 'group' is unknown; nearest: start_group"),
    ('{"a": {"file": "b.state", "start_group": "end"}}', "start_group 'end' is unknown; expected one of"),
    ('{"a": {"file": "b.state", "milestones": ["BADGE-2"]}}', "'BADGE-2' is unknown; nearest: BADGE-1"),
    ('{"a": "b.state", "c": "b.state"}', "c: b.state has two names"),
    ('{"a": 3}', "a: expected the name of a file"),
])  # fmt: skip
def test_manifest_with_a_mistake_is_refused(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "b.state").write_bytes(b"x")
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ConfigError) as caught:
        state_files(tmp_path, MILESTONES)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_folder_without_usable_states_is_refused(tmp_path: Path) -> None:
    gameboy_worlds.need_pyboy()
    for folder, line in ((tmp_path / "none", "no such folder"), (tmp_path, "no .state file in it")):
        with pytest.raises(ConfigError, match=line):
            state_files(folder, MILESTONES)
    (tmp_path / "b.state").write_bytes(b"\x07x")
    trainer = Trainer(savestate_runs.config(savestates__import_from=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"no file is a usable savestate: b.state: written by PyBoy 1.4.1"):
        trainer.start()
