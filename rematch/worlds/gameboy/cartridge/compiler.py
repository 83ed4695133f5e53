"""Compiles the assembly of the game and the data of a world: `build(size, seed)` returns a cartridge.

The same size and seed give the same bytes. The logo area of the header stays zero; the emulator does not
check it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge import (
    constants as constants,
)
from rematch.worlds.gameboy.cartridge import (
    ram_addresses,
    solver,
    world_generator,
    world_text,
)
from rematch.worlds.gameboy.cartridge.assembler import assemble
from rematch.worlds.gameboy.cartridge.expressions import AssemblyError
from rematch.worlds.gameboy.cartridge.tiles import FRIEND, SPECIES, Graphics, load_graphics, read_game_file
from rematch.worlds.gameboy.cartridge.world_text import Place

TITLE = "REMATCH RPG"
NO_CHANGES: Mapping[str, int] = {}
RED: tuple[str, Mapping[str, int]] = ("POKEMON RED", {"TEXT_BOX": ram_addresses.FONT_LOADED})
SHARED = (
    "START_LEVEL",
    "HP_BASE",
    "HP_STEP",
    "XP_PER_LEVEL",
    "WILD_XP",
    "ENCOUNTER",
)  # names in constants.py
SOURCES = ("core.asm", "text.asm", "world.asm", "events.asm", "match.asm")


@dataclass(frozen=True)
class Milestone:
    """An event that counts once: an event flag, a badge, a town, or the end of the game."""

    name: str
    kind: str  # town, rival, badge, item, lock, gate, end
    number: int  # bit number in the event flags, the badges or the towns; 1 for the end
    map: int


@dataclass(frozen=True)
class Cartridge:
    """A compiled game: its ROM, the world it was made from, and its solution."""

    name: str
    seed: int
    rom: bytes
    atlas: world_text.Atlas
    world: str  # text of the world

    @cached_property
    def sha1(self) -> str:
        return hashlib.sha1(self.rom).hexdigest()

    @cached_property
    def solution(self) -> tuple[int, ...]:
        """Inputs from power-on to the hall of fame: one index into constants.ACTIONS per action."""
        return solver.solve(self.atlas, self.seed)

    @property
    def walkable(self) -> list[Place]:
        return self.atlas.walkable()

    @property
    def maps(self) -> dict[int, str]:
        """Map number to map name."""
        return {game_map.number: game_map.name for game_map in self.atlas.maps}

    @property
    def towns(self) -> dict[int, int]:
        """Town number to map number."""
        return {game_map.town: game_map.number for game_map in self.atlas.maps if game_map.kind == "town"}

    @property
    def gyms(self) -> dict[int, int]:
        """Badge number to the map number of its gym."""
        return {e.arguments[0]: m.number for m in self.atlas.maps for e in m.events if e.kind == "leader"}

    @property
    def milestones(self) -> tuple[Milestone, ...]:
        milestones = []
        for game_map in self.atlas.maps:
            if game_map.kind == "town":
                milestones.append(Milestone(game_map.name, "town", game_map.town, game_map.number))
            for event in game_map.events:
                if event.kind == "leader":
                    badge = event.arguments[0]
                    milestones.append(Milestone(f"BADGE-{badge + 1}", "badge", badge, game_map.number))
                elif event.kind in ("item", "lock"):
                    name = f"{event.kind.upper()}-{world_text.ITEMS[event.arguments[0] - 1]}"
                    milestones.append(Milestone(name, event.kind, event.flag, game_map.number))
                elif event.kind in ("rival", "gate"):
                    milestones.append(
                        Milestone(
                            f"{event.kind.upper()}-{event.flag}", event.kind, event.flag, game_map.number
                        )
                    )
                elif event.kind == "trophy":
                    milestones.append(Milestone("HALL-OF-FAME", "end", 1, game_map.number))
        return tuple(milestones)


def build(size: str = "small", seed: int = 0) -> Cartridge:
    """Generates and compiles the world of a size and a seed."""
    if size not in world_generator.SIZES:
        near = nearest(size, tuple(world_generator.SIZES))
        raise ConfigError(
            f"size {size!r}: expected one of {', '.join(world_generator.SIZES)}"
            + (f"; nearest: {near}" if near else "")
        )
    if not 0 <= seed < 1 << 32:
        raise ConfigError(f"seed {seed}: expected 0 to {(1 << 32) - 1}")
    return compile_world(world_generator.generate(size, seed), size, seed)


def compile_world(
    world: str, name: str = "own", seed: int = 0, title: str = TITLE,
    addresses: Mapping[str, int] = NO_CHANGES,
) -> Cartridge:  # fmt: skip
    """Compiles the text of a world (format: world_text.py).

    title: in the header of the cartridge, as many letters as TITLE. addresses: other places of variables in
    work RAM, by their names in ram_addresses.py. RED is both, for a cartridge that is read as Pokémon Red.
    """
    if len(title) != len(TITLE):
        raise ConfigError(f"title {title!r}: expected {len(TITLE)} letters")
    atlas = world_text.parse(world)
    graphics = load_graphics()
    charmap = graphics.charmap
    first = atlas.maps[0]
    symbols = {
        **{key: value for key, value in vars(ram_addresses).items()
           if key.isupper() and isinstance(value, int)},
        **{key: getattr(constants, key) for key in SHARED},
        **{f"TITLE_{index}": ord(letter) for index, letter in enumerate(title)},
        **addresses,
        "SOLID": world_text.SOLID, "GRASS": world_text.GRASS, "WARP": world_text.WARP,
        "RNG_SEED": seed % 256, "ALL_BADGES": (1 << atlas.badges) - 1, "FRIEND_PICTURE": len(SPECIES),
        "START_MAP": 0, "START_Y": first.home[0], "START_X": first.home[1],
        "TILE_SPACE": charmap[" "], "TILE_0": charmap["0"], "TILE_SLASH": charmap["/"],
        "TILE_CURSOR": charmap[">"], "TILE_BAR": graphics.bar, "TILE_TL": charmap["┌"],
        "TILE_TOP": charmap["─"], "TILE_TR": charmap["┐"], "TILE_SIDE": charmap["│"],
        "TILE_BL": charmap["└"], "TILE_BR": charmap["┘"],
    }  # fmt: skip
    lines = [
        *(read_game_file(source) for source in SOURCES),
        *graphics_tables(graphics),
        *text_tables(name),
        *map_tables(atlas),
    ]
    try:
        image = bytearray(assemble("\n".join(lines), charmap=charmap, constants=symbols).image)
    except AssemblyError as error:
        raise ConfigError(f"{name}: expected a world that fits into 32 KiB ({error})") from None
    checksum = 0
    for byte in image[0x134:0x14D]:
        checksum = (checksum - byte - 1) & 0xFF
    image[0x14D] = checksum
    total = (sum(image) - image[0x14E] - image[0x14F]) & 0xFFFF
    image[0x14E], image[0x14F] = total >> 8, total & 0xFF
    return Cartridge(name, seed, bytes(image), atlas, world)


def db(values: bytes | list[int] | tuple[int, ...]) -> str:
    return "db " + ", ".join(map(str, values))


def graphics_tables(graphics: Graphics) -> list[str]:
    """Assembly lines: tiles, blocks, and the tile numbers of creatures, player and title."""
    lines = []
    for name, bank in zip(("Low", "Middle", "High"), graphics.banks):
        lines += [
            f"Tiles{name}:",
            *(db(bank[start : start + 16]) for start in range(0, len(bank), 16)),
            f"Tiles{name}End:",
        ]
    lines += [
        "ds (256 - @ % 256) % 256",
        "Blocks:",
        *(db(graphics.blocks[picture]) for _, _, picture in world_text.BLOCKS),
    ]
    lines += ["ds (256 - @ % 256) % 256", "BlockKinds:", db([kind for _, kind, _ in world_text.BLOCKS])]
    lines += ["Pictures:", *(db(graphics.creatures[name]) for name in (*SPECIES, FRIEND))]
    order = ("down", "down-walk", "up", "up-walk", "left", "left-walk", "left", "left-walk")
    lines += [
        "PlayerTiles:",
        db([graphics.player[name] for name in order]),
        "TitleTiles:",
        db(graphics.title),
    ]
    return [*lines, "LeaderTeams:", *(db(constants.leader_team(badge)) for badge in range(8))]


def encode_text(text: str) -> str:
    """A `db` line with a text: / becomes code 1, // code 2, {foe}, {move} and {number} 3 to 5; 0 ends it."""
    parts: list[str] = []
    for page_index, page in enumerate(text.split("//")):
        parts += ["2"] if page_index else []
        for row, line in enumerate(page.split("/")):
            parts += ["1"] if row else []
            for index, piece in enumerate(line.split("{")):
                code, _, literal = piece.partition("}") if index else ("", "", piece)
                parts += [
                    {"": "", "foe": "3", "move": "4", "number": "5"}[code],
                    f'"{literal}"' if literal else "",
                ]
    return "db " + ", ".join([part for part in parts if part] + ["0"])


GAME_TEXTS = {
    "TitleStart": "PRESS START",
    "IntroText": "HELLO! THIS IS/{friend}, YOUR FRIEND.//COLLECT ALL THE/BADGES TOGETHER!//"
                 "EMBER BEATS LEAF,/SPLASH BEATS FIRE,//AND THORN BEATS/WATER. GOOD LUCK!",
    "EndingWords": "HALL OF FAME",
    "EndingLine": "A GREAT REMATCH!",
    "EmptyText": "",
    "StatusFriend": "LV00 XP0 HP000=000",
    "StatusBadges": "BADGES 0  $000000",
    "WildText": "A WILD {foe}/APPEARS!",
    "SendText": "THE RIVAL SENDS/{foe}!",
    "MenuText": "  EMBER    SPLASH/  THORN    RUN",
    "FledText": "YOU GET AWAY.",
    "NoFleeText": "NO RUNNING NOW!/{foe} HITS.",
    "PlainText": "{move} IS SO-SO./{foe} HITS BACK.",
    "WeakText": "{move} FIZZLES./{foe} HITS BACK.",
    "StrongText": "{move} IS SUPER!/{foe} HITS BACK.",
    "LostText": "{friend} FALLS!/YOU HURRY HOME.",
    "WonText": "{foe} FALLS!/YOU GAIN {number} XP.",
    "GrownText": "{foe} FALLS!/YOU GAIN {number} XP.//{friend} GROWS TO/A NEW LEVEL!",
    "AnotherText": "{foe} FALLS!/HERE IS ANOTHER.",
    "BadgeText": "{foe} FALLS!/THE MATCH IS WON.//YOU RECEIVE THE/BADGE OF THE GYM!",
    "LevelText": "LV",
    "HealthText": "HP",
}  # fmt: skip


def text_tables(name: str) -> list[str]:
    """Assembly lines: texts and names that every world shares."""
    lines = []
    for label, text in GAME_TEXTS.items():
        lines += [f"{label}:", encode_text(text.replace("{friend}", FRIEND)).replace("=", "/")]
    printable = set(load_graphics().charmap) - set("/=")
    title = f"WORLD: {name.upper()}"[:14]
    for letter in set(title) - printable:
        title = title.replace(letter, "-")
    lines += ["TitleWords:", encode_text(title)]
    for label, names in (
        ("SpeciesNames", SPECIES),
        ("MoveNames", constants.MOVES),
        ("ElementNames", constants.ELEMENTS),
    ):
        lines += [f"{label}:", *(f"dw {label}_{entry}" for entry in names)]
        for entry in names:
            lines += [f"{label}_{entry}:", f'db "{entry}", 0']
    return [*lines, "FriendName:", f'db "{FRIEND}", 0']


def map_tables(atlas: world_text.Atlas) -> list[str]:
    """Assembly lines: headers, blocks, events and texts of the maps."""
    lines = ["Maps:", *(f"dw Map{game_map.number}" for game_map in atlas.maps)]
    for game_map in atlas.maps:
        label = f"Map{game_map.number}"
        border = world_text.BLOCK_NUMBER[world_text.BORDER_BLOCK[game_map.kind]]
        header = [
            game_map.height,
            game_map.width,
            world_text.TILESETS.index(game_map.kind),
            border,
            game_map.town,
            *game_map.home,
            *game_map.wild,
        ]
        lines += [
            f"{label}:",
            db(header),
            f"dw {label}Blocks, {label}Events",
            f"{label}Blocks:",
            *map(db, game_map.rows),
        ]
        lines += [f"{label}Events:"]
        text_lines = []
        for index, event in enumerate(game_map.events):
            name = f"{label}Text{index}" if event.texts else "EmptyText"
            kind, block = world_text.EVENT_KINDS.index(event.kind), world_text.BLOCK_NUMBER[event.block]
            lines += [db([kind, event.y, event.x, event.flag, block, *event.arguments]), f"dw {name}"]
            text_lines += [f"{name}:"] * bool(event.texts) + [encode_text(text) for text in event.texts]
        lines += ["db $FF", *text_lines]
    return lines
