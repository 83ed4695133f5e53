"""Beasty Bar for two to four players; N games step together.

Every seat plays the role `player` and acts in its turn. A seat observes the line as categories (owner and
species per place), sets of cards as bits (its hand; for every player the unseen cards, the bar and THAT'S IT)
and counts. Players are numbered relative to the seat: 0 is the seat itself, 1 the player after it. Hidden are
the hands of the others and the order of every deck.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core import rng
from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.config import validate
from rematch.core.errors import WorldError
from rematch.core.player import RngKey
from rematch.core.spec import Actions, Field, Quantity, Role, Spec
from rematch.core.stepping import concat_fields
from rematch.core.world import View
from rematch.worlds.native_world import NativeWorld, StateObservations, blank_view, first_next

from . import native
from .bots import PLAYOUT_BOT
from .config import ACTIONS, POINTS, SPECIES, STRENGTH, Config
from .state import PLACES, State, StateError, pack, unpack

Bits = NDArray[np.uint64]
PolicyFunction = Callable[[Floats], tuple[Floats, Floats]]  # observations -> logits, values

ROLE = "player"
NAME = __name__.split(".")[-2]  # name of this folder, so that a copied folder is another game


def make(config: Config, games: int, first: int = 0, seed: int = 0) -> BeastyWorld:
    """`games` games, numbered from `first`; the key of game i is derived from (seed, first + i)."""
    spec = make_spec(config)
    next = first_next(spec, games, first, seed)
    states = np.zeros((games, native.GAME_TYPE.itemsize), np.uint8)
    shared = _Shared(native.Core(config.values()), spec)
    world = BeastyWorld(config, shared, (states, blank_view(spec, games, masked=True), next), first)
    world.restart()
    return world


def make_spec(config: Config) -> Spec:
    """The spec of a world with these settings."""
    validate(config)
    actions = Actions(kind="discrete", names=ACTIONS)
    hidden = ("other players' hands", "the order of the decks")
    role = Role(
        name=ROLE, fields=_fields(config), actions=actions, seats=tuple(range(config.players)), hidden=hidden,
        privileged=_privileged(config),
    )  # fmt: skip
    return Spec(world=NAME, roles={ROLE: role})


def _fields(config: Config) -> tuple[Field, ...]:
    """The fields that observation.h writes."""
    players = range(config.players)
    sets = ["hand"]
    for player in players:
        sets += [f"unseen_{player}" if player else "deck", f"bar_{player}", f"out_{player}"]
    categories = 1 + len(SPECIES) * config.players
    counts = [
        f"{name}_{player}" for player in players for name in ("points", "animals", "deck", "hand", "turn")
    ]
    return (
        Field(name="line", columns=tuple(f"place_{i}" for i in range(PLACES)), low=0.0,
              high=float(categories - 1), categories=(categories,) * PLACES),
        Field(name="cards", columns=tuple(f"{group}_{name}" for group in sets for name in SPECIES), low=0.0,
              quantities=(_count("cards", 1),) * (len(sets) * len(SPECIES))),
        Field(name="counts", columns=(*counts, "in_line", "to_come"), low=0.0, quantities=(
            *(_count("points", 36), _count("cards", 12), _count("cards", 8), _count("cards", 4),
              _count("0 or 1", 1)) * config.players,
            _count("cards", 4), _count("turns", len(SPECIES) * config.players))),
    )  # fmt: skip


def _count(unit: str, most: int) -> Quantity:
    """A count, observed as a fraction of its maximum (observation.h)."""
    return Quantity(unit=unit, half=float(most), low=0.0)


def _privileged(config: Config) -> tuple[Field, ...]:
    """Privileged observation for a critic: the hands of the others, the next card of every player."""
    players = range(config.players)
    hands = tuple(f"hand_{player}_{name}" for player in players[1:] for name in SPECIES)
    categories = (len(SPECIES) + 1,) * config.players  # 0: the deck is empty
    return (
        Field(name="hands", columns=hands, low=0.0),
        Field(name="next", columns=tuple(f"next_{player}" for player in players), low=0.0,
              high=float(len(SPECIES)), categories=categories),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Shared:
    """Objects that a world shares with its parts."""

    rules: native.Core
    spec: Spec


@dataclasses.dataclass
class BarPoints:
    """Points of the animals in the bar (rematch.core.world.PointCounter)."""

    world: BeastyWorld

    def after(self, actions: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        return self.world.points_after(actions)


@dataclasses.dataclass(frozen=True)
class _Playing:
    """How the leaves of a search are played on."""

    players: Ints  # [n, k] the number of the bot that plays a seat, or -1 for a policy
    play: Callable[[Bytes], None]  # plays leaves [m, S] on, in place
    estimate: Callable[[Bytes, Ints], Floats]  # values of running leaves for the seats [m] that searched


class BeastyWorld(NativeWorld):
    """See rematch.core.world.World."""

    config: Config
    shared: _Shared
    game_type = native.GAME_TYPE

    def _attach(self) -> None:
        self._games = native.Games(self.shared.rules, self._states, self.view, self.next)

    # --- stepping -----------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]], threads: int = 1) -> View:
        """One turn in every game: actions player -> [N, k]; only the action of the player to move is read."""
        chosen = self._discrete_actions(actions, ROLE)
        illegal = self._games.step(chosen, threads)
        if illegal >= 0:
            seat = int(self._named["turn"][illegal])
            action = int(chosen[illegal, seat])
            name = ACTIONS[action] if 0 <= action < len(ACTIONS) else "no action"
            raise WorldError(
                f"game {self.first + illegal}: action {action} ({name}) of player {seat} is not legal; "
                f"legal are {', '.join(str(a) for a in self.legal(illegal))}"
            )
        return self.view

    def restart(self) -> None:
        """Restart every game from `next`, as its episode 0."""
        self._games.start(0)
        self._clear_results(slice(None))

    def random_steps(self, steps: int, seed: int, threads: int = 1) -> int:
        """Play random steps, with all arrays written; returns the number of ended games. For benchmarks."""
        before = self._named["episode"].sum(dtype=np.int64)
        self._games.random_steps(steps, seed, threads)
        return int(self._named["episode"].sum(dtype=np.int64) - before)

    # --- reading ------------------------------------------------------------------------------------------

    def legal(self, row: int) -> list[int]:
        """Ids of the legal actions of the player to move in this game."""
        bits = int(self.shared.rules.legal(self.save(np.array([row], np.int32)))[0])
        return [action for action in range(len(ACTIONS)) if bits >> action & 1]

    @property
    def points(self) -> BarPoints:
        return BarPoints(self)

    def points_after(self, actions: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """[N, k] points of all players in games that these actions end; NaN in the other games."""
        after, chosen = self._states.copy(), self._discrete_actions(actions, ROLE)
        mover = self._named["turn"].reshape(-1)
        played = np.ascontiguousarray(chosen[np.arange(self.games), mover])
        ended = self.shared.rules.turn(after, played) != 0
        bars = after.view(self.game_type)[:, 0]["bar"][ended, : self.config.players]
        out = np.full((self.games, self.config.players), np.nan)
        out[ended] = sum((bars >> strength & 1) * POINTS[name] for name, strength in STRENGTH.items())
        return out

    def read(self, rows: Ints) -> list[State]:
        """These games as readable states (state.py)."""
        return unpack(self.save(rows), self.config)

    def write(self, rows: Ints, states: list[State]) -> None:
        """Set these games to the given states; StateError where one is impossible."""
        self.load(rows, pack(states, self.config))

    def _observe_states(self, states: Bytes) -> StateObservations:
        view = blank_view(self.spec, len(states), masked=True)
        self.shared.rules.observe(states, view.fields[ROLE], view.mask[ROLE], view.acting)
        return StateObservations(view.fields, view.acting, view.mask)

    # --- bots and search ----------------------------------------------------------------------------------

    def bot_actions(self, rows: Ints, bot: int, rng_key: RngKey) -> Ints:
        """[n] the actions of a bot, by its number in bots.h, for the players to move."""
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        key = (rng_key.seed, rng_key.stream, rng_key.step)
        return self.shared.rules.decide(self.save(rows), numbers, bot, key)

    def search(
        self, rows: Ints, playouts: tuple[int, int, int, int], rng_key: RngKey, threads: int = 1
    ) -> tuple[NDArray[np.float64], Ints]:
        """[n, 33] sums of action values over completions, and [n] the best actions.

        playouts: (bot of the player to move, first completion, end of completions, bot of the others).
        """
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        key = (rng_key.seed, rng_key.stream, rng_key.step)
        return self.shared.rules.search(self.save(rows), numbers, playouts, key, threads)

    def action_values(
        self, rows: Ints, completions: int, rng_key: RngKey, threads: int = 1, candidates: Bits | None = None
    ) -> NDArray[np.float64]:
        """[n, 33] expected values of the actions for the player to move, from playouts.

        A value is the reward plus 0.01 times the difference of scores; NaN where an action is not legal, or
        not in the bits `candidates` [n].
        """
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        playouts = (PLAYOUT_BOT, 0, completions, PLAYOUT_BOT)
        key = (rng_key.seed, rng_key.stream, rng_key.step)
        return self.shared.rules.values(self.save(rows), numbers, playouts, key, threads, candidates)[0]

    def leaf_values(
        self, rows: Ints, budget: tuple[int, int], rng_key: RngKey, candidates: Bits | None,
        value_function: Callable[[Floats], Floats],
    ) -> NDArray[np.float64]:  # fmt: skip
        """As `action_values`, for two players, with playouts that end in a leaf value.

        budget: (completions, turns between an action and its leaf); value_function: observations [m, F] of
        the player to move -> values [m]. Positions with empty decks are solved exactly.
        """

        def estimate(leaf: Bytes, searcher: Ints) -> Floats:
            mover = leaf.view(self.game_type)[:, 0]["turn"]
            return value_function(self._observed(leaf)[0]) * np.where(mover == searcher, 1, -1)

        players = np.full((len(rows), self.spec.seats), PLAYOUT_BOT, np.int32)
        playing = _Playing(players, lambda leaf: None, estimate)
        return self._leaf_means(rows, budget, rng_key, candidates, playing)

    def policy_values(
        self, rows: Ints, budget: tuple[int, int], rng_key: RngKey, players: Ints, policy: PolicyFunction,
        candidates: Bits | None = None,
    ) -> NDArray[np.float64]:  # fmt: skip
        """As `action_values`, with playouts of a policy and bots.

        budget: (completions, turns after which the policy's value ends a playout, for two players; -1: none);
        players [n, k]: the number of the bot that plays a seat, or -1 for the policy; policy: observations
        [m, F] of the player to move -> logits [m, 33] and values [m].
        """
        rules, turns = self.shared.rules, budget[1]

        def play(leaf: Bytes) -> None:
            for _ in range(turns if turns >= 0 else len(SPECIES) * self.spec.seats):
                running = ~rules.final_values(leaf, np.zeros(len(leaf), np.int32))[0]
                if not running.any():
                    break
                logits = np.zeros((len(leaf), len(ACTIONS)), np.float32)
                logits[running] = policy(self._observed(leaf[running])[0])[0]
                rules.leaf_turns(leaf, logits)

        def estimate(leaf: Bytes, searcher: Ints) -> Floats:
            mover = leaf.view(self.game_type)[:, 0]["turn"]
            return policy(self._observed(leaf)[0])[1] * np.where(mover == searcher, 1, -1)

        playing = _Playing(players, play, estimate)
        return self._leaf_means(rows, (budget[0], 0), rng_key, candidates, playing)

    def _leaf_means(
        self, rows: Ints, budget: tuple[int, int], rng_key: RngKey, candidates: Bits | None, playing: _Playing
    ) -> NDArray[np.float64]:
        """[n, 33] means over completions."""
        rules, states = self.shared.rules, self.save(rows)
        candidates = rules.legal(states) if candidates is None else candidates & rules.legal(states)
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        key = (rng_key.seed, rng_key.stream, rng_key.step)
        values = np.full((len(states), len(ACTIONS)), np.nan)
        solvable = (states.view(self.game_type)[:, 0]["deck"] == 0).all(1) & (self.spec.seats == 2)
        if solvable.any():
            playouts = (PLAYOUT_BOT, 0, 1, PLAYOUT_BOT)
            values[solvable] = rules.values(
                states[solvable], numbers[solvable], playouts, key, 1, candidates[solvable]
            )[0]
        searched = ~solvable
        states, candidates, completions = states[searched], candidates[searched], budget[0]
        counts = np.array([int(bits).bit_count() for bits in candidates], np.int64)
        starts = np.concatenate([[0], np.cumsum(counts * completions)]).astype(np.int64)
        playouts = (PLAYOUT_BOT, 0, *budget)
        chosen = np.ascontiguousarray(playing.players[searched], np.int32)
        leaf = rules.leaves(states, numbers[searched], playouts, key, candidates, starts, chosen)
        playing.play(leaf)
        searcher = np.repeat(states.view(self.game_type)[:, 0]["turn"].reshape(-1), counts * completions)
        searcher = searcher.astype(np.int32)
        ended, final = rules.final_values(leaf, searcher)
        value = final.astype(np.float64)  # means over many leaves
        if not ended.all():
            value[~ended] = playing.estimate(leaf[~ended], searcher[~ended])
        for row, index in enumerate(np.flatnonzero(searched)):
            actions = [a for a in range(len(ACTIONS)) if int(candidates[row]) >> a & 1]
            row_values = value[starts[row] : starts[row + 1]].reshape(completions, -1)
            values[index, actions] = row_values.mean(0)
        return values

    def _observed(self, states: Bytes) -> tuple[Floats, Ints]:
        """Observations [n, F] of the players to move in these games, and their seats [n]."""
        view = blank_view(self.spec, len(states), masked=True)
        states = np.ascontiguousarray(states)
        self.shared.rules.observe(states, view.fields[ROLE], view.mask[ROLE], view.acting)
        mover = states.view(self.game_type)[:, 0]["turn"].reshape(-1)
        obs = concat_fields(self.spec.roles[ROLE], view.fields[ROLE])[np.arange(len(states)), mover]
        return np.ascontiguousarray(obs), mover

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """[n, S] the same games with resampled cards that this seat cannot see: hands and decks."""
        states = self.save(rows)
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        self.shared.rules.resample(states, numbers, seat, key & 0xFFFFFFFFFFFFFFFF, rng.RESET)
        return states

    # --- saved games ----------------------------------------------------------------------------------

    def _check_states(self, states: Bytes) -> None:
        valid = self.shared.rules.valid(states) != 0
        if valid.all():
            return
        row = int(np.flatnonzero(~valid)[0])
        reason = "the bytes are no game of this world"
        if states[row].view(self.game_type)["mark"][0] == native.MARK:
            try:
                unpack(states[row : row + 1], self.config)
            except StateError as error:
                reason = str(error)
        raise WorldError(f"saved games: {row}: {reason}")
