"""The work-RAM table: the addresses of the original game, and the readers of values of several bytes."""

from __future__ import annotations

from rematch.worlds.gameboy.cartridge import wram


def test_addresses_are_those_of_the_table() -> None:
    table = {
        "MAP": 0xD35E, "Y": 0xD361, "X": 0xD362, "LAST_MAP": 0xD365, "TILESET": 0xD367,
        "MAP_HEIGHT": 0xD368, "MAP_WIDTH": 0xD369, "BADGES": 0xD356, "MONEY": 0xD347,
        "PARTY_COUNT": 0xD163, "PARTY_SPECIES": 0xD164,
        "BAG_COUNT": 0xD31D, "BAG": 0xD31E, "EVENTS": 0xD747, "IN_BATTLE": 0xD057, "ENEMY_HP": 0xCFE6,
        "ENEMY_SPECIES": 0xCFE5, "MENU_ITEM": 0xCC26,
        "ENEMY_LEVEL": 0xCFF3, "SCREEN": 0xC3A0, "JOYPAD_IGNORE": 0xCD6B, "TEXT_BOX": 0xD125,
        "BLACKOUT_MAP": 0xD719, "TOWNS_VISITED": 0xD70B, "HALL_OF_FAME": 0xD5A2, "FACING": 0xC109,
        "HOURS": 0xDA41, "MINUTES": 0xDA43,
    }  # fmt: skip
    assert {name: getattr(wram, name) for name in table} == table
    levels = [wram.PARTY + index * wram.PARTY_STRIDE + wram.LEVEL for index in range(6)]
    assert levels == [0xD18C, 0xD1B8, 0xD1E4, 0xD210, 0xD23C, 0xD268]
    assert wram.EVENTS_BYTES == 320


def test_readers() -> None:
    memory = bytearray(0x10000)
    memory[wram.MONEY : wram.MONEY + 3] = bytes([0x01, 0x23, 0x45])
    memory[wram.PARTY_COUNT] = 2
    for index, (level, hp, most) in enumerate([(7, 300, 513), (5, 1, 20)]):
        at = wram.PARTY + index * wram.PARTY_STRIDE
        memory[at + wram.LEVEL] = level
        memory[at + wram.HP : at + wram.HP + 2] = hp.to_bytes(2, "big")
        memory[at + wram.MAX_HP : at + wram.MAX_HP + 2] = most.to_bytes(2, "big")
    memory[wram.BAG_COUNT] = 2
    memory[wram.BAG : wram.BAG + 5] = bytes([3, 1, 9, 99, 0xFF])
    memory[wram.EVENTS + 2] = 0b100
    memory[wram.TOWNS_VISITED : wram.TOWNS_VISITED + 2] = bytes([1, 2])
    memory[wram.MAP], memory[wram.Y], memory[wram.X] = 4, 5, 6
    memory[wram.HOURS], memory[wram.MINUTES] = 2, 3
    memory[wram.SCREEN + 21] = 77
    assert wram.money(memory) == 12345 and wram.party(memory) == [(7, 300, 513), (5, 1, 20)]
    assert wram.bag(memory) == {3: 1, 9: 99} and wram.towns(memory) == 0x201
    assert wram.event(memory, 18) and not wram.event(memory, 17) and wram.events(memory)[2] == 4
    assert wram.place(memory) == (4, 5, 6) and wram.play_time(memory) == 123
    shown = wram.screen(memory)
    assert shown[1][1] == 77 and len(shown) == 18 and {len(row) for row in shown} == {20}
    memory[wram.PARTY_COUNT], memory[wram.BAG_COUNT] = 255, 255  # garbage reads as a full party and bag
    assert len(wram.party(memory)) == 6 and len(wram.bag(memory)) <= 20
