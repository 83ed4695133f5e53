"""What is read from memory for all games at once equals reading it byte by byte, with ram_addresses.py."""

from __future__ import annotations

import numpy as np
import pytest

from rematch.core import rng
from rematch.worlds.gameboy import titles
from rematch.worlds.gameboy.cartridge import ram_addresses as wram
from rematch.worlds.gameboy.ram_reader import NAMED, RECENT, SPOTS, Reader

TITLES = {"ours": titles.included_title(titles.cartridge("small", 0)), "red": titles.red()}


@pytest.mark.parametrize("name", TITLES)
def test_facts_equal_the_slow_reading(name: str) -> None:
    title = TITLES[name]
    reader, games = Reader(title), 40
    memories = [rng.words(9, rng.ACT, 1 << 16, game).astype(np.uint8).tobytes() for game in range(games)]
    read = [address for first, end in title.regions for address in range(first, end)]
    ram = np.array([[memory[address] for address in read] for memory in memories], np.uint8)
    decimal = np.array([reader.at[wram.MONEY + offset] for offset in range(3)])
    ram[:, decimal] = ram[:, decimal] % 10 * 16 + ram[:, decimal] % 9
    ram[:, reader.at[wram.PARTY_COUNT]] %= 8
    facts = reader.facts(ram)
    for game in range(games):
        memory = {address: int(ram[game, at]) for address, at in reader.at.items()}
        assert (facts.map[game], facts.y[game], facts.x[game]) == wram.place(memory)
        count = min(memory[wram.PARTY_COUNT], title.party)
        members = wram.party(memory | {wram.PARTY_COUNT: count})
        result = zip(facts.level[game].tolist(), facts.hp[game].tolist(), facts.max_hp[game].tolist())
        assert list(result) == [*members, *[(0, 0, 0)] * (title.party - count)]
        assert facts.money[game] == wram.money(memory)
        enemy = [wram.big_endian(memory, wram.ENEMY_HP), memory[wram.ENEMY_LEVEL]]
        assert facts.enemy[game].tolist() == enemy
        assert (
            facts.place[game]
            == memory[wram.MAP] << 16 | memory[wram.Y] << 8 | memory[wram.X]
        )
        for mark, existing in zip(title.milestones, facts.reached[game]):
            slow = {
                "town": lambda m=mark, b=memory: bool(wram.towns(b) >> m.number & 1),
                "badge": lambda m=mark, b=memory: bool(b[wram.BADGES] >> m.number & 1),
                "map": lambda m=mark, b=memory: b[wram.MAP] == m.number,
                "end": lambda m=mark, b=memory: b[wram.HALL_OF_FAME] != 0,
            }.get(mark.kind, lambda m=mark, b=memory: wram.event(b, m.number))
            assert existing == slow(), mark


@pytest.mark.parametrize("name", TITLES)
def test_columns_are_what_they_say(name: str) -> None:
    title = TITLES[name]
    reader = Reader(title)
    columns = {column: at for at, column in enumerate(reader.columns())}
    assert len(columns) == len(reader.columns()) == reader.fields()[1].size
    ram = np.zeros((1, len(reader.at)), np.uint8)
    none = np.full((1, RECENT), 255, np.uint8)
    reached, fresh = np.zeros((1, len(title.milestones)), bool), np.zeros((1, 4), np.uint8)

    def seen() -> dict[str, float]:
        out = np.zeros((1, len(columns)), np.float32)
        reader.structured(reader.facts(ram), reached, none, fresh, out)
        return {column: round(float(out[0, at]), 4) for column, at in columns.items() if out[0, at]}

    assert seen() == {}
    for address, value in {wram.MAP: 51, wram.X: 255, wram.BADGES: 4, wram.PARTY_COUNT: 1, wram.IN_BATTLE: 2,
                           wram.PARTY + wram.LEVEL: 50, wram.PARTY + wram.HP + 1: 10, wram.ENEMY_LEVEL: 25,
                           wram.PARTY + wram.MAX_HP + 1: 40, wram.MONEY + 2: 0x99, wram.Y: 17,
                           wram.MAP_HEIGHT: 34}.items():  # fmt: skip
        ram[0, reader.at[address]] = value
    none[0, 0], reached[0, 1], fresh[0, 2] = 4, True, 1
    assert seen() == {
        "map": 0.2, "x": 1.0, "y": round(17 / 255, 4), "y_share": 0.5 / title.block, "x_share": 1.0,
        "fresh_right": 1.0, "badge_Thunder": 1.0, "level_1": 0.5, "hp_1": 0.25, "in_battle": 1.0,
        "against_trainer": 1.0, "enemy_level": 0.25, "money": round(2 / 6, 4),
        f"milestone_{title.milestones[1].name}": 1.0, "action_1_ago_a": 1.0,
        **({"text": 1.0} if title.text_flag else {}),  # in a match of Red a box is always open
    }  # fmt: skip


@pytest.mark.parametrize("name", TITLES)
def test_names_are_what_they_say(name: str) -> None:
    title = TITLES[name]
    reader = Reader(title)
    ram, out = np.zeros((1, len(reader.at)), np.uint8), np.zeros((1, len(NAMED)), np.float32)

    def seen(**bytes_of: int) -> dict[str, float]:
        for address, value in bytes_of.items():
            ram[0, reader.at[getattr(wram, address)]] = value
        reader.named(reader.facts(ram), out)
        return {column: value for column, value in zip(NAMED, out[0].tolist()) if value}

    assert seen() == {}
    if title.text_flag:  # Red never clears TEXT_BOX: another byte says whether a box is open
        assert seen(TEXT_BOX=13, MENU_ITEM=2) == {}
        assert seen(FONT_LOADED=1) == {"box": 3, "menu_item": 2}
    assert seen(ENEMY_SPECIES=5, MENU_ITEM=2, FACING=12, TEXT_BOX=1) == {"facing": 3, "box": 1}, "no match"
    assert seen(IN_BATTLE=2, TEXT_BOX=2) == {
        "facing": 3, "box": 2, "match": 2, "menu_item": 2, "enemy_species": 5,
    }  # fmt: skip
    assert seen(IN_BATTLE=0xFF, TEXT_BOX=77, MENU_ITEM=200)["match"] == 3, "lost"
    assert (out[0] < list(NAMED.values())).all(), "what is beyond stays within"
    ram[0, reader.at[wram.PARTY_COUNT]] = 1
    ram[0, reader.at[wram.PARTY + wram.LEVEL]] = 9
    assert seen(MAP=3)["level"] == 9


def test_places_are_distinguished() -> None:
    """All walkable places of a large cartridge: nearly every one has a pair of rows of its own."""
    made = titles.cartridge("kanto-ish", 0)
    reader = Reader(titles.included_title(made))
    ram = np.zeros((len(made.walkable), len(reader.at)), np.uint8)
    for row, (where, y, x) in zip(ram, made.walkable):
        row[[reader.at[wram.MAP], reader.at[wram.Y], reader.at[wram.X]]] = (
            where,
            y,
            x,
        )
    out = np.zeros((len(ram), len(NAMED)), np.float32)
    reader.named(reader.facts(ram), out)
    pairs = {tuple(row) for row in out[:, -2:].tolist()}
    assert len(pairs) > 0.99 * len(ram), f"{len(pairs)} of {len(ram)}"
    assert (out[:, -2:] < SPOTS).all() and len(set(out[:, -1].tolist())) > 0.5 * SPOTS
