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
class Noise:
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
    sight: Floats  # [n, role.size] all fields side by side
    mask: Bytes | None = None  # [n, A]


@dataclass
class Move:
    """A player's answer: action [n, A] or [n], and for policies logp [n], value [n], memory.

    Who has `resigned` [n] has lost that game on a scoreboard; its action must be legal all the same.
    """

    action: NDArray[Any]
    logp: Floats | None = None
    value: Floats | None = None
    memory: NDArray[Any] | None = None
    resigned: NDArray[np.bool_] | None = None
    scores: Floats | None = None  # [n, A] what each action is thought to be worth, where that is known


@runtime_checkable
class Player(Protocol):
    """Anything that chooses actions."""

    name: str

    def act(self, seat: Seat, noise: Noise, memory: NDArray[Any] | None = None) -> Move: ...


class Open(Protocol):
    """A player whose chances can be read, of discrete actions."""

    name: str

    def chances(self, seat: Seat) -> Floats:
        """[n, A] what `act` draws from."""
