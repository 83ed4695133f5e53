"""Seeds together: the interquartile mean, its band, and curves that were measured at other steps."""

from __future__ import annotations

import numpy as np

from rematch.evaluation.bands import aligned, band


def test_a_band_holds_the_truth_about_as_often_as_it_says() -> None:
    luck = np.random.default_rng(1)
    centre, low, high = band(luck.normal(size=(10, 60)))
    assert (low <= centre).all() and (centre <= high).all()
    assert 0.8 < np.mean((low < 0) & (high > 0)) <= 1.0  # few seeds: a bootstrap is a little too sure


def test_one_seed_says_nothing_about_others() -> None:
    centre, low, high = band(np.array([[0.25, 0.5]]))
    assert list(centre) == [0.25, 0.5] and np.isnan(low).all() and np.isnan(high).all()


def test_curves_meet_at_the_steps_of_the_coarsest() -> None:
    fine = ([10.0, 20.0, 30.0, 40.0], [0.0, 1.0, 2.0, 3.0])
    grid, values = aligned([fine, ([15.0, 40.0, 60.0], [5.0, 6.0, 7.0])])
    assert list(grid) == [15.0, 40.0] and values.tolist() == [[0.5, 3.0], [5.0, 6.0]]
    assert aligned([([1.0], [1.0]), ([5.0], [2.0])])[1].shape == (2, 0)  # they never overlap
