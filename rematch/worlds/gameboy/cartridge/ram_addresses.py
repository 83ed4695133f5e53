"""Work-RAM addresses of the game state: those of Pokémon Red, which our cartridge uses too.

Each name is one address; the functions read values of more than one byte. A memory is anything that is
indexed by an address: the memory of the emulator, a `bytes` of 64 KiB, a dictionary.
"""

from __future__ import annotations

from typing import Protocol


class Memory(Protocol):
    """Bytes by address."""

    def __getitem__(self, address: int, /) -> int: ...


FACING = 0xC109  # 0 down, 4 up, 8 left, 12 right
SCREEN = 0xC3A0  # tile map, 20 x 18
SCREEN_WIDTH, SCREEN_HEIGHT = 20, 18
JOYPAD_IGNORE = 0xCD6B  # non-zero during scripted scenes
MENU_ITEM = 0xCC26  # cursor position in an open menu
FONT_LOADED = 0xCFC4  # Red: bit 0 is set while a text box or a menu is open outside of a match
ENEMY_SPECIES = 0xCFE5
ENEMY_HP = 0xCFE6  # two bytes, big-endian
ENEMY_LEVEL = 0xCFF3
IN_BATTLE = 0xD057  # 0 none, 1 wild creature, 2 rival or leader, 0xFF lost
TEXT_BOX = 0xD125  # kind of the last box; our cartridge clears it when the box closes, Red never does
PARTY_COUNT = 0xD163
PARTY_SPECIES = 0xD164  # up to six, then 0xFF
PARTY = 0xD16B  # structs of PARTY_STRIDE bytes
PARTY_STRIDE, MAX_PARTY = 0x2C, 6
HP, EXPERIENCE, LEVEL, MAX_HP = 0x01, 0x0E, 0x21, 0x22  # offsets inside a struct
BAG_COUNT = 0xD31D
BAG = 0xD31E  # (id, quantity) x 20
MAX_BAG = 20
MONEY = 0xD347  # three bytes, binary-coded decimal
BADGES = 0xD356  # bit 0 Boulder, 1 Cascade, 2 Thunder, 3 Rainbow, 4 Soul, 5 Marsh, 6 Volcano, 7 Earth
MAP, Y, X, LAST_MAP = 0xD35E, 0xD361, 0xD362, 0xD365
TILESET, MAP_HEIGHT, MAP_WIDTH = 0xD367, 0xD368, 0xD369
HALL_OF_FAME = 0xD5A2
TOWNS_VISITED = 0xD70B  # two bytes, one bit per town, little-endian
BLACKOUT_MAP = 0xD719
EVENTS = 0xD747  # event flags, one bit each
EVENTS_BYTES = 320
HOURS, MINUTES, SECONDS, FRAMES = 0xDA41, 0xDA43, 0xDA44, 0xDA45  # play time

BADGE_NAMES = ("Boulder", "Cascade", "Thunder", "Rainbow", "Soul", "Marsh", "Volcano", "Earth")


def big_endian(memory: Memory, address: int, count: int = 2) -> int:
    value = 0
    for offset in range(count):
        value = value << 8 | memory[address + offset]
    return value


def money(memory: Memory) -> int:
    """Money, from binary-coded decimal (two digits per byte)."""
    value = 0
    for offset in range(3):
        byte = memory[MONEY + offset]
        value = value * 100 + (byte >> 4) * 10 + (byte & 15)
    return value


def party(memory: Memory) -> list[tuple[int, int, int]]:
    """(level, HP, maximum HP) of each party member."""
    members = []
    for index in range(min(memory[PARTY_COUNT], MAX_PARTY)):
        address = PARTY + index * PARTY_STRIDE
        members.append(
            (memory[address + LEVEL], big_endian(memory, address + HP), big_endian(memory, address + MAX_HP))
        )
    return members


def bag(memory: Memory) -> dict[int, int]:
    """Item number to quantity."""
    count = min(memory[BAG_COUNT], MAX_BAG)
    return {memory[BAG + 2 * index]: memory[BAG + 2 * index + 1] for index in range(count)}


def event(memory: Memory, number: int) -> bool:
    return bool(memory[EVENTS + number // 8] >> number % 8 & 1)


def events(memory: Memory) -> bytes:
    """The EVENTS_BYTES bytes of event flags."""
    return bytes(memory[EVENTS + offset] for offset in range(EVENTS_BYTES))


def towns(memory: Memory) -> int:
    """Visited towns, one bit each."""
    return memory[TOWNS_VISITED] | memory[TOWNS_VISITED + 1] << 8


def place(memory: Memory) -> tuple[int, int, int]:
    """(map, y, x)."""
    return memory[MAP], memory[Y], memory[X]


def screen(memory: Memory) -> list[list[int]]:
    """Tile numbers [18][20] on the screen."""
    rows = range(SCREEN, SCREEN + SCREEN_WIDTH * SCREEN_HEIGHT, SCREEN_WIDTH)
    return [[memory[row + column] for column in range(SCREEN_WIDTH)] for row in rows]


def play_time(memory: Memory) -> int:
    """Play time in minutes."""
    return memory[HOURS] * 60 + memory[MINUTES]
