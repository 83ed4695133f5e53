"""Any two-player game of OpenSpiel, with chance, hidden things and joint moves: `--world.game kuhn_poker`.

After each step some player is to move: chance moves inside a step, by luck keyed by (seed, episode, place in
the history). Both seats play one role with one network; a column says which seat it is. Rewards are changes
of utility, divided by the game's largest utility, so that they lie in [-1, 1]. Who has more at the end has
won; where both gain alike (cooperative games) both have won if they gain. Where something is hidden, what the
other seat sees lies aside, for critics: `--network.critic centralized`.
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
from rematch.worlds.numpy_world import Luck, PlainWorld, Rows, States

from . import hidden_states, history_table
from .config import Config
from .games import CHANCE, DECISION, TERMINAL

LARGEST = 1e6  # of a number in an observation: OpenSpiel promises no bounds; most of its numbers are 0 or 1
THEIRS = "theirs"  # the other seat's observation
STATE, THEIR_STATE = "state", "their_state"  # information states by number
CHANCE_STREAM = 32  # of a game's own key: what chance does in it

NAME = __name__.split(".")[-2]  # of this folder: a copied folder is a game with a name of its own


class SpielWorld(PlainWorld):
    """Games as rows of a shared table; a state holds its history."""

    masked = True
    draws = 2
    node: NDArray[np.int32]  # [N] each game's row in the table of age `age`
    age: NDArray[np.int64]  # [N]

    @classmethod
    def make_spec(cls, config: Config) -> Spec:
        game = config.load()
        secret = [] if game.perfect else ["what the other seat holds or did unseen"]
        secret += ["chance to come"] if game.chance else []
        fields: tuple[Field, ...] = (
            Field(name="seat", columns=("second",), low=0.0, high=1.0),
            Field(name="observation", columns=game.columns, low=-LARGEST, high=LARGEST),
        )
        theirs: tuple[Field, ...] = () if game.perfect else (replace(fields[1], name=THEIRS),)
        if game.known:
            state = Field(
                name=STATE, columns=("number",), low=0.0, high=len(game.known) - 1,
                categories=(len(game.known),),
            )
            fields, theirs = (*fields, state), (*theirs, replace(state, name=THEIR_STATE)) if theirs else ()
        moves = Actions(kind="discrete", names=game.moves)
        role = Role(
            name="player", fields=fields, actions=moves, seats=(0, 1), hidden=tuple(secret),
            privileged=theirs,
        )  # fmt: skip
        return Spec(world=NAME, roles={"player": role}, zero_sum=game.zero_sum)

    def layout(self) -> list[Any]:
        return [("moves", "i4"), ("history", self.game_table.codes, (self.game.longest,))]

    # --- rules ---

    def begin(self, rows: Rows, luck: Luck) -> None:
        self._settle(rows, np.zeros(len(rows), np.int32))  # row 0 of every table: the empty history

    def rules(self, actions: Mapping[str, NDArray[Any]]) -> None:
        self._adopt(history_table.current(self.game))
        t, node, every = self.game_table, self.node.copy(), np.arange(self.games)
        chosen = np.where(t.acting[node] == 1, actions["player"], 0)  # [N, 2]
        self._refuse_illegal(node, chosen)
        gain, joint = t.gain[node], t.joint[node]
        seat = t.acting[node, 1].astype(np.intp)  # whose turn it is, where the move is not a joint one
        single = chosen[every, seat]
        if joint.any():
            edge = np.where(joint, chosen[:, 0] * len(self.game.moves) + chosen[:, 1], single)
            self._write(every, np.where(joint, chosen[:, 0], single))
            self._write(every[joint], chosen[joint, 1])
        else:
            edge = single
            self._write(every, single)
        self._settle(every, t.follow(node, edge))
        view, after = self.view, self.node
        view.reward[:] = (t.gain[after] - gain) / self.game.scale
        over = np.flatnonzero(t.kind[after] == TERMINAL)
        view.ended[over] = DECIDED
        final = t.gain[after[over]]  # who has more has won; in a game of common gain: whether it is a gain
        lead = final if self.game.together else final - final[:, ::-1]
        view.outcome[over] = (1 + np.sign(lead)) / 2

    def _settle(self, rows: Rows, node: NDArray[np.int32]) -> None:
        """Let chance move until a player is to move or the game is over; then the games stand there."""
        t, state = self.game_table, self.state
        waiting = np.flatnonzero(t.kind[node] == CHANCE)
        while waiting.size:
            where, here = rows[waiting], node[waiting]
            drawn = chance_luck(state["seed"][where], state["episode"][where], state["moves"][where])
            event = t.event[here]
            pick = (drawn[:, None] >= t.odds[event]).sum(1)
            self._write(where, t.outcome[event, pick])
            node[waiting] = t.follow(here, pick)
            waiting = waiting[t.kind[node[waiting]] == CHANCE]
        self.node[rows], self.age[rows] = node, t.age

    def _write(self, rows: Rows, moves: NDArray[Any]) -> None:
        """One more move in the histories of these games."""
        if rows.size and self.state["moves"][rows].max() >= self.game.longest:
            longest = self.game.longest
            raise ConfigError(f"{NAME}: {self.game.text}: a game of more than {longest} moves, which is more "
                              "than OpenSpiel says there can be")  # fmt: skip
        self.state["history"][rows, self.state["moves"][rows]] = moves
        self.state["moves"][rows] += 1

    def _refuse_illegal(self, node: NDArray[np.int32], chosen: NDArray[Any]) -> None:
        """OpenSpiel does not check moves: an illegal one could end the process."""
        count, acting = len(self.game.moves), self.game_table.acting[node] == 1
        inside = (chosen >= 0) & (chosen < count)
        flat = np.where(inside, chosen, 0)
        legal = np.take_along_axis(self.game_table.mask[node], flat[:, :, None], 2)[:, :, 0] == 1
        bad = np.argwhere(acting & ~(inside & legal))
        if bad.size:
            row, seat = bad[0].tolist()
            said = f"seat {seat} of game {self.first + row} chose move {int(chosen[row, seat])}"
            raise ConfigError(f"{NAME}: {self.game.text}: {said}, which is not legal there")

    def show(self) -> None:
        self._locate()
        t, view = self.game_table, self.view
        view["player"]["seat"][:, 1] = 1
        np.take(t.obs, self.node, 0, out=view["player"]["observation"], mode="clip")
        if self.game.known:
            np.take(t.known, self.node, 0, out=view["player"][STATE], mode="clip")
        np.take(t.acting, self.node, 0, out=view.acting, mode="clip")
        np.take(t.mask, self.node, 0, out=view.mask["player"], mode="clip")

    # --- states ---

    def load(self, rows: Ints, states: Bytes) -> None:
        self._adopt(history_table.current(self.game))
        self.age[rows] = 0  # to be found anew, whether the states are taken or refused
        super().load(rows, states)

    def sane(self, states: States) -> NDArray[np.bool_]:
        fine = (states["moves"] >= 0) & (states["moves"] <= self.game.longest)
        beyond = np.arange(self.game.longest) >= states["moves"][:, None]
        fine &= ~(beyond & (states["history"] != 0)).any(1)
        found = np.full(len(states), -1, np.int32)
        found[fine] = self._find(states[fine])
        t = self.game_table
        right = (found >= 0) & (t.kind[found] == DECISION) & (t.depth[found] == states["time"])
        return np.asarray(fine & right)

    def _find(self, states: States) -> list[int]:
        pairs = zip(states["history"], states["moves"].tolist())
        return [self.game_table.find(history[:moves].tobytes()) for history, moves in pairs]

    def _adopt(self, newest: history_table.Table) -> None:
        self.game_table = newest
        self._locate()

    def _locate(self) -> None:
        """Find the rows of games that stand in another table, or were loaded."""
        lost = np.flatnonzero(self.age != self.game_table.age)
        if lost.size:
            self.node[lost] = self._find(self.state[lost])
            self.age[lost] = self.game_table.age

    def forget(self, states: States, seat: int, luck: Luck) -> None:
        """Another history that this seat cannot tell from the true one, and other luck from now on."""
        if not self.game.perfect:
            hidden_states.redraw(self.game, states, seat, luck[:, 0])
        if self.game.chance:
            states["seed"] = (luck[:, 1] * 2.0**53).astype(np.uint64)

    # --- inside ---

    def _attach(self, config: Any, spec: Spec, first: int, arrays: tuple[States, View, Next]) -> None:
        super()._attach(config, spec, first, arrays)
        if spec.roles["player"].privileged:  # the same memory, seats exchanged
            self.view["player"][THEIRS] = self.view["player"]["observation"][:, ::-1]
            if config.named:
                self.view["player"][THEIR_STATE] = self.view["player"][STATE][:, ::-1]
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


def chance_luck(seed: NDArray[np.uint64], episode: NDArray[Any], place: NDArray[Any]) -> NDArray[np.float64]:
    """[n] numbers in [0, 1): chance's draw at this place of the history of this episode."""
    counter = np.zeros((len(seed), 4), np.uint64)
    counter[:, 0], counter[:, 1], counter[:, 2] = place, episode, CHANCE_STREAM
    key: Any = seed  # philox takes an array of keys as well as one
    out = rng.philox(key, counter)
    return ((out[:, 0] << np.uint64(32) | out[:, 1]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
