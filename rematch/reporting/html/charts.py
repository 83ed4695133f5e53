"""Charts as SVG text: lines with bands, points with bars, a payoff matrix. No script; any colour scheme.

Coordinates are rounded to a tenth of a pixel, so that equal numbers give equal bytes. Every axis has a name;
the legend below the chart names every line and its newest value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rematch.evaluation.text import human, number
from rematch.reporting.html.elements import text

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 46
MOST_POINTS = 400  # points of a line
COLOURS = 7
STEPS = "steps of all games"  # the x axis of most charts


@dataclass(frozen=True, kw_only=True)
class Line:
    """x, y [n] and, optionally, the interval low, high [n].

    style: line, thin, dash, steps (a line without marks) or dot (with bars).
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: str = "line"
    colour: int = 0
    newest: str = ""  # its newest value for the legend; a line without a name is not in the legend


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Names with units; the y range where it is fixed; `powers`: a logarithmic x axis."""

    x: str
    y: str
    low: float | None = None
    high: float | None = None
    powers: bool = False


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers in [low, high]: 1, 2 or 5 times a power of ten apart."""
    if not high - low > 1e-12 * max(abs(low), abs(high)) + 1e-200:  # too close for two different ticks
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    spacing = next(step * power for step in (1, 2, 5, 10) if step * power >= raw * (1 - 1e-9))
    first = math.ceil(low / spacing - 1e-9)
    return [i * spacing for i in range(first, math.floor(high / spacing + 1e-9) + 1)]


def thinned(line: Line) -> Line:
    """The line with at most MOST_POINTS points: evenly selected, the last one included."""
    n = len(line.x)
    if n <= MOST_POINTS:
        return line
    indices = sorted({n - 1 - round(i * (n - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)})
    x, y, low, high = ([values[i] for i in indices] if values else () for values in
                       (line.x, line.y, line.low, line.high))
    return Line(name=line.name, x=x, y=y, low=low, high=high, style=line.style, colour=line.colour,
                newest=line.newest)


def chart(lines: Sequence[Line], axes: Axes) -> str:
    """A chart of these lines with its legend; empty if no line has points."""
    lines = [thinned(line) for line in lines if len(line.x)]
    if not lines:
        return ""
    xs = [x for line in lines for x in line.x]
    ys = [y for line in lines for values in (line.y, line.low, line.high) for y in values]
    left, right = (min(xs), max(xs)) if axes.powers else (0.0, max(xs) or 1.0)
    bottom = axes.low if axes.low is not None else min(ys)
    top = axes.high if axes.high is not None else max(ys)
    if axes.high is None or axes.low is None:  # a margin, so that the height is never 0
        margin = 0.06 * (top - bottom) or 0.5 * abs(top) or 0.5
        top, bottom = top + margin * (axes.high is None), bottom - margin * (axes.low is None)
    top = max(top, bottom + 1e-9)
    if axes.powers:
        left, right = math.log10(left) - 0.15, math.log10(right) + 0.15

    def across(x: float) -> float:
        share = ((math.log10(x) if axes.powers else x) - left) / (right - left or 1.0)
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def up(y: float) -> float:
        share = (min(max(y, bottom), top) - bottom) / (top - bottom)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    marks = "".join(_mark(line, across, up) for line in lines)
    names = f"{axes.y} over {axes.x}"
    svg = (f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(names)}">'
           f"{_grid(axes, (left, right, bottom, top), across, up)}{marks}</svg>")
    caption = f'<p class="axes">{text(names)}</p>'  # a narrow page has no room for names at the axes
    return f"<figure>{caption}{svg}{_legend(lines)}</figure>\n"


def _grid(axes: Axes, ends: tuple[float, float, float, float], across: object, up: object) -> str:
    assert callable(across) and callable(up)
    left, right, bottom, top = ends
    floor, edge = HEIGHT - BOTTOM, WIDTH - RIGHT
    out = []
    for y in ticks(bottom, top):
        at = up(y)
        out.append(f'<path class="axis" d="M{LEFT} {at:.1f}H{edge}"/>'
                   f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text(f"{y:.10g}")}</text>')
    if axes.powers:
        powers = range(math.floor(left), math.floor(right) + 1)
        marks = [m * 10.0**i for i in powers for m in (1, 2, 5) if left <= math.log10(m * 10.0**i) <= right]
    else:
        marks = ticks(left, right)
    for x in marks:
        at = across(x)
        last = at > edge - 20  # a label in the middle of this tick would leave the chart
        label, anchor = (WIDTH - 2, "end") if last else (at, "middle")
        out.append(f'<path class="axis" d="M{at:.1f} {floor}v5"/>'
                   f'<text x="{label:.1f}" y="{floor + 18}" text-anchor="{anchor}">{text(_amount(x))}</text>')
    out.append(f'<path class="axis" d="M{LEFT} {floor}H{edge}"/>')
    middle = (LEFT + edge) / 2
    out.append(f'<text class="name" x="{middle:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{text(axes.x)}'
               "</text>")
    height = (TOP + floor) / 2
    out.append(f'<text class="name" x="14" y="{height:.1f}" text-anchor="middle" '
               f'transform="rotate(-90 14 {height:.1f})">{text(axes.y)}</text>')
    return "".join(out)


def _amount(value: float) -> str:
    if abs(value) < 1000:
        return f"{value:g}"
    amount, _, letter = human(value).partition(" ")
    return f"{float(amount):g} {letter}"


def _mark(line: Line, across: object, up: object) -> str:
    assert callable(across) and callable(up)
    c = line.colour % COLOURS
    points = [(across(x), up(y)) for x, y in zip(line.x, line.y)]
    out = ""
    if line.low and (line.style == "dot" or len(points) == 1):
        ends = "".join(f"M{x:.1f} {up(low):.1f}V{up(high):.1f}"
                       for (x, _), low, high in zip(points, line.low, line.high))
        out += f'<path class="bar s{c}" d="{ends}"/>'
    elif line.low:
        upper = [f"{across(x):.1f} {up(y):.1f}" for x, y in zip(line.x, line.high)]
        lower = [f"{across(x):.1f} {up(y):.1f}" for x, y in zip(line.x, line.low)][::-1]
        out += f'<path class="band f{c}" d="M{"L".join(upper + lower)}Z"/>'
    if line.style != "dot" and len(points) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        out += f'<path class="{line.style} s{c}" d="M{path}"/>'
    if line.style == "dot" or (line.style not in ("thin", "steps") and len(points) <= 40):
        r = 4 if line.style == "dot" else 2.5
        out += "".join(f'<circle class="dot f{c}" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>' for x, y in points)
    return out


def _legend(lines: Sequence[Line]) -> str:
    items = []
    for line in lines:
        if line.name:
            c = line.colour % COLOURS
            sample = (f'<circle class="dot f{c}" cx="12" cy="7" r="4"/>' if line.style == "dot"
                      else f'<path class="{line.style} s{c}" d="M1 7h22"/>')
            items.append(f'<li><svg width="24" height="14" aria-hidden="true">{sample}</svg>'
                         f"{text(line.name)}{text(' ' + line.newest if line.newest else '')}</li>\n")
    return f'<ul class="key">{"".join(items)}</ul>' if items else ""


# --- a payoff matrix --------------------------------------------------------------------------------------


def matrix(score: Sequence[Sequence[float]], steps: Sequence[float], names: tuple[str, str],
           hints: Sequence[Sequence[str]]) -> str:
    """Scores of rows against columns [k, k] as coloured cells: blue if the row wins, orange if it loses."""
    k = len(steps)
    side = max(16, min(34, 560 // k))
    left, top = 92, 74
    width, height = left + k * side + 8, top + k * side + 8
    out = [f'<text class="name" x="{left + k * side / 2:.1f}" y="14" text-anchor="middle">{text(names[1])}'
           "</text>",
           f'<text class="name" x="14" y="{top + k * side / 2:.1f}" text-anchor="middle" '
           f'transform="rotate(-90 14 {top + k * side / 2:.1f})">{text(names[0])}</text>']
    for i, step in enumerate(steps):
        at = i * side + side / 2 + 4
        out.append(f'<text x="{left - 6}" y="{top + at:.1f}" text-anchor="end">{text(human(step))}</text>')
        out.append(f'<text x="{left + at:.1f}" y="{top - 6}" '
                   f'transform="rotate(-60 {left + at:.1f} {top - 6})">{text(human(step))}</text>')
    for i in range(k):
        for j in range(k):
            x, y, value = left + j * side, top + i * side, score[i][j]
            out.append(f'<g><title>{text(hints[i][j])}</title><rect x="{x}" y="{y}" width="{side - 1}" '
                       f'height="{side - 1}" fill="{_shade(value)}"/>')
            if side >= 18:
                out.append(f'<text class="cell" x="{x + side / 2 - 0.5:.1f}" y="{y + side / 2 + 4:.1f}" '
                           f'text-anchor="middle">{100 * value:.0f}</text>')
            out.append("</g>")
    description = text(f"payoff matrix: {names[0]} against {names[1]}")
    return ('<figure><div class="wide" tabindex="0">'
            f'<svg class="matrix" width="{width}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-label="{description}">{"".join(out)}</svg></div></figure>\n')


def _shade(value: float) -> str:
    """White at one half; blue above, orange below; light enough for black numbers."""
    distance = min(1.0, abs(2 * value - 1))
    end = (86, 180, 233) if value >= 0.5 else (240, 150, 70)
    return "rgb(" + " ".join(str(round(255 + (c - 255) * distance)) for c in end) + ")"


def with_interval(value: object, low: object = None, high: object = None, n: object = None) -> str:
    """A value with its interval and number of games, for the legend."""
    out = number(value)
    if number(low) != "-" and number(high) != "-":
        out += f" [{number(low)}, {number(high)}]"
    return out + (f", n = {n}" if isinstance(n, int) else "")
