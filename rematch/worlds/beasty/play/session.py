"""One game with a person at the table: turns, undo, hints, review. The terminal and the page share it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematch.core import rng
from rematch.core.arrays import Bytes
from rematch.core.errors import ConfigError
from rematch.core.player import Player, RngKey, SubprocessPlayer
from rematch.core.stepping import seat_at

from .. import reference
from ..config import ACTS, STRENGTH, Config
from ..hints import Mistake, MoveValue, best_action, evaluate_moves, largest_first, mistake_in
from ..state import State
from ..world import make

ROW = np.zeros(1, np.int32)
LETTERS = "ABCD"  # of players with the same title
MIN_LOSS = 0.02  # loss in score from which a mistake is reviewed
YOU = "you"  # name of the person


class IllegalMove(ConfigError):
    """An action that the player to move does not have."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """What is decided before the first turn: rules, deal, and the players by seat (None: the person)."""

    rules: Config
    seed: int  # of the deal and of the opponents' random numbers
    players: tuple[Player | None, ...]
    names: tuple[str, ...]
    completions: int  # deals that the search samples for hints and for the review

    @property
    def person(self) -> int | None:
        """The seat of the person; None where no person plays."""
        return next((seat for seat, player in enumerate(self.players) if player is None), None)


@dataclass(frozen=True)
class Turn:
    """One turn: the saved game and the state before it, the action, and the state after it."""

    saved: Bytes
    before: State
    action: int
    after: State


@dataclass(frozen=True)
class Chance:
    """The value of a position for the person: of the best move, and of the move that was played."""

    step: int
    best: float
    played: float


def seat_names(titles: Sequence[str]) -> tuple[str, ...]:
    """Names by seat: equal titles of opponents get a letter, "random A" and "random B"."""
    names = []
    for seat, title in enumerate(titles):
        same = [other for other in range(len(titles)) if titles[other] == title]
        is_one = title == YOU or len(same) == 1
        names.append(title if is_one else f"{title} {LETTERS[same.index(seat)]}")
    return tuple(names)


class PlaySession:
    """A game in progress: its turns so far and what may be done now."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.world = make(table.rules, 1, seed=rng.key(table.seed, rng.GAME))
        self.turns: list[Turn] = []
        self.state = self.world.read(ROW)[0]
        self.resigned = False  # the person has given up
        self.forfeit: tuple[int, str] | None = None  # seat and reason of an opponent that has failed
        self._values: dict[int, dict[int, MoveValue]] = {}  # step -> values of the legal actions

    # --- turns ---

    @property
    def step(self) -> int:
        return len(self.turns)

    @property
    def is_over(self) -> bool:
        return self.resigned or self.forfeit is not None or reference.is_over(self.state)

    @property
    def is_persons_turn(self) -> bool:
        return not self.is_over and self.state.turn == self.table.person

    def legal(self) -> list[int]:
        """The legal actions, sorted by strength of the card; none after the end."""
        if self.is_over:
            return []
        return legal_moves(self.state, self.table.rules)

    def play(self, action: int) -> Turn:
        """Play an action of the player to move; IllegalMove where it is none."""
        if action not in self.legal():
            raise IllegalMove(f"action {action} is not a legal move now")
        before = self.state
        turn = Turn(self.world.save(ROW), before, action, reference.play(before, action, self.table.rules))
        self.turns.append(turn)
        self.state = turn.after
        self.world.step({"player": np.full((1, self.table.rules.players), action, np.int32)})
        return turn

    def play_opponent(self) -> Turn | None:
        """The turn of the opponent to move; None where it fails, which is a forfeit."""
        seat = self.state.turn
        player = self.table.players[seat]
        assert player is not None and not self.is_over
        rng_key = RngKey(rng.key(self.table.seed, rng.BOT), rng.BOT, self.state.step)
        decision = player.act(seat_at(self.world, seat, ROW), rng_key)
        if decision.resigned is not None and decision.resigned[0]:
            errors = player.errors if isinstance(player, SubprocessPlayer) else {}
            self.forfeit = seat, next(iter(errors.values()), "it resigned")
            return None
        return self.play(int(decision.action[0]))

    def play_opponents(self) -> list[Turn]:
        """The turns of the opponents until the person is to move, or the game is over."""
        turns = []
        while not self.is_over and not self.is_persons_turn:
            turn = self.play_opponent()
            turns += [turn] if turn else []
        return turns

    def replay(self, actions: Sequence[int]) -> None:
        """Play stored actions; IllegalMove where one is not legal."""
        for action in actions:
            self.play(action)

    def undo(self) -> int | None:
        """Return to the last decision of the person and give its action; None where there is none."""
        decisions = self.decisions()
        if not decisions:
            return None
        step = decisions[-1]
        turn = self.turns[step]
        self.state = turn.before
        self.world.load(ROW, turn.saved)
        del self.turns[step:]
        self._values = {key: values for key, values in self._values.items() if key <= step}
        self.resigned, self.forfeit = False, None
        return turn.action

    def resign(self) -> None:
        self.resigned = True

    # --- values of moves ---

    @property
    def reviewed_seat(self) -> int:
        """The seat whose moves are reviewed: the person's, or the first one."""
        return self.table.person or 0

    def decisions(self) -> list[int]:
        """The steps at which the reviewed seat has played."""
        return [step for step, turn in enumerate(self.turns) if turn.before.turn == self.reviewed_seat]

    def values(self, step: int | None = None) -> dict[int, MoveValue]:
        """The values of the legal actions before the turn of this step; default: now."""
        step = self.step if step is None else step
        if step not in self._values:
            saved = self.turns[step].saved if step < self.step else self.world.save(ROW)
            self._values[step] = evaluate_moves(saved, self.table.rules, self.table.completions)
        return self._values[step]

    def mistakes(self) -> list[Mistake]:
        """The moves that cost something, the largest loss first."""
        mistakes = largest_first(
            mistake_in(step, self.turns[step].action, self.values(step)) for step in self.decisions()
        )
        return [mistake for mistake in mistakes
                if mistake.cost[0] >= MIN_LOSS or mistake.best_value.difference is not None]

    def chances(self) -> list[Chance]:
        """The chance to win at each decision; a position with one legal move has the chance of the next.

        None where the scoring is `count`: the search then only ranks moves.
        """
        if self.table.rules.scoring != "points":
            return []
        chances = []
        for step in self.decisions():
            values, action = self.values(step), self.turns[step].action
            best = values[best_action(values, action)].score
            if math.isfinite(best):
                chances.append(Chance(step, best, values[action].score))
        return chances

    # --- the end ---

    def outcomes(self) -> list[float] | None:
        """The result of each seat, from 0 (lost) to 1 (won); None while the game runs."""
        if not self.is_over:
            return None
        seat = self.table.person if self.resigned else self.forfeit[0] if self.forfeit else None
        if seat is None:
            return reference.outcomes(self.state, self.table.rules)
        others = 1.0 if self.state.players == 2 else 0.5
        return [0.0 if player == seat else others for player in range(self.state.players)]


def legal_moves(state: State, rules: Config) -> list[int]:
    """The legal actions of a state, sorted by strength of the card."""
    return sorted(reference.legal(state, rules), key=lambda a: (STRENGTH[ACTS[a].card], a))
