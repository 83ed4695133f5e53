"""World compiler: header, same seed same bytes, tables, user-written worlds, error messages."""

from __future__ import annotations

import pytest

from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge import (
    constants,
    game_model,
    solver,
    world_generator,
    world_text,
)
from rematch.worlds.gameboy.cartridge import (
    ram_addresses as ram,
)
from rematch.worlds.gameboy.cartridge.compiler import TITLE, build, compile_world

WORLD = """
map HOME
kind town
|TTTTTTTTT|
|T@...1.HT|
|TTTTTgTTT|
|T.....n.T|
|TTTTTTTTT|
H trophy
n nurse : REST WELL.
g gate : NO ENTRY. || COME IN!
1 door GYM m

map GYM
kind gym
|#####|
|#%L%#|
|#%%%#|
|##m##|
m mat HOME 1
L leader 0 3 5 : TOO WEAK. || FIGHT! || WELL DONE.
"""


def test_header_and_checksums() -> None:
    rom = build("tiny", 0).rom
    assert len(rom) == 0x8000 and rom[0x134:0x144].rstrip(b"\0") == TITLE.encode()
    assert not any(rom[0x104:0x134]), "the logo area stays empty"
    assert rom[0x147:0x14A] == bytes(3), "no mapper, 32 KiB, no RAM"
    header = 0
    for byte in rom[0x134:0x14D]:
        header = (header - byte - 1) % 256
    assert rom[0x14D] == header
    assert int.from_bytes(rom[0x14E:0x150], "big") == (sum(rom) - rom[0x14E] - rom[0x14F]) % 65536


@pytest.mark.parametrize("size", world_generator.SIZES)
def test_same_seed_same_bytes_and_the_right_size(size: str) -> None:
    cartridge, again, other = build(size, 7), build(size, 7), build(size, 8)
    assert (
        cartridge.rom == again.rom
        and cartridge.sha1 == again.sha1
        and cartridge.rom != other.rom
        and cartridge.world != other.world
    )
    count, badges = {"tiny": (3, 1), "mid": (5, 2), "small": (8, 3), "kanto-ish": (23, 8)}[size]
    assert len(cartridge.maps) == count and cartridge.atlas.badges == badges == len(cartridge.gyms)
    assert len(set(cartridge.maps.values())) == count and cartridge.towns[0] == 0
    assert len(cartridge.walkable) == len(set(cartridge.walkable))


def test_milestones_name_everything_that_is_reached_once() -> None:
    cartridge = build("small", 0)
    game = game_model.new_game(cartridge.atlas, cartridge.seed)
    for action in cartridge.solution:
        game.press(action)
    by_kind: dict[str, list[int]] = {}
    for stone in cartridge.milestones:
        by_kind.setdefault(stone.kind, []).append(stone.number)
        assert cartridge.maps[stone.map]
    assert len(by_kind["badge"]) == 3 and len(by_kind["town"]) == 3 and len(by_kind["end"]) == 1
    for kind in ("item", "lock", "gate"):
        assert all(game.flags >> flag & 1 for flag in by_kind[kind]), kind
    flags = [n for kind in ("rival", "item", "lock", "gate") for n in by_kind[kind]]
    assert len(flags) == len(set(flags)) and min(flags) >= world_text.FIRST_FLAG
    assert game.flags >> 1 & 7 == game.badges == 7  # flags 1, 2, 3: the leaders
    assert ram.event(game.wram(), by_kind["gate"][0]) and not ram.event(game.wram(), 200)


def test_a_world_of_ones_own() -> None:
    cartridge = compile_world(WORLD, "own")
    assert cartridge.maps == {0: "HOME", 1: "GYM"} and cartridge.atlas.badges == 1
    game = game_model.new_game(cartridge.atlas, 0)
    for action in cartridge.solution:
        game.press(action)
    assert game.hall == 1 and solver.lower_bound(cartridge.atlas) <= len(cartridge.solution) < 90
    assert compile_world(cartridge.world, "own").rom == cartridge.rom


@pytest.mark.parametrize(("old", "new", "message"), [
    ("kind gym", "kind gyn", "kind 'gyn': expected one of town, route, gym; nearest: gym"),
    ("|#%L%#|", "|#%L%|", "expected a row between bars, as long as the first"),
    ("|#%L%#|", "|#%LL#|", "letter 'L' stands 2 times on GYM: expected once"),
    ("|#%L%#|", "|#%L?#|", "map GYM: letter '?' is neither terrain nor an object"),
    ("door GYM m", "door GIM m", "map 'GIM': expected one of HOME, GYM; nearest: GYM"),
    ("door GYM m", "door GYM L", "letter 'L' of GYM: expected one door, exit or mat"),
    ("leader 0 3 5", "leader 1 3 5", "badges [1]: expected 0, 1, 2, …"),
    ("leader 0 3 5", "leader 0 3", "leader: expected 3 arguments and 3 texts"),
    ("leader 0 3 5", "leader 0 3 x", "level needed 'x': expected a number from 1 to 60"),
    ("H trophy", "H trophi", "object 'trophi': expected one of"),
    ("|T@...1.HT|", "|T....1.HT|", "town HOME has 0 homes (@): expected one"),
    ("TOO WEAK.", "YOU ARE MUCH TOO WEAK.", "expected two lines of 18 letters or fewer"),
    ("map GYM", "map HOME", "map 'HOME' is defined twice"),
    ("n nurse", "T nurse", "letter 'T': expected one that is neither terrain nor used"),
    ("map HOME\nkind town", "map HOME\nkind route", "the first map, HOME, is a route: expected a town"),
    ("REST WELL.", "rest well.", "no tile for the letter 'r'"),
    ("H trophy", "H sign : HI", "no trophy"),
])  # fmt: skip
def test_mistakes_in_a_world_are_named(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        compile_world(WORLD.replace(old, new, 1))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_sizes_and_seeds_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"size 'smal': expected one of .*nearest: small"):
        build("smal", 0)
    with pytest.raises(ConfigError, match="seed -1: expected 0 to"):
        build("small", -1)


def test_a_world_that_is_too_large_is_refused() -> None:
    field = "|" + "." * 30 + "|\n"
    more = "".join(f"map M{index}\nkind route\n{field * 30}" for index in range(40))
    with pytest.raises(ConfigError, match="big_one: expected a world that fits into 32 KiB"):
        compile_world(WORLD + more, "big_one")
    assert compile_world(WORLD, "odd_na/me é").rom != compile_world(WORLD, "odd").rom


def test_a_world_that_cannot_be_finished_is_refused() -> None:
    shut = WORLD.replace("|T@...1.HT|", "|T@..T1.HT|")
    with pytest.raises(ConfigError, match="cannot be finished"):
        solver.solve(compile_world(shut).atlas, 0)


def test_rules_are_those_of_the_game() -> None:
    for species in range(6):
        strong = [move for move in range(3) if constants.effectiveness(move, species) == constants.STRONG]
        assert strong == [solver.strong_move(species)]
        assert (
            constants.damage(10, constants.STRONG)
            > constants.damage(10, constants.PLAIN)
            > constants.damage(10, constants.WEAK)
        )
    value, seen = 0, set()
    for _ in range(256):
        value = constants.next_random(value)
        seen.add(value)
    assert len(seen) == 256  # the generator visits every byte
    for badge in range(8):
        assert {species % 3 for species in constants.leader_team(badge)} == {0, 1, 2}
