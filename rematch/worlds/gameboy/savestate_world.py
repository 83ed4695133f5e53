"""The part of the world that handles states: save, load, capture, start from savestates, recover from faults.

A game is its start (power-on, or a savestate of the library) and the inputs since. So a game whose emulator
fails can be replayed to the same bytes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Ints
from rematch.core.errors import ConfigError
from rematch.core.world import RUNNING
from rematch.worlds.numpy_world import MAGIC, NumpyWorld, Rows, States

from . import titles
from .cartridge.constants import ACTIONS
from .emulator import emulator_pool, hang_watch, pyboy_emulator
from .ram_reader import Facts, Reader
from .savestates import POWER_ON, Bundle, Library, compress, run_length_encode

FROM_POWER_ON = -1.0  # value of the stage column `start`

Strength = tuple[float, float]  # the party's levels and HP
CaptureRule = Callable[[int, tuple[str, ...], bool, str, Strength], bool]


@dataclass
class SharedEmulators:
    """The emulators, the savestate library and the counters that all parts of a world share."""

    title: titles.Title
    reader: Reader
    pool: emulator_pool.EmulatorPool
    power_on: bytes
    library: Library
    rom: bytes
    counters: dict[str, int]
    printed: set[str] = field(default_factory=set)  # faults that were printed
    capture_rule: CaptureRule | None = None  # see SavestateGames.set_capture_rule
    cell_size: int = 0  # see there


def build_shared(config: Any, games: int) -> SharedEmulators:
    pyboy_emulator.load_pyboy()
    rom, title = titles.find(config.rom, config.cartridge, config.cartridge_seed)
    try:
        with hang_watch.limited():
            power_on = pyboy_emulator.power_on(rom)
    except Exception as error:  # PyBoy raises errors of many kinds for headers that it does not know
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"rom = {config.rom!r}: PyBoy cannot play it: {reason}") from None
    spec = emulator_pool.PoolSpec(rom, title.regions, games)
    pool: emulator_pool.EmulatorPool
    if config.processes and games > 1:  # one game gains nothing; settings are checked with such worlds
        pool = emulator_pool.WorkerPool(spec, config.processes, config.patience)
    else:
        pool = emulator_pool.LocalPool(spec)
    library = Library(hashlib.sha1(rom).hexdigest(), pyboy_emulator.pyboy_version(), len(power_on))
    counters = dict.fromkeys(("emulator_faults", "games_replayed", "savestates_quarantined"), 0)
    return SharedEmulators(title, Reader(title), pool, power_on, library, rom, counters)


class SavestateGames(NumpyWorld):
    """N games with savestates; `row` is the first row of this part in the pool."""

    shared: SharedEmulators
    row: int
    new_milestones: NDArray[np.bool_]  # [N, milestones] reached by the last step
    reached_new_place: NDArray[np.bool_]  # [N] by the last step
    rival_changed: NDArray[np.bool_]  # [N] the rival has another creature, or it lost a quarter of its HP
    quarters: NDArray[Any]  # [N] remaining quarters of the HP of the rival's creature
    page_of: Ints  # [N] the map that `pages` shows; -1: none
    captured: dict[int, Bundle]  # row -> bundle that the capture rule chose after the last step

    @property
    def library(self) -> Library:
        """The savestates from which games may start."""
        return self.shared.library

    @property
    def title(self) -> titles.Title:
        return self.shared.title

    @cached_property
    def tag(self) -> int:
        """A hash of cartridge and PyBoy version: states fit only the pair that made them."""
        text = f"{self.library.rom} {self.library.pyboy}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def _facts(self, rows: Rows | None = None) -> Facts:
        ram = self.shared.pool.ram[self.row : self.row + self.games]
        return self.shared.reader.facts(ram if rows is None else ram[rows])

    def milestones(self, row: int, since: bool = False) -> tuple[str, ...]:
        """Milestones that the running game has reached; since: only those after the start of the episode."""
        state = self.state[row]
        mask = state["reached"] & ~state["reached_at_start"] if since else state["reached"]
        return tuple(name for name, reached in zip(self.shared.reader.names, mask.tolist()) if reached)

    def set_capture_rule(self, rule: CaptureRule, cell_size: int = 0) -> None:
        """From now on `captured` holds the games that `rule` chooses, before ended ones restart.

        rule(game, milestones, decided, cell, strength) -> bool is called for games that reach a milestone,
        with cell "". With cell_size > 0 it is also called for a game that reaches a new place outside of a
        match, with the name of the cell (cell_size steps a side), and in a match with a rival, for each
        quarter of the HP of the rival's creature. Such a capture counts as progress for `idle_steps`. Each
        part calls the rule in its own thread.
        """
        self.shared.capture_rule, self.shared.cell_size = rule, cell_size

    def _apply_capture_rule(self, facts: Facts, decided: NDArray[np.bool_], alive: NDArray[np.bool_]) -> None:
        self.captured.clear()
        rule = self.shared.capture_rule
        if rule is None:
            return
        size, reached = self.shared.cell_size, set(np.flatnonzero(self.new_milestones.any(1)).tolist())
        in_cell = np.where(facts.battle == 0, self.reached_new_place, self.rival_changed) & ~decided & alive
        for row in sorted(reached.union(np.flatnonzero(in_cell).tolist() if size else ())):
            cell = ""
            if row not in reached:
                cell = f"{self.title.map_name(int(facts.map[row]))} "
                square = f"{int(facts.y[row]) // size} {int(facts.x[row]) // size}"
                rival = f"against {int(facts.species[row])}, {int(self.quarters[row])} quarters"
                cell += rival if facts.battle[row] else square
            strength = float(facts.level[row].sum()), float(facts.hp[row].sum())
            milestones = self.milestones(row)
            if rule(self.first + row, milestones, bool(decided[row]), cell, strength):
                self.captured[row] = replace(self.capture(row), place=cell)
                self.state["last_progress"][row] = self.state["time"][row]

    # --- starts and faults ----------------------------------------------------------------------------

    def _load_start(self, row: int) -> None:
        """Load the savestate of the stage; power-on if there is none or it is in quarantine."""
        start, shared = float(self.state["stage"][row, 0]), self.shared
        if not (start == FROM_POWER_ON or (0 <= start < len(shared.library) and start == int(start))):
            count = len(shared.library)
            raise ConfigError(f"start = {start:g}: expected -1 or the number of one of {count} savestates")
        if start >= 0:
            bundle = shared.library[int(start)]
            if bundle.sha256 not in shared.library.quarantine:
                self.state["origin"][row] = np.frombuffer(bytes.fromhex(bundle.sha256), np.uint8)
                fault = shared.pool.load(self.row + row, shared.library.emulator(bundle))
                if fault is None:
                    return
                self._report_fault(fault)
                self._quarantine(row)
                self.state["origin"][row] = 0
        fault = shared.pool.load(self.row + row, shared.power_on)
        if fault is not None:
            raise ConfigError(f"{self.spec.world}: a new emulator does not start: {fault.line}")

    def _milestones_at_start(self, row: int) -> NDArray[np.bool_]:
        """[milestones] those of the episode's savestate. RAM has no bit for a map that was entered."""
        bundle = self._origin(row)
        reached = frozenset(() if bundle is None else bundle.milestones)
        return np.array([name in reached for name in self.shared.reader.names], bool)

    def _initial_bytes(self, row: int) -> bytes:
        """The emulator's bytes at the start of the running episode."""
        bundle = self._origin(row)
        return self.shared.power_on if bundle is None else self.shared.library.emulator(bundle)

    def _origin(self, row: int) -> Bundle | None:
        """The savestate that the running episode started from; None: power-on."""
        sha256 = self.state["origin"][row].tobytes()
        return self.shared.library.find(sha256.hex()) if any(sha256) else None

    def _replay(self, fault: emulator_pool.Fault) -> bool:
        """Replay a game that was lost with its worker, from its start. False if that fails."""
        row = fault.row - self.row
        failure = self.shared.pool.load(fault.row, self._initial_bytes(row))
        for action in self.state["inputs"][row, : self.state["time"][row]].tolist():
            if failure is not None:
                break
            failure = next(iter(self.shared.pool.step(fault.row, [action])), None)
        if failure is not None:
            self._report_fault(failure)
            return False
        self.shared.counters["games_replayed"] += 1
        return True

    def _quarantine(self, row: int) -> None:
        origin = self.state["origin"][row].tobytes()
        if any(origin):
            self.shared.library.quarantine[origin.hex()] = "its game crashed the emulator"
            self.shared.counters["savestates_quarantined"] = len(self.shared.library.quarantine)

    def _report_fault(self, fault: emulator_pool.Fault) -> None:
        """Count a fault; the first of each kind is printed with its traceback."""
        self.shared.counters["emulator_faults"] += 1
        if fault.line not in self.shared.printed:
            self.shared.printed.add(fault.line)
            game = self.first + fault.row - self.row
            message = f"{self.spec.world}: the emulator of game {game} was replaced; the run continues"
            print(f"{fault.trace.rstrip()}\n{message}", file=sys.stderr, flush=True)

    # --- states ---------------------------------------------------------------------------------------

    def screen(self, row: int) -> Bytes:
        """The whole screen in grey, [144, 160]; for films."""
        try:
            return self.shared.pool.screen(self.row + row)
        except emulator_pool.EmulatorLost as lost:
            self._recover(lost)
            return self.shared.pool.screen(self.row + row)

    def capture(self, row: int, memory: bytes = b"") -> Bundle:
        """The running game as a savestate from which other games can start."""
        parent, reached = self._origin(row), self.milestones(row)
        before = [] if parent is None else parent.actions
        inputs = before + self.state["inputs"][row, : self.state["time"][row]].tolist()
        return Bundle(
            **compress(self._emulator_bytes(row)), rom=self.library.rom, pyboy=self.library.pyboy,
            milestones=reached, map=self.title.map_name(int(self._facts(np.array([row])).map[0])),
            start_group=self.title.start_group(frozenset(reached)),
            parent=POWER_ON if parent is None else parent.sha256,
            root=POWER_ON if parent is None else parent.root, inputs=run_length_encode(inputs), memory=memory,
        )  # fmt: skip

    def import_state(self, data: bytes, name: str = "state") -> Bundle:
        """The savestate in a `.state` file of another program; ConfigError with the reason if it is none."""
        (result,) = self.import_states([(name, data)])
        if isinstance(result, ConfigError):
            raise result
        return result

    def import_states(self, files: Sequence[tuple[str, bytes]]) -> list[Bundle | ConfigError]:
        """For each (name, content) of a file the savestate, or the reason why it is refused."""
        from .import_states import import_states

        return import_states(self, files)

    @property
    def episode_starts(self) -> Ints:
        """[N] where the running episodes started: -1 is power-on, else the number of a savestate."""
        origins = [bytes(one).hex() for one in self.state["origin"]]
        return np.array([self.library.numbers.get(sha256, -1) for sha256 in origins], np.int32)

    def _emulator_bytes(self, row: int) -> bytes:
        try:
            return self.shared.pool.save(self.row + row)
        except emulator_pool.EmulatorLost as lost:
            self._recover(lost)
            return self.shared.pool.save(self.row + row)

    def _recover(self, lost: emulator_pool.EmulatorLost) -> None:
        self._report_fault(lost.fault)
        if not self._replay(lost.fault):
            raise ConfigError(f"{self.spec.world}: a game cannot be replayed: {lost.fault.line}")

    def save(self, rows: Ints) -> Bytes:
        index = np.asarray(rows, np.intp)
        heads = self.state[index]
        size = self.library.size
        out = np.zeros((len(index), heads.dtype.itemsize + size), np.uint8)
        for i, row in enumerate(index.tolist()):
            emulator = self._emulator_bytes(row)
            heads["digest"][i] = np.frombuffer(hashlib.sha256(emulator).digest(), np.uint8)
            out[i, -size:] = np.frombuffer(emulator, np.uint8)
        out[:, :-size] = self._bytes(heads)
        return out

    def load(self, rows: Ints, states: Bytes) -> None:
        index, size = np.asarray(rows, np.intp), self.library.size
        width = self.state.dtype.itemsize + size
        if states.dtype != np.uint8 or states.shape != (len(index), width):
            actual = f"found {states.dtype} {list(states.shape)}"
            raise ConfigError(f"{self.spec.world}: expected states uint8 [{len(index)}, {width}], {actual}")
        heads = np.ascontiguousarray(states[:, :-size]).view(self.state.dtype).reshape(len(index))
        bodies = [states[i, -size:].tobytes() for i in range(len(index))]
        valid = (heads["magic"] == MAGIC) & self.valid_states(heads)
        for i, body in enumerate(bodies):
            valid[i] &= hashlib.sha256(body).digest() == heads["digest"][i].tobytes()
        if not valid.all():
            bad = int(np.flatnonzero(~valid)[0])
            other = heads["magic"][bad] == MAGIC and heads["tag"][bad] != self.tag
            reason = ": it is of another cartridge or PyBoy" if other else ""
            raise ConfigError(f"{self.spec.world}: state {bad} is no state of this world{reason}")
        heads = heads.copy()
        heads["digest"] = 0
        self.state[index] = heads
        for row, body in zip(index.tolist(), bodies):
            fault = self.shared.pool.load(self.row + row, body)
            if fault is not None:
                raise ConfigError(f"{self.spec.world}: a checked state does not load: {fault.line}")
        self.view.reward[index], self.view.outcome[index] = 0, 0
        self.view.ended[index] = RUNNING
        self.view.length[index] = heads["time"]
        self.new_milestones[index], self.page_of[index] = False, -1
        self.write_observations()

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        origins = {bytes(32), *(bytes.fromhex(bundle.sha256) for bundle in self.library)}
        valid = (states["tag"] == self.tag) & (states["time"] >= 0)
        valid &= states["time"] < self.config.max_steps
        valid &= (states["num_places"] >= 1) & (states["num_places"] <= states["time"] + 1)
        valid &= states["slot"][:, 0] >= 0
        valid &= (states["last_progress"] >= 0) & (states["last_progress"] <= states["time"])
        valid &= (states["inputs"] < len(ACTIONS)).all(1) & np.isfinite(states["stage"]).all(1)
        for name in ("highest_level", "health", "heal_reward", "rival_hp", "rival_max_hp", "blow_reward"):
            valid &= np.isfinite(states[name])
        # A game that started from a savestate needs it to be replayed.
        has_origin = np.array([one.tobytes() in origins for one in states["origin"]], bool)
        return np.asarray(valid & has_origin)

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """The true states: the hidden memory of a cartridge cannot be resampled."""
        return self.save(rows)
