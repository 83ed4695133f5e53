"""tools/checks/best_responses.py: criteria, the page, and a small search from its command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import best_responses
import pytest

from rematch.core.errors import ConfigError


def line(**changes: Any) -> dict[str, Any]:
    return {
        "game": "quick", "seed": 0, "role": "pursuer", "budget": 10_000_000, "responses": 3, "games": 4000,
        "best": "fresh", "play": "sampled", "score": 0.65, "low": 0.635, "high": 0.665, "gain": 0.02,
        "gain_low": 0.0, "gain_high": 0.04, "incumbent": [0.63, 0.615, 0.645], "fresh": [0.65, 0.635, 0.665],
        "fresh_share": 1.03, "exact": None, "commit": "abc",
        "trials": [["untrained", 0, 0, "sampled", 0.63], ["fresh", 0, 10_000_000, "sampled", 0.65],
                   ["fresh", 0, 10_000_000, "greedy", 0.64]],
    } | changes  # fmt: skip


def exact(share: float | None) -> dict[str, Any]:
    return {"best": 0.23, "incumbent": 0.16, "found": 0.21, "share_found": share}


@pytest.mark.parametrize(("changes", "reached"), [
    ({"fresh_share": 0.95}, True), ({"fresh_share": 0.949}, False),
    # where the exact gain is known, it alone decides
    ({"fresh_share": 0.2, "exact": exact(0.9)}, True), ({"exact": exact(0.89)}, False),
    ({"exact": exact(None)}, True),
])  # fmt: skip
def test_criterion(changes: dict[str, Any], reached: bool) -> None:
    assert best_responses.reaches(line(**changes)) is reached
    table = best_responses.exact_table if changes.get("exact") else best_responses.share_table
    assert ("**missed**" in "\n".join(table([line(**changes)]))) is not reached


def test_every_response_is_in_the_tables() -> None:
    text = "\n".join(best_responses.tables([line(), line(game="n5", exact=exact(None))]))
    assert "| untrained 0 (0.0 M) 0.630; fresh 0 (10.0 M) 0.650 |" in text
    assert "5 × 5, 10 moves" in text and "no gain is possible" in text


def test_page_is_that_of_the_lines() -> None:
    assert best_responses.PAGE.read_text() == best_responses.page(), (
        "run tools/checks/best_responses.py publish"
    )


def test_search_is_stored_and_a_miss_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """A short run of the smallest board, and responses of one iteration, which find nothing."""
    small = best_responses.LATTICES["n5"] | {"total_steps": 20_000, "games": 64, "network.hidden": (16,),
                                             "evaluation.every": 10}  # fmt: skip
    monkeypatch.setitem(best_responses.LATTICES, "n5", small)
    monkeypatch.setattr(best_responses, "RESULTS", tmp_path / "lines.jsonl")
    words = ["lattices", "--only", "n5", "--budget", "1000", "--responses", "1", "--games", "40", "--out",
             str(tmp_path / "runs")]  # fmt: skip
    code = best_responses.main(words)
    stored = best_responses.load_lines()
    assert [each["role"] for each in stored] == ["evader", "pursuer"]
    assert code == int(not all(map(best_responses.reaches, stored)))
    for each in stored:
        assert each["exact"]["best"] >= each["exact"]["found"] - 1e-9
        assert {trial[0] for trial in each["trials"]} == {"untrained", "fresh", "incumbent", "ahead"}
    with pytest.raises(ConfigError, match="expected one of pursuer, evader"):
        best_responses.main([*words, "--role", "chaser"])
    capsys.readouterr()
    assert best_responses.main(words) == code  # read from the run, trained no second time
    assert "response" not in capsys.readouterr().out and best_responses.load_lines() == stored


@pytest.mark.parametrize("words", [["lattices", "--only", "n6"], ["run", "quick"], ["publish", "quick"],
                                   ["lattices", "--budget", "0"]])  # fmt: skip
def test_wrong_words_are_one_line(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"expected"):
        best_responses.main(words)
