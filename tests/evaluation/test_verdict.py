"""Verdicts: a fixture for each word, the edges between words, alarms, returns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.evaluation_rows import evaluation_row as row
from support.evaluation_rows import match_row, return_row

from rematch.evaluation import verdict as module
from rematch.evaluation.evaluation import Evaluation, read_history
from rematch.evaluation.evaluator import EvaluationConfig
from rematch.evaluation.payoff_matrix import Payoff
from rematch.evaluation.text import verdict_text, verdict_word
from rematch.evaluation.verdict import Alarm

CONFIG = EvaluationConfig()
Row = dict[str, Any]


def findings(rows: list[Row], payoff: Payoff | None = None) -> list[str]:
    return module.findings(read_history(rows), CONFIG, payoff)


def verdict(rows: list[Row], payoff: Payoff | None = None) -> str:
    text = module.verdict(read_history(rows), CONFIG, payoff)
    assert len(text.splitlines()) == 1 and ": " in text
    return text


def word(rows: list[Row]) -> str:
    return verdict_word(verdict(rows))


def alarms(rows: list[Row], config: EvaluationConfig = CONFIG) -> list[Alarm]:
    return module.alarms(read_history(rows), config)


def count_balanced(rows: list[Row], eta: float) -> int:
    return module.count_balanced(read_history(rows), eta)


# --- the words ---------------------------------------------------------------------------------------------


def test_verdict_collapsed_by_a_lasting_gap() -> None:
    history = [row(0), row(100_000, 0.95), row(400_000, 0.96), row(600_000, 0.95)]
    assert verdict(history) == "collapsed: NE gap above 0.8 from step 100,000 to step 600,000"
    assert word(history[:3]) != "collapsed"  # 300 000 steps are not 500 000
    assert word([*history, row(700_000, 0.5)]) == "collapsed"  # an alarm is permanent
    healed = [row(0), row(100_000, 0.95), row(400_000, 0.7), row(600_000, 0.95), row(900_000, 0.95)]
    assert word(healed) != "collapsed"  # the gap closed in between
    assert word([row(0, 0.05), row(500_000, 0.05)]) == "collapsed"  # the other role wins
    assert word([row(0, 0.89), row(900_000, 0.89)]) != "collapsed"  # 0.78 is not above 0.80


def test_verdict_collapsed_by_a_swing() -> None:
    history = [row(0, 0.1), row(1000, 0.85)]
    assert verdict(history) == "collapsed: win rate of pursuer changed by 0.75 between step 0 and step 1,000"
    assert word([row(0, 0.15), row(1000, 0.84)]) != "collapsed"
    assert word([row(0, 0.1), row(500, 0.5), row(1000, 0.85)]) != "collapsed"  # consecutive evaluations only
    both = [row(0, 0.95), row(500_000, 0.95), row(600_000, 0.05)]
    assert len(alarms(both)) == 2 and verdict(both).count(";") == 1


def test_alarms_depend_on_their_settings() -> None:
    history = [row(0, 0.7), row(1000, 0.9)]
    assert alarms(history) == []
    assert alarms(history, EvaluationConfig(alarm_swing=0.1)) != []
    assert alarms(history, EvaluationConfig(alarm_gap=0.3, alarm_steps=1000)) != []
    assert alarms(history, EvaluationConfig(alarm_gap=0.3, alarm_steps=1001)) == []
    assert alarms([row(0, 0.99)], EvaluationConfig(alarm_steps=0)) != []


def test_alarms_have_their_first_and_last_step() -> None:
    (alarm,) = alarms([row(0), row(100_000, 0.95), row(600_000, 0.96)])
    assert (alarm.kind, alarm.first, alarm.last) == ("gap", 100_000, 600_000)
    (alarm,) = alarms([row(0, 0.1), row(1000, 0.85)])
    assert (alarm.kind, alarm.first, alarm.last, alarm.role) == ("swing", 0, 1000, "pursuer")


def test_alarms_of_a_solved_game_compare_with_perfect_play() -> None:
    """A board on which perfect play always captures: a gap of 1 is right there, a gap of 0 is not."""
    history = [{"step": step, "gap": 1.0, "rates": {}, "table": [], "exact": {"played": 1.0, "value": 1.0}}
               for step in (0, 10**6)]
    assert alarms(history) == []
    for entry in history:
        entry["exact"], entry["gap"] = {"played": 0.5, "value": 1.0}, 0.0
    assert "gap above" in alarms(history)[0].text


def lopsided_row(step: int, rate: float, pursuer: float, evader: float) -> Row:
    """The pursuer's rate head to head, and the mean score of each role against scripted opponents."""
    scores = {"pursuer": pursuer, "evader": evader}
    table = [match_row(role, opponent, score) for role, score in scores.items() for opponent in ("x", "y")]
    return row(step, rate) | {"table": table}


def test_verdict_of_a_healthy_run_in_a_lopsided_game_is_not_collapsed() -> None:
    """Measured: a 15 % faster evader, four million steps; both roles improve, and the evader wins."""
    history = [lopsided_row(500_000, 0.06, 0.19, 0.90), lopsided_row(1_000_000, 0.05, 0.35, 0.97),
               lopsided_row(2_000_000, 0.06, 0.62, 0.99), lopsided_row(4_000_000, 0.06, 0.80, 0.995)]
    assert alarms(history) == []
    assert verdict(history) == (
        "lopsided: evader wins 0.940 [0.924, 0.953] of 1000 games, NE gap above 0.8 since step 500,000, but "
        "every role improved against scripted opponents: pursuer 0.190 at first, 0.800 now; evader 0.900 at "
        "first, 0.995 now")
    assert word([*history, lopsided_row(5_000_000, 0.3, 0.80, 0.995)]) == "improving"  # the gap has closed
    assert word(history[:1]) == "inconclusive"


@pytest.mark.parametrize(
    ("pursuer", "evader", "expected"),
    [((0.19, 0.19), (0.90, 0.99), "collapsed"),  # the pursuer learned nothing
     ((0.19, 0.22), (0.90, 0.99), "collapsed"),  # within the noise
     ((0.50, 0.10), (0.90, 0.99), "collapsed"),  # the pursuer got worse
     ((0.19, 0.80), (0.90, 0.40), "collapsed"),  # the winning role got worse
     ((0.19, 0.80), (0.98, 0.98), "lopsided"),  # near perfect: there is nothing left to gain
     ((0.19, 0.80), (0.70, 0.90), "lopsided")],
)  # fmt: skip
def test_verdict_of_a_large_gap_depends_on_progress(
    pursuer: tuple[float, float], evader: tuple[float, float], expected: str
) -> None:
    history = [lopsided_row(step, 0.06, pursuer[step > 0], evader[step > 0])
               for step in (0, 500_000, 900_000, 1_500_000)]
    assert word(history) == expected
    assert word([entry | {"table": []} for entry in history]) == "collapsed"  # nothing shows progress


def test_verdict_of_a_lopsided_run_names_the_scripted_value_and_weak_match_ups() -> None:
    history = [lopsided_row(0, 0.06, 0.19, 0.90), lopsided_row(900_000, 0.06, 0.80, 0.99)]
    history[1]["table"] = [
        match_row("pursuer", "x", 0.80, best=0.95), match_row("pursuer", "y", 0.80, best=0.20),
        match_row("evader", "x", 0.99, best=0.89), match_row("evader", "y", 0.99, best=0.95)]
    assert verdict(history).endswith(
        "; between scripted players the game is worth 0.11 to 0.20 to pursuer; a scripted baseline is better "
        "in 1 of 4 match-ups")
    assert [verdict_word(text) for text in findings(history)] == ["lopsided", "weak", "improving"]


def test_gap_alarm_of_a_solved_game_does_not_depend_on_progress() -> None:
    history = [lopsided_row(step, 0.06, score, 0.99) | {"exact": {"played": 0.06, "value": 0.5}}
               for step, score in ((0, 0.2), (900_000, 0.8))]
    assert word([*history, history[1] | {"step": 1_500_000}]) == "collapsed"


def test_verdict_weak() -> None:
    text = verdict([row(0), row(1000, rate=0.75, score=0.5, best=0.9)])
    assert text.startswith("weak: loses to scripted baselines in 4 of 4 match-ups; worst: ")
    assert text.endswith(" wins 50 % [47–53], ace 90 %")


def test_verdict_weak_is_a_plain_sentence() -> None:
    last = row(1000, rate=0.75)
    last["table"] = [match_row("pursuer", "random", 0.152, 250, best=0.98),
                     match_row("evader", "lion", 0.5, 250, best=0.9)]
    last["table"][0]["best_bot"] = "lead_pursuit"
    assert verdict_text(verdict([last])) == (
        "WEAK: loses to scripted baselines in 2 of 2 match-ups; worst: pursuer against random wins 15 % "
        "[11–20], lead_pursuit 98 %")
    last["table"][0]["draws"] = 3
    assert "pursuer against random scores 15 % [11–20]" in verdict([last])


def test_verdict_weak_names_the_worst_match_up() -> None:
    last = row(1000, rate=0.75, score=0.7, best=0.7)
    last["table"][1] = match_row("pursuer", "y", 0.5, best=0.7)
    last["table"][2] = match_row("evader", "x", 0.2, best=0.8)
    first = row(0, score=0.2)  # no score was ever higher
    assert "2 of 4 match-ups" in verdict([first, last])
    assert "worst: evader against x wins 20 %" in verdict([first, last])


def test_verdict_of_overlapping_intervals_is_not_weak() -> None:
    assert word([row(0, score=0.72), row(1000, rate=0.75, score=0.72, best=0.75)]) == "steady"


def test_verdict_balanced_but_weak() -> None:
    """A frozen pair is perfectly balanced: balance alone proves nothing."""
    assert word([row(0), row(1000, rate=0.5, score=0.5, best=0.9)]) == "balanced but weak"
    # the gap's upper bound decides, not its value: 0.26 of 1000 games is below 0.30 only by the value
    assert row(0, 0.63)["gap"] < 0.30 < row(0, 0.63)["gap_high"]
    assert word([row(0), row(1000, rate=0.63, score=0.5, best=0.9)]) == "weak"


def test_verdict_improving_steady_declining() -> None:
    for score, wanted in (
        (0.7, "improving"),
        (0.62, "steady"),
        (0.6, "steady"),
        (0.58, "steady"),
        (0.5, "declining"),
    ):
        assert word([row(0), row(500, score=0.1), row(1000, score=score)]) == wanted, score
    assert verdict([row(0), row(1000, score=0.7)]) == (
        "improving: mean score against scripted opponents 0.600 at first, 0.700 now"
    )


def test_verdict_inconclusive() -> None:
    assert verdict([]) == "inconclusive: there is no evaluation yet"
    assert verdict([row(0)]) == "inconclusive: there is only one evaluation"


@pytest.mark.parametrize("score", [0.6, 0.7, 0.5])
def test_verdict_ignores_a_change_within_the_noise(score: float) -> None:
    """Twenty games per match-up cannot distinguish 0.6 from 0.7, nor prove that nothing changed."""
    text = verdict([row(0, games=20), row(1000, score=score, games=20)])
    assert text.startswith("inconclusive: mean score against scripted opponents 0.600 at first")
    need = int(text.partition("about ")[2].partition(" ")[0])
    assert 100 < need < 1000
    assert word([row(0, games=need), row(1000, score=score, games=need)]) != "inconclusive"
    assert word([row(0, score=0.1, games=20), row(1000, score=0.9, games=20)]) == "improving"


def test_verdict_of_one_game_is_inconclusive() -> None:
    history = [{"step": i, "rates": {}, "table": [match_row("player", "x", float(i), 1)]} for i in (0, 1)]
    assert word(history) == word(history[::-1]) == "inconclusive"


def test_verdict_word_reads_stored_verdicts() -> None:
    assert verdict_word("balanced but weak: loses") == verdict_word("BALANCED BUT WEAK: loses")
    assert verdict_word("collapsed") == "collapsed" and verdict_text("collapsed") == "COLLAPSED"
    assert verdict_text("weak: A\x1b[2J: b") == "WEAK: A [2J: b"


# --- compared match-ups ------------------------------------------------------------------------------------


def test_verdict_compares_common_match_ups_only() -> None:
    """An evaluation against the easy opponents alone is not an improvement."""
    first, last = row(0), row(1000)
    first["table"] = [match_row("pursuer", "easy", 0.9), match_row("pursuer", "hard", 0.1)]
    last["table"] = [match_row("pursuer", "easy", 0.9)]
    assert word([first, last]) == "steady"
    last["table"] = [match_row("pursuer", "other", 0.9)]
    assert word([first, last]) == "inconclusive"
    first["table"], last["table"] = [], []
    assert word([first, last]) == "inconclusive"


def against_random(step: int, score: float, **changes: Any) -> Row:
    """An evaluation as recipe ra1 makes it: both roles play `random` and no other scripted opponent."""
    table = [match_row(role, "random", score, best=changes.get("best")) for role in ("pursuer", "evader")]
    return row(step, **changes) | {"table": table}


def test_verdict_praises_no_run_that_played_only_random_opponents() -> None:
    """RA1: a pair that beats `random` more often may still lose to every scripted opponent."""
    text = verdict([against_random(0, 0.5), against_random(1000, 0.9)])
    assert text == (
        "inconclusive: mean score against scripted opponents 0.500 at first, 0.900 now; only random was "
        "played, so strength was not measured: rematch eval RUN plays every scripted opponent, "
        "rematch exploit RUN trains best responses")
    assert word([against_random(0, 0.9), against_random(1000, 0.9)]) == "inconclusive", "not steady"
    assert word([against_random(0, 0.6), against_random(1000, 0.5)]) == "declining", "bad news is news"
    assert word([against_random(0, 0.5), against_random(1000, 0.9, best=0.99)]) == "balanced but weak"
    converged = against_random(1000, 0.9) | {"converged": True, "balanced": 3, "gap_low": 0.0}
    texts = findings([against_random(0, 0.5), converged])
    assert texts[0].startswith("inconclusive: 3 evaluations in a row with a small NE gap")
    assert all("only random was played" in text for text in texts)
    mixed = [row(0) | {"table": [match_row("pursuer", name, score) for name in ("random", "x")]}
             for score in (0.5, 0.9)]
    assert word(mixed) == "improving", "one scripted opponent beside it is evidence"


def test_verdict_of_a_lopsided_run_says_that_only_random_was_played() -> None:
    history = [against_random(0, 0.5, rate=0.95), against_random(600_000, 0.9, rate=0.95)]
    text = verdict(history)
    assert verdict_word(text) == "lopsided" and "only random was played" in text


def test_verdict_of_a_world_with_one_role() -> None:
    history = [
        {"step": step, "rates": {}, "table": [match_row("player", "x", score)]}
        for step, score in ((0, 0.4), (9, 0.7))
    ]
    assert word(history) == "improving"
    weak = [*history, {"step": 10, "rates": {}, "table": [match_row("player", "x", 0.7, best=0.9)]}]
    assert word(weak) == "weak"  # without a gap it cannot be balanced


# --- converged ---------------------------------------------------------------------------------------------


def test_balanced_evaluations_are_the_newest_in_a_row() -> None:
    def phased(name: str, rate: float) -> Row:
        return row(0, rate) | {"phase": name}

    even, uneven = phased("S3", 0.5), phased("S3", 0.6)
    assert even["gap_high"] < 0.1 < uneven["gap_high"] and uneven["gap"] == pytest.approx(0.2)
    for history, count in (([], 0), ([even], 1), ([even, uneven], 0), ([uneven, even, even], 2),
                           ([phased("S0", 0.5), even], 1), ([even, phased("S0", 0.5)], 0)):  # fmt: skip
        assert count_balanced(history, 0.1) == count
    assert count_balanced([even], even["gap_high"]) == 0  # the bound itself is not below


def test_balanced_evaluations_on_an_easier_level_do_not_count() -> None:
    rows = [row(0) | {"phase": "S1", "level": level} for level in (0, 0, 1)]
    assert count_balanced(rows, 0.1) == 1 and count_balanced(rows[:2], 0.1) == 2


def test_verdict_on_a_harder_level_is_neither_forgetting_nor_declining() -> None:
    """The same pair scores less where games are harder: nothing was lost."""
    easy = [row(step, score=0.9) | {"level": 0} for step in (0, 1000)]
    hard = [row(step, score=0.5) | {"level": 1} for step in (2000, 3000)]
    assert verdict([*easy, hard[0]]) == "inconclusive: there is only one evaluation on this level"
    assert findings([*easy, *hard]) == [
        "steady: mean score against scripted opponents 0.500 at first, 0.500 now"]
    back = row(4000, score=0.5) | {"level": 0}  # on the easy level again, the loss shows
    assert word([*easy, *hard, back]) == "forgetting"


def test_verdict_converged_needs_the_flag_and_no_better_baseline() -> None:
    ended = row(1000, best=0.6) | {"converged": True, "balanced": 3, "gap_low": 0.0}
    assert verdict([row(0), ended]).startswith(
        "converged: 3 evaluations in a row with a small NE gap, the last 0.000")
    assert word([row(0, 0.1), row(500, 0.9), ended]) == "collapsed"
    worse = row(1000, best=0.9) | {"converged": True}
    assert len(module.below_baseline(Evaluation.from_json(worse))) == 4
    assert word([row(0), worse]) == "balanced but weak"
    assert word([row(0), ended, row(2000)]) != "converged"  # a later evaluation is judged again


# --- known dynamics (docs/explanation/strength.md) ---------------------------------------------------------


def matrix(chances: Any, games: int = 100, roles: tuple[str, ...] = ("pursuer", "evader")) -> Payoff:
    """The payoff matrix of past policies with these chances [k, k], sampled with `games` games per match."""
    table = np.asarray(chances)
    wins = np.random.default_rng(7).binomial(games, table).astype(np.int64)
    steps = tuple(range(1000, 1000 * len(table) + 1, 1000))
    return Payoff(roles=roles, iterations=steps, steps=steps, games=games, wins=wins, draws=0 * wins)


def cycles(k: int) -> list[list[float]]:
    return [[(0.5, 0.95, 0.05)[(i - j) % 3] for j in range(k)] for i in range(k)]


def progress(k: int) -> list[list[float]]:
    return [[1 / (1 + math.exp(0.3 * (j - i))) for j in range(k)] for i in range(k)]


def test_verdict_of_rock_paper_scissors_is_cycling() -> None:
    """Each checkpoint beats the one before it and loses to the one before that."""
    for roles in (("pursuer", "evader"), ("player",)):
        text = verdict([row(0), row(1000)], matrix(cycles(12), roles=roles))
        assert text.startswith("cycling: cycles explain 1.00 [1.00, 1.00] of the score differences")
    improving = [row(0, score=0.3), row(1000, score=0.6)]
    assert verdict(improving, matrix(cycles(12))).startswith("cycling")
    assert findings(improving, matrix(cycles(12)))[-1].startswith("improving")


def test_verdict_of_a_frozen_pair_is_balanced_but_weak() -> None:
    """A learning rate of 0: all policies are the same, the gap is 0, and scripted players score more."""
    same = matrix([[0.5] * 10 for _ in range(10)])
    history = [row(0, score=0.3), row(500, score=0.3), row(1000, score=0.3, best=0.8)]
    assert verdict(history, same).startswith("balanced but weak: loses to scripted baselines in 4 of 4")
    assert list(map(verdict_word, findings(history, same))) == ["balanced but weak", "steady"]


def test_verdict_of_a_lost_skill_is_forgetting() -> None:
    """Against a scripted opponent, and against past policies where no scripted opponent shows it."""
    last = row(3000, score=0.7)
    last["table"][0] = match_row("pursuer", "x", 0.4)
    history = [row(0, score=0.5), row(1000, score=0.7), row(2000, score=0.7), last]
    assert verdict(history).startswith(
        "forgetting: pursuer against x scored 0.700 at step 1,000 and scores 0.400 now: a drop of 0.3")
    chances = progress(10)
    for i in range(10):
        chances[i][3] = 0.2 if i == 9 else 0.9
    text = verdict([row(0), row(1000)], matrix(chances))
    assert text.startswith("forgetting: against the opponent of step 4,000 the pursuer of step")
    assert word(history[:3]) == "improving"


def test_verdict_of_progress_is_improving_and_of_noise_inconclusive() -> None:
    history = [row(0, score=0.5), row(1000, score=0.7)]
    assert findings(history, matrix(progress(12))) == [
        "improving: mean score against scripted opponents 0.500 at first, 0.700 now"]
    bare = [{"step": step, "rates": {}, "table": []} for step in (0, 1000)]  # no scripted players
    assert verdict(bare) == verdict(bare[:1]) == (
        "inconclusive: no scripted player was met, so strength was not measured: rematch exploit RUN trains "
        "best responses")
    other = [row(0), row(1000) | {"table": [match_row("pursuer", "other", 0.5)]}]
    assert verdict(other) == "inconclusive: the first and the newest evaluation share no scripted opponent"
    assert verdict(bare, matrix(progress(12), roles=("player",))).startswith(
        "improving: the newest policies score 0.9")
    assert verdict(bare, matrix([[0.5] * 9] * 9)).startswith("inconclusive")
    assert verdict([row(0, 0.1), row(1000, 0.9)], matrix(cycles(12))).startswith("collapsed")


def test_verdict_of_sampling_noise_is_not_forgetting() -> None:
    """Sixty evaluations of the same policies: the best of them is not a lost skill."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        history = [row(i, score=generator.binomial(100, 0.5) / 100, games=100) for i in range(60)]
        assert "forgetting" not in map(verdict_word, findings(history))


# --- returns -----------------------------------------------------------------------------------------------

BOT = {"best_bot": "random", "best_bot_mean": 60.0, "best_bot_low": 55.0, "best_bot_high": 65.0}

RETURN_VERDICTS = [
    ([return_row(10, 3)], "inconclusive: there is only one evaluation"),
    ([return_row(10, 3), return_row(50, 3)], "improving: mean return 10 at first, 50 now"),
    ([return_row(-10, 3), return_row(-50, 3)], "declining: mean return -10 at first, -50 now"),
    ([return_row(100, 2), return_row(101, 2)], "steady: mean return 100 at first, 101 now"),
    ([return_row(500, 0), return_row(500, 0)], "steady: mean return 500 at first, 500 now"),
    ([return_row(0, 0), return_row(0, 0)], "steady: mean return 0 at first, 0 now"),
    ([return_row(10, 8), return_row(12, 8)],
     "inconclusive: mean return 10 at first, 12 now, change +2 ± 11.31; about 7112 games"),
    ([return_row(10, None), return_row(12, None)],
     "inconclusive: mean return 10 at first, 12 now, change +2 ± inf"),
    ([return_row(10, 3), return_row(50, 3, **BOT)],
     "weak: mean return 50 [47, 53]; scripted baseline random reaches 60"),
    ([return_row(10, 3), return_row(50, 6, **BOT)], "improving: mean return 10 at first, 50 now"),
]


@pytest.mark.parametrize(
    ("history", "text"), RETURN_VERDICTS, ids=[text[:30] for _, text in RETURN_VERDICTS])
def test_verdict_by_returns(history: list[Row], text: str) -> None:
    assert Evaluation.from_json(history[-1]).judged_by_returns
    assert verdict(history).startswith(text)
