"""The map of a run's world as a file, for worlds whose player walks on maps (capability WorldMap).

world_map.json has the places that the training games have visited, where each game is and how it came there,
the places of the savestates, and the way to the frontier. The page of `rematch serve` draws it. It is small,
is written every `interval` steps and after a discovery, holds no clock times, and is rewound with its
checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Tree
from rematch.core.clock import Clock, interval_passed
from rematch.core.component import Component, Evidence, Metrics, Record, Setup, SmallRun
from rematch.core.config import knob
from rematch.core.world import RUNNING, Next
from rematch.curriculum.savestates import Savestates
from rematch.curriculum.start_states import POWER_ON, START
from rematch.rollout.columns import find_columns
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.storage import atomic_files

FILE = "world_map.json"
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # one per action
SCALE = 255  # of the columns of an observation
UNKNOWN = -1  # place of a savestate that cannot be loaded


@dataclass(frozen=True, kw_only=True)
class WorldMapConfig:
    """The file with the map of the world, for worlds whose player walks on maps."""

    interval: int = knob(5_000, f"steps between two writes of {FILE}; 0: off", unit="steps", low=0)


@dataclass(frozen=True)
class ShownGame:
    """A game at the last observation of a rollout."""

    start: int  # number of the savestate that its episode started from, or POWER_ON
    inputs: str | None  # since then, one of DIGITS each; None: not known
    path: tuple[int, ...]  # its places in the rollout, the last one is where it is


def pack(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Places [..., 3] as one number each."""
    whole = numbers.astype(np.int64)
    return np.asarray(whole[..., 0] << 16 | whole[..., 1] << 8 | whole[..., 2])


def unpack(place: int) -> list[int]:
    """map, y, x."""
    return [place >> 16, place >> 8 & 255, place & 255]


def without_repeats(places: Iterable[int]) -> list[int]:
    """The places without those that are equal to the one before."""
    return [place for place, _ in groupby(places)]


class WorldMapRecord(Component):
    """Follows the places of all games of a run. Its state is a function of the rollouts."""

    name = "world_map"
    Config = WorldMapConfig

    def __init__(self, config: WorldMapConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        role = setup.spec.role_of(0)
        self.role, self.map = role.name, setup.game.world_map
        self.place_columns = find_columns(role, self.map.columns, "columns of the map")
        self.start_column = setup.spec.stage.index(START)
        self.names: Mapping[int, str] = self.map.names(setup.config.world)
        games = setup.config.games
        self.visits: dict[int, int] = {}  # place -> steps that games spent there
        self.starts = [POWER_ON] * games  # of the running episodes
        self.inputs: list[str | None] = [None] * games  # of the running episodes; None: not known
        self.shown: list[ShownGame] = []  # [N] as of the last rollout
        self.savestates: list[int] = []  # places, by number of the savestate
        self.frontier: list[int] = []  # the inputs to the frontier
        self.trail: list[int] = []  # the place before each of them, and after the last one

    @classmethod
    def off(cls, config: WorldMapConfig, setup: Setup) -> str:
        return cls.no_effect("", config, setup) or ("" if config.interval else "world_map.interval is 0")

    @classmethod
    def no_effect(cls, key: str, config: WorldMapConfig, setup: Setup) -> str:
        return "" if setup.game.world_map is not None else "the world has no map"

    @classmethod
    def shrink(cls, config: WorldMapConfig, small: SmallRun) -> Mapping[str, Any]:
        return {"interval": min(config.interval, small.steps_per_iteration)}

    def connect(self) -> None:
        savestates = self.setup.get(Savestates)
        assert savestates is not None, "a world with a map has savestates"
        self.archive = savestates.archive

    # --- rollouts ---

    def before_rollout(self, clock: Clock, next: Next) -> None:
        if clock.iteration == clock.first:
            self.starts = self.archive.world.episode_starts.tolist()

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        track = rollout[self.role]
        places = pack(np.rint(track.host("obs")[:, :, 0, self.place_columns] * SCALE))
        visited, steps = np.unique(places, return_counts=True)
        for place, count in zip(visited.tolist(), steps.tolist()):
            if place:  # 0: the game has not begun
                self.visits[place] = self.visits.get(place, 0) + count
        actions, ended = track.host("action")[:, :, 0], rollout.host("ended") != RUNNING
        started = rollout.host("started")
        self.shown = []
        for game in range(rollout.games):
            if started[game]:
                self.inputs[game] = ""
            restart = int(rollout.restart_stage[game, self.start_column])
            first = self._before_last_action(game, actions[:, game], ended[:, game], restart)
            path = tuple(without_repeats(places[first:, game].tolist()))
            self.shown.append(ShownGame(self.starts[game], self.inputs[game], path))
            self._append(game, actions[-1:, game])
            if ended[-1, game]:
                self._restart(game, restart)

    def _before_last_action(
        self, game: int, actions: NDArray[Any], ended: NDArray[np.bool_], restart: int
    ) -> int:
        """Take the inputs up to the last observation. Returns the first step of the episode that it shows."""
        ends = np.flatnonzero(ended[:-1]).tolist()
        first = ends[-1] + 1 if ends else 0
        if ends:
            self._restart(game, restart)
        self._append(game, actions[first:-1])
        return first

    def _restart(self, game: int, start: int) -> None:
        self.starts[game], self.inputs[game] = self.archive.usable(start), ""

    def _append(self, game: int, actions: NDArray[Any]) -> None:
        before = self.inputs[game]
        if before is not None:
            self.inputs[game] = before + "".join(DIGITS[action] for action in actions.tolist())

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        discovery = self._follow_discoveries()
        if discovery or interval_passed(clock.step, clock.steps_per_iteration, self.config.interval):
            self.write(clock.step)

    def before_checkpoint(self, clock: Clock) -> None:
        self.write(clock.step)

    def resumed(self, clock: Clock) -> None:
        atomic_files.remove(self.setup.log.folder / FILE)
        if clock.step:
            self.write(clock.step)

    # --- savestates and frontier ---

    def _follow_discoveries(self) -> bool:
        """The places of new savestates and of a new frontier; False if there is nothing new."""
        new = self.archive.starts[len(self.savestates) :]
        for start in new:
            self.savestates.append(self._savestate_place(len(self.savestates), start.sha256))
        frontier = self.archive.frontier
        if frontier is None or frontier.actions == self.frontier:
            return bool(new)
        known, number = self._last_savestate_on(frontier.actions)
        bundle = None if number == POWER_ON else self.archive.world.library[number]
        self.trail = self.trail[:known] + self._follow(bundle, frontier.actions[known:])
        self.frontier = list(frontier.actions)
        return True

    def _savestate_place(self, number: int, sha256: str) -> int:
        library = self.archive.world.library
        return UNKNOWN if sha256 in library.quarantine else self._follow(library[number], ())[0]

    def _last_savestate_on(self, actions: Sequence[int]) -> tuple[int, int]:
        """(inputs, number) of the furthest savestate on the way whose places are known; else power-on."""
        pairs = enumerate(zip(actions, self.frontier))
        shorter = min(len(actions), len(self.frontier))
        common = next((index for index, (a, b) in pairs if a != b), shorter)
        best, library = (0, POWER_ON), self.archive.world.library
        for number in range(len(self.archive.starts)):
            bundle = library[number]
            count = len(bundle.actions)
            usable = not bundle.root and bundle.sha256 not in library.quarantine
            if usable and best[0] < count <= common and bundle.actions == list(actions[:count]):
                best = (count, number)
        return best

    def _follow(self, bundle: Any, inputs: Sequence[int]) -> list[int]:
        places = self.map.follow(self.archive.world, bundle, inputs, self.setup.check_stop)
        return [int(place) for place in pack(np.array(places)).tolist()]

    # --- the file ---

    def write(self, step: int) -> None:
        self.setup.log.write_file(FILE, self.content(step))

    def content(self, step: int) -> bytes:
        tiles: dict[int, list[list[int]]] = {}
        for place, steps in sorted(self.visits.items()):
            number, y, x = unpack(place)
            tiles.setdefault(number, []).append([y, x, steps])
        for place in {*self.trail, *self.savestates} - {0, UNKNOWN}:  # explorers were there first
            tiles.setdefault(unpack(place)[0], [])
        maps = [{"map": number, "name": self.names.get(number, f"map-{number}"), "tiles": rows}
                for number, rows in sorted(tiles.items())]  # fmt: skip
        games = []
        for game in self.shown:
            start = self.archive.start(game.start)
            games.append({"group": start.start_group, "start": start.sha256, "inputs": game.inputs,
                          "path": [unpack(place) for place in game.path]})  # fmt: skip
        marks = [{"sha256": start.sha256, "place": unpack(place)}
                 for start, place in zip(self.archive.starts, self.savestates) if place != UNKNOWN]
        trail = [unpack(place) for place in without_repeats(self.trail) if place]
        lists: dict[str, list[dict[str, Any]]] = {"maps": maps, "games": games, "savestates": marks}
        parts = [f'"{name}": [' + ",".join("\n" + json.dumps(row) for row in rows) + "\n]"
                 for name, rows in lists.items()]  # fmt: skip
        parts = [f'"step": {step}', *parts, f'"frontier": {json.dumps(trail)}']
        return ("{" + ",\n".join(parts) + "\n}\n").encode()

    def metrics(self) -> Metrics:
        return {"places": float(len(self.visits))}

    def evidence(self, record: Record) -> Iterable[Evidence]:
        places = f"{len(self.visits)} places, {len(self.shown)} games"
        yield Evidence(self.name, places if self.visits and self.shown else "")

    # --- state ---

    def state_dict(self) -> Tree:
        visits = np.array(sorted(self.visits.items()), np.int64).reshape(-1, 2)
        shown = [[game.start, game.inputs, list(game.path)] for game in self.shown]
        return {
            "visits": visits, "starts": list(self.starts), "inputs": list(self.inputs), "shown": shown,
            "savestates": np.array(self.savestates, np.int64), "frontier": np.array(self.frontier, np.uint8),
            "trail": np.array(self.trail, np.int64),
        }  # fmt: skip

    def load_state_dict(self, tree: Tree) -> None:
        if not tree:  # a run of an earlier version: its map starts here
            return
        self.visits = dict(tree["visits"].tolist())
        self.starts, self.inputs = list(tree["starts"]), list(tree["inputs"])
        self.shown = [ShownGame(start, inputs, tuple(path)) for start, inputs, path in tree["shown"]]
        self.savestates = tree["savestates"].tolist()
        self.frontier, self.trail = tree["frontier"].tolist(), tree["trail"].tolist()
