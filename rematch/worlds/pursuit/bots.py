"""The scripted rivals as players. What they do is in bots.h; here they get names and random keys."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.player import Decision, RngKey, Seat
from rematch.worlds.game import check_bot

from . import native

# In the order of the enum in bots.h.
NUMBERS = ("random", "stand_still", "pure_pursuit", "lead_pursuit", "proportional_navigation", "lion",
           "flee_straight", "flee_to_corner", "wall_runner", "obstacle_orbit")
BOTS = {"pursuer": NUMBERS[:6], "evader": NUMBERS[:2] + NUMBERS[6:]}

if len(NUMBERS) != native.BOTS:
    raise ImportError(f"pursuit: {len(NUMBERS)} players are named in bots.py, {native.BOTS} in bots.h")


class ScriptedPlayer:
    """Plays one of `BOTS`; the same move for the same game, key and step, however games are batched."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._number = NUMBERS.index(name)

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        key = rng.key(rng_key.seed, rng_key.stream, seat.seat)  # each seat its own luck
        own = RngKey(key, rng_key.stream, rng_key.step)
        return Decision(world.scripted(seat.rows, (seat.seat, self._number), own))


def bot(name: str, role: str) -> ScriptedPlayer:
    """The scripted player `name` of a role."""
    check_bot(BOTS, name, role)
    return ScriptedPlayer(name)
