"""The bots of bots.h and the search of search.h as players."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Floats, Ints
from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Decision, RngKey, Seat
from rematch.core.system import cuda
from rematch.worlds.game import check_bot

from . import native
from .reference.bots import BOTS as NUMBERS

BOTS = {"player": (*NUMBERS, "search")}
COMPLETIONS, MAX_COMPLETIONS = 100, 10**6  # of `search`: default, limit
PLAYOUT_BOT = NUMBERS.index("outcome_heuristic")  # plays the games of a search to their end
MIN_PROBABILITY = 0.02  # a guided search skips actions that its policy plays less often
PRIOR_WEIGHT = 0.02  # factor of the policy's log-probability in a guided search
CHECK_EVERY = 10  # completions between two checks of the clock

if len(NUMBERS) != native.BOTS:
    raise ImportError(
        f"beasty: {len(NUMBERS)} bots in reference/bots.py; expected {native.BOTS}, as in bots.h"
    )


def _seat_key(seat: Seat, rng_key: RngKey) -> RngKey:
    """The random key of one seat."""
    return RngKey(rng.key(rng_key.seed, rng_key.stream, seat.seat), rng_key.stream, rng_key.step)


class ScriptedPlayer:
    """One of the ten bots. A move depends on game, key and step, not on the batch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = NUMBERS.index(name)

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        return Decision(world.bot_actions(seat.rows, self.number, _seat_key(seat, rng_key)))


class SearchPlayer:
    """Resamples the hidden cards `completions` times and plays every action out (search.h).

    `seconds` limits the time per game, after the first CHECK_EVERY completions; a search with a time limit is
    not reproducible. `model` is the bot that plays the other seats in playouts; empty: the same as `rollout`.
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

    def action_sums(self, world: Any, rows: Ints, rng_key: RngKey) -> tuple[NDArray[np.float64], Ints]:
        """[n, 33] sums of action values over the completions, and [n] the best actions."""
        playouts = self._playouts(0, self.completions)
        result: tuple[NDArray[np.float64], Ints] = world.search(rows, playouts, rng_key, self.threads)
        return result

    def _playouts(self, first: int, end: int) -> tuple[int, int, int, int]:
        return self._rollout, first, end, self._model

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        key, start_time = _seat_key(seat, rng_key), time.perf_counter()
        if not self.seconds:
            return Decision(self.action_sums(world, seat.rows, key)[1])
        sums: Any = 0.0
        for first in range(0, self.completions, CHECK_EVERY):
            end = min(first + CHECK_EVERY, self.completions)
            sums = sums + world.search(seat.rows, self._playouts(first, end), key, self.threads)[0]
            if time.perf_counter() - start_time > self.seconds * len(seat.rows):
                break
        assert seat.mask is not None
        return Decision(np.where(seat.mask != 0, sums, -np.inf).argmax(1).astype(np.int32))


def parse_search(name: str) -> SearchPlayer:
    """ "search:200": 200 completions; "search:5ms": 5 ms; "search:9:online": others play `online`."""
    _, _, options = name.partition(":")
    budget, _, model = options.partition(":")
    number, unit = (budget[:-2], "ms") if budget.endswith("ms") else (budget, "completions")
    try:
        value = float(number or COMPLETIONS)
    except ValueError:
        value = 0.0
    valid = unit == "ms" or value.is_integer()
    if not (0 < value <= MAX_COMPLETIONS and valid) or (":" in name and not options):
        raise ConfigError(
            f"{name}: expected search:COMPLETIONS or search:MILLISECONDSms, from 1 to {MAX_COMPLETIONS}; "
            "for example search:200, search:5ms, search:200:online"
        )
    if unit == "ms":
        player = SearchPlayer(MAX_COMPLETIONS, seconds=value / 1000, model=model)
    else:
        player = SearchPlayer(int(value), model=model)
    player.name = name
    return player


class GuidedSearch:
    """`search` over the likely actions of a policy, plus PRIOR_WEIGHT times their log-probability.

    Actions with a probability below MIN_PROBABILITY are not searched. `playouts` is one of PLAYOUTS, or the
    number of turns after which a playout of the bot ends in the policy's value; that needs two players and no
    privileged observation.
    """

    def __init__(
        self, policy: Any, completions: int = COMPLETIONS, playouts: str | int = "bot", threads: int = 1
    ) -> None:
        self.policy, self.threads = policy, threads
        self.completions, self.playouts = completions, playouts
        self.name = f"{policy.name}+search:{completions}" + (f":{playouts}" if playouts != "bot" else "")
        self.gpu: Any = None  # what searches there, made for the first decision
        if isinstance(playouts, int) and (policy.config.critic != "own" or len(policy.role.seats) != 2):
            raise ConfigError(
                f"{self.name}: PLIES need two players and network.critic own"
            )
        if playouts == "cuda" and (reason := cuda.no_gpu()):
            raise ConfigError(f"{self.name}: {reason}; expected policy in place of cuda")

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        assert seat.mask is not None
        logits = self.policy.forward(np.ascontiguousarray(seat.obs), seat.mask)[0].astype(np.float64)
        logits[seat.mask == 0] = -np.inf
        logp = logits - logits.max(1, keepdims=True)
        logp -= np.log(np.exp(logp).sum(1, keepdims=True))
        likely = (logp >= np.log(MIN_PROBABILITY)) | (logp == logp.max(1, keepdims=True))
        bits = np.uint64(1) << np.arange(logp.shape[1], dtype=np.uint64)
        candidates = (likely * bits).sum(1, dtype=np.uint64)
        values = self._values(seat, _seat_key(seat, rng_key), candidates)
        return Decision(np.where(likely, values + PRIOR_WEIGHT * logp, -np.inf).argmax(1).astype(np.int32))

    def _values(self, seat: Seat, key: RngKey, candidates: NDArray[np.uint64]) -> NDArray[np.float64]:
        """[n, 33] the values of the candidates."""
        world: Any = seat.world
        values: NDArray[np.float64]
        if self.playouts == "bot":
            values = world.action_values(seat.rows, self.completions, key, self.threads, candidates)
        elif isinstance(self.playouts, int):
            budget = (self.completions, self.playouts)
            values = world.leaf_values(seat.rows, budget, key, candidates, lambda obs: self._play(obs)[1])
        elif self.playouts == "policy":
            players = np.full((len(seat.rows), len(self.policy.role.seats)), -1, np.int32)
            budget = (self.completions, -1)
            values = world.policy_values(seat.rows, budget, key, players, self._play, candidates)
        else:
            if self.gpu is None:
                from .cuda_search import PolicySearch

                self.gpu = PolicySearch(self.policy, world.config)
            number = (world.first + np.asarray(seat.rows)).astype(np.int32)
            values = self.gpu.values(world.save(seat.rows), number, self.completions, key, candidates)
        return values

    def _play(self, obs: Floats) -> tuple[Floats, Floats]:
        logits, values = self.policy.forward(obs)[:2]
        return logits, np.asarray(values, np.float32)


MAX_PLIES = 1000  # turns of a playout
PLAYOUTS = ("bot", "policy", "cuda")  # players of the playouts; cuda: the policy, on the GPU


def guided_search(policy: Any, budget: str) -> GuidedSearch:
    """A search that `policy` guides; budget "", "COMPLETIONS", or that and ":PLIES" or ":" and a playout."""
    number, _, kind = (budget or str(COMPLETIONS)).partition(":")
    completions, plies = small_number(number) or 0, small_number(kind)
    known = kind in ("", *PLAYOUTS) or (plies is not None and plies <= MAX_PLIES)
    if not 1 <= completions <= MAX_COMPLETIONS or not known:
        raise ConfigError(
            f"search:{budget[:40]}: expected search:COMPLETIONS, search:COMPLETIONS:PLIES or "
            f"search:COMPLETIONS:PLAYOUTS with {', '.join(PLAYOUTS)}"
        )
    return GuidedSearch(policy, completions, kind or "bot" if plies is None else plies)


def small_number(text: str) -> int | None:
    """A whole number of at most nine digits; None: the text is something else."""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def bot_numbers(names: Sequence[str]) -> list[int]:
    """The numbers of scripted bots; -1 for other players."""
    return [NUMBERS.index(name) if name in NUMBERS else -1 for name in names]


def bot(name: str, role: str) -> ScriptedPlayer | SearchPlayer:
    """The bot `name` of a role; ConfigError where there is none."""
    if role in BOTS and name.partition(":")[0] == "search":
        return parse_search(name)
    check_bot(BOTS, name, role)
    return ScriptedPlayer(name)
