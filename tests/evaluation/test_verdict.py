"""What evaluations say in words: a fixture for each word, and the edges between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rematch.evaluation.evaluator import EvaluationConfig
from rematch.evaluation.match import wilson
from rematch.evaluation.payoff_matrix import Payoff
from rematch.evaluation.verdict import (
    alarms,
    balanced,
    behind,
    findings,
    pairings,
    raised,
    strength,
    verdict,
)

CONFIG = EvaluationConfig()
Row = dict[str, Any]


def entry(role: str, rival: str, score: float, games: int = 1000, best: float | None = None) -> Row:
    low, high = wilson(score * games, games)
    out: Row = {"role": role, "rival": rival, "score": score, "games": games, "low": low, "high": high}
    if best is not None:
        out |= {"best_bot": "ace", "best_bot_score": best}
        out["best_bot_low"], out["best_bot_high"] = wilson(best * games, games)
    return out


def row(
    step: int, rate: float = 0.5, score: float = 0.6, games: int = 1000, best: float | None = None
) -> Row:
    """An evaluation: the first role's rate head to head, and all its scores against two rivals per role."""
    low, high = wilson(rate * games, games)
    bounds = sorted((abs(2 * low - 1), abs(2 * high - 1)))
    table = [entry(role, rival, score, games, best) for role in ("pursuer", "evader") for rival in ("x", "y")]
    rates = {"pursuer": {"rate": rate}, "evader": {"rate": 1 - rate}}
    return {"step": step, "rates": rates, "gap": abs(2 * rate - 1), "gap_high": bounds[1], "table": table}


def word(history: list[Row], config: EvaluationConfig = CONFIG) -> str:
    said = verdict(history, config)
    assert len(said.splitlines()) == 1 and ": " in said
    return said.partition(":")[0]


# --- the words -----------------------------------------------------------------------------------------


def test_collapsed_by_a_lasting_gap() -> None:
    history = [row(0), row(100_000, 0.95), row(400_000, 0.96), row(600_000, 0.95)]
    assert verdict(history, CONFIG) == "collapsed: gap above 0.8 from step 100,000 to 600,000"
    assert word(history[:3]) != "collapsed"  # 300 000 steps are not 500 000
    assert word([*history, row(700_000, 0.5)]) == "collapsed"  # it stays on the record
    healed = [row(0), row(100_000, 0.95), row(400_000, 0.7), row(600_000, 0.95), row(900_000, 0.95)]
    assert word(healed) != "collapsed"  # the gap closed in between
    assert word([row(0, 0.05), row(500_000, 0.05)]) == "collapsed"  # the other role's side
    assert word([row(0, 0.89), row(900_000, 0.89)]) != "collapsed"  # 0.78 is not above 0.80


def test_collapsed_by_a_swing() -> None:
    history = [row(0, 0.1), row(1000, 0.85)]
    assert verdict(history, CONFIG) == "collapsed: pursuer swung by 0.75 between steps 0 and 1,000"
    assert word([row(0, 0.15), row(1000, 0.84)]) != "collapsed"
    assert word([row(0, 0.1), row(500, 0.5), row(1000, 0.85)]) != "collapsed"  # between neighbours only
    both = [row(0, 0.95), row(500_000, 0.95), row(600_000, 0.05)]
    assert len(alarms(both, CONFIG)) == 2 and verdict(both, CONFIG).count(";") == 1


def test_alarms_go_by_their_settings() -> None:
    history = [row(0, 0.7), row(1000, 0.9)]
    assert alarms(history, CONFIG) == []
    assert alarms(history, EvaluationConfig(alarm_swing=0.1)) != []
    assert alarms(history, EvaluationConfig(alarm_gap=0.3, alarm_steps=1000)) != []
    assert alarms(history, EvaluationConfig(alarm_gap=0.3, alarm_steps=1001)) == []
    assert alarms([row(0, 0.99)], EvaluationConfig(alarm_steps=0)) != []


def test_weak() -> None:
    history = [row(0), row(1000, rate=0.75, score=0.5, best=0.9)]
    said = verdict(history, CONFIG)
    assert said.startswith("weak: 4 of 4 pairings below the best scripted player, the worst ")
    assert "0.500 [0.469, 0.531] where ace has 0.900" in said


def test_weak_names_the_worst_pairing() -> None:
    last = row(1000, rate=0.75, score=0.7, best=0.7)
    last["table"][1] = entry("pursuer", "y", 0.5, best=0.7)
    last["table"][2] = entry("evader", "x", 0.2, best=0.8)
    first = row(0, score=0.2)  # nothing was ever better
    assert "2 of 4 pairings" in verdict([first, last], CONFIG)
    assert "the worst evader against x: 0.200" in verdict([first, last], CONFIG)


def test_overlapping_intervals_are_not_weak() -> None:
    assert word([row(0, score=0.72), row(1000, rate=0.75, score=0.72, best=0.75)]) == "steady"


def test_balanced_but_weak() -> None:
    """A frozen pair is perfectly balanced: balance alone proves nothing."""
    assert word([row(0), row(1000, rate=0.5, score=0.5, best=0.9)]) == "balanced but weak"
    # the gap's upper bound decides, not its point: 0.26 of 1000 games is below 0.30 only by the point
    assert row(0, 0.63)["gap"] < 0.30 < row(0, 0.63)["gap_high"]
    assert word([row(0), row(1000, rate=0.63, score=0.5, best=0.9)]) == "weak"


def test_improving_steady_declining() -> None:
    for score, wanted in (
        (0.7, "improving"),
        (0.62, "steady"),
        (0.6, "steady"),
        (0.58, "steady"),
        (0.5, "declining"),
    ):
        assert word([row(0), row(500, score=0.1), row(1000, score=score)]) == wanted, score
    assert verdict([row(0), row(1000, score=0.7)], CONFIG) == (
        "improving: mean score against scripted rivals 0.600 at first, 0.700 now"
    )


def test_inconclusive() -> None:
    assert verdict([], CONFIG) == "inconclusive: no evaluation yet"
    assert verdict([row(0)], CONFIG) == "inconclusive: one evaluation only"


@pytest.mark.parametrize("score", [0.6, 0.7, 0.5])
def test_a_change_within_the_noise_is_not_called_one(score: float) -> None:
    """Twenty games a pairing cannot tell 0.6 from 0.7, nor that nothing changed."""
    said = verdict([row(0, games=20), row(1000, score=score, games=20)], CONFIG)
    assert said.startswith("inconclusive: mean score against scripted rivals 0.600 at first")
    need = int(said.partition("about ")[2].partition(" ")[0])
    assert 100 < need < 1000
    assert word([row(0, games=need), row(1000, score=score, games=need)]) != "inconclusive"
    assert (
        word([row(0, score=0.1, games=20), row(1000, score=0.9, games=20)]) == "improving"
    )  # that much is sure


def test_one_game_is_never_sure() -> None:
    history = [{"step": i, "rates": {}, "table": [entry("player", "x", float(i), 1)]} for i in (0, 1)]
    assert word(history) == word(history[::-1]) == "inconclusive"


# --- what is compared ------------------------------------------------------------------------------------


def test_strength_weighs_roles_alike() -> None:
    table = [
        entry("pursuer", "x", 1.0),
        entry("evader", "x", 0.0),
        entry("evader", "y", 0.0),
        entry("evader", "z", 0.6),
    ]
    mean, below, above = strength({"table": table}, pairings({"table": table}))
    assert mean == pytest.approx((1.0 + 0.2) / 2)
    # a perfect score can only be less, a score of nothing only more; weights are 1/2 and 1/6
    perfect, nothing, (low, high) = 1 - wilson(1000, 1000)[0], wilson(0, 1000)[1], wilson(600, 1000)
    assert below == pytest.approx(math.hypot(perfect / 2, (0.6 - low) / 6))
    assert above == pytest.approx(math.hypot(nothing / 6, nothing / 6, (high - 0.6) / 6))


def test_only_pairings_of_both_evaluations_are_compared() -> None:
    """An evaluation against the easy rivals alone is not an improvement."""
    first, last = row(0), row(1000)
    first["table"] = [entry("pursuer", "easy", 0.9), entry("pursuer", "hard", 0.1)]
    last["table"] = [entry("pursuer", "easy", 0.9)]
    assert word([first, last]) == "steady"
    last["table"] = [entry("pursuer", "other", 0.9)]
    assert word([first, last]) == "inconclusive"
    first["table"], last["table"] = [], []
    assert word([first, last]) == "inconclusive"


def test_worlds_of_one_role_have_verdicts_too() -> None:
    history = [
        {"step": step, "rates": {}, "table": [entry("player", "x", score)]}
        for step, score in ((0, 0.4), (9, 0.7))
    ]
    assert word(history) == "improving"
    weak = [*history, {"step": 10, "rates": {}, "table": [entry("player", "x", 0.7, best=0.9)]}]
    assert word(weak) == "weak"  # without a gap nothing is balanced


# --- converged ---------------------------------------------------------------------------------------------


def test_only_the_newest_evaluations_in_a_row_count_as_balanced() -> None:
    def phased(name: str, rate: float) -> Row:
        return row(0, rate) | {"phase": name}

    even, uneven = phased("S3", 0.5), phased("S3", 0.6)
    assert even["gap_high"] < 0.1 < uneven["gap_high"] and uneven["gap"] == pytest.approx(0.2)
    for history, count in (([], 0), ([even], 1), ([even, uneven], 0), ([uneven, even, even], 2),
                           ([phased("S0", 0.5), even], 1), ([even, phased("S0", 0.5)], 0)):  # fmt: skip
        assert balanced(history, 0.1) == count
    assert balanced([even], even["gap_high"]) == 0  # the bound itself is not below


def test_balance_on_an_easier_level_is_not_counted() -> None:
    rows = [row(0) | {"phase": "S1", "level": level} for level in (0, 0, 1)]
    assert balanced(rows, 0.1) == 1 and balanced(rows[:2], 0.1) == 2


def test_a_harder_level_is_neither_forgetting_nor_declining() -> None:
    """The same pair scores less where games are harder: nothing was lost."""
    easy = [row(step, score=0.9) | {"level": 0} for step in (0, 1000)]
    hard = [row(step, score=0.5) | {"level": 1} for step in (2000, 3000)]
    assert verdict([*easy, hard[0]], CONFIG) == "inconclusive: one evaluation only on this level"
    assert findings([*easy, *hard], CONFIG) == [
        "steady: mean score against scripted rivals 0.500 at first, 0.500 now"]
    back = row(4000, score=0.5) | {"level": 0}  # regressed: now it shows
    assert word([*easy, *hard, back]) == "forgetting"


def test_converged_is_said_only_where_the_run_says_so_and_nothing_stands_against_it() -> None:
    ended = row(1000, best=0.6) | {"converged": True, "balanced": 3, "gap_low": 0.0}
    ended["rates"] = {role: rate | {"games": 1000} for role, rate in ended["rates"].items()}
    said = verdict([row(0), ended], CONFIG)
    assert said.startswith("converged: 3 evaluations in a row with a small gap, the last 0.000")
    assert word([row(0, 0.1), row(500, 0.9), ended]) == "collapsed"
    worse = row(1000, best=0.9) | {"converged": True}
    assert len(behind(worse)) == 4 and word([row(0), worse]) == "balanced but weak"
    assert word([row(0), ended, row(2000)]) != "converged"  # an evaluation after it is judged anew


def test_a_solved_game_that_is_not_even_raises_no_alarm() -> None:
    """A board on which perfect play always captures: a gap of 1 is right there, a gap of 0 is not."""
    history = [{"step": step, "gap": 1.0, "rates": {}, "table": [], "exact": {"played": 1.0, "value": 1.0}}
               for step in (0, 10**6)]
    assert alarms(history, EvaluationConfig()) == []
    for row in history:
        row["exact"], row["gap"] = {"played": 0.5, "value": 1.0}, 0.0
    assert alarms(history, EvaluationConfig()) and "gap above" in alarms(history, EvaluationConfig())[0]


# --- fixtures of known dynamics (docs/strength.md) --------------------------------------------------------


def met(chances: Any, games: int = 100, roles: tuple[str, ...] = ("pursuer", "evader")) -> Payoff:
    """The matrix of past selves with these chances [k, k], with the luck of `games` games a cell."""
    table = np.asarray(chances)
    wins = np.random.default_rng(7).binomial(games, table).astype(np.int64)
    steps = tuple(range(1000, 1000 * len(table) + 1, 1000))
    return Payoff(roles=roles, iterations=steps, steps=steps, games=games, wins=wins, draws=0 * wins)


def circles(k: int) -> list[list[float]]:
    return [[(0.5, 0.95, 0.05)[(i - j) % 3] for j in range(k)] for i in range(k)]


def climbed(k: int) -> list[list[float]]:
    return [[1 / (1 + math.exp(0.3 * (j - i))) for j in range(k)] for i in range(k)]


def test_rock_paper_scissors_reads_cycling() -> None:
    """Each checkpoint beats the one before it and loses to the one before that."""
    for roles in (("pursuer", "evader"), ("player",)):
        said = verdict([row(0), row(1000)], CONFIG, met(circles(12), roles=roles))
        assert said.startswith("cycling: 1.00 [1.00, 1.00] of what 12 past selves win from each other"), said
    improving = [row(0, score=0.3), row(1000, score=0.6)]
    assert verdict(improving, CONFIG, met(circles(12))).startswith("cycling")
    assert findings(improving, CONFIG, met(circles(12)))[-1].startswith("improving")


def test_a_frozen_pair_reads_balanced_but_weak() -> None:
    """A learning rate of 0: every self is the same, the gap is 0, and scripted players do better."""
    same = met([[0.5] * 10 for _ in range(10)])
    history = [row(0, score=0.3), row(500, score=0.3), row(1000, score=0.3, best=0.8)]
    assert verdict(history, CONFIG, same).startswith("balanced but weak: 4 of 4 pairings")
    words = [said.partition(":")[0] for said in findings(history, CONFIG, same)]
    assert words == ["balanced but weak", "steady"]


def test_a_pair_that_lost_an_old_skill_reads_forgetting() -> None:
    """Against a scripted rival it once beat; and against its own past, where no scripted rival shows it."""
    last = row(3000, score=0.7)
    last["table"][0] = entry("pursuer", "x", 0.4)
    history = [row(0, score=0.5), row(1000, score=0.7), row(2000, score=0.7), last]
    said = verdict(history, CONFIG)
    assert said.startswith("forgetting: pursuer against x had 0.700 at step 1,000 and has 0.400 now: 0.3")
    chances = climbed(10)
    for i in range(10):
        chances[i][3] = 0.2 if i == 9 else 0.9
    said = verdict([row(0), row(1000)], CONFIG, met(chances))
    assert said.startswith("forgetting: against the opponent of step 4,000 the pursuer of step")
    assert word(history[:3]) == "improving"


def test_a_ladder_reads_improving_and_noise_reads_nothing() -> None:
    history = [row(0, score=0.5), row(1000, score=0.7)]
    assert findings(history, CONFIG, met(climbed(12))) == [
        "improving: mean score against scripted rivals 0.500 at first, 0.700 now"]
    bare = [{"step": step, "rates": {}, "table": []} for step in (0, 1000)]  # no scripted players
    assert verdict(bare, CONFIG).startswith("inconclusive: no scripted rival")
    assert verdict(bare, CONFIG, met(climbed(12), roles=("player",))).startswith(
        "improving: the newest self scores 0.9")
    assert verdict(bare, CONFIG, met([[0.5] * 9] * 9)).startswith("inconclusive")
    assert verdict([row(0, 0.1), row(1000, 0.9)], CONFIG, met(circles(12))).startswith("collapsed")


def test_chance_alone_is_no_forgetting() -> None:
    """Sixty evaluations of the same players: the best of them is no skill that was lost."""
    luck = np.random.default_rng(0)
    for _ in range(20):
        history = [row(i, score=luck.binomial(100, 0.5) / 100, games=100) for i in range(60)]
        assert not [said for said in findings(history, CONFIG) if said.startswith("forgetting")]


def test_alarms_know_when_they_began() -> None:
    (alarm,) = raised([row(0), row(100_000, 0.95), row(600_000, 0.96)], CONFIG)
    assert (alarm["kind"], alarm["first"], alarm["last"]) == ("gap", 100_000, 600_000)
    (alarm,) = raised([row(0, 0.1), row(1000, 0.85)], CONFIG)
    assert (alarm["kind"], alarm["first"], alarm["last"], alarm["role"]) == ("swing", 0, 1000, "pursuer")
