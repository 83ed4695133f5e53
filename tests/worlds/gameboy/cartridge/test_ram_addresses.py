"""Work-RAM addresses: those of the original game, and the functions that read values of several bytes."""

from __future__ import annotations

from rematch.worlds.gameboy.cartridge import ram_addresses as ram


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
    assert {name: getattr(ram, name) for name in table} == table
    levels = [ram.PARTY + index * ram.PARTY_STRIDE + ram.LEVEL for index in range(6)]
    assert levels == [0xD18C, 0xD1B8, 0xD1E4, 0xD210, 0xD23C, 0xD268]
    assert ram.EVENTS_BYTES == 320


def test_readers() -> None:
    memory = bytearray(0x10000)
    memory[ram.MONEY : ram.MONEY + 3] = bytes([0x01, 0x23, 0x45])
    memory[ram.PARTY_COUNT] = 2
    for index, (level, hp, most) in enumerate([(7, 300, 513), (5, 1, 20)]):
        at = ram.PARTY + index * ram.PARTY_STRIDE
        memory[at + ram.LEVEL] = level
        memory[at + ram.HP : at + ram.HP + 2] = hp.to_bytes(2, "big")
        memory[at + ram.MAX_HP : at + ram.MAX_HP + 2] = most.to_bytes(2, "big")
    memory[ram.BAG_COUNT] = 2
    memory[ram.BAG : ram.BAG + 5] = bytes([3, 1, 9, 99, 0xFF])
    memory[ram.EVENTS + 2] = 0b100
    memory[ram.TOWNS_VISITED : ram.TOWNS_VISITED + 2] = bytes([1, 2])
    memory[ram.MAP], memory[ram.Y], memory[ram.X] = 4, 5, 6
    memory[ram.HOURS], memory[ram.MINUTES] = 2, 3
    memory[ram.SCREEN + 21] = 77
    assert ram.money(memory) == 12345 and ram.party(memory) == [(7, 300, 513), (5, 1, 20)]
    assert ram.bag(memory) == {3: 1, 9: 99} and ram.towns(memory) == 0x201
    assert ram.event(memory, 18) and not ram.event(memory, 17) and ram.events(memory)[2] == 4
    assert ram.place(memory) == (4, 5, 6) and ram.play_time(memory) == 123
    shown = ram.screen(memory)
    assert shown[1][1] == 77 and len(shown) == 18 and {len(row) for row in shown} == {20}
    memory[ram.PARTY_COUNT], memory[ram.BAG_COUNT] = 255, 255  # garbage reads as a full party and bag
    assert len(ram.party(memory)) == 6 and len(ram.bag(memory)) <= 20
