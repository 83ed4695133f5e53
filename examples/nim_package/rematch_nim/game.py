"""Nim: three piles of sticks; a move takes sticks of one pile; the seat that takes the last stick wins.

The seat to move can win if the exclusive or of the piles is not 0 (Bouton 1901): the bot `bouton` plays so.
"""

from dataclasses import dataclass

import numpy as np

from rematch.core.config import knob
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import DECIDED
from rematch.worlds.numpy_world import NumpyGame, NumpyWorld

PILES = 3


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the game: each field is a flag, --world.NAME."""

    sticks: int = knob(7, "sticks of the largest pile at the start", unit="sticks", low=1, high=15)


class Nim(NumpyWorld):
    """Nim with three piles: the seat that takes the last stick wins."""

    masked = True
    random_numbers = PILES

    @classmethod
    def make_spec(cls, config):
        most = config.sticks
        piles = Field(name="piles", columns=tuple(f"pile_{i}" for i in range(PILES)), low=0.0, high=most,
                      categories=(most + 1,) * PILES)
        moves = Actions(kind="discrete", names=tuple(f"take_{n + 1}_of_{pile}" for pile in range(PILES)
                                                     for n in range(most)))
        role = Role(name="player", fields=(piles,), actions=moves, seats=(0, 1))
        return Spec(world="nim", roles={"player": role})

    def layout(self):  # sticks of each pile, and the seat to move
        return [("piles", "i1", PILES), ("turn", "i1")]

    def reset_games(self, rows, uniform):  # 1 to `sticks` sticks in each pile; either seat begins
        self.state["piles"][rows] = 1 + uniform * self.config.sticks
        self.state["turn"][rows] = self.state["episode"][rows] % 2

    def apply_actions(self, actions):  # action: pile * sticks + (number of sticks - 1)
        games, turn = np.arange(self.games), self.state["turn"].astype(int)
        pile, number = np.divmod(actions["player"][games, turn], self.config.sticks)
        self.state["piles"][games, pile] -= (number + 1).astype(np.int8)
        won = (self.state["piles"] == 0).all(1)
        self.view.outcome[won, turn[won]] = 1
        self.view.reward[won] = 2 * self.view.outcome[won] - 1
        self.view.ended[won] = DECIDED
        self.state["turn"] = 1 - turn

    def write_observations(self):
        piles = self.state["piles"]
        self.view["player"]["piles"][:] = piles[:, None]
        self.view.acting[:] = self.state["turn"][:, None] == [0, 1]
        number = np.arange(1, self.config.sticks + 1)
        legal = (piles[:, :, None] >= number).reshape(self.games, -1)
        self.view.mask["player"][:] = legal[:, None]

    def valid_states(self, states):
        piles = states["piles"]
        inside = ((piles >= 0) & (piles <= self.config.sticks)).all(1) & (piles > 0).any(1)
        return inside & np.isin(states["turn"], (0, 1))


def random(seat, uniform):
    """Any legal move."""
    rank = np.minimum(uniform * seat.mask.sum(1), seat.mask.sum(1) - 1).astype(int)
    return (np.cumsum(seat.mask, 1) > rank[:, None]).argmax(1)


def bouton(seat, uniform):
    """A move after which the exclusive or of the piles is 0; any legal move where there is none."""
    piles = seat.obs.astype(int)
    total = np.bitwise_xor.reduce(piles, 1)
    target = piles ^ total[:, None]
    pile = (target < piles).argmax(1)
    rows = np.arange(len(piles))
    taken = piles[rows, pile] - target[rows, pile]
    sticks = seat.mask.shape[1] // PILES
    return np.where(total != 0, pile * sticks + taken - 1, random(seat, uniform))


GAME = NumpyGame("nim", Nim, Config, bots={"player": {"random": random, "bouton": bouton}})
