"""Capabilities: what a game offers beyond being played. A Game has None for each one that it does not offer.

A capability is a record of functions and values, so that whoever uses one reads a typed attribute and
compares it with None, and never asks an object for a name that it may not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rematch.core.player import Player
from rematch.core.spec import Ladder, Level

if TYPE_CHECKING:
    from PIL.Image import Image

Row = dict[str, Any]  # one record of results, as it is printed or written to JSON
Draw = Callable[[Any, int, list[Any]], "Image"]  # (world, row, trail) -> a picture
FindPlayer = Callable[..., Player]  # (name, world, rules, role) -> the player of that name


@dataclass(frozen=True, kw_only=True)
class Renderer:
    """Draws pictures of games, for films."""

    draw: Draw
    """(world, row, trail) -> a picture of that game now. The caller keeps `trail` for the renderer, which
    appends one entry per picture, and empties it when the game restarts."""


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Levels for a curriculum. The worlds of such a game can restart all their games at once."""

    build: Callable[[Any, Ladder], list[Level]]
    """(settings, ladder) -> levels from the easiest starts to the whole game."""


@dataclass(frozen=True, kw_only=True)
class Savestates:
    """The worlds of this game can store running games and start episodes from stored ones."""

    explorer: str  # name of the bot that looks for new states at random


@dataclass(frozen=True, kw_only=True)
class Search:
    """The worlds of this game can say what actions are worth, by playing games to their end."""

    guide: Callable[[Any, str], Player]
    """(policy, budget) -> a player that searches among the actions which the policy thinks likely."""
    leaf_values: bool = False  # whether a search can stop after some turns and ask a value function


@dataclass(frozen=True, kw_only=True)
class Solver:
    """Exact results."""

    nash_conv: Callable[[Any, Mapping[str, Any], int], Row]
    """(settings, players by role, threads) -> a record with `nash_conv`, or with the reason in `refused`."""
    solve: Callable[[Any, int, Path | None], Row] | None = None
    """(settings, threads, file for a picture) -> the exact value of the game: `rematch solve`."""
    picture: Callable[[Any, Mapping[str, Any], int], bytes] | None = None
    """(settings, players by role, threads) -> a PNG of the starts that players lose to a best response."""


@dataclass(frozen=True, kw_only=True)
class Human:
    """What a game offers to people: games in the terminal, bots of their own, measured best responses."""

    play: Callable[[Sequence[str], FindPlayer], int]
    """(words of the command line, a function that finds players by name) -> exit code."""
    settings: Callable[[], Any]
    """The settings of `play`, for its help."""
    user_bot: Callable[[str, Any, float], Player] | None = None
    """(module:Class, settings, seconds per move, 0 for the usual) -> a bot that a user wrote."""
    best_known: Callable[[str, Any], Row | None] | None = None
    """(opponent, settings) -> the best response to it that was measured, or None."""


@dataclass(frozen=True, kw_only=True)
class CardGameSpeed:
    """What `rematch bench` times beside card games of other libraries."""

    subjects: Sequence[Any]  # each plays games for some seconds (bench/timing.py, Subject)
    targets: Mapping[str, float]  # key of a subject -> games per second that one core should reach
    two_threads: float  # speed of two threads over one that should be reached


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What is special about timing this game."""

    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of a timed run: world.KEY -> value
    measure: Callable[[float], tuple[Row, list[str]]] | None = None
    """(seconds) -> a record and lines to print, instead of the usual measurements."""
    recipe: tuple[str, float] | None = None  # a recipe whose training is timed, and steps/s to reach
    card_game: Callable[[], CardGameSpeed] | None = None
    """What is timed beside card games of other libraries, instead of the usual measurements."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Facts about a game that other parts need, each with the usual answer."""

    short: Callable[[Any], Any] | None = None
    """(settings) -> the same rules with games that end within the few steps of `rematch check`."""
    rate_names: Mapping[str, str] = field(default_factory=dict)  # role -> name of its win rate in logs
    indifferent: tuple[str, ...] = ()  # settings that may differ from those that a policy was trained with
    random: bool = True  # False: nothing in a game is random, so a greedy player repeats one game
    slow_bots: tuple[str, ...] = ()  # bots that only play where they are asked for by name
    evaluation_games: int = 1000  # games of an evaluation that names no number
