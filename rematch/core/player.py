"""Player: anything that chooses actions, and the decision it is asked for."""

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
    """The key of a player's random numbers: with the game's number it names every draw."""

    seed: int
    stream: int
    step: int


@dataclass
class Seat:
    """One decision point handed to a player: n games in which it is to move."""

    role: Role
    seat: int
    world: World
    rows: Ints  # [n] which games of `world`
    obs: Floats  # [n, role.size] all fields side by side
    mask: Bytes | None = None  # [n, A]


@dataclass
class Decision:
    """A player's answer: action [n, A] or [n], and for policies logp [n], value [n], memory.

    Who has `resigned` [n] has lost that game on a scoreboard; its action must be legal all the same.
    """

    action: NDArray[Any]
    logp: Floats | None = None
    value: Floats | None = None
    recurrent_state: NDArray[Any] | None = None
    resigned: NDArray[np.bool_] | None = None
    scores: Floats | None = None  # [n, A] what each action is thought to be worth, where that is known


@runtime_checkable
class Player(Protocol):
    """Anything that chooses actions."""

    name: str

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision: ...


class StochasticPlayer(Protocol):
    """A player whose chances can be read, of discrete actions."""

    name: str

    def action_probs(self, seat: Seat) -> Floats:
        """[n, A] what `act` draws from."""
