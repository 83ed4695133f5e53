"""Lays a world out from a size and a seed, as the text that world_text.py reads.

A world is a chain of towns, north of each other, with winding routes between them. A plan says which gym
stands where, which one is locked, where the key item lies (always farther on than the lock: one must come
back), and the hall of fame, behind a gate that asks for every badge, is in the first town.
"""

from __future__ import annotations

from dataclasses import dataclass

from rematch.core import rng
from rematch.worlds.gameboy.cartridge import constants
from rematch.worlds.gameboy.cartridge.tiles import SPECIES
from rematch.worlds.gameboy.cartridge.world_text import ITEMS

Grid = list[list[str]]


@dataclass(frozen=True)
class Plan:
    """What a size consists of. Towns count from 0."""

    towns: int
    gyms: tuple[int, ...]  # the town of each gym, by badge
    locks: dict[int, int]  # badge -> the town whose far side holds the key; -1: the end of the last route
    corridors: int  # of a route
    width: int
    dead_end: bool = False  # the last route leads to no town
    third: bool = False  # a route has three rivals in its gaps, not two


SIZES = {
    "tiny": Plan(1, (0,), {0: -1}, corridors=3, width=14, dead_end=True),
    "mid": Plan(2, (1, 0), {1: 1}, corridors=4, width=18, third=True),
    "small": Plan(3, (1, 2, 1), {2: 2}, corridors=5, width=22),
    "kanto-ish": Plan(8, (1, 2, 3, 4, 5, 6, 7, 0), {2: 4, 5: 7, 7: 7}, corridors=5, width=22),
}
TOWN_NAMES = ("DAWN", "BIRCH", "COVE", "DUNE", "ELM", "FROST", "GLEN", "HAVEN")


@dataclass
class Dice:
    """Numbers keyed by (seed, map, how many were drawn): the same on every machine."""

    seed: int
    index: int
    drawn: int = 0

    def below(self, count: int) -> int:
        self.drawn += 1
        return rng.key(self.seed, rng.MAP_LAYOUT, self.index, self.drawn) % count

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def shuffled(self, things: list[str]) -> list[str]:
        left, out = list(things), []
        while left:
            out.append(left.pop(self.below(len(left))))
        return out


def generate(size: str, seed: int) -> str:
    """The world's text."""
    plan = SIZES[size]
    routes = plan.towns - 1 + plan.dead_end
    parts = [f"; {size}, seed {seed}"]
    for town in range(plan.towns):
        parts += town_map(plan, town, routes, Dice(seed, town))
        if town < routes:
            parts += route_map(plan, town, Dice(seed, 100 + town))
    for badge in range(len(plan.gyms)):
        parts += gym_map(plan, badge, Dice(seed, 200 + badge))
    return "\n".join(parts) + "\n"


def shown(grid: Grid) -> list[str]:
    return ["|" + "".join(row) + "|" for row in grid]


def stamp(grid: Grid, top: int, left: int, rows: list[str]) -> None:
    for y, row in enumerate(rows):
        for x, letter in enumerate(row):
            grid[top + y][left + x] = letter


def level_of(badge: int) -> int:
    """The level that a leader asks for."""
    return constants.START_LEVEL + 3 * (badge + 1)


# --- towns ------------------------------------------------------------------------------------------

HOUSE = [".^^^^^.", ".^^^^^.", ".#O#O#.", ".......", "......."]
GARDEN = [".*...*.", "..~~~..", ".~~~~~.", "..~~~*.", ".*....."]
GYM = [".^^^^^.", ".^^^^^.", ".#OdO#.", "...,s..", "...,..."]
LOCKED = [".^^^^^.", ".^^^^^.", ".#OdO#.", ".I#,#I.", "s.#k#.."]
HALL = ["I##I##I", "I%%H%%I", "I%%%%%I", "I##g##I", "..s,..."]


def renamed(rows: list[str], names: dict[str, str]) -> list[str]:
    return ["".join(names.get(c, c) for c in row) for row in rows]


def town_map(plan: Plan, town: int, routes: int, dice: Dice) -> list[str]:
    name = TOWN_NAMES[town]
    grid = [["T" if y in (0, 15) or x in (0, 19) else "." for x in range(20)] for y in range(16)]
    for y in range(1, 15):
        grid[y][9] = ","
    for x in range(2, 18):
        grid[7][x] = ","
    plots: list[list[str]] = []
    lines: list[str] = []
    for badge, where in enumerate(plan.gyms):
        if where != town:
            continue
        door, post, bush = "123"[badge % 3], "456"[badge % 3], "789"[badge % 3]
        locked = badge in plan.locks
        plots.append(renamed(LOCKED if locked else GYM, {"d": door, "s": post, "k": bush}))
        lines.append(f"{door} door GYM-{badge + 1} m")
        lines.append(f"{post} sign : GYM {badge + 1} ASKS FOR/LEVEL {level_of(badge)}.")
        if locked:
            item = lock_item(plan, badge)
            closed = f"YOU NEED THE {item}/TO PASS THE BUSH."
            lines.append(f"{bush} lock {item} : {closed} || YOU USE THE {item}./THE WAY IS FREE!")
    if town == 0:
        plots.append(renamed(HALL, {"s": "c"}))
        lines += [
            "H trophy",
            "g gate : ONLY THOSE WITH/ALL BADGES PASS. || ALL BADGES! PLEASE/COME IN, CHAMPION.",
            "c sign : HALL OF FAME",
        ]
    fill = [HOUSE, GARDEN, HOUSE]
    while len(plots) < 4:
        plots.append(fill[len(plots) - 1])
    places = dice.shuffled(["1 1", "1 12", "9 1", "9 12"])
    for plot, place in zip(plots, places):
        top, left = map(int, place.split())
        stamp(grid, top, left, plot)
    grid[7][7], grid[6][11] = "@", "n"
    grid[8][11] = "w"
    lines += ["n nurse : YOU BOTH TAKE A/REST. ALL WELL!", f"w sign : {name} TOWN/TAKE YOUR TIME."]
    if town < routes:
        grid[0][9] = "x"
        lines.append(f"x exit ROUTE-{town + 1} y")
    if town > 0:
        grid[15][9] = "y"
        lines.append(f"y exit ROUTE-{town} x")
    for badge, where in plan.locks.items():
        if where == town:
            index = list(plan.locks).index(badge)
            letter = "KLM"[index]
            grid[1][(8, 10, 11)[index]] = letter
            lines.append(item_line(plan, badge, letter))
    stage = sum(where <= town for where in plan.gyms) - 1 if town else -1
    if stage >= 0:  # somebody in the open: nobody must, but levels have to come from somewhere
        grid[5][8] = "r"
        lines.append(rival(("r", town, 2), dice))
    scatter(grid, dice)
    return [f"\nmap {name}", "kind town", *shown(grid), *lines]


def lock_item(plan: Plan, badge: int) -> str:
    return ITEMS[list(plan.locks).index(badge)]


def item_line(plan: Plan, badge: int, letter: str) -> str:
    item = lock_item(plan, badge)
    return f"{letter} item {item} : YOU FOUND IT:/{item}!"


def scatter(grid: Grid, dice: Dice) -> None:
    """A few flowers, so that no two towns look alike."""
    for y in range(1, len(grid) - 1):
        for x in range(1, len(grid[0]) - 1):
            if grid[y][x] == "." and dice.chance(6):
                grid[y][x] = "*"


def rival(who: tuple[str, int, int], dice: Dice) -> str:
    """One who wants a match: (letter, stage, which of the stage's three)."""
    letter, stage, which = who
    level = max(1, constants.START_LEVEL + 3 * max(stage - (which == 2), 0) + which)
    species = SPECIES[dice.below(len(SPECIES))]
    words = (
        "I AM NEVER BEATEN!",
        "NOBODY PASSES ME!",
        "LET US HAVE A GO!",
        "SHOW ME YOUR BEST!",
        "A MATCH? GLADLY!",
    )
    return f"{letter} rival {species} {level} 10 : {words[dice.below(len(words))]}"


# --- routes -----------------------------------------------------------------------------------------


def route_map(plan: Plan, route: int, dice: Dice) -> list[str]:
    """Corridors one above the other; the gap to the next is at alternate ends, rivals stand in gaps."""
    tall, width, count = 3, plan.width, plan.corridors
    height = count * (tall + 1) + 1
    grid = [["T"] * width for _ in range(height)]
    side = dice.below(2)
    lines: list[str] = []
    gaps = []
    for index in range(count):
        top = 1 + (count - 1 - index) * (tall + 1)  # the first corridor is the southernmost
        for y in range(top, top + tall):
            for x in range(1, width - 1):
                grid[y][x] = "."
        band = 3 + dice.below(width - 12)
        for y in range(top, top + tall):  # tall grass from side to side: it cannot be avoided
            for x in range(band, band + 3 + dice.below(3)):
                grid[y][x] = ":"
        for _ in range(width // 5):  # obstacles inside, never two in a column
            x = 2 + dice.below(width - 4)
            column = [grid[y][x] for y in range(top, top + tall)]
            beside = [grid[y][n] for y in range(top, top + tall) for n in (x - 1, x + 1)]
            if not {"T", "~"} & {*column, *beside}:
                grid[top + 1 if dice.chance(60) else top + 2 * dice.below(2)][x] = (
                    "~" if dice.chance(40) else "T"
                )
        far = (index + side) % 2 == 0
        gaps.append((top - 1, width - 2 - dice.below(2) if far else 1 + dice.below(2)))
    for place, (y, x) in enumerate(gaps[:-1]):
        grid[y][x] = "."
        for near in (y - 1, y + 1):
            if grid[near][x] in "T~":
                grid[near][x] = "."
        if place in (0, count - 2) or plan.third:
            letter = "rst"[place] if plan.third else "rs"[place > 0]
            grid[y][x] = letter
            lines.append(rival((letter, route, "rst".index(letter)), dice))
    start = gaps[0][1]
    start = width - 2 if start < width // 2 else 1  # the south end is far from the first gap
    grid[height - 1][start] = "y"
    lines.append(f"y exit {TOWN_NAMES[route]} x")
    clear(grid, height - 2, start)
    y, x = gaps[-1]
    if plan.dead_end and route == plan.towns - 1:
        badge = next(iter(plan.locks))
        grid[y + 1][x] = "K"
        lines.append(item_line(plan, badge, "K"))
        grid[y + 3][x] = "t"
        lines.append(rival(("t", route, 2), dice))
    else:
        grid[y][x] = "x"
        clear(grid, y + 1, x)
        lines.append(f"x exit {TOWN_NAMES[route + 1]} y")
    post = width // 2
    grid[height - 2][post] = "p"
    lines.append(f"p sign : ROUTE {route + 1}/MIND THE GRASS!")
    pair = [SPECIES[dice.below(3)], SPECIES[3 + dice.below(3)]]
    return [
        f"\nmap ROUTE-{route + 1}",
        "kind route",
        f"wild {pair[0]} {pair[1]} {3 * route + 7}",
        *shown(grid),
        *lines,
    ]


def clear(grid: Grid, y: int, x: int) -> None:
    if grid[y][x] in "T~":
        grid[y][x] = "."


# --- gyms -------------------------------------------------------------------------------------------


def gym_map(plan: Plan, badge: int, dice: Dice) -> list[str]:
    """Halls with one opening each, at alternate ends, the leader in the last."""
    halls, width = 3 + dice.below(2), 11
    height = 2 * halls + 3
    grid = [["#"] * width for _ in range(height)]
    side = dice.below(2)
    lines: list[str] = []
    for hall in range(halls):
        y = height - 2 - 2 * hall
        for x in range(1, width - 1):
            grid[y][x] = "%"
        gap = 1 if (hall + side) % 2 else width - 2
        if hall < halls - 1:
            grid[y - 1][gap] = "%"
            if hall == 0 and not plan.dead_end:
                grid[y - 1][gap] = "r"
                lines.append(rival(("r", min(badge, 6), 2), dice))
    grid[height - 1][5] = "m"
    town = plan.gyms[badge]
    lines.append(f"m mat {TOWN_NAMES[town]} {'123'[badge % 3]}")
    grid[1][4:7] = ["I", "L", "I"]
    grid[2][5] = "%"
    need = level_of(badge)
    lines.append(
        f"L leader {badge} {need} {need} : COME BACK AT LEVEL/{need}, MY FRIEND. || "
        f"I LEAD GYM {badge + 1}. MY/THREE AWAIT YOU! || YOU WERE STRONG!/GO ON, AND UP."
    )
    return [f"\nmap GYM-{badge + 1}", "kind gym", *shown(grid), *lines]
