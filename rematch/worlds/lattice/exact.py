"""How exploitable two players are on a lattice, exactly (pursuit specification, section 9).

Fix one side and the other faces a finite-horizon decision problem, so the same induction that solves the game
gives its best response: NashConv = what the best pursuer takes from this evader - what the best evader leaves
this pursuer. Each player is asked for its chances in every position with every number of moves left, as it is
deployed. With symmetry a position stands for its eight images, which a player sees as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from rematch.config import ConfigError, untracked
from rematch.spec import Floats, Open, Seat

from .board import BEST_EVADER, BEST_PURSUER, PLAYED, Board, Chances, Doubles
from .rules import Config
from .solve import TooLarge, refuse_large, solution

if TYPE_CHECKING:
    from .world import LatticeWorld

CHUNK = 8192  # positions that a player is asked about at once
MOST = 40_000_000  # positions in all: minutes for a small network
ROLES = ("pursuer", "evader")


@dataclass(frozen=True)
class Judgement:
    """Chances of capture with all moves left, [rows, cols] of `board`; `starts`: where games begin."""

    board: Board
    starts: NDArray[np.bool_]
    value: Doubles  # of exact play by both
    best_pursuer: Doubles  # by the best pursuer against this evader
    best_evader: Doubles  # by this pursuer against the best evader
    played: Doubles  # by these two

    @property
    def regret(self) -> dict[str, Doubles]:
        """What each side loses to a best response at each start, in chances of capture."""
        return {"pursuer": self.value - self.best_evader, "evader": self.best_pursuer - self.value}

    def summary(self) -> dict[str, float]:
        def mean(table: NDArray[Any]) -> float:
            return self.board.mean(table, self.starts)

        pursuer, evader, played = mean(self.best_pursuer), mean(self.best_evader), mean(self.played)
        out = {
            "nash_conv": pursuer - evader, "value": mean(self.value), "played": played,
            "gap": abs(2 * played - 1), "best_pursuer": pursuer, "best_evader": evader,
        }
        for role, regret in self.regret.items():
            out |= {
                f"regret_{role}": mean(regret),
                f"worst_{role}": float(regret[self.starts].max()),
                f"lost_{role}": mean(regret > 0.5),  # share of starts of which more than half is lost
            }
        return out


def exact(config: Config, players: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Exact figures of the pair; `nash_conv` is 0 at equilibrium and at most 1. Or why there are none."""
    try:
        return judge(config, players, threads).summary()
    except TooLarge as error:  # a training that cannot be judged exactly goes on
        return {"refused": str(error)}


def judge(config: Config, players: Mapping[str, Any], threads: int) -> Judgement:
    """The pair's own play, and the best response to either side, from every start."""
    config = untracked(config)
    refuse_large(config, 3 + 3)  # tables; and both players' chances, three numbers each
    board = Board(config)
    if (positions := board.states * config.horizon) > MOST:
        raise TooLarge(f"n = {config.n}, horizon = {config.horizon}: {positions / 1e6:.0f} million positions "
                       f"to ask players about; expected at most {MOST / 1e6:.0f}")
    value = solution(config, threads)
    with Survey(board, cast("Mapping[str, Open]", players), threads) as survey:
        tables = board.induction((BEST_PURSUER, BEST_EVADER, PLAYED), survey.ask, threads)
    return Judgement(board, board.starts(), value, tables[BEST_PURSUER], tables[BEST_EVADER], tables[PLAYED])


def exact_picture(config: Config, players: Mapping[str, Any], threads: int) -> bytes:
    """A PNG of the starts that each side loses to a best response."""
    from .heat import regrets

    judged = judge(config, players, threads)
    return regrets(judged.board, judged.regret)


class Survey:
    """Asks two players for their chances in all positions of a board, on several threads."""

    def __init__(self, board: Board, players: Mapping[str, Open], threads: int) -> None:
        for role in ROLES:
            if not hasattr(players[role], "chances"):
                raise ConfigError(f"{role}: {players[role].name} tells no chances; expected a policy")
        self.board, self.players = board, players
        self.caught = board.caught().reshape(-1)
        self.out = [np.zeros((board.rows, board.cols, 3)) for _ in ROLES]
        self.pool = ThreadPoolExecutor(threads)
        self.free: SimpleQueue[LatticeWorld] = SimpleQueue()
        from .world import make  # that module imports this one

        for _ in range(threads):
            self.free.put(make(board.config, min(CHUNK, board.states)))

    def __enter__(self) -> Survey:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def ask(self, moves_left: int) -> Chances:
        """[rows, cols, 3] of both, on the board. Nobody moves where the evader is caught, but at a start."""
        beginning = moves_left == self.board.config.horizon
        todo = np.arange(self.board.states) if beginning else np.flatnonzero(~self.caught)
        jobs = [todo[at : at + CHUNK] for at in range(0, len(todo), CHUNK)]
        for _ in self.pool.map(lambda entries: self._chunk(entries, moves_left), jobs):
            pass
        return self.out[0], self.out[1]

    def _chunk(self, entries: NDArray[np.int64], moves_left: int) -> None:
        board, world = self.board, self.free.get()
        try:
            rows = np.arange(len(entries), dtype=np.int32)
            pursuer, evader = board.pursuers[entries // board.cols], board.evaders[entries % board.cols]
            world.load(rows, world.position(pursuer, evader, np.full(len(rows), moves_left, np.int32)))
            for seat, role in enumerate(ROLES):
                sight = np.ascontiguousarray(world.view[role]["state"][: len(rows), 0])
                about = Seat(world.spec.roles[role], seat, cast(Any, world), rows, sight)
                chances = _checked(self.players[role].chances, about)
                mirrored = world.mirrored[: len(rows)] != 0
                chances[mirrored] = chances[mirrored, ::-1]  # there, left is right on the board
                self.out[seat].reshape(-1, 3)[entries] = chances
        finally:
            self.free.put(world)


def _checked(chances: Callable[[Seat], Floats], seat: Seat) -> Doubles:
    """A player's answer as chances that add to one exactly: single precision leaves 1e-7."""
    given = np.asarray(chances(seat), np.float64)
    total = given.sum(1, keepdims=True) if given.shape == (len(seat.rows), 3) else np.zeros((1, 1))
    if not (np.isfinite(given).all() and (given >= 0).all() and (np.abs(total - 1) < 1e-3).all()):
        raise ConfigError(f"{seat.role.name}: expected chances [{len(seat.rows)}, 3] that add to 1")
    return np.array(given / total)
