"""The world: the contract with savestates, rewards, what is visited, capture and replay, faults, resume."""

from __future__ import annotations

import hashlib
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import gameboy_worlds
from support.gameboy_worlds import follow, press, tiny

from rematch import api
from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.world import CUT_OFF, DECIDED, RUNNING
from rematch.worlds import conformance, registry
from rematch.worlds.conformance.determinism_checks import check_restart
from rematch.worlds.conformance.playback import WorldUnderTest
from rematch.worlds.conformance.shape_checks import check_values
from rematch.worlds.gameboy import config as config_module
from rematch.worlds.gameboy.cartridge import game_model, ram_addresses
from rematch.worlds.gameboy.emulator import pyboy_emulator
from rematch.worlds.gameboy.game import draw
from rematch.worlds.gameboy.savestates import FOREIGN, unpack
from rematch.worlds.gameboy.world import HIDDEN

ALL = np.arange(2, dtype=np.int32)


def rom_of(world: Any) -> bytes:
    return bytes(world.shared.rom)


def test_a_stage_is_a_savestate_to_begin_from() -> None:
    """What the contract says of `next.stage`, in worlds with a savestate; the rest: test_conformance.py."""
    gameboy_worlds.need_pyboy()
    module = registry.find("gameboy")
    first = gameboy_worlds.world()
    follow(first, 20)
    stored = first.capture(0)

    def make(config: Any, games: int, first: int = 0, seed: int = 0) -> Any:
        made = module.make(config, games, first, seed)
        made.library.add(stored)
        return made

    trial = conformance.Trial(games=2, steps=4, bound=9, chance=False, fixed=HIDDEN, stage=(0.0, 0.0))
    test = WorldUnderTest(make, module.Config(cartridge="tiny", max_steps=5), trial)
    check_values(test)
    check_restart(test)
    assert test.skipped == []


def test_the_solution_is_rewarded_as_the_table_says() -> None:
    """Against the model of the cartridge: an independent game, read through the same addresses."""
    world, game = gameboy_worlds.world(), game_model.new_game(tiny().atlas, tiny().seed)
    title = world.title
    pay, milestones = title.rewards, {mark.name: mark for mark in title.milestones}
    stood: set[tuple[int, int, int]] = {(0, 0, 0)}
    reached: set[str] = set()
    highest, health, foe, most, blows = 0, 0.0, 0, 1, 0
    for moment, action in enumerate(tiny().solution):
        game.press(action)
        memory = dict.fromkeys(world.shared.reader.at, 0) | game.wram()
        place = ram_addresses.place(memory)
        new = {name for name, mark in milestones.items() if name not in reached and _is_set(mark, memory)}
        reached |= new
        stood = set() if new else stood  # beyond a milestone all places are new
        expected = pay.coordinate * (place not in stood)
        stood.add(place)
        kinds = {"badge": pay.badge, "end": pay.end}
        expected += sum(kinds.get(milestones[name].kind, pay.event) for name in new)
        members = ram_addresses.party(memory)
        level = sum(level for level, _, _ in members)
        share = sum(hp for _, hp, _ in members) / max(1, sum(most for _, _, most in members))
        gain = max(0, level - highest) if highest else 0
        expected += pay.level * gain + pay.heal * (max(0.0, share - health) if health and not gain else 0.0)
        highest, health = max(level, highest), share
        now = (
            ram_addresses.big_endian(memory, ram_addresses.ENEMY_HP)
            if memory[ram_addresses.IN_BATTLE] == 2
            else 0
        )
        most = now if now > foe else most
        expected += pay.blow * max(0, foe - now) / most if memory[ram_addresses.IN_BATTLE] == 2 else 0.0
        foe, blows = now, blows + (now < foe)
        view = press(world, action)
        assert view.reward[0, 0] == pytest.approx(expected, abs=1e-5), moment
        assert {name for _, name in world.events} == new, moment
    assert blows > 8
    assert reached == set(milestones) and view.ended[0] == DECIDED and view.outcome[0, 0] == 1
    assert view.length[0] == len(tiny().solution) and world.state["time"][0] == 0
    press(world, 0)
    assert world.events == []


def _is_set(mark: Any, memory: Any) -> bool:
    address, value, equal = mark.place
    result = memory.get(address, 0)
    return bool(result == value if equal else result & value)


def test_the_mask_shows_where_it_was_and_forgets_with_a_milestone_and_the_episode() -> None:
    world, beside = gameboy_worlds.world(max_steps=60), ((1, 0), (0, -1), (0, 1), (-1, 0))
    other = world.shared.reader.columns().index("fresh_down")
    stood: set[tuple[int, int, int]] = {(0, 0, 0)}
    maps: set[int] = set()
    for action in tiny().solution[:60]:
        view = press(world, action)
        ram = world.shared.pool.ram[0]
        memory = {address: int(ram[at]) for address, at in world.shared.reader.at.items()}
        position = ram_addresses.place(memory)
        stood, maps = (set() if world.events else stood) | {position}, maps | {position[0]}
        seen = view.final if view.ended[0] else view.fields
        if not view.ended[0]:
            window = seen["joypad"]["visited"][0, 0].reshape(48, 48)
            marked = (np.argwhere(window == 1) + position[1:] - 24).tolist()
            near = [[y, x] for number, y, x in stood if number == position[0]]  # its maps are small enough
            assert sorted(marked) == sorted(near)
            summary = seen["joypad"]["structured"][0, 0, other:][:4].tolist()
            assert summary == [float([position[1] + y, position[2] + x] not in near) for y, x in beside]
    assert len(maps) == 2 and view.ended[0] == CUT_OFF and view.outcome[0, 0] == 0
    assert view.final["joypad"]["visited"].sum() > 5 and view["joypad"]["visited"].sum() == 1


def test_screens_are_packed_as_they_are_seen() -> None:
    world = gameboy_worlds.world(2)
    for action in tiny().solution[:14]:
        press(world, action, 0)
    packed = world.packed(ALL)
    assert packed.shape == (2, 1440)
    seen = world.view["joypad"]["screen"].reshape(2, 72, 80)
    assert np.allclose(pyboy_emulator.unpack(packed) / 3, seen) and not np.array_equal(seen[0], seen[1])


# --- savestates -------------------------------------------------------------------------------------


def test_a_chain_of_savestates_replays_from_power_on_to_the_same_bytes() -> None:
    """The frontier: power-on, a first savestate, a second from it; then the log alone, on a bare emulator."""
    world = gameboy_worlds.world(2)
    follow(world, 35)
    first = unpack(world.capture(0).pack())
    assert first.milestones == ("DAWN", "ROUTE-1") and first.map == "ROUTE-1" and first.parent == ""
    world.next.stage[:, 0] = world.library.add(first)
    world.restart()
    assert world.milestones(0) == first.milestones and world.milestones(0, since=True) == ()
    assert world.state["time"].tolist() == [0, 0]
    follow(world, 60, start=35)
    assert {"RIVAL-18", "RIVAL-19"} <= set(world.milestones(0, since=True))
    second = world.capture(0)
    assert second.parent == first.sha256 and second.actions == list(tiny().solution[:95])
    bare = pyboy_emulator.acquire(rom_of(world))
    for action in second.actions:
        bare.press(action)
    assert hashlib.sha256(bare.save()).hexdigest() == second.sha256


def test_a_milestone_that_was_set_at_spawn_never_counts() -> None:
    world = gameboy_worlds.world()
    follow(world, 41)
    world.next.stage[:, 0] = world.library.add(world.capture(0))
    world.restart()
    assert press(world, 5).reward[0, 0] <= 0.01 and world.events == []


def test_unknown_stage_is_refused() -> None:
    world = gameboy_worlds.world()
    for wrong in (0.0, -2.0, 0.5, np.nan):
        world.next.stage[:, 0] = wrong
        with pytest.raises(ConfigError, match=r"start = .*expected -1 or the number of one of 0 savestates"):
            world.restart()


def test_states_of_others_come_in_through_a_process_of_their_own() -> None:
    world = gameboy_worlds.world()
    follow(world, 20)
    own = world.capture(0)
    adopted = world.import_state(own.emulator(), "friend.state")
    assert adopted.sha256 == own.sha256 and adopted.milestones == own.milestones and adopted.root == FOREIGN
    rng_key = rng.words(1, rng.ACT, world.library.size).astype(np.uint8).tobytes()
    for bad in (b"", own.emulator()[:5000], b"\x13" + rng_key):
        with pytest.raises(ConfigError, match=r"friend.state: (an empty file|written by PyBoy)") as caught:
            world.import_state(bad, "friend.state")
        assert "\n" not in str(caught.value)


def test_no_rows_are_no_trouble() -> None:
    """Staggered beginnings may have nobody in one of their groups."""
    gameboy_worlds.need_pyboy()
    world, none = gameboy_worlds.world(), np.zeros(0, np.int32)
    world.load(none, world.save(none))


def test_saved_games_need_their_cartridge_and_their_beginning() -> None:
    world, other = gameboy_worlds.world(), gameboy_worlds.world(cartridge_seed=1)
    follow(world, 10)
    state = world.save(ALL[:1])
    with pytest.raises(ConfigError, match="another cartridge or PyBoy"):
        other.load(ALL[:1], state)
    world.next.stage[:, 0] = world.library.add(world.capture(0))
    world.restart()
    state, other = world.save(ALL[:1]), gameboy_worlds.world()
    with pytest.raises(ConfigError, match="no state of this world"):
        other.load(ALL[:1], state)  # it began in a savestate that is not there
    other.library.restore(world.library.state())
    other.load(ALL[:1], state)
    assert np.array_equal(other.save(ALL[:1]), state)
    flipped = state.copy()
    flipped[0, -5000] ^= 1
    with pytest.raises(ConfigError, match="no state of this world"):
        other.load(ALL[:1], flipped)


# --- faults -----------------------------------------------------------------------------------------


def test_a_killed_worker_costs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Games whose worker dies between steps are played again, to the same bits."""
    worked, whole = gameboy_worlds.world(2, workers=1), gameboy_worlds.world(2)
    for moment, action in enumerate(tiny().solution[:16]):
        if moment == 12:
            child = worked.shared.pool.workers[0].child
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        press(worked, action, 0)
        press(whole, action, 0)
    assert np.array_equal(worked.save(ALL), whole.save(ALL))
    assert np.array_equal(worked.view["joypad"]["structured"], whole.view["joypad"]["structured"])
    assert worked.counters["games_replayed"] == 2 and worked.counters["savestates_quarantined"] == 0
    assert capfd.readouterr().err.count("was replaced; the run continues") == 1
    os.kill(worked.shared.pool.workers[0].child.pid, signal.SIGKILL)
    assert np.array_equal(worked.save(ALL), whole.save(ALL))


def test_a_savestate_that_crashes_the_emulator_goes_into_quarantine(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    world = gameboy_worlds.world(2)
    follow(world, 20)
    world.next.stage[0, 0] = world.library.add(world.capture(0))
    world.restart()
    before = world.view["joypad"]["screen"][0].copy()
    broken, pressing = world.shared.pool.emulators[0], pyboy_emulator.Emulator.press

    def fail(self: Any, action: int) -> None:
        if self is broken:
            raise RuntimeError("bad opcode")
        pressing(self, action)

    monkeypatch.setattr(pyboy_emulator.Emulator, "press", fail)
    view = press(world, 0)
    assert view.ended.tolist() == [CUT_OFF, RUNNING] and view.reward[0, 0] == 0
    assert np.array_equal(view.final["joypad"]["screen"][0], before)  # its last sight
    assert list(world.library.quarantine) == [world.library[0].sha256]
    assert not world.state["origin"][0].any() and world.counters["savestates_quarantined"] == 1
    assert press(world, 0).ended.tolist() == [RUNNING, RUNNING]
    output = capfd.readouterr().err
    assert output.count("Traceback") == 1 and "RuntimeError: bad opcode" in output
    assert "the run continues" in output


def test_number_of_processes_follows_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, expected in {1: 2, 2: 2, 6: 3, 16: 8, 64: 8}.items():
        monkeypatch.setattr(config_module, "processors", lambda count=count: count)
        assert config_module.Config(workers=-1).processes == expected
    assert [config_module.Config(workers=number).processes for number in (0, 1, 5)] == [0, 1, 5]


def test_parts_may_share_workers() -> None:
    split, whole = gameboy_worlds.world(3, workers=2), gameboy_worlds.world(3)
    for action in tiny().solution[:8]:
        for part in split.parts(3):
            press(part, action)
        press(whole, action)
    assert np.array_equal(split.view["joypad"]["screen"], whole.view["joypad"]["screen"])


def test_pictures_show_the_game() -> None:
    pytest.importorskip("PIL")
    world, trail = gameboy_worlds.world(), []
    follow(world, 12)
    picture = draw(world, 0, trail)
    assert picture.size == (480, 480) and len(trail) == 1
    pixels = np.asarray(picture)[48::3, ::3]
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) == 4


def test_the_page_shows_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of docs/reference/gameboy.md, as it stands there."""
    gameboy_worlds.need_pyboy()
    page = Path(__file__).parents[3] / "docs/reference/gameboy.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    names: dict[str, Any] = {}
    exec(compile(example, page.name, "exec"), names)
    assert capsys.readouterr().out.startswith("0 DAWN DAWN early ")
    assert names["world"].milestones(1) == ("DAWN",) and names["number"] == 0


def test_who_gets_nowhere_is_cut_off() -> None:
    """Ten idle actions end an episode; a milestone begins the count anew."""
    world = gameboy_worlds.world(max_steps=60, idle_steps=10)
    counted, ends = 0, []
    for action in (*tiny().solution[:30], *[5] * 12):
        view = press(world, action)
        counted = 0 if world.events else counted + 1
        assert (view.ended[0] == CUT_OFF) == (counted == 10)
        if view.ended[0]:
            ends, counted = [*ends, int(view.length[0])], 0
    assert ends and max(ends) > 10, "the first town counts"


def test_an_episode_may_have_a_patience_of_its_own() -> None:
    """The second stage number; 0 is that of the settings. A saved game keeps it."""
    world = gameboy_worlds.world(3, idle_steps=10)
    world.next.stage[:, 1] = 0, 6, 14
    world.restart()
    stored = world.save(np.arange(3, dtype=np.int32))
    world.next.stage[:, 1] = 3  # of the episodes after these
    for again in range(2):
        ends: dict[int, int] = {}
        for step in range(1, 15):
            for row in np.flatnonzero(press(world, 5).ended).tolist():
                ends.setdefault(row, step)
        assert ends == {0: 10, 1: 6, 2: 14}, again
        world.load(np.arange(3, dtype=np.int32), stored)


def test_evaluations_of_one_and_the_same_game_are_refused() -> None:
    changes = {"dqn.evaluation_epsilon": 0.0, "world.workers": 0}
    with pytest.raises(ConfigError, match=r"dqn.evaluation_epsilon = 0: neither the world nor the player"):
        api.configure("tiny", changes=changes)
    assert api.configure("tiny", changes=changes | {"evaluation.games": 1}).evaluation.games == 1
