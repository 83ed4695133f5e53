"""Ablations: rows differ only by their settings, survival curves, and tables that show all runs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import ablations
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch import api
from rematch.core import config as settings


def test_rows_differ_only_by_what_their_name_says() -> None:
    for name, study in ablations.STUDIES.items():
        configs = {
            row: api.configure(study.recipe, changes=ablations.settings(name, row, 3)) for row in study.rows
        }
        assert len({settings.to_yaml(config) for config in configs.values()}) == len(configs)
        assert all(config.seed == 3 for config in configs.values())
    parts = ablations.STUDIES["parts"]
    whole = ablations.settings("parts", "everything", 0)
    for part in ablations.PARTS:
        other = ablations.settings("parts", f"without {part}", 0)
        assert other == whole | ablations.PARTS[part]
        assert len({settings.to_yaml(api.configure(parts.recipe, changes=c)) for c in (whole, other)}) == 2


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=12))
def test_survival_is_the_product_over_those_at_risk(times: list[tuple[int, bool]]) -> None:
    curve = dict(ablations.survival(times))
    for now in range(1, 21):
        surviving = 1.0
        for then in range(1, now + 1):
            risk = [at for at, _ in times if at >= then]
            reached = [at for at, got in times if got and at == then]
            surviving *= 1 - len(reached) / len(risk) if risk else 1
        assert ablations.share_at(list(curve.items()), now) == pytest.approx(surviving)
    at, half = ablations.median(times)
    assert half == (min(curve.values()) <= 0.5) and (not half or curve[at] <= 0.5)
    if all(got for _, got in times):
        ordered = sorted(at for at, _ in times)
        assert ablations.median(times) == (ordered[(len(ordered) - 1) // 2], True)


def line(row: str, seed: int, last: int | None, steps: int, scouted: int) -> dict[str, Any]:
    return {"study": "swarm", "row": row, "seed": seed, "steps": steps, "scouted": scouted,
            "milestones": {"TOWN": [1000, 0, 1000], "END": [last, scouted if last else 0, None]},
            "evaluations": []}  # fmt: skip


def test_a_run_that_ended_without_is_shown_as_such() -> None:
    lines = [
        line("swarm", 0, 200_000, 600_000, 100_000),
        line("swarm", 1, 300_000, 600_000, 100_000),
        line("no swarm", 0, None, 4_000_000, 0),
        line("no swarm", 1, None, 4_000_000, 0),
    ]
    text = "\n".join(ablations.swarm_table(lines))
    assert "| END | 0.30 M, 0.40 M | > 4.00 M, > 4.00 M |" in text
    assert "0.30 M with savestates, > 4.00 M with no savestates: more than 13.3 times" in text
    png = ablations.picture(lines)
    assert png.startswith(b"\x89PNG") and png == ablations.picture(lines)


def test_what_is_gathered_of_a_run(tmp_path: Path) -> None:
    import json

    from support import savestate_runs

    config = savestate_runs.config(games=4, total_steps=4 * 20 * 3)
    savestate_runs.go_on(tmp_path / "run", config, astray=0.0)
    line = ablations.gather("swarm", "swarm", 0, tmp_path / "run")
    milestones = json.loads((tmp_path / "run" / "milestones.json").read_text())["milestones"]
    assert [at[0] for at in line["milestones"].values()] == [at["frontier"] for at in milestones.values()]
    assert line["steps"] == 240 and line["scouted"] == 0
    reached = [ablations.time_reached(line, name) for name in milestones if milestones[name]["frontier"]]
    assert reached and all(got and 0 < at <= 240 for at, got in reached)
    assert ablations.time_reached(line, "HALL-OF-FAME") == (240, False)
    _, games, rate, _, high, rates = line["evaluations"][-1]
    assert games == 1 and rate == 0 < high and np.isfinite(list(rates.values())).all()


def test_stopped_run_is_stored_only_with_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    code = 0

    def start(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(ablations.subprocess, "run", start)
    monkeypatch.setattr(ablations, "status", lambda folder: {"state": "stopped"})
    task = ablations.cell_task("swarm", "no swarm", 1, tmp_path, {})
    assert not ablations.train_cell(task, "")
    assert ablations.train_cell(task, "20")
    assert "--max-minutes" not in commands[0] and commands[1][-2:] == ["--max-minutes", "20"]
    code = 2  # failed: no measurement
    assert not ablations.train_cell(task, "20")


def test_the_published_tables_are_those_of_the_lines() -> None:
    assert ablations.PAGE.read_text() == ablations.page(), "run tools/experiments/ablations.py publish"
    cells = [(line["study"], line["row"], line["seed"]) for line in ablations.load_lines()]
    assert len(set(cells)) == len(cells) and all(
        row in ablations.STUDIES[study].rows for study, row, _ in cells
    )


def test_median_that_no_run_reached_has_a_lower_bound() -> None:
    assert ablations.median([(1, False), (1, False), (10, False)]) == (1, False)
    assert ablations.median([(154, False), (266, False), (267, False)]) == (266, False)
    assert ablations.median([(3, True), (5, True), (9, False)]) == (5, True)
