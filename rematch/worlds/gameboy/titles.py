"""What there is to know of a game: names of maps, milestones with their bands, what is rewarded. Facts only.

Three tables: our own cartridge's, from its compiler; Pokémon Red's (Blue shares its addresses); and one for
cartridges of which nothing is known but that they keep the same addresses. A milestone is a bit of work RAM,
or a map that was entered. Savestates go by bands: early, mid, late.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from rematch.core.errors import ConfigError

from .cartridge import compiler
from .cartridge import ram_addresses as ram
from .emulator.pyboy_emulator import Region

BANDS = ("early", "mid", "late")
KNOWN = {  # SHA-1 -> title
    "ea9bcae617fdf159b045185467ae58b2e4a48b9a": "Pokemon Red",
    "d7037c83e1ae5b39bde3c30787637ba1d4c48ce2": "Pokemon Blue",
}
LARGEST = 8 << 20  # bytes of a cartridge
LONGEST_TEXT = 1 << 20  # characters of a world's text
CLOCKS = (0x0F, 0x10)  # byte 0147 of cartridges with a clock of their own: MBC3 with timer


@dataclass(frozen=True, kw_only=True)
class Rewards:
    """r_env of one title: points for what happens the first time in an episode. All small."""

    event: float  # a milestone but for the following: towns, maps, rivals, locks, key items
    badge: float
    end: float  # the hall of fame
    level: float  # each level that the party's sum exceeds its highest so far
    coordinate: float  # each (map, y, x) not stood on since the last milestone
    heal: float  # times the share of health regained, but for who fell and was carried home
    most_heal: float  # of an episode: getting hurt in order to heal must not pay
    blow: float  # times the share of its HP that a rival's creature loses
    most_blow: float  # of an episode: matches are won for what they lead to


@dataclass(frozen=True)
class Mark:
    """A milestone and how work RAM shows it."""

    name: str
    kind: str  # town, map, rival, badge, leader, item, lock, gate, event, end
    number: int  # bit of the towns, badges or event flags; of a map its number
    band: str

    @property
    def place(self) -> tuple[int, int, bool]:
        """(address, value, whether the byte must equal it; else share a bit with it)."""
        at = {"town": ram.TOWNS_VISITED, "badge": ram.BADGES}.get(self.kind, ram.EVENTS)
        if self.kind == "map":
            return ram.MAP, self.number, True
        if self.kind == "end":
            return ram.HALL_OF_FAME, 0xFF, False
        return at + self.number // 8, 1 << self.number % 8, False


@dataclass(frozen=True, kw_only=True)
class Title:
    """A game's table."""

    name: str
    maps: dict[int, str]
    marks: tuple[Mark, ...]
    rewards: Rewards
    party: int  # members that are read
    flags: int  # bytes of event flags that are read
    block: int  # steps to a block, in which the height and width of maps are given

    def map_name(self, number: int) -> str:
        return self.maps.get(number, f"map-{number}")

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The parts of memory that a step reads: the fewer the faster."""
        return (
            (ram.FACING, ram.FACING + 1),
            (ram.MENU_ITEM, ram.MENU_ITEM + 1),
            (ram.ENEMY_SPECIES, ram.ENEMY_HP + 2),
            (ram.ENEMY_LEVEL, ram.ENEMY_LEVEL + 1),
            (ram.IN_BATTLE, ram.IN_BATTLE + 1),
            (ram.TEXT_BOX, ram.TEXT_BOX + 1),
            (ram.PARTY_COUNT, ram.PARTY_COUNT + 1),
            (ram.PARTY, ram.PARTY + (self.party - 1) * ram.PARTY_STRIDE + ram.MAX_HP + 2),
            (ram.MONEY, ram.MONEY + 3),
            (ram.BADGES, ram.BADGES + 1),
            (ram.MAP, ram.X + 1),
            (ram.MAP_HEIGHT, ram.MAP_WIDTH + 1),
            (ram.HALL_OF_FAME, ram.HALL_OF_FAME + 1),
            (ram.TOWNS_VISITED, ram.TOWNS_VISITED + 2),
            (ram.EVENTS, ram.EVENTS + self.flags),
        )

    def band(self, reached: frozenset[str]) -> str:
        """Of a state with these milestones: the latest that one of them belongs to."""
        found = [BANDS.index(mark.band) for mark in self.marks if mark.name in reached]
        return BANDS[max(found, default=0)]


def third(index: int, of: int) -> str:
    return BANDS[min(2, 3 * index // max(1, of))]


def ours(made: compiler.Cartridge) -> Title:
    """The table of a cartridge that we made. Maps lie in the order in which they are reached, gyms last."""
    gyms = {number: badge for badge, number in made.gyms.items()}
    open_air = len(made.maps) - len(gyms)
    towns = set(made.towns.values())

    def band(kind: str, number: int) -> str:
        if kind in ("end", "gate"):
            return "late"
        if number in gyms:  # with one badge of one it is late
            return third(gyms[number] + (kind == "badge"), len(gyms) + 1 if kind != "badge" else len(gyms))
        return third(number, open_air)

    marks = [Mark(one.name, one.kind, one.number, band(one.kind, one.map)) for one in made.milestones]
    marks += [Mark(name, "map", number, band("map", number)) for number, name in made.maps.items()
              if number not in towns]  # fmt: skip
    highest = max(mark.number for mark in marks if mark.place[0] >= ram.EVENTS)
    rewards = Rewards(
        event=1.0, badge=2.0, end=5.0, level=0.5, coordinate=0.001, heal=0.1, most_heal=1.0,
        blow=0.2, most_blow=4.0,
    )  # fmt: skip
    return Title(
        name=made.name, maps=made.maps, marks=tuple(marks), rewards=rewards, party=1, flags=highest // 8 + 1,
        block=1,
    )


# --- Pokémon Red ------------------------------------------------------------------------------------

RED_MAPS = """
PalletTown ViridianCity PewterCity CeruleanCity LavenderTown VermilionCity CeladonCity FuchsiaCity
CinnabarIsland IndigoPlateau SaffronCity - Route1 Route2 Route3 Route4 Route5 Route6 Route7 Route8 Route9
Route10 Route11 Route12 Route13 Route14 Route15 Route16 Route17 Route18 Route19 Route20 Route21 Route22
Route23 Route24 Route25 RedsHouse1F RedsHouse2F BluesHouse OaksLab ViridianPokecenter ViridianMart
ViridianSchoolHouse ViridianNicknameHouse ViridianGym DiglettsCaveRoute2 ViridianForestNorthGate
Route2TradeHouse Route2Gate ViridianForestSouthGate ViridianForest Museum1F Museum2F PewterGym
PewterNidoranHouse PewterMart PewterSpeechHouse PewterPokecenter MtMoon1F MtMoonB1F MtMoonB2F
CeruleanTrashedHouse CeruleanTradeHouse CeruleanPokecenter CeruleanGym BikeShop CeruleanMart
MtMoonPokecenter CeruleanTrashedHouseCopy Route5Gate UndergroundPathRoute5 Daycare Route6Gate
UndergroundPathRoute6 UndergroundPathRoute6Copy Route7Gate UndergroundPathRoute7 UndergroundPathRoute7Copy
Route8Gate UndergroundPathRoute8 RockTunnelPokecenter RockTunnel1F PowerPlant Route11Gate1F
DiglettsCaveRoute11 Route11Gate2F Route12Gate1F BillsHouse VermilionPokecenter PokemonFanClub VermilionMart
VermilionGym VermilionPidgeyHouse VermilionDock SSAnne1F SSAnne2F SSAnne3F SSAnneB1F SSAnneBow SSAnneKitchen
SSAnneCaptainsRoom SSAnne1FRooms SSAnne2FRooms SSAnneB1FRooms - - - VictoryRoad1F - - - - LancesRoom - - - -
HallOfFame UndergroundPathNorthSouth ChampionsRoom UndergroundPathWestEast CeladonMart1F CeladonMart2F
CeladonMart3F CeladonMart4F CeladonMartRoof CeladonMartElevator CeladonMansion1F CeladonMansion2F
CeladonMansion3F CeladonMansionRoof CeladonMansionRoofHouse CeladonPokecenter CeladonGym GameCorner
CeladonMart5F GameCornerPrizeRoom CeladonDiner CeladonChiefHouse CeladonHotel LavenderPokecenter
PokemonTower1F PokemonTower2F PokemonTower3F PokemonTower4F PokemonTower5F PokemonTower6F PokemonTower7F
MrFujisHouse LavenderMart LavenderCuboneHouse FuchsiaMart FuchsiaBillsGrandpasHouse FuchsiaPokecenter
WardensHouse SafariZoneGate FuchsiaGym FuchsiaMeetingRoom SeafoamIslandsB1F SeafoamIslandsB2F
SeafoamIslandsB3F SeafoamIslandsB4F VermilionOldRodHouse FuchsiaGoodRodHouse PokemonMansion1F CinnabarGym
CinnabarLab CinnabarLabTradeRoom CinnabarLabMetronomeRoom CinnabarLabFossilRoom CinnabarPokecenter
CinnabarMart CinnabarMartCopy IndigoPlateauLobby CopycatsHouse1F CopycatsHouse2F FightingDojo SaffronGym
SaffronPidgeyHouse SaffronMart SilphCo1F SaffronPokecenter MrPsychicsHouse Route15Gate1F Route15Gate2F
Route16Gate1F Route16Gate2F Route16FlyHouse Route12SuperRodHouse Route18Gate1F Route18Gate2F
SeafoamIslands1F Route22Gate VictoryRoad2F Route12Gate2F VermilionTradeHouse DiglettsCave VictoryRoad3F
RocketHideoutB1F RocketHideoutB2F RocketHideoutB3F RocketHideoutB4F RocketHideoutElevator - - - SilphCo2F
SilphCo3F SilphCo4F SilphCo5F SilphCo6F SilphCo7F SilphCo8F PokemonMansion2F PokemonMansion3F
PokemonMansionB1F SafariZoneEast SafariZoneNorth SafariZoneWest SafariZoneCenter SafariZoneCenterRestHouse
SafariZoneSecretHouse SafariZoneWestRestHouse SafariZoneEastRestHouse SafariZoneNorthRestHouse
CeruleanCave2F CeruleanCaveB1F CeruleanCave1F NameRatersHouse CeruleanBadgeHouse - RockTunnelB1F SilphCo9F
SilphCo10F SilphCo11F SilphCoElevator - - TradeCenter Colosseum - - - - LoreleisRoom BrunosRoom AgathasRoom
"""  # by number; - where there is none

# name, kind, bit of the event flags, band
RED_EVENTS = """
got_starter event 022 early
got_parcel item 039 early
got_pokedex item 025 early
beat_route22_rival rival 525 early
beat_brock leader 077 early
got_fossil_dome item 57E early
got_fossil_helix item 57F early
beat_cerulean_rival rival 098 early
beat_nugget_bridge rival 541 early
got_ss_ticket item 55C early
beat_misty leader 0BF early
got_bicycle item 0C0 mid
got_cut item 5E0 mid
ship_left event 5E2 mid
beat_surge leader 167 mid
got_flash item 3D8 mid
got_fly item 4CE mid
found_rocket_hideout event 1B9 mid
beat_hideout_giovanni rival 6A7 mid
beat_erika leader 1A9 mid
beat_tower_rival rival 0EF mid
beat_ghost event 10F mid
rescued_fuji event 117 mid
got_flute item 128 mid
beat_snorlax_12 event 48F mid
beat_snorlax_16 event 4C9 mid
got_surf item 880 mid
got_strength item 238 mid
beat_koga leader 259 mid
beat_silph_rival rival 740 late
beat_silph_giovanni rival 78F late
got_master_ball item 78D late
beat_sabrina leader 361 late
beat_blaine leader 299 late
beat_viridian_giovanni leader 051 late
beat_route22_rival_again rival 526 late
beat_lance leader 8FE late
beat_champion leader 901 late
"""
RED_TOWNS = "early early early early mid mid mid mid late late late"  # bands of maps 0 to 10
RED_AREAS = """
51 early 59 early 61 early 82 mid 232 mid 95 mid 135 mid 142 mid 199 mid 83 mid 165 late 181 late
235 late 108 late 194 late 198 late 245 late 246 late 247 late 113 late 120 late
"""  # map, band
RED_BADGES = "early early mid mid mid late late late"


@lru_cache(maxsize=1)
def red() -> Title:
    maps = {number: name for number, name in enumerate(RED_MAPS.split()) if name != "-"}
    marks = [Mark(f"badge_{name}", "badge", number, band)
             for number, (name, band) in enumerate(zip(ram.BADGE_NAMES, RED_BADGES.split()))]  # fmt: skip
    marks += [Mark(maps[number], "town", number, band) for number, band in enumerate(RED_TOWNS.split())]
    words = RED_AREAS.split()
    areas = {int(number): band for number, band in zip(words[::2], words[1::2])}
    marks += [Mark(maps[number], "map", number, band) for number, band in areas.items()]
    for line in RED_EVENTS.split("\n")[1:-1]:
        name, kind, bit, band = line.split()
        marks.append(Mark(name, kind, int(bit, 16), band))
    marks.append(Mark("hall_of_fame", "end", 1, "late"))
    rewards = Rewards(
        event=0.5, badge=2.0, end=5.0, level=0.1, coordinate=0.005, heal=0.2, most_heal=2.0,
        blow=0.05, most_blow=4.0,
    )  # fmt: skip
    return Title(
        name="Pokemon Red", maps=maps, marks=tuple(marks), rewards=rewards, party=ram.MAX_PARTY,
        flags=ram.EVENTS_BYTES,
        block=2,
    )  # fmt: skip


def unknown(name: str) -> Title:
    """Of a game of which nothing is known: what a byte means in it, and when it is over, nobody can say."""
    return Title(
        name=name, maps={}, marks=(), rewards=red().rewards, party=ram.MAX_PARTY, flags=1,
        block=2,
    )  # fmt: skip


# --- cartridges -------------------------------------------------------------------------------------


def check(rom: str) -> None:
    """Refuse what is neither a cartridge nor a world's text, with the reason."""
    written(existing(rom)) if is_text(rom) else read_rom(rom)


def is_text(rom: str) -> bool:
    return rom.endswith(".txt")


def existing(path: str) -> Path:
    try:
        file = Path(path).expanduser()
    except RuntimeError as why:  # ~NAME of nobody
        raise ConfigError(f"rom = {path!r}: {why}") from None
    if not file.is_file():
        what = "a folder" if file.is_dir() else "no such file"
        raise ConfigError(f"rom = {path!r}: {what}: expected a Game Boy cartridge, usually NAME.gb")
    return file


def read_rom(path: str) -> bytes:
    """A cartridge's bytes, or what is wrong with the file in one line."""
    file = existing(path)
    size = file.stat().st_size
    if not 0x8000 <= size <= LARGEST or size % 0x4000:
        raise ConfigError(f"rom = {path!r}: {size} bytes: expected a cartridge of 32768 bytes or more")
    data = file.read_bytes()
    checksum = -sum(byte + 1 for byte in data[0x134:0x14D]) & 0xFF  # as the console itself computes it
    if checksum != data[0x14D]:
        found = f"header checksum {data[0x14D]:02X}, computed {checksum:02X}"
        raise ConfigError(f"rom = {path!r}: {found}: expected a Game Boy cartridge")
    if data[0x147] in CLOCKS:
        raise ConfigError(f"rom = {path!r}: a cartridge with a clock (type {data[0x147]:02X}) plays by the "
                          "time of day: no game of it could be played again; expected one without")
    return data


@lru_cache(maxsize=8)
def cartridge(size: str, seed: int) -> compiler.Cartridge:
    return compiler.build(size, seed)


def written(file: Path) -> compiler.Cartridge:
    """A cartridge of ours from a world's text (cartridge/world_text.py says how to write one)."""
    try:
        with file.open() as text:
            return compiled(text.read(LONGEST_TEXT), file.stem)
    except (UnicodeDecodeError, ConfigError) as why:
        said = "not a text" if isinstance(why, UnicodeDecodeError) else str(why)
        raise ConfigError(f"rom = {str(file)!r}: {said}") from None


@lru_cache(maxsize=2)
def compiled(text: str, name: str) -> compiler.Cartridge:
    return compiler.compile_world(text, name)


@lru_cache
def warn_once(text: str) -> None:
    """Worlds of the same cartridge are made again and again."""
    warnings.warn(text, stacklevel=3)


def find(rom: str, size: str, seed: int) -> tuple[bytes, Title]:
    """The cartridge that the settings name, and its table."""
    if not rom:
        made = cartridge(size, seed)
        return made.rom, ours(made)
    if is_text(rom):
        made = written(existing(rom))
        return made.rom, ours(made)
    data = read_rom(rom)
    digest = hashlib.sha1(data).hexdigest()
    if digest in KNOWN:
        return data, red()
    said = "".join(chr(byte) for byte in data[0x134:0x143] if 32 <= byte < 127).strip() or "without a name"
    warn_once(f"{rom}: {said}, SHA-1 {digest}: not a known cartridge; it is read at the addresses of "
              "Pokemon Red, which may mean nothing in it")  # fmt: skip
    return data, red() if said.startswith(("POKEMON RED", "POKEMON BLUE")) else unknown(said)
