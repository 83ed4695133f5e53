"""Criteria of balance: met, missed and not claimed; the page is generated from the lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import balance_criteria
import game_value
import pytest
from support.trainers import start_run

from rematch import api
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.evaluation.evaluation import Evaluation
from rematch.evaluation.statistics import Mean
from rematch.rehearsal.shrink import shrink
from rematch.rehearsal.trial import play

GAP = "gap's upper bound < 0.30 from 2 M on"
SWING = "consecutive evaluations differ by < 0.15 from 1 M on"
VALUE = "SR_P within 0.15 of the game's value from 1 M on"


def line(points: list[tuple[int, float]], **changes: Any) -> dict[str, Any]:
    """A run with these (step, capture rate) evaluations."""
    rows = []
    for i, (step, rate) in enumerate(points):
        gap = abs(2 * rate - 1)
        rows.append([i, "both", step, rate, 1 - rate, gap, max(0, gap - 0.05), gap + 0.05, 0, None, 1000])
    return {"recipe": "ra3", "seed": 0, "steps": points[-1][0], "rows": rows, "rollbacks": 0, "climbs": [],
            "verdict": "", "complete": True, "finite": True, "kept": [], "matches": 12, "below": [],
            "levels": 0, "level": 0} | changes  # fmt: skip


def words(result: dict[str, str]) -> dict[str, str]:
    return {name: text.split()[0] for name, text in result.items()}


def steady(rate: float = 0.5) -> list[tuple[int, float]]:
    return [(k * 500_000, rate) for k in range(1, 21)]


def test_balanced_run_meets_every_criterion() -> None:
    result = words(balance_criteria.criteria(line(steady()), None))
    assert set(result.values()) == {"met"} and len(result) == 5


def test_what_happens_before_a_million_steps_does_not_count() -> None:
    result = words(balance_criteria.criteria(line([(500_000, 1.0), *steady()[1:]]), None))
    assert set(result.values()) == {"met"}


def test_mean_returns_behind_a_script_are_those_below_its_interval() -> None:
    def match(opponent: str, mean: float) -> dict[str, Any]:
        returned = {"mean": mean, "low": mean - 1, "high": mean + 1, "games": 100}
        return {"role": "evader", "rival": opponent, "games": 100, "score": 0.5, "low": 0.4, "high": 0.6,
                "returned": returned}  # fmt: skip

    table = [match("lion", 3.0), match("random", 6.0), match("stand_still", 3.0)]
    evaluation = Evaluation.from_json({"phase": "", "step": 1, "table": table})
    best = {("evader", name): ("wall_runner", Mean(6.0, 5.0, 7.0, 100)) for name in ("lion", "random")}
    behind = balance_criteria.returns_behind(evaluation, best)
    assert behind == [["evader", "lion", 3.0, "wall_runner", 6.0]]
    text = words(balance_criteria.criteria(line(steady(), returns=behind), None))
    assert text[balance_criteria.BY_RETURN] == "missed" and list(text.values()).count("met") == 5


@pytest.mark.parametrize(("at", "missed"), [
    (1_500_000, {"gap's upper bound < 0.30 from 1 M to 2 M", SWING}), (10_000_000, {GAP, SWING})])
def test_one_large_gap_is_enough_to_miss(at: int, missed: set[str]) -> None:
    points = [(step, 0.7 if step == at else rate) for step, rate in steady()]
    result = words(balance_criteria.criteria(line(points), None))
    assert {name for name, word in result.items() if word == "missed"} == missed


def test_scripts_levels_and_earlier_scores_count() -> None:
    behind = line(steady(), below=[["evader", "lion", 0.3]], levels=11, level=10,
                  kept=[[0, 0.8, 0.79], [1, 0.5, 0.4]])  # fmt: skip
    result = balance_criteria.criteria(behind, None)
    assert result["no role behind its best scripted player at the end"] == "missed (1 of 12 below)"
    assert result["climbs every level"] == "missed (level 10 of 11)"
    assert result["keeps 95 % of the score on earlier levels"] == "missed (worst of 2: 80%)"
    good = balance_criteria.criteria(behind | {"level": 11, "kept": [[0, 0.8, 0.79]]}, None)
    assert words(good)["climbs every level"] == "met"
    assert words(good)["keeps 95 % of the score on earlier levels"] == "met"


@pytest.mark.parametrize(("bracket", "word"), [
    (None, "–"), ((0.0, 0.21), "void"), ((0.05, 0.15), "met"), ((0.3, 0.4), "missed")])
def test_own_game_is_judged_by_its_value(bracket: tuple[float, float] | None, word: str) -> None:
    result = words(balance_criteria.criteria(line(steady(0.1), recipe="ra3_own"), bracket))
    assert result[VALUE] == word and GAP not in result


def test_nothing_is_claimed_without_evaluations() -> None:
    result = balance_criteria.criteria(line([(100_000, 0.5)], complete=False), None)
    assert result[GAP] == result[SWING] == balance_criteria.MISSING
    assert result["complete, no NaN"].startswith("unfinished")


def test_every_kind_is_listed_with_its_missing_seeds() -> None:
    text = balance_criteria.tables([line(steady()), line(steady(), seed=3)])
    assert any(row.startswith("| ra3 |") and row.endswith("| 0, 3 | 8 of 10 |") for row in text)
    for kind in balance_criteria.GROUPS:
        assert any(row.startswith(f"| {kind} |") for row in text)
    assert "| criterion | seed 0 | seed 3 |" in text


def test_the_pages_are_those_of_the_lines() -> None:
    for tool in (balance_criteria, game_value):
        assert tool.PAGE.read_text() == tool.page(), f"run {tool.__name__}.py publish"


def small_run(folder: Path, **changes: Any) -> Path:
    small = shrink(api.configure("ra4", changes={"network.hidden": (8,)}))
    quick = {"evaluation.games": 2, "past_policies.count": 0, **changes}
    play(settings.replace(small, quick), folder)
    return folder


def test_run_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance_criteria, "GAMES", 2)
    monkeypatch.setattr(balance_criteria, "RESULTS", tmp_path / "lines.jsonl")
    assert balance_criteria.main(["gather", f"ra4={small_run(tmp_path / 'run')}"]) == 0
    (result,) = balance_criteria.load_lines()
    assert result["matches"] == 12 and result["levels"] == 11 and result["level"] >= 1
    with pytest.raises(ConfigError, match=f"KIND=FOLDER with one of {', '.join(balance_criteria.GROUPS)}"):
        balance_criteria.main(["gather", f"ra1={tmp_path}"])


def test_bracket_chooses_on_other_games_than_it_reports() -> None:
    """A matrix by hand: the best pursuer by its worst case, the best evader by its worst case."""
    played = []

    class Board:
        def results(self, players: list[Any], games: int, index: int) -> list[Any]:
            played.append(index)
            rates = {("a", "x"): 0.6, ("a", "y"): 0.2, ("b", "x"): 0.5, ("b", "y"): 0.4}
            rate = rates[players[0], players[1]]
            result = type("R", (), {"score": rate, "interval": (rate - 0.1, rate + 0.1), "games": games})
            return [result(), None]

    firsts, lasts = ([game_value.Candidate(name, name) for name in names] for names in ("ab", "xy"))  # type: ignore[arg-type]
    bracket = game_value.Bracket(Board(), firsts, lasts)  # type: ignore[arg-type]
    ends = bracket.ends(bracket.matrix(10), 10)
    assert (ends["lower"]["first"], ends["lower"]["last"], ends["lower"]["rate"]) == ("b", "y", 0.4)
    assert (ends["upper"]["first"], ends["upper"]["last"], ends["upper"]["rate"]) == ("b", "y", 0.4)
    assert len(set(played[:4])) == 4 and not set(played[:4]) & set(played[4:])
    assert game_value.bracket_of(ends) == pytest.approx((0.3, 0.5))


def test_value_is_measured_from_runs_with_their_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(game_value, "RESULTS", tmp_path / "lines.jsonl")
    tiny = {"games": 8, "steps": 8, "total_steps": 64, "network.hidden": (8,), "evaluation.games": 2,
            "world.max_steps": 20, "evaluation.opponents": ("random",)}  # fmt: skip
    config = api.configure("quick", changes=tiny)
    start_run(tmp_path / "run", config)
    start_run(tmp_path / "other", settings.replace(config, {"world.capture_radius": 0.7}))
    import rematch

    request = rematch.ExploitRequest(budget=64, seeds=1, games=4, roles=("evader",))
    rematch.exploit(tmp_path / "run", request)
    assert game_value.main(["measure", "mine", str(tmp_path / "run"), "--games", "3"]) == 0
    (result,) = game_value.load_lines()
    assert any("response (fresh)" in name for name in result["lasts"]) and result["response_steps"] > 0
    assert not any("response" in name for name in result["firsts"])
    assert len(result["scores"]) == len(result["firsts"]) and "### mine" in game_value.tables([result])
    with pytest.raises(ConfigError, match=r"world.capture_radius = 0.7, .* expected the same rules"):
        game_value.main(["measure", "mine", str(tmp_path / "run"), str(tmp_path / "other")])
    with pytest.raises(ConfigError, match="expected the name of the game, and run folders or --recipe"):
        game_value.main(["measure"])
    assert game_value.main(["measure", "scripts", "--recipe", "quick", "--games", "2"]) == 0
    assert game_value.load_lines()[-1]["runs"] == 0
