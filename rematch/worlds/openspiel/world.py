"""The world of OpenSpiel's two-player games, with chance, hidden information and joint moves.

After each step a player is to move: chance moves inside a step, with random numbers keyed by (seed, episode,
number of moves). Both seats play one role with one network; a column names the seat. Rewards are changes of
utility, divided by the largest utility of the game, so they lie in [-1, 1]. The seat with the larger utility
wins; in games with a common payoff both seats win where it is positive. In games with hidden information the
other seat's observation is a privileged field, for `--network.critic centralized`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes, Ints
from rematch.core.errors import ConfigError
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import DECIDED, Next, View
from rematch.worlds.numpy_world import NumpyWorld, Rows, States, Uniform

from . import hidden_states, history_table
from .config import Config
from .games import CHANCE, DECISION, TERMINAL

MAX_OBSERVATION = 1e6  # bound of the columns: OpenSpiel promises none; most numbers are 0 or 1
OTHER_OBSERVATION = "theirs"  # privileged field: the observation of the other seat
STATE, OTHER_STATE = "state", "their_state"  # fields: numbers of the information states
CHANCE_STREAM = 32  # stream of chance moves in the key of a game

NAME = __name__.split(".")[-2]  # name of this folder, so that a copied folder is another game


class SpielWorld(NumpyWorld):
    """Each game is at a row of a shared table of histories; a saved state holds the history."""

    masked = True
    random_numbers = 2
    node: NDArray[np.int32]  # [N] rows of the games in the table of age `age`
    age: NDArray[np.int64]  # [N] 0: the row must be looked up

    @classmethod
    def make_spec(cls, config: Config) -> Spec:
        game = config.load()
        hidden = [] if game.perfect else ["what the other seat holds or did unseen"]
        hidden += ["chance to come"] if game.chance else []
        fields: tuple[Field, ...] = (
            Field(name="seat", columns=("second",), low=0.0, high=1.0),
            Field(name="observation", columns=game.columns, low=-MAX_OBSERVATION, high=MAX_OBSERVATION),
        )
        privileged: tuple[Field, ...] = ()
        if not game.perfect:
            privileged = (replace(fields[1], name=OTHER_OBSERVATION),)
        if game.state_numbers:
            count = len(game.state_numbers)
            state = Field(name=STATE, columns=("number",), low=0.0, high=count - 1, categories=(count,))
            fields = (*fields, state)
            if privileged:
                privileged = (*privileged, replace(state, name=OTHER_STATE))
        moves = Actions(kind="discrete", names=game.moves)
        role = Role(
            name="player", fields=fields, actions=moves, seats=(0, 1), hidden=tuple(hidden),
            privileged=privileged,
        )  # fmt: skip
        return Spec(world=NAME, roles={"player": role}, zero_sum=game.zero_sum)

    def layout(self) -> list[Any]:
        return [("moves", "i4"), ("history", self.game_table.codes, (self.game.longest,))]

    # --- rules ---

    def reset_games(self, rows: Rows, uniform: Uniform) -> None:
        self._play_chance(rows, np.zeros(len(rows), np.int32))  # row 0: the empty history

    def apply_actions(self, actions: Mapping[str, NDArray[Any]]) -> None:
        self._use_table(history_table.current(self.game))
        t, node = self.game_table, self.node.copy()
        every = np.arange(self.games)
        chosen = np.where(t.acting[node] == 1, actions["player"], 0)  # [N, 2]
        self._refuse_illegal(node, chosen)
        gain, joint = t.gain[node], t.joint[node]
        seat = t.acting[node, 1].astype(np.intp)  # the seat to move, where the move is not joint
        single = chosen[every, seat]
        if joint.any():
            edge = np.where(joint, chosen[:, 0] * len(self.game.moves) + chosen[:, 1], single)
            self._append_moves(every, np.where(joint, chosen[:, 0], single))
            self._append_moves(every[joint], chosen[joint, 1])
        else:
            edge = single
            self._append_moves(every, single)
        self._play_chance(every, t.follow(node, edge))
        view, after = self.view, self.node
        view.reward[:] = (t.gain[after] - gain) / self.game.scale
        ended = np.flatnonzero(t.kind[after] == TERMINAL)
        view.ended[ended] = DECIDED
        utility = t.gain[after[ended]]
        margin = utility if self.game.common_payoff else utility - utility[:, ::-1]
        view.outcome[ended] = (1 + np.sign(margin)) / 2

    def _play_chance(self, rows: Rows, node: NDArray[np.int32]) -> None:
        """Set self.node: from `node`, play chance moves until a player is to move or the game ends."""
        t, state = self.game_table, self.state
        at_chance = np.flatnonzero(t.kind[node] == CHANCE)
        while at_chance.size:
            games, before = rows[at_chance], node[at_chance]
            uniform = chance_uniform(state["seed"][games], state["episode"][games], state["moves"][games])
            event = t.event[before]
            outcome = (uniform[:, None] >= t.odds[event]).sum(1)
            self._append_moves(games, t.outcome[event, outcome])
            node[at_chance] = t.follow(before, outcome)
            at_chance = at_chance[t.kind[node[at_chance]] == CHANCE]
        self.node[rows], self.age[rows] = node, t.age

    def _append_moves(self, rows: Rows, moves: NDArray[Any]) -> None:
        """Append one move to the histories of these games."""
        if rows.size and self.state["moves"][rows].max() >= self.game.longest:
            longest = self.game.longest
            raise ConfigError(f"{NAME}: {self.game.text}: a game of more than {longest} moves, the bound "
                              "that OpenSpiel gives")  # fmt: skip
        self.state["history"][rows, self.state["moves"][rows]] = moves
        self.state["moves"][rows] += 1

    def _refuse_illegal(self, node: NDArray[np.int32], chosen: NDArray[Any]) -> None:
        """Refuse illegal moves: OpenSpiel does not check them, and one could abort the process."""
        count, acting = len(self.game.moves), self.game_table.acting[node] == 1
        inside = (chosen >= 0) & (chosen < count)
        index = np.where(inside, chosen, 0)
        legal = np.take_along_axis(self.game_table.mask[node], index[:, :, None], 2)[:, :, 0] == 1
        illegal = np.argwhere(acting & ~(inside & legal))
        if illegal.size:
            row, seat = illegal[0].tolist()
            choice = f"seat {seat} of game {self.first + row} chose move {int(chosen[row, seat])}"
            raise ConfigError(f"{NAME}: {self.game.text}: {choice}, which is not legal")

    def write_observations(self) -> None:
        self._locate()
        t, view = self.game_table, self.view
        view["player"]["seat"][:, 1] = 1
        np.take(t.obs, self.node, 0, out=view["player"]["observation"], mode="clip")
        if self.game.state_numbers:
            np.take(t.state_number, self.node, 0, out=view["player"][STATE], mode="clip")
        np.take(t.acting, self.node, 0, out=view.acting, mode="clip")
        np.take(t.mask, self.node, 0, out=view.mask["player"], mode="clip")

    # --- states ---

    def load(self, rows: Ints, states: Bytes) -> None:
        self._use_table(history_table.current(self.game))
        self.age[rows] = 0  # look the rows up again, whether the states are accepted or refused
        super().load(rows, states)

    def valid_states(self, states: States) -> NDArray[np.bool_]:
        valid = (states["moves"] >= 0) & (states["moves"] <= self.game.longest)
        unused = np.arange(self.game.longest) >= states["moves"][:, None]
        valid &= ~(unused & (states["history"] != 0)).any(1)
        node = np.full(len(states), -1, np.int32)
        node[valid] = self._find(states[valid])
        t = self.game_table
        reachable = (node >= 0) & (t.kind[node] == DECISION) & (t.depth[node] == states["time"])
        return np.asarray(valid & reachable)

    def _find(self, states: States) -> list[int]:
        pairs = zip(states["history"], states["moves"].tolist())
        return [self.game_table.find(history[:moves].tobytes()) for history, moves in pairs]

    def _use_table(self, table: history_table.Table) -> None:
        self.game_table = table
        self._locate()

    def _locate(self) -> None:
        """Look up the rows of games whose row belongs to another table, or that were loaded."""
        stale = np.flatnonzero(self.age != self.game_table.age)
        if stale.size:
            self.node[stale] = self._find(self.state[stale])
            self.age[stale] = self.game_table.age

    def resample_hidden(self, states: States, seat: int, uniform: Uniform) -> None:
        """Draw a history from the information set of this seat, and a new key for later chance moves."""
        if not self.game.perfect:
            hidden_states.resample(self.game, states, seat, uniform[:, 0])
        if self.game.chance:
            states["seed"] = (uniform[:, 1] * 2.0**53).astype(np.uint64)

    # --- inside ---

    def _attach(self, config: Any, spec: Spec, first: int, arrays: tuple[States, View, Next]) -> None:
        super()._attach(config, spec, first, arrays)
        if spec.roles["player"].privileged:  # views of the same arrays, with the seats exchanged
            self.view["player"][OTHER_OBSERVATION] = self.view["player"]["observation"][:, ::-1]
            if config.named:
                self.view["player"][OTHER_STATE] = self.view["player"][STATE][:, ::-1]
        self.node, self.age = np.zeros(self.games, np.int32), np.zeros(self.games, np.int64)

    def _part(self, cut: slice) -> Self:
        part = super()._part(cut)
        part.game, part.game_table = self.game, self.game_table
        part.node, part.age = self.node[cut], self.age[cut]
        return part

    def __init__(self, config: Config, games_: int, first: int = 0, seed: int = 0) -> None:
        self.game = config.load()
        self.game_table = history_table.current(self.game)
        super().__init__(config, games_, first, seed)


def chance_uniform(
    seed: NDArray[np.uint64], episode: NDArray[Any], moves: NDArray[Any]
) -> NDArray[np.float64]:
    """[n] random numbers in [0, 1) for the chance move after `moves` moves of this episode."""
    counter = np.zeros((len(seed), 4), np.uint64)
    counter[:, 0], counter[:, 1] = moves, episode
    counter[:, 2] = CHANCE_STREAM
    key: Any = seed  # philox accepts an array of keys
    out = rng.philox(key, counter)
    return ((out[:, 0] << np.uint64(32) | out[:, 1]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
