"""Reproductions: the page is generated from the lines, criteria, and options with sensor observations."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import reproductions

from rematch import api
from rematch.core import config as settings
from rematch.core.errors import ConfigError
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
        "gap < 0.30 from 1M on": "met", "gap > 0.80 for 500K": "no", "swing < 0.30": "met",
        "swing > 0.70": "no", "no crash, no NaN": "met", "ours: bound < 0.30 from 1M on": "met",
        "ours: SR_P within 0.15 from 1M on": "met"}  # fmt: skip


def test_a_collapse_and_swings_are_called_so() -> None:
    lost = [(k * 100_000, 0.05) for k in range(1, 21)]
    result = reproductions.criteria(line(lost))
    assert first_words(result)["gap < 0.30 from 1M on"] == "missed"
    assert first_words(result)["gap > 0.80 for 500K"] == "FAILED"
    assert "longest 1900K" in result["gap > 0.80 for 500K"]
    wild = [(k * 100_000, 0.1 if k % 2 else 0.9) for k in range(1, 21)]
    result = reproductions.criteria(line(wild))
    assert first_words(result)["swing > 0.70"] == "FAILED" and first_words(result)["swing < 0.30"] == "missed"
    assert first_words(result)["gap > 0.80 for 500K"] == "no"  # 0.80, not above it


def test_criteria_cover_the_whole_run_and_the_table_says_so() -> None:
    """A collapse and a swing after two million steps count too."""
    late = [(k * 100_000, 0.5 if k < 60 else 0.02) for k in range(1, 101)]
    result = first_words(reproductions.criteria(line(late)))
    assert result["gap > 0.80 for 500K"] == "FAILED" and result["swing < 0.30"] == "missed"
    assert result["gap < 0.30 from 1M on"] == "missed"
    assert reproductions.criteria_table([line(late)])[0] == (
        "Criteria over the whole run after its warm-up: evaluations from step 100,000 to step 10,000,000.")


def test_nothing_is_claimed_that_was_not_seen() -> None:
    """An unfinished run, a run with a NaN, a run without evaluations from 1M on, one with one or none."""
    steady = line([(k * 100_000, 0.5) for k in range(1, 9)])
    result = reproductions.criteria(steady | {"complete": False})
    assert result["no crash, no NaN"] == "unfinished at step 800,000"
    assert result["gap < 0.30 from 1M on"] == reproductions.NOT_EVALUATED
    assert result["ours: bound < 0.30 from 1M on"] == reproductions.NOT_EVALUATED
    assert reproductions.criteria(steady | {"finite": False})["no crash, no NaN"].startswith("FAILED")
    single = reproductions.criteria(line([(1_200_000, 0.5)]))
    assert single["swing < 0.30"] == single["swing > 0.70"] == reproductions.NOT_EVALUATED
    empty = steady | {"rows": [], "steps": 0, "complete": False, "recipe": "z2"}
    assert "### z2: 1 seed (0), 0 steps; not to the end: seed 0 at 0" in reproductions.tables([empty])


def seed_study_line(recipe: str, seed: int) -> dict[str, Any]:
    one = line([(500_000, 0.94), (700_000, 0.5)]) | {"recipe": recipe, "seed": seed, "rollbacks": 5}
    for number, phase in enumerate(("S0", "S1")):
        one["rows"][number][0] = phase
    return one


def test_seed_study_is_a_table_of_its_own() -> None:
    """The columns of the earlier project; runs w and y, which share its settings, are its last rows."""
    lines = [seed_study_line(*run) for run in (("w", 47), ("seed_sensitivity", 2), ("seed_sensitivity", 1))]
    lines[1]["rows"].pop()  # stopped before the end of S1
    shown = reproductions.tables(lines)
    at = shown.index("| seed | cold-start escape | S1 capture | S1 escape | NE gap | rollbacks |")
    assert shown[at + 2 : at + 7] == [
        "| 1 | 0.060 | 0.500 | 0.500 | 0.000 [0.000, 0.050] | 5 |", "| 2 | 0.060 | – | – | – | 5 |",
        "| 47 (run w) | 0.060 | 0.500 | 0.500 | 0.000 [0.000, 0.050] | 5 |", "",
        "n = 1000 games an entry; rollbacks of the whole run."]
    study = shown[next(i for i, text in enumerate(shown) if text.startswith("### seed_sensitivity")) :]
    assert "2 seeds (1, 2)" in study[0] and not any("criterion" in text for text in study)
    assert any(text.startswith("### w with fewer steps than its 6,200,000: 1 seed (47)") for text in shown)


def test_shortened_runs_are_named_and_missing_seeds_counted() -> None:
    """A run with fewer steps than its recipe is never shown as the whole run."""
    whole = line([(6_200_000, 0.5)]) | {"recipe": "x", "total_steps": 6_200_000}
    part = line([(2_000_896, 0.5)]) | {"recipe": "x", "seed": 1, "total_steps": 2_000_000}
    old = line([(2_000_896, 0.5)]) | {"recipe": "v"}
    stopped = line([(3_000_000, 0.5)]) | {"recipe": "h", "total_steps": 6_200_000, "complete": False}
    study = seed_study_line("seed_sensitivity", 1) | {"total_steps": 6_200_000}
    shown = reproductions.tables([whole, part, old, stopped, study])
    assert "| x | 6,200,000 | 0 | 1 (2.0 M) | 2 |" in shown
    assert "| v | 6,200,000 | – | 0 (2.0 M) | 3 |" in shown
    assert "| h | 6,200,000 | – | 0 (3.0 M) | 3 |" in shown
    assert "| w | 6,200,000 | – | – | 3 |" in shown
    assert "| seed_sensitivity | 1,700,000 (three phases) | 1 | – | 2 |" in shown
    headings = [text for text in shown if text.startswith("### ")]
    assert headings[0] == "### v with fewer steps than its 6,200,000: 1 seed (0), 2,000,896 steps"
    assert headings[1].startswith("### x with fewer steps than its 6,200,000: 2 seeds (0, 1)")
    assert headings[2] == "### h: 1 seed (0), 3,000,000 steps; not to the end: seed 0 at 3,000,000"


def test_levels_count_until_two_million_steps() -> None:
    points = [(k * 500_000, 0.5) for k in range(1, 9)]
    late = reproductions.criteria(line(points, [0, 0, 0, 0, 1, 1, 2, 2]))
    assert late["at least one level by 2M"] == "missed (level 1; highest of the run 3)"
    early = reproductions.criteria(line(points, [0, 0, 1, 1, 1, 1, 2, 2]))
    assert early["at least one level by 2M"] == "met (level 2; highest of the run 3)"
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
    assert result["finite"] and result["complete"], "it has no pictures yet, which are not needed"
    assert result["climbs"] and result["rollbacks"] == rollback.guard.count
    # every level below was played again at the end
    assert [level for level, _, _ in result["kept"]] == list(range(levels.progress.level))
    shown = "\n".join(reproductions.tables([result]))
    assert "### z1 with fewer steps than its 6,200,000: 1 seed (47)" in shown
    assert "| S1 | pursuer |" in shown and "not to the end" not in shown


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["reproductions.py", *words])
    return reproductions.main()


def small_run(recipe: str, folder: Path) -> Path:
    small = shrink(api.configure(recipe, changes={"network.hidden": (8,)}))
    quick = {"evaluation.games": 2, "evaluation.opponents": ("random",), "past_policies.count": 0}
    play(settings.replace(small, quick), folder)
    return folder


def test_every_name_is_gathered_and_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small runs under all names: in folders of `rematch train`, of a sweep, and of the original commands."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{reproductions.BEGIN}\nold\n{reproductions.END}\nafter\n")
    monkeypatch.setattr(reproductions, "PAGE", page)
    monkeypatch.setattr(reproductions, "RESULTS", tmp_path / "lines.jsonl")
    made = {name: small_run(name, tmp_path / "made" / name) for name in ("ra2", "h")}  # micro and long phases
    folders = []
    for i, name in enumerate(reproductions.NAMES):
        folder = tmp_path / (f"{name}-1", f"{name}-sweep/seed-47", f"results/run_{i}")[i % 3]
        shutil.copytree(made["ra2" if name in reproductions.MANY_EVALUATIONS else "h"], folder)
        folders.append(f"{name}={folder}" if i % 3 == 2 else str(folder))
    assert command(monkeypatch, "gather", *folders[:5]) == 0
    assert command(monkeypatch, "gather", *folders[4:]) == 0  # the others stay, the fifth is replaced
    assert sorted(line["recipe"] for line in reproductions.load_lines()) == sorted(reproductions.NAMES)
    assert command(monkeypatch, "publish") == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "\nold\n" not in text
    headings = re.findall(r"^### (\w+)", text, re.M)
    assert headings == list(reproductions.NAMES)
    assert text.count("| criterion |") == len(headings) - 1
    assert text.count("| seed | cold-start escape |") == 1


def test_a_line_with_more_steps_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has just begun replaces no longer one; a longer one of the same seed does."""
    results, steps = tmp_path / "lines.jsonl", {"a": 500, "b": 200, "c": 900}
    monkeypatch.setattr(reproductions, "gather", lambda name, folder: {
        "recipe": name, "seed": 0, "steps": steps[folder.name], "rows": []})  # fmt: skip
    for name in "abc":
        reproductions.add([("w", Path(name))], results)
        assert [line["steps"] for line in reproductions.load_lines(results)] == [max(500, steps[name])]


def test_metrics_that_are_being_written_are_read_to_the_last_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert reproductions._finite(file)
    file.write_text('{"loss": 1.0}\n{"lo')
    assert reproductions._finite(file)
    file.write_text('{"loss": NaN}\n{"lo')
    assert not reproductions._finite(file)


def test_unknown_names_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"'q' is no recipe .* one of ra1, ra2, v, w, x, y, z1, z2, h, i, "):
        command(monkeypatch, "gather", f"q={tmp_path}")


@pytest.mark.slow
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
