"""Tables of the known games: names of maps, milestones with their start groups, rewards.

Three kinds of table: that of an included cartridge, from its compiler; that of Pokémon Red (Blue has the same
addresses); and one without milestones for unknown cartridges. A milestone is a bit of work RAM, or a map that
was entered. The start group of a savestate is early, mid or late.
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
from .cartridge.world_text import WorldError
from .emulator.pyboy_emulator import Region

START_GROUPS = ("early", "mid", "late")
KNOWN = {  # SHA-1 -> title
    "ea9bcae617fdf159b045185467ae58b2e4a48b9a": "Pokemon Red",
    "d7037c83e1ae5b39bde3c30787637ba1d4c48ce2": "Pokemon Blue",
}
MAX_ROM_BYTES = 8 << 20
MAX_TEXT_LENGTH = 1 << 20  # characters of a world description
CLOCK_TYPES = (0x0F, 0x10)  # byte 0147 of cartridges with a clock: MBC3 with timer


@dataclass(frozen=True, kw_only=True)
class Rewards:
    """r_env of one title: rewards for events that happen for the first time in an episode."""

    event: float  # any other milestone: towns, maps, rivals, locks, key items
    badge: float
    end: float  # the hall of fame
    level: float  # per level by which the party's sum exceeds its maximum so far
    coordinate: float  # per (map, y, x) not visited since the last milestone
    heal: float  # times the fraction of health regained; not after a defeat
    most_heal: float  # per episode: losing health in order to heal must not pay
    blow: float  # times the fraction of its HP that a rival's creature loses
    most_blow: float  # per episode: a won match is only a means


@dataclass(frozen=True)
class Milestone:
    """A milestone and its place in work RAM."""

    name: str
    kind: str  # town, map, rival, badge, leader, item, lock, gate, event, end
    number: int  # bit of the towns, badges or event flags; number of a map
    start_group: str

    @property
    def place(self) -> tuple[int, int, bool]:
        """(address, value, whether the byte must equal the value; else they must share a bit)."""
        first = {"town": ram.TOWNS_VISITED, "badge": ram.BADGES}.get(self.kind, ram.EVENTS)
        if self.kind == "map":
            return ram.MAP, self.number, True
        if self.kind == "end":
            return ram.HALL_OF_FAME, 0xFF, False
        return first + self.number // 8, 1 << self.number % 8, False


@dataclass(frozen=True, kw_only=True)
class Title:
    """The table of one game."""

    name: str
    maps: dict[int, str]
    milestones: tuple[Milestone, ...]
    rewards: Rewards
    party: int  # members that are read
    flags: int  # bytes of event flags that are read
    block: int  # steps per block; height and width of maps are given in blocks
    text_flag: int = 0  # byte whose bit 0 is set while a box is open outside of matches; 0: see TEXT_BOX

    def map_name(self, number: int) -> str:
        return self.maps.get(number, f"map-{number}")

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The parts of memory that a step reads; fewer parts are faster."""
        return (
            (ram.FACING, ram.FACING + 1),
            (ram.MENU_ITEM, ram.MENU_ITEM + 1),
            *([(self.text_flag, self.text_flag + 1)] if self.text_flag else []),
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

    def start_group(self, reached: frozenset[str]) -> str:
        """The start group of a state with these milestones: the latest group of any of them."""
        groups = [START_GROUPS.index(one.start_group) for one in self.milestones if one.name in reached]
        return START_GROUPS[max(groups, default=0)]


def group_of(index: int, count: int) -> str:
    """The start group of item `index` of `count` in the order of the game."""
    return START_GROUPS[min(2, 3 * index // max(1, count))]


def included_title(made: compiler.Cartridge) -> Title:
    """The table of an included cartridge. Its maps are in the order of the game, gyms last."""
    gyms = {number: badge for badge, number in made.gyms.items()}
    open_air = len(made.maps) - len(gyms)
    towns = set(made.towns.values())

    def group(kind: str, number: int) -> str:
        if kind in ("end", "gate"):
            return "late"
        if number in gyms:  # the badge of the only gym is late
            return group_of(gyms[number] + (kind == "badge"), len(gyms) + 1 if kind != "badge" else len(gyms))
        return group_of(number, open_air)

    milestones = [Milestone(one.name, one.kind, one.number, group(one.kind, one.map))
                  for one in made.milestones]  # fmt: skip
    milestones += [Milestone(name, "map", number, group("map", number)) for number, name in made.maps.items()
              if number not in towns]  # fmt: skip
    highest = max(milestone.number for milestone in milestones if milestone.place[0] >= ram.EVENTS)
    rewards = Rewards(
        event=1.0, badge=2.0, end=5.0, level=0.5, coordinate=0.001, heal=0.1, most_heal=1.0,
        blow=0.2, most_blow=4.0,
    )  # fmt: skip
    return Title(
        name=made.name, maps=made.maps, milestones=tuple(milestones), rewards=rewards, party=1,
        flags=highest // 8 + 1, block=1,
    )  # fmt: skip


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

# name, kind, bit of the event flags, start group
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
RED_TOWNS = "early early early early mid mid mid mid late late late"  # start groups of maps 0 to 10
RED_AREAS = """
51 early 59 early 61 early 82 mid 232 mid 95 mid 135 mid 142 mid 199 mid 83 mid 165 late 181 late
235 late 108 late 194 late 198 late 245 late 246 late 247 late 113 late 120 late
"""  # map, start group
RED_BADGES = "early early mid mid mid late late late"


@lru_cache(maxsize=1)
def red() -> Title:
    maps = {number: name for number, name in enumerate(RED_MAPS.split()) if name != "-"}
    badges = enumerate(zip(ram.BADGE_NAMES, RED_BADGES.split()))
    milestones = [Milestone(f"badge_{name}", "badge", number, group) for number, (name, group) in badges]
    towns = enumerate(RED_TOWNS.split())
    milestones += [Milestone(maps[number], "town", number, group) for number, group in towns]
    words = RED_AREAS.split()
    areas = {int(number): group for number, group in zip(words[::2], words[1::2])}
    milestones += [Milestone(maps[number], "map", number, group) for number, group in areas.items()]
    for line in RED_EVENTS.split("\n")[1:-1]:
        name, kind, bit, group = line.split()
        milestones.append(Milestone(name, kind, int(bit, 16), group))
    milestones.append(Milestone("hall_of_fame", "end", 1, "late"))
    rewards = Rewards(
        event=0.5, badge=2.0, end=5.0, level=0.1, coordinate=0.005, heal=0.2, most_heal=2.0,
        blow=0.05, most_blow=4.0,
    )  # fmt: skip
    return Title(
        name="Pokemon Red", maps=maps, milestones=tuple(milestones), rewards=rewards, party=ram.MAX_PARTY,
        flags=ram.EVENTS_BYTES, block=2, text_flag=ram.FONT_LOADED,
    )  # fmt: skip


def unknown(name: str) -> Title:
    """The table of an unknown game: the meaning of its bytes and its end are unknown."""
    return Title(
        name=name, maps={}, milestones=(), rewards=red().rewards, party=ram.MAX_PARTY, flags=1,
        block=2,
    )  # fmt: skip


# --- cartridges -------------------------------------------------------------------------------------


def check(rom: str) -> None:
    """ConfigError with the reason if the file is neither a cartridge nor a world description."""
    compile_file(existing(rom)) if is_text(rom) else read_rom(rom)


def is_text(rom: str) -> bool:
    return rom.endswith(".txt")


def existing(path: str) -> Path:
    try:
        file = Path(path).expanduser()
    except RuntimeError as error:  # ~NAME of an unknown user
        raise ConfigError(f"rom = {path!r}: {error}") from None
    if not file.is_file():
        reason = "a folder" if file.is_dir() else "no such file"
        raise ConfigError(f"rom = {path!r}: {reason}: expected a Game Boy cartridge, usually NAME.gb")
    return file


def read_rom(path: str) -> bytes:
    """The bytes of a cartridge; ConfigError with the reason if the file is none."""
    file = existing(path)
    size = file.stat().st_size
    if not 0x8000 <= size <= MAX_ROM_BYTES or size % 0x4000:
        raise ConfigError(f"rom = {path!r}: {size} bytes: expected a cartridge of {0x8000} to "
                          f"{MAX_ROM_BYTES} bytes, a multiple of {0x4000}")
    data = file.read_bytes()
    checksum = -sum(byte + 1 for byte in data[0x134:0x14D]) & 0xFF  # as the console itself computes it
    if checksum != data[0x14D]:
        reason = f"header checksum {data[0x14D]:02X}, computed {checksum:02X}"
        raise ConfigError(f"rom = {path!r}: {reason}: expected a Game Boy cartridge")
    if data[0x147] in CLOCK_TYPES:
        raise ConfigError(f"rom = {path!r}: a cartridge with a clock (type {data[0x147]:02X}) depends on "
                          "the time of day: its games cannot be replayed; expected one without a clock")
    return data


@lru_cache(maxsize=8)
def cartridge(size: str, seed: int) -> compiler.Cartridge:
    return compiler.build(size, seed)


def compile_file(file: Path) -> compiler.Cartridge:
    """Compile a world description (cartridge/world_text.py defines the format).

    Errors show no text of the file: a stranger's run or policy may name any file of this computer.
    """
    try:
        with file.open() as text:
            return compiled(text.read(MAX_TEXT_LENGTH), file.stem)
    except (UnicodeDecodeError, ConfigError) as error:
        reason = "not a text" if isinstance(error, UnicodeDecodeError) else str(error)
        if isinstance(error, WorldError):
            reason = (f"line {error.line} is not valid in the description of a world; "
                      f"`python -m {compiler.__package__} FILE` shows the reason")
        raise ConfigError(f"rom = {str(file)!r}: {reason}") from None


@lru_cache(maxsize=2)
def compiled(text: str, name: str) -> compiler.Cartridge:
    return compiler.compile_world(text, name)


@lru_cache
def warn_once(text: str) -> None:
    """A run makes many worlds of the same cartridge; it warns once."""
    warnings.warn(text, stacklevel=3)


def find(rom: str, size: str, seed: int) -> tuple[bytes, Title]:
    """The bytes of the cartridge in the settings, and its table."""
    if not rom:
        made = cartridge(size, seed)
        return made.rom, included_title(made)
    if is_text(rom):
        made = compile_file(existing(rom))
        return made.rom, included_title(made)
    data = read_rom(rom)
    digest = hashlib.sha1(data).hexdigest()
    if digest in KNOWN:
        return data, red()
    name = "".join(chr(byte) for byte in data[0x134:0x143] if 32 <= byte < 127).strip() or "without a name"
    warn_once(f"{rom}: {name}, SHA-1 {digest}: not a known cartridge; it is read at the addresses of "
              "Pokemon Red, which may mean nothing in it")  # fmt: skip
    return data, red() if name.startswith(("POKEMON RED", "POKEMON BLUE")) else unknown(name)
