"""Explorers on the tiny cartridge: what they find, where they begin, exact resume, what each setting does."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gameboy_worlds, savestate_runs, single_seat_worlds

from rematch.agents.learners import dqn
from rematch.core import config as settings
from rematch.core.system.interrupts import StopRequested
from rematch.curriculum.demonstrations import Demonstrations
from rematch.curriculum.random_explorers import HP_MARGIN, Cell, Explorers, Search, is_stronger
from rematch.curriculum.savestate_archive import Archive
from rematch.curriculum.savestates import Savestates
from rematch.curriculum.start_states import POWER_ON
from rematch.rehearsal.check import component_features
from rematch.rehearsal.compare import differences
from rematch.rehearsal.shrink import shrink
from rematch.training.trainer import Trainer
from rematch.worlds.gameboy.bots import REPEAT, wander
from rematch.worlds.gameboy.cartridge.constants import ACTIONS
from rematch.worlds.gameboy.emulator import pyboy_emulator
from rematch.worlds.gameboy.savestates import unpack

gameboy_worlds.need_pyboy()
SIX = {"explorers__games": 6, "explorers__steps": 40, "explorers__patience": 24, "world__screen": False,
       "world__max_steps": 300, "seed": 1}  # fmt: skip


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dqn, "SIZES", single_seat_worlds.SIZES)


def make_search(**changes: Any) -> tuple[Trainer, Search]:
    trainer = savestate_runs.trainer(savestate_runs.config(**SIX | changes))
    explorers = trainer.setup.get(Explorers)
    assert explorers is not None and explorers.search.archive is archive_of(trainer)
    return trainer, explorers.search


def archive_of(trainer: Trainer) -> Archive:
    savestates = trainer.setup.get(Savestates)
    assert savestates is not None
    return savestates.archive


def state_of(search: Search) -> list[Any]:
    """All that they know, as plain values; bundles by their digest."""
    tree = search.state_dict()
    held = [(bundle.sha256, bundle.inputs, bundle.place) for bundle in search.world.library]
    plain = [tree[name].tolist() for name in ("numbers", "strength", "tried")]
    return [tree["root"], tree["names"], *plain, held, search.archive.explorer_steps, search.archive.frontier]


# --- finding ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def search_run() -> tuple[Trainer, Search, list[list[str]], list[Any]]:
    """Sought until ROUTE-1: the lines of each iteration, and what was known after the fourth."""
    sizes, dqn.SIZES = dqn.SIZES, single_seat_worlds.SIZES
    try:
        session, search = make_search()
    finally:
        dqn.SIZES = sizes
    lines: list[list[str]] = []
    early: list[Any] = []
    while len(lines) < 24 and not (lines and "ROUTE-1" in "".join(lines[-1])):
        lines.append(search.search(len(lines), 100 * len(lines)))
        early = state_of(search) if len(lines) == 4 else early
    return session, search, lines, early


FoundStates = tuple[Trainer, Search, list[list[str]], list[Any]]


def test_explorers_find_the_next_milestone_and_its_actions_replay(search_run: FoundStates) -> None:
    session, _, lines, _ = search_run
    archive: Any = archive_of(session)
    assert [line for some in lines for line in some] == [
        "Milestone DAWN: first reached at step 0 from power-on",
        f"Milestone ROUTE-1: first reached at step {100 * (len(lines) - 1):,} from DAWN_0.state",
    ]
    frontier = archive.frontier
    assert frontier.milestones == ("DAWN", "ROUTE-1") and not frontier.finished
    bare = pyboy_emulator.acquire(gameboy_worlds.tiny().rom)
    bare.load(pyboy_emulator.power_on(gameboy_worlds.tiny().rom))
    for action in frontier.actions:
        bare.press(action)
    assert hashlib.sha256(bare.save()).hexdigest() == frontier.sha256
    assert [(start.milestone, start.parent, start.game) for start in archive.starts] == [
        ("DAWN", POWER_ON, -1), ("ROUTE-1", 0, -1)]
    assert frontier.actions[: len(archive.world.library[0].actions)] == archive.world.library[0].actions
    assert archive.explorer_steps == len(lines) * 6 * 40, "told apart from the steps of those that learn"
    dawn, route = (archive.first_steps[name] for name in ("DAWN", "ROUTE-1"))
    assert "cold" not in dawn and "cold" not in route, "nobody learnt it"
    assert (dawn["scouted"], route["scouted"]) == (6 * 40, archive.explorer_steps)


def test_places_are_what_their_names_say(search_run: FoundStates) -> None:
    """Squares of two steps outside of matches; each begun from or come by, and reached from the root."""
    _, search, _, _ = search_run
    root = search.world.library.find(search.root)
    assert len(search.cells) > 5 and root.milestones == ("DAWN",)
    world = gameboy_worlds.world(1)
    tried = 0.0
    for name, place in search.cells.items():
        bundle = search.world.library[place.number]
        tried += place.tried
        if not name:
            assert bundle is root
            continue
        assert bundle.place == name and bundle.milestones == ("DAWN",)
        assert bundle.actions[: len(root.actions)] == root.actions
        world.next.stage[:, 0] = world.library.add(bundle)
        world.restart()
        facts = world._facts()
        assert name == f"{bundle.map} {int(facts.y[0]) // 2} {int(facts.x[0]) // 2}"
        strength = (float(facts.level[0].sum()), float(facts.hp[0].sum()))
        assert place.strength == strength and facts.battle[0] == 0
    assert tried > 6


def test_a_walk_is_captured_on_squares_and_in_matches() -> None:
    world = gameboy_worlds.world(2)
    asked: list[str] = []
    world.set_capture_rule(lambda game, names, over, place, strength: asked.append(place) or place != "", 3)
    seen: dict[str, Any] = {}
    for action in gameboy_worlds.tiny().solution[:60]:
        gameboy_worlds.press(world, action)
        facts = world._facts()
        for row, bundle in world.captured.items():
            square = f"{bundle.map} {int(facts.y[row]) // 3} {int(facts.x[row]) // 3}"
            if facts.battle[row]:
                foe = int(facts.species[row])
                square = f"{bundle.map} against {foe}, {int(world.quarters[row])} quarters"
            assert bundle.place == square and not world.new_milestones[row].any()
            assert world.state["last_progress"][row] == world.state["time"][row], "progress: not idle"
            seen[bundle.place] = bundle
    assert len(seen) > 3 and "" in asked and any("quarters" in place for place in seen)
    last = unpack(bundle.pack())
    assert last == bundle and last.place
    world.next.stage[:, 0] = world.library.add(last)
    world.restart()
    assert world.milestones(0) == last.milestones and not world.milestones(0, since=True)


# --- the same again -----------------------------------------------------------------------------------


def test_a_restored_session_goes_on_alike_whatever_its_threads(search_run: FoundStates) -> None:
    """Two iterations, a restore into a session with two threads, two more."""
    first, search = make_search()
    for iteration in range(2):
        search.search(iteration, 100 * iteration)
    other, again = make_search(threads=2)
    archive_of(other).load_state_dict(archive_of(first).state_dict())
    again.load_state_dict(search.state_dict())
    assert state_of(again) == state_of(search)
    for iteration in (2, 3):
        again.search(iteration, 100 * iteration)
    assert state_of(again) == search_run[3]


def test_a_save_writes_only_what_is_new() -> None:
    _, search = make_search(explorers__games=3, explorers__steps=30)
    search.search(0, 0)
    search.search(1, 100)
    before = search.state_dict()["chunks"]
    search.search(2, 200)
    after = search.state_dict()["chunks"]
    assert 0 < len(before) < len(after) == len(search.world.library)
    assert all(old is new for old, new in zip(before, after)), "hashed and written once"
    add(search.archive, bundles(2)[1])
    search._follow_frontier()
    (only,) = search.state_dict()["chunks"]
    assert only.name not in {chunk.name for chunk in after}


# --- who is kept --------------------------------------------------------------------------------------

STRENGTHS = st.tuples(st.integers(0, 3).map(float), st.integers(0, 40).map(float))


@given(STRENGTHS, STRENGTHS)
def test_levels_come_first_and_then_clearly_more_hp(one: Any, other: Any) -> None:
    slow = one[0] > other[0] if one[0] != other[0] else one[1] - other[1] >= HP_MARGIN
    assert is_stronger(one, other) == slow and not (is_stronger(one, other) and is_stronger(other, one))


class Burst:
    """In the place of a rollout: what these games captured, asked for as threads would."""

    def __init__(self, search: Search, moments: list[tuple[int, str, tuple[float, float]]]) -> None:
        self.search, self.moments, self.steps, self.games = search, moments, 40, 6
        self.captured: list[tuple[int, int, Any]] = []
        self.ended = np.zeros((len(moments), 6), np.uint8)
        self.names: dict[str, tuple[float, float]] = {}

    def collect(self, iteration: int) -> Burst:
        stored = self.search.world.capture(0)
        for t, (game, place, strength) in enumerate(self.moments):
            if self.search.should_capture(game, ("DAWN",), False, place, strength):
                sha256 = hashlib.sha256(f"{iteration} {t}".encode()).hexdigest()
                self.names[sha256] = strength
                self.captured.append((t, game, replace(stored, place=place, sha256=sha256)))
        return self


def test_cell_keeps_its_strongest_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a burst, by one scout or by several, and later; who is begun from is who is believed there."""
    _, search = make_search()
    library = search.world.library
    monkeypatch.setattr(library, "add", lambda bundle: library.bundles.append(bundle) or len(library) - 1)
    names: dict[str, tuple[float, float]] = {}

    def burst(iteration: int, *moments: tuple[int, str, tuple[float, float]]) -> int:
        search.collector = made = Burst(search, list(moments))  # type: ignore[assignment]
        monkeypatch.setattr(search, "_follow_frontier", lambda: None)
        monkeypatch.setattr(search.world, "restart", lambda: None)
        search.search(iteration, 0)
        names.update(made.names)
        return len(made.captured)

    def stored(name: str) -> tuple[float, float]:
        place = search.cells[name]
        assert names[library[place.number].sha256] == place.strength, "the state is of that strength"
        return place.strength

    assert burst(0, (0, "a", (5.0, 20.0)), (0, "a", (5.0, 21.0)), (0, "a", (5.0, 30.0))) == 2
    assert stored("a") == (5.0, 30.0)
    burst(1, (1, "a", (5.0, 37.0)), (2, "a", (4.0, 99.0)), (3, "b", (5.0, 1.0)))
    assert stored("a") == (5.0, 30.0) and stored("b") == (5.0, 1.0)
    assert search.cells["a"].tried >= 0.2, "two came by"
    burst(2, (1, "a", (6.0, 1.0)), (2, "a", (5.0, 38.0)), (4, "a", (6.0, 30.0)))
    assert stored("a") == (6.0, 30.0)
    burst(3, (0, "b", (5.0, 10.0)), (5, "b", (5.0, 60.0)))
    assert stored("b") == (5.0, 60.0)


# --- the frontier -------------------------------------------------------------------------------------


def bundles(count: int) -> list[Any]:
    """The first captures of the solution."""
    world, out = gameboy_worlds.world(1), []
    world.set_capture_rule(lambda *asked: True)
    for action in gameboy_worlds.tiny().solution:
        gameboy_worlds.press(world, action)
        out += list(world.captured.values())
        if len(out) == count:
            break
    return out


def add(archive: Any, bundle: Any, over: bool = False) -> None:
    archive.add(bundle, over, {"milestone": bundle.milestones[-1], "step": 7, "game": 0, "parent": POWER_ON})


def test_explorers_follow_a_frontier_of_the_learner_and_stop_at_the_end() -> None:
    session, search = make_search(explorers__games=2, explorers__steps=4)
    archive: Any = archive_of(session)
    dawn, route, opponent = bundles(3)
    search.cells["old"] = Cell(POWER_ON, (1.0, 1.0))
    add(archive, dawn)
    add(archive, route)
    assert search.search(0, 80) == []
    assert search.root == route.sha256 and "old" not in search.cells
    assert search.world.library[search.cells[""].number].sha256 == route.sha256
    assert all(bundle.actions[: len(route.actions)] == route.actions for bundle in search.world.library)
    before = state_of(search)
    assert before[-2] == archive.explorer_steps == 8
    add(archive, opponent, over=True)
    assert archive.frontier.finished and search.search(1, 160) == [] and archive.explorer_steps == 8


def test_a_frontier_in_quarantine_does_not_end_the_run() -> None:
    """Scouts then begin at power-on, and find what is known: nothing new."""
    session, search = make_search(explorers__steps=60, explorers__patience=60)
    archive: Any = archive_of(session)
    dawn, route = bundles(2)
    add(archive, dawn)
    add(archive, route)
    search.world.library.quarantine[route.sha256] = "crashes"
    assert search.search(0, 80) == [] and archive.frontier.sha256 == route.sha256 and len(archive.starts) == 2


# --- wander -------------------------------------------------------------------------------------------


def test_who_wanders_often_presses_the_same_again() -> None:
    world = gameboy_worlds.world(1)
    role = world.spec.role_of(0)
    obs = np.zeros((20_000, role.size), np.float32)
    seat: Any = type("Seat", (), {"role": role, "obs": obs})()
    uniform = (np.arange(20_000) + 0.5) / 20_000
    any_first = np.bincount(wander(seat, uniform), minlength=7) / 20_000
    assert any_first.min() > 0, "nothing was pressed yet"
    obs[:, role.columns.index(f"structured.action_1_ago_{ACTIONS[3]}")] = 1
    shares = np.bincount(wander(seat, uniform), minlength=7) / 20_000
    expected = np.full(7, (1 - REPEAT) / 7) + REPEAT * (np.arange(7) == 3)
    assert shares == pytest.approx(expected, abs=1e-3)


# --- settings, and a whole run ------------------------------------------------------------------------


@pytest.mark.slow
def test_every_setting_of_theirs_changes_what_they_know() -> None:
    def after(**changes: Any) -> list[Any]:
        _, search = make_search(**{"explorers__games": 3, "explorers__steps": 30} | changes)
        for iteration in range(2):
            search.search(iteration, 0)
        return state_of(search)

    base = after()
    everywhere = savestate_runs.config(savestates__mode="all")
    for key, value in {"games": 4, "steps": 31, "patience": 8, "cell_size": 1}.items():
        assert after(**{f"explorers__{key}": value}) != base, key
        assert "savestates.mode" in settings.has_effect(everywhere, f"explorers.{key}")
    assert "explorers.games" in settings.has_effect(savestate_runs.config(), "explorers.cell_size")


def test_check_uses_few_explorers_for_a_short_time() -> None:
    made = shrink(savestate_runs.config(explorers__games=64, explorers__steps=500, explorers__patience=400))
    c = made.explorers
    assert c.games == 2 and c.steps <= 32 and c.patience <= 32
    assert shrink(savestate_runs.config()).explorers.games == 0


@pytest.mark.slow
def test_run_with_explorers_is_equal_after_a_stop_and_with_more_threads(tmp_path: Path) -> None:
    """Moves are the learner's own; scouts find the way, and games are led along it.

    Every byte, with as many threads: the killed runs of test_savestates.py.
    """
    made = savestate_runs.config(**savestate_runs.SCOUTED)
    twin = savestate_runs.go_on(tmp_path / "twin", made, astray=None)
    two = settings.replace(made, {"threads": 2})
    stopped = savestate_runs.go_on(tmp_path / "run", two, stop=11, astray=None).trainer
    demonstrations = stopped.setup.get(Demonstrations)
    assert demonstrations is not None
    forced = demonstrations.forced
    assert (forced.cursor < forced.until).any(), "in the middle of being led"
    savestate_runs.go_on(tmp_path / "run", astray=None)
    unlike = [name for name in differences(tmp_path / "twin", tmp_path / "run") if "manifest" not in name]
    assert unlike == ["config.yaml"]
    archive, demonstrations = archive_of(twin.trainer), twin.trainer.setup.get(Demonstrations)
    assert demonstrations is not None and demonstrations.forced_steps > 10
    assert archive.explorer_steps == 13 * 3 * 30
    rows = json.loads((tmp_path / "twin" / "savestates" / "index.json").read_text())
    assert any(row["game"] == -1 for row in rows[1:]) and all((tmp_path / "twin" / "savestates" / row["file"])
                                                              .exists() for row in rows[1:])  # fmt: skip
    fired = {feature.name: feature.proof() for feature in component_features(made, twin)}
    assert all(fired[name] for name in ("savestates", "explorers", "demonstrations"))
    times = json.loads((tmp_path / "twin" / "milestones.json").read_text())["milestones"]
    assert times["DAWN"]["scouted"] == archive.first_steps["DAWN"]["scouted"] > 0
    assert twin.rows[-1]["rollout/scouted"] == archive.explorer_steps, "the log has all steps"
    assert len(rows) == 1 + len(archive.starts) == 1 + twin.rows[-1]["rollout/savestates"]


def test_explorers_continue_through_a_long_introduction(monkeypatch: pytest.MonkeyPatch) -> None:
    """One button for 5 iterations finds no cell. The games do not restart, and resume to the same bits."""
    _, search = make_search(explorers__steps=10, explorers__patience=4)
    monkeypatch.setattr(search, "should_capture", lambda *_: False)
    search.world.set_capture_rule(search.should_capture, 2)
    lengths = []
    for iteration in range(5):
        assert search.search(iteration, 0) == []
        lengths.append(search.world.view.length.max())
        if iteration == 2:
            tree = search.state_dict()
            middle = search.world.save(np.arange(6, dtype=np.int32))
    assert lengths[0] < 10 and lengths[1:] == [10, 20, 30, 40] and search.empty_iterations == 5
    end = search.world.save(np.arange(6, dtype=np.int32))
    _, other = make_search(explorers__steps=10, explorers__patience=4)
    other.world.set_capture_rule(search.should_capture, 2)
    other.load_state_dict(tree)
    assert np.array_equal(other.world.save(np.arange(6, dtype=np.int32)), middle)
    for iteration in (3, 4):
        other.search(iteration, 0)
    assert np.array_equal(other.world.save(np.arange(6, dtype=np.int32)), end)


def test_explorers_restart_once_a_cell_is_known() -> None:
    _, search = make_search(explorers__steps=40)
    for iteration in range(3):
        search.search(iteration, 0)
    assert search.empty_iterations == 0 and len(search.state_dict()["running"]) == 0


# --- stopping -----------------------------------------------------------------------------------------


def test_stop_request_ends_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, search = make_search()
    steps, step = [], type(search.world).step

    def counted(world: Any, actions: Any) -> Any:
        steps.append(1)
        if len(steps) == 5:
            trainer.setup.stop.reason = "SIGTERM"  # requested long ago
        return step(world, actions)

    monkeypatch.setattr(type(search.world), "step", counted)
    with pytest.raises(StopRequested):
        search.search(0, 0)
    assert len(steps) == 5
