"""Which OpenSpiel games can be a world, what a seat sees in them, and how large everything is.

`load` answers for a game string such as `leduc_poker` or `goofspiel(num_cards=4,imp_info=True)`; what cannot
be played is refused in one line that says why. open_spiel is imported when the first game is asked for.
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
TRIED = 4000  # moves at random by which the length of games is tried
MOST_EDGES = 1 << 16  # joint moves or chance outcomes of one history: a row of the table holds that many


def version() -> str:
    """The open_spiel that is installed, or nothing."""
    try:
        return "open_spiel " + metadata.version("open_spiel")
    except metadata.PackageNotFoundError:
        return ""


def pyspiel() -> Any:
    """The module, or one line that says how to get it."""
    try:
        return importlib.import_module("pyspiel")
    except ImportError:
        raise NotInstalled("OpenSpiel", "open_spiel") from None


@dataclass(frozen=True, kw_only=True, eq=False)  # compared by identity: `load` gives each game once
class Game:
    """A game that can be played, and its sizes."""

    text: str
    spiel: Any  # pyspiel.Game
    perfect: bool  # nobody hides anything from anybody
    chance: bool
    zero_sum: bool
    together: bool  # both gain alike: an outcome is the sign of the return, not who has more
    private: bool  # observations are information states (everything observed so far)
    moves: tuple[str, ...]  # a name for every action [A]
    columns: tuple[str, ...]  # a name for every number of an observation [F]
    longest: int  # moves in the longest history: the players' and chance's
    outcomes: int  # of one chance event, at most
    edges: int  # ways to go on from one history, at most
    scale: float  # the largest utility: rewards are utilities divided by it
    known: Mapping[tuple[int, str], int] = field(default_factory=dict)  # (seat, information state) -> number

    def observe(self, state: Any, seat: int) -> Any:
        """What a seat sees in a history, F numbers."""
        tell = state.information_state_tensor if self.private else state.observation_tensor
        return tell(seat)

    def number(self, state: Any, seat: int) -> int:
        """Which information state a seat is in, where they have numbers."""
        return self.known[seat, state.information_state_string(seat)] if self.known else 0


@lru_cache(maxsize=64)
def load(text: str, observation: str) -> Game:
    """The game of a string as `pyspiel.load_game` takes it, or ConfigError with the reason."""
    spiel = _load(text)
    try:
        with hushed():
            return _known(text, observation, spiel)
    except ConfigError:
        raise
    except Exception as error:  # parameters that OpenSpiel takes and cannot play
        raise ConfigError(f"game = {text!r}: OpenSpiel does not play it: {_why(error)}") from None


def _known(text: str, observation: str, spiel: Any) -> Game:
    """What there is to know of a loaded game."""
    about, kinds = spiel.get_type(), pyspiel().GameType
    if about.dynamics == kinds.Dynamics.MEAN_FIELD:
        raise ConfigError(f"game = {text!r}: a mean-field game; expected a game of two players")
    if spiel.num_players() != 2:
        raise ConfigError(f"game = {text!r}: {spiel.num_players()} players; expected a game of two")
    if about.chance_mode == kinds.ChanceMode.SAMPLED_STOCHASTIC:
        raise ConfigError(f"game = {text!r}: its chance events cannot be listed, so no game can be repeated")
    state = spiel.new_initial_state()
    told = {"information_state": about.provides_information_state_tensor,
            "observation": about.provides_observation_tensor}  # fmt: skip
    wanted = [kind for kind in told if observation in ("auto", kind)]
    if not any(told[kind] for kind in wanted):
        has = " or ".join(kind.replace("_", "-") for kind in wanted)
        raise ConfigError(f"game = {text!r}: it offers no {has} tensor, so a network could see nothing")
    private = next(kind for kind in wanted if told[kind]) == "information_state"
    actions, outcomes = spiel.num_distinct_actions(), spiel.max_chance_outcomes()
    if actions < 1 or spiel.max_history_length() < 1 or state.is_terminal():
        raise ConfigError(f"game = {text!r}: nobody can move in it; expected other parameters")
    edges = max(actions**2 if about.dynamics == kinds.Dynamics.SIMULTANEOUS else actions, outcomes)
    if edges > MOST_EDGES:
        raise ConfigError(f"game = {text!r}: {edges:,} ways to go on; expected at most {MOST_EDGES:,}")
    high = max(abs(spiel.min_utility()), abs(spiel.max_utility()))
    hides = about.information == kinds.Information.IMPERFECT_INFORMATION
    return Game(
        text=text, spiel=spiel, perfect=not hides, chance=about.chance_mode != kinds.ChanceMode.DETERMINISTIC,
        zero_sum=about.utility == kinds.Utility.ZERO_SUM, together=about.utility == kinds.Utility.IDENTICAL,
        private=private, moves=_moves(spiel, actions), columns=_columns(spiel, private),
        longest=_longest(spiel), outcomes=outcomes, edges=edges, scale=high if 0 < high < np.inf else 1.0,
    )  # fmt: skip


def _load(text: str) -> Any:
    """The pyspiel.Game; a mistyped name gets the nearest one, a mistyped parameter OpenSpiel's own reason."""
    module = pyspiel()
    name, names = text.partition("(")[0].strip(), module.registered_names()
    if name not in names:
        near = nearest(name, names)
        hint = f"; nearest: {near}" if near else f"; expected one of {len(names)} games such as kuhn_poker"
        raise ConfigError(f"game = {text!r}: OpenSpiel has no game {name!r}{hint}")
    if "(" in text:
        _survive(text)
    try:
        with hushed():
            return module.load_game(text)
    except Exception as error:  # SpielError, and what C++ containers throw at missing parameters
        raise ConfigError(f"game = {text!r}: OpenSpiel does not load it: {_why(error)}") from None


def _why(error: Exception) -> str:
    """An error's first line, without the path of OpenSpiel's source."""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    return said.rpartition("/")[2][:160]


TRIAL = """
import sys, pyspiel
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


def _survive(text: str) -> None:
    """Play a game with odd parameters in a process of its own: some of them end the process."""
    try:
        done = subprocess.run([sys.executable, "-c", TRIAL, text], capture_output=True, timeout=TRIAL_SECONDS,
                              check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConfigError(f"game = {text!r}: OpenSpiel does not come to an end with it within "
                          f"{TRIAL_SECONDS:g} s; expected other parameters") from None
    if done.returncode < 0:  # a signal: what Python can catch is told by whoever loads it
        why = signal.Signals(-done.returncode).name
        raise ConfigError(f"game = {text!r}: OpenSpiel ends the process on it ({why}); expected other "
                          "parameters")


def _longest(spiel: Any) -> int:
    """Moves of the longest game, chance's and both of joint ones counted. OpenSpiel says less of some games:

    where one that is played at random has more, there is room for twice as many.
    """
    told: int = spiel.max_history_length()
    most = told
    dice, left = np.random.Generator(np.random.Philox(key=1)), TRIED
    while left > 0:
        state = spiel.new_initial_state()
        while not state.is_terminal() and left > 0:
            seats = (0, 1) if state.is_simultaneous_node() else (state.current_player(),)
            moves = [int(dice.choice(state.legal_actions(seat) or [0])) for seat in seats]
            state.apply_actions(moves) if len(seats) == 2 else state.apply_action(moves[0])
            left -= 1
        most, left = max(most, len(state.full_history())), left - 1
    return most if most == told else 2 * most


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """OpenSpiel writes each error to the terminal before it throws it: we say it in our own line."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _moves(spiel: Any, actions: int) -> tuple[str, ...]:
    """Names of actions: the game's own where each has one name, whoever moves and whenever; else numbers."""
    names: dict[int, str] = {}
    dice = np.random.Generator(np.random.Philox(key=0))
    for _ in range(50 if actions <= 64 else 0):
        state = spiel.new_initial_state()
        while not state.is_terminal():
            both = state.is_simultaneous_node()
            seats = (0, 1) if both else (state.current_player(),)
            moves = [int(dice.choice(state.legal_actions(seat) or [0])) for seat in seats]
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
    """Names of the numbers a seat sees: OpenSpiel's own words for their parts where it has them."""
    size = spiel.information_state_tensor_size() if private else spiel.observation_tensor_size()
    module, names = pyspiel(), []
    try:
        with hushed():
            observer = spiel.make_observer(module.IIGObservationType(perfect_recall=private), {})
            parts = module._Observation(spiel, observer).tensors_info()
        for part in parts:
            count = int(np.prod(part.shape)) if part.shape else 1
            names += [part.name if count == 1 else f"{part.name}_{i}" for i in range(count)]
    except Exception:  # a game without observers still has its tensor
        names = []
    return tuple(names) if len(set(names)) == size else tuple(f"{i}" for i in range(size))
