"""The cartridge on the emulator: it equals the model after every action; its screen equals its tile map."""

from __future__ import annotations

import io

import pytest
from support.cartridge_emulator import Emulator

from rematch.core import rng
from rematch.worlds.gameboy.cartridge import constants, game_model, ram_addresses
from rematch.worlds.gameboy.cartridge.compiler import Cartridge, build, compile_world


def assert_equal(emulator: Emulator, game: game_model.Game, when: str) -> None:
    assert emulator.differences(game) == {}, when


def screen_tiles(emulator: Emulator) -> list[list[int]]:
    """Tile numbers on the screen [18][20], from video RAM and the scroll and window registers."""
    ram = emulator.memory
    scy, scx, wy = ram[0xFF42], ram[0xFF43], ram[0xFF4A]
    assert scy % 8 == scx % 8 == wy % 8 == 0, "no step is under way between actions"
    rows = []
    for y in range(18):
        if 8 * y >= wy:
            at = 0x9C00 + 32 * (y - wy // 8)
            rows.append(list(ram[at : at + 20]))
        else:
            line = 0x9800 + 32 * ((scy // 8 + y) % 32)
            rows.append([ram[line + (scx // 8 + x) % 32] for x in range(20)])
    return rows


def compare_detours(cartridge: Cartridge, every: int, detour: int) -> set[str]:
    """Plays the solution with detours of random presses; compares memory after each action."""
    emulator, game = Emulator(cartridge.rom), game_model.new_game(cartridge.atlas, cartridge.seed)
    seen: set[str] = set()
    for index, action in enumerate(cartridge.solution):
        emulator.press(action)
        game.press(action)
        assert_equal(emulator, game, f"action {index}")
        if index % every or index < game_model.BOOT + 1:
            continue
        assert screen_tiles(emulator) == ram_addresses.screen(emulator.memory), f"action {index}"
        saved, detour_game = io.BytesIO(), game.copy()
        emulator.boy.save_state(saved)
        words = rng.words(cartridge.seed, rng.ACT, detour, index).tolist()
        for turn, word in enumerate(words):
            choice = (
                word % 16
            )  # directions and A are more likely than B and START; otherwise no match is ever lost
            press = choice % 4 if choice < 9 else (game_model.A if choice < 14 else choice - 9)
            emulator.press(press)
            detour_game.press(press)
            assert_equal(emulator, detour_game, f"action {index}, detour {turn}")
            seen.add(f"mode {detour_game.mode}, battle {detour_game.battle}")
        assert screen_tiles(emulator) == ram_addresses.screen(emulator.memory), f"detour from {index}"
        saved.seek(0)
        emulator.boy.load_state(saved)
    assert game.mode == game_model.END and emulator.memory[ram_addresses.HALL_OF_FAME] == 1
    assert emulator.memory[ram_addresses.BADGES] == (1 << cartridge.atlas.badges) - 1
    for _ in range(3):  # no input has an effect after the end
        emulator.press(game_model.START)
        game.press(game_model.START)
    assert_equal(emulator, game, "after the end")
    return seen


def test_tiny_equals_the_model_and_ends() -> None:
    seen = compare_detours(build("tiny", 0), every=11, detour=30)
    expected = {(1, 0), (2, 0), (2, 1), (2, 2), (3, 1), (3, 2), (2, 255)}
    assert {f"mode {mode}, battle {battle}" for mode, battle in expected} <= seen


@pytest.mark.parametrize(("size", "seed"), [("mid", 1), ("small", 0)])
def test_the_solution_replays_from_power_on(size: str, seed: int) -> None:
    compare_detours(build(size, seed), every=70, detour=25)


def test_random_buttons_equal_the_model() -> None:
    cartridge = build("small", 3)
    emulator, game = Emulator(cartridge.rom), game_model.new_game(cartridge.atlas, cartridge.seed)
    for index, word in enumerate(rng.words(5, rng.ACT, 600).tolist()):
        emulator.press(word % len(constants.ACTIONS))
        game.press(word % len(constants.ACTIONS))
        assert_equal(emulator, game, f"action {index}")
    assert game.towns == 1 and game.mode != game_model.TITLE


CROWDED = """
map ROOM
kind town
wild CINDER FINLET 6
|TTTTTTTT|
|Ts:k:L:T|
|T:@:::iT|
|Tn:::rgT|
|T:::1:HT|
|TTTTTTTT|
s sign : ONE./TWO.//THREE.
n nurse : REST.
k lock AXE : SHUT. || OPEN.
i item AXE : AN AXE.
r rival SPRIG 4 7 : HO!
g gate : SHUT. || OPEN.
L leader 0 3 8 : TOO WEAK. || COME!//NOW! || WELL.
H trophy
1 exit YARD 2

map YARD
kind route
wild SPRIG PUDDLE 5
|TTTTT|
|T::2T|
|TTTTT|
2 exit ROOM 1
"""


def test_a_crowded_room_equals_the_model() -> None:
    """Every kind of event nearby, tall grass everywhere: refusals, damage, levels, blackouts."""
    cartridge = compile_world(
        CROWDED, seed=138
    )  # its tenth random byte equals ENCOUNTER, which is no encounter
    emulator, game = Emulator(cartridge.rom), game_model.new_game(cartridge.atlas, cartridge.seed)
    seen: set[tuple[str, int]] = set()
    for index, word in enumerate(rng.words(33, rng.ACT, 2500).tolist()):
        action = (
            0,
            1,
            2,
            3,
            game_model.A,
            game_model.A,
            game_model.A,
            game_model.A,
            game_model.B,
            game_model.START,
        )[word % 37 % 10]
        emulator.press(action)
        game.press(action)
        assert_equal(emulator, game, f"action {index}")
        seen.add((game.event.kind if game.event else "", game.after_text))
    kinds = {"sign", "nurse", "lock", "item", "rival", "gate", "leader"}
    assert kinds <= {kind for kind, _ in seen} and {after for _, after in seen} >= {0, 1, 2, 4, 5}
    assert ("leader", game_model.CLOSE) in seen and game.level > constants.START_LEVEL


def test_it_is_deterministic_and_keeps_time() -> None:
    cartridge = build("tiny", 2)
    pictures, clocks = [], []
    for _ in range(2):
        emulator = Emulator(cartridge.rom)
        for index, action in enumerate(cartridge.solution[:60]):
            emulator.press(action, show=index == 59)
        pictures.append(emulator.boy.screen.ndarray.tobytes())
        ram = emulator.memory
        clocks.append(
            (ram[ram_addresses.HOURS] * 60 + ram[ram_addresses.MINUTES]) * 3600
            + ram[ram_addresses.SECONDS] * 60
            + ram[ram_addresses.FRAMES]
        )
    assert pictures[0] == pictures[1] and len(set(pictures[0])) >= 3
    started = constants.TICKS * (60 - game_model.BOOT - 1)
    # every frame counts once
    assert clocks[0] == clocks[1] and started <= clocks[0] <= started + constants.TICKS
    emulator.boy.tick(3600 - clocks[0] % 3600, False)
    assert ram_addresses.play_time(emulator.memory) == clocks[0] // 3600 + 1


def test_waiting_changes_nothing() -> None:
    """The random byte changes only with steps on grass: idle frames between actions have no effect."""
    cartridge = build("tiny", 1)
    emulator, game = Emulator(cartridge.rom), game_model.new_game(cartridge.atlas, cartridge.seed)
    for index, action in enumerate(cartridge.solution[:90]):
        emulator.press(action)
        game.press(action)
        if index > game_model.BOOT:
            emulator.boy.tick(index % 7, False)
        assert_equal(emulator, game, f"action {index}")
