"""Always-valid intervals: whoever looks after every game errs in 5 % of the matches at most."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from rematch.evaluation.confidence_sequence import (
    ALPHA,
    LARGEST_BET,
    ConfidenceSequence,
    asymptotic_half_width,
)
from rematch.evaluation.statistics import wilson

MATCHES, GAMES = 600, 1500
NOISE = 2.3 * (ALPHA * (1 - ALPHA) / MATCHES) ** 0.5  # of a simulated error rate, 99 % one-sided


def ever_excluded(sequence: ConfidenceSequence, mean: float) -> bool:
    """Whether the interval excludes the mean after any of the values: the capital at the mean."""
    for values, m in ((sequence.values, mean), (1 - sequence.values, 1 - mean)):
        bets = np.minimum(sequence.bets, LARGEST_BET / m)
        if np.cumsum(np.log1p(bets * (values - m))).max() >= log(2 / ALPHA):
            return True
    return False


@pytest.mark.parametrize("p", [0.02, 0.5, 0.8])
@pytest.mark.parametrize(
    ("half_width", "threshold"), [(0.01, None), (0.05, None), (0.005, 0.5), (0.005, 0.8)]
)
def test_continuous_peeking_errs_in_at_most_five_percent(
    p: float, half_width: float, threshold: float | None
) -> None:
    random = np.random.default_rng(round(1000 * p))
    errors = 0
    for _ in range(MATCHES):
        sequence = ConfidenceSequence(half_width, threshold)
        sequence.add(random.random(GAMES) < p)
        errors += ever_excluded(sequence, p)
    assert errors / MATCHES <= ALPHA + NOISE


def test_fixed_interval_would_err_far_more_often() -> None:
    """The control: Wilson's interval with a look every ten games."""
    random = np.random.default_rng(1)
    errors = 0
    for _ in range(200):
        wins = np.cumsum(random.random(GAMES) < 0.5)
        bounds = [wilson(int(wins[n - 1]), n) for n in range(10, GAMES + 1, 10)]
        errors += any(not low <= 0.5 <= high for low, high in bounds)
    assert errors / 200 > 0.2


def test_draws_and_deals_are_values_between_zero_and_one() -> None:
    random = np.random.default_rng(2)
    errors = 0
    for _ in range(MATCHES):
        sequence = ConfidenceSequence(0.02)
        sequence.add(random.choice([0.0, 0.25, 0.5, 1.0], GAMES, p=[0.4, 0.2, 0.2, 0.2]))
        errors += ever_excluded(sequence, 0.35)
    assert errors / MATCHES <= ALPHA + NOISE
    with pytest.raises(ValueError):
        ConfidenceSequence(0.02).add(np.array([1.5]))


def test_values_in_parts_give_the_same_bets_and_a_narrower_or_equal_interval() -> None:
    values = np.random.default_rng(3).random(400) < 0.6
    whole, parts = ConfidenceSequence(0.03), ConfidenceSequence(0.03)
    whole.add(values)
    for start in range(0, 400, 37):
        before = parts.low, parts.high
        parts.add(values[start : start + 37])
        assert before[0] <= parts.low <= parts.mean <= parts.high <= before[1]
    assert np.array_equal(whole.bets, parts.bets)
    assert parts.low >= whole.low and parts.high <= whole.high
    parts.add(np.empty(0))
    assert parts.n == 400


def test_wanted_precision_takes_less_than_twice_the_games_of_a_fixed_match() -> None:
    random = np.random.default_rng(4)
    for p in (0.5, 0.9):
        sequence = ConfidenceSequence(0.02)
        while sequence.precision > 0.02:
            sequence.add(random.random(100) < p)
        fixed = 1.96**2 * p * (1 - p) / 0.02**2
        assert fixed < sequence.n < 2.2 * fixed


def test_threshold_is_decided_on_the_right_side() -> None:
    random = np.random.default_rng(5)
    for p in (0.4, 0.6):
        sequence = ConfidenceSequence(0.005, 0.5)
        while sequence.low <= 0.5 <= sequence.high:
            sequence.add(random.random(50) < p)
        assert (sequence.low > 0.5) == (p > 0.5) and sequence.n < 3000


def test_asymptotic_sequence_errs_in_at_most_five_percent() -> None:
    random = np.random.default_rng(6)
    n = np.arange(50, 3001)
    widths = np.array([asymptotic_half_width(int(i), 1000) for i in n])
    errors = 0
    for _ in range(MATCHES):
        means = (np.cumsum(random.standard_normal(3000)) / np.arange(1, 3001))[49:]
        errors += bool((np.abs(means) > widths).any())
    assert errors / MATCHES <= ALPHA + NOISE
    assert 2.5 < 1000**0.5 * asymptotic_half_width(1000, 1000) < 3.2
