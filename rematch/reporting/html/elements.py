"""Elements of the report page: escaped text, tables, small bars, and the style sheet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rematch.evaluation.text import number

Row = Mapping[str, Any]

# c0 .. c6: the colours of Okabe and Ito, distinct with any colour vision; lighter on a dark page.
# As in films, the first role (pursuer) is red and the second (evader) blue.
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d5dae0; --page: #fdfdfc;
  --card: #f3f5f7; --blue: #0072b2; --good: #00664a; --bad: #a83c00; --c0: #d55e00; --c1: #0072b2;
  --c2: #00805d; --c3: #b0568c; --c4: #9a6a00; --c5: #2f7fae; --c6: #1b1f24; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #a2abb5; --line: #3a424b;
  --page: #14171a; --card: #1f2429; --blue: #63b8ea; --good: #4fd0a4; --bad: #ff9e66; --c0: #ff8c42;
  --c1: #63b8ea; --c2: #3fcf9e; --c3: #e79ac6; --c4: #f0b83c; --c5: #9ad7f5; --c6: #e7eaee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 80rem; color: var(--ink);
  background: var(--page); font: 1rem/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p { max-width: 46rem; margin: .5rem 0; overflow-wrap: anywhere; } .soft { color: var(--soft); }
li { max-width: 46rem; overflow-wrap: anywhere; }
.verdict { font-size: 1.15rem; background: var(--card); border-left: 4px solid var(--blue);
  padding: .8rem 1rem; max-width: none; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .8rem 0; font-size: .92rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: left; padding: .32rem .8rem .32rem 0; border-bottom: 1px solid var(--line);
  vertical-align: middle; white-space: nowrap; } th { font-weight: 600; white-space: normal; }
td.text { white-space: normal; min-width: 14rem; max-width: 40rem; overflow-wrap: anywhere; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.above { color: var(--good); font-weight: 600; } .below { color: var(--bad); font-weight: 600; }
svg { display: block; } svg .axis { stroke: var(--line); } svg .ours { fill: var(--blue); opacity: .5; }
svg .score { stroke: var(--blue); stroke-width: 2; } svg .bot { stroke: var(--ink); fill: none; }
svg.chart { width: 46rem; max-width: 100%; height: auto; } p.axes { display: none; }
svg.chart text, svg.matrix text { font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  fill: var(--soft); }
svg.matrix { min-width: 34rem; max-width: 100%; height: auto; }
svg.matrix .cell { fill: #111; font-size: 10.5px; }
svg.chart .name, svg.matrix .name { fill: var(--ink); }
.line, .steps { fill: none; stroke-width: 2; } .thin { fill: none; stroke-width: 1; opacity: .55; }
.dash { fill: none; stroke-width: 1.6; stroke-dasharray: 6 4; } .band { stroke: none; opacity: .16; }
.bar { stroke-width: 1.4; fill: none; } .dot { stroke: none; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); } .s3 { stroke: var(--c3); }
.s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); } .s6 { stroke: var(--c6); }
.f0 { fill: var(--c0); } .f1 { fill: var(--c1); } .f2 { fill: var(--c2); } .f3 { fill: var(--c3); }
.f4 { fill: var(--c4); } .f5 { fill: var(--c5); } .f6 { fill: var(--c6); }
svg.map { width: 100%; min-width: 34rem; max-width: 60rem; height: auto; }
svg.map text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.frame { fill: none; stroke: var(--line); } .trail { fill: none; stroke: var(--c2); stroke-width: 2.4; }
.flag { stroke: var(--ink); } .game { stroke: var(--page); }
.plain { fill: var(--card); }
.early { fill: var(--c1); } .mid { fill: var(--c3); } .late { fill: var(--c0); }
.t0, .t1, .t2, .t3, .t4 { fill: var(--soft); } .t0 { opacity: .16; } .t1 { opacity: .26; }
.t2 { opacity: .38; } .t3 { opacity: .52; } .t4 { opacity: .68; }
figure { margin: 1rem 0; } figcaption { max-width: 46rem; }
.key { list-style: none; margin: .2rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.2rem;
  font-size: .9rem; } .key svg { display: inline-block; vertical-align: middle; margin-right: .35rem; }
img { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px; }
pre { background: var(--card); padding: 1rem; overflow-x: auto; border-radius: 6px; font-size: .85rem; }
@media (prefers-color-scheme: dark) { img.plot { filter: invert(.92) hue-rotate(180deg); } }
@media (max-width: 42rem) { body { padding: 1rem .8rem 3rem; } table { font-size: .84rem; }
  caption div { max-width: calc(100vw - 1.6rem); } img.plot { max-width: none; width: 80rem; }
  svg.chart text { font-size: 22px; } svg.chart text.name { display: none; }
  p.axes { display: block; margin: 0 0 .3rem; font-size: .88rem; color: var(--soft); } }
code { overflow-wrap: anywhere; font-size: .85em; } summary { cursor: pointer; margin: .4rem 0; }
"""


def text(value: object) -> str:
    """Escaped text; control characters, which HTML forbids, become spaces."""
    return escape("".join(c if c.isprintable() or c in "\n\t" else " " for c in str(value)), quote=True)


def cell(value: object) -> str:
    """A table cell for a number."""
    return f'<td class="n">{text(value)}</td>'


def sentence(value: object) -> str:
    """A table cell for a sentence, which may wrap."""
    return f'<td class="text">{text(value)}</td>'


def paragraph(value: object, kind: str = "") -> str:
    start = f'<p class="{kind}">' if kind else "<p>"
    return f"{start}{text(value)}</p>\n"


def bullets(items: Sequence[object]) -> str:
    return "<ul>" + "".join(f"<li>{text(item)}</li>\n" for item in items) + "</ul>\n" if items else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table. Cells are HTML: `<td…>` is used as it is, anything else gets a plain `<td>`."""
    cells = "".join("<tr>" + "".join(c if c.startswith("<td") else f"<td>{c}</td>" for c in row) + "</tr>\n"
                    for row in rows)
    names = "".join(f'<th scope="col">{text(name)}</th>' for name in head)
    title = f"<caption><div>{text(caption)}</div></caption>" if caption else ""
    body = f"{title}<thead><tr>{names}</tr></thead><tbody>\n{cells}</tbody>"
    return f'<div class="wide" tabindex="0"><table>{body}</table></div>\n'


def folded(summary: object, content: str) -> str:
    """Content that is shown when the reader opens its summary."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>\n"


def missing(items: Sequence[Row]) -> str:
    """Facts that the page lacks, each with the command that adds it; of several runs, the first one's."""
    items = list({item["what"]: item for item in reversed(items)}.values())[::-1]
    out = "".join(f"<li>{text(item['what'])}: <code>{text(item['command'])}</code></li>\n" for item in items)
    return f'<p class="soft">Not measured yet:</p><ul>{out}</ul>\n' if out else ""


def _pixels(value: Any) -> float:
    """The x coordinate of a value between 0 and 1; nan where it is missing."""
    return math.nan if number(value) == "-" else 6 + 140 * min(1.0, max(0.0, float(value)))


def bars(entry: Row, key: str = "score") -> str:
    """A score and its interval between 0 and 1 as a small drawing; the best scripted player as a diamond."""
    score, low, high, bot = (_pixels(entry.get(k)) for k in (key, "low", "high", "best_bot_score"))
    if not (math.isfinite(score) and math.isfinite(low) and math.isfinite(high)):
        return "<td></td>"
    marks = (f'<rect class="ours" x="{low:.1f}" y="4" width="{max(1.0, high - low):.1f}" height="10"/>'
             f'<path class="score" d="M{score:.1f} 2v14"/>')
    if math.isfinite(bot):
        marks += f'<path class="bot" d="M{bot - 4:.1f} 9l4-5 4 5-4 5z"/>'
    return ('<td><svg width="152" height="18" aria-hidden="true">'
            f'<path class="axis" d="M6 9h140M6 5v8M76 6v6M146 5v8"/>{marks}</svg></td>')
