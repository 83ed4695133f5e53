"""Runs that older versions stored are resumed, and end as an undisturbed run of the present version does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from same_run_compare import Leaves, compare, kind_of, run_leaves

from rematch import api
from rematch.agents.learners import dqn
from rematch.storage.run_folder import Run

DATA = Path(__file__).resolve().parents[1] / "data"
STORED = sorted(path.parent for path in DATA.glob("run_v*/*/config.yaml"))
SIZES = {"slim": ((2, 2, 2), 4)}

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(params=STORED, ids=lambda path: f"{path.parent.name}-{path.name}")
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    folder: Path = request.param
    return folder


def undisturbed(stored: Path, folder: Path) -> Leaves:
    """The whole run of the present version, with the settings of the stored one."""
    with Run.open(stored, write=False) as run:
        config = api.stored(run)
    api.train(config, folder=folder)
    return run_leaves(folder)


def same_bits(half: Leaves, whole: Leaves) -> bool:
    """Whether this machine computes to the bit what the storing machine did: all logged numbers are equal."""
    rows = {leaf: value for leaf, value in half.items() if leaf.startswith("metrics.jsonl/")}
    assert rows and rows.keys() <= whole.keys()
    return all(whole[leaf] == value for leaf, value in rows.items())


def shapes(leaves: Leaves) -> dict[str, Any]:
    """What is the same on any machine: which arrays and numbers a checkpoint holds."""
    return {leaf: (kind_of(value), getattr(value, "shape", ())) for leaf, value in leaves.items()
            if leaf.startswith("checkpoint/")}


def test_there_are_stored_runs() -> None:
    assert [f"{path.parent.name}/{path.name}" for path in STORED] == ["run_v0/dqn", "run_v0/ppo"]
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 100_000


def test_stored_run_is_read(stored: Path) -> None:
    assert api.load(stored).policies and run_leaves(stored)


def test_stored_run_is_resumed_to_the_bits_of_an_undisturbed_one(stored: Path, tmp_path: Path) -> None:
    resumed = tmp_path / "resumed"
    shutil.copytree(stored, resumed)
    half, whole = run_leaves(resumed), undisturbed(stored, tmp_path / "whole")
    api.resume(resumed, other_machine=True)
    if same_bits(half, whole):
        assert compare(run_leaves(resumed), whole) == []
    else:  # the last bit of a sum may depend on the processor
        assert shapes(run_leaves(resumed)) == shapes(whole)
