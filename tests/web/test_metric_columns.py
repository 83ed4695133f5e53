"""Columns of a growing log equal those of a log that is read as a whole; no line is parsed twice."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.patience import PATIENCE

from rematch.reporting.untrusted_folder import Unreadable
from rematch.web import metric_columns, run_data
from rematch.web.metric_columns import MetricColumns
from rematch.web.run_data import RunData

NAMES = st.sampled_from(["a/loss", "b/kl", "step_time", "games"])
VALUES = st.one_of(st.none(), st.booleans(), st.text(max_size=3), st.integers(-9, 9), st.floats(-1e3, 1e3))
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=12)


def line(number: int, row: dict[str, Any]) -> bytes:
    return json.dumps({"iteration": number, "step": 8 * number} | row).encode() + b"\n"


def state(columns: MetricColumns) -> tuple[list[int], dict[str, Any]]:
    return columns.step.tolist(), columns.rows(range(len(columns.step)))


@given(ROWS, st.lists(st.integers(0, 400), max_size=6))
def test_appended_parts_equal_the_whole(
    tmp_path_factory: Any, rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    data = b"".join(line(number, row) for number, row in enumerate(rows))
    parts, path_data = MetricColumns(), b""
    for cut in sorted({min(cut, len(data)) for cut in cuts} | {len(data)}):
        with path.open("ab") as file:
            file.write(data[len(path_data) : cut])
        path_data = data[:cut]
        parts.update(path)
    whole = MetricColumns()
    whole.update(path)
    assert state(parts) == state(whole) and parts.damaged == 0
    expected = {name: [row.get(name) for row in rows] for name in ("a/loss", "b/kl", "step_time")}
    for name, values in whole.rows(range(len(rows))).items():
        numbers = [value if isinstance(value, int | float) and not isinstance(value, bool) else None
                   for value in expected[name]]  # fmt: skip
        assert values == numbers


def test_every_line_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    loads = json.loads
    monkeypatch.setattr(metric_columns.json, "loads", lambda text: parsed.append(text) or loads(text))
    path, columns = tmp_path / "metrics.jsonl", MetricColumns()
    for number in range(50):
        with path.open("ab") as file:
            file.write(line(number, {"a/loss": number}))
        columns.update(path)
    assert len(parsed) == 50 and columns.step.tolist() == [8 * number for number in range(50)]


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 8, 15, 40, 100])
@pytest.mark.parametrize("skimmed", [0, 1 << 20])
def test_long_log_becomes_few_rows_with_the_newest_in_any_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, skimmed: int
) -> None:
    monkeypatch.setattr(metric_columns, "POINTS", 8)
    monkeypatch.setattr(metric_columns, "SKIMMED", skimmed)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"")
    parts, whole = MetricColumns(), MetricColumns()
    for number in range(rows):
        with path.open("ab") as file:
            file.write(line(number, {"a/loss": number} if number % 3 else {"b/kl": -number}))
        if number % 5 != 2:
            parts.update(path)
    parts.update(path)
    whole.update(path)
    steps, columns = state(parts)
    assert state(whole) == (steps, columns) and parts.stride == whole.stride and len(steps) <= 8
    expected = sorted({*range(0, rows, parts.stride), *([rows - 1] if rows else [])})
    assert steps == [8 * number for number in expected] and (rows < 8) == (parts.stride == 1)
    for name, sign, shown in (("a/loss", 1, True), ("b/kl", -1, False)):
        numbers = [sign * number if bool(number % 3) == shown else None for number in expected]
        assert columns.get(name, [None] * len(steps)) == numbers


def test_log_of_a_resumed_run_is_read_again(tmp_path: Path) -> None:
    path, columns = tmp_path / "metrics.jsonl", MetricColumns()
    path.write_bytes(b"".join(line(number, {"a/loss": 1.0}) for number in range(40)))
    columns.update(path)
    path.write_bytes(b"".join(line(number, {"a/loss": 2.0}) for number in range(45)))
    columns.update(path)
    assert columns.rows(range(45))["a/loss"] == [2.0] * 45
    path.write_bytes(line(0, {"a/loss": 3.0}))
    columns.update(path)
    assert state(columns) == ([0], {"a/loss": [3.0]})
    path.write_bytes(b"[1]\nx\n" + line(1, {}) + b"{")
    columns.update(path)
    assert columns.damaged == 2 and columns.step.tolist() == [8]
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(Unreadable):
        columns.update(path)


def test_fifty_pages_make_a_value_once_and_look_at_the_folders_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "config.yaml").write_text("game: pursuit\n")
    monkeypatch.setattr(run_data, "LOOK", PATIENCE)
    data, made, looks = RunData(tmp_path), [], []
    (run,) = data.scan()

    def make() -> int:
        made.append(1)
        time.sleep(0.05)
        return 7

    scan = data.scan
    data.scan = lambda: looks.append(1) or scan()  # type: ignore[method-assign, func-returns-value, return-value]
    values: list[Any] = []

    def page() -> None:
        values.append((data._cached(run, "slow", ("config.yaml",), make), data.versions()))

    pages = [threading.Thread(target=page) for _ in range(50)]
    for one in pages:
        one.start()
    for one in pages:
        one.join()
    assert len(made) == 1 and len(looks) == 1 and [value for value, _ in values] == [7] * 50
