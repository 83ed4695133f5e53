"""Reads work RAM of all games at once: facts, milestones and observation fields."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats
from rematch.core.spec import Field, Quantity

from .cartridge import ram_addresses
from .cartridge.constants import ACTIONS
from .emulator.pyboy_emulator import HEIGHT, WIDTH
from .titles import Title

AROUND = 48  # side of the mask of visited places; the player is at [24, 24]
RECENT = 3  # last actions in the observation
SPOTS = 2048  # rows of each of two hash tables of places: two places seldom share both rows
NAMED = {  # categorical column -> number of categories; larger values count as the last one
    "map_name": 256, "facing": 4, "box": 4, "match": 4, "menu_item": 8, "enemy_species": 256, "level": 128,
    "spot_1": SPOTS, "spot_2": SPOTS,
}  # fmt: skip
ODD = (0x9E3779B1, 0x85EBCA77)  # multipliers: 32 bits in, the highest 11 are the row
MOST_LEVEL, MOST_BYTE, MOST_MONEY = 100.0, 255.0, 6.0  # money as a decimal logarithm


@dataclass(frozen=True)
class Facts:
    """Values from memory, one row per game."""

    map: NDArray[np.int64]  # [n]
    y: NDArray[np.int64]
    x: NDArray[np.int64]
    badges: Bytes  # [n, 8] 0 or 1
    level: Floats  # [n, party]
    hp: Floats  # [n, party]
    max_hp: Floats  # [n, party]
    battle: Bytes  # [n] 0 none, 1 wild, 2 trainer, 0xFF lost
    enemy: Floats  # [n, 2] HP, level
    text: Bytes  # [n] 0: no box is open; 1: a text; more: a menu
    money: Floats  # [n]
    size: Floats  # [n, 2] height and width of the map, in steps
    facing: Bytes  # [n] 0 down, 1 up, 2 left, 3 right
    menu: Bytes  # [n] position of the menu cursor
    species: Bytes  # [n] of the enemy
    decided: NDArray[np.bool_]  # [n] in the hall of fame
    reached: NDArray[np.bool_]  # [n, milestones]

    @property
    def place(self) -> NDArray[np.uint32]:
        """(map, y, x) as one number."""
        return (self.map << 16 | self.y << 8 | self.x).astype(np.uint32)

    @property
    def health(self) -> Floats:
        """[n] fraction of the party's HP."""
        most = self.max_hp.sum(1)
        share: Floats = np.divide(self.hp.sum(1), most, out=np.zeros_like(most), where=most > 0)
        return share


class Reader:
    """Maps memory addresses to positions in the bytes that an emulator pool reads."""

    def __init__(self, title: Title) -> None:
        self.title = title
        self.at: dict[int, int] = {}
        for first, end in title.regions:
            for address in range(first, end):
                self.at[address] = len(self.at)
        members = [ram_addresses.PARTY + index * ram_addresses.PARTY_STRIDE for index in range(title.party)]
        self.level = self._positions(member + ram_addresses.LEVEL for member in members)
        self.hp = self._positions(member + ram_addresses.HP for member in members)
        self.max_hp = self._positions(member + ram_addresses.MAX_HP for member in members)
        places = [one.place for one in title.milestones]
        self.milestone_at = self._positions(address for address, _, _ in places)
        self.milestone_value = np.array([value for _, value, _ in places], np.uint8)
        self.milestone_equal = np.array([equal for _, _, equal in places], bool)
        self.names = [one.name for one in title.milestones]
        self.ends = any(one.kind == "end" for one in title.milestones)  # whether the end is known
        rewards = {"badge": title.rewards.badge, "end": title.rewards.end}
        self.milestone_reward = np.array(
            [rewards.get(one.kind, title.rewards.event) for one in title.milestones]
        )
        self.number = {name: index for index, name in enumerate(self.names)}

    def _positions(self, addresses: Any) -> NDArray[np.int64]:
        return np.array([self.at[address] for address in addresses], np.int64)

    def facts(self, ram: Bytes) -> Facts:
        """ram: [n, R]."""
        at = self.at
        count = np.minimum(ram[:, at[ram_addresses.PARTY_COUNT]], self.title.party)
        present = np.arange(self.title.party) < count[:, None]
        money = np.zeros(len(ram), np.float32)
        for offset in range(3):  # two decimal digits per byte
            byte = ram[:, at[ram_addresses.MONEY + offset]].astype(np.float32)
            money = money * 100 + np.floor(byte / 16) * 10 + byte % 16
        values = ram[:, self.milestone_at]
        shared = (values & self.milestone_value) != 0
        enemy_hp = _big_endian(ram, np.array([at[ram_addresses.ENEMY_HP]]))[:, 0]
        enemy = np.stack([enemy_hp, ram[:, at[ram_addresses.ENEMY_LEVEL]].astype(np.float32)], 1)
        return Facts(
            map=ram[:, at[ram_addresses.MAP]].astype(np.int64),
            y=ram[:, at[ram_addresses.Y]].astype(np.int64),
            x=ram[:, at[ram_addresses.X]].astype(np.int64),
            badges=ram[:, at[ram_addresses.BADGES], None] >> np.arange(8, dtype=np.uint8) & np.uint8(1),
            level=ram[:, self.level].astype(np.float32) * present,
            hp=_big_endian(ram, self.hp) * present,
            max_hp=_big_endian(ram, self.max_hp) * present,
            battle=ram[:, at[ram_addresses.IN_BATTLE]],
            enemy=enemy,
            text=self._text_box(ram),
            money=money,
            size=ram[:, [at[ram_addresses.MAP_HEIGHT], at[ram_addresses.MAP_WIDTH]]].astype(np.float32)
            * self.title.block,
            facing=ram[:, at[ram_addresses.FACING]] // 4,
            menu=ram[:, at[ram_addresses.MENU_ITEM]],
            species=ram[:, at[ram_addresses.ENEMY_SPECIES]],
            decided=(ram[:, at[ram_addresses.HALL_OF_FAME]] != 0) & self.ends,
            reached=np.where(self.milestone_equal, values == self.milestone_value, shared),
        )

    def _text_box(self, ram: Bytes) -> Bytes:
        """[n] kind of the open text box, 0 without one. In a match of Red a box is always open."""
        kind: Bytes = ram[:, self.at[ram_addresses.TEXT_BOX]]
        if not self.title.text_flag:
            return kind
        is_open = (ram[:, self.at[self.title.text_flag]] & 1) | ram[:, self.at[ram_addresses.IN_BATTLE]]
        return np.where(is_open != 0, np.maximum(kind, 1), 0).astype(np.uint8)

    def fields(self, screen: bool = True, mask: bool = True) -> tuple[Field, ...]:
        """screen, structured, named, visited; screen and visited are optional."""
        return ((_screen(),) if screen else ()) + (
            Field(name="structured", columns=self.columns(), low=0.0, high=1.0,
                  quantities=tuple(map(_quantity, self.columns()))),
            Field(name="named", columns=tuple(NAMED), low=0.0, high=max(NAMED.values()) - 1.0,
                  categories=tuple(NAMED.values())),
        ) + ((_visited(),) if mask else ())

    def columns(self) -> tuple[str, ...]:
        party = range(1, self.title.party + 1)
        return (
            "map", "y", "x", "y_share", "x_share", *(f"badge_{name}" for name in ram_addresses.BADGE_NAMES),
            *(f"level_{member}" for member in party), *(f"hp_{member}" for member in party),
            "in_battle", "against_trainer", "enemy_hp", "enemy_level", "text", "money",
            *(f"fresh_{name}" for name in ACTIONS[:4]),
            *(f"milestone_{name}" for name in self.names),
            *(f"action_{ago}_ago_{name}" for ago in range(1, RECENT + 1) for name in ACTIONS),
        )  # fmt: skip

    def structured(
        self, facts: Facts, reached: NDArray[Any], recent: NDArray[Any], unvisited: NDArray[Any], out: Floats
    ) -> None:
        """out [n, columns]; reached [n, milestones]; recent [n, RECENT], the newest first, 255 for none.

        unvisited [n, 4]: whether the place one step down, left, right, up was not visited yet.
        """
        share = np.divide(facts.hp, facts.max_hp, out=np.zeros_like(facts.hp), where=facts.max_hp > 0)
        fighting = facts.battle != 0
        last = recent[:, :, None] == np.arange(len(ACTIONS))
        parts: list[NDArray[Any]] = [
            np.stack([facts.map, facts.y, facts.x], 1) / MOST_BYTE,
            np.stack([facts.y, facts.x], 1) / np.maximum(facts.size, 1),
            facts.badges,
            facts.level / MOST_LEVEL,
            share,
            np.stack([fighting, facts.battle == 2], 1),
            facts.enemy / (MOST_BYTE, MOST_LEVEL) * fighting[:, None],
            np.stack([facts.text != 0, np.log10(1 + facts.money) / MOST_MONEY], 1),
            unvisited,
            reached,
            last.reshape(len(last), -1),
        ]
        np.clip(np.concatenate(parts, 1, dtype=np.float32), 0.0, 1.0, out=out)

    def named(self, facts: Facts, out: Floats) -> None:
        """out [n, NAMED]: the categorical columns. A place is two categories, by two hashes."""
        fighting, place = facts.battle != 0, facts.place.astype(np.uint64)
        match = np.where(facts.battle == 0xFF, 3, facts.battle)
        spots = [(place * np.uint64(odd) & np.uint64(0xFFFFFFFF)) >> np.uint64(21) for odd in ODD]
        columns = (facts.map, facts.facing, facts.text, match, facts.menu * (facts.text > 1),
                   facts.species * fighting, facts.level.max(1), *spots)
        for column, (values, most) in enumerate(zip(columns, NAMED.values())):
            out[:, column] = np.minimum(values, most - 1)


UNITS = {  # column of `structured`, or its first word -> unit and largest value; others are 0 or 1
    "map": ("byte", MOST_BYTE), "y": ("steps", MOST_BYTE), "x": ("steps", MOST_BYTE),
    "y_share": ("fraction", 1.0), "x_share": ("fraction", 1.0), "level": ("levels", MOST_LEVEL),
    "hp": ("fraction", 1.0), "enemy_hp": ("HP", MOST_BYTE), "enemy_level": ("levels", MOST_LEVEL),
    "money": ("log10 of 1 + money", MOST_MONEY),
}  # fmt: skip


def _quantity(column: str) -> Quantity:
    """How `structured` scales a column."""
    unit, most = UNITS.get(column) or UNITS.get(column.split("_")[0]) or ("0 or 1", 1.0)
    return Quantity(unit=unit, half=most, low=0.0)


@functools.cache  # 8000 column names: making them took longer than the rest of a world
def _screen() -> Field:
    pixels = tuple(f"y{y}_x{x}" for y in range(HEIGHT) for x in range(WIDTH))
    grey = Quantity(unit="brightness", low=0.0)
    return Field(name="screen", columns=pixels, low=0.0, high=1.0, shape=(HEIGHT, WIDTH),
                 quantities=(grey,) * len(pixels))


@functools.cache
def _visited() -> Field:
    near = range(-AROUND // 2, AROUND // 2)
    around = tuple(f"y{y:+d}_x{x:+d}" for y in near for x in near)
    return Field(name="visited", columns=around, low=0.0, high=1.0, shape=(AROUND, AROUND),
                 quantities=(Quantity(unit="0 or 1", low=0.0),) * len(around))


def _big_endian(ram: Bytes, at: NDArray[np.int64]) -> Floats:
    """Big-endian numbers of two bytes, [n, len(at)]."""
    return ram[:, at].astype(np.float32) * 256 + ram[:, at + 1]
