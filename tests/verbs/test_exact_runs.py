"""Forks and rewinds: any iteration of a run can be reached again, to the bit; other bits are refused."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.commands import Runner, files, refused, succeed
from support.tiny_run import SMALL

import rematch
from rematch import api
from rematch.core.errors import ConfigError
from rematch.reporting import run_summary
from rematch.storage import lineage
from rematch.storage.run_folder import Run
from rematch.verbs.exact_runs import fork as forks
from rematch.verbs.exact_runs.rerun import OtherBits, StoredRun
from rematch.web.run_data import RunData

__all__ = ["refused", "succeed"]
pytestmark = pytest.mark.usefixtures("blank_pictures")

ITERATIONS = 10
RUN = SMALL | {"total_steps": ITERATIONS * 32, "save_every": 2, "evaluation.every": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of ten iterations in runs/a; checkpoints of 6, 8 and 10 are stored."""
    folder = tmp_path_factory.mktemp("exact")
    rematch.train("quick", RUN, folder=folder / "runs" / "a")
    return folder


@pytest.fixture
def workdir(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state(run: Path, iteration: int = ITERATIONS) -> dict[str, bytes]:
    folder = run / "checkpoints" / f"iter_{iteration:08d}"
    return {name: (folder / name).read_bytes() for name in ("state.json", "state.safetensors")}


# --- fork ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iteration", [0, 1, 5, 6, 9])
def test_fork_without_changes_ends_with_the_bits_of_its_run(workdir: Path, iteration: int) -> None:
    before = files(workdir / "runs/a")
    rematch.fork(f"a@{iteration}", folder="runs/b")
    assert state(workdir / "runs/b") == state(workdir / "runs/a")
    for name in ("metrics.jsonl", "history.json"):
        assert (workdir / "runs/b" / name).read_bytes() == (workdir / "runs/a" / name).read_bytes()
    assert files(workdir / "runs/a") == before
    source = lineage.read(workdir / "runs/b")
    assert source is not None and (source.source, source.iteration, source.changes) == ("a", iteration, ())


def test_fork_keeps_the_past_and_changes_the_future(workdir: Path, succeed: Runner) -> None:
    succeed("fork", "a@5", "--ppo.lr", "0.1", "--name", "b")
    old, new = ((workdir / "runs" / run / "metrics.jsonl").read_text().splitlines() for run in "ab")
    assert old[:5] == new[:5] and len(new) == ITERATIONS
    assert all(one != two for one, two in zip(old[5:], new[5:]))
    assert (workdir / "runs/b/checkpoints/iter_00000005").is_dir()  # the origin is never deleted
    assert [path.name for path in (workdir / "runs").iterdir() if path.name.startswith(".")] == []


def test_killed_fork_resumes_to_the_same_bits(workdir: Path) -> None:
    rematch.fork("a@5", {"ppo.lr": 0.1}, folder="runs/b")
    rematch.fork("a@5", {"ppo.lr": 0.1}, folder="runs/c", minutes=0)
    rematch.resume("runs/c")
    assert files(workdir / "runs/b") == files(workdir / "runs/c")


def test_lineage_of_a_fork_of_a_fork_is_shown_everywhere(workdir: Path) -> None:
    rematch.fork("a@6", {"ppo.lr": 0.1}, folder="runs/b")
    rematch.fork("b@8", {"seed": 7, "total_steps": 400}, folder="runs/c")
    expected = ["forked from b at iteration 8 (step 256): seed 7 instead of 0, "
                "total_steps 400 instead of 320",
                "forked from a at iteration 6 (step 192): ppo.lr 0.1 instead of 0.002"]
    assert rematch.status("c")["lineage"] == expected
    assert f"lineage: {expected[0]}" in repr(rematch.status("c"))
    assert run_summary.facts(workdir / "runs/c")["lineage"] == expected
    page = (workdir / "runs/c/report.html").read_text()
    assert all(f"was {sentence}" in page for sentence in expected)
    data = RunData(workdir / "runs")
    entries = {entry["name"]: data.run(entry["id"])["lineage"] for entry in data.list()["runs"]}
    assert entries == {"a": [], "b": expected[1:], "c": expected}
    with pytest.raises(ConfigError, match="no checkpoint at or before iteration 3 is stored; expected 6"):
        rematch.fork("b@3")


def test_fork_switches_a_component_on(workdir: Path) -> None:
    rematch.fork("a@6", {"rnd.weight": 0.1}, folder="runs/b")
    with_rnd = [any("rnd" in key for key in row) for row in logged(workdir / "runs/b")]
    assert with_rnd == [False] * 6 + [True] * 4


@pytest.mark.parametrize(("words", "message"), [
    (("fork",), "expected rematch fork RUN@ITERATION"),
    (("fork", "nobody@3"), "no such run"),
    (("fork", "a@11"), "iteration 11; expected at most 10"),
    (("fork", "a@x"), "expected an iteration such as 120, or steps such as 2.5M"),
    (("fork", "a@4", "--games", "9"), "games cannot change in a fork"),
    (("fork", "a@4", "--ppo.lrr", "9"), "unknown setting --ppo.lrr"),
    (("fork", "a@4", "--total_steps", "64"), "the fork starts after 128 steps; expected more"),
    (("fork", "a@6", "--network.hidden", "16"), "not a checkpoint of this run"),
    (("fork", "a@6", "--name", "a"), "holds a run already"),
    (("rewind", "a", "--from", "1", "--to", "3"), "rematch rewind RUN needs --log"),
    (("rewind", "a", "--from", "1", "--to", "3", "--log", "dreams"), "expected one or more of metrics"),
    (("rewind", "a", "--from", "3", "--to", "3", "--log", "films"), "expected an earlier and a later"),
    (("rewind", "a", "--from", "1", "--to", "30", "--log", "films"), "--to = '30': iteration 30"),
    (("rewind", "a", "--from", "1", "--to", "3", "--log", "films", "--out", "runs"), "a new folder"),
])
def test_wrong_requests_are_one_line_and_leave_nothing(
        workdir: Path, refused: Runner, words: tuple[str, ...], message: str) -> None:
    before = files(workdir)
    assert message in refused(*words)
    assert files(workdir) == before


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "fork"}', '{"kind": 3, "source": "", "config": ""}'])
def test_damaged_lineage_is_one_line(workdir: Path, text: str) -> None:
    (workdir / "runs/a/lineage.json").write_text(text)
    with pytest.raises(ConfigError, match=r"lineage\.json is damaged"):
        lineage.read(workdir / "runs/a")
    assert any("lineage.json" in problem for problem in rematch.status("a")["problems"])


def test_run_from_policies_has_a_lineage_and_no_beginning(workdir: Path) -> None:
    config = api.configure("quick", changes=RUN | {"seed": 3})
    api.train_from("runs/a", config, "runs/b")
    assert rematch.status("b")["lineage"] == ["started from the weights of a"]
    with pytest.raises(ConfigError, match="started from the weights of a, and no checkpoint at or before"):
        rematch.rewind("b", 1, 2, ["metrics"])


@pytest.mark.parametrize(("text", "iteration"), [("0", 0), ("10", 10), ("0.1k", 3), ("0.0001M", 3)])
def test_moments_are_iterations_or_steps(place: Path, text: str, iteration: int) -> None:
    assert StoredRun.read(place / "runs/a").iteration_of(text, "--from") == iteration


# --- rewind -------------------------------------------------------------------------------------------------


def test_rewind_records_what_was_not_logged(workdir: Path, succeed: Runner) -> None:
    before = files(workdir / "runs/a")
    out = succeed("rewind", "a", "--from", "2", "--to", "5", "--log", "metrics,episodes,policies,films")
    assert "iterations 3 to 5 trained again" in out and "rows of metrics.jsonl 6" in out  # to checkpoint 6
    assert "checkpoints 1" in out
    assert files(workdir / "runs/a") == before
    folder = workdir / "runs/a-rewind-2-5"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [3, 4, 5]
    assert all(row["pursuer/weight_change"] > 0 for row in rows)
    games = {row["iteration"]: row["games"] for row in logged(workdir / "runs/a")}
    with (folder / "episodes.csv").open() as stream:
        episodes = list(csv.DictReader(stream))
    for iteration in (3, 4, 5):  # every game that ended, as the run itself counted them
        count = sum(int(row["iteration"]) == iteration for row in episodes)
        assert count == games[iteration] - games[iteration - 1]
    for iteration in (3, 4, 5):
        past, _ = Run.read_policy(workdir / f"runs/a/past/{iteration:08d}.safetensors")
        for role in ("pursuer", "evader"):
            arrays, _ = Run.read_policy(folder / f"policies/{role}-{iteration:08d}.safetensors")
            assert all((past[f"{role}/{name}"] == array).all() for name, array in arrays.items())
    assert len(list((folder / "films").glob("*.gif"))) == len(list((folder / "films").glob("*.replay"))) == 3


def logged(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_rewind_refuses_other_bits_and_records_nothing(workdir: Path, refused: Runner) -> None:
    file = workdir / "runs/a/metrics.jsonl"
    lines = file.read_text().splitlines()
    row = json.loads(lines[3])
    lines[3] = lines[3].replace(json.dumps(row["evader/entropy"]), json.dumps(row["evader/entropy"] + 1e-9))
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(OtherBits, match=r"iteration 4 came out with other bits than metrics\.jsonl holds"):
        rematch.rewind("a", 0, 5, ["films"])
    assert [path.name for path in (workdir / "runs").iterdir()] == ["a"]
    assert rematch.rewind("a", 0, 3, ["metrics"]).compared.startswith("started at iteration 0; equal")


def test_rewind_refuses_a_state_that_differs_from_the_next_checkpoint(workdir: Path) -> None:
    """A checkpoint of the same run with one other weight, which verifies."""
    with Run.open(workdir / "runs/a", write=True) as run:
        saved = run.load(until=6)
        assert saved is not None
        run.rewind(run.load())
        weights = saved.parts["learners"]["evader"]["weights"]
        weights[0] += 1e-3
        run.save(6, saved.parts, saved.fingerprint)
    with pytest.raises(OtherBits, match="state at iteration 6 came out with other bits than iter_00000006"):
        rematch.rewind("a", 0, 5, ["metrics"])


@pytest.mark.parametrize("changes", [{"lag": 1}, {"schedule.kind": "alternating"}])
def test_other_runs_are_exact_too(tmp_path: Path, changes: dict[str, Any]) -> None:
    rematch.train("quick", RUN | changes, folder=tmp_path / "a")
    result = rematch.rewind(tmp_path / "a", 1, 7, ["episodes"])
    assert "rows of metrics.jsonl 8" in result.compared and "checkpoints 2" in result.compared
    rematch.fork(f"{tmp_path / 'a'}@7", folder=tmp_path / "b")
    assert state(tmp_path / "a") == state(tmp_path / "b")


def test_interrupted_fork_leaves_no_folder(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(forks, "change_settings", stop)
    with pytest.raises(KeyboardInterrupt):
        rematch.fork("a@5")
    assert [path.name for path in (workdir / "runs").iterdir()] == ["a"]
