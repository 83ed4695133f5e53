"""Games that a person plays on the page of gameboy: emulators in worker processes of the server.

A session starts at power-on, at a savestate of a run, or where a training game stands. A client has one
session; it ends when it is idle, after MOST_ACTIONS actions, and with the server. A worker process runs the
emulator, because a savestate of someone else may crash or hang it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import secrets
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rematch.core.errors import ConfigError
from rematch.evaluation.text import clean
from rematch.reporting.html.stored_map import StoredState
from rematch.reporting.untrusted_folder import Unreadable
from rematch.storage.run_folder import Run
from rematch.training.recipes import stored_config
from rematch.web.answers import Refused
from rematch.web.worlds.gameboy_map import Json, state_bytes
from rematch.worlds.gameboy import titles
from rematch.worlds.gameboy.cartridge.constants import ACTIONS
from rematch.worlds.gameboy.emulator import emulator_pool, pyboy_emulator
from rematch.worlds.gameboy.ram_reader import Reader
from rematch.worlds.gameboy.savestates import checked_bytes, unpack

MOST_SESSIONS = 4  # of a server
IDLE_SECONDS = 300.0  # without a request, after which a session ends
MOST_ACTIONS = 50_000  # of a session
MOST_AT_ONCE = 8  # actions of a request
ACTIONS_PER_SECOND = 40.0  # on average; a console makes 2.5
MOST_REPLAYED = 10_000  # inputs that are replayed to show a game; they take about 1 ms each
PATIENCE = 20.0  # seconds for one answer of the worker process
NICENESS = 10  # of the worker process
FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\n'\"]+/)*")  # of an absolute path


def refused(error: Exception) -> Refused:
    """The reason of an error for the page, without the folders of this machine."""
    return Refused(clean(FOLDERS.sub("", str(error)))[:300])


def world_settings(folder: Path) -> Any:
    """The settings of a run's world."""
    try:
        with Run.open(folder, write=False) as run:
            return stored_config(run).world
    except ConfigError as error:
        raise refused(error) from None


class Console:
    """One emulator with the cartridge of a run, in a worker process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = world_settings(folder)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an unknown cartridge
                rom, self.title = titles.find(config.rom, config.cartridge, config.cartridge_seed)
            spec = emulator_pool.PoolSpec(rom, self.title.regions, 1)
            self.pool = emulator_pool.WorkerPool(spec, 1, PATIENCE)
        except ConfigError as error:
            raise refused(error) from None
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.pool.workers[0].child.pid, NICENESS)
        self.reader, self.rom = Reader(self.title), hashlib.sha1(rom).hexdigest()
        self.power_on = self._query(lambda: self.pool.save(0))

    def _query(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except emulator_pool.EmulatorLost as lost:
            raise Refused(f"the emulator ended: {clean(lost.fault.line)[:200]}") from None

    def load(self, stored: StoredState | None) -> None:
        """Load a savestate; None: power-on, whose first picture is drawn after one B."""
        if stored is None:
            self.restart()
            self.press(ACTIONS.index("b"))
            return
        try:
            bundle = unpack(state_bytes(self.folder, stored), stored.file)
            state = checked_bytes(bundle, self.rom, pyboy_emulator.pyboy_version(), len(self.power_on))
        except (ConfigError, Unreadable, OSError, ValueError) as error:
            raise refused(error) from None
        self._load(state)

    def load_bytes(self, state: bytes) -> None:
        """Load the end of a state of the world: that of the emulator."""
        if len(state) <= len(self.power_on):
            raise Refused("this replay does not hold a state of this game")
        self._load(state[-len(self.power_on):])

    def restart(self) -> None:
        """Power-on."""
        self._load(self.power_on)

    def _load(self, state: bytes) -> None:
        if fault := self.pool.load(0, state):
            raise Refused(f"the emulator cannot load this savestate: {clean(fault.line)[:200]}")

    def press(self, action: int) -> None:
        for fault in self.pool.step(0, [action]):
            raise Refused(f"the emulator failed: {clean(fault.line)[:200]}")

    def picture(self) -> Json:
        """The screen (two bits per pixel, the first pixel in the lowest bits) and what memory says."""
        screen = self._query(lambda: self.pool.screen(0))
        four = (screen >> 6).reshape(-1, 4)
        packed = (four << pyboy_emulator.SHIFTS).sum(1, dtype="uint8").tobytes()
        facts = self.reader.facts(self.pool.ram)
        number = int(facts.map[0])
        names = [name for name, reached in zip(self.reader.names, facts.reached[0]) if reached]
        return {
            "screen": base64.b64encode(packed).decode(), "map": clean(self.title.map_name(number))[:60],
            "place": [number, int(facts.y[0]), int(facts.x[0])], "badges": int(facts.badges[0].sum()),
            "level": int(facts.level[0].sum()), "milestones": names, "finished": bool(facts.decided[0]),
        }  # fmt: skip

    def close(self) -> None:
        self.pool.close()


class Session:
    """A person's game."""

    def __init__(self, client: str, run: str, console: Console) -> None:
        self.id, self.client, self.run, self.console = secrets.token_hex(16), client, run, console
        self.lock = threading.Lock()
        self.actions, self.used = 0, time.monotonic()
        self.allowance = max(ACTIONS_PER_SECOND, MOST_AT_ONCE)  # actions that may come at once
        self.note = ""

    def press(self, actions: list[int]) -> None:
        """Press buttons; Refused where they come faster than a person presses, or after too many."""
        now = time.monotonic()
        burst = max(ACTIONS_PER_SECOND, MOST_AT_ONCE)
        self.allowance = min(burst, self.allowance + ACTIONS_PER_SECOND * (now - self.used))
        self.used = now
        if len(actions) > self.allowance:
            raise Refused(f"more than {ACTIONS_PER_SECOND:g} actions a second")
        if self.actions + len(actions) > MOST_ACTIONS:
            raise Refused(f"this game has had {MOST_ACTIONS} actions: open another one")
        self.allowance -= len(actions)
        self.actions += len(actions)
        for action in actions:
            self.console.press(action)

    def to_json(self) -> Json:
        return {"session": self.id, "actions": self.actions, "note": self.note, **self.console.picture()}


class Sessions:
    """The sessions of a server, at most MOST_SESSIONS and one per client."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}  # by client
        self._opening = 0  # sessions whose emulator is starting
        self._lock = threading.Lock()
        self._timers: dict[str, threading.Timer] = {}  # by identifier of the session

    def open(self, client: str, run: str, folder: Path) -> Session:
        """A new session of a client; its earlier one ends. Its emulator is used again for the same run."""
        with self._lock:
            before = self._remove(client)
            if before is not None and before.run != run:
                before.console.close()
                before = None
            if len(self._sessions) + self._opening >= MOST_SESSIONS:
                if before is not None:
                    before.console.close()
                raise Refused(f"{MOST_SESSIONS} games are being played here: wait until one of them ends")
            self._opening += 1
        try:
            session = Session(client, run, before.console if before else Console(folder))
        finally:
            with self._lock:
                self._opening -= 1
        with self._lock:
            if (other := self._remove(client)) is not None:  # opened in another window meanwhile
                other.console.close()
            self._sessions[client] = session
            self._watch(session)
        return session

    def _remove(self, client: str) -> Session | None:
        session = self._sessions.pop(client, None)
        if session is not None:
            self._timers.pop(session.id).cancel()
        return session

    def find(self, identifier: object, client: object) -> Session:
        with self._lock:
            session = self._sessions.get(client) if isinstance(client, str) else None
            if session is None or session.id != identifier:
                raise Refused("this game has ended: it was idle, or you opened another one")
            self._watch(session)
            return session

    def _watch(self, session: Session) -> None:
        if timer := self._timers.pop(session.id, None):
            timer.cancel()
        timer = threading.Timer(IDLE_SECONDS, self.close, (session,))
        timer.daemon = True
        timer.start()
        self._timers[session.id] = timer

    def close(self, session: Session) -> None:
        with self._lock:
            if self._sessions.get(session.client) is session:
                self._remove(session.client)
                session.console.close()
