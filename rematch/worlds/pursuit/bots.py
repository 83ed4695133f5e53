"""The scripted players. Their rules are in bots.h; this file has their names and random keys."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.player import Decision, RngKey, Seat
from rematch.worlds.game import check_bot

from . import native

# In the order of the enum in bots.h.
BOT_NAMES = ("random", "stand_still", "pure_pursuit", "lead_pursuit", "proportional_navigation", "lion",
           "flee_straight", "flee_to_corner", "wall_runner", "obstacle_orbit")
BOTS = {"pursuer": BOT_NAMES[:6], "evader": BOT_NAMES[:2] + BOT_NAMES[6:]}

if len(BOT_NAMES) != native.BOTS:
    raise ImportError(f"pursuit: {len(BOT_NAMES)} bots in bots.py, {native.BOTS} in bots.h")


class ScriptedPlayer:
    """Plays one of `BOTS`. The action depends on game, key and step only, not on the batch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = BOT_NAMES.index(name)

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        key = rng.key(rng_key.seed, rng_key.stream, seat.seat)  # different random numbers for each seat
        seat_key = RngKey(key, rng_key.stream, rng_key.step)
        return Decision(world.bot_actions(seat.rows, (seat.seat, self.number), seat_key))


def bot(name: str, role: str) -> ScriptedPlayer:
    """The scripted player `name` of a role."""
    check_bot(BOTS, name, role)
    return ScriptedPlayer(name)
