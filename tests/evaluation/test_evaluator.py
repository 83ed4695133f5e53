"""The evaluator: match-ups, bounds of the gap, selection and report on different games."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from support import toys
from support.networks import policy

from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.evaluation.evaluator import (
    against_bots,
    attach_best_bots,
    best_bots,
    bots_for,
    check_bot_names,
    evaluate,
    opposing_roles,
    versus,
)
from rematch.evaluation.match import Scoreboard
from rematch.evaluation.statistics import wilson


class Recording(Scoreboard):
    """Records every match."""

    def __init__(self, name: str, **settings: Any) -> None:
        module = toys.TOYS[name]
        super().__init__(lambda n, first, key: module.make(module.Config(**settings), n, first, key), 3, 1)
        self.played: list[tuple[tuple[str, ...], int, int]] = []

    def results(self, players: Any, games: int, index: int) -> Any:
        self.played.append((tuple(p.name for p in players), games, index))
        return super().results(players, games, index)


def spec_of(name: str) -> Any:
    return toys.TOYS[name].make(toys.TOYS[name].Config(), 1).spec


def players_of(name: str) -> dict[str, Player]:
    return {role: policy(role_spec, hidden=(5,)) for role, role_spec in spec_of(name).roles.items()}


def test_opponents_have_the_other_role_or_the_only_one() -> None:
    assert opposing_roles(spec_of("matching"), "matcher") == ["hider"]
    assert opposing_roles(spec_of("sticks"), "player") == ["player"]
    me, rival = toys.sticks.bot("careful", "player"), toys.sticks.bot("random", "player")
    assert versus(spec_of("sticks"), me, "player", rival) == [me, rival, rival]
    assert versus(spec_of("matching"), me, "hider", rival) == [rival, me]


def test_bots_for_selects_by_name() -> None:
    assert [p.name for p in bots_for(toys.matching, "hider", ())] == ["heads", "tails", "random"]  # type: ignore[arg-type]
    assert [p.name for p in bots_for(toys.matching, "hider", ("tails",))] == ["tails"]  # type: ignore[arg-type]
    check_bot_names(toys.matching, ("tails", "heads"), "evaluation.opponents")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError,
        match=r"^evaluation\.opponents = 'tail': expected one of heads, random, tails; nearest: tails$",
    ):
        check_bot_names(toys.matching, ("tail",), "evaluation.opponents")  # type: ignore[arg-type]


def test_evaluate_two_roles() -> None:
    board = Recording("matching")
    row = evaluate(board, toys.matching, spec_of("matching"), players_of("matching"), (400, (), 1 << 12))  # type: ignore[arg-type]
    assert set(row["rates"]) == {"matcher", "hider"}
    first, second = row["rates"]["matcher"], row["rates"]["hider"]
    assert first["rate"] + second["rate"] == pytest.approx(1) and first["games"] == 400
    assert row["gap"] == pytest.approx(abs(2 * first["rate"] - 1))
    assert row["gap_low"] <= row["gap"] <= row["gap_high"]
    assert [(e["role"], e["rival"], e["games"]) for e in row["table"]] == [
        (role, bot, 400) for role in ("matcher", "hider") for bot in ("heads", "tails", "random")
    ]
    assert len({index for _, _, index in board.played}) == len(board.played) == 7
    for entry in row["table"]:
        assert (entry["low"], entry["high"]) == wilson(entry["wins"] + entry["draws"] / 2, 400)


@pytest.mark.parametrize(
    ("names", "gap", "low"),
    [
        (("heads", "heads"), 1.0, 2 * wilson(200, 200)[0] - 1),  # the matcher always wins
        (("heads", "tails"), 1.0, 2 * wilson(200, 200)[0] - 1),  # the hider always wins
        (("random", "random"), None, 0.0),  # one round between fair coins: nothing can be said
    ],
)
def test_gap_and_its_bounds(names: tuple[str, str], gap: float | None, low: float) -> None:
    board = Recording("matching", rounds=1, heads=1.0)
    players = {role: toys.matching.bot(name, role) for role, name in zip(("matcher", "hider"), names)}
    row = evaluate(board, toys.matching, spec_of("matching"), players, (200, ("random",), 0))  # type: ignore[arg-type]
    assert gap is None or row["gap"] == gap
    assert row["gap_low"] == pytest.approx(low) and row["gap_low"] <= row["gap"] <= row["gap_high"] <= 1
    if gap is None:
        rate, bounds = row["rates"]["matcher"]["rate"], wilson(200 * row["rates"]["matcher"]["rate"], 200)
        assert abs(rate - 0.5) < 0.12 and row["gap_high"] == pytest.approx(
            max(abs(2 * b - 1) for b in bounds)
        )


def test_evaluate_one_role_has_matches_and_no_gap() -> None:
    board = Recording("sticks")
    row = evaluate(board, toys.sticks, spec_of("sticks"), players_of("sticks"), (30, (), 0))  # type: ignore[arg-type]
    assert row["rates"] == {} and "gap" not in row
    assert [(e["rival"], e["games"], e["role"]) for e in row["table"]] == [
        ("random", 30, "player"),
        ("careful", 30, "player"),
    ]
    assert [names for names, _, _ in board.played] == [
        ("test", "random", "random"),
        ("test", "careful", "careful"),
    ]


def test_against_bots_gives_the_rows_of_the_player() -> None:
    players = {"matcher": toys.matching.bot("heads", "matcher"), "hider": toys.matching.bot("tails", "hider")}
    rows = against_bots(
        Recording("matching"), toys.matching, spec_of("matching"), players, (40, ("heads", "tails"), 0)
    )  # type: ignore[arg-type]
    scores = {(row.role, row.player, row.opponent): row.score for row in rows}
    assert scores == {
        ("matcher", "heads", "heads"): 1.0,
        ("matcher", "heads", "tails"): 0.0,
        ("hider", "tails", "heads"): 1.0,
        ("hider", "tails", "tails"): 0.0,
    }


def test_best_bot_is_selected_and_reported_on_different_games() -> None:
    board = Recording("matching")
    best = best_bots(board, toys.matching, spec_of("matching"), (50, ("heads", "tails"), 1 << 60))  # type: ignore[arg-type]
    assert {key: (row.player, row.score) for key, row in best.items()} == {
        "matcher/heads": ("heads", 1.0),
        "matcher/tails": ("tails", 1.0),
        "hider/heads": ("tails", 1.0),
        "hider/tails": ("heads", 1.0),
    }
    indices = [index for _, _, index in board.played]
    assert (
        len(set(indices)) == len(indices) == 4 * (3 + 1)
    )  # three candidates and one report for each of four rivals
    assert indices == list(range(1 << 60, (1 << 60) + 16))


def test_evaluate_changes_no_player() -> None:
    """Sampled unless they say otherwise: an evaluation changes nothing in a policy."""
    players = players_of("matching")
    before = {role: (p.greedy, p.weights.tobytes()) for role, p in players.items()}  # type: ignore[attr-defined]
    evaluate(Recording("matching"), toys.matching, spec_of("matching"), players, (10, ("random",), 0))  # type: ignore[arg-type]
    assert before == {role: (p.greedy, p.weights.tobytes()) for role, p in players.items()}  # type: ignore[attr-defined]
    assert not any(greedy for greedy, _ in before.values())


def test_best_bots_is_empty_without_bots(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended a run's last evaluation in a traceback."""
    alone = copy.copy(toys.matching)
    monkeypatch.setattr(alone, "bots", {"matcher": ("heads",), "hider": ()})
    best = best_bots(Recording("matching"), alone, spec_of("matching"), (4, (), 0))
    assert best == {}
    row: dict[str, Any] = {"table": [{"role": "hider", "rival": "heads"}]}
    attach_best_bots(row, best)
    assert row == {"table": [{"role": "hider", "rival": "heads"}]}
