"""Joins the game's assembly with a world's data: `build(size, seed)` is a finished cartridge.

The same size and seed give the same bytes. The header is our own and the manufacturer's logo area stays
zero, which the emulator does not check.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge import (
    constants as rules,
)
from rematch.worlds.gameboy.cartridge import (
    ram_addresses,
    solver,
    world_generator,
    world_text,
)
from rematch.worlds.gameboy.cartridge.assembler import assemble
from rematch.worlds.gameboy.cartridge.expressions import AssemblyError
from rematch.worlds.gameboy.cartridge.tiles import FRIEND, SPECIES, Art, art, text
from rematch.worlds.gameboy.cartridge.world_text import Place

TITLE = "REMATCH RPG"
SHARED = ("START_LEVEL", "HP_BASE", "HP_STEP", "XP_PER_LEVEL", "WILD_XP", "ENCOUNTER")  # of rules.py
SOURCES = ("core.asm", "text.asm", "world.asm", "events.asm", "match.asm")


@dataclass(frozen=True)
class Milestone:
    """Something a player reaches once: an event flag, a badge, a town, or the end."""

    name: str
    kind: str  # town, rival, badge, item, lock, gate, end
    number: int  # bit of the event flags, of the badges or of the towns; 1 for the end
    map: int


@dataclass(frozen=True)
class Cartridge:
    """A finished game and what there is to know of it."""

    name: str
    seed: int
    rom: bytes
    atlas: world_text.Atlas
    world: str  # the text it was made from

    @cached_property
    def sha1(self) -> str:
        return hashlib.sha1(self.rom).hexdigest()

    @cached_property
    def solution(self) -> tuple[int, ...]:
        """Inputs from power-on to the hall of fame, one an action (rules.ACTIONS by number)."""
        return solver.solve(self.atlas, self.seed)

    @property
    def walkable(self) -> list[Place]:
        return self.atlas.walkable()

    @property
    def maps(self) -> dict[int, str]:
        """Names of the maps by number."""
        return {one.number: one.name for one in self.atlas.maps}

    @property
    def towns(self) -> dict[int, int]:
        """Map by number of the town."""
        return {one.town: one.number for one in self.atlas.maps if one.kind == "town"}

    @property
    def gyms(self) -> dict[int, int]:
        """Map by badge."""
        return {e.arguments[0]: m.number for m in self.atlas.maps for e in m.events if e.kind == "leader"}

    @property
    def milestones(self) -> tuple[Milestone, ...]:
        out = []
        for one in self.atlas.maps:
            if one.kind == "town":
                out.append(Milestone(one.name, "town", one.town, one.number))
            for event in one.events:
                if event.kind == "leader":
                    badge = event.arguments[0]
                    out.append(Milestone(f"BADGE-{badge + 1}", "badge", badge, one.number))
                elif event.kind in ("item", "lock"):
                    name = f"{event.kind.upper()}-{world_text.ITEMS[event.arguments[0] - 1]}"
                    out.append(Milestone(name, event.kind, event.flag, one.number))
                elif event.kind in ("rival", "gate"):
                    out.append(
                        Milestone(f"{event.kind.upper()}-{event.flag}", event.kind, event.flag, one.number)
                    )
                elif event.kind == "trophy":
                    out.append(Milestone("HALL-OF-FAME", "end", 1, one.number))
        return tuple(out)


def build(size: str = "small", seed: int = 0) -> Cartridge:
    """The cartridge of a size and a seed."""
    if size not in world_generator.SIZES:
        near = nearest(size, tuple(world_generator.SIZES))
        raise ConfigError(
            f"size {size!r}: expected one of {', '.join(world_generator.SIZES)}"
            + (f"; nearest: {near}" if near else "")
        )
    if not 0 <= seed < 1 << 32:
        raise ConfigError(f"seed {seed}: expected 0 to {(1 << 32) - 1}")
    return compile_world(world_generator.generate(size, seed), size, seed)


def compile_world(world: str, name: str = "own", seed: int = 0) -> Cartridge:
    """The cartridge of a world's text (see world_text.py)."""
    read = world_text.parse(world)
    drawn = art()
    first = read.maps[0]
    constants = {
        **{key: value for key, value in vars(ram_addresses).items()
           if key.isupper() and isinstance(value, int)},
        **{key: getattr(rules, key) for key in SHARED},
        **{f"TITLE_{index}": ord(letter) for index, letter in enumerate(TITLE)},
        "SOLID": world_text.SOLID, "GRASS": world_text.GRASS, "WARP": world_text.WARP,
        "RNG_SEED": seed % 256, "ALL_BADGES": (1 << read.badges) - 1, "FRIEND_PICTURE": len(SPECIES),
        "START_MAP": 0, "START_Y": first.home[0], "START_X": first.home[1],
        "TILE_SPACE": drawn.charmap[" "], "TILE_0": drawn.charmap["0"], "TILE_SLASH": drawn.charmap["/"],
        "TILE_CURSOR": drawn.charmap[">"], "TILE_BAR": drawn.bar, "TILE_TL": drawn.charmap["┌"],
        "TILE_TOP": drawn.charmap["─"], "TILE_TR": drawn.charmap["┐"], "TILE_SIDE": drawn.charmap["│"],
        "TILE_BL": drawn.charmap["└"], "TILE_BR": drawn.charmap["┘"],
    }  # fmt: skip
    lines = [*(text(source) for source in SOURCES), *pictures(drawn), *words(name), *tables(read)]
    try:
        image = bytearray(assemble("\n".join(lines), charmap=drawn.charmap, constants=constants).image)
    except AssemblyError as why:
        raise ConfigError(f"{name}: expected a world that fits into 32 KiB ({why})") from None
    checksum = 0
    for byte in image[0x134:0x14D]:
        checksum = (checksum - byte - 1) & 0xFF
    image[0x14D] = checksum
    total = (sum(image) - image[0x14E] - image[0x14F]) & 0xFFFF
    image[0x14E], image[0x14F] = total >> 8, total & 0xFF
    return Cartridge(name, seed, bytes(image), read, world)


def db(values: bytes | list[int] | tuple[int, ...]) -> str:
    return "db " + ", ".join(map(str, values))


def pictures(drawn: Art) -> list[str]:
    """Tiles, blocks and who is drawn with which."""
    out = []
    for name, bank in zip(("Low", "Middle", "High"), drawn.banks):
        out += [
            f"Tiles{name}:",
            *(db(bank[at : at + 16]) for at in range(0, len(bank), 16)),
            f"Tiles{name}End:",
        ]
    out += [
        "ds (256 - @ % 256) % 256",
        "Blocks:",
        *(db(drawn.blocks[shown]) for _, _, shown in world_text.BLOCKS),
    ]
    out += ["ds (256 - @ % 256) % 256", "BlockKinds:", db([kind for _, kind, _ in world_text.BLOCKS])]
    out += ["Pictures:", *(db(drawn.creatures[name]) for name in (*SPECIES, FRIEND))]
    order = ("down", "down-walk", "up", "up-walk", "left", "left-walk", "left", "left-walk")
    out += ["PlayerTiles:", db([drawn.player[name] for name in order]), "TitleTiles:", db(drawn.title)]
    return [*out, "LeaderTeams:", *(db(rules.leader_team(badge)) for badge in range(8))]


def said(page: str) -> str:
    """A text of the world as data: / is code 1, // code 2; 0 ends it."""
    parts: list[str] = []
    for index, whole in enumerate(page.split("//")):
        parts += ["2"] if index else []
        for row, line in enumerate(whole.split("/")):
            parts += ["1"] if row else []
            for at, piece in enumerate(line.split("{")):
                code, _, rest = piece.partition("}") if at else ("", "", piece)
                parts += [{"": "", "foe": "3", "move": "4", "number": "5"}[code], f'"{rest}"' if rest else ""]
    return "db " + ", ".join([part for part in parts if part] + ["0"])


SAYINGS = {
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


def words(name: str) -> list[str]:
    """What the game itself says."""
    out = []
    for label, saying in SAYINGS.items():
        out += [f"{label}:", said(saying.replace("{friend}", FRIEND)).replace("=", "/")]
    shown = "".join(c if c in art().charmap and c not in "/=" else "-" for c in f"WORLD: {name.upper()}"[:14])
    out += ["TitleWords:", said(shown)]
    for label, names in (
        ("SpeciesNames", SPECIES),
        ("MoveNames", rules.MOVES),
        ("ElementNames", rules.ELEMENTS),
    ):
        out += [f"{label}:", *(f"dw {label}_{one}" for one in names)]
        for one in names:
            out += [f"{label}_{one}:", f'db "{one}", 0']
    return [*out, "FriendName:", f'db "{FRIEND}", 0']


def tables(read: world_text.Atlas) -> list[str]:
    """Headers, blocks, events and texts of the maps."""
    out = ["Maps:", *(f"dw Map{one.number}" for one in read.maps)]
    for one in read.maps:
        label = f"Map{one.number}"
        border = world_text.NUMBER[world_text.BORDER[one.kind]]
        head = [
            one.height,
            one.width,
            world_text.TILESETS.index(one.kind),
            border,
            one.town,
            *one.home,
            *one.wild,
        ]
        out += [
            f"{label}:",
            db(head),
            f"dw {label}Blocks, {label}Events",
            f"{label}Blocks:",
            *map(db, one.rows),
        ]
        out += [f"{label}Events:"]
        spoken = []
        for index, event in enumerate(one.events):
            name = f"{label}Text{index}" if event.texts else "EmptyText"
            kind, block = world_text.KINDS.index(event.kind), world_text.NUMBER[event.block]
            out += [db([kind, event.y, event.x, event.flag, block, *event.arguments]), f"dw {name}"]
            spoken += [f"{name}:"] * bool(event.texts) + [said(page) for page in event.texts]
        out += ["db $FF", *spoken]
    return out
