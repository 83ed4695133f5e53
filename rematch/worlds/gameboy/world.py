"""Role-playing cartridges on an emulated Game Boy: the included ones, or Pokémon Red from a file of the user.

N emulators implement rematch.core.world.World; observations are read from work RAM
(cartridge/ram_addresses.py). A state is the emulator's bytes and the inputs that led to it, so any game can
be replayed from power-on to the same bytes. The world is deterministic and ignores `next.seed`. `next.stage`
has two columns: the start of the next episode (-1: power-on, k: the savestate `world.library[k]`), and its
`idle_steps` (0: that of the settings). `max_steps` truncates an episode; only the hall of fame decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from .savestate_world import FROM_POWER_ON, SavestateGames, build_shared

NAME = __name__.split(".")[-2]  # name of this folder: a copied folder is another game
HIDDEN = ("memory of the cartridge beyond these fields", "the screen's other pixels")
BESIDE = (np.array([1, 0, 0, -1]) + AROUND // 2, np.array([0, -1, 1, 0]) + AROUND // 2)  # y, x of ACTIONS
PAGE = 256 + AROUND  # side of a map of visited places, with a margin


class GameboyWorld(SavestateGames):
    """N games of a cartridge; see rematch.core.world.World.

    Also: `library`, `events`, `set_capture_rule`, `capture`, `import_state`, `shorten`, `packed`.
    """

    config: Config
    pages: Bytes  # [N, 304, 304] places visited on the map `page_of`
    episode_infos: Sequence[tuple[int, dict[str, Any]]] = ()  # of the last step
    windows: NDArray[Any]  # [N, 257, 257, 48, 48] a view: `pages` around each place

    def __init__(self, config: Config, games: int, first: int = 0, seed: int = 0) -> None:
        if games >= 1:  # else the next line raises the error
            self.config, self.shared, self.row = config, build_shared(config, games), 0
        super().__init__(config, games, first, seed)

    @classmethod
    def make_spec(cls, config: Config) -> Spec:
        return make_spec(config)

    def layout(self) -> list[Any]:
        steps, count = self.config.max_steps, len(self.shared.title.milestones)
        return [
            ("tag", "u8"), ("inputs", "u1", (steps,)), ("places", "u4", (steps + 1,)), ("num_places", "i4"),
            ("reached", "?", (count,)), ("reached_at_start", "?", (count,)), ("highest_level", "f4"),
            ("health", "f4"), ("heal_reward", "f4"), ("last_progress", "i4"), ("rival_hp", "f4"),
            ("rival_max_hp", "f4"), ("blow_reward", "f4"), ("origin", "u1", (32,)), ("digest", "u1", (32,)),
        ]  # fmt: skip

    # --- stepping -------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        view, state = self.view, self.state
        action = np.asarray(actions[ROLE])
        if action.shape != (self.games, 1) or not ((action >= 0) & (action < len(ACTIONS))).all():
            raise ConfigError(f"actions of {ROLE}: expected [{self.games}, 1] of 0 to {len(ACTIONS) - 1}")
        pressed = action[:, 0].astype(np.uint8)
        state["inputs"][np.arange(self.games), state["time"]] = pressed
        state["time"] += 1
        broken = self._press(pressed.tolist())
        facts = self._facts()
        view.reward[:, 0] = self._score(facts, ~broken)
        decided = facts.decided & ~broken
        episode_limit = state["stage"][:, 1]
        idle_steps = np.where(episode_limit > 0, episode_limit, self.config.idle_steps)
        idle = (state["time"] - state["last_progress"] >= idle_steps) & (idle_steps > 0)
        cut = broken | (~decided & ((state["time"] >= self.config.max_steps) | idle))
        view.ended[:] = np.where(decided, DECIDED, np.where(cut, CUT_OFF, RUNNING))
        view.outcome[:, 0] = decided
        view.length[:] = state["time"]
        self._apply_capture_rule(facts, decided, ~broken)
        if cut.any():
            self._write_final(broken)  # the final observation is the one before the fault
            self.write_observations(facts)
            self._write_final(cut & ~broken)
        self.episode_infos = episode_info.of_step(self, facts)
        ended = np.flatnonzero(view.ended)
        self._restart(ended)
        self.write_observations(None if ended.size else facts)
        return view

    def _press(self, pressed: list[int]) -> NDArray[np.bool_]:
        """One action on every emulator. Returns [N]: games whose emulator failed and cannot be replayed."""
        broken = np.zeros(self.games, bool)
        for fault in self.shared.pool.step(self.row, pressed):
            self._report_fault(fault)
            broken[fault.row - self.row] = not (fault.lost and self._replay(fault))
        for row in np.flatnonzero(broken).tolist():
            self._quarantine(row)
        return broken

    def _write_final(self, rows: NDArray[np.bool_]) -> None:
        """Copy the present observations of these games [N] to `view.final`."""
        for name, last in self.view.final[ROLE].items():
            last[rows] = self.view.fields[ROLE][name][rows]

    def _score(self, facts: Facts, alive: NDArray[np.bool_]) -> NDArray[Any]:
        """r_env [N] of the step (titles.Rewards); updates the counters in the state."""
        state, pay = self.state, self.shared.title.rewards
        new = self.new_milestones
        new[:] = facts.reached & ~state["reached"] & alive[:, None]
        state["reached"] |= new
        # After a milestone every place is new again: walking back pays, and savestates start in the same way.
        progressed = new.any(1)
        state["num_places"][progressed], self.page_of[progressed] = 0, -1
        state["last_progress"][progressed] = state["time"][progressed]
        reward: NDArray[Any] = new @ self.shared.reader.milestone_reward
        level = facts.level.sum(1)
        gained = np.where(state["highest_level"] > 0, np.maximum(level - state["highest_level"], 0), 0)
        reward += pay.level * gained
        state["highest_level"] = np.maximum(level, state["highest_level"])
        healed = pay.heal * np.where(state["health"] > 0, np.maximum(facts.health - state["health"], 0), 0)
        healed = np.where(gained > 0, 0, np.minimum(healed, pay.most_heal - state["heal_reward"]))
        state["heal_reward"] += healed
        state["health"] = facts.health
        reward += self._blow(facts)
        self.reached_new_place = self._walk(facts)
        reward += healed + pay.coordinate * self.reached_new_place
        return np.where(alive, reward, 0)

    def _blow(self, facts: Facts) -> NDArray[Any]:
        """Reward [N] for the HP that a rival's creature lost, as a fraction of its HP at the first sight."""
        state, pay = self.state, self.shared.title.rewards
        rival = facts.battle == 2  # wild creatures do not count: hunting them must not pay
        now = np.where(rival, facts.enemy[:, 0], 0)
        met = now > state["rival_hp"]  # another creature
        state["rival_max_hp"] = np.where(met, now, state["rival_max_hp"])
        four = 4 / np.maximum(state["rival_max_hp"], 1)
        before, self.quarters = np.ceil(state["rival_hp"] * four), np.ceil(now * four)
        self.rival_changed = rival & (now > 0) & (met | (self.quarters < before))
        damage = np.where(rival, state["rival_hp"] - now, 0)
        reward = pay.blow * np.maximum(damage, 0) / np.maximum(state["rival_max_hp"], 1)
        reward = np.minimum(reward, pay.most_blow - state["blow_reward"])
        state["blow_reward"] += reward
        state["rival_hp"] = now
        return np.asarray(reward)

    def _walk(self, facts: Facts) -> NDArray[np.bool_]:
        """Record the place of every player. Returns [N]: whether it is new since the last milestone."""
        state, half = self.state, AROUND // 2
        for row in np.flatnonzero(self.page_of != facts.map).tolist():
            places = state["places"][row, : state["num_places"][row]]
            on_map = places[places >> 16 == facts.map[row]]
            self.pages[row] = 0
            self.pages[row, (on_map >> 8 & 255) + half, (on_map & 255) + half] = 1
            self.page_of[row] = facts.map[row]
        every = np.arange(self.games)
        new: NDArray[np.bool_] = self.pages[every, facts.y + half, facts.x + half] == 0
        rows = np.flatnonzero(new & (state["num_places"] < state["places"].shape[1]))
        state["places"][rows, state["num_places"][rows]] = facts.place[rows]
        state["num_places"][rows] += 1
        self.pages[every, facts.y + half, facts.x + half] = 1
        return new

    def _restart(self, rows: Rows) -> None:
        """Start new episodes of these games from `next.stage`."""
        if not hasattr(self, "new_milestones"):
            self.next.stage[:] = FROM_POWER_ON, 0.0
            self.captured = {}
            self.new_milestones = np.zeros((self.games, len(self.shared.title.milestones)), bool)
            self.pages = np.zeros((self.games, PAGE, PAGE), np.uint8)
            self.windows = sliding_window_view(self.pages, (AROUND, AROUND), (1, 2))
            self.page_of = np.full(self.games, -1, np.int32)
        if not rows.size:
            return
        old, initial = self.state[["magic", "episode"]][rows], np.zeros(len(rows), self.state.dtype)
        initial["magic"], initial["episode"] = MAGIC, old["episode"] + (old["magic"] == MAGIC)
        initial["tag"] = self.tag
        for name in ("seed", "slot", "stage"):
            initial[name] = getattr(self.next, name)[rows]
        self.state[rows] = initial
        for row in rows.tolist():
            self._load_start(row)
        self.page_of[rows] = -1
        facts = self._facts(rows)
        reached = facts.reached | np.array([self._milestones_at_start(row) for row in rows.tolist()])
        self.state["reached"][rows] = self.state["reached_at_start"][rows] = reached
        self.state["highest_level"][rows], self.state["health"][rows] = facts.level.sum(1), facts.health
        self.state["places"][rows, 0], self.state["num_places"][rows] = facts.place, 1

    def restart(self) -> None:
        """Restart every game from `next`."""
        self._restart(np.arange(self.games))
        self.write_observations()

    def shorten(
        self, start: Any, inputs: Sequence[int], before_play: Callable[[], None] = lambda: None
    ) -> Any:
        """The inputs from a savestate to its next milestone without detours; see shorten_trajectory.py."""
        from .shorten_trajectory import shorten

        return shorten(self, start, inputs, before_play)

    # --- observations ---------------------------------------------------------------------------------

    @property
    def frames(self) -> Bytes:
        """[N, 72, 80] pixels from 0 (black) to 3 (white)."""
        return self.shared.pool.frames[self.row : self.row + self.games]

    def write_observations(self, facts: Facts | None = None) -> None:
        facts = self._facts() if facts is None else facts
        state, every = self.state, np.arange(self.games)
        fields = self.view.fields[ROLE]
        if self.config.screen:
            pixels = self.frames.reshape(self.games, -1)
            np.multiply(pixels, np.float32(1 / 3), out=fields["screen"][:, 0], dtype=np.float32)
        ago = state["time"][:, None] - 1 - np.arange(RECENT)
        recent = np.where(ago >= 0, state["inputs"][every[:, None], np.maximum(ago, 0)], 255)
        self._load_pages(facts)
        around = self.windows[every, facts.y, facts.x]
        if self.config.mask:
            fields["visited"][:, 0] = around.reshape(self.games, -1)
        unvisited = 1 - around[:, BESIDE[0], BESIDE[1]]
        self.shared.reader.structured(facts, state["reached"], recent, unvisited, fields["structured"][:, 0])
        self.shared.reader.named(facts, fields["named"][:, 0])

    def _load_pages(self, facts: Facts) -> None:
        if (self.page_of != facts.map).any():
            self._walk(facts)

    def packed(self, rows: Ints) -> Bytes:
        """The screens of these games for a replay buffer, [n, 1440]: two bits per pixel."""
        return pyboy_emulator.pack(self.frames[np.asarray(rows, np.intp)])

    @property
    def event_log(self) -> EventLog:
        return self

    @property
    def events(self) -> list[tuple[int, str]]:
        """(row, milestone) that the last step reached for the first time; see also `view.ended`."""
        names = self.shared.reader.names
        return [(int(row), names[index]) for row, index in np.argwhere(self.new_milestones)]

    @property
    def headlines(self) -> tuple[str, ...]:
        return episode_info.headlines(self.shared.title)

    def bands(self) -> list[str]:
        return episode_info.start_groups(self)

    # --- parts ----------------------------------------------------------------------------------------

    def _attach(self, config: Any, spec: Spec, first: int, arrays: Any) -> None:
        super()._attach(config, spec, first, arrays)
        if hasattr(self, "shared"):
            self.counters = self.shared.counters

    def _part(self, cut: slice) -> Self:
        part = super()._part(cut)
        part.shared, part.row, part.counters = self.shared, self.row + cut.start, self.shared.counters
        part.new_milestones, part.page_of = self.new_milestones[cut], self.page_of[cut]
        part.pages = self.pages[cut]
        part.windows, part.captured = self.windows[cut], {}
        return part


def make_spec(config: Config) -> Spec:
    """The spec of a world with these settings. It needs the cartridge and no emulator."""
    pyboy_emulator.load_pyboy()  # raises NotInstalled without PyBoy
    _, title = titles.find(config.rom, config.cartridge, config.cartridge_seed)
    moves = Actions(kind="discrete", names=ACTIONS)
    fields = Reader(title).fields(config.screen, config.mask)
    role = Role(name=ROLE, fields=fields, actions=moves, seats=(0,), hidden=HIDDEN)
    return Spec(world=NAME, roles={ROLE: role}, stage=("start", "patience"), cutoffs=True, zero_sum=False)
