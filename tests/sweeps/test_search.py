"""rematch search: spaces, objectives, pruning, fresh seeds, kills; a known optimum is found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.patience import wait_until

pytest.importorskip("optuna")

from support.commands import ROOT, Runner, environment, refused
from support.evaluation_rows import match_row
from support.local_players import LocalPlayers, local_place

import rematch
from rematch.core.errors import ConfigError
from rematch.core.system.interrupts import StopRequested
from rematch.sweeps import search
from rematch.sweeps.search_objective import Objective
from rematch.sweeps.search_space import read_space
from rematch.training import recipes

__all__ = ["refused"]
pytestmark = pytest.mark.usefixtures("blank_pictures")

LATTICE = {"games": 16, "steps": 4, "total_steps": 512, "world.n": 4, "world.block": 0, "world.horizon": 5,
           "network.hidden": [8], "evaluation.every": 4, "evaluation.games": 4, "ppo.minibatch_size": 64,
           "threads": 1, "save_every": 4}  # fmt: skip


# --- space and objective ------------------------------------------------------------------------------------


def test_space_is_read_with_the_types_of_the_settings() -> None:
    config = rematch.configure("lattice")
    rate, epochs, hidden = read_space(
        ["ppo.lr=1e-4..1e-2:log", "--ppo.epochs=1..8", "network.hidden=[8],[16,16]"], config)
    assert (rate.low, rate.high, rate.log, rate.whole) == (1e-4, 1e-2, True, False)
    assert (epochs.whole, epochs.ends()) == (True, ["1", "8"])
    assert hidden.choices == ("[8]", "[16,16]")


@pytest.mark.parametrize(("over", "message"), [
    ("", "expected KEY=LOW..HIGH"), ("ppo.lr", "expected KEY=LOW..HIGH"), ("ppo.lr=1..", "expected KEY=LOW"),
    ("ppo.lr=2..1", "expected LOW < HIGH"), ("ppo.lr=0..1:log", "expected 0 < LOW < HIGH"),
    ("ppo.lrr=1..2", "unknown setting ppo.lrr; nearest: ppo.lr"), ("seed=1..2", "a seed is not searched"),
    ("ppo.epochs=1.5..3", "ppo.epochs is a whole number"), ("ppo.lr=0.1", "two or more different values"),
    ("learner=1..2", "learner is not a number"), ("ppo.lr=-1..1", "ppo.lr"),
    ("games=1..0x10", "expected KEY"),
])
def test_wrong_spaces_are_one_line(over: str, message: str, refused: Runner) -> None:
    assert message in refused("search", "lattice", *(["--over", over] if over else []))


@pytest.mark.parametrize(("words", "message"), [
    (("--objective", "beauty"), "expected score, nash_conv, or steps:X"),
    (("--trials", "0"), "--trials = '0'"),
    (("--objective", "steps:1.2"), "expected a score between 0 and 1"), (("--seed", "3"), "--search-seed"),
    (("--over", "ppo.lr=1e-4..1e-3"), "--over ppo.lr is given twice"), (("--seeds", "x"), "--seeds = 'x'"),
])
def test_wrong_requests_are_one_line(words: tuple[str, ...], message: str, refused: Runner) -> None:
    assert message in refused("search", "lattice", "--over", "ppo.lr=1e-3..1e-2", *words)


def test_objective_that_the_world_does_not_have_is_refused_before_any_training(
        refused: Runner, tmp_path: Path) -> None:
    words = ("search", "quick", "--over", "ppo.lr=1e-3..1e-2", "--name", str(tmp_path / "x"))
    assert "this world cannot be solved" in refused(*words, "--objective", "nash_conv")
    assert not (tmp_path / "x").exists()


def row(step: int, score: float, nash_conv: float | None = None) -> dict[str, Any]:
    entry = match_row("player", "random", score) | {"role": "player"}
    exact = {} if nash_conv is None else {"exact": {"nash_conv": nash_conv}}
    return {"iteration": step, "step": step, "phase": step, "role": "both", "rates": {}, "table": [entry],
            **exact}


def test_objectives_read_evaluations() -> None:
    rows = [row(10, 0.4, 0.9), row(20, 0.7, 0.5), row(30, 0.6, 0.4)]
    assert Objective.parse("score").final(rows, 30) == pytest.approx(0.6)
    assert Objective.parse("nash_conv").final(rows, 30) == pytest.approx(0.4)
    steps = Objective.parse("steps:0.65")
    assert steps.final(rows, 30) == 20 and steps.final(rows[:1], 30) == 30
    assert steps.intermediate(rows) == pytest.approx(0.4) and not steps.maximize
    with pytest.raises(ConfigError, match="cannot be solved"):
        Objective.parse("nash_conv").final([row(1, 0.5)], 1)


# --- searches without training ------------------------------------------------------------------------------


def synthetic(monkeypatch: pytest.MonkeyPatch, noise: float = 0.05) -> list[tuple[float, int, int]]:
    """Runs are a formula: the score is best at lr 0.01 and varies with the seed. Returns the calls."""
    calls: list[tuple[float, int, int]] = []

    def advance(folder: Path, config: Any, evaluations: int, stop: Any, place: Any) -> list[dict[str, Any]]:
        calls.append((config.ppo.lr, config.seed, evaluations))
        random = np.random.default_rng([config.seed, round(1e9 * config.ppo.lr)])
        level = 0.9 - 0.2 * abs(np.log10(config.ppo.lr) + 2) + noise * random.standard_normal()
        return [row(step, float(np.clip(level * step / 4, 0, 1))) for step in range(1, evaluations + 1)]

    monkeypatch.setattr(search, "advance", advance)
    monkeypatch.setattr(search, "evaluation_count", lambda config: 4)
    return calls


def request(folder: Path, **changes: Any) -> search.SearchResult:
    wanted = {name: changes.pop(name) for name in ("trials", "confirm", "seeds", "seed", "objective")
              if name in changes}
    size = rematch.SearchRequest(**{"trials": 15, "seeds": 2, "confirm": 3} | wanted)
    return rematch.search("lattice", **{"over": {"ppo.lr": "1e-5..1.0:log"}} | changes, request=size,
                          folder=folder)


@pytest.mark.slow
def test_known_optimum_is_found_in_most_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In at least 8 of 10 searches the best learning rate is within half a decade of the true one."""
    synthetic(monkeypatch)
    found = 0
    for seed in range(10):
        result = request(tmp_path / f"{seed}", seed=seed, confirm=0)
        found += abs(np.log10(float(result["winner"]["values"]["ppo.lr"])) + 2) < 0.5
    assert found >= 8


def test_bad_trials_are_stopped_early_and_the_winner_is_confirmed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = synthetic(monkeypatch)
    result = request(tmp_path / "x")
    states = [entry["state"] for entry in result["trials"]]
    assert len(states) == 15 and any(state.startswith("stopped at evaluation") for state in states)
    fresh = {seed for _, seed, _ in calls if seed >= search.CONFIRM_SEED}
    assert len(fresh) == 3 and {seed for _, seed, _ in calls} - fresh == {0, 1}
    best, recipe = result["confirmation"]
    assert (best["n"], recipe["settings"]) == (3, "recipe") and best["low"] < best["value"] < best["high"]
    assert best["shrunk"] == pytest.approx(best["searched"] - best["value"])
    assert result["gain"]["mean"] == pytest.approx(best["value"] - recipe["value"])
    text = repr(result)
    assert "fresh seeds it is" in text and "Better than the recipe on the same fresh seeds" in text
    assert json.loads((tmp_path / "x/search.json").read_text()) == result.to_dict()
    complete = [entry for entry in result["trials"] if entry["state"] == "complete"]
    assert all(entry["low"] <= entry["value"] <= entry["high"] for entry in complete)
    calls.clear()
    assert request(tmp_path / "x")["trials"] == result["trials"]  # nothing is searched again
    assert {seed for _, seed, _ in calls} == fresh


def test_stopped_trial_has_no_number_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pruning compares scores; in a table of steps they would look like very few steps."""
    synthetic(monkeypatch)
    table = request(tmp_path / "x", objective="steps:0.5", confirm=0)
    stopped = [entry for entry in table["trials"] if entry["state"] != "complete"]
    assert stopped and all(entry["value"] is entry["low"] is entry["high"] is None for entry in stopped)
    assert all(entry["value"] >= 1 for entry in table["trials"] if entry["state"] == "complete")
    assert "stopped at evaluation" in repr(table)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> search.SearchResult:
    """A search that nothing disturbs."""
    with pytest.MonkeyPatch.context() as patch:
        synthetic(patch)
        return request(tmp_path_factory.mktemp("search") / "whole")


@pytest.mark.parametrize("error", [StopRequested("SIGINT"), RuntimeError("killed")])
@pytest.mark.parametrize("at", [1, 7, 30])
def test_interrupted_search_ends_with_the_same_table(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: search.SearchResult, error: BaseException,
        at: int) -> None:
    synthetic(monkeypatch)
    real, count = search.advance, [0]

    def fail(*arguments: Any) -> Any:
        count[0] += 1
        if count[0] == at:
            raise error
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(search, "advance", fail)
        if isinstance(error, StopRequested):
            assert request(tmp_path / "cut")["confirmation"] == []
        else:
            with pytest.raises(RuntimeError):
                request(tmp_path / "cut")
    result = request(tmp_path / "cut")
    assert {key: result[key] for key in ("trials", "winner", "confirmation", "gain")} == {
        key: whole[key] for key in ("trials", "winner", "confirmation", "gain")}


def test_other_request_in_the_same_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic(monkeypatch)
    request(tmp_path / "x", trials=2, confirm=0)
    for changes, message in (
        ({"seeds": 3}, "seeds is 2 there"), ({"objective": "steps:0.5"}, "objective is 'score' there"),
        ({"over": {"ppo.lr": "1e-5..0.5:log"}}, "over is"),
        ({"changes": {"games": 64}}, "games is 1024 there"),
    ):
        with pytest.raises(ConfigError, match=message):
            request(tmp_path / "x", **changes)
    (tmp_path / "y").mkdir()
    (tmp_path / "y/file").touch()
    with pytest.raises(ConfigError, match="not empty and not a search"):
        request(tmp_path / "y")
    assert len(request(tmp_path / "x", trials=4, confirm=0)["trials"]) == 4  # more trials may follow


def test_search_on_actors_gives_the_same_table(tmp_path: Path) -> None:
    """Without Ray: two players, each lost at a tenth of its messages, play the games of all trials."""
    size = rematch.SearchRequest(objective="nash_conv", trials=2, seeds=1, confirm=1)
    tables: list[dict[str, Any]] = []
    made: list[LocalPlayers] = []
    for name, place in (("here", None), ("there", local_place(2, 0.1, made))):
        plan = search.make_plan("lattice", tmp_path / name, ["ppo.lr=1e-4..1e-1:log"],
                                lambda more: recipes.configure("lattice", flags=more, changes=LATTICE), size)
        table = search._run(replace(plan, place=place), None).to_dict()
        tables.append({key: value for key, value in table.items() if key != "search"})
    assert tables[0] == tables[1] and len(tables[0]["trials"]) == 2
    assert sum(players.lost for players in made) > 0


# --- a real search, killed ----------------------------------------------------------------------------------


def command(folder: Path) -> list[str]:
    words = [sys.executable, "-m", "rematch", "search", "lattice", "--over", "ppo.lr=1e-4..1e-1:log",
             "--objective", "nash_conv", "--trials", "4", "--seeds", "2", "--confirm", "2",
             "--name", str(folder)]
    for key, value in LATTICE.items():
        words += [f"--{key}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return words


@pytest.mark.slow
def test_killed_search_loses_no_finished_trial(tmp_path: Path) -> None:
    options: dict[str, Any] = {"env": environment(), "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    whole = subprocess.run(command(tmp_path / "whole"), cwd=ROOT, **options)
    assert whole.returncode == 0, whole.stderr
    journal = tmp_path / "cut/journal.jsonl"

    def finished() -> int:
        lines = journal.read_text().splitlines() if journal.exists() else []
        return sum(bool(json.loads(line).get("values")) for line in lines if line.endswith("}"))

    with subprocess.Popen(command(tmp_path / "cut"), cwd=ROOT, **options) as child:
        wait_until(lambda: finished() >= 2 or child.poll() is not None)
        os.kill(child.pid, signal.SIGKILL)
    before = finished()
    assert before >= 2
    again = subprocess.run(command(tmp_path / "cut"), cwd=ROOT, **options)
    assert again.returncode == 0, again.stderr
    tables = [json.loads((tmp_path / name / "search.json").read_text()) for name in ("whole", "cut")]
    for table in tables:
        del table["search"]
    assert tables[0] == tables[1] and len(tables[0]["trials"]) == 4
