"""Capabilities: what a game offers beyond being played. A Game has None for each one that it does not offer.

A capability is a record of functions and values, so callers read a typed attribute and compare it with None;
no caller tests an object for a method that it may not have.
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
Place = tuple[int, int, int]  # map, y, x
FindPlayer = Callable[..., Player]  # (name, world, rules, role) -> the player of that name


@dataclass(frozen=True, kw_only=True)
class Renderer:
    """Draws pictures of games, for films."""

    draw: Draw
    """(world, row, trail) -> a picture of that game now. The renderer appends one entry per picture
    to `trail`; the caller stores the list and clears it when the game restarts."""
    steps_per_second: Callable[[Any], float] = lambda config: 1.0
    """(settings) -> steps that a film shows per second, so that a person can follow; 1 for games of turns."""


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Levels for a curriculum. The worlds of such a game can restart all their games at once."""

    build: Callable[[Any, Ladder], list[Level]]
    """(settings, ladder) -> levels from the easiest starts to the whole game."""


@dataclass(frozen=True, kw_only=True)
class Savestates:
    """The worlds of this game can store running games and start episodes from stored ones."""

    explorer: str  # name of the bot that explores at random
    pack: Callable[[Any], bytes]
    """(savestate) -> the content of a file."""
    unpack: Callable[[bytes], Any]
    """(content of a file) -> the savestate; ConfigError where it is damaged."""


@dataclass(frozen=True, kw_only=True)
class WorldMap:
    """The player walks on maps. A place is three numbers from 0 to 255: map, y, x; all are 0 before the game
    has begun."""

    columns: tuple[str, str, str]  # of the observation: map, y, x, each divided by 255
    names: Callable[[Any], Mapping[int, str]]
    """(settings) -> number of a map -> its name."""
    follow: Callable[[Any, Any, Sequence[int], Callable[[], None]], Sequence[Place]]
    """(world, savestate or None for power-on, inputs, before_input) -> the place at the start, and after each
    input. It plays beside the games of the world; `before_input` may raise StopRequested."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """The worlds of this game can estimate action values, by playing games to their end."""

    guide: Callable[[Any, str], Player]
    """(policy, budget) -> a player that searches the likely actions of the policy."""
    leaf_values: bool = False  # whether playouts can end after some turns in a value function
    bot_numbers: Callable[[Sequence[str]], list[int]] | None = None
    """(names of players) -> the numbers by which `policy_values` takes scripted players, -1 for others; None:
    a policy cannot play the playouts."""


@dataclass(frozen=True, kw_only=True)
class Solver:
    """Exact results."""

    nash_conv: Callable[[Any, Mapping[str, Any], int], Row]
    """(settings, players by role, threads) -> a record with `nash_conv`, or with the reason in `refused`."""
    solve: Callable[[Any, int, Path | None], Row] | None = None
    """(settings, threads, file for a picture) -> the exact value of the game: `rematch solve`."""
    picture: Callable[[Any, Mapping[str, Any], int], bytes] | None = None
    """(settings, players by role, threads) -> a PNG of the starts where players lose to a best response."""


@dataclass(frozen=True, kw_only=True)
class Human:
    """Games in the terminal, bots that users write, and measured best responses."""

    play: Callable[[Sequence[str], FindPlayer], int]
    """(arguments of the command line, a function that finds players by name) -> exit code."""
    settings: Callable[[], Any]
    """The settings of `play`, for its help."""
    user_bot: Callable[[str, Any, float], Player] | None = None
    """(module:Class, settings, seconds per move or 0 for the default) -> a bot that a user wrote."""
    best_known: Callable[[str, Any], Row | None] | None = None
    """(opponent, settings) -> the best measured response to it, or None."""


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """The rules as a CUDA program with the kernel `step_games` (worlds/native/cuda_step.h)."""

    source: Path
    include: Sequence[Path]
    rules: Callable[[Any], Sequence[tuple[Any, str]]]
    """(settings) -> the members of the C struct `Rules`: value and C type."""
    batch: Callable[[Any], Sequence[str]]
    """(settings) -> the members of the C struct `Batch`, in order, by the names of the collector's arrays
    (rollout/cuda_collector.py, `_arrays`); "": not used."""
    bot_number: Callable[[Player], int | None]
    """(player) -> its number in bots.h; None: not a scripted player of this game."""
    arrays: Mapping[str, Callable[[Any], Any]]
    """name -> (world) -> an array [N, ...] that a step reads and writes: `states`, the bytes of the games,
    and others that belong to a running game."""
    tables: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """name -> (world) -> a constant array; at most eight, in the order of `StepSettings.table`."""
    after_step: Callable[[Any], Sequence[str]] = lambda settings: ()
    """(settings) -> kernels that follow `step_games`, in order: a block of OBSERVER_THREADS per game."""
    counters: tuple[str, ...] = ()  # members of `Game` whose sums `World.counters` gives
    failures: Mapping[int, str] = field(default_factory=dict)  # kind of a failure -> what it means
    search: Callable[[Any], Any] | None = None
    """(settings) -> the search of `Search` on the GPU: `observe`, `action_values` and `policy_values` of
    saved games in tensors (worlds/beasty/cuda_search.py)."""
    step_bytes: Callable[[Any], int] = lambda config: 0
    """(settings) -> shared memory of a block of `step_games`."""
    one_seat_acts: bool = False  # whether at most one seat of a game acts in a step


@dataclass(frozen=True, kw_only=True)
class CardGameSpeed:
    """Subjects of `rematch bench`, timed beside card games of other libraries."""

    subjects: Sequence[Any]  # each plays games for some seconds (bench/timing.py, Subject)
    targets: Mapping[str, float]  # key of a subject -> target in games per second on one core
    two_threads: float  # target: speed of two threads divided by that of one


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Special settings and measurements of `rematch bench`."""

    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of a timed run: world.KEY -> value
    measure: Callable[[float], tuple[Row, list[str]]] | None = None
    """(seconds) -> a record and lines to print, instead of the default measurements."""
    recipe: tuple[str, float] | None = None  # a recipe whose training is timed, and steps/s to reach
    card_game: Callable[[], CardGameSpeed] | None = None
    """Subjects that are timed beside card games of other libraries, instead of the default measurements."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Facts about a game that other packages need, with their defaults."""

    short: Callable[[Any], Any] | None = None
    """(settings) -> the same rules with games that end within the few steps of `rematch check`."""
    rate_names: Mapping[str, str] = field(default_factory=dict)  # role -> name of its win rate in logs
    indifferent: tuple[str, ...] = ()  # settings in which a policy may differ from the match
    random: bool | None = None  # False: deterministic, so greedy players repeat one game; None: not stated
    text: Callable[[Any, int, int], str] | None = None
    """(world, row, seat) -> that game as this seat sees it, for `rematch play`; None: observed numbers."""
    rare_results: bool = False  # True: random play may earn no reward and have no winner (conformance test)
    slow_bots: tuple[str, ...] = ()  # bots that play only where they are named
    evaluation_games: int = 1000  # games of an evaluation without a number
    evaluation_steps: int = 10_000_000  # steps of a match in evaluations of a run, all games together
    processes: Callable[[Any], int] | None = None
    """(settings) -> child processes in which the games run on this machine; None: they never do."""
    longest_game: Callable[[Any], int] | None = None
    """(settings) -> steps after which every game has ended; None: not known."""
