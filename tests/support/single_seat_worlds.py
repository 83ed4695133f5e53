"""Worlds for one seat: `errand` (a sign to remember) and `stroll` (a picture, a map, places to find).

    python tests/support/single_seat_worlds.py FOLDER KILLS SEED      kills runs of stroll by dqn there,
    compares what they end as
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from rematch import api
from rematch.agents.learners import dqn
from rematch.core import config as settings
from rematch.core.config import knob
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import CUT_OFF, DECIDED, RUNNING
from rematch.worlds import registry
from rematch.worlds.capabilities import Renderer
from rematch.worlds.numpy_world import NumpyWorld, Rows, States, Uniform
from support.kill_and_resume import kill_often
from support.toys import _any_legal, game


@dataclass(frozen=True, kw_only=True)
class ErrandConfig:
    steps: int = knob(6, "steps of a game", low=2)


class Errand(NumpyWorld):
    """A sign is shown at the first step and has to be named with the last move: +1 or -1."""

    @classmethod
    def make_spec(cls, config: ErrandConfig) -> Spec:
        fields = (Field(name="now", columns=("sign", "to_go")),)
        names = Actions(kind="discrete", names=("minus", "plus"))
        role = Role(name="walker", fields=fields, actions=names, seats=(0,))
        return Spec(world="errand", roles={"walker": role}, zero_sum=False)

    def layout(self) -> list[Any]:
        return [("sign", "f4")]

    def reset_games(self, rows: Rows, uniform: Uniform) -> None:
        self.state["sign"][rows] = np.where(uniform[:, 0] < 0.5, -1, 1)

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        return np.asarray((np.abs(states["sign"]) == 1) & (states["time"] < self.config.steps))

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        over = self.state["time"] == self.config.steps
        right = (actions["walker"][:, 0] == 1) == (self.state["sign"] > 0)
        self.view.reward[over, 0] = np.where(right, 1.0, -1.0)[over]
        self.view.outcome[over, 0] = right[over]
        self.view.ended[over] = DECIDED

    def write_observations(self) -> None:
        now = self.view.fields["walker"]["now"]
        now[:, 0, 0] = np.where(self.state["time"] == 0, self.state["sign"], 0)
        now[:, 0, 1] = 1 - self.state["time"] / self.config.steps


@dataclass(frozen=True, kw_only=True)
class StrollConfig:
    height: int = knob(72, "of the picture", low=12)
    width: int = knob(80, "of the picture", low=12)
    side: int = knob(48, "of the map", low=4)
    limit: int = knob(60, "steps after which a game is cut off", low=2)


class Stroll(NumpyWorld):
    """A walk over tiles of 4 x 4 pixels from the middle; the far corner is home (+1). The way is seen."""

    masked = True

    @property
    def tiles(self) -> tuple[int, int]:
        return self.config.height // 4, self.config.width // 4

    @classmethod
    def make_spec(cls, config: StrollConfig) -> Spec:
        h, w, k = config.height, config.width, config.side

        def grid(name: str, rows: int, columns: int) -> Field:
            names = tuple(f"{y}_{x}" for y in range(rows) for x in range(columns))
            return Field(name=name, columns=names, low=0.0, shape=(rows, columns))

        fields = (
            grid("screen", h, w),
            Field(name="structured", columns=("x", "y", "to_go"), low=0.0, high=max(h, w) // 4),
            Field(name="where", columns=("map",), low=0.0, high=2.0, categories=(3,)),
            grid("visited", k, k),
        )
        directions = Actions(kind="discrete", names=("down", "left", "right", "up", "b"))
        role = Role(name="joypad", fields=fields, actions=directions, seats=(0,))
        return Spec(world="stroll", roles={"joypad": role}, cutoffs=True, zero_sum=False)

    def layout(self) -> list[Any]:
        return [("y", "i4"), ("x", "i4"), ("map", "i4"), ("been", "u1", self.tiles)]

    def reset_games(self, rows: Rows, uniform: Uniform) -> None:
        state = self.state
        state["y"][rows], state["x"][rows] = self.tiles[0] // 2, self.tiles[1] // 2
        state["map"][rows] = (uniform[:, 0] * 3).astype(np.int32)
        state["been"][rows, self.tiles[0] // 2, self.tiles[1] // 2] = 1

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        bounds = {"y": self.tiles[0], "x": self.tiles[1], "map": 3, "time": self.config.limit}
        fine = [(states[name] >= 0) & (states[name] < most) for name, most in bounds.items()]
        return np.asarray(np.logical_and.reduce(fine))

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        state, rows = self.state, np.arange(self.games)
        move = np.array([(1, 0), (0, -1), (0, 1), (-1, 0), (0, 0)])[actions["joypad"][:, 0]]
        state["y"] = np.clip(state["y"] + move[:, 0], 0, self.tiles[0] - 1)
        state["x"] = np.clip(state["x"] + move[:, 1], 0, self.tiles[1] - 1)
        new = state["been"][rows, state["y"], state["x"]] == 0
        state["been"][rows, state["y"], state["x"]] = 1
        home = (state["y"] == self.tiles[0] - 1) & (state["x"] == self.tiles[1] - 1)
        self.view.reward[:, 0] = 0.05 * new + home
        late = state["time"] >= self.config.limit
        self.view.ended[:] = np.where(home, DECIDED, np.where(late, CUT_OFF, RUNNING))
        self.view.outcome[:, 0] = home

    def write_observations(self) -> None:
        state, rows, fields = self.state, np.arange(self.games), self.view.fields["joypad"]
        tiles = np.full((self.games, *self.tiles), 1 / 3, np.float32) + state["been"] / np.float32(3)
        tiles[rows, state["y"], state["x"]] = 1.0
        picture = np.repeat(np.repeat(tiles, 4, 1), 4, 2)
        picture[:, :, ::4] *= (state["map"] > 0)[:, None, None]
        h, w = 4 * self.tiles[0], 4 * self.tiles[1]
        screen = fields["screen"].reshape(self.games, self.config.height, self.config.width)
        screen[:, :h, :w] = np.rint(picture * 3) / 3
        to_go = 1 - state["time"] / self.config.limit
        fields["structured"][:, 0] = np.stack([state["x"], state["y"], to_go], 1)
        fields["where"][:, 0, 0] = state["map"]
        k = self.config.side
        seen = state["been"][:, :k, :k]
        mask = fields["visited"].reshape(self.games, k, k)
        mask[:] = 0
        mask[:, : seen.shape[1], : seen.shape[2]] = seen
        legal = self.view.mask["joypad"][:, 0]
        legal[:] = 1
        legal[:, 3] = state["y"] > 0  # nobody walks up through the upper wall


errand = game(Errand, ErrandConfig, {"random": _any_legal}, ("walker",))
stroll = game(Stroll, StrollConfig, {"random": _any_legal}, ("joypad",))


def draw(world: Any, row: int, trail: list[Any]) -> Image.Image:
    trail.append(row)
    grey = np.rint(255 * world.view.fields["joypad"]["screen"][row, 0]).astype(np.uint8)
    return Image.fromarray(grey.reshape(world.config.height, world.config.width)).convert("RGB")


stroll.renderer = Renderer(draw=draw)
TOYS = {"errand": errand, "stroll": stroll}

# A run of a second in which games end both ways, the ring is overwritten, chunks come and go.
SMALL: dict[str, Any] = {
    "learner": "dqn", "threads": 1, "games": 4, "steps": 8, "total_steps": 4 * 8 * 12, "save_every": 2,
    "world.height": 12, "world.width": 16, "world.side": 8, "world.limit": 7,
    "dqn.sequence": 8, "dqn.burn_in": 2, "dqn.batch": 5, "dqn.replay_size": 4 * 40, "dqn.warmup": 40,
    "dqn.target_every": 3, "dqn.replay_ratio": 2.0, "count_bonus.weight": 0.1, "rnd_images.weight": 0.1,
    "rnd_images.update_every": 16, "evaluation.games": 2, "evaluation.every": 6,
    "episode_log.interval": 48, "episode_video.interval": 96, "episode_video.max_steps": 6,
}  # fmt: skip


SIZES = {"slim": ((4, 4, 8), 16), "large": ((4, 8, 8), 24)}  # networks for tests


def known(find: Any) -> Any:
    """worlds.find that knows these toys too."""
    return lambda name: TOYS[name] if name in TOYS else find(name)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Toys can be found, networks are little."""
    monkeypatch.setattr(registry, "find", known(registry.find))
    monkeypatch.setattr(dqn, "SIZES", SIZES)


def small(**changes: Any) -> Any:
    """SMALL of stroll; `changes` with `__` for the dot."""
    more = {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default("stroll"), SMALL | more)


def errands(**changes: Any) -> Any:
    """A run of errand that learns in seconds."""
    more = {key.replace("__", "."): value for key, value in changes.items()}
    base: dict[str, Any] = {
        "learner": "dqn", "threads": 1, "games": 16, "steps": 12, "total_steps": 16 * 12 * 60,
        "save_every": 100,
        "dqn.sequence": 12, "dqn.burn_in": 2, "dqn.batch": 16, "dqn.replay_size": 16 * 200, "dqn.warmup": 200,
        "dqn.target_every": 20, "dqn.lr": 3e-3, "dqn.lr_final": 1e-3, "dqn.replay_ratio": 2.0,
        "dqn.gamma": 0.95, "dqn.epsilon_fraction": 0.5, "evaluation.games": 200, "evaluation.every": 1000,
    }  # fmt: skip
    return settings.replace(api.default("errand"), base | more)


# --- a run that can be killed ---------------------------------------------------------------------------

KILLED = {"total_steps": 4 * 8 * 14, "evaluation.every": 7}


def main(place: Path, kills: int, seed: int) -> None:
    """Kill runs so many times in all (kill_and_resume.py)."""
    registry.find, dqn.SIZES = known(registry.find), SIZES
    kill_often(settings.replace(small(), KILLED), place, kills, seed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
