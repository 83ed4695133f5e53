"""The opponents and the search as players: what bots.h and search.h do, with names and random keys."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Floats, Ints
from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Decision, RngKey, Seat
from rematch.worlds.game import check_bot

from . import native
from .reference.bots import BOTS as NUMBERS

BOTS = {"player": (*NUMBERS, "search")}
COMPLETIONS, MOST = 100, 10**6  # of `search`
PLAYOUT = NUMBERS.index("outcome_heuristic")  # who plays the rest of a game in a search
THOUGHT = 0.02  # a guided search leaves out what its policy plays more seldom
PRIOR = 0.02  # what a guided search adds for an action's log-probability
AT_ONCE = 10  # completions between two looks at the clock

if len(NUMBERS) != native.BOTS:
    raise ImportError(
        f"beasty: {len(NUMBERS)} opponents are named in reference/bots.py, {native.BOTS} in bots.h"
    )


def _own(seat: Seat, rng_key: RngKey) -> RngKey:
    """Each seat its own luck."""
    return RngKey(rng.key(rng_key.seed, rng_key.stream, seat.seat), rng_key.stream, rng_key.step)


class ScriptedPlayer:
    """Plays one of the ten; the same move for the same game, key and step, however games are batched."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._number = NUMBERS.index(name)

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        return Decision(world.scripted(seat.rows, self._number, _own(seat, rng_key)))


class SearchPlayer:
    """Deals what its seat cannot see anew `completions` times and plays every action out (search.h).

    With `seconds` it stops after about so long for each game that it is asked about, and never before the
    first few completions: a budget of time is the one thing that does not repeat. `model` is how it thinks
    that the others play: like itself, or like the bot of that name.
    """

    def __init__(
        self,
        completions: int = COMPLETIONS,
        seconds: float = 0.0,
        rollout: str = "outcome_heuristic",
        threads: int = 1,
        model: str = "",
    ) -> None:
        if completions < 1:
            raise ConfigError(f"completions = {completions}: expected at least 1")
        if rollout not in NUMBERS[1:] or rollout == "noisy":
            raise ConfigError(
                f"rollout = {rollout}: expected one of {', '.join(n for n in NUMBERS[1:] if n != 'noisy')}"
            )
        if model and model not in NUMBERS:
            near = nearest(model, NUMBERS)
            raise ConfigError(
                f"model = {model}: expected one of {', '.join(NUMBERS)}"
                + (f"; nearest: {near}" if near else "")
            )
        self.name = "search"
        self.completions, self.seconds, self.threads = completions, seconds, threads
        self._rollout, self._model = NUMBERS.index(rollout), NUMBERS.index(model or rollout)

    def worths(self, world: Any, rows: Ints, rng_key: RngKey) -> tuple[NDArray[np.float64], Ints]:
        """[n, 33] what every action adds up to over the completions, and [n] the best."""
        found: tuple[NDArray[np.float64], Ints] = world.searched(rows, self._how(0, 0), rng_key, self.threads)
        return found

    def _how(self, at: int, until: int) -> tuple[int, int, int, int]:
        return self._rollout, at, until or self.completions, self._model

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        own, started = _own(seat, rng_key), time.perf_counter()
        if not self.seconds:
            return Decision(self.worths(world, seat.rows, own)[1])
        sums: Any = 0.0
        for at in range(0, self.completions, AT_ONCE):
            until = min(at + AT_ONCE, self.completions)
            sums = sums + world.searched(seat.rows, self._how(at, until), own, self.threads)[0]
            if time.perf_counter() - started > self.seconds * len(seat.rows):
                break
        assert seat.mask is not None
        return Decision(np.where(seat.mask != 0, sums, -np.inf).argmax(1).astype(np.int32))


def search_of(name: str) -> SearchPlayer:
    """ "search:200" has 200 completions, "search:5ms" so long; "search:9:online" has others play `online`."""
    _, _, rest = name.partition(":")
    budget, _, model = rest.partition(":")
    number, unit = (budget[:-2], "ms") if budget.endswith("ms") else (budget, "completions")
    try:
        value = float(number or COMPLETIONS)
    except ValueError:
        value = 0.0
    whole = unit == "ms" or value == int(value)
    if not (0 < value <= MOST and whole) or (":" in name and not rest):
        raise ConfigError(
            f"{name}: expected search:COMPLETIONS or search:MILLISECONDSms, from 1 to {MOST}; for example "
            "search:200, search:5ms, search:200:online"
        )
    if unit == "ms":
        player = SearchPlayer(MOST, seconds=value / 1000, model=model)
    else:
        player = SearchPlayer(int(value), model=model)
    player.name = name
    return player


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

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        assert seat.mask is not None
        logits = self.policy.forward(np.ascontiguousarray(seat.obs), seat.mask)[0].astype(np.float64)
        logits[seat.mask == 0] = -np.inf
        odds = logits - logits.max(1, keepdims=True)
        odds -= np.log(np.exp(odds).sum(1, keepdims=True))
        thought = (odds >= np.log(THOUGHT)) | (odds == odds.max(1, keepdims=True))
        bits = np.uint64(1) << np.arange(odds.shape[1], dtype=np.uint64)
        among = (thought * bits).sum(1, dtype=np.uint64)
        own = _own(seat, rng_key)
        if self.plies < 0:
            values = world.action_values(seat.rows, self.completions, own, self.threads, among)
        else:
            how = (self.completions, self.plies)
            values = world.leaf_values(seat.rows, how, own, among, self._judge)
        return Decision(np.where(thought, values + PRIOR * odds, -np.inf).argmax(1).astype(np.int32))

    def _judge(self, obs: Floats) -> Floats:
        return np.asarray(self.policy.forward(obs)[1], np.float32)


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
    if role in BOTS and name.partition(":")[0] == "search":
        return search_of(name)
    check_bot(BOTS, name, role)
    return ScriptedPlayer(name)
