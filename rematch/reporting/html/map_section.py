"""The world map in a report: visited places, way to the frontier, savestates as flags, games as dots; SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rematch.evaluation.text import human
from rematch.reporting.html.elements import paragraph, text
from rematch.reporting.html.stored_map import read_map, read_savestates
from rematch.reporting.untrusted_folder import Absent

Row = Mapping[str, Any]
Place = Sequence[int]  # map, y, x

WIDTH, SIDE, GAP, TITLE = 960, 10, 14, 20  # pixels: of the picture, a place, between panels, for a name
LEVELS = 5  # shades of a place
KEY = (("early", "game or savestate, early in the game"), ("mid", "mid"), ("late", "late"))


def map_facts(folder: Path) -> Row | None:
    """What the map shows; None where the run has none."""
    try:
        stored = read_map(folder)
    except Absent:
        return None
    groups = {state.sha256: state.entry["group"] for state in read_savestates(folder)}
    return {
        "step": stored.step, "maps": stored.maps, "frontier": stored.frontier,
        "games": [{"group": game.group, "place": list(game.path[-1])} for game in stored.games],
        "savestates": [{"group": groups.get(name, "plain"), "place": place}
                       for name, place in stored.places.items()],
    }  # fmt: skip


def world_map(run: Row) -> str:
    """The section of the report."""
    facts = run["world_map"]
    panels, height = _panels(facts)
    if not panels:
        raise Absent("no place was visited yet")

    def at(place: Place) -> tuple[float, float] | None:
        panel = panels.get(place[0])
        if panel is None:
            return None
        return (panel["left"] + (place[2] - panel["x"] + 0.5) * SIDE,
                panel["top"] + (place[1] - panel["y"] + 0.5) * SIDE)  # fmt: skip

    out = "".join(_floor(panel) for panel in panels.values())
    out += _trail(facts["frontier"], at)
    for one in facts["savestates"]:
        if point := at(one["place"]):
            out += f'<path class="flag {one["group"]}" d="M{point[0]:.1f} {point[1]:.1f}v-13l9 4-9 4"/>'
    for one in facts["games"]:
        if point := at(one["place"]):
            out += f'<circle class="game {one["group"]}" cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="4.2"/>'
    places = sum(len(one["tiles"]) for one in facts["maps"])
    label = (f"{places:,} visited places on {len(facts['maps'])} maps, {len(facts['games'])} games and "
             f"{len(facts['savestates'])} savestates at {human(facts['step'])} steps")  # fmt: skip
    key = "".join(f'<li><svg width="12" height="12" aria-hidden="true"><circle class="game {group}" cx="6" '
                  f'cy="6" r="4.2"/></svg>{text(words)}</li>' for group, words in KEY)  # fmt: skip
    key += ('<li><svg width="24" height="12" aria-hidden="true"><path class="trail" d="M1 6h22"/></svg>'
            "way to the frontier</li>")  # fmt: skip
    svg = (f'<svg class="map" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="World map: '
           f'{text(label)}">{out}</svg>')  # fmt: skip
    return (f'<figure><div class="wide" tabindex="0">{svg}</div><ul class="key">{key}</ul></figure>\n'
            + paragraph(f"{label}. A stronger colour: more steps were spent there. Dots are games, flags are "
                        "savestates. On the page of rematch serve the games walk, and you can play from any "
                        "of them.", "soft"))  # fmt: skip


def _panels(facts: Row) -> tuple[dict[int, dict[str, Any]], int]:
    """By map: the part of it that is shown and where it is drawn, in rows from left to right; the height."""
    shown = [one["place"] for one in (*facts["games"], *facts["savestates"])]
    shown += [place for place in facts["frontier"] if any(place)]
    panels: dict[int, dict[str, Any]] = {}
    left, top, tallest = 0, TITLE, 0
    for one in facts["maps"]:
        points = [(y, x) for y, x, _ in one["tiles"]]
        points += [(place[1], place[2]) for place in shown if place[0] == one["map"]]
        if not points:
            continue
        ys, xs = [y for y, _ in points], [x for _, x in points]
        width, high = (max(xs) - min(xs) + 3) * SIDE, (max(ys) - min(ys) + 3) * SIDE
        if left and left + width > WIDTH:
            left, top, tallest = 0, top + tallest + GAP + TITLE, 0
        panels[one["map"]] = {"name": one["name"], "tiles": one["tiles"], "left": left, "top": top,
                              "width": width, "height": high, "x": min(xs) - 1, "y": min(ys) - 1}  # fmt: skip
        left, tallest = left + max(width, 90) + GAP, max(tallest, high)
    return panels, top + tallest + 4


def _floor(panel: Row) -> str:
    """The frame, the name and the places of one map; places of one shade are one path."""
    most = max((math.log1p(steps) for _, _, steps in panel["tiles"]), default=1.0) or 1.0
    shades: list[list[str]] = [[] for _ in range(LEVELS)]
    for y, x, steps in panel["tiles"]:
        level = min(LEVELS - 1, int(LEVELS * math.log1p(steps) / most))
        left, top = panel["left"] + (x - panel["x"]) * SIDE, panel["top"] + (y - panel["y"]) * SIDE
        shades[level].append(f"M{left} {top}h{SIDE - 1}v{SIDE - 1}h-{SIDE - 1}z")
    tiles = "".join(f'<path class="t{level}" d="{"".join(parts)}"/>'
                    for level, parts in enumerate(shades) if parts)  # fmt: skip
    name = f'<text class="name" x="{panel["left"]}" y="{panel["top"] - 6}">{text(panel["name"])}</text>'
    return (f'{name}{tiles}<rect class="frame" x="{panel["left"] + 0.5}" y="{panel["top"] + 0.5}" '
            f'width="{panel["width"] - 1}" height="{panel["height"] - 1}"/>')  # fmt: skip


def _trail(places: Sequence[Place], at: Any) -> str:
    """The way to the frontier; a jump to another map or place breaks the line."""
    parts: list[str] = []
    for before, place in pairwise([[0, 0, 0], *places]):
        point = at(place) if any(place) else None
        if point is None:
            continue
        near = before[0] == place[0] and abs(before[1] - place[1]) + abs(before[2] - place[2]) <= 2
        parts.append(f"{'L' if near and parts else 'M'}{point[0]:.0f} {point[1]:.0f}")
    return f'<path class="trail" d="{"".join(parts)}"/>' if parts else ""
