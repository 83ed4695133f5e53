"""Reproductions: the page is generated from the lines, criteria, and options with sensor observations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import reproductions

from rematch import api
from rematch.core import config as settings
from rematch.curriculum.levels import Levels
from rematch.rehearsal.shrink import shrink
from rematch.rehearsal.trial import play
from rematch.selfplay.league import League
from rematch.stability.rollback import Rollback


def line(points: list[tuple[int, float]], levels: list[int] | None = None) -> dict[str, Any]:
    """A run with these (step, capture rate) evaluations."""
    rows = []
    for i, (step, rate) in enumerate(points):
        gap = abs(2 * rate - 1)
        level = levels[i] if levels else None
        rows.append([f"S{i + 1}", "pursuer", step, rate, 1 - rate, gap, max(0, gap - 0.05), gap + 0.05, 0,
                     level, 1000])  # fmt: skip
    return {"recipe": "ra1", "seed": 0, "steps": points[-1][0], "rows": rows, "rollbacks": 0, "climbs": [],
            "verdict": "steady: nothing", "complete": True, "finite": True}  # fmt: skip


def first_words(result: dict[str, str]) -> dict[str, str]:
    return {name: text.split()[0] for name, text in result.items()}


def test_a_balanced_run_meets_every_criterion() -> None:
    steady = [(k * 100_000, 0.5 + 0.02 * (k % 2)) for k in range(1, 21)]
    assert first_words(reproductions.criteria(line(steady))) == {
        "gap < 0.30, 1M to 2M": "met", "gap > 0.80 for 500K": "no", "swing < 0.30": "met",
        "swing > 0.70": "no", "no crash, no NaN": "met", "ours: bound < 0.30": "met",
        "ours: SR_P within 0.15": "met"}  # fmt: skip


def test_a_collapse_and_swings_are_called_so() -> None:
    lost = [(k * 100_000, 0.05) for k in range(1, 21)]
    result = reproductions.criteria(line(lost))
    assert first_words(result)["gap < 0.30, 1M to 2M"] == "missed"
    assert first_words(result)["gap > 0.80 for 500K"] == "FAILED"
    assert "longest 1900K" in result["gap > 0.80 for 500K"]
    wild = [(k * 100_000, 0.1 if k % 2 else 0.9) for k in range(1, 21)]
    result = reproductions.criteria(line(wild))
    assert first_words(result)["swing > 0.70"] == "FAILED" and first_words(result)["swing < 0.30"] == "missed"
    assert first_words(result)["gap > 0.80 for 500K"] == "no"  # 0.80, not above it


def test_nothing_is_claimed_that_was_not_seen() -> None:
    """An unfinished run, a run with a NaN, and a run without evaluations between 1M and 2M."""
    steady = line([(k * 100_000, 0.5) for k in range(1, 9)])
    result = reproductions.criteria(steady | {"complete": False})
    assert result["no crash, no NaN"] == "unfinished at step 800,000"
    assert result["gap < 0.30, 1M to 2M"] == result["ours: bound < 0.30"] == reproductions.NOT_EVALUATED
    assert reproductions.criteria(steady | {"finite": False})["no crash, no NaN"].startswith("FAILED")
    # the rollout that 2M falls into
    ends = reproductions.criteria(line([(1_200_000, 0.5), (2_000_896, 0.1)]))
    assert first_words(ends)["gap < 0.30, 1M to 2M"] == "missed"


def test_seed_table_has_the_columns_of_the_earlier_project() -> None:
    one = line([(500_000, 0.94), (700_000, 0.5)]) | {"recipe": "seed_sensitivity", "rollbacks": 5}
    for number, phase in enumerate(("S0", "S1")):
        one["rows"][number][0] = phase
    shown = reproductions.seed_table([one])
    assert shown[0] == "| seed | cold-start escape | S1 capture | S1 escape | NE gap | rollbacks |"
    assert shown[2] == "| 0 | 0.060 | 0.500 | 0.500 | 0.000 [0.000, 0.050] | 5 |"


def test_levels_count_until_two_million_steps() -> None:
    points = [(k * 500_000, 0.5) for k in range(1, 9)]
    late = reproductions.criteria(line(points, [0, 0, 0, 0, 1, 1, 2, 2]))
    assert late["at least one level by 2M"] == "missed (level 1)"
    early = reproductions.criteria(line(points, [0, 0, 1, 1, 1, 1, 2, 2]))
    assert early["at least one level by 2M"] == "met (level 2)"
    name = "ours: earlier levels keep 95 %"
    climbed = line(points, [0, 0, 1, 1, 1, 1, 2, 2])
    assert reproductions.criteria(climbed)[name] == reproductions.NOT_EVALUATED
    kept = climbed | {"kept": [[0, 0.8, 0.9], [1, 0.5, 0.48]]}
    assert reproductions.criteria(kept)[name] == "met (of 2 the worst keeps 96%)"
    lost = climbed | {"kept": [[0, 0.8, 0.9], [1, 0.5, 0.4]]}
    assert reproductions.criteria(lost)[name] == "missed (of 2 the worst keeps 80%)"


def test_the_page_is_that_of_the_lines() -> None:
    assert reproductions.PAGE.read_text() == reproductions.page(), (
        "run tools/experiments/reproductions.py publish"
    )


def test_each_reported_failure_names_an_existing_test() -> None:
    table = reproductions.PAGE.read_text().partition("## Reported failures")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    rows = [row for row in rows if not row.startswith("| ---")]
    assert len(rows) == 10, "as many as the earlier project reports"
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row)
        assert named and row.count("::") == len(named), row
        for file, test in named:
            assert f"def {test}(" in (Path(__file__).parents[1] / file).read_text(), f"{file} has no {test}"


def test_a_finished_run_is_gathered(tmp_path: Path) -> None:
    config = shrink(api.configure("z1", changes={"network.hidden": (16,)}))
    trainer = play(config, tmp_path / "run").trainer
    rollback, levels = trainer.setup.get(Rollback), trainer.setup.get(Levels)
    assert rollback is not None and levels is not None
    result = reproductions.gather("z1", tmp_path / "run")
    assert result["seed"] == 47 and result["steps"] == trainer.clock.step
    assert len(result["rows"][0]) == len(reproductions.COLUMNS) and result["rows"][0][0] == "S0"
    assert result["finite"] and not result["complete"]  # it has no pictures yet
    assert result["climbs"] and result["rollbacks"] == rollback.guard.count
    # every level below was played again at the end
    assert [level for level, _, _ in result["kept"]] == list(range(levels.progress.level))
    shown = "\n".join(reproductions.tables([result]))
    assert "### z1: 1 seeds (47)" in shown and "| S1 | pursuer |" in shown and "not to the end" in shown


@pytest.mark.parametrize("encoder", ["mlp", "lstm", "bimdn"])
def test_every_option_with_sensors(encoder: str, tmp_path: Path) -> None:
    """EWC, RND, rollback, curriculum, pool and critic with dictionary observations, and every encoder."""
    changes = {
        "network.hidden": (16,), "network.encoder": encoder, "network.critic": "centralized",
        "league.opponent_share": 0.5, "evaluation.opponents": ("random",),
    }  # fmt: skip
    if encoder != "mlp":
        changes["network.encoder_hidden"] = 8
    small = shrink(settings.replace(api.configure("z2"), changes))
    config = settings.replace(small, {"ewc.fisher_samples": 8})
    seen = play(config, tmp_path / "run")
    assert max(row.get("evader/ewc_penalty", 0.0) for row in seen.rows) > 0
    assert max(row.get("evader/rnd_intrinsic", 0.0) for row in seen.rows) > 0
    rollback, league = seen.trainer.setup.get(Rollback), seen.trainer.setup.get(League)
    assert rollback is not None and rollback.guard.count > 0
    assert league is not None and sum(pool.seen for pool in league.matchmaker.pools.values()) > 0
    assert any(row.get("moved", 0) > 0 for row in seen.evaluations)
