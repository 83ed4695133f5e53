"""Loads OpenSpiel games: checks that a game can be a world, and reads its observations and sizes.

`load` takes a game string such as `leduc_poker` or `goofspiel(num_cards=4,imp_info=True)`. An unsupported
game raises a ConfigError with the reason in one line. open_spiel is imported when the first game is loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from typing import Any

import numpy as np

from rematch.core.config import nearest
from rematch.core.errors import ConfigError, NotInstalled

CHANCE, DECISION, TERMINAL = 0, 1, 2  # kinds of history
RANDOM_MOVES = 4000  # random moves that measure the length of games
PYTHON_PREFIX = "python_"  # names of the games that OpenSpiel has written in Python
PYTHON_PACKAGES = {"absl": "absl-py"}  # module -> package, where the names differ
MOST_EDGES = 1 << 16  # joint moves or chance outcomes of one history: columns of a table row


def version() -> str:
    """The version of the installed open_spiel, or an empty string."""
    try:
        return "open_spiel " + metadata.version("open_spiel")
    except metadata.PackageNotFoundError:
        return ""


def pyspiel() -> Any:
    """The module pyspiel; NotInstalled with the install command where it is missing."""
    try:
        return importlib.import_module("pyspiel")
    except ImportError:
        raise NotInstalled("OpenSpiel", "open_spiel") from None


@dataclass(frozen=True, kw_only=True, eq=False)  # compared by identity: `load` returns one object per game
class Game:
    """A game that can be played, and its sizes."""

    text: str
    spiel: Any  # pyspiel.Game
    perfect: bool  # perfect information
    chance: bool  # has chance events
    zero_sum: bool
    common_payoff: bool  # both seats get the same utility: the outcome is the sign of the return
    private: bool  # observations are information-state tensors (everything observed so far)
    moves: tuple[str, ...]  # names of the actions [A]
    columns: tuple[str, ...]  # names of the columns of an observation [F]
    longest: int  # moves in the longest history, of players and chance
    outcomes: int  # largest number of outcomes of one chance event
    edges: int  # largest number of successors of one history
    scale: float  # largest absolute utility: rewards are utilities divided by it
    state_numbers: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """(seat, information state) -> number; empty where information states are not numbered."""

    def observe(self, state: Any, seat: int) -> Any:
        """The observation [F] of a seat in a history."""
        tensor = state.information_state_tensor if self.private else state.observation_tensor
        return tensor(seat)

    def number(self, state: Any, seat: int) -> int:
        """The number of a seat's information state; 0 where information states are not numbered."""
        if not self.state_numbers:
            return 0
        return self.state_numbers[seat, state.information_state_string(seat)]


@lru_cache(maxsize=64)
def load(text: str, observation: str) -> Game:
    """The game of a string as `pyspiel.load_game` takes it, or ConfigError with the reason."""
    spiel = _load(text)
    try:
        with silenced():
            return _describe(text, observation, spiel)
    except ConfigError:
        raise
    except Exception as error:  # OpenSpiel accepts some parameters that it cannot play
        raise ConfigError(f"game = {text!r}: OpenSpiel does not play it: {_reason(error)}") from None


def _describe(text: str, observation: str, spiel: Any) -> Game:
    """The properties and sizes of a loaded game; ConfigError where it cannot be a world."""
    game_type, kinds = spiel.get_type(), pyspiel().GameType
    if game_type.dynamics == kinds.Dynamics.MEAN_FIELD:
        raise ConfigError(f"game = {text!r}: a mean-field game; expected a game of two players")
    if spiel.num_players() != 2:
        raise ConfigError(f"game = {text!r}: {spiel.num_players()} players; expected a game of two")
    if game_type.chance_mode == kinds.ChanceMode.SAMPLED_STOCHASTIC:
        raise ConfigError(f"game = {text!r}: its chance events cannot be listed; expected a repeatable game")
    state = spiel.new_initial_state()
    provided = {"information_state": game_type.provides_information_state_tensor,
                "observation": game_type.provides_observation_tensor}  # fmt: skip
    wanted = [kind for kind in provided if observation in ("auto", kind)]
    if not any(provided[kind] for kind in wanted):
        missing = " or ".join(kind.replace("_", "-") for kind in wanted)
        raise ConfigError(f"game = {text!r}: it offers no {missing} tensor for the observation")
    private = next(kind for kind in wanted if provided[kind]) == "information_state"
    actions, outcomes = spiel.num_distinct_actions(), spiel.max_chance_outcomes()
    if actions < 1 or spiel.max_history_length() < 1 or state.is_terminal():
        raise ConfigError(f"game = {text!r}: no player can move in it; expected other parameters")
    edges = max(actions**2 if game_type.dynamics == kinds.Dynamics.SIMULTANEOUS else actions, outcomes)
    if edges > MOST_EDGES:
        raise ConfigError(f"game = {text!r}: {edges:,} moves in a history; expected at most {MOST_EDGES:,}")
    largest = max(abs(spiel.min_utility()), abs(spiel.max_utility()))
    hidden = game_type.information == kinds.Information.IMPERFECT_INFORMATION
    return Game(
        text=text, spiel=spiel, perfect=not hidden,
        chance=game_type.chance_mode != kinds.ChanceMode.DETERMINISTIC,
        zero_sum=game_type.utility == kinds.Utility.ZERO_SUM,
        common_payoff=game_type.utility == kinds.Utility.IDENTICAL,
        private=private, moves=_moves(spiel, actions), columns=_columns(spiel, private),
        longest=_longest(spiel), outcomes=outcomes, edges=edges,
        scale=largest if 0 < largest < np.inf else 1.0,
    )  # fmt: skip


def _load(text: str) -> Any:
    """The pyspiel.Game; ConfigError names the nearest game, or OpenSpiel's reason for a wrong parameter."""
    module = pyspiel()
    name = text.partition("(")[0].strip()
    if name.startswith(PYTHON_PREFIX):
        _register_python_games(text)
    names = module.registered_names()
    if name not in names:
        near = nearest(name, names)
        hint = f"; nearest: {near}" if near else f"; expected one of {len(names)} games such as kuhn_poker"
        raise ConfigError(f"game = {text!r}: OpenSpiel has no game {name!r}{hint}")
    if "(" in text:
        _check_no_crash(text)
    try:
        with silenced():
            return module.load_game(text)
    except Exception as error:  # SpielError, and exceptions of C++ containers for missing parameters
        raise ConfigError(f"game = {text!r}: OpenSpiel does not load it: {_reason(error)}") from None


def _register_python_games(text: str) -> None:
    """Import OpenSpiel's games that are written in Python: `pyspiel` alone has those in C++."""
    try:
        with silenced():
            importlib.import_module("open_spiel.python.games")
    except ImportError as error:
        missing = error.name or "open_spiel"
        raise NotInstalled(f"{missing}, which OpenSpiel's games in Python need ({text!r}),",
                           PYTHON_PACKAGES.get(missing, missing)) from None  # fmt: skip


def _reason(error: Exception) -> str:
    """The first line of an error, without the path of OpenSpiel's source."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return line.rpartition("/")[2][:160]


TRIAL = """
import sys, pyspiel
if sys.argv[1].startswith("python_"):
    import open_spiel.python.games
game = pyspiel.load_game(sys.argv[1])
state, moves = game.new_initial_state(), 0
while not state.is_terminal() and moves < 1000:
    if state.is_simultaneous_node():
        state.apply_actions([(state.legal_actions(seat) or [0])[0] for seat in range(game.num_players())])
    else:
        state.apply_action(state.legal_actions()[0])
    moves += 1
"""
TRIAL_SECONDS = 20.0


def _check_no_crash(text: str) -> None:
    """Play one game with these parameters in a child process: some parameters abort the process."""
    try:
        trial = subprocess.run([sys.executable, "-c", TRIAL, text], capture_output=True,
                               timeout=TRIAL_SECONDS, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConfigError(f"game = {text!r}: a trial game did not end within "
                          f"{TRIAL_SECONDS:g} s; expected other parameters") from None
    if trial.returncode < 0:  # a signal; `_load` reports exceptions
        signal_name = signal.Signals(-trial.returncode).name
        raise ConfigError(f"game = {text!r}: OpenSpiel ends the process on it ({signal_name}); expected "
                          "other parameters")


def _longest(spiel: Any) -> int:
    """Moves in the longest history; chance moves count, and a joint move counts twice.

    OpenSpiel's bound is too small for some games: where a random game exceeds it, the bound is twice the
    longest random game.
    """
    bound: int = spiel.max_history_length()
    longest = bound
    generator = np.random.Generator(np.random.Philox(key=1))
    remaining = RANDOM_MOVES
    while remaining > 0:
        state = spiel.new_initial_state()
        while not state.is_terminal() and remaining > 0:
            seats = (0, 1) if state.is_simultaneous_node() else (state.current_player(),)
            moves = [int(generator.choice(state.legal_actions(seat) or [0])) for seat in seats]
            state.apply_actions(moves) if len(seats) == 2 else state.apply_action(moves[0])
            remaining -= 1
        longest = max(longest, len(state.full_history()))
        remaining -= 1
    return longest if longest == bound else 2 * longest


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Silence stderr: OpenSpiel prints each error before it throws it, and Rematch prints its own line."""
    sys.stderr.flush()
    stderr_copy, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 2)
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
        os.close(devnull)


def _moves(spiel: Any, actions: int) -> tuple[str, ...]:
    """Names of actions: OpenSpiel's where each action has one name in all states and seats; else numbers."""
    names: dict[int, str] = {}
    generator = np.random.Generator(np.random.Philox(key=0))
    for _ in range(50 if actions <= 64 else 0):
        state = spiel.new_initial_state()
        while not state.is_terminal():
            both = state.is_simultaneous_node()
            seats = (0, 1) if both else (state.current_player(),)
            moves = [int(generator.choice(state.legal_actions(seat) or [0])) for seat in seats]
            for seat, move in zip(seats if not state.is_chance_node() else (), moves):
                name = state.action_to_string(seat, move).strip().replace(" ", "_")
                if names.setdefault(move, name) != name or not name.isprintable():
                    return tuple(str(action) for action in range(actions))
            if both:
                state.apply_actions(moves)
            else:
                state.apply_action(moves[0])
    if len(names) < actions or len(set(names.values())) < actions:
        return tuple(str(action) for action in range(actions))
    return tuple(names[action] for action in range(actions))


def _columns(spiel: Any, private: bool) -> tuple[str, ...]:
    """Names of the columns of an observation: from OpenSpiel's names of its tensors, else numbers."""
    size = spiel.information_state_tensor_size() if private else spiel.observation_tensor_size()
    module, names = pyspiel(), []
    try:
        with silenced():
            observer = spiel.make_observer(module.IIGObservationType(perfect_recall=private), {})
            tensors = module._Observation(spiel, observer).tensors_info()
        for tensor_info in tensors:
            count = int(np.prod(tensor_info.shape)) if tensor_info.shape else 1
            names += [tensor_info.name if count == 1 else f"{tensor_info.name}_{i}" for i in range(count)]
    except Exception:  # games without observers still have a tensor
        names = []
    return tuple(names) if len(set(names)) == size else tuple(f"{i}" for i in range(size))
