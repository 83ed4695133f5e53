"""Past selves: evenly spread, the same whoever was killed when, and read back as they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_training import flip_bit

from rematch import api
from rematch.core.config import replace
from rematch.evaluation.past_policies import chosen, selves, stride
from rematch.rehearsal.shrink import compared, play
from rematch.storage.run_folder import PAST_FOLDER, Run
from rematch.training.trainer import Config

SMALL: dict[str, Any] = {
    "threads": 1, "games": 8, "steps": 4, "total_steps": 8 * 4 * 11, "evaluation.games": 2,
    "evaluation.rivals": ("random",), "evaluation.past": 4, "network.hidden": (4,), "world.max_steps": 5,
    "save_every": 3,
}


def small(game: str = "pursuit", **changes: Any) -> Config:
    own = {key: value for key, value in SMALL.items() if game == "pursuit" or not key.startswith("world.")}
    return replace(api.default(game), own | {key.replace("__", "."): value for key, value in changes.items()})


@given(st.integers(1, 3000), st.integers(1, 60))
def test_half_as_many_to_so_many_stay_evenly_spread(iteration: int, most: int) -> None:
    apart = stride(iteration, most)
    kept = range(apart, iteration + 1, apart)
    assert apart & (apart - 1) == 0 and len(kept) <= most
    assert apart == 1 or len(kept) >= (most + 1) // 2 or iteration // (apart // 2) > most


@given(st.integers(2, 400), st.integers(1, 40))
def test_thinning_never_wants_back_what_it_removed(iterations: int, most: int) -> None:
    kept: set[int] = set()
    for iteration in range(1, iterations):
        apart = stride(iteration, most)
        if iteration % apart == 0:
            kept.add(iteration)
            wanted = set(range(apart, iteration + 1, apart))
            assert wanted <= kept
            kept = wanted


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=80, unique=True), st.integers(2, 30))
def test_those_chosen_are_spread_from_the_first_to_the_newest(found: list[int], most: int) -> None:
    there = sorted(found)
    took = chosen(there, most)
    assert len(took) == min(most, len(there)) and took == sorted(set(took)) and set(took) <= set(there)
    assert took[-1] == there[-1] and took[0] == there[0]


def test_a_run_leaves_its_selves_and_its_last(tmp_path: Path) -> None:
    seen = play(small(), tmp_path / "run")
    names = sorted(os.listdir(tmp_path / "run" / PAST_FOLDER))
    assert [name for name in names if name.endswith(".json")] == [f"{i:08d}.json" for i in (4, 8, 11)]
    found, problems = selves(tmp_path / "run", small(), seen.session.make, 11, 20)
    assert [self.iteration for self in found] == [4, 8, 11] and not problems
    assert [self.step for self in found] == [4 * 32, 8 * 32, 11 * 32]
    for role, policy in seen.session.policies.items():
        newest, first = (found[i].players[role].weights for i in (-1, 0))  # type: ignore[attr-defined]
        assert np.array_equal(newest, policy.weights) and not np.array_equal(first, policy.weights)
    assert [s.iteration for s in selves(tmp_path / "run", small(), seen.session.make, 8, 20)[0]] == [4, 8]


def test_a_resumed_run_keeps_the_same_files(tmp_path: Path) -> None:
    """Whatever lies in past/ when a run goes on, at its end it is what an undisturbed one leaves."""
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
    one, two = compared(tmp_path / "one"), compared(tmp_path / "two")
    absent = f"{PAST_FOLDER}/00000004.json"  # it was written before the checkpoint
    later = {name: path for name, path in two.items() if name in one and name != absent}
    assert {name for name in two if name.startswith(PAST_FOLDER)} == \
        {name for name in one if name.startswith(PAST_FOLDER)} - {absent}
    assert all(path.read_bytes() == one[name].read_bytes() for name, path in later.items())


def test_a_damaged_self_is_named_and_left_out(tmp_path: Path) -> None:
    seen = play(small(), tmp_path / "run")
    flip_bit(tmp_path / "run" / PAST_FOLDER / "00000008.safetensors", 90)
    found, problems = selves(tmp_path / "run", small(), seen.session.make, 11, 20)
    assert [self.iteration for self in found] == [4, 11]
    assert len(problems) == 1 and "00000008" in problems[0] and "SHA-256" in problems[0]


def test_players_that_look_ahead_are_kept_too(tmp_path: Path) -> None:
    config = small("lattice", learner="lookahead", world__n=5, world__horizon=4, lookahead__minibatch=16)
    seen = play(config, tmp_path / "run")
    found, _ = selves(tmp_path / "run", config, seen.session.make, 11, 20)
    assert len(found) == 3 and set(found[0].players) == {"pursuer", "evader"}
    value = seen.session.minds.networks["value"]
    assert np.array_equal(found[-1].players["evader"].foresight.value.weights,  # type: ignore[attr-defined]
                          value.weights)


@pytest.mark.parametrize("past", [0, 1])
def test_off_is_off_and_one_is_one(past: int, tmp_path: Path) -> None:
    play(small(evaluation__past=past), tmp_path / "run")
    kept = os.listdir(tmp_path / "run" / PAST_FOLDER) if past else []
    assert (tmp_path / "run" / PAST_FOLDER).exists() == bool(past) and len(kept) in (0, 4)  # 8, and the last
