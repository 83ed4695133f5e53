"""Generates the text of a world (format: world_text.py) from a size and a seed.

A world is a chain of towns from south to north, with winding routes between them. A plan fixes the towns of
the gyms, the locked gyms, and the places of the key items. A key item is always farther away than its lock,
so the player must come back. The hall of fame is in the first town, behind a gate that requires all badges.
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
    """Layout of a world size. Towns are numbered from 0."""

    towns: int
    gyms: tuple[int, ...]  # the town of each gym, by badge
    locks: dict[int, int]  # badge -> town with the key item; -1: the end of the last route
    corridors: int  # per route
    width: int  # of a route, in blocks
    dead_end: bool = False  # the last route leads to no town
    three_rivals: bool = False  # three rivals per route instead of two


SIZES = {
    "tiny": Plan(1, (0,), {0: -1}, corridors=3, width=14, dead_end=True),
    "mid": Plan(2, (1, 0), {1: 1}, corridors=4, width=18, three_rivals=True),
    "small": Plan(3, (1, 2, 1), {2: 2}, corridors=5, width=22),
    "kanto-ish": Plan(8, (1, 2, 3, 4, 5, 6, 7, 0), {2: 4, 5: 7, 7: 7}, corridors=5, width=22),
}
TOWN_NAMES = ("DAWN", "BIRCH", "COVE", "DUNE", "ELM", "FROST", "GLEN", "HAVEN")


@dataclass
class LayoutRandom:
    """Random numbers keyed by (seed, map, count): the same on every machine."""

    seed: int
    index: int
    count: int = 0

    def below(self, bound: int) -> int:
        self.count += 1
        return rng.key(self.seed, rng.MAP_LAYOUT, self.index, self.count) % bound

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def shuffled(self, items: list[str]) -> list[str]:
        remaining, shuffled = list(items), []
        while remaining:
            shuffled.append(remaining.pop(self.below(len(remaining))))
        return shuffled


def generate(size: str, seed: int) -> str:
    """Text of the world of a size and a seed."""
    plan = SIZES[size]
    routes = plan.towns - 1 + plan.dead_end
    parts = [f"; {size}, seed {seed}"]
    for town in range(plan.towns):
        parts += town_map(plan, town, routes, LayoutRandom(seed, town))
        if town < routes:
            parts += route_map(plan, town, LayoutRandom(seed, 100 + town))
    for badge in range(len(plan.gyms)):
        parts += gym_map(plan, badge, LayoutRandom(seed, 200 + badge))
    return "\n".join(parts) + "\n"


def format_rows(grid: Grid) -> list[str]:
    return ["|" + "".join(row) + "|" for row in grid]


def stamp(grid: Grid, top: int, left: int, rows: list[str]) -> None:
    for y, row in enumerate(rows):
        for x, letter in enumerate(row):
            grid[top + y][left + x] = letter


def required_level(badge: int) -> int:
    """Level that a leader requires."""
    return constants.START_LEVEL + 3 * (badge + 1)


# --- towns ------------------------------------------------------------------------------------------

HOUSE = [".^^^^^.", ".^^^^^.", ".#O#O#.", ".......", "......."]
GARDEN = [".*...*.", "..~~~..", ".~~~~~.", "..~~~*.", ".*....."]
GYM = [".^^^^^.", ".^^^^^.", ".#OdO#.", "...,s..", "...,..."]
LOCKED = [".^^^^^.", ".^^^^^.", ".#OdO#.", ".I#,#I.", "s.#k#.."]
HALL = ["I##I##I", "I%%H%%I", "I%%%%%I", "I##g##I", "..s,..."]


def replace_letters(rows: list[str], names: dict[str, str]) -> list[str]:
    return ["".join(names.get(c, c) for c in row) for row in rows]


def town_map(plan: Plan, town: int, routes: int, random: LayoutRandom) -> list[str]:
    name = TOWN_NAMES[town]
    grid = [["T" if y in (0, 15) or x in (0, 19) else "." for x in range(20)] for y in range(16)]
    for y in range(1, 15):
        grid[y][9] = ","
    for x in range(2, 18):
        grid[7][x] = ","
    plots: list[list[str]] = []
    lines: list[str] = []
    for badge, gym_town in enumerate(plan.gyms):
        if gym_town != town:
            continue
        door, sign, lock = "123"[badge % 3], "456"[badge % 3], "789"[badge % 3]
        locked = badge in plan.locks
        plots.append(replace_letters(LOCKED if locked else GYM, {"d": door, "s": sign, "k": lock}))
        lines.append(f"{door} door GYM-{badge + 1} m")
        lines.append(f"{sign} sign : GYM {badge + 1} ASKS FOR/LEVEL {required_level(badge)}.")
        if locked:
            item = lock_item(plan, badge)
            closed = f"YOU NEED THE {item}/TO PASS THE BUSH."
            lines.append(f"{lock} lock {item} : {closed} || YOU USE THE {item}./THE WAY IS FREE!")
    if town == 0:
        plots.append(replace_letters(HALL, {"s": "c"}))
        lines += [
            "H trophy",
            "g gate : ONLY THOSE WITH/ALL BADGES PASS. || ALL BADGES! PLEASE/COME IN, CHAMPION.",
            "c sign : HALL OF FAME",
        ]
    fill = [HOUSE, GARDEN, HOUSE]
    while len(plots) < 4:
        plots.append(fill[len(plots) - 1])
    places = random.shuffled(["1 1", "1 12", "9 1", "9 12"])
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
    for badge, gym_town in plan.locks.items():
        if gym_town == town:
            index = list(plan.locks).index(badge)
            letter = "KLM"[index]
            grid[1][(8, 10, 11)[index]] = letter
            lines.append(item_line(plan, badge, letter))
    stage = sum(gym_town <= town for gym_town in plan.gyms) - 1 if town else -1
    if stage >= 0:  # an optional rival, as a source of experience
        grid[5][8] = "r"
        lines.append(rival_line(("r", town, 2), random))
    scatter(grid, random)
    return [f"\nmap {name}", "kind town", *format_rows(grid), *lines]


def lock_item(plan: Plan, badge: int) -> str:
    return ITEMS[list(plan.locks).index(badge)]


def item_line(plan: Plan, badge: int, letter: str) -> str:
    item = lock_item(plan, badge)
    return f"{letter} item {item} : YOU FOUND IT:/{item}!"


def scatter(grid: Grid, random: LayoutRandom) -> None:
    """Adds a few flowers, so that no two towns look alike."""
    for y in range(1, len(grid) - 1):
        for x in range(1, len(grid[0]) - 1):
            if grid[y][x] == "." and random.chance(6):
                grid[y][x] = "*"


def rival_line(position: tuple[str, int, int], random: LayoutRandom) -> str:
    """Object line of a rival: `position` is (letter, stage, index of the rival in its stage, 0 to 2)."""
    letter, stage, index = position
    level = max(1, constants.START_LEVEL + 3 * max(stage - (index == 2), 0) + index)
    species = SPECIES[random.below(len(SPECIES))]
    greetings = (
        "I AM NEVER BEATEN!",
        "NOBODY PASSES ME!",
        "LET US HAVE A GO!",
        "SHOW ME YOUR BEST!",
        "A MATCH? GLADLY!",
    )
    return f"{letter} rival {species} {level} 10 : {greetings[random.below(len(greetings))]}"


# --- routes -----------------------------------------------------------------------------------------


def route_map(plan: Plan, route: int, random: LayoutRandom) -> list[str]:
    """A route: stacked corridors with gaps at alternating ends; rivals stand in the gaps."""
    corridor_height, width, corridors = 3, plan.width, plan.corridors
    height = corridors * (corridor_height + 1) + 1
    grid = [["T"] * width for _ in range(height)]
    side = random.below(2)
    lines: list[str] = []
    gaps = []
    for index in range(corridors):
        top = 1 + (corridors - 1 - index) * (corridor_height + 1)  # the first corridor is the southernmost
        for y in range(top, top + corridor_height):
            for x in range(1, width - 1):
                grid[y][x] = "."
        band = 3 + random.below(width - 12)
        for y in range(top, top + corridor_height):  # tall grass over the whole height: it cannot be avoided
            for x in range(band, band + 3 + random.below(3)):
                grid[y][x] = ":"
        for _ in range(width // 5):  # obstacles, at most one per column
            x = 2 + random.below(width - 4)
            column = [grid[y][x] for y in range(top, top + corridor_height)]
            beside = [grid[y][n] for y in range(top, top + corridor_height) for n in (x - 1, x + 1)]
            if not {"T", "~"} & {*column, *beside}:
                grid[top + 1 if random.chance(60) else top + 2 * random.below(2)][x] = (
                    "~" if random.chance(40) else "T"
                )
        gap_on_right = (index + side) % 2 == 0
        gaps.append((top - 1, width - 2 - random.below(2) if gap_on_right else 1 + random.below(2)))
    for index, (y, x) in enumerate(gaps[:-1]):
        grid[y][x] = "."
        for neighbour in (y - 1, y + 1):
            if grid[neighbour][x] in "T~":
                grid[neighbour][x] = "."
        if index in (0, corridors - 2) or plan.three_rivals:
            letter = "rst"[index] if plan.three_rivals else "rs"[index > 0]
            grid[y][x] = letter
            lines.append(rival_line((letter, route, "rst".index(letter)), random))
    start = gaps[0][1]
    start = width - 2 if start < width // 2 else 1  # the southern exit is at the other end than the first gap
    grid[height - 1][start] = "y"
    lines.append(f"y exit {TOWN_NAMES[route]} x")
    clear(grid, height - 2, start)
    y, x = gaps[-1]
    if plan.dead_end and route == plan.towns - 1:
        badge = next(iter(plan.locks))
        grid[y + 1][x] = "K"
        lines.append(item_line(plan, badge, "K"))
        grid[y + 3][x] = "t"
        lines.append(rival_line(("t", route, 2), random))
    else:
        grid[y][x] = "x"
        clear(grid, y + 1, x)
        lines.append(f"x exit {TOWN_NAMES[route + 1]} y")
    sign_x = width // 2
    grid[height - 2][sign_x] = "p"
    lines.append(f"p sign : ROUTE {route + 1}/MIND THE GRASS!")
    pair = [SPECIES[random.below(3)], SPECIES[3 + random.below(3)]]
    return [
        f"\nmap ROUTE-{route + 1}",
        "kind route",
        f"wild {pair[0]} {pair[1]} {3 * route + 7}",
        *format_rows(grid),
        *lines,
    ]


def clear(grid: Grid, y: int, x: int) -> None:
    if grid[y][x] in "T~":
        grid[y][x] = "."


# --- gyms -------------------------------------------------------------------------------------------


def gym_map(plan: Plan, badge: int, random: LayoutRandom) -> list[str]:
    """A gym: halls with one opening each, at alternating ends; the leader is in the last hall."""
    halls, width = 3 + random.below(2), 11
    height = 2 * halls + 3
    grid = [["#"] * width for _ in range(height)]
    side = random.below(2)
    lines: list[str] = []
    for hall in range(halls):
        y = height - 2 - 2 * hall
        for x in range(1, width - 1):
            grid[y][x] = "%"
        opening = 1 if (hall + side) % 2 else width - 2
        if hall < halls - 1:
            grid[y - 1][opening] = "%"
            if hall == 0 and not plan.dead_end:
                grid[y - 1][opening] = "r"
                lines.append(rival_line(("r", min(badge, 6), 2), random))
    grid[height - 1][5] = "m"
    town = plan.gyms[badge]
    lines.append(f"m mat {TOWN_NAMES[town]} {'123'[badge % 3]}")
    grid[1][4:7] = ["I", "L", "I"]
    grid[2][5] = "%"
    level = required_level(badge)
    lines.append(
        f"L leader {badge} {level} {level} : COME BACK AT LEVEL/{level}, MY FRIEND. || "
        f"I LEAD GYM {badge + 1}. MY/THREE AWAIT YOU! || YOU WERE STRONG!/GO ON, AND UP."
    )
    return [f"\nmap GYM-{badge + 1}", "kind gym", *format_rows(grid), *lines]
