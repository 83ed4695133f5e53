"""NashConv table: every cell has different, effective settings; results are written and read."""

from __future__ import annotations

import argparse
from pathlib import Path

import nash_conv_table
import pytest

from rematch.core import config as settings


def test_cells_differ_and_are_fair() -> None:
    """Rows of a lattice share network, optimiser, batch and start states, except for the named change."""
    for lattice in nash_conv_table.LATTICES:
        configs = {row: nash_conv_table.configure(lattice, row, 3) for row in nash_conv_table.ROWS}
        assert len({settings.to_yaml(config) for config in configs.values()}) == len(configs)
        reference = configs["together+reg"]
        for row, config in configs.items():
            assert (
                config.seed == 3 and config.world == reference.world and config.network == reference.network
            )
            assert (config.games, config.steps) == (reference.games, reference.steps)
            if row == "lookahead":
                continue
            assert config.total_steps == reference.total_steps * nash_conv_table.STEP_MULTIPLIERS.get(row, 1)
            regular = settings.replace(
                config.ppo,
                {
                    key: getattr(reference.ppo, key)
                    for key in ("entropy_weight", "entropy_weight_final", "magnet_weight")
                },
            )
            assert regular == reference.ppo
            assert (config.ppo == reference.ppo) == ("reg" in row)


@pytest.mark.parametrize(
    "words", [{"only": "n5/togethr"}, {"only": "n7"}, {"seeds": "abc"}, {"seeds": "7-3"}]
)
def test_missing_runs_are_an_error(words: dict[str, str]) -> None:
    with pytest.raises(SystemExit, match=r"--only|--seeds"):
        nash_conv_table.cells(argparse.Namespace(**{"only": "", "seeds": ""} | words))
    assert len(nash_conv_table.cells(argparse.Namespace(only="n5/together", seeds="0-2"))) == 3


def test_lines_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nash_conv_table, "RESULTS", tmp_path / "nash_conv.jsonl")
    assert nash_conv_table.load_results() == {}
    evaluation = {
        "step": 5,
        "exact": {"nash_conv": 0.25, "gap": 0.5, "played": 0.75, "value": 0.6, "regret": 1.0},
    }
    nash_conv_table.append_result("n5", "micro", 4, evaluation)
    nash_conv_table.append_result("n5", "micro", 0, evaluation)
    assert nash_conv_table.load_results()["n5", "micro", 4]["nash_conv"] == 0.25
    assert "| micro | 2 of 10 | 0.250 | 0.250 | 0.250 0.250 | 0.50–0.50 |" in nash_conv_table.tables(
        nash_conv_table.load_results()
    )
    assert "| micro | 0.250 (0.250; 2) *0.50* | – | – | – |" in nash_conv_table.summary(
        nash_conv_table.load_results()
    )


def test_the_tables_lines_are_measurements() -> None:
    cells = {cell for cell in nash_conv_table.load_results() if cell[2] in nash_conv_table.seeds(*cell[:2])}
    assert cells, "docs/results/data/nash_conv.jsonl holds what docs/results/nash_conv.md shows"
    assert all(
        0 <= line["nash_conv"] <= 1 and 0 <= line["gap"] <= 1
        for line in nash_conv_table.load_results().values()
    )


def test_the_published_tables_are_those_of_the_lines() -> None:
    published = nash_conv_table.PAGE.read_text()
    assert published == nash_conv_table.page(), "run tools/experiments/nash_conv_table.py publish"
