"""tools/checks/gpu_series.py: parts are measured once, and a command that is cut off loses one part."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import gpu_series
import pytest
from gpu_series import Part, Series, parts_of
from support.patience import wait_until

COMMON = {"commit": "abc", "sources": "s1", "card": "a card"}


class Counted:
    """Counts its calls; fails, or has no time, where it is asked to."""

    def __init__(self, **result: Any) -> None:
        self.calls, self.result = 0, result

    def __call__(self, *left: float) -> dict[str, Any]:
        self.calls += 1
        if "error" in self.result:
            raise SystemExit(self.result["error"])
        return dict(self.result)


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_part_is_a_record_and_is_measured_once(tmp_path: Path) -> None:
    file, first, second = tmp_path / "gpu.jsonl", Counted(value=1), Counted(value=2)
    parts = [*parts_of("speed", {"small": first, "large": second}), *parts_of("same", first)]
    assert Series(COMMON, file).run(parts) == 0
    assert [(r["check"], r.get("part"), r["value"]) for r in records(file)] == [
        ("speed", "small", 1), ("speed", "large", 2), ("same", None, 1)]  # fmt: skip
    assert all(record["sources"] == "s1" and record["check_seconds"] >= 0 for record in records(file))
    assert Series(COMMON, file).run(parts) == 0 and (first.calls, second.calls) == (2, 1)
    assert Series(COMMON, tmp_path / "other.jsonl", [file]).run(parts) == 0 and first.calls == 2
    Series(COMMON | {"sources": "s2"}, file).run(parts[:1])  # changed sources are measured
    Series(COMMON, file, again=True).run(parts[:1])
    assert first.calls == 4 and len(records(file)) == 5


def test_an_error_is_a_record_and_the_next_parts_are_measured(tmp_path: Path) -> None:
    file, good = tmp_path / "gpu.jsonl", Counted()
    parts = [Part("kills", "1", Counted(error="run-1 differs in history.json")), Part("kills", "2", good)]
    assert Series(COMMON, file).run(parts) == 1
    assert records(file)[0]["failed"] == "run-1 differs in history.json" and "failed" not in records(file)[1]
    assert Series(COMMON, file).run(parts) == 1 and good.calls == 1  # what failed is measured again


def test_a_part_begins_only_where_its_last_time_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, long, short = tmp_path / "gpu.jsonl", Counted(), Counted()
    gpu_series.append(file, {"check": "band", "sources": "s0", "card": "a card", "check_seconds": 100.0})
    gpu_series.append(file, {"check": "train", "sources": "s0", "card": "a card", "check_seconds": 10.0})
    parts = [Part("band", "", long), Part("train", "", short)]
    assert Series(COMMON, file, seconds=50.0).run(parts) == 0
    assert (long.calls, short.calls) == (0, 1)
    assert "left for the next command: band\n" in capsys.readouterr().out
    Series(COMMON, file, seconds=101.0).run(parts)
    assert (long.calls, short.calls) == (1, 1)


def test_a_part_that_continues_is_called_until_it_is_complete(tmp_path: Path) -> None:
    file, part = tmp_path / "gpu.jsonl", Counted(complete=False)
    parts = [Part("documents", "", part, continues=True)]
    for _ in range(2):
        assert Series(COMMON, file, seconds=500.0).run(parts) == 0
    part.result = {"complete": True}
    for _ in range(2):
        Series(COMMON, file, seconds=500.0).run(parts)
    assert part.calls == 3


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "gpu.jsonl"
    file.write_text('{"check": "world"}\n{"check": "sp')
    gpu_series.append(file, {"check": "same"})
    assert [record["check"] for record in gpu_series.records([file])] == ["world", "same"]


def test_evaluations_are_timed(tmp_path: Path) -> None:
    with gpu_series.EvaluationTimes(tmp_path) as times:
        for count in (0, 1, 3):
            (tmp_path / ".new").write_text(json.dumps([{}] * count))
            (tmp_path / ".new").replace(tmp_path / "history.json")
            wait_until(lambda count=count: len(times.seconds) == count)  # type: ignore[misc]
            time.sleep(0.01)
    first, second, third = times.seconds
    assert 0.01 < first < second == third
    assert times.until([False, True, True]) == second and times.until([True] * 3) == first
    assert times.until([True, True, False]) is None and times.until([]) is None
