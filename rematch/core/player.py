"""Player: anything that chooses actions, the decision point it gets and the decision it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.spec import Role
from rematch.core.world import World


@dataclass(frozen=True)
class RngKey:
    """The key of a player's random numbers: with the number of a game it determines every one of them."""

    seed: int
    stream: int
    step: int


@dataclass
class Seat:
    """One decision point that a player gets: n games in which its seat is to move."""

    role: Role
    seat: int
    world: World
    rows: Ints  # [n] rows of the games in `world`
    obs: Floats  # [n, role.size] all fields side by side
    mask: Bytes | None = None  # [n, A]
    value_wanted: bool = True  # whether the value of the decision is read; a player may leave it out if not


@dataclass
class Decision:
    """A player's decision in n games: action [n, A] or [n], and what some players add.

    A player that has `resigned` [n] loses the game in a match; its action must be legal all the same.
    """

    action: NDArray[Any]
    logp: Floats | None = None  # [n]
    value: Floats | None = None  # [n]
    recurrent_state: NDArray[Any] | None = None  # [n, M], handed back at the next decision
    resigned: NDArray[np.bool_] | None = None
    scores: Floats | None = None  # [n, A] estimated value of each action


@runtime_checkable
class Player(Protocol):
    """Anything that chooses actions."""

    name: str

    def act(
        self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None
    ) -> Decision: ...


@runtime_checkable
class StochasticPlayer(Protocol):
    """A player of discrete actions whose action probabilities can be read."""

    name: str

    def action_probs(self, seat: Seat) -> Floats:
        """[n, A] the distribution that `act` samples from."""


@runtime_checkable
class GreedyOption(Protocol):
    """A player that samples its actions, or takes the likeliest where `greedy` is set."""

    greedy: bool


@runtime_checkable
class WeightedPlayer(Protocol):
    """A player whose decisions follow from weights."""

    weights: Floats


@runtime_checkable
class SubprocessPlayer(Protocol):
    """A player in a process of its own, for example a bot that a user wrote."""

    errors: dict[tuple[int, int, int], str]  # (seed, step, game) -> message

    def close(self) -> None:
        """End the process."""
