"""Games that can be kept: saved, loaded, captured as savestates, begun from them, brought back after a fault.

A game is its beginning (power-on, or a savestate of the library) and the inputs since: whatever happens to an
emulator, its games can be played again to the same bytes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Ints
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING
from rematch.worlds.numpy_world import MAGIC, PlainWorld, Rows, States

from . import titles
from .cartridge.constants import ACTIONS
from .emulator import emulator_pool as banks
from .emulator import pyboy_emulator
from .ram_reader import Facts, Reader
from .savestates import FOREIGN, POWER_ON, Bundle, Library, runs, seal

FROM_POWER_ON = -1.0  # the stage number `start`
PROBE = (5, 5, 0)  # actions that a state of others has to survive: B, B, down


Strength = tuple[float, float]  # the party's levels and HP
Wants = Callable[[int, tuple[str, ...], bool, str, Strength], bool]


@dataclass
class Hall:
    """What all parts of a world share."""

    title: titles.Title
    reader: Reader
    bank: banks.Bank
    power_on: bytes
    library: Library
    rom: bytes
    counters: dict[str, int]
    shown: set[str] = field(default_factory=set)  # faults that were told
    wants: Wants | None = None  # see KeptGames.watch
    waypoints: int = 0  # the same


def furnish(config: Any, games: int) -> Hall:
    pyboy_emulator.library()
    rom, title = titles.find(config.rom, config.cartridge, config.cartridge_seed)
    try:
        power_on = pyboy_emulator.power_on(rom)
    except Exception as error:  # PyBoy's own, and what it trips over in headers that it does not know
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"rom = {config.rom!r}: PyBoy cannot play it: {what}") from None
    plan = banks.Plan(rom, title.regions, games)
    away = config.workers and games > 1  # one game gains nothing by it; settings are judged by such worlds
    bank: banks.Bank
    bank = banks.Remote(plan, config.workers, config.patience) if away else banks.Local(plan)
    library = Library(hashlib.sha1(rom).hexdigest(), pyboy_emulator.installed(), len(power_on))
    counted = dict.fromkeys(("emulator_faults", "games_replayed", "savestates_quarantined"), 0)
    return Hall(title, Reader(title), bank, power_on, library, rom, counted)


class KeptGames(PlainWorld):
    """The part of the world that knows about states; `row` is this part's first row of the bank."""

    hall: Hall
    row: int
    fresh: NDArray[np.bool_]  # [N, milestones] reached by the step just made
    stepped: NDArray[np.bool_]  # [N] who came to a new place by the step just made
    faced: NDArray[np.bool_]  # [N] whose rival sent another creature or lost a quarter of one's HP
    quarters: NDArray[Any]  # [N] of its creature's HP that the rival has left
    page_of: Ints  # [N] the map whose places are laid out; -1: none
    captured: dict[int, Bundle]  # by row: what `watch` asked for, of the step just made

    @property
    def library(self) -> Library:
        """The savestates that games may begin from."""
        return self.hall.library

    @property
    def title(self) -> titles.Title:
        return self.hall.title

    @cached_property
    def tag(self) -> int:
        """Of cartridge and emulator: their states are not each other's."""
        text = f"{self.library.rom} {self.library.pyboy}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def _facts(self, rows: Rows | None = None) -> Facts:
        ram = self.hall.bank.ram[self.row : self.row + self.games]
        return self.hall.reader.facts(ram if rows is None else ram[rows])

    def milestones(self, row: int, since: bool = False) -> tuple[str, ...]:
        """Those set in the running game, or only those set since it was spawned."""
        state = self.state[row]
        marks = state["reached"] & ~state["spawned"] if since else state["reached"]
        return tuple(name for name, there in zip(self.hall.reader.names, marks.tolist()) if there)

    def watch(self, wants: Wants, waypoints: int = 0) -> None:
        """From now on `captured` holds games that reach a milestone, before an ended one begins anew.

        wants(game, milestones, whether the game is decided, "", strength) -> capture it? Each part asks in
        its own thread. With `waypoints` it is also asked where
        somebody comes to a new place outside of a match, with the square of so many steps a side that it lies
        in as the fourth argument; and in a match with a rival, with each quarter of its creatures' HP. Who is
        captured there has come on: he is not idle.
        """
        self.hall.wants, self.hall.waypoints = wants, waypoints

    def _capture_wanted(self, facts: Facts, over: NDArray[np.bool_], alive: NDArray[np.bool_]) -> None:
        self.captured.clear()
        if self.hall.wants is None:
            return
        side, reached = self.hall.waypoints, set(np.flatnonzero(self.fresh.any(1)).tolist())
        there = np.where(facts.battle == 0, self.stepped, self.faced) & ~over & alive
        for row in sorted(reached.union(np.flatnonzero(there).tolist() if side else ())):
            place = ""
            if row not in reached:
                place = f"{self.title.map_name(int(facts.map[row]))} "
                where = f"{int(facts.y[row]) // side} {int(facts.x[row]) // side}"
                foe = f"against {int(facts.species[row])}, {int(self.quarters[row])} quarters"
                place += foe if facts.battle[row] else where
            strength = float(facts.level[row].sum()), float(facts.hp[row].sum())
            if self.hall.wants(self.first + row, self.milestones(row), bool(over[row]), place, strength):
                self.captured[row] = replace(self.capture(row), place=place)
                self.state["last"][row] = self.state["time"][row]

    # --- beginnings and faults ------------------------------------------------------------------------

    def _begin(self, row: int) -> None:
        """Load the savestate that the stage names; from power-on where it is none, or one in quarantine."""
        start, hall = float(self.state["stage"][row, 0]), self.hall
        if not (start == FROM_POWER_ON or (0 <= start < len(hall.library) and start == int(start))):
            known = len(hall.library)
            raise ConfigError(f"start = {start:g}: expected -1 or the number of a savestate, of {known}")
        if start >= 0:
            bundle = hall.library[int(start)]
            if bundle.sha256 not in hall.library.quarantine:
                self.state["origin"][row] = np.frombuffer(bytes.fromhex(bundle.sha256), np.uint8)
                fault = hall.bank.load(self.row + row, hall.library.emulator(bundle))
                if fault is None:
                    return
                self._tell(fault)
                self._quarantine(row)
                self.state["origin"][row] = 0
        fault = hall.bank.load(self.row + row, hall.power_on)
        if fault is not None:
            raise ConfigError(f"{self.spec.world}: a fresh emulator does not start: {fault.line}")

    def _behind(self, row: int) -> NDArray[np.bool_]:
        """[milestones] of the savestate that the game began from. A map that was entered is no bit of RAM."""
        bundle = self._origin(row)
        behind = frozenset(() if bundle is None else bundle.milestones)
        return np.array([name in behind for name in self.hall.reader.names], bool)

    def _beginning(self, row: int) -> bytes:
        """The emulator's bytes at the start of the running episode."""
        bundle = self._origin(row)
        return self.hall.power_on if bundle is None else self.hall.library.emulator(bundle)

    def _origin(self, row: int) -> Bundle | None:
        sha256 = self.state["origin"][row].tobytes()
        return self.hall.library.find(sha256.hex()) if any(sha256) else None

    def _replayed(self, fault: banks.Fault) -> bool:
        """Bring a game back that went with its worker: its beginning and its inputs. False if it cannot."""
        row = fault.row - self.row
        why = self.hall.bank.load(fault.row, self._beginning(row))
        for action in self.state["inputs"][row, : self.state["time"][row]].tolist():
            if why is not None:
                break
            why = next(iter(self.hall.bank.step(fault.row, [action])), None)
        if why is not None:
            self._tell(why)
            return False
        self.hall.counters["games_replayed"] += 1
        return True

    def _quarantine(self, row: int) -> None:
        origin = self.state["origin"][row].tobytes()
        if any(origin):
            self.hall.library.quarantine[origin.hex()] = "its game crashed the emulator"
            self.hall.counters["savestates_quarantined"] = len(self.hall.library.quarantine)

    def _tell(self, fault: banks.Fault) -> None:
        """Each kind of fault once, with its traceback; the rest are counted."""
        self.hall.counters["emulator_faults"] += 1
        if fault.line not in self.hall.shown:
            self.hall.shown.add(fault.line)
            game = self.first + fault.row - self.row
            said = f"{self.spec.world}: the emulator of game {game} was replaced after this; the run goes on"
            print(f"{fault.trace.rstrip()}\n{said}", file=sys.stderr, flush=True)

    # --- states ---------------------------------------------------------------------------------------

    def screen(self, row: int) -> Bytes:
        """The whole screen, [144, 160] grey; for films."""
        try:
            return self.hall.bank.screen(self.row + row)
        except banks.Lost as gone:
            self._again(gone)
            return self.hall.bank.screen(self.row + row)

    def capture(self, row: int, memory: bytes = b"") -> Bundle:
        """The running game as a savestate that others can begin from."""
        parent, reached = self._origin(row), self.milestones(row)
        before = [] if parent is None else parent.actions
        inputs = before + self.state["inputs"][row, : self.state["time"][row]].tolist()
        return Bundle(
            **seal(self._emulator(row)), rom=self.library.rom, pyboy=self.library.pyboy, milestones=reached,
            map=self.title.map_name(int(self._facts(np.array([row])).map[0])),
            band=self.title.band(frozenset(reached)), parent=POWER_ON if parent is None else parent.sha256,
            root=POWER_ON if parent is None else parent.root, inputs=runs(inputs), memory=memory,
        )  # fmt: skip

    def adopt(self, data: bytes, name: str = "state") -> Bundle:
        """A `.state` file of others: tried in a process of its own, because it may crash the emulator."""
        plan = banks.Plan(self.hall.rom, self.title.regions, 1)
        bank = banks.Remote(plan, 1, self.config.patience)
        try:
            fault = bank.load(0, data)
            for action in PROBE:  # it has to run, too
                fault = fault or next(iter(bank.step(0, [action])), None)
            fault = fault or bank.load(0, data)
            if fault is not None:
                raise ConfigError(f"{name}: no state of this cartridge: the emulator failed: {fault.line}")
            emulator, facts = bank.save(0), self.hall.reader.facts(bank.ram)
        except banks.Lost as gone:
            raise ConfigError(f"{name}: no state of this cartridge: {gone.fault.line}") from None
        finally:
            bank.close()
        reached = tuple(mark for mark, there in zip(self.hall.reader.names, facts.reached[0]) if there)
        return Bundle(
            **seal(emulator), rom=self.library.rom, pyboy=self.library.pyboy, milestones=reached,
            parent=FOREIGN, root=FOREIGN, map=self.title.map_name(int(facts.map[0])),
            band=self.title.band(frozenset(reached)),
        )  # fmt: skip

    def _emulator(self, row: int) -> bytes:
        try:
            return self.hall.bank.save(self.row + row)
        except banks.Lost as gone:
            self._again(gone)
            return self.hall.bank.save(self.row + row)

    def _again(self, gone: banks.Lost) -> None:
        self._tell(gone.fault)
        if not self._replayed(gone.fault):
            raise ConfigError(f"{self.spec.world}: a game cannot be brought back: {gone.fault.line}")

    def save(self, rows: Ints) -> Bytes:
        where = np.asarray(rows, np.intp)
        heads = self.state[where]
        size = self.library.size
        out = np.zeros((len(where), heads.dtype.itemsize + size), np.uint8)
        for place, row in enumerate(where.tolist()):
            emulator = self._emulator(row)
            heads["digest"][place] = np.frombuffer(hashlib.sha256(emulator).digest(), np.uint8)
            out[place, -size:] = np.frombuffer(emulator, np.uint8)
        out[:, :-size] = self._bytes(heads)
        return out

    def load(self, rows: Ints, states: Bytes) -> None:
        where, size = np.asarray(rows, np.intp), self.library.size
        width = self.state.dtype.itemsize + size
        if states.dtype != np.uint8 or states.shape != (len(where), width):
            found = f"found {states.dtype} {list(states.shape)}"
            raise ConfigError(f"{self.spec.world}: expected states uint8 [{len(where)}, {width}], {found}")
        heads = np.ascontiguousarray(states[:, :-size]).view(self.state.dtype).reshape(len(where))
        bodies = [states[place, -size:].tobytes() for place in range(len(where))]
        fine = (heads["magic"] == MAGIC) & self.sane(heads)
        for place, body in enumerate(bodies):
            fine[place] &= hashlib.sha256(body).digest() == heads["digest"][place].tobytes()
        if not fine.all():
            bad = int(np.flatnonzero(~fine)[0])
            other = heads["magic"][bad] == MAGIC and heads["tag"][bad] != self.tag
            why = ": it is of another cartridge or PyBoy" if other else ""
            raise ConfigError(f"{self.spec.world}: state {bad} is no state of this world{why}")
        heads = heads.copy()
        heads["digest"] = 0
        self.state[where] = heads
        for row, body in zip(where.tolist(), bodies):
            fault = self.hall.bank.load(self.row + row, body)
            if fault is not None:
                raise ConfigError(f"{self.spec.world}: a checked state does not load: {fault.line}")
        self.view.reward[where], self.view.ended[where], self.view.outcome[where] = 0, RUNNING, 0
        self.view.length[where] = heads["time"]
        self.fresh[where], self.page_of[where] = False, -1
        self.show()

    def sane(self, states: States) -> NDArray[np.bool_]:
        known = {bytes(32), *(bytes.fromhex(bundle.sha256) for bundle in self.library)}
        fine = (states["tag"] == self.tag) & (states["time"] >= 0) & (states["time"] < self.config.max_steps)
        fine &= (states["stood"] >= 1) & (states["stood"] <= states["time"] + 1) & (states["slot"][:, 0] >= 0)
        fine &= (states["last"] >= 0) & (states["last"] <= states["time"])
        fine &= (states["inputs"] < len(ACTIONS)).all(1) & np.isfinite(states["stage"]).all(1)
        for name in ("highest", "health", "healed", "foe", "foe_most", "struck"):
            fine &= np.isfinite(states[name])
        # A game that began in a savestate needs it: without, nobody could say how it got where it is.
        begun = np.array([one.tobytes() in known for one in states["origin"]], bool)  # of no states: none
        return np.asarray(fine & begun)

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """The true states: what is hidden is the cartridge's own and cannot be redrawn."""
        return self.save(rows)
