"""Matches between players, with results per seat. Scores come from outcomes, never from rewards.

Where rewards do not add up to zero, mean returns are reported beside the score.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.arrays import Floats, Ints
from rematch.core.player import GreedyOption, Player
from rematch.core.spec import Spec
from rematch.core.stepping import SeatedPlayers, empty_actions
from rematch.core.system.interrupts import StopRequested
from rematch.core.system.progress import PROGRESS
from rematch.core.world import RUNNING, World
from rematch.evaluation.evaluation import STORED
from rematch.evaluation.statistics import Mean, effective_games, mean_by_deal, mean_interval, wilson

OPTIONAL = ("returned", "margin", "reached", "unfinished", "repeats")  # entries of a row that may be missing


@dataclass(frozen=True)
class Result:
    """Games of a player in a role against an opponent."""

    player: str
    role: str
    opponent: str
    games: int
    wins: int
    draws: int
    length: float  # mean steps of a game
    returned: Mean | None = None  # mean return, where the rewards of the seats do not add up to zero
    deals: int = 0  # deals that were played from every seat; 0: every game had its own deal
    effective: float = 0.0  # independent games with the same information about the score; 0: all games
    effective_wins: float = 0.0  # the same for the share of games won
    # points ahead of the best other player at the end, where the world counts points
    margin: Mean | None = None
    # milestone -> games that reached it, where the world has milestones
    reached: dict[str, int] | None = None
    unfinished: int | None = None  # games that the limit of steps broke off; None: the limit was not reached
    repeats: bool | None = None  # True: nothing was random, and more games would repeat these
    # always-valid intervals of the score and of the share of games won (evaluation/sequential_match.py)
    bounds: tuple[float, float] | None = None
    win_bounds: tuple[float, float] | None = None

    @property
    def score(self) -> float:
        return (self.wins + 0.5 * self.draws) / max(self.games, 1)

    @property
    def interval(self) -> tuple[float, float]:
        if self.bounds is not None:
            return self.bounds
        n = self.effective or self.games
        return wilson(self.score * n, n)

    @property
    def won(self) -> tuple[float, float, float]:
        """The share of games won and its interval; a draw is not won."""
        rate, n = self.wins / max(self.games, 1), self.effective_wins or self.games
        return (rate, *(self.win_bounds or wilson(rate * n, n)))

    def row(self) -> dict[str, Any]:
        """The row of history.json (evaluation.MatchRow)."""
        low, high = self.interval
        row = {STORED.get(name, name): value for name, value in asdict(self).items()}
        row |= {"score": self.score, "low": low, "high": high}
        row |= dict(zip(("win", "win_low", "win_high"), self.won))
        for name in ("bounds", "win_bounds"):  # they are in low and high
            del row[name]
        return {name: value for name, value in row.items() if value is not None or name not in OPTIONAL}


class Played(NamedTuple):
    """Whole games: outcomes [N, seats], steps [N], and the return of each seat [N, seats].

    `points` [N, seats] are the world's own points at the end; nan where it counts none.
    `reached` [N, M]: milestones that a game reached, where the world has any (Role.milestones of the first
    seat).
    """

    outcome: Floats
    length: Ints
    returns: NDArray[np.float64]
    points: NDArray[np.float64]
    reached: NDArray[np.bool_]
    unfinished: NDArray[np.bool_]  # [N] games that were broken off: half a point each, returns so far
    actions: NDArray[np.uint64]  # [N] hash of all actions of a game: equal games have equal ones

    def first_game(self) -> Played:
        """The first game alone."""
        columns: list[Any] = [array[:1] for array in self]
        return Played(*columns)


@dataclass(frozen=True)
class MatchKey:
    """The number of games of a match and what its random numbers are keyed by."""

    games: int
    index: int
    turn: int = 0


PlayElsewhere = Callable[[Sequence[Player], MatchKey], Played]  # players by seat


class ManyMatches(Protocol):
    """Plays many matches at a time (evaluation/cuda/matches.py)."""

    def play(
        self, board: Scoreboard, matches: Sequence[tuple[Sequence[Player], MatchKey]]
    ) -> list[Played | None]:
        """The games of each match, players by seat; None where it must be played one by one."""


def joined(parts: Sequence[Played]) -> Played:
    """The games of all parts, in order."""
    return Played(*(np.concatenate(arrays) for arrays in zip(*parts)))


Watch = Callable[[str], None]  # receives the progress of a match before each step; may raise StopRequested


def ignore(text: str) -> None:
    """Show no progress."""


@dataclass
class Progress:
    """The progress of the parts of a match, which are played on threads."""

    players: str
    games: int
    watch: Watch
    running: dict[int, int] = field(default_factory=dict)  # first game of a part -> games that still run
    cancelled: bool = False  # a part failed or was stopped: the others stop too

    def before_step(self, part: World, step: int, running: int) -> None:
        self.running[part.first] = running
        if self.cancelled:
            raise StopRequested("another part of the match was stopped")
        ended = self.games - sum(list(self.running.values()))
        PROGRESS.report(ended / self.games, self.players)
        self.watch(f"{self.players}: step {step:,}, {max(0, ended):,} of {self.games:,} games finished")


def play(
    world: World, players: Sequence[Player], seed: int, limit: int = sys.maxsize,
    before_step: Callable[[World, int, int], None] = lambda world, step, running: None,
) -> Played:  # fmt: skip
    """One whole game per copy, players by seat; games are broken off after `limit` steps.

    Every copy counts exactly once, so long games weigh as much as short ones. A player that resigns loses;
    with three or more players the others score half a point each. `before_step` receives the number of the
    step and of the games that still run.
    """
    spec, n = world.spec, world.games
    outcome: Floats = np.zeros((n, spec.seats), np.float32)
    length: Ints = np.zeros(n, np.int32)
    returns, points = np.zeros((n, spec.seats)), np.full((n, spec.seats), np.nan)
    milestones = spec.role_of(0).milestones
    reached = np.zeros((n, len(milestones)), bool)
    running, hashes = np.ones(n, bool), np.zeros(n, np.uint64)
    seats = range(spec.seats)
    seated = SeatedPlayers(dict(zip(seats, players)), dict.fromkeys(seats, seed), rng.ACT)
    step = 0
    while running.any() and step < limit:
        before_step(world, step, int(running.sum()))
        actions = first_legal_actions(world)
        resigned = seated.act(world, actions, step, running)
        gave_up = resigned.any(1)
        outcome[gave_up] = np.where(resigned[gave_up], 0.0, 1.0 if spec.seats == 2 else 0.5)
        length[gave_up] = step + 1
        running &= ~gave_up
        hashes[running] = _hash(hashes, actions)[running]
        final_points = points if world.points is None else world.points.after(actions)
        view = world.step(actions)
        returns += view.reward * running[:, None]
        if world.event_log is not None:
            for row, name in world.event_log.events:
                reached[row, milestones.index(name)] |= running[row]
        ended = running & (view.ended != RUNNING)
        outcome[ended] = view.outcome[ended]
        length[ended] = view.length[ended]
        points[ended] = final_points[ended]
        running &= ~ended
        step += 1
    outcome[running], length[running] = 0.5, step
    return Played(outcome, length, returns / spec.reward_scale, points, reached, running, hashes)


def _hash(hashes: NDArray[np.uint64], actions: Mapping[str, NDArray[Any]]) -> NDArray[np.uint64]:
    """[N] the hashes of games so far with the actions of one more step (FNV-1a over words)."""
    for array in actions.values():
        words = np.ascontiguousarray(array).view(np.uint32).reshape(len(array), -1)
        for column in words.T:
            hashes = (hashes ^ (column + np.uint64(1))) * np.uint64(0x100000001B3)
    return hashes


def first_legal_actions(world: World) -> dict[str, NDArray[Any]]:
    """Any legal action for every seat: games that are finished here go on being stepped."""
    actions = empty_actions(world)
    for role, mask in world.view.mask.items():
        if world.spec.roles[role].actions.kind == "discrete":
            actions[role][:] = mask.argmax(-1)
    return actions


def _margin(points: NDArray[np.float64], seat: int) -> NDArray[np.float64]:
    """[N] points of a seat minus those of the best other seat."""
    others = np.delete(points, seat, 1)
    return points[:, seat] - others.max(1) if others.shape[1] else np.full(len(points), np.nan)


@dataclass(frozen=True)
class Rotation:
    """One match of a set of mirrored deals: order[seat] is the index of the player that sits there."""

    order: list[int]
    match: Played
    repeats: bool = False  # nothing was random: more games would repeat this one
    first_deal: int = 0  # the number of its first deal among all deals of the players

    @property
    def deal(self) -> NDArray[np.int64]:
        """[N] the deal of each game."""
        return self.first_deal + np.arange(len(self.match.length))

    def column(self, name: str, player: int) -> NDArray[Any]:
        """[N] the values of a player's seat."""
        array: NDArray[Any] = getattr(self.match, name)[:, self.order.index(player)]
        return array


class Scoreboard:
    """Plays matches in worlds from one builder, `make(games, first, seed) -> World`, with some threads.

    `random` is False for a world without randomness: players without randomness repeat one game there, so a
    match of greedy policies and of bots that draw no random numbers has one game per seating. `watch`
    receives the progress before each step. `max_steps` limits the steps of a match, all its games together;
    games that run then are broken off.
    """

    def __init__(
        self, make: Callable[[int, int, int], World], seed: int, threads: int, random: bool = True,
        watch: Watch = ignore, max_steps: int = sys.maxsize,
    ) -> None:  # fmt: skip
        self.make, self.seed, self.threads, self.random = make, seed, threads, random
        self.watch, self.max_steps = watch, max_steps
        self.play_elsewhere: PlayElsewhere | None = None  # set where other processes play the matches
        self.many: ManyMatches | None = None  # set where a GPU plays the matches
        self.expected: dict[tuple[Any, ...], Played] = {}  # games that are played already

    @cached_property
    def spec(self) -> Spec:
        return self.make(1, 0, 0).spec

    def match(
        self, players: Sequence[Player], games: int, index: int, turn: int = 0, first: int = 0
    ) -> Played:
        """`games` games between players by seat; no two values of `index` share random numbers.

        Every `turn` of an index has the same deals, with random numbers of its own. The games have the
        numbers `first`, `first` + 1, ...; each depends on its number, not on the games beside it.
        """
        if not first and (elsewhere := self._played_elsewhere(players, MatchKey(games, index, turn))):
            return elsewhere
        world, seed = self.make(games, first, self.deal_seed(index)), self.deal_seed(index, turn)
        on_gpu = any(isinstance(player, Policy) and player.on_gpu for player in players)
        parts = world.parts(1 if on_gpu else max(1, min(self.threads, games)))
        names = " against ".join(dict.fromkeys(player.name for player in players))
        progress = Progress(names, games, self.watch, {part.first: part.games for part in parts})
        play_part = partial(play, players=players, seed=seed, limit=self.limit(games),
                            before_step=progress.before_step)
        if len(parts) == 1:
            return play_part(world)
        with ThreadPoolExecutor(len(parts)) as pool:
            try:
                played = list(pool.map(play_part, parts))
            except BaseException:  # a Ctrl-C must not wait until the other threads have played all games
                progress.cancelled = True
                raise
        return joined(played)

    def expect(self, matches: Sequence[tuple[Sequence[Player], int, int]]) -> None:
        """These matches (players, games, index) will be played: where a GPU plays, all at once now."""
        self.expected.clear()
        if self.many is None or len(self.spec.roles) == 1:
            return
        keys = [(players, MatchKey(games, index)) for players, games, index in matches]
        for (players, key), played in zip(keys, self.many.play(self, keys)):
            if played is not None:
                self.expected[*map(id, players), key] = played

    def _played_elsewhere(self, players: Sequence[Player], key: MatchKey) -> Played | None:
        """The games of a match that this process does not play on its threads; else None."""
        if self.play_elsewhere is not None:
            return self.play_elsewhere(players, key)
        if played := self.expected.pop((*map(id, players), key), None):
            return played
        return self.many.play(self, [(players, key)])[0] if self.many is not None else None

    def shard(
        self, players: Sequence[Player], key: MatchKey, games: range,
        before_step: Callable[[World, int, int], None],
    ) -> Played:  # fmt: skip
        """Some games of a match, the same as in the whole match."""
        world = self.make(len(games), games.start, self.deal_seed(key.index))
        return play(world, players, self.deal_seed(key.index, key.turn), self.limit(key.games), before_step)

    def deal_seed(self, index: int, turn: int = 0) -> int:
        """The key of the deals of a match; with a turn, that of the random numbers of its players."""
        seed = rng.key(self.seed, rng.EVALUATION, index & 0xFFFFFFFF, index >> 32)
        return rng.key(seed, rng.EVALUATION, turn) if turn else seed

    def limit(self, games: int) -> int:
        """Steps of each game, at most."""
        return max(1, self.max_steps // games)

    def results(self, players: Sequence[Player], games: int, index: int) -> list[Result]:
        """A result per seat. With several seats of one role, every player sits everywhere equally often.

        There each deal is played from every seat: game i of every rotation starts from the same key.
        """
        rotations = self._rotations(players, games, index)
        return [self._result(players, player, rotations) for player in range(len(players))]

    def _rotations(self, players: Sequence[Player], games: int, index: int) -> list[Rotation]:
        seats = self.spec.seats
        fixed_seats = len(self.spec.roles) > 1 or seats == 1
        if self._certain(players):
            games = min(games, 1 if fixed_seats else seats)  # more would repeat these
        if fixed_seats:
            return [self._rotation(players, list(range(seats)), self.match(players, games, index))]
        rotations = []
        for turn in PROGRESS.each(range(seats)):
            order = [(seat + turn) % seats for seat in range(seats)]
            share = games // seats + (turn < games % seats)
            if share:
                seated = [players[order[seat]] for seat in range(seats)]
                rotations.append(self._rotation(players, order, self.match(seated, share, index, turn)))
        return rotations

    def _certain(self, players: Sequence[Player]) -> bool:
        """Whether neither the world nor a player is random."""
        greedy = all(isinstance(player, GreedyOption) and player.greedy for player in players)
        return greedy and not self.random

    def _rotation(self, players: Sequence[Player], order: list[int], played: Played) -> Rotation:
        """The games of a seating; one of them where all are equal because nothing was random."""
        sampled = any(isinstance(player, GreedyOption) and not player.greedy for player in players)
        games = len(played.actions)
        if self.random or sampled or games == 1 or len(np.unique(played.actions)) > 1:
            return Rotation(order, played, repeats=self._certain(players))
        return Rotation(order, played.first_game(), repeats=True)

    def _result(self, players: Sequence[Player], player: int, rotations: Sequence[Rotation]) -> Result:
        """The games of one player in all rotations."""
        outcome, returns = (np.concatenate([rotation.column(name, player) for rotation in rotations])
                            for name in ("outcome", "returns"))
        steps = np.concatenate([rotation.match.length for rotation in rotations])
        deal = np.concatenate([rotation.deal for rotation in rotations])
        mirrored = len({tuple(rotation.order) for rotation in rotations}) > 1
        deals = len(np.unique(deal)) if mirrored else 0
        margin = np.concatenate([_margin(rotation.match.points, rotation.order.index(player))
                                 for rotation in rotations])
        milestones = self.spec.role_of(0).milestones
        reached = np.concatenate([rotation.match.reached for rotation in rotations]).sum(0).tolist()
        unfinished = sum(int(rotation.match.unfinished.sum()) for rotation in rotations)
        return Result(
            player=players[player].name,
            role=self.spec.role_of(player).name,
            opponent="+".join(other.name for i, other in enumerate(players) if i != player),
            games=len(outcome),
            wins=int((outcome > 0.75).sum()),
            draws=int((np.abs(outcome - 0.5) <= 0.25).sum()),
            length=float(steps.mean()),
            returned=None if self.spec.zero_sum else mean_interval(returns),
            deals=deals,
            effective=effective_games(outcome, deal) if deals else 0.0,
            effective_wins=effective_games(outcome > 0.75, deal) if deals else 0.0,
            margin=mean_by_deal(margin, deal),
            reached=dict(zip(milestones, reached)) if milestones else None,
            unfinished=unfinished or None,
            repeats=all(rotation.repeats for rotation in rotations) or None,
        )
