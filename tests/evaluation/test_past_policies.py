"""Past policies: evenly spaced, equal after kill and resume, read back as they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_training import flip_bit
from support.tiny_run import SMALL

from rematch import api
from rematch.core.config import replace
from rematch.core.run_config import Config
from rematch.evaluation.past_policies import evenly_spaced, load_past_policies, stride
from rematch.rehearsal.compare import comparable_files
from rematch.rehearsal.trial import play
from rematch.storage.run_folder import PAST_FOLDER, Run

CHANGES = SMALL | {"threads": 1, "total_steps": 8 * 4 * 11, "past_policies.count": 4, "save_every": 3,
                   "network.hidden": (4,), "evaluation.opponents": ("random",)}


def small(game: str = "pursuit", **changes: Any) -> Config:
    """The settings of a small run; `changes` with `__` for the dot."""
    values = {key: value for key, value in CHANGES.items()
              if game == "pursuit" or not key.startswith("world.")}
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    return replace(api.default(game), values)


@given(st.integers(1, 3000), st.integers(1, 60))
def test_stride_keeps_between_half_and_all_of_the_limit(iteration: int, most: int) -> None:
    spacing = stride(iteration, most)
    stored = range(spacing, iteration + 1, spacing)
    assert spacing & (spacing - 1) == 0 and len(stored) <= most
    assert spacing == 1 or len(stored) >= (most + 1) // 2 or iteration // (spacing // 2) > most


@given(st.integers(2, 400), st.integers(1, 40))
def test_stride_never_needs_a_deleted_iteration(iterations: int, most: int) -> None:
    stored: set[int] = set()
    for iteration in range(1, iterations):
        spacing = stride(iteration, most)
        if iteration % spacing == 0:
            stored.add(iteration)
            wanted = set(range(spacing, iteration + 1, spacing))
            assert wanted <= stored
            stored = wanted


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=80, unique=True), st.integers(2, 30))
def test_evenly_spaced_has_the_first_and_the_newest(numbers: list[int], most: int) -> None:
    iterations = sorted(numbers)
    selected = evenly_spaced(iterations, most)
    assert len(selected) == min(most, len(iterations)) and set(selected) <= set(iterations)
    assert selected == sorted(set(selected))
    assert selected[-1] == iterations[-1] and selected[0] == iterations[0]


def test_run_stores_past_policies_and_its_last(tmp_path: Path) -> None:
    seen = play(small(), tmp_path / "run")
    names = sorted(os.listdir(tmp_path / "run" / PAST_FOLDER))
    assert [name for name in names if name.endswith(".json")] == [f"{i:08d}.json" for i in (4, 8, 11)]
    past, problems = load_past_policies(tmp_path / "run", small(), seen.trainer.setup.make_world, 11, 20)
    assert [entry.iteration for entry in past] == [4, 8, 11] and not problems
    assert [entry.step for entry in past] == [4 * 32, 8 * 32, 11 * 32]
    for role, policy in seen.trainer.agents.players.items():
        newest, first = (past[i].players[role].weights for i in (-1, 0))  # type: ignore[attr-defined]
        assert np.array_equal(newest, policy.weights) and not np.array_equal(first, policy.weights)
    earlier, _ = load_past_policies(tmp_path / "run", small(), seen.trainer.setup.make_world, 8, 20)
    assert [entry.iteration for entry in earlier] == [4, 8]


@pytest.mark.slow
def test_resumed_run_stores_the_same_files(tmp_path: Path) -> None:
    """Any files in past/ at the time of a resume: at the end they are those of an undisturbed run."""
    play(small(), tmp_path / "one")
    play(small(), tmp_path / "two")
    with Run.open(tmp_path / "two", write=True) as run:
        for name in os.listdir(tmp_path / "two" / "checkpoints"):
            if name > "iter_00000006":
                for path in (tmp_path / "two" / "checkpoints" / name).iterdir():
                    path.unlink()
                (tmp_path / "two" / "checkpoints" / name).rmdir()
        assert run.load()
    for name in ("00000004.json", "00000011.safetensors"):
        (tmp_path / "two" / PAST_FOLDER / name).unlink()
    (tmp_path / "two" / PAST_FOLDER / "00000099.json").write_text("of a time that did not happen")
    api.resume(tmp_path / "two")
    one, two = comparable_files(tmp_path / "one"), comparable_files(tmp_path / "two")
    absent = f"{PAST_FOLDER}/00000004.json"  # it was written before the checkpoint
    later = {name: path for name, path in two.items() if name in one and name != absent}
    assert {name for name in two if name.startswith(PAST_FOLDER)} == \
        {name for name in one if name.startswith(PAST_FOLDER)} - {absent}
    assert all(path.read_bytes() == one[name].read_bytes() for name, path in later.items())


def test_damaged_file_is_named_and_left_out(tmp_path: Path) -> None:
    seen = play(small(), tmp_path / "run")
    flip_bit(tmp_path / "run" / PAST_FOLDER / "00000008.safetensors", 90)
    past, problems = load_past_policies(tmp_path / "run", small(), seen.trainer.setup.make_world, 11, 20)
    assert [entry.iteration for entry in past] == [4, 11]
    assert len(problems) == 1 and "00000008" in problems[0] and "SHA-256" in problems[0]


def test_lookahead_players_are_stored_too(tmp_path: Path) -> None:
    config = small("lattice", learner="lookahead", world__n=5, world__horizon=4, lookahead__minibatch_size=16)
    seen = play(config, tmp_path / "run")
    past, _ = load_past_policies(tmp_path / "run", config, seen.trainer.setup.make_world, 11, 20)
    assert len(past) == 3 and set(past[0].players) == {"pursuer", "evader"}
    value = seen.trainer.agents.networks["value"]
    assert np.array_equal(past[-1].players["evader"].solver.value.weights,  # type: ignore[attr-defined]
                          value.weights)


@pytest.mark.parametrize("past", [0, 1])
def test_setting_of_zero_stores_nothing_and_of_one_stores_one(past: int, tmp_path: Path) -> None:
    play(small(past_policies__count=past), tmp_path / "run")
    stored = os.listdir(tmp_path / "run" / PAST_FOLDER) if past else []
    assert (tmp_path / "run" / PAST_FOLDER).exists() == bool(past) and len(stored) in (0, 4)
