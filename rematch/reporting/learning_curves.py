"""learning.png: strength of the policies and metrics of learning, over steps of all games.

The module uses Figure objects only (no pyplot, so no global state) and matplotlib's default style, so that
the same history gives the same bytes with any matplotlibrc. The colours are those of Okabe and Ito, which are
distinct with any colour vision (jfly.uni-koeln.de/color). As in films, the first role (pursuer) is red and
the second (evader) blue.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rematch.evaluation.text import clean, human
from rematch.reporting.text import roles_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Array = NDArray[np.float64]

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
GREY = "#555555"
MOST_POINTS = 100  # points of a curve; longer logs are averaged in bins of consecutive iterations
MOST_ROLES, MOST_OPPONENTS = 3, 14  # that fit; the caption names the number of omitted roles
CURVES = (("entropy", "entropy (nats)"), ("kl", "KL from the old policy (nats)"),
          ("value_loss", "value loss"), ("explained_variance", "explained variance"))
Q_CURVES = (("q_mean", "mean Q"), ("td_error", "TD error"), ("loss", "loss"),
            ("epsilon_mean", "exploration rate"))


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line with its 95 % band: x, y, low, high [n]; `baseline`: the best scripted player."""

    name: str
    x: Array
    y: Array
    low: Array
    high: Array
    baseline: float = math.nan


def learning(history: Sequence[Row], metrics: Sequence[Row], title: str = "") -> bytes:
    """A PNG of evaluation rows (history.json) and iteration rows (metrics.jsonl)."""
    import matplotlib.style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.style.context("default"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing glyphs, which are drawn as boxes
        figure = Figure(figsize=(15, 8.6), dpi=100, facecolor="white")
        FigureCanvasAgg(figure)
        _compose(figure, history, metrics, title)
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": None})  # no version: equal bytes
    return out.getvalue()


def _compose(figure: Figure, history: Sequence[Row], metrics: Sequence[Row], title: str) -> None:
    history = [row for row in history if isinstance(row, Mapping)]
    metrics = [row for row in metrics if isinstance(row, Mapping)]
    roles = _roles(history, metrics)
    figure.text(0.012, 0.966, _label(title or "learning", 110), fontsize=15, weight="bold", va="center")
    one_seat = _has_one_seat(history)
    if one_seat:
        # returns are long numbers
        grid = figure.add_gridspec(1, 1, left=0.07, right=0.865, top=0.895, bottom=0.51)
        _returns(figure.add_subplot(grid[0]), history, roles)
    else:
        _matches(figure, history, roles)
    q_learning = any(str(key).endswith("/q_mean") for row in metrics for key in row)
    lower = figure.add_gridspec(1, len(CURVES), left=0.045, right=0.985, top=0.39, bottom=0.12, wspace=0.27)
    for i, curve in enumerate(Q_CURVES if q_learning else CURVES):
        _training(figure.add_subplot(lower[i]), metrics, roles, curve)
    caption = _caption(_games(history), len(metrics), len(roles) - MOST_ROLES, one_seat)
    figure.text(0.012, 0.025, caption, fontsize=9.5, color=GREY)


def _has_one_seat(history: Sequence[Row]) -> bool:
    """Whether the evaluations hold returns alone."""
    no_matches = all(not _rates(row) and not row.get("table") for row in history)
    return no_matches and any(row.get("returns") for row in history)


def _games(history: Sequence[Row]) -> set[Any]:
    """The numbers of games of all points in the upper row."""
    games: set[Any] = {rate.get("games") for row in history for rate in _rates(row).values()}
    games |= {entry.get("games") for row in history for entry in (row.get("returns") or {}).values()}
    return games | {entry.get("games") for row in history for entry in row.get("table") or []}


def _caption(games: set[Any], iterations: int, omitted_roles: int, one_seat: bool = False) -> str:
    counts = sorted(g for g in games if isinstance(g, int))
    if counts:
        n = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
        marker = "Dashed line" if one_seat else "Diamonds at the right edge"
        sentences = [f"Upper row: n = {n} games per point; bands are 95 % intervals. {marker}: the best "
                     "scripted player of that role."]
    else:
        sentences = ["Upper row: no games yet."]
    width = _bin_width(iterations)
    sentences.append(f"Lower row: n = {iterations} iteration{'s' * (iterations != 1)}"
                     + (f"; means of {width} iterations and their range." if width > 1 else "."))
    if omitted_roles > 0:
        sentences.append(f"{omitted_roles} more roles are not drawn.")
    return "  ".join(sentences)


# --- the upper row: strength ------------------------------------------------------------------------


def _matches(figure: Figure, history: Sequence[Row], roles: Sequence[str]) -> None:
    """Head to head where there are several roles, then a panel for the scripted opponents of every role."""
    shown = roles[:MOST_ROLES] or [""]
    head = len(roles) != 1 or any(_rates(row) or row.get("exact") for row in history)
    grid = figure.add_gridspec(1, head + len(shown), left=0.045, right=0.865, top=0.895, bottom=0.51,
                               wspace=0.76)
    if head:
        _head_to_head(figure.add_subplot(grid[0]), history, roles)
    for i, role in enumerate(shown):
        panel = figure.add_subplot(grid[head + i])
        _draw_curves(panel, _opponents(history, role)[:MOST_OPPONENTS], history)
        _finish(panel, f"{role or 'score'} against scripted opponents", "score (win 1, draw ½)", history)


def _head_to_head(axes: Axes, history: Sequence[Row], roles: Sequence[str]) -> None:
    curves = []
    for role in roles:
        rows = [(row, _rates(row)[role]) for row in history if role in _rates(row)]
        curves.append(_curve(role, rows, "rate"))
    _draw_curves(axes, curves[:5], history)
    x, gap, bound = (np.array([_float(row.get(key)) for row in history], dtype=np.float64)
                     for key in ("step", "gap", "gap_high"))
    finite = np.isfinite(x) & np.isfinite(gap)
    if finite.any():
        axes.plot(x[finite], gap[finite], color=GREY, lw=1.6, ls=(0, (4, 2)), label="NE gap",
                  marker="." if finite.sum() < 3 else "")
        axes.plot(x[finite], bound[finite], color=GREY, lw=1.0, ls=(0, (1, 2)),
                  label="upper bound of the gap", marker="_" if finite.sum() < 3 else "")
    exact = np.array([_float((row.get("exact") or {}).get("nash_conv")) for row in history], dtype=np.float64)
    solved = np.isfinite(x) & np.isfinite(exact)
    if solved.any():
        axes.plot(x[solved], exact[solved], color="#000000", lw=2.0, marker="." if solved.sum() <= 40 else "",
                  label=f"NashConv (exact) {exact[solved][-1]:.3f}")
    if finite.any() or solved.any():
        axes.legend(loc="upper right", fontsize=8, frameon=False, ncols=2, bbox_to_anchor=(1.02, 1.0),
                    handlelength=2.4)
    _finish(axes, "trained policies head to head", "win rate", history)


def _returns(axes: Axes, history: Sequence[Row], roles: Sequence[str]) -> None:
    """Mean returns with their bands; the best scripted player as a dashed line."""
    for i, role in enumerate(roles[: len(COLOURS)]):
        entries = [(row, row["returns"][role]) for row in history if role in (row.get("returns") or {})]
        curve, colour = _curve(role, entries, "mean"), COLOURS[i]
        if not len(curve.x):
            continue
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.16, lw=0)
        marker = MARKERS[i] if len(history) <= 40 else ""
        axes.plot(curve.x, curve.y, color=colour, lw=1.8, marker=marker, ms=4,
                  label=f"{_label(role, 22)} {curve.y[-1]:.4g}")
        bot = _float(entries[-1][1].get("best_bot_mean"))
        if math.isfinite(bot):
            name = _label(entries[-1][1].get("best_bot", "scripted"), 22)
            axes.axhline(bot, color=colour, lw=1.2, ls=(0, (4, 2)), label=f"{name} {bot:.4g}")
    axes.legend(loc="center left", fontsize=9, frameon=False, bbox_to_anchor=(1.01, 0.5))
    _frame(axes, "mean return of an episode", "return", [_float(row.get("step")) for row in history])


def _draw_curves(axes: Axes, curves: Sequence[Curve], history: Sequence[Row]) -> None:
    """Lines with bands, then their names to the right of the frame, moved apart where they would overlap."""
    ends: list[tuple[float, str, str]] = []
    few = len(history) <= 40
    for i, curve in enumerate(curves):
        if not len(curve.x):
            continue
        colour, dashed = COLOURS[i % len(COLOURS)], i >= len(COLOURS)
        if len(curve.x) == 1:  # a band of one point has no area
            bars = np.abs([curve.y - curve.low, curve.high - curve.y])
            axes.errorbar(curve.x, curve.y, yerr=bars, color=colour, capsize=3, lw=1.2)
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.16, lw=0)
        axes.plot(curve.x, curve.y, color=colour, lw=1.8, ls="--" if dashed else "-",
                  marker=MARKERS[i % len(MARKERS)] if few else "", ms=4)
        if math.isfinite(curve.baseline):
            axes.plot([1.0], [curve.baseline], marker="D", ms=6, mfc="white", mec=colour, mew=1.6, ls="",
                      transform=axes.get_yaxis_transform(), clip_on=False, zorder=5)
        ends.append((float(curve.y[-1]), f"{curve.y[-1]:.2f} {_label(curve.name, 23)}", colour))
    for y, (height, name, colour) in zip(_spread([end[0] for end in sorted(ends)], 0.058), sorted(ends)):
        axes.annotate(name, (1.0, height), xytext=(1.075, y), fontsize=8.5, color=colour, va="center",
                      xycoords=axes.get_yaxis_transform(), textcoords=axes.get_yaxis_transform(),
                      arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkA": 2, "shrinkB": 5,
                                  "relpos": (0, 0.5)},
                      annotation_clip=False)


def _finish(axes: Axes, title: str, ylabel: str, history: Sequence[Row]) -> None:
    axes.set_ylim(-0.02, 1.09)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.axhline(0.5, color="#bbbbbb", lw=0.8, zorder=0)
    if not axes.collections:  # no band, so no curve
        axes.text(0.5, 0.56, "no evaluation yet", transform=axes.transAxes, ha="center", color=GREY)
    _frame(axes, title, ylabel, [_float(row.get("step")) for row in history])


def _spread(heights: Sequence[float], spacing: float) -> list[float]:
    """Ascending heights moved at least `spacing` from each other, between 0 and 1.05 if they fit."""
    out: list[float] = []
    for height in heights:
        out.append(max(height, out[-1] + spacing) if out else max(height, 0.0))
    ceiling = max(1.05, spacing * (len(out) - 1))
    for i in reversed(range(len(out))):
        out[i] = min(out[i], ceiling)
        ceiling = out[i] - spacing
    return out


# --- the lower row: learning -----------------------------------------------------------------------


def _training(axes: Axes, metrics: Sequence[Row], roles: Sequence[str], curve: tuple[str, str]) -> None:
    """One metric of learning, a line per role: the mean of consecutive iterations, with their range."""
    from matplotlib.ticker import LogLocator, NullLocator

    key, name = curve
    steps = np.array([_float(row.get("step")) for row in metrics], dtype=np.float64)
    bounds = []
    for i, role in enumerate(roles):
        y = np.array([_float(row.get(f"{role}/{key}")) for row in metrics], dtype=np.float64)
        finite = np.isfinite(y) & np.isfinite(steps)
        if not finite.any():
            continue
        x, mean, low, high = _binned(steps[finite], y[finite], _bin_width(len(metrics)))
        colour, style = COLOURS[i % len(COLOURS)], "-" if i < len(COLOURS) else "--"
        axes.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
        axes.plot(x, mean, color=colour, lw=1.5, ls=style, label=_label(role, 18), marker="o" * (len(x) == 1))
        bounds += [low, high]
    if bounds:
        axes.legend(fontsize=8.5, frameon=False, loc="best", handlelength=1.4)
        least, most = float(np.concatenate(bounds).min()), float(np.concatenate(bounds).max())
        if key == "value_loss" and most > 5 * least > 0:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        elif key == "explained_variance":  # 1: perfect; 0: no better than a constant; below -1.05: cut
            axes.set_ylim(max(-1.05, min(-0.05, least - 0.05)), 1.05)
        elif key == "kl":
            axes.set_ylim(bottom=min(0.0, least))
    else:
        axes.text(0.5, 0.5, "no data yet", transform=axes.transAxes, ha="center", color=GREY)
    _frame(axes, name.partition(" (")[0], name, list(steps))


def _bin_width(rows: int) -> int:
    return max(1, math.ceil(rows / MOST_POINTS))


def _binned(x: Array, y: Array, width: int) -> tuple[Array, Array, Array, Array]:
    """Consecutive points in groups of `width`: last x, mean, smallest and largest y of each group."""
    starts = np.arange(0, len(x), width)
    sizes = np.diff(np.append(starts, len(x)))
    return (x[starts + sizes - 1], np.add.reduceat(y, starts) / sizes, np.minimum.reduceat(y, starts),
            np.maximum.reduceat(y, starts))


# --- reading rows ---------------------------------------------------------------------------------


def _frame(axes: Axes, title: str, ylabel: str, steps: Sequence[float]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(_label(title, 48), fontsize=11, loc="left")
    axes.set_xlabel("steps of all games", fontsize=9.5)
    axes.set_ylabel(ylabel, fontsize=9.5)
    axes.tick_params(labelsize=9)
    axes.xaxis.set_major_formatter(_tick)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    finite = [step for step in steps if math.isfinite(step)]
    axes.set_xlim(0, max(finite, default=1.0) * 1.02 or 1.0)
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _tick(value: float, _position: float) -> str:
    if abs(value) < 1000:
        return f"{value:g}"
    amount, _, letter = human(value).partition(" ")
    return f"{float(amount):g} {letter}"


def _roles(history: Sequence[Row], metrics: Sequence[Row]) -> list[str]:
    named = [role for row in history for role in _rates(row)]
    named += [str(entry.get("role")) for row in history[-1:] for entry in row.get("table") or []]
    return list(dict.fromkeys(named + [role for row in metrics[-1:] for role in roles_in(row)]))


def _rates(row: Row) -> Mapping[str, Row]:
    return row.get("rates") or {}


def _opponents(history: Sequence[Row], role: str) -> list[Curve]:
    rows: dict[str, list[tuple[Row, Row]]] = {}
    for row in history:
        for entry in row.get("table") or []:
            if entry.get("role") == role:
                rows.setdefault(str(entry.get("rival")), []).append((row, entry))
    return [_curve(name, pairs, "score") for name, pairs in rows.items()]


def _curve(name: str, rows: Sequence[tuple[Row, Row]], key: str) -> Curve:
    x = np.array([_float(row.get("step")) for row, _ in rows], dtype=np.float64)
    y, low, high = (np.array([_float(entry.get(k)) for _, entry in rows], dtype=np.float64)
                    for k in (key, "low", "high"))
    finite = np.isfinite(x) & np.isfinite(y)
    low, high = np.where(np.isfinite(low), low, y), np.where(np.isfinite(high), high, y)
    baseline = _float(rows[-1][1].get("best_bot_score")) if rows else math.nan
    return Curve(name=name, x=x[finite], y=y[finite], low=low[finite], high=high[finite], baseline=baseline)


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _label(text: object, most: int) -> str:
    """A name as plain text in one line; dollar signs are escaped, as they would start a formula."""
    plain = clean(text)
    plain = plain if len(plain) <= most else plain[: most - 1] + "…"
    return plain.replace("\\", "/").replace("$", r"\$")


def user_curves(names: Sequence[str], metrics: Sequence[Row]) -> dict[str, dict[str, dict[str, Any]]]:
    """Component of the user -> metric -> role ("" without roles) -> steps and values over the iterations."""
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for key in dict.fromkeys(key for row in metrics for key in row):
        head, _, metric = key.rpartition("/")
        for name in [name for name in names if name == head or metric.startswith(name)]:
            role = "" if head == name else head
            rows = [row for row in metrics if _finite(row.get(key)) and _finite(row.get("step"))]
            curve = {"steps": [row["step"] for row in rows], "values": [row[key] for row in rows]}
            out.setdefault(clean(name), {}).setdefault(clean(metric), {})[clean(role)] = curve
    return out


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
