"""Role-playing cartridges on an emulated Game Boy: our own, or a Pokémon Red that one brings along.

N emulators behind rematch.core.world.World, read through work RAM (cartridge/ram_addresses.py). A state is
the emulator's bytes and the inputs that led there, so any game can be played again from power-on, to the same
bytes. Nothing is left to chance: `next.seed` chooses nothing, `next.stage` chooses where a game begins (-1:
power-on, k: the savestate `world.library[k]`), and an `idle_steps` of its own (0: that of the settings). An
episode is cut off after `max_steps`; only the hall of fame decides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Ints
from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Role, Spec
from rematch.core.world import CUT_OFF, DECIDED, RUNNING, EventLog, View
from rematch.worlds.numpy_world import MAGIC, Rows

from . import episode_info, titles
from .bots import ROLE
from .cartridge.constants import ACTIONS
from .config import Config
from .emulator import pyboy_emulator
from .ram_reader import AROUND, RECENT, Facts, Reader
from .savestate_world import FROM_POWER_ON, KeptGames, furnish

NAME = __name__.split(".")[-2]  # of this folder: a copied folder is a game with a name of its own
HIDDEN = ("memory of the cartridge beyond these fields", "the screen's other pixels")
BESIDE = (np.array([1, 0, 0, -1]) + AROUND // 2, np.array([0, -1, 1, 0]) + AROUND // 2)  # y, x of ACTIONS
PAGE = 256 + AROUND  # a map of visited places with a margin around it


class GameboyWorld(KeptGames):
    """See rematch.core.world.World; and `library`, `events`, `watch`, `capture`, `adopt`, `shortened`,
    `packed`."""

    config: Config
    pages: Bytes  # [N, 304, 304] places visited on the map `page_of`
    episode_infos: Sequence[tuple[int, dict[str, Any]]] = ()  # of the step just made
    windows: NDArray[Any]  # [N, 257, 257, 48, 48] the same by the place in the middle, a view

    def __init__(self, config: Config, games: int, first: int = 0, seed: int = 0) -> None:
        if games >= 1:  # else the next line says so
            self.config, self.hall, self.row = config, furnish(config, games), 0
        super().__init__(config, games, first, seed)

    @classmethod
    def make_spec(cls, config: Config) -> Spec:
        return make_spec(config)

    def layout(self) -> list[Any]:
        steps, marks = self.config.max_steps, len(self.hall.title.marks)
        return [
            ("tag", "u8"), ("inputs", "u1", (steps,)), ("places", "u4", (steps + 1,)), ("stood", "i4"),
            ("reached", "?", (marks,)), ("spawned", "?", (marks,)), ("highest", "f4"), ("health", "f4"),
            ("healed", "f4"), ("last", "i4"), ("foe", "f4"), ("foe_most", "f4"), ("struck", "f4"),
            ("origin", "u1", (32,)), ("digest", "u1", (32,)),
        ]  # fmt: skip

    # --- moving ---------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        view, state = self.view, self.state
        given = np.asarray(actions[ROLE])
        if given.shape != (self.games, 1) or not ((given >= 0) & (given < len(ACTIONS))).all():
            raise ConfigError(f"actions of {ROLE}: expected [{self.games}, 1] of 0 to {len(ACTIONS) - 1}")
        pressed = given[:, 0].astype(np.uint8)
        state["inputs"][np.arange(self.games), state["time"]] = pressed
        state["time"] += 1
        broken = self._press(pressed.tolist())
        facts = self._facts()
        view.reward[:, 0] = self._score(facts, ~broken)
        over = facts.over & ~broken
        own = state["stage"][:, 1]
        idle = np.where(own > 0, own, self.config.idle_steps)
        tired = (state["time"] - state["last"] >= idle) & (idle > 0)
        cut = broken | (~over & ((state["time"] >= self.config.max_steps) | tired))
        view.ended[:] = np.where(over, DECIDED, np.where(cut, CUT_OFF, RUNNING))
        view.outcome[:, 0] = over
        view.length[:] = state["time"]
        self._capture_wanted(facts, over, ~broken)
        if cut.any():
            self._finish(broken)  # its last sight is the one before the fault
            self.show(facts)
            self._finish(cut & ~broken)
        self.episode_infos = episode_info.of_step(self, facts)
        ended = np.flatnonzero(view.ended)
        self._restart(ended)
        self.show(None if ended.size else facts)
        return view

    def _press(self, pressed: list[int]) -> NDArray[np.bool_]:
        """One action on every machine; which games could not be saved, [N]."""
        broken = np.zeros(self.games, bool)
        for fault in self.hall.bank.step(self.row, pressed):
            self._tell(fault)
            broken[fault.row - self.row] = not (fault.lost and self._replayed(fault))
        for row in np.flatnonzero(broken).tolist():
            self._quarantine(row)
        return broken

    def _finish(self, rows: NDArray[np.bool_]) -> None:
        for name, last in self.view.final[ROLE].items():
            last[rows] = self.view.fields[ROLE][name][rows]

    def _score(self, facts: Facts, alive: NDArray[np.bool_]) -> NDArray[Any]:
        """r_env [N] of the step (titles.Rewards), and what is remembered of it."""
        state, pay = self.state, self.hall.title.rewards
        new = self.fresh
        new[:] = facts.reached & ~state["reached"] & alive[:, None]
        state["reached"] |= new
        further = new.any(1)  # there every place is new again: the way back pays, and savestates begin alike
        state["stood"][further], state["last"][further], self.page_of[further] = 0, state["time"][further], -1
        reward: NDArray[Any] = new @ self.hall.reader.worth
        level = facts.level.sum(1)
        gained = np.where(state["highest"] > 0, np.maximum(level - state["highest"], 0), 0)
        reward += pay.level * gained
        state["highest"] = np.maximum(level, state["highest"])
        healed = pay.heal * np.where(state["health"] > 0, np.maximum(facts.health - state["health"], 0), 0)
        healed = np.where(gained > 0, 0, np.minimum(healed, pay.most_heal - state["healed"]))
        state["healed"] += healed
        state["health"] = facts.health
        reward += self._blow(facts)
        self.stepped = self._walk(facts)
        reward += healed + pay.coordinate * self.stepped
        return np.where(alive, reward, 0)

    def _blow(self, facts: Facts) -> NDArray[Any]:
        """What a rival's creature lost is worth, [N]: a share of what it had when it was met."""
        state, pay = self.state, self.hall.title.rewards
        rival = facts.battle == 2  # a wild creature's would keep one in the grass
        now = np.where(rival, facts.enemy[:, 0], 0)
        met = now > state["foe"]  # another one
        state["foe_most"] = np.where(met, now, state["foe_most"])
        four = 4 / np.maximum(state["foe_most"], 1)
        before, self.quarters = np.ceil(state["foe"] * four), np.ceil(now * four)
        self.faced = rival & (now > 0) & (met | (self.quarters < before))
        lost = np.where(rival, state["foe"] - now, 0)
        struck = pay.blow * np.maximum(lost, 0) / np.maximum(state["foe_most"], 1)
        struck = np.minimum(struck, pay.most_blow - state["struck"])
        state["struck"] += struck
        state["foe"] = now
        return np.asarray(struck)

    def _walk(self, facts: Facts) -> NDArray[np.bool_]:
        """Note where everybody stands; who stands there for the first time in this episode, [N]."""
        state, half = self.state, AROUND // 2
        for row in np.flatnonzero(self.page_of != facts.map).tolist():
            places = state["places"][row, : state["stood"][row]]
            here = places[places >> 16 == facts.map[row]]
            self.pages[row] = 0
            self.pages[row, (here >> 8 & 255) + half, (here & 255) + half] = 1
            self.page_of[row] = facts.map[row]
        every = np.arange(self.games)
        new: NDArray[np.bool_] = self.pages[every, facts.y + half, facts.x + half] == 0
        rows = np.flatnonzero(new & (state["stood"] < state["places"].shape[1]))
        state["places"][rows, state["stood"][rows]] = facts.place[rows]
        state["stood"][rows] += 1
        self.pages[every, facts.y + half, facts.x + half] = 1
        return new

    def _restart(self, rows: Rows) -> None:
        """Begin new episodes where `next.stage` says."""
        if not hasattr(self, "fresh"):
            self.next.stage[:] = FROM_POWER_ON, 0.0
            self.captured = {}
            self.fresh = np.zeros((self.games, len(self.hall.title.marks)), bool)
            self.pages = np.zeros((self.games, PAGE, PAGE), np.uint8)
            self.windows = sliding_window_view(self.pages, (AROUND, AROUND), (1, 2))
            self.page_of = np.full(self.games, -1, np.int32)
        if not rows.size:
            return
        old, fresh = self.state[["magic", "episode"]][rows], np.zeros(len(rows), self.state.dtype)
        fresh["magic"], fresh["episode"] = MAGIC, old["episode"] + (old["magic"] == MAGIC)
        fresh["tag"] = self.tag
        for name in ("seed", "slot", "stage"):
            fresh[name] = getattr(self.next, name)[rows]
        self.state[rows] = fresh
        for row in rows.tolist():
            self._begin(row)
        self.page_of[rows] = -1
        facts = self._facts(rows)
        set_before = facts.reached | np.array([self._behind(row) for row in rows.tolist()])
        self.state["reached"][rows] = self.state["spawned"][rows] = set_before
        self.state["highest"][rows], self.state["health"][rows] = facts.level.sum(1), facts.health
        self.state["places"][rows, 0], self.state["stood"][rows] = facts.place, 1

    def restart(self) -> None:
        """Begin every game anew from `next`."""
        self._restart(np.arange(self.games))
        self.show()

    def shortened(self, since: Any, inputs: Sequence[int]) -> Any:
        """See shorten_trajectory.py."""
        from .shorten_trajectory import shortened

        return shortened(self, since, inputs)

    # --- seeing ---------------------------------------------------------------------------------------

    @property
    def frames(self) -> Bytes:
        """[N, 72, 80] of 0 (black) .. 3."""
        return self.hall.bank.frames[self.row : self.row + self.games]

    def show(self, facts: Facts | None = None) -> None:
        facts = self._facts() if facts is None else facts
        state, seen, every = self.state, self.view.fields[ROLE], np.arange(self.games)
        if self.config.screen:
            shown = self.frames.reshape(self.games, -1)
            np.multiply(shown, np.float32(1 / 3), out=seen["screen"][:, 0], dtype=np.float32)
        ago = state["time"][:, None] - 1 - np.arange(RECENT)
        recent = np.where(ago >= 0, state["inputs"][every[:, None], np.maximum(ago, 0)], 255)
        self._walk_where_unknown(facts)
        around = self.windows[every, facts.y, facts.x]
        if self.config.mask:
            seen["visited"][:, 0] = around.reshape(self.games, -1)
        fresh = 1 - around[:, BESIDE[0], BESIDE[1]]
        self.hall.reader.structured(facts, state["reached"], recent, fresh, seen["structured"][:, 0])
        self.hall.reader.named(facts, seen["named"][:, 0])

    def _walk_where_unknown(self, facts: Facts) -> None:
        if (self.page_of != facts.map).any():
            self._walk(facts)

    def packed(self, rows: Ints) -> Bytes:
        """The screens of these games for a replay, [n, 1440]: two bits a pixel."""
        return pyboy_emulator.pack(self.frames[np.asarray(rows, np.intp)])

    @property
    def event_log(self) -> EventLog:
        return self

    @property
    def events(self) -> list[tuple[int, str]]:
        """(row, milestone) reached for the first time by the step just made; see also `view.ended`."""
        return [(int(row), self.hall.reader.names[mark]) for row, mark in np.argwhere(self.fresh)]

    @property
    def headlines(self) -> tuple[str, ...]:
        return episode_info.headlines(self.hall.title)

    def bands(self) -> list[str]:
        return episode_info.bands(self)

    # --- parts ----------------------------------------------------------------------------------------

    def _attach(self, config: Any, spec: Spec, first: int, arrays: Any) -> None:
        super()._attach(config, spec, first, arrays)
        if hasattr(self, "hall"):
            self.counters = self.hall.counters

    def _part(self, cut: slice) -> Self:
        part = super()._part(cut)
        part.hall, part.row, part.counters = self.hall, self.row + cut.start, self.hall.counters
        part.fresh, part.pages, part.page_of = self.fresh[cut], self.pages[cut], self.page_of[cut]
        part.windows, part.captured = self.windows[cut], {}
        return part


def make_spec(config: Config) -> Spec:
    """The spec of a world with these settings. It needs the cartridge and no emulator."""
    pyboy_emulator.library()  # without PyBoy nothing of this can be played
    _, title = titles.find(config.rom, config.cartridge, config.cartridge_seed)
    moves = Actions(kind="discrete", names=ACTIONS)
    fields = Reader(title).fields(config.screen, config.mask)
    role = Role(name=ROLE, fields=fields, actions=moves, seats=(0,), hidden=HIDDEN)
    return Spec(world=NAME, roles={ROLE: role}, stage=("start", "patience"), cutoffs=True, zero_sum=False)
