"""One game of any world in the terminal, against other players: observations and actions as lines of text.

A game whose `human` capability has an interface of its own (Beasty Bar, Game Boy) is played with that one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.config import nearest
from rematch.core.player import Decision, Player, RngKey, Seat
from rematch.core.recording import DECIDED_END, RESIGNED, Replay
from rematch.core.spec import Actions
from rematch.core.system.user_code import one_line_errors
from rematch.core.world import World
from rematch.evaluation.replay import Match, record
from rematch.evaluation.text import clean, number
from rematch.reporting.text import aligned
from rematch.worlds import registry

YOU = "you"
MOST_NUMBERS = 60  # observed numbers of a field that are shown
PER_LINE = 6  # observed numbers in a line
KEYS = "q quits"


class Quit(Exception):
    """The person ends the game before its end."""


class Person:
    """A player that shows its observation and reads its action from standard input.

    `show`: (world, row, seat) -> the game as text; None: the observed numbers are shown."""

    name = YOU

    def __init__(self, show: Callable[[Any, int, int], str] | None = None) -> None:
        self.show = show

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        write("")
        if self.show is None:
            write("\n".join(observation_lines(seat)))
        else:
            with one_line_errors():
                write(self.show(seat.world, int(seat.rows[0]), seat.seat))
        actions = seat.role.actions
        if actions.kind == "continuous":
            return Decision(self._read_numbers(actions)[None])
        legal = list(range(actions.size)) if seat.mask is None else np.flatnonzero(seat.mask[0]).tolist()
        return Decision(np.array([self._read_choice(actions, legal)], np.int32))

    def _read_choice(self, actions: Actions, legal: Sequence[int]) -> int:
        names = [clean(actions.names[action]) for action in legal]
        write("legal: " + ", ".join(f"{number} {name}" for number, name in enumerate(names, 1)))
        while True:
            numbers = f"1-{len(legal)}" if len(legal) > 1 else "1"
            choice = parse_choice(read(f"your action ({numbers} or a name, {KEYS}): "), names)
            if isinstance(choice, int):
                return legal[choice]
            write(choice)

    def _read_numbers(self, actions: Actions) -> NDArray[np.float32]:
        names = ", ".join(map(clean, actions.names))
        while True:
            values = parse_numbers(read(f"your action ({names}: from -1 to 1, {KEYS}): "), actions.size)
            if not isinstance(values, str):
                return np.array(values, np.float32)
            write(values)


class Announced:
    """A player whose actions are printed."""

    def __init__(self, player: Player, title: str) -> None:
        self.player, self.name, self.title = player, player.name, title

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        decision = self.player.act(seat, rng_key, recurrent_state)
        write(f"{self.title}: {action_text(seat.role.actions, decision.action[0])}")
        return decision


def play_game(world: World, opponents: Mapping[int, Player], match: Match) -> int:
    """One game: the person has the seats without an opponent. Returns the exit code."""
    spec, show = world.spec, registry.find(match.world).defaults.text
    titles = [f"seat {seat + 1} ({clean(opponents[seat].name)})" if seat in opponents else YOU
              for seat in range(spec.seats)]
    players: list[Player] = [Announced(opponents[seat], titles[seat]) if seat in opponents else Person(show)
                             for seat in range(spec.seats)]
    seats = ", ".join(f"seat {seat + 1} {spec.role_of(seat).name}: {clean(players[seat].name)}"
                      for seat in range(spec.seats))
    write(f"{clean(spec.world)}: {seats}. --seed {match.seed} plays the same start again.")
    try:
        (replay,) = record(world, players, match)
    except Quit as reason:
        write(f"{reason}The game is not finished.")
        return 0
    write("")
    write(result_text(replay, [seat for seat in range(spec.seats) if seat not in opponents]))
    return 0


def result_text(replay: Replay, own_seats: Sequence[int]) -> str:
    """Whether the person won, and how the game ended."""
    caption, outcome = clean(replay.caption()), max(replay.outcome[seat] for seat in own_seats)
    if len(replay.players) == 1 or replay.end not in (DECIDED_END, RESIGNED):
        return f"The game is over: {caption}."
    word = "win" if outcome > 0.5 else "lose" if outcome < 0.5 else "draw"
    return f"You {word}: {caption}."


def observation_lines(seat: Seat) -> list[str]:
    """The fields that a seat observes, each with its columns; a long field is cut."""
    lines, first = [f"{seat.role.name} (seat {seat.seat + 1}) observes"], 0
    for field in seat.role.fields:
        values = seat.obs[0, first : first + field.size]
        first += field.size
        cells = [f"{clean(name)} {number(float(value))}" for name, value in zip(field.columns, values)]
        rows = [["  " + field.name if i == 0 else "", *cells[i : i + PER_LINE]]
                for i in range(0, min(len(cells), MOST_NUMBERS), PER_LINE)]
        rows[-1] += [""] * (len(rows[0]) - len(rows[-1]))
        lines += aligned(rows)
        if len(cells) > MOST_NUMBERS:
            lines.append(f"  and {len(cells) - MOST_NUMBERS} more numbers")
    return lines


def action_text(actions: Actions, action: Any) -> str:
    if actions.kind == "discrete":
        return clean(actions.names[int(action)])
    return ", ".join(f"{clean(name)} {value:+.2f}" for name, value in zip(actions.names, action))


def parse_choice(word: str, names: Sequence[str]) -> int | str:
    """The index of the action that a word names, by number or name; or the line that says what is wrong."""
    if word.isdecimal() and word not in names:
        if 1 <= int(word) <= len(names):
            return int(word) - 1
        return f"{word:.20}: expected a number from 1 to {len(names)}"
    matches = [i for i, name in enumerate(names) if name.lower() == word.lower()]
    matches = matches or [i for i, name in enumerate(names) if name.lower().startswith(word.lower())]
    if len(matches) == 1:
        return matches[0]
    near = nearest(word, names)
    return f"{word!r:.40} is not a legal action: expected a number from 1 to {len(names)} or a name" + (
        f"; nearest: {near}" if near else "")


def parse_numbers(line: str, count: int) -> list[float] | str:
    """The numbers of a continuous action; or the line that says what is wrong."""
    try:
        values = [float(word) for word in line.replace(",", " ").split()]
    except ValueError:
        values = []
    if len(values) != count or not all(-1 <= value <= 1 for value in values):
        return f"{line!r:.40}: expected {count} number{'s' * (count > 1)} from -1 to 1, separated by spaces"
    return values


def write(text: str) -> None:
    print(text, flush=True)


def read(prompt: str) -> str:
    """A line of standard input; Quit where the person ends the game or the input ends."""
    print(prompt, end="", flush=True)
    line = sys.stdin.readline()
    if not sys.stdin.isatty():
        write(line.strip())  # a piped game looks like a typed one
    if not line:
        raise Quit("End of input. ")
    if line.strip().lower() in ("q", "quit"):
        raise Quit("")
    return line.strip()
