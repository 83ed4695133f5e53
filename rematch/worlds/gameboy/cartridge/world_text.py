"""The world as text: maps of letters and what stands on them, read into an `Atlas` with every mistake named.

    map TOWN-A                     the first map is where the game starts
    kind town                      town, route or gym
    wild CINDER SPRIG 7            who lives in tall grass, and their level
    |TTTTTTT|                      rows; the letters of TERRAIN, @ the town's home, others are objects
    |T.@.S1T|
    |TTTTTTT|
    S sign : WELCOME./ENJOY!//BYE. a letter, its kind, its arguments, texts (/ line, // page, || next)
    1 exit ROUTE-1 a               door, exit and mat lead to a letter of another map

Objects: `door|exit|mat MAP LETTER`, `sign`, `rival SPECIES LEVEL XP`, `leader BADGE LEVEL NEEDED` (three
texts: not yet, challenge, thanks), `nurse`, `item NAME`, `lock NAME` and `gate` (two texts: closed,
opened), `trophy`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge.tiles import SPECIES, art

WALK, SOLID, GRASS, WARP = range(4)
# Blocks by number: name, what it is to a walker, whose picture it has.
BLOCKS = (
    ("floor", WALK, "floor"), ("path", WALK, "path"), ("grass", GRASS, "grass"), ("flower", WALK, "flower"),
    ("tiled", WALK, "tiled"), ("exit", WARP, "path"), ("door", WARP, "door"), ("mat", WARP, "mat"),
    ("tree", SOLID, "tree"), ("water", SOLID, "water"), ("wall", SOLID, "wall"), ("window", SOLID, "window"),
    ("roof", SOLID, "roof"), ("pillar", SOLID, "pillar"), ("sign", SOLID, "sign"), ("rival", SOLID, "person"),
    ("leader", SOLID, "leader"), ("nurse", SOLID, "nurse"), ("item", SOLID, "ball"), ("lock", SOLID, "lock"),
    ("gate", SOLID, "guard"), ("trophy", SOLID, "trophy"),
)  # fmt: skip
NUMBER = {name: index for index, (name, _, _) in enumerate(BLOCKS)}
TERRAIN = {
    ".": "floor", ",": "path", ":": "grass", "*": "flower", "%": "tiled", "T": "tree", "~": "water",
    "#": "wall", "O": "window", "^": "roof", "I": "pillar", "@": "path",
}  # fmt: skip
TILESETS = ("town", "route", "gym")
GROUND = {"town": "floor", "route": "floor", "gym": "tiled"}
BORDER = {"town": "tree", "route": "tree", "gym": "roof"}
WARPS = ("exit", "door", "mat")
KINDS = (
    "",
    "warp",
    "sign",
    "rival",
    "leader",
    "nurse",
    "item",
    "lock",
    "gate",
    "trophy",
)  # numbers in the game
TEXTS = {"sign": 1, "rival": 1, "leader": 3, "nurse": 1, "item": 1, "lock": 2, "gate": 2}
ARGUMENTS = {"rival": 3, "leader": 3, "item": 1, "lock": 1, **dict.fromkeys(WARPS, 2)}
ITEMS = ("AXE", "LAMP", "PASS")  # numbers from 1
FIRST_FLAG = 16  # of things that go away; 1 to 8 are the leaders
LINE, ROOM = 18, 1760  # letters of a line; blocks of the game's map buffer
MARGIN = 5

Place = tuple[int, int, int]  # map, y, x


class WorldError(ConfigError):
    """A world's text that makes no game: map, line and what was expected."""


@dataclass(frozen=True)
class Event:
    """Something that stands on a map. It stays for ever with `flag` 0, else until that flag is set."""

    kind: str
    y: int
    x: int
    block: str
    flag: int = 0
    arguments: tuple[int, int, int] = (0, 0, 0)
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Map:
    number: int
    name: str
    kind: str
    rows: tuple[tuple[int, ...], ...]  # block numbers, without what stands on them
    events: tuple[Event, ...]
    home: tuple[int, int] = (0, 0)
    town: int = 0xFF
    wild: tuple[int, int, int] = (0, 0, 1)

    @property
    def height(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        return len(self.rows[0])


@dataclass(frozen=True)
class Atlas:
    maps: tuple[Map, ...]

    @property
    def badges(self) -> int:
        return sum(event.kind == "leader" for one in self.maps for event in one.events)

    def walkable(self) -> list[Place]:
        """Every tile that can be walked on, doors and what stands in the way for a while included."""
        out = []
        for one in self.maps:
            fixed = {(e.y, e.x) for e in one.events if not e.flag and e.block not in WARPS}
            for y, row in enumerate(one.rows):
                for x, block in enumerate(row):
                    door = any((e.y, e.x) == (y, x) and e.block in WARPS for e in one.events)
                    if (y, x) not in fixed and (door or BLOCKS[block][1] != SOLID):
                        out.append((one.number, y, x))
        return out


@dataclass
class Draft:
    """A map while its text is read."""

    name: str
    line: int
    kind: str = ""
    wild: tuple[int, int, int] = (0, 0, 1)
    rows: list[str] = field(default_factory=list)
    objects: dict[str, tuple[int, str, list[str], tuple[str, ...]]] = field(default_factory=dict)

    def where(self, letter: str) -> list[tuple[int, int]]:
        return [(y, x) for y, row in enumerate(self.rows) for x, c in enumerate(row) if c == letter]


def refuse(line: int, words: str) -> WorldError:
    return WorldError(f"world, line {line}: {words}")


def choice(line: int, what: str, value: str, names: tuple[str, ...]) -> int:
    if value not in names:
        near = nearest(value, names)
        raise refuse(
            line,
            f"{what} {value!r}: expected one of {', '.join(names)}" + (f"; nearest: {near}" if near else ""),
        )
    return names.index(value)


def number(line: int, what: str, value: str, low: int, high: int) -> int:
    if not value.isdecimal() or not low <= int(value) <= high:
        raise refuse(line, f"{what} {value!r}: expected a number from {low} to {high}")
    return int(value)


def drafts(text: str) -> list[Draft]:
    out: list[Draft] = []
    for line, raw in enumerate(text.splitlines(), 1):
        words = raw.split()
        if not words or raw.startswith(";"):
            continue
        if words[0] == "map" and len(words) == 2:
            if any(one.name == words[1] for one in out):
                raise refuse(line, f"map {words[1]!r} is there twice")
            out.append(Draft(words[1], line))
            continue
        if not out:
            raise refuse(line, f"{raw.strip()!r}: expected `map NAME` first")
        one = out[-1]
        if raw.lstrip().startswith("|"):
            row = raw.strip()
            if len(row) < 3 or not row.endswith("|") or (one.rows and len(row) - 2 != len(one.rows[0])):
                raise refuse(line, f"{row!r}: expected a row between bars, as long as the first")
            one.rows.append(row[1:-1])
        elif words[0] == "kind" and len(words) == 2:
            one.kind = TILESETS[choice(line, "kind", words[1], TILESETS)]
        elif words[0] == "wild" and len(words) == 4:
            pair = [choice(line, "species", name, SPECIES) for name in words[1:3]]
            one.wild = (pair[0], pair[1], number(line, "level", words[3], 1, 60))
        elif len(words[0]) == 1 and len(words) > 1:
            head, _, tail = raw.strip().partition(" : ")
            letter, kind, *arguments = head.split()
            if letter in TERRAIN or letter in one.objects:
                raise refuse(
                    line, f"letter {letter!r}: expected one that is neither terrain nor used on this map"
                )
            choice(line, "object", kind, (*KINDS[2:], *WARPS))
            texts = tuple(part.strip() for part in tail.split("||")) if tail.strip() else ()
            one.objects[letter] = (line, kind, arguments, texts)
        else:
            raise refuse(line, f"{raw.strip()!r}: expected map, kind, wild, a row or an object")
    return out


def parse(text: str) -> Atlas:
    """The world that a text describes."""
    given = drafts(text)
    names = tuple(one.name for one in given)
    if not given:
        raise refuse(1, "no map: expected `map NAME`")
    maps: list[Map] = []
    flags, towns = FIRST_FLAG, 0
    for index, one in enumerate(given):
        check(one, first=index == 0)
        events = []
        for letter, (line, kind, arguments, texts) in one.objects.items():
            places = one.where(letter)
            if len(places) != 1:
                raise refuse(
                    line, f"letter {letter!r} stands {len(places)} times on {one.name}: expected once"
                )
            if len(arguments) != ARGUMENTS.get(kind, 0) or len(texts) != TEXTS.get(kind, 0):
                raise refuse(
                    line,
                    f"{kind}: expected {ARGUMENTS.get(kind, 0)} arguments and {TEXTS.get(kind, 0)} texts",
                )
            if kind in WARPS:
                numbers = warp(line, arguments, given, names)
            else:
                numbers = meaning(line, kind, arguments)
            for said in texts:
                check_text(line, said)
            flag = 0
            if kind in ("rival", "item", "lock", "gate"):
                flag, flags = flags, flags + 1
            y, x = places[0]
            events.append(Event("warp" if kind in WARPS else kind, y, x, kind, flag, numbers, texts))
        ground = NUMBER[GROUND[one.kind]]
        rows = tuple(tuple(NUMBER[TERRAIN[c]] if c in TERRAIN else ground for c in row) for row in one.rows)
        home = one.where("@")[0] if one.kind == "town" else (0, 0)
        town = towns if one.kind == "town" else 0xFF
        towns += one.kind == "town"
        maps.append(Map(index, one.name, one.kind, rows, tuple(events), home, town, one.wild))
    atlas = Atlas(tuple(maps))
    badges = sorted(e.arguments[0] for m in maps for e in m.events if e.kind == "leader")
    if badges != list(range(len(badges))) or not 1 <= len(badges) <= 8:
        raise refuse(1, f"badges {badges}: expected 0 and on without a gap, eight at most")
    if not any(e.kind == "trophy" for m in maps for e in m.events):
        raise refuse(1, "no trophy: expected one, for the game to have an end")
    if flags > 256 or towns > 16:
        raise refuse(
            1, f"{flags - FIRST_FLAG} things and {towns} towns: expected at most {256 - FIRST_FLAG} and 16"
        )
    return atlas


def check(one: Draft, first: bool) -> None:
    if not one.kind:
        raise refuse(one.line, f"map {one.name} has no kind: expected one of {', '.join(TILESETS)}")
    if not one.rows:
        raise refuse(one.line, f"map {one.name} has no rows")
    height, width = len(one.rows), len(one.rows[0])
    if (height + 2 * MARGIN) * (width + 2 * MARGIN) > ROOM or max(height, width) > 200:
        raise refuse(
            one.line,
            f"map {one.name} of {height} x {width} is too large: expected at most {ROOM} "
            f"blocks with {MARGIN} more on each side",
        )
    for row in one.rows:
        for letter in row:
            if letter not in TERRAIN and letter not in one.objects:
                raise refuse(one.line, f"map {one.name}: nothing says what the letter {letter!r} is")
    if first and one.kind != "town":
        raise refuse(one.line, f"the first map, {one.name}, is a {one.kind}: expected a town")
    if one.kind == "town" and len(one.where("@")) != 1:
        raise refuse(one.line, f"town {one.name} has {len(one.where('@'))} homes (@): expected one")


def check_text(line: int, said: str) -> None:
    for letter in said:
        if letter not in art().charmap:
            raise refuse(
                line, f"no tile for the letter {letter!r}: expected capitals, digits and .,!?'-/:$+>"
            )
    for page in said.split("//"):
        lines = page.split("/")
        if len(lines) > 2 or any(len(part.strip()) > LINE for part in lines):
            raise refuse(line, f"page {page.strip()!r}: expected two lines of {LINE} letters at most")


def warp(line: int, arguments: list[str], given: list[Draft], names: tuple[str, ...]) -> tuple[int, int, int]:
    target = given[choice(line, "map", arguments[0], names)]
    found = target.where(arguments[1])
    if len(found) != 1 or arguments[1] not in target.objects or target.objects[arguments[1]][1] not in WARPS:
        raise refuse(line, f"letter {arguments[1]!r} of {target.name}: expected one door, exit or mat")
    return (names.index(target.name), *found[0])


def meaning(line: int, kind: str, arguments: list[str]) -> tuple[int, int, int]:
    if kind == "rival":
        species = choice(line, "species", arguments[0], SPECIES)
        return (
            species,
            number(line, "level", arguments[1], 1, 60),
            number(line, "experience", arguments[2], 0, 10),
        )
    if kind == "leader":
        level = number(line, "level", arguments[1], 1, 60)
        return (
            number(line, "badge", arguments[0], 0, 7),
            level,
            number(line, "level needed", arguments[2], 1, 60),
        )
    if kind in ("item", "lock"):
        return choice(line, "item", arguments[0], ITEMS) + 1, 0, 0
    return 0, 0, 0
