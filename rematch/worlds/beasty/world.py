"""Beasty Bar for two to four players; N games step together.

Every seat plays the role `player` and moves when it is its turn. A seat sees the line as things to look up
(who stands there), sets of cards as bits (its hand; of every player what is unseen, in the bar, out) and
counts. Players are counted from the seat: 0 is itself, 1 who plays next. Hidden are the others' hands and the
order of every deck.
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
from rematch.core.spec import Actions, Field, Role, Spec
from rematch.core.world import View
from rematch.worlds.native_world import NativeWorld, StateObservations, blank_view, first_next

from . import native
from .bots import PLAYOUT
from .config import ACTIONS, POINTS, SPECIES, STRENGTH, Config
from .state import PLACES, State, StateError, pack, unpack

Bits = NDArray[np.uint64]

ROLE = "player"
NAME = __name__.split(".")[-2]  # of this folder: a copied folder is a game with a name of its own


def make(config: Config, games: int, first: int = 0, seed: int = 0) -> BeastyWorld:
    """`games` games, numbered from `first`; game i is dealt from a key of (seed, first + i)."""
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
    act = Actions(kind="discrete", names=ACTIONS)
    hidden = ("other players' hands", "the order of the decks")
    role = Role(
        name=ROLE, fields=_fields(config), actions=act, seats=tuple(range(config.players)), hidden=hidden,
        privileged=_privileged(config),
    )  # fmt: skip
    return Spec(world=NAME, roles={ROLE: role})


def _fields(config: Config) -> tuple[Field, ...]:
    """As observation.h writes them."""
    players = range(config.players)
    sets = ["hand"]
    for player in players:
        sets += [f"unseen_{player}" if player else "deck", f"bar_{player}", f"out_{player}"]
    who = 1 + len(SPECIES) * config.players
    counts = [
        f"{what}_{player}" for player in players for what in ("points", "animals", "deck", "hand", "turn")
    ]
    return (
        Field(name="line", columns=tuple(f"place_{i}" for i in range(PLACES)), low=0.0, high=float(who - 1),
              categories=(who,) * PLACES),
        Field(name="cards", columns=tuple(f"{which}_{name}" for which in sets for name in SPECIES), low=0.0),
        Field(name="counts", columns=(*counts, "in_line", "to_come"), low=0.0),
    )  # fmt: skip


def _privileged(config: Config) -> tuple[Field, ...]:
    """What a critic may see while training, and no actor ever: others' hands, everybody's next card."""
    players = range(config.players)
    hands = tuple(f"hand_{player}_{name}" for player in players[1:] for name in SPECIES)
    nexts = (len(SPECIES) + 1,) * config.players  # 0: that deck is empty
    return (
        Field(name="hands", columns=hands, low=0.0),
        Field(name="next", columns=tuple(f"next_{player}" for player in players), low=0.0,
              high=float(len(SPECIES)), categories=nexts),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Shared:
    """What a world and its parts have in common."""

    rules: native.Core
    spec: Spec


@dataclasses.dataclass
class BarPoints:
    """Points of the animals in the bar (rematch.core.world.PointCounter)."""

    world: BeastyWorld

    def after(self, actions: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        return self.world.points_after(actions)


class BeastyWorld(NativeWorld):
    """See rematch.core.world.World."""

    config: Config
    shared: _Shared
    game_type = native.GAME_TYPE

    def _attach(self) -> None:
        self._games = native.Games(self.shared.rules, self._states, self.view, self.next)

    # --- moving ---------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, NDArray[Any]], threads: int = 1) -> View:
        """One turn in every game: actions player -> [N, k], of which only the mover's counts."""
        chosen = self._discrete_actions(actions, ROLE)
        bad = self._games.step(chosen, threads)
        if bad >= 0:
            seat = int(self._named["turn"][bad])
            action = int(chosen[bad, seat])
            told = ACTIONS[action] if 0 <= action < len(ACTIONS) else "no action"
            raise WorldError(
                f"game {self.first + bad}: action {action} ({told}) of player {seat} is not legal; "
                f"legal are {', '.join(str(a) for a in self.legal(bad))}"
            )
        return self.view

    def restart(self) -> None:
        """Begin every game anew from `next`, as its episode 0."""
        self._games.start(0)
        self._clear_results(slice(None))

    def stroll(self, steps: int, seed: int, threads: int = 1) -> int:
        """So many random steps, all arrays written; how many games ended. For measuring speed."""
        before = self._named["episode"].sum(dtype=np.int64)
        self._games.stroll(steps, seed, threads)
        return int(self._named["episode"].sum(dtype=np.int64) - before)

    # --- looking --------------------------------------------------------------------------------------

    def legal(self, row: int) -> list[int]:
        """Ids of the actions that whoever is to play in this game may take."""
        bits = int(self.shared.rules.legal(self.save(np.array([row], np.int32)))[0])
        return [action for action in range(len(ACTIONS)) if bits >> action & 1]

    @property
    def points(self) -> BarPoints:
        return BarPoints(self)

    def points_after(self, actions: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """[N, k] everybody's points in the bar in games that these actions end; nan in the others."""
        after, chosen = self._states.copy(), self._discrete_actions(actions, ROLE)
        mover = self._named["turn"].reshape(-1)
        over = self.shared.rules.turn(after, np.ascontiguousarray(chosen[np.arange(self.games), mover])) != 0
        bars = after.view(self.game_type)[:, 0]["bar"][over, : self.config.players]
        out = np.full((self.games, self.config.players), np.nan)
        out[over] = sum((bars >> strength & 1) * POINTS[name] for name, strength in STRENGTH.items())
        return out

    def read(self, rows: Ints) -> list[State]:
        """These games as people read them (state.py)."""
        return unpack(self.save(rows), self.config)

    def write(self, rows: Ints, states: list[State]) -> None:
        """Put positions into these games; impossible ones are refused with what is wrong."""
        self.load(rows, pack(states, self.config))

    def _observe_states(self, states: Bytes) -> StateObservations:
        view = blank_view(self.spec, len(states), masked=True)
        self.shared.rules.observe(states, view.fields[ROLE], view.mask[ROLE], view.acting)
        return StateObservations(view.fields, view.acting, view.mask)

    # --- players --------------------------------------------------------------------------------------

    def scripted(self, rows: Ints, bot: int, rng_key: RngKey) -> Ints:
        """[n] the actions of a bot, by its number in bots.h, for whoever is to play."""
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        key = (rng_key.seed, rng_key.stream, rng_key.step)
        return self.shared.rules.decide(self.save(rows), numbers, bot, key)

    def searched(
        self, rows: Ints, how: tuple[int, int, int, int], rng_key: RngKey, threads: int = 1
    ) -> tuple[NDArray[np.float64], Ints]:
        """[n, 33] sums over completions how[1] .. how[2] - 1, [n] best actions; played out by bot how[0],
        others by how[3]."""
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        return self.shared.rules.search(
            self.save(rows), numbers, how, (rng_key.seed, rng_key.stream, rng_key.step), threads
        )

    def action_values(
        self, rows: Ints, completions: int, rng_key: RngKey, threads: int = 1, among: Bits | None = None
    ) -> NDArray[np.float64]:
        """[n, 33] what each action may be expected to bring whoever is to play, by `search`'s playouts.

        The reward, and a hundredth of the difference of scores; not a number where an action is not legal, or
        not among these bits [n].
        """
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        how, key = (PLAYOUT, 0, completions, PLAYOUT), (rng_key.seed, rng_key.stream, rng_key.step)
        return self.shared.rules.values(self.save(rows), numbers, how, key, threads, among)[0]

    def leaf_values(
        self, rows: Ints, how: tuple[int, int], rng_key: RngKey, among: Bits | None,
        judge: Callable[[Floats], Floats],
    ) -> NDArray[np.float64]:  # fmt: skip
        """As `action_values` of two players; how[1] turns after each action `judge` values what a seat sees.

        how[0]: completions. Endings that can be solved are.
        """
        rules, states = self.shared.rules, self.save(rows)
        among = rules.legal(states) if among is None else among
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        key = (rng_key.seed, rng_key.stream, rng_key.step)
        values = np.full((len(states), len(ACTIONS)), np.nan)
        ending = (states.view(self.game_type)[:, 0]["deck"] == 0).all(1)
        if ending.any():
            exact = (states[ending], numbers[ending], (PLAYOUT, 0, 1, PLAYOUT), key, 1, among[ending])
            values[ending] = rules.values(*exact)[0]
        open = ~ending
        states, numbers, among = states[open], numbers[open], among[open] & rules.legal(states[open])
        counts = np.array([int(bits).bit_count() for bits in among], np.int64)
        at = np.concatenate([[0], np.cumsum(counts * how[0])]).astype(np.int64)
        leaf, over, worth = rules.leaves(states, numbers, (PLAYOUT, 0, *how), key, among, at)
        view = blank_view(self.spec, len(leaf), masked=True)
        rules.observe(leaf, view.fields[ROLE], view.mask[ROLE], view.acting)
        mover = leaf.view(self.game_type)[:, 0]["turn"]
        shown = [view.fields[ROLE][f.name] for f in self.spec.roles[ROLE].fields]
        obs = np.concatenate(shown, -1)[np.arange(len(leaf)), mover]
        searcher = np.repeat(states.view(self.game_type)[:, 0]["turn"], counts * how[0])
        said = judge(np.ascontiguousarray(obs)) * np.where(mover == searcher, 1, -1)
        worth = np.where(over != 0, worth, said)
        for row, place in enumerate(np.flatnonzero(open)):
            actions = [a for a in range(len(ACTIONS)) if int(among[row]) >> a & 1]
            values[place, actions] = worth[at[row] : at[row + 1]].reshape(how[0], -1).mean(0)
        return values

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        """[n, S] the same games with what this seat cannot see dealt anew: hands and decks."""
        states = self.save(rows)
        numbers = (self.first + self._rows(rows)).astype(np.int32)
        self.shared.rules.complete(states, numbers, seat, key & 0xFFFFFFFFFFFFFFFF, rng.RESET)
        return states

    # --- saved games ----------------------------------------------------------------------------------

    def _check_states(self, states: Bytes) -> None:
        fine = self.shared.rules.sound(states) != 0
        if fine.all():
            return
        row = int(np.flatnonzero(~fine)[0])
        why = "the bytes are no game of this world"
        if states[row].view(self.game_type)["mark"][0] == native.MARK:
            try:
                unpack(states[row : row + 1], self.config)
            except StateError as error:
                why = str(error)
        raise WorldError(f"saved games: {row}: {why}")
