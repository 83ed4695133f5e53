"""The opponents and the search as players: what bots.h and search.h do, with names and random keys."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch import keys
from rematch.config import ConfigError, nearest
from rematch.spec import Floats, Move, Noise, Seat

from . import core
from .bots_reference import BOTS as NUMBERS

BOTS = {"player": (*NUMBERS, "search")}
SLOW = ("search",)  # plays where it is asked to by name
COMPLETIONS = 100  # of `search`
PLAYOUT = NUMBERS.index("outcome_heuristic")  # who plays the rest of a game in a search
THOUGHT = 0.02  # a guided search leaves out what its policy plays more seldom
PRIOR = 0.02  # what a guided search adds for an action's log-probability
AT_ONCE = 10  # completions between two looks at the clock

if len(NUMBERS) != core.BOTS:
    raise ImportError(
        f"beasty: {len(NUMBERS)} opponents are named in bots_reference.py, {core.BOTS} in bots.h"
    )


def _own(seat: Seat, noise: Noise) -> Noise:
    """Each seat its own luck."""
    return Noise(keys.key(noise.seed, noise.stream, seat.seat), noise.stream, noise.step)


class ScriptedPlayer:
    """Plays one of the ten; the same move for the same game, key and step, however games are batched."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._number = NUMBERS.index(name)

    def act(self, seat: Seat, noise: Noise, memory: NDArray[Any] | None = None) -> Move:
        world: Any = seat.world
        return Move(world.scripted(seat.rows, self._number, _own(seat, noise)))


class SearchPlayer:
    """Deals what its seat cannot see anew `completions` times and plays every action out (search.h).

    With `seconds` it stops after about so long for the games it is asked about together, and never before the
    first few completions: a budget of time is the one thing that does not repeat.
    """

    def __init__(
        self,
        completions: int = COMPLETIONS,
        seconds: float = 0.0,
        rollout: str = "outcome_heuristic",
        threads: int = 1,
    ) -> None:
        if completions < 1:
            raise ConfigError(f"completions = {completions}: expected at least 1")
        if rollout not in NUMBERS[1:] or rollout == "noisy":
            raise ConfigError(
                f"rollout = {rollout}: expected one of {', '.join(n for n in NUMBERS[1:] if n != 'noisy')}"
            )
        self.name = "search"
        self.completions, self.seconds, self.threads = completions, seconds, threads
        self._rollout = NUMBERS.index(rollout)

    def act(self, seat: Seat, noise: Noise, memory: NDArray[Any] | None = None) -> Move:
        world: Any = seat.world
        own, started = _own(seat, noise), time.perf_counter()
        if not self.seconds:
            return Move(world.searched(seat.rows, (self._rollout, 0, self.completions), own, self.threads)[1])
        sums: Any = 0.0
        for at in range(0, self.completions, AT_ONCE):
            until = min(at + AT_ONCE, self.completions)
            sums = sums + world.searched(seat.rows, (self._rollout, at, until), own, self.threads)[0]
            if time.perf_counter() - started > self.seconds:
                break
        assert seat.mask is not None
        return Move(np.where(seat.mask != 0, sums, -np.inf).argmax(1).astype(np.int32))


class GuidedSearch:
    """`search` among the actions that a policy would play now and then, its own odds beside what is found.

    Actions that it plays with less than THOUGHT are not searched, which saves their playouts. With `plies` a
    playout ends after so many turns and the policy's value says how the game goes on (two players, and a
    policy whose value needs nothing that is aside).
    """

    def __init__(
        self, policy: Any, completions: int = COMPLETIONS, plies: int = -1, threads: int = 1
    ) -> None:
        self.policy, self.completions, self.plies, self.threads = policy, completions, plies, threads
        self.name = f"{policy.name}+search:{completions}" + (f":{plies}" if plies >= 0 else "")
        if plies >= 0 and (policy.config.critic != "own" or len(policy.role.seats) != 2):
            raise ConfigError(
                f"{self.name}: its value cannot end a playout; expected two players, network.critic own"
            )

    def act(self, seat: Seat, noise: Noise, memory: NDArray[Any] | None = None) -> Move:
        world: Any = seat.world
        assert seat.mask is not None
        logits = self.policy.forward(np.ascontiguousarray(seat.sight), seat.mask)[0].astype(np.float64)
        logits[seat.mask == 0] = -np.inf
        odds = logits - logits.max(1, keepdims=True)
        odds -= np.log(np.exp(odds).sum(1, keepdims=True))
        thought = (odds >= np.log(THOUGHT)) | (odds == odds.max(1, keepdims=True))
        bits = np.uint64(1) << np.arange(odds.shape[1], dtype=np.uint64)
        among = (thought * bits).sum(1, dtype=np.uint64)
        own = _own(seat, noise)
        if self.plies < 0:
            values = world.action_values(seat.rows, self.completions, own, self.threads, among)
        else:
            how = (self.completions, self.plies)
            values = world.leaf_values(seat.rows, how, own, among, self._judge)
        return Move(np.where(thought, values + PRIOR * odds, -np.inf).argmax(1).astype(np.int32))

    def _judge(self, sight: Floats) -> Floats:
        return np.asarray(self.policy.forward(sight)[1], np.float32)


def guided(policy: Any, budget: str) -> GuidedSearch:
    """`policy` with a search: budget "", "COMPLETIONS" or "COMPLETIONS:PLIES"."""
    try:
        numbers = [int(word) for word in budget.split(":")] if budget else [COMPLETIONS]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 2 or not 1 <= numbers[0] <= 10**6 or not numbers[-1] >= 0:
        raise ConfigError(f"search:{budget}: expected search:COMPLETIONS or search:COMPLETIONS:PLIES")
    return GuidedSearch(policy, *numbers)


def bot(name: str, role: str) -> ScriptedPlayer | SearchPlayer:
    """The player `name` of a role."""
    if role not in BOTS:
        raise ConfigError(f"role = {role}: expected one of {', '.join(BOTS)}")
    if name not in BOTS[role]:
        near = nearest(name, BOTS[role])
        raise ConfigError(
            f"{role} = {name}: expected one of {', '.join(BOTS[role])}"
            + (f"; nearest: {near}" if near else "")
        )
    return SearchPlayer() if name == "search" else ScriptedPlayer(name)
