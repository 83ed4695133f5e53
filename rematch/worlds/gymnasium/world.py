"""Any Gymnasium environment with one player: `--world.id CartPole-v1`.

N environments of one kind behind rematch.core.world.World, each a Python object that is stepped in turn. A
state is
what it takes to get there again: the episode's seed and the actions so far; `load` plays them. Environments
that do not repeat themselves are found out when they are made; they begin their episode anew on resume.
`terminated` is a decided end, `truncated` a cut-off one, whose last sight stands in View.final.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.errors import ConfigError
from rematch.core.spec import Role, Spec
from rematch.core.world import CUT_OFF, DECIDED, RUNNING, View
from rematch.worlds.numpy_world import MAGIC, PlainWorld, Rows, States

from . import factory
from .bots import ROLE
from .config import Config

NAME = __name__.split(".")[-2]  # of this folder: a copied folder is a game with a name of its own


def episode_seed(seed: int, episode: int) -> int:
    """31 bits for `env.reset`, from the key of (game, episode): Steele, Lea and Flood's (2014) SplitMix64.

    Environments draw from generators of their own, most of which take no larger seed.
    """
    mask = (1 << 64) - 1
    z = (seed + (episode + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
    return (z ^ z >> 31) >> 33


class GymnasiumWorld(PlainWorld):
    """See rematch.core.world.World. The environments of a part are those of the whole: objects, shared."""

    config: Config

    @classmethod
    def make_spec(cls, config: Config) -> Spec:
        about = config.look()
        role = Role(name=ROLE, fields=(about.looking.field,), actions=about.acting.actions, seats=(0,))
        return Spec(
            world=NAME,
            roles={ROLE: role},
            resume="replay" if about.repeats else "episode",
            cutoffs=True,
            zero_sum=False,
            reward_scale=config.reward_scale,
        )

    def layout(self) -> list[Any]:
        about = self.about.acting
        if not self.about.repeats:
            return []
        shape = (self.about.bound,) if about.discrete else (self.about.bound, about.actions.size)
        return [("actions", about.kind.newbyteorder("="), shape)]

    def __init__(self, config: Config, games: int, first: int = 0, seed: int = 0) -> None:
        self.envs: list[Any] = []
        self.about = config.look()
        super().__init__(config, games, first, seed)

    # --- moving ---------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        view, state, about = self.view, self.state, self.about
        given = np.asarray(actions[ROLE])
        shape = (self.games, 1) if about.acting.discrete else (self.games, 1, about.acting.actions.size)
        if given.shape != shape:
            raise ConfigError(
                f"actions of {ROLE}: expected an array {list(shape)}, found {list(given.shape)}"
            )
        kept = about.acting.kept(given[:, 0])
        if about.repeats:
            state["actions"][np.arange(self.games), state["time"]] = kept
        rewards, ends = self._move(about.acting.given(kept))
        state["time"] += 1
        view.length[:] = state["time"]
        view.ended[:], view.outcome[:] = RUNNING, 0
        np.multiply(rewards, self.config.reward_scale, out=view.reward[:, 0], casting="unsafe")
        if not np.isfinite(view.reward).all():
            game = self._first(~np.isfinite(view.reward[:, 0]))
            raise ConfigError(f"{about.id}: the reward of game {game} is not a finite number")
        if ends:
            rows = np.fromiter(ends, np.intp, len(ends))
            for row, (over, won) in ends.items():
                view.ended[row], view.outcome[row, 0] = over, won
            self.show()
            cut = view.ended == CUT_OFF
            name = about.looking.field.name
            view.final[ROLE][name][cut] = view.fields[ROLE][name][cut]
            self._restart(rows)
        self.show()
        return view

    def _move(self, moves: list[Any]) -> tuple[list[float], dict[int, tuple[int, float]]]:
        """Step every environment: rewards, and of games that ended (DECIDED or CUT_OFF, outcome)."""
        rewards: list[float] = []
        ends: dict[int, tuple[int, float]] = {}
        row = 0
        try:
            for row, env in enumerate(self.envs):
                seen, reward, over, cut, info = env.step(moves[row])
                self._see(row, seen)
                rewards.append(float(reward))
                if over or cut:
                    # A task has no winner, unless it says whether it was done (Gymnasium-Robotics' word).
                    won = float(bool(info["is_success"])) if "is_success" in info else 0.5
                    ends[row] = (DECIDED if over else CUT_OFF, won)
        except Exception as error:
            raise ConfigError(
                f"{self.about.id}: game {self.first + row} failed in a step: {factory.one_line(error)}"
            ) from None
        return rewards, ends

    def _see(self, row: int, seen: Any) -> None:
        look = self.about.looking
        if look.choice:
            self.raw[row, 0] = int(seen) - look.start
        else:
            self.raw[row] = seen if look.flat else np.ravel(seen)

    def show(self) -> None:
        look = self.about.looking
        look.show(self.raw, self.view.fields[ROLE][look.field.name][:, 0])
        if not np.isfinite(self.raw).all():
            game = self._first(np.asarray(~np.isfinite(self.raw).all(1)))
            raise ConfigError(f"{self.about.id}: what game {game} shows is not a finite number")

    def _first(self, where: NDArray[np.bool_]) -> int:
        return self.first + int(np.flatnonzero(where)[0])

    def _restart(self, rows: Rows) -> None:
        """Begin new episodes; PlainWorld's, but that the environments draw their own luck from a seed."""
        if not self.envs:
            self.envs = [self.about.make() for _ in range(self.games)]
            self.raw: Floats = np.zeros((self.games, self.about.looking.field.size), np.float32)
        old, state = self.state[rows], self.state
        state[rows] = np.zeros(1, state.dtype)[0]
        state["magic"][rows], state["episode"][rows] = MAGIC, old["episode"] + (old["magic"] == MAGIC)
        state["seed"][rows], state["slot"][rows] = self.next.seed[rows], self.next.slot[rows]
        for row in rows.tolist():
            self._reset(row)

    def _reset(self, row: int) -> None:
        seed = episode_seed(int(self.state["seed"][row]), int(self.state["episode"][row]))
        try:
            self._see(row, self.envs[row].reset(seed=seed)[0])
        except Exception as error:
            raise ConfigError(
                f"{self.about.id}: game {self.first + row} failed in a reset: {factory.one_line(error)}"
            ) from None

    # --- states ---------------------------------------------------------------------------------------

    def sane(self, states: States) -> NDArray[np.bool_]:
        fine = np.asarray((states["time"] < self.about.bound) & (states["slot"][:, 0] >= 0))
        if not self.about.repeats:
            return fine
        actions, about = states["actions"], self.about.acting
        legal = actions < about.actions.size if about.discrete else np.abs(actions) <= 1  # false for NaN
        return np.asarray(fine & legal.reshape(len(states), -1).all(1))

    def load(self, rows: Ints, states: Bytes) -> None:
        """Get each environment to where it was by playing its actions again; all or none of them."""
        where = np.asarray(rows, np.intp)
        size = self.state.dtype.itemsize
        if states.dtype != np.uint8 or states.shape != (len(where), size):
            found = f"{states.dtype} {list(states.shape)}"
            raise ConfigError(f"{NAME}: expected states uint8 [{len(where)}, {size}], found {found}")
        read = np.ascontiguousarray(states).view(self.state.dtype).reshape(len(where))
        bad = np.flatnonzero(~((read["magic"] == MAGIC) & (read["time"] >= 0) & self.sane(read)))
        if bad.size:
            raise ConfigError(f"{NAME}: state {bad[0]} is no state of this world")
        before = self.state[where]
        self.state[where] = read
        if not self.about.repeats:
            self.state["time"][where] = 0
        wrong = [place for place, row in enumerate(where.tolist()) if not self._replay(row)]
        if wrong:
            self.state[where] = before
            for row in where.tolist():
                self._replay(row)
            raise ConfigError(
                f"{NAME}: state {wrong[0]} is no state of this world: its episode ends before it"
            )
        self.view.reward[where], self.view.ended[where], self.view.outcome[where] = 0, RUNNING, 0
        self.view.length[where] = self.state["time"][where]
        self.show()

    def _replay(self, row: int) -> bool:
        """Play the actions of the running episode; False if it ends before the last of them."""
        self._reset(row)
        time = int(self.state["time"][row])
        if not time:
            return True
        seen, env = None, self.envs[row]
        for move in self.about.acting.given(self.state["actions"][row, :time]):
            seen, _, over, cut, _ = env.step(move)
            if over or cut:
                return False
        self._see(row, seen)
        return True

    # --- parts ----------------------------------------------------------------------------------------

    def _part(self, cut: slice) -> Self:
        part = super()._part(cut)
        part.about, part.envs, part.raw = self.about, self.envs[cut], self.raw[cut]
        return part
