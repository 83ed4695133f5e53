"""Runs that older versions stored are resumed, and end as an undisturbed run of the present version does."""

from __future__ import annotations

import csv
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from same_run_compare import Leaves, compare, kind_of, run_leaves

from rematch import api
from rematch.agents.learners import dqn
from rematch.storage import atomic_files, migrations
from rematch.storage.run_folder import Run

DATA = Path(__file__).resolve().parents[1] / "data"
STORED = sorted(path.parent for path in DATA.glob("run_v*/*/config.yaml"))
SIZES = {"slim": ((2, 2, 2), 4)}
# Version 0 had an episode log with Q-learning alone: with PPO it begins at the resume.
EPISODES = ("checkpoint/episode_log/*", "metrics.jsonl/*/recent/*", "episodes.csv/*", "events.jsonl/*")
OFF_TERMS = {f"{kind}_{term}" for kind in ("r", "return") for term in migrations.REWARD_TERMS.values()}

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(params=STORED, ids=lambda path: f"{path.parent.name}-{path.name}")
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    folder: Path = request.param
    return folder


def undisturbed(stored: Path, folder: Path) -> Leaves:
    """The whole run of the present version, with the settings of the stored one."""
    with Run.open(stored, write=False) as run:
        config = api.stored_config(run)
    api.train(config, folder=folder)
    return run_leaves(folder)


def without_off_terms(leaves: Leaves) -> Leaves:
    """Version 0 logged 0 for reward terms that were switched off, which now have no columns."""
    def off(leaf: str, value: Any) -> bool:
        name = leaf.rpartition("/")[2]
        return name in OFF_TERMS and value == 0.0 and not leaf.startswith("checkpoint/")

    return {leaf: value for leaf, value in leaves.items() if not off(leaf, value)}


def without_episodes(leaves: Leaves) -> Leaves:
    return {leaf: value for leaf, value in leaves.items()
            if not any(fnmatchcase(leaf, pattern) for pattern in EPISODES)}  # fmt: skip


def without_replays(leaves: Leaves) -> Leaves:
    """Runs of version 0 have replays of the evaluations after the resume only."""
    return {leaf: value for leaf, value in leaves.items() if not leaf.startswith("replays/")}


def same_bits(half: Leaves, whole: Leaves) -> bool:
    """Whether this machine computes to the bit what the storing machine did: all logged numbers are equal."""
    known = without_off_terms(half)
    rows = {leaf: value for leaf, value in known.items() if leaf.startswith("metrics.jsonl/")}
    assert rows and rows.keys() <= whole.keys()
    return all(whole[leaf] == value for leaf, value in rows.items())


def shapes(leaves: Leaves) -> dict[str, Any]:
    """What is the same on any machine: which arrays and numbers a checkpoint holds."""
    return {leaf: (kind_of(value), getattr(value, "shape", ())) for leaf, value in leaves.items()
            if leaf.startswith("checkpoint/")}


def test_stored_runs_exist() -> None:
    assert [f"{path.parent.name}/{path.name}" for path in STORED] == [
        "run_v0/dqn", "run_v0/gym_ppo", "run_v0/ppo", "run_v1/lookahead", "run_v1/ppo", "run_v2/dqn",
        "run_v2/expert", "run_v2/ppo", "run_v3/ppo"]  # fmt: skip
    for folder in DATA.glob("run_v*"):
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert files and sum(path.stat().st_size for path in files) < 100_000
    versions = {int(path.parent.name.removeprefix("run_v")) for path in STORED}
    assert versions == set(range(migrations.VERSION + 1)), "a run of every version of the checkpoint format"


@pytest.mark.parametrize("folder", STORED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_stored_run_is_of_its_version(folder: Path) -> None:
    (file,) = folder.glob("checkpoints/*/manifest.json")
    body = atomic_files.decode_with_digest(file.read_bytes(), file.name)
    assert body.get("version", 0) == int(folder.parent.name.removeprefix("run_v"))
    assert body["fingerprint"] == {"machine": "another"}


def test_stored_run_is_read(stored: Path) -> None:
    assert api.load(stored).policies and run_leaves(stored)


def test_stored_run_is_resumed_to_the_bits_of_an_undisturbed_one(stored: Path, tmp_path: Path) -> None:
    resumed = tmp_path / "resumed"
    shutil.copytree(stored, resumed)
    half, whole = run_leaves(resumed), undisturbed(stored, tmp_path / "whole")
    api.resume(resumed, other_machine=True)
    ended = run_leaves(resumed)
    if stored.name == "gym_ppo":
        ended, whole = without_episodes(ended), without_episodes(whole)
    if same_bits(half, whole):
        ended, whole = without_replays(ended), without_replays(whole)
        assert compare(without_off_terms(ended), without_off_terms(whole)) == []
    else:  # the last bit of a sum may depend on the processor
        assert shapes(ended) == shapes(whole)


def test_resumed_table_has_rows_of_one_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """episodes.csv of version 0 has a column of every reward term there was."""
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    resumed = tmp_path / "resumed"
    shutil.copytree(DATA / "run_v0" / "dqn", resumed)
    before = (resumed / "episodes.csv").read_text()
    api.resume(resumed, other_machine=True)
    after = (resumed / "episodes.csv").read_text()
    assert after.startswith(before) and len(after) > len(before)
    header, *rows = csv.reader(after.splitlines())
    assert {len(row) for row in rows} == {len(header)} == {14}
    assert [row[0] for row in rows] == [str(number) for number in range(1, len(rows) + 1)]
    assert {tuple(row[5:9]) for row in rows} == {("0", "0", "0", "0")}


def test_the_settings_of_an_older_version_are_a_recipe(stored: Path) -> None:
    """A file with all settings of its version is a complete list, although it lacks later sections."""
    with Run.open(stored, write=False) as run:
        assert api.configure(str(stored / "config.yaml")) == api.stored_config(run)
