"""`rematch play beasty`: a game in the terminal or through a pipe, as lines of text."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rematch.core import config as settings
from rematch.core.config import knob
from rematch.core.player import Player, SubprocessPlayer

from . import reference
from .config import POINTS, SCORINGS, STRENGTH, Config
from .describe import EFFECTS, label, move_text, named_turn_text
from .hints import MoveValue
from .play.session import YOU, PlaySession, Table, Turn, seat_names
from .state import Card, State

ME = 0
AGENT = Path(__file__).with_name("agent.safetensors")  # default opponent, if the file exists
LETTERS = "-ABC"  # by player: names of several opponents
COLOURS = ("31", "34", "33", "35")  # by player: red, blue, yellow, purple, as in render.py
KEYS = "a number or a name plays a move; h hint, u undo, ? effects of the animals, r resign, q quit"


@dataclass(frozen=True, kw_only=True)
class PlaySettings:
    """Settings of a game in the terminal."""

    against: str = knob("", "opponent: a bot, search:200, a run, a policy file, or module:Class")
    players: int = knob(2, "number of players, including you", unit="players", low=2, high=4)
    seed: int = knob(-1, "seed of the deal; -1: a random one", low=-1)
    scoring: str = knob(
        "points", "winner of a game; points: most points in the bar; count: most animals in the bar, then "
        "most points", choices=SCORINGS,
    )  # fmt: skip
    thought: int = knob(
        400, "deals that the search samples for hints and for the review", unit="deals", low=1, high=100_000
    )


def play(words: Sequence[str], find_player: Callable[..., Player]) -> int:
    """The command `rematch play beasty`; find_player(name, world, rules, role) returns a player."""
    flags = settings.read_flags(words, PlaySettings())
    play_settings = settings.apply(PlaySettings(), flags, "command line", text=True)
    settings.validate(play_settings)
    rules = Config(players=play_settings.players, scoring=play_settings.scoring, first=-1)
    name = play_settings.against or (str(AGENT) if AGENT.is_file() and suits_agent(rules) else "search")
    opponent = find_player(name, __name__.split(".")[-2], rules, "player")
    try:
        Game(play_settings, rules, opponent).run()
    finally:
        if isinstance(opponent, SubprocessPlayer):
            opponent.close()
    return 0


def suits_agent(rules: Config) -> bool:
    """Whether the agent of this folder was trained with these rules."""
    return rules == Config(first=-1)


class Game:
    """One game against an opponent, as lines of text."""

    def __init__(self, settings: PlaySettings, rules: Config, opponent: Player) -> None:
        title = "agent" if opponent.name == str(AGENT) else opponent.name
        table = Table(
            rules=rules,
            seed=settings.seed if settings.seed >= 0 else time.time_ns() % 10**6,
            players=(None, *[opponent] * (rules.players - 1)),
            names=seat_names([YOU, *[title] * (rules.players - 1)]),
            completions=settings.thought,
        )
        self.session = PlaySession(table)
        self.page = Page(table.names, sys.stdout)

    # --- turns ---

    def run(self) -> None:
        page, session, seed = self.page, self.session, self.session.table.seed
        opponents = ", ".join(page.names[1:])
        page.write(f"Beasty Bar against {opponents}. Deal {seed}: --seed {seed} plays it again.")
        page.write(f"In your turn: {KEYS}.")
        page.write("After -> comes the line after a move, from the gate on; * marks your animals.")
        quits = False
        while not quits and not session.is_over:
            if session.is_persons_turn:
                quits = self.human_turn()
            else:
                self.write_turn(session.play_opponent())
        if quits:
            return
        if session.forfeit:
            seat, reason = session.forfeit
            page.write(f"\n{page.names[seat]} forfeits: {reason}. You win.")
        elif not session.resigned:
            self.write_result()
        self.write_review()

    def write_turn(self, turn: Turn | None) -> None:
        if turn:
            text = named_turn_text(turn.before, turn.action, turn.after, self.page.names)
            self.page.write("\n" + self.page.colour(text, turn.before.turn))

    def human_turn(self) -> bool:
        """Read commands until the person plays, takes back or resigns; True where the person quits."""
        page, session, rules = self.page, self.session, self.session.table.rules
        legal = session.legal()
        page.table(session.state, rules)
        page.moves(session.state, legal, rules)
        while True:
            numbers = f"1-{len(legal)}" if len(legal) > 1 else "1"
            word = page.read(f"your move ({numbers}, h u ? r q): ").lower()
            if word in ("q", "quit", ""):
                if word or page.input_ended:
                    text = "Game not finished."
                    page.write(text if not page.input_ended else f"End of input. {text}")
                    return True
            elif word in ("r", "resign"):
                page.write("You resign.")
                session.resign()
                return False
            elif word in ("h", "hint"):
                page.hint(legal, session.values())
            elif word in ("u", "undo"):
                action = session.undo()
                if action is not None:
                    page.write(f"Taken back: {label(action)}.")
                    return False
                page.write("Nothing to undo: this is your first move.")
            elif word in ("?", "help"):
                page.write(
                    "\n".join(f"  {STRENGTH[n]:>2} {n:<10} {POINTS[n]} points  {EFFECTS[n]}" for n in EFFECTS)
                )
                page.write(f"In your turn: {KEYS}.")
            else:
                action_or_error = parse_move(word, legal)
                if isinstance(action_or_error, int):
                    self.write_turn(session.play(action_or_error))
                    return False
                page.write(action_or_error)

    # --- the end ---

    def write_result(self) -> None:
        session = self.session
        outcome = reference.outcomes(session.state, session.table.rules)[ME]
        text = {1.0: "You win", 0.5: "A draw", 0.0: "You lose"}[outcome]
        self.page.write(f"\n{text}: {self.page.score(session.state, session.table.rules)}.")

    def write_review(self) -> None:
        """The three largest mistakes of the user."""
        table = self.session.table
        if not self.session.decisions():
            return
        title = f"\nReview of your moves, by search over {table.completions} deals"
        exact = "; exact once both decks are empty" if table.rules.players == 2 else ""
        self.page.write(f"{title}{exact}:")
        mistakes = self.session.mistakes()
        self.page.write("\n".join(f"  {mistake}" for mistake in mistakes[:3]) or "  no mistakes found.")


def parse_move(word: str, legal: list[int]) -> int | str:
    """The action that a word names, or an error message."""
    if word.isdigit():
        if 1 <= int(word) <= len(legal):
            return legal[int(word) - 1]
        return f"{word}: expected a number from 1 to {len(legal)}."
    matches = [a for a in legal if label(a) == word] or [a for a in legal if label(a).startswith(word)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        return f"{word}: which one? {', '.join(f'{legal.index(a) + 1} {label(a)}' for a in matches)}."
    near = settings.nearest(word, [label(a) for a in legal])
    return f"{word!r:.40} is not a legal move: {KEYS}." + (f" Nearest: {near}." if near else "")


class Page:
    """Writes to the terminal and reads from it; coloured unless the output is a file or NO_COLOR is set."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        self.names, self.out = names, out
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self.coloured = out.isatty() and not plain
        self.input_ended = False

    def write(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def read(self, prompt: str) -> str:
        self.out.write(prompt)
        self.out.flush()
        line = sys.stdin.readline()
        if not sys.stdin.isatty():
            self.write(line.strip())  # echo, so that a piped game looks like a typed one
        self.input_ended = not line
        return line.strip()

    def colour(self, text: str, player: int) -> str:
        return f"\x1b[{COLOURS[player]}m{text}\x1b[0m" if self.coloured else text

    def score(self, state: State, rules: Config) -> str:
        scores = []
        for player, name in enumerate(self.names):
            animals = f" and {len(state.bar[player])} animals" if rules.scoring == "count" else ""
            scores.append(self.colour(f"{name} {state.points(player)} points{animals}", player))
        return ", ".join(scores)

    def table(self, state: State, rules: Config) -> None:
        """Score, line, hand."""
        decks = ", ".join(f"{name} {len(state.decks[p])}" for p, name in enumerate(self.names))
        self.write(f"\n--- turn {state.step + 1}: {self.score(state, rules)}; cards in decks: {decks}")
        if not state.line:
            self.write("  The line is empty.")
        else:
            cells = [(f"{name} {STRENGTH[name]}", self.names[owner], owner) for owner, name in state.line]
            widths = [max(len(animal), len(owner)) for animal, owner, _ in cells]
            rows = (
                ["GATE <"] + [self.colour(animal.ljust(w), p) for (animal, _, p), w in zip(cells, widths)],
                ["      "] + [self.colour(owner.ljust(w), p) for (_, owner, p), w in zip(cells, widths)],
            )
            self.write("\n".join("  " + "   ".join(row).rstrip() for row in rows))
        hand = sorted(state.hands[ME], key=lambda name: STRENGTH[name])
        self.write(
            "  Your hand: " + ", ".join(f"{name} {STRENGTH[name]} ({POINTS[name]} points)" for name in hand)
        )

    def moves(self, state: State, legal: list[int], rules: Config) -> None:
        """Every legal move with the line after it."""
        texts = [move_text(state, action, self.names) for action in legal]
        width = max(map(len, texts))
        for number, (action, text) in enumerate(zip(legal, texts), 1):
            after = reference.play(state, action, rules)
            self.write(f"  {number:>2}  {text.ljust(width)}  -> {self.preview(state, after)}")

    def preview(self, before: State, after: State) -> str:
        def text(cards: list[Card]) -> str:
            return " ".join(self.colour(self.card(card), card[0]) for card in cards)

        parts = [text(after.line)]
        for title, pile in (("in:", "bar"), ("out:", "thats_it")):
            old, new = getattr(before, pile), getattr(after, pile)
            cards = [(p, name) for p in range(after.players) for name in sorted(new[p] - old[p])]
            parts += [f"{title} {text(cards)}"] if cards else []
        return "  ".join(part for part in parts if part)

    def card(self, card: Card) -> str:
        owner, name = card
        if owner == ME:
            return f"{name}*"
        return name if len(self.names) == 2 else f"{name}({LETTERS[owner]})"

    def hint(self, legal: list[int], values: dict[int, MoveValue]) -> None:
        ranked = sorted(legal, key=lambda a: (values[a].score, values[a].difference or 0), reverse=True)
        if len(ranked) == 1:
            self.write("Hint: there is only one move.")
            return
        best = values[ranked[0]]
        method = "exact" if best.difference is not None else "by search"
        moves = [f"{legal.index(a) + 1} {label(a)} ({values[a]})" for a in ranked[:3]]
        unit = "; estimated probability to win." if best.points and method != "exact" else "."
        self.write(f"Hint, {method}: {'; '.join(moves)}{unit}")
