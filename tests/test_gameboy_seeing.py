"""What is read from memory for all games at once equals reading it byte by byte, with wram.py."""

from __future__ import annotations

import numpy as np
import pytest

from rematch import keys
from rematch.worlds.gameboy import titles
from rematch.worlds.gameboy.cartridge import wram
from rematch.worlds.gameboy.seeing import RECENT, Reader

TITLES = {"ours": titles.ours(titles.cartridge("small", 0)), "red": titles.red()}


@pytest.mark.parametrize("name", TITLES)
def test_facts_equal_the_slow_reading(name: str) -> None:
    title = TITLES[name]
    reader, games = Reader(title), 40
    memories = [keys.words(9, keys.ACT, 1 << 16, game).astype(np.uint8).tobytes() for game in range(games)]
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
        found = zip(facts.level[game].tolist(), facts.hp[game].tolist(), facts.most_hp[game].tolist())
        assert list(found) == [*members, *[(0, 0, 0)] * (title.party - count)]
        assert facts.money[game] == wram.money(memory)
        enemy = [wram.big_endian(memory, wram.ENEMY_HP), memory[wram.ENEMY_LEVEL]]
        assert facts.enemy[game].tolist() == enemy
        assert facts.place[game] == memory[wram.MAP] << 16 | memory[wram.Y] << 8 | memory[wram.X]
        for mark, there in zip(title.marks, facts.reached[game]):
            slow = {
                "town": lambda m=mark, b=memory: bool(wram.towns(b) >> m.number & 1),
                "badge": lambda m=mark, b=memory: bool(b[wram.BADGES] >> m.number & 1),
                "map": lambda m=mark, b=memory: b[wram.MAP] == m.number,
                "end": lambda m=mark, b=memory: b[wram.HALL_OF_FAME] != 0,
            }.get(mark.kind, lambda m=mark, b=memory: wram.event(b, m.number))
            assert there == slow(), mark


@pytest.mark.parametrize("name", TITLES)
def test_columns_are_what_they_say(name: str) -> None:
    title = TITLES[name]
    reader = Reader(title)
    columns = {column: at for at, column in enumerate(reader.columns())}
    assert len(columns) == len(reader.columns()) == reader.fields()[1].size
    ram = np.zeros((1, len(reader.at)), np.uint8)
    none = np.full((1, RECENT), 255, np.uint8)
    reached = np.zeros((1, len(title.marks)), bool)

    def seen() -> dict[str, float]:
        out = np.zeros((1, len(columns)), np.float32)
        reader.structured(reader.facts(ram), reached, none, out)
        return {column: round(float(out[0, at]), 4) for column, at in columns.items() if out[0, at]}

    assert seen() == {}
    for address, value in {wram.MAP: 51, wram.X: 255, wram.BADGES: 4, wram.PARTY_COUNT: 1, wram.IN_BATTLE: 2,
                           wram.PARTY + wram.LEVEL: 50, wram.PARTY + wram.HP + 1: 10, wram.ENEMY_LEVEL: 25,
                           wram.PARTY + wram.MAX_HP + 1: 40, wram.MONEY + 2: 0x99}.items():  # fmt: skip
        ram[0, reader.at[address]] = value
    none[0, 0], reached[0, 1] = 4, True
    assert seen() == {
        "map": 0.2, "x": 1.0, "badge_Thunder": 1.0, "level_1": 0.5, "hp_1": 0.25, "in_battle": 1.0,
        "against_trainer": 1.0, "enemy_level": 0.25, "money": round(2 / 6, 4),
        f"milestone_{title.marks[1].name}": 1.0, "action_1_ago_a": 1.0,
    }  # fmt: skip
