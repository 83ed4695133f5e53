"""Heat maps over start positions: the value of the game, and the regret of each player.

They use Figure objects only (no pyplot, so no global state) and matplotlib's default style, so that the same
tables give the same bytes, independent of matplotlibrc.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .config import Config, start_pairs
from .transition_matrix import Board, Doubles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = list[tuple[str, str, Doubles]]  # title, label of the colour bar, table [rows, cols] of the board


def values(board: Board, table: Doubles) -> bytes:
    """The exact probability of capture by start position: the bytes of a PNG."""
    return _picture(board, _title(board.config), [("value of the game", "chance of capture", table)])


def regrets(board: Board, regret: Mapping[str, Doubles]) -> bytes:
    """The loss of each side to a best response by start position: the bytes of a PNG."""
    return _picture(board, "lost to the best response, " + _title(board.config), [
        (f"{role}'s regret", "chance of capture, beyond the exact value" if role == "evader"
         else "chance of capture, short of the exact value", table)
        for role, table in regret.items()])


def _title(config: Config) -> str:
    words = [f"n = {config.n}", f"horizon {config.horizon}"]
    words += [f"block {config.block}"] if config.block else []
    words += [f"radius {config.radius:g}"] if config.radius != 1 else []
    words += [f"skip {config.skip}"] if config.skip else []
    return "lattice " + ", ".join(words)


def _picture(board: Board, title: str, rows: Rows) -> bytes:
    import matplotlib.style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.style.context("default"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(15, 4.9 * len(rows) + 0.3), dpi=100, facecolor="white", layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(f"{title}: means over all headings, starts only", fontsize=13, weight="bold")
        panels = figure.subplots(len(rows), 3, squeeze=False)
        for axes, (name, meaning, table) in zip(panels, rows):
            _row(figure, list(axes), (name, meaning), _starts(board, table))
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": None})  # no version: equal bytes
    return out.getvalue()


def _starts(board: Board, table: Doubles) -> Doubles:
    """[n * n, n * n] by the cells of pursuer and evader; NaN for pairs that are no start."""
    return np.where(start_pairs(board.config), board.by_cells(table), np.nan)


def _row(figure: Figure, axes: list[Axes], labels: tuple[str, str], pairs: Doubles) -> None:
    """Three panels: by the pursuer's cell, by the evader's, and by both."""
    name, meaning = labels
    n = round(len(pairs) ** 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # cells without a start have the mean NaN
        maps = [(f"{name} by the {role}'s cell", np.nanmean(pairs, axis).reshape(n, n))
                for role, axis in (("pursuer", 1), ("evader", 0))]
    for panel, (title, table) in zip(axes, maps):
        _map(figure, panel, title, table)
        panel.set_xlabel("x (cells)")
        panel.set_ylabel("y (cells)")
    bar = _map(figure, axes[2], f"{name} by both cells, mean {np.nanmean(pairs):.3f}", pairs)
    axes[2].set_xlabel(f"evader's cell, y · {n} + x")
    axes[2].set_ylabel(f"pursuer's cell, y · {n} + x")
    bar.set_label(meaning)


def _map(figure: Figure, axes: Axes, title: str, table: Doubles) -> Any:
    axes.set_facecolor("#bbbbbb")  # cells without a start
    image = axes.imshow(table, origin="lower", vmin=0.0, vmax=1.0, cmap="viridis", interpolation="nearest")
    axes.set_title(title, fontsize=11, loc="left")
    return figure.colorbar(image, ax=axes, shrink=0.85)
