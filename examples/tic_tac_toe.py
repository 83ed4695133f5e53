"""A turn-based game of your own, with legal moves: tic-tac-toe in 50 lines."""

from dataclasses import dataclass

import numpy as np

from rematch.core.config import knob
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import DECIDED
from rematch.worlds.numpy_world import NumpyGame, NumpyWorld

LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
CELLS = tuple(f"cell_{i}" for i in range(9))


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the game: each field is a flag, --world.NAME."""

    draw: float = knob(0.5, "outcome of a draw for the second player", low=0.0, high=1.0)


class TicTacToe(NumpyWorld):
    """Tic-tac-toe: the first seat with three marks in a line wins."""

    masked = True  # write_observations() writes view.mask: the legal moves

    @classmethod
    def make_spec(cls, config):
        board = Field(name="board", columns=CELLS, low=-1.0, high=1.0)
        moves = Actions(kind="discrete", names=CELLS)
        return Spec(world="tic_tac_toe", roles={"player": Role(name="player", fields=(board,), actions=moves,
                                                               seats=(0, 1))})

    def layout(self):  # the state of one game: 0 empty, 1 first seat, -1 second seat; whose turn it is
        return [("board", "i1", 9), ("turn", "i1")]

    def reset_games(self, rows, uniform):  # a new game: an empty board, seat 0 moves first
        self.state["board"][rows], self.state["turn"][rows] = 0, 0

    def apply_actions(self, actions):  # actions: role -> [N, seats]
        games, turn = np.arange(self.games), self.state["turn"].astype(int)
        sign = 1 - 2 * turn
        self.state["board"][games, actions["player"][games, turn]] = sign
        won = (self.state["board"][:, LINES] == sign[:, None, None]).all(2).any(1)
        full = (self.state["board"] != 0).all(1)
        first = np.where(won, turn == 0, 1 - self.config.draw)  # outcome of seat 0: 1 won, 0 lost
        self.view.outcome[won | full] = np.stack([first, 1 - first], 1)[won | full]
        self.view.reward[won | full] = 2 * self.view.outcome[won | full] - 1
        self.view.ended[won | full] = DECIDED
        self.state["turn"] = 1 - turn

    def write_observations(self):  # what each seat sees: its own marks are 1, the opponent's -1
        board = self.state["board"]
        self.view["player"]["board"][:] = np.stack([board, -board], 1)
        self.view.acting[:] = self.state["turn"][:, None] == [0, 1]
        self.view.mask["player"][:] = (board == 0)[:, None]

    def valid_states(self, states):  # which loaded states are possible
        return (np.abs(states["board"]) <= 1).all(1) & np.isin(states["turn"], (0, 1))


def centre(seat, uniform):  # a bot: the first legal cell of this order
    order = [4, 0, 2, 6, 8, 1, 3, 5, 7]
    return np.array(order)[(seat.obs[:, order] == 0).argmax(1)]


GAME = NumpyGame("tic_tac_toe", TicTacToe, Config, bots={"player": {"centre": centre}})
