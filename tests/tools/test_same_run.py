"""same_run.py: what counts as a difference between two runs, and which differences are excused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import same_run
import same_run_compare as comparison
from same_run_baseline import Case, CheckError
from same_run_compare import Difference, KnownDifference, compare, flatten, read_exceptions

from rematch.core.errors import ConfigError
from rematch.storage import migrations
from rematch.storage.array_chunks import ArrayChunk
from rematch.storage.run_folder import Run


def tree() -> dict[str, Any]:
    return {"learner": {"weights": np.arange(6, dtype=np.float32).reshape(2, 3), "updates": 3, "rate": 0.5},
            "league": {"names": ["a", "b"], "empty": [], "none": None, "nan": math.nan, "on": True}}


def leaves(value: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    flatten(value, "checkpoint", out)
    return out


def differences(change: Any) -> list[str]:
    """How a tree differs from itself after `change`, a function that changes it in place."""
    new = tree()
    change(new)
    return [f"{each.leaf}: {each.what}" for each in compare(leaves(tree()), leaves(new))]


def test_equal_trees_have_no_difference() -> None:
    assert differences(lambda new: None) == []


def test_one_flipped_bit_is_found_and_placed() -> None:
    def flip(new: Any) -> None:
        new["learner"]["weights"].view(np.uint8)[1, 4] ^= 1  # the lowest bit of one number

    assert differences(flip) == [
        "checkpoint/learner/weights: 1 of 6 numbers, first at (1, 1): 4.0, now 4.000000476837158"]


def test_negative_zero_in_an_array_is_a_difference() -> None:
    assert differences(lambda new: new["learner"]["weights"].__setitem__((0, 0), -0.0)) == [
        "checkpoint/learner/weights: 1 of 6 numbers, first at (0, 0): 0.0, now -0.0"]


@pytest.mark.parametrize(("key", "value", "what"), [
    ("weights", np.arange(6, dtype=np.float64).reshape(2, 3), "array of float32, now array of float64"),
    ("weights", np.arange(6, dtype=np.float32), "shape (2, 3), now (6,)"),
    ("weights", [1.0], "only in the old run"),
    ("updates", 3.0, "int, now float"),
    ("updates", True, "int, now bool"),
    ("updates", np.int64(3), "int, now int64"),
    ("rate", 0.25, "0.5, now 0.25"),
    ("rate", None, "float, now NoneType"),
])  # fmt: skip
def test_type_shape_and_value_are_compared(key: str, value: Any, what: str) -> None:
    lines = differences(lambda new: new["learner"].__setitem__(key, value))
    assert lines[0] == f"checkpoint/learner/{key}: {what}"


def test_leftovers_on_either_side_are_found() -> None:
    assert differences(lambda new: new["league"].pop("nan")) == ["checkpoint/league/nan: only in the old run"]
    assert differences(lambda new: new.update(extra={})) == ["checkpoint/extra: only in the new run"]
    assert differences(lambda new: new["league"]["names"].append("c")) == [
        "checkpoint/league/names/2: only in the new run"]
    assert differences(lambda new: new["league"]["empty"].append(1)) == [
        "checkpoint/league/empty: only in the old run", "checkpoint/league/empty/0: only in the new run"]


def test_keys_that_look_like_paths_hide_nothing() -> None:
    assert len(leaves({"a/b": 1, "a": {"b": 2}})) == 2


def test_arrays_in_chunks_are_compared_and_their_file_names_are_not() -> None:
    one = ArrayChunk.from_arrays("replay-00000003", {"reward": np.ones(2)})
    two = ArrayChunk.from_arrays("replay-00000003", {"rewards": np.ones(2)})
    assert one.name != two.name
    assert set(leaves({"chunk": one})) == {"checkpoint/chunk/number", "checkpoint/chunk/arrays/reward"}
    assert [each.leaf for each in compare(leaves({"chunk": one}), leaves({"chunk": two}))] == [
        "checkpoint/chunk/arrays/reward", "checkpoint/chunk/arrays/rewards"]


def test_texts_are_compared_by_presence_only() -> None:
    leaf = "history.json/0/verdict"
    assert compare({leaf: "improving"}, {leaf: "better"}) == []
    assert compare({leaf: "improving"}, {leaf: ""}) == [Difference(leaf, "'improving', now ''")]
    assert compare({leaf: "improving"}, {}) == [Difference(leaf, "only in the old run")]
    assert len(compare({"history.json/0/role": "a"}, {"history.json/0/role": "b"})) == 1


# --- run folders --------------------------------------------------------------------------------------------


def a_run(folder: Path, weights: float = 1.0, old_names: bool = False) -> Path:
    names = ("r_way", "length_steps", "returns") if old_names else ("demo", "steps", "scores")
    with Run.create(folder, "game: pursuit\n") as run:
        run.log({"iteration": 1, f"evader/{names[0]}": 2})
        run.append_history({"iteration": 1, "levels": [{names[2]: 0.5}], "verdict": f"as {folder.name}"})
        run.table("episodes.csv", "7,early", f"{names[1]},band")
        run.save(1, {"learner": {"weights": np.full(3, weights)}}, {})
        run.write_policy("evader", {"trunk": np.full(3, weights)}, {"iteration": 1})
    return folder


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "METRIC_NAMES", {"*/r_way": "*/demo"})
    monkeypatch.setattr(migrations, "HISTORY_NAMES", {"returns": "scores"})
    monkeypatch.setattr(migrations, "COLUMN_NAMES", {"length_steps": "steps"})


def test_runs_are_compared_under_the_present_names(tmp_path: Path, renamed: None) -> None:
    old, new = (comparison.run_leaves(a_run(tmp_path / name, old_names=name == "old"))
                for name in ("old", "new"))
    assert compare(old, new) == []
    assert new["metrics.jsonl/0/evader/demo"] == 2.0 and new["history.json/0/levels/0/scores"] == 0.5
    assert new["episodes.csv/0/steps"] == 7.0 and new["episodes.csv/0/band"] == "early"


def test_runs_that_trained_otherwise_differ_in_checkpoint_and_policy(tmp_path: Path) -> None:
    old, new = (comparison.run_leaves(a_run(tmp_path / str(w), w)) for w in (1.0, 1.5))
    assert [each.leaf for each in compare(old, new)] == [
        "checkpoint/learner/weights", "policies/evader.safetensors/trunk"]


def test_file_of_unknown_format_is_compared_by_its_bytes(tmp_path: Path) -> None:
    old, new = (comparison.run_leaves(a_run(tmp_path / name)) for name in ("old", "new"))
    (tmp_path / "new" / "more.bin").write_bytes(b"\0")
    assert compare(old, comparison.run_leaves(tmp_path / "new")) == [
        Difference("more.bin", "only in the new run")]
    assert compare(old, new) == []


# --- exceptions ------------------------------------------------------------------------------------------

DIFFERENCES = [Difference("checkpoint/learner/weights", "differs"),
               Difference("metrics.jsonl/0/kl", "differs")]


def known(cases: list[str], wanted: list[str], name: str = "sums") -> KnownDifference:
    return KnownDifference(name, cases, wanted, "another order of sums", "make train")


def test_exception_covers_its_leaves_in_its_cases() -> None:
    both = known(["qui*"], ["checkpoint/*", "metrics.jsonl/*"])
    assert comparison.unexplained("quick", DIFFERENCES, [both]) == ([], ["sums"]) and both.used == {"quick"}
    assert comparison.unexplained("big", DIFFERENCES, [both]) == (DIFFERENCES, [])
    rest = comparison.unexplained("quick", DIFFERENCES, [known(["*"], ["checkpoint/*"])])
    assert rest == (DIFFERENCES[1:], ["sums"])


def test_exception_that_did_not_occur_is_named_once_all_its_cases_were_compared() -> None:
    idle, occurs = known(["quick", "big"], ["x"]), known(["*"], ["checkpoint/*"], "other")
    comparison.unexplained("quick", DIFFERENCES, [idle, occurs])
    every = ["quick", "big", "tiny"]
    assert comparison.unused([idle, occurs], every, {"quick"}) == []
    assert comparison.unused([idle, occurs], every, {"quick", "big"}) == ["sums"]
    assert comparison.unused([known(["gone"], ["x"])], every, set()) == ["sums"]  # names no case there is


def test_shipped_exceptions_and_cases_are_readable() -> None:
    exceptions = read_exceptions(same_run.CHECKS / "same_run_exceptions.yaml")
    assert all(exception.reason and exception.check for exception in exceptions)


@pytest.mark.parametrize(("text", "why"), [
    ("name: a", "expected a list"),
    ("- name: a", "expected the keys name, cases, leaves, reason, check"),
    ("- {name: a, cases: b, leaves: [c], reason: d, check: e}", "cases: expected a list of texts"),
    ("- {name: a, cases: [b], leaves: [], reason: d, check: e}", "leaves: expected a list of texts"),
    ("- {name: a, cases: [b], leaves: [c], reason: '', check: e}", "reason: expected a text"),
    ("- &x {name: a, cases: [b], leaves: [c], reason: d, check: e}\n- *x", "two exceptions are called 'a'"),
    ("- [", "cannot be read"),
])  # fmt: skip
def test_exceptions_are_refused_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "exceptions.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_exceptions(path)
    assert why in str(caught.value) and "\n" not in str(caught.value)


# --- the command -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    ["--jobs", "0"], ["--jobs", "two"], ["--onyl", "quick"], ["quick"], ["--only"],
    ["--json", "no/such/folder/file.json"],
])  # fmt: skip
def test_bad_arguments_are_refused_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert same_run.main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("same_run: ") and err.count("\n") == 1


def test_baseline_in_a_folder_with_other_things_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("")
    assert same_run.main(["--baseline", str(tmp_path)]) == 2
    assert "holds something else" in capsys.readouterr().err and list(tmp_path.iterdir()) == [
        tmp_path / "thesis.tex"]


def test_unknown_case_is_refused_with_the_known_names() -> None:
    cases = [Case(name, Path(f"{name}.yaml")) for name in ("quick", "big")]
    assert same_run.chosen(cases, ["big"]) == cases[1:] and same_run.chosen(cases, []) == cases
    with pytest.raises(CheckError, match="--only bgi: expected some of quick, big"):
        same_run.chosen(cases, ["bgi"])


def test_resumed_run_that_differs_is_reported_where_the_whole_run_has_an_exception() -> None:
    whole = same_run.Outcome("a", "exception", "known")
    resumed = same_run.Outcome("a", "differs", "resumed: x")
    assert same_run.worse(whole, resumed) is resumed
    assert same_run.worse(whole, same_run.Outcome("a", "exception", "resumed: known")) is whole
    assert same_run.worse(same_run.Outcome("a", "equal"), resumed) is resumed


def test_summary_names_the_first_leaf_and_the_first_metric() -> None:
    assert same_run.summary(DIFFERENCES) == (
        "2 leaves; first checkpoint/learner/weights: differs; in the log first metrics.jsonl/0/kl")
    assert same_run.summary(DIFFERENCES[1:]) == "1 leaves; first metrics.jsonl/0/kl: differs"


def test_report_says_each_case_and_fails_for_differences(capsys: pytest.CaptureFixture[str]) -> None:
    fine = [same_run.Outcome("quick", "equal", "", 1.0, 1.5), same_run.Outcome("kuhn", "missing", "no such"),
            same_run.Outcome("big", "exception", "sums (3 leaves)", 1.0, 1.0)]
    assert same_run.report(fine, [], 60.0) == 0
    text = capsys.readouterr().out
    assert "quick" in text and "sums (3 leaves)" in text
    assert "1 equal, 1 exception, 1 missing; 60 s" in text
    assert same_run.report(fine, ["sums"], 60.0) == 1
    assert "'sums' did not occur" in capsys.readouterr().out
    assert same_run.report([*fine, same_run.Outcome("tiny", "differs", "1 leaves")], [], 60.0) == 1
    assert same_run.report([same_run.Outcome("tiny", "failed", "exit code 2")], [], 60.0) == 1
    assert json.dumps([same_run.asdict(out) for out in fine])
