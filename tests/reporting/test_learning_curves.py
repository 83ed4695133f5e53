"""learning.png: equal bytes for equal rows, quick for long runs, complete for short ones."""

from __future__ import annotations

import io
import itertools
import math
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rematch.reporting import learning_curves
from rematch.reporting.learning_curves import learning

ROLES = ("pursuer", "evader")


def evaluations(count: int, opponents: int = 5) -> list[dict[str, Any]]:
    rows = []
    for i in range(count):
        rate = 0.5 + 0.3 * math.cos(i) / (i + 1)
        rates = {role: {"rate": r, "low": r - 0.03, "high": r + 0.03, "games": 1000}
                 for role, r in zip(ROLES, (rate, 1 - rate))}
        table = [{"player": f"{role} (learnt)", "role": role, "rival": f"opponent_{k}", "games": 1000,
                  "wins": 900, "draws": 0, "score": 0.9 - k / 20, "low": 0.88 - k / 20, "high": 0.92 - k / 20,
                  "best_bot": "bot", "best_bot_score": 0.7, "best_bot_low": 0.67, "best_bot_high": 0.73}
                 for role in ROLES for k in range(opponents)]
        rows.append({"iteration": i, "step": (i + 1) * 100_000, "phase": i, "role": "both", "rates": rates,
                     "gap": abs(2 * rate - 1), "gap_high": abs(2 * rate - 1) + 0.06, "table": table})
    return rows


def iterations(count: int) -> list[dict[str, Any]]:
    return [
        {
            "iteration": i,
            "step": (i + 1) * 32_768,
            "games": 10 * i,
            **{
                f"{role}/{key}": abs(math.sin(i)) + 0.1 for role in ROLES for key, _ in learning_curves.CURVES
            },
            "rollout/win_pursuer": 0.5,
        }
        for i in range(count)
    ]


def test_picture_of_equal_rows_has_equal_bytes_with_any_style() -> None:
    import matplotlib

    data = learning(evaluations(4), iterations(50), "a run")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert data == learning(evaluations(4), iterations(50), "a run")
    assert b"matplotlib" not in data, "no version in the file"
    assert data != learning(evaluations(5), iterations(50), "a run")


@pytest.mark.parametrize(("rows", "steps"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_picture_of_a_short_run(rows: int, steps: int) -> None:
    assert Image.open(io.BytesIO(learning(evaluations(rows), iterations(steps)))).size == (1500, 860)


def test_picture_of_a_long_run_is_quick() -> None:
    history, metrics = evaluations(200), iterations(10_000)
    learning(evaluations(2), iterations(2), "short")  # imports the library
    began = time.process_time()
    learning(history, metrics, "long")
    assert time.process_time() - began < 3


def test_one_role_has_no_empty_panel_head_to_head(monkeypatch: pytest.MonkeyPatch) -> None:
    panels: list[str] = []
    monkeypatch.setattr(learning_curves, "_finish", lambda axes, title, *rest: panels.append(title))
    rows = [row | {"rates": {}, "gap": None, "gap_high": None,
                   "table": [entry for entry in row["table"] if entry["role"] == "evader"]}
            for row in evaluations(3)]
    own = [{key: value for key, value in row.items() if "pursuer" not in key} for row in iterations(5)]
    learning(rows, own, "a card game")
    assert panels == ["evader against scripted opponents"]
    learning(evaluations(3), iterations(5), "two roles")
    assert panels[1:] == ["trained policies head to head", "pursuer against scripted opponents",
                          "evader against scripted opponents"]


def test_picture_of_hostile_names_and_damaged_rows() -> None:
    history = evaluations(2, opponents=20)
    history[0]["rates"] = None
    history[1]["table"][0]["rival"] = "$\\frac{1}{$ <b>\n" * 5
    history[1]["table"][1]["low"] = None
    history[1]["table"][2]["score"] = float("nan")
    history.append({"step": "x"})
    metrics = iterations(3)
    metrics[1]["pursuer/kl"] = None
    metrics[2]["evader/value_loss"] = float("inf")
    metrics[0]["evader/entropy"] = 10**400
    data = learning(history, [*metrics, None], "$x_{$ \x1b[31m")  # type: ignore[list-item]
    assert len(data) > 10_000


def test_picture_loads_no_pyplot() -> None:
    code = (
        "import sys\nfrom rematch.reporting.learning_curves import learning\n"
        "assert 'matplotlib' not in sys.modules\n"
        "learning([], [])\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@given(st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=16))
def test_labels_keep_order_and_distance(heights: list[float]) -> None:
    spread = learning_curves._spread(sorted(heights), 0.058)
    assert len(spread) == len(heights)
    assert all(b - a > 0.0579 for a, b in itertools.pairwise(spread))
    assert spread[-1] <= 1.0501


@given(st.integers(1, 300), st.integers(1, 40))
def test_bins_have_every_row_once(rows: int, width: int) -> None:
    x, y = np.arange(rows, dtype=np.float64), np.random.default_rng(rows).normal(size=rows)
    ends, mean, low, high = learning_curves._binned(x, y, width)
    groups = [y[i:i + width] for i in range(0, rows, width)]
    assert np.allclose(mean, [g.mean() for g in groups])
    assert np.array_equal(low, [g.min() for g in groups]) and np.array_equal(high, [g.max() for g in groups])
    assert ends[-1] == rows - 1


def test_lines_to_names_of_curves_cross_no_name() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation, Text

    rows = evaluations(4, opponents=7)
    for row in rows:
        for k, entry in enumerate(row["table"]):
            entry["score"] = 1.0 - (k % 7) / 200  # all names move
    figure = Figure(figsize=(15, 8.6), dpi=100)
    canvas = FigureCanvasAgg(figure)
    learning_curves._compose(figure, rows, iterations(50), "a run")
    canvas.draw()
    names = [one for one in figure.findobj(Annotation) if one.get_text()]
    boxes = [(name.get_text(), Text.get_window_extent(name).padded(-1)) for name in names]  # without lines
    for name in names:
        assert name.arrow_patch is not None
        line = name.arrow_patch.get_transform().transform_path(name.arrow_patch.get_path())
        crossed = [text for text, box in boxes if line.intersects_bbox(box, filled=False)]
        assert crossed == [], name.get_text()


def test_caption_names_n() -> None:
    assert "n = 1000 games" in learning_curves._caption({1000, None}, 10, 0)
    assert "n = 100 to 1000 games" in learning_curves._caption({1000, 100}, 10, 0)
    assert "n = 500 iterations; means of 5" in learning_curves._caption(set(), 500, 0)
    assert "2 more roles" in learning_curves._caption(set(), 0, 2)


@pytest.mark.parametrize(
    ("key", "curves"), [("q_mean", learning_curves.Q_CURVES), ("kl", learning_curves.CURVES)]
)
def test_curves_are_those_that_the_learner_logs(
    key: str, curves: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    curves_drawn: list[tuple[str, str]] = []
    monkeypatch.setattr(
        learning_curves, "_training", lambda axes, metrics, roles, curve: curves_drawn.append(curve)
    )
    learning_curves.learning([], [{"step": 1, f"pad/{key}": 0.5}])
    assert tuple(curves_drawn) == curves
