"""Parser of a world's text: maps of letters and the objects on them, read into an `Atlas`.

    map TOWN-A                     the game starts on the first map
    kind town                      town, route or gym
    wild CINDER SPRIG 7            two species in tall grass, and their level
    |TTTTTTT|                      rows: letters of TERRAIN, @ is the home of a town, others are objects
    |T.@.S1T|
    |TTTTTTT|
    S sign : WELCOME./ENJOY!//BYE. letter, kind, arguments, texts (/ new line, // new page, || next text)
    1 exit ROUTE-1 a               door, exit and mat lead to an object on another map

Objects: `door|exit|mat MAP LETTER`, `sign`, `rival SPECIES LEVEL XP`, `leader BADGE LEVEL NEEDED` (three
texts: not yet, challenge, thanks), `nurse`, `item NAME`, `lock NAME` and `gate` (two texts: closed,
opened), `trophy`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge.tiles import SPECIES, load_graphics

WALK, SOLID, GRASS, WARP = range(4)
# Blocks by number: (name, kind for walking, name of its picture).
BLOCKS = (
    ("floor", WALK, "floor"), ("path", WALK, "path"), ("grass", GRASS, "grass"), ("flower", WALK, "flower"),
    ("tiled", WALK, "tiled"), ("exit", WARP, "path"), ("door", WARP, "door"), ("mat", WARP, "mat"),
    ("tree", SOLID, "tree"), ("water", SOLID, "water"), ("wall", SOLID, "wall"), ("window", SOLID, "window"),
    ("roof", SOLID, "roof"), ("pillar", SOLID, "pillar"), ("sign", SOLID, "sign"), ("rival", SOLID, "person"),
    ("leader", SOLID, "leader"), ("nurse", SOLID, "nurse"), ("item", SOLID, "ball"), ("lock", SOLID, "lock"),
    ("gate", SOLID, "guard"), ("trophy", SOLID, "trophy"),
)  # fmt: skip
BLOCK_NUMBER = {name: index for index, (name, _, _) in enumerate(BLOCKS)}
TERRAIN = {
    ".": "floor", ",": "path", ":": "grass", "*": "flower", "%": "tiled", "T": "tree", "~": "water",
    "#": "wall", "O": "window", "^": "roof", "I": "pillar", "@": "path",
}  # fmt: skip
TILESETS = ("town", "route", "gym")
FLOOR_BLOCK = {"town": "floor", "route": "floor", "gym": "tiled"}
BORDER_BLOCK = {"town": "tree", "route": "tree", "gym": "roof"}
WARPS = ("exit", "door", "mat")
EVENT_KINDS = (
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
)  # the index is the number in the game
TEXTS = {"sign": 1, "rival": 1, "leader": 3, "nurse": 1, "item": 1, "lock": 2, "gate": 2}
ARGUMENTS = {"rival": 3, "leader": 3, "item": 1, "lock": 1, **dict.fromkeys(WARPS, 2)}
ITEMS = ("AXE", "LAMP", "PASS")  # item numbers start at 1
FIRST_FLAG = 16  # first flag of objects that can be removed; flags 1 to 8 belong to the leaders
LINE_LENGTH, MAX_BLOCKS = 18, 1760  # letters per line; size of the game's map buffer
MARGIN = 5  # blocks around a map in the map buffer

Place = tuple[int, int, int]  # map, y, x


class WorldError(ConfigError):
    """An error in a world's text; the message has the line, the value and what was expected."""

    line = 0  # of the text, from 1


@dataclass(frozen=True)
class Event:
    """An object on a map. It disappears when event flag `flag` is set; flag 0: never."""

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
    rows: tuple[tuple[int, ...], ...]  # [height][width] block numbers, without events
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
        return sum(event.kind == "leader" for game_map in self.maps for event in game_map.events)

    def walkable(self) -> list[Place]:
        """All places that the player can stand on: also doors and places of removable objects."""
        places = []
        for game_map in self.maps:
            fixed = {(e.y, e.x) for e in game_map.events if not e.flag and e.block not in WARPS}
            for y, row in enumerate(game_map.rows):
                for x, block in enumerate(row):
                    door = any((e.y, e.x) == (y, x) and e.block in WARPS for e in game_map.events)
                    if (y, x) not in fixed and (door or BLOCKS[block][1] != SOLID):
                        places.append((game_map.number, y, x))
        return places


@dataclass
class Draft:
    """A map that is being parsed."""

    name: str
    line: int
    kind: str = ""
    wild: tuple[int, int, int] = (0, 0, 1)
    rows: list[str] = field(default_factory=list)
    objects: dict[str, tuple[int, str, list[str], tuple[str, ...]]] = field(default_factory=dict)

    def positions(self, letter: str) -> list[tuple[int, int]]:
        return [(y, x) for y, row in enumerate(self.rows) for x, c in enumerate(row) if c == letter]


def error_at(line: int, message: str) -> WorldError:
    error = WorldError(f"world, line {line}: {message}")
    error.line = line
    return error


def parse_choice(line: int, what: str, value: str, names: tuple[str, ...]) -> int:
    if value not in names:
        near = nearest(value, names)
        raise error_at(
            line,
            f"{what} {value!r}: expected one of {', '.join(names)}" + (f"; nearest: {near}" if near else ""),
        )
    return names.index(value)


def parse_number(line: int, what: str, value: str, low: int, high: int) -> int:
    if not value.isdecimal() or not low <= int(value) <= high:
        raise error_at(line, f"{what} {value!r}: expected a number from {low} to {high}")
    return int(value)


def parse_drafts(source: str) -> list[Draft]:
    drafts: list[Draft] = []
    for line, text in enumerate(source.splitlines(), 1):
        words = text.split()
        if not words or text.startswith(";"):
            continue
        if words[0] == "map" and len(words) == 2:
            if any(draft.name == words[1] for draft in drafts):
                raise error_at(line, f"map {words[1]!r} is defined twice")
            drafts.append(Draft(words[1], line))
            continue
        if not drafts:
            raise error_at(line, f"{text.strip()!r}: expected `map NAME` before it")
        draft = drafts[-1]
        if text.lstrip().startswith("|"):
            row = text.strip()
            if len(row) < 3 or not row.endswith("|") or (draft.rows and len(row) - 2 != len(draft.rows[0])):
                raise error_at(line, f"{row!r}: expected a row between bars, as long as the first")
            draft.rows.append(row[1:-1])
        elif words[0] == "kind" and len(words) == 2:
            draft.kind = TILESETS[parse_choice(line, "kind", words[1], TILESETS)]
        elif words[0] == "wild" and len(words) == 4:
            pair = [parse_choice(line, "species", name, SPECIES) for name in words[1:3]]
            draft.wild = (pair[0], pair[1], parse_number(line, "level", words[3], 1, 60))
        elif len(words[0]) == 1 and len(words) > 1:
            header, _, text_part = text.strip().partition(" : ")
            letter, kind, *arguments = header.split()
            if letter in TERRAIN or letter in draft.objects:
                raise error_at(
                    line, f"letter {letter!r}: expected one that is neither terrain nor used on this map"
                )
            parse_choice(line, "object", kind, (*EVENT_KINDS[2:], *WARPS))
            texts = tuple(part.strip() for part in text_part.split("||")) if text_part.strip() else ()
            draft.objects[letter] = (line, kind, arguments, texts)
        else:
            raise error_at(line, f"{text.strip()!r}: expected map, kind, wild, a row or an object")
    return drafts


def parse(text: str) -> Atlas:
    """Parses the text of a world; raises WorldError."""
    drafts = parse_drafts(text)
    names = tuple(draft.name for draft in drafts)
    if not drafts:
        raise error_at(1, "no map: expected `map NAME`")
    maps: list[Map] = []
    flags, towns = FIRST_FLAG, 0
    for index, draft in enumerate(drafts):
        check_draft(draft, first=index == 0)
        events = []
        for letter, (line, kind, arguments, texts) in draft.objects.items():
            places = draft.positions(letter)
            if len(places) != 1:
                raise error_at(
                    line, f"letter {letter!r} stands {len(places)} times on {draft.name}: expected once"
                )
            if len(arguments) != ARGUMENTS.get(kind, 0) or len(texts) != TEXTS.get(kind, 0):
                raise error_at(
                    line,
                    f"{kind}: expected {ARGUMENTS.get(kind, 0)} arguments and {TEXTS.get(kind, 0)} texts",
                )
            if kind in WARPS:
                numbers = warp_arguments(line, arguments, drafts, names)
            else:
                numbers = object_arguments(line, kind, arguments)
            for page_text in texts:
                check_text(line, page_text)
            flag = 0
            if kind in ("rival", "item", "lock", "gate"):
                flag, flags = flags, flags + 1
            y, x = places[0]
            events.append(Event("warp" if kind in WARPS else kind, y, x, kind, flag, numbers, texts))
        ground = BLOCK_NUMBER[FLOOR_BLOCK[draft.kind]]
        rows = tuple(
            tuple(BLOCK_NUMBER[TERRAIN[c]] if c in TERRAIN else ground for c in row) for row in draft.rows
        )
        home = draft.positions("@")[0] if draft.kind == "town" else (0, 0)
        town = towns if draft.kind == "town" else 0xFF
        towns += draft.kind == "town"
        maps.append(Map(index, draft.name, draft.kind, rows, tuple(events), home, town, draft.wild))
    atlas = Atlas(tuple(maps))
    badges = sorted(e.arguments[0] for m in maps for e in m.events if e.kind == "leader")
    if badges != list(range(len(badges))) or not 1 <= len(badges) <= 8:
        raise error_at(1, f"badges {badges}: expected 0, 1, 2, … without a gap, at most eight")
    if not any(e.kind == "trophy" for m in maps for e in m.events):
        raise error_at(1, "no trophy: expected one, which ends the game")
    if flags > 256 or towns > 16:
        raise error_at(
            1,
            f"{flags - FIRST_FLAG} removable objects and {towns} towns: "
            f"expected at most {256 - FIRST_FLAG} and 16",
        )
    return atlas


def check_draft(draft: Draft, first: bool) -> None:
    if not draft.kind:
        raise error_at(draft.line, f"map {draft.name} has no kind: expected one of {', '.join(TILESETS)}")
    if not draft.rows:
        raise error_at(draft.line, f"map {draft.name} has no rows")
    height, width = len(draft.rows), len(draft.rows[0])
    if (height + 2 * MARGIN) * (width + 2 * MARGIN) > MAX_BLOCKS or max(height, width) > 200:
        raise error_at(
            draft.line,
            f"map {draft.name} of {height} x {width} is too large: expected at most {MAX_BLOCKS} "
            f"blocks with {MARGIN} more on each side",
        )
    for row in draft.rows:
        for letter in row:
            if letter not in TERRAIN and letter not in draft.objects:
                raise error_at(
                    draft.line, f"map {draft.name}: letter {letter!r} is neither terrain nor an object"
                )
    if first and draft.kind != "town":
        raise error_at(draft.line, f"the first map, {draft.name}, is a {draft.kind}: expected a town")
    if draft.kind == "town" and len(draft.positions("@")) != 1:
        raise error_at(
            draft.line, f"town {draft.name} has {len(draft.positions('@'))} homes (@): expected one"
        )


def check_text(line: int, text: str) -> None:
    for letter in text:
        if letter not in load_graphics().charmap:
            raise error_at(
                line, f"no tile for the letter {letter!r}: expected capitals, digits and .,!?'-/:$+>"
            )
    for page in text.split("//"):
        lines = page.split("/")
        if len(lines) > 2 or any(len(part.strip()) > LINE_LENGTH for part in lines):
            raise error_at(
                line, f"page {page.strip()!r}: expected two lines of {LINE_LENGTH} letters or fewer"
            )


def warp_arguments(
    line: int, arguments: list[str], drafts: list[Draft], names: tuple[str, ...]
) -> tuple[int, int, int]:
    target = drafts[parse_choice(line, "map", arguments[0], names)]
    positions = target.positions(arguments[1])
    if (
        len(positions) != 1
        or arguments[1] not in target.objects
        or target.objects[arguments[1]][1] not in WARPS
    ):
        raise error_at(line, f"letter {arguments[1]!r} of {target.name}: expected one door, exit or mat")
    return (names.index(target.name), *positions[0])


def object_arguments(line: int, kind: str, arguments: list[str]) -> tuple[int, int, int]:
    if kind == "rival":
        species = parse_choice(line, "species", arguments[0], SPECIES)
        return (
            species,
            parse_number(line, "level", arguments[1], 1, 60),
            parse_number(line, "experience", arguments[2], 0, 10),
        )
    if kind == "leader":
        level = parse_number(line, "level", arguments[1], 1, 60)
        return (
            parse_number(line, "badge", arguments[0], 0, 7),
            level,
            parse_number(line, "level needed", arguments[2], 1, 60),
        )
    if kind in ("item", "lock"):
        return parse_choice(line, "item", arguments[0], ITEMS) + 1, 0, 0
    return 0, 0, 0
