"""A game against the others in a terminal, or from a pipe: plain lines in, plain lines out."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from rematch.core import config as settings
from rematch.core import rng
from rematch.core.arrays import Bytes
from rematch.core.config import knob
from rematch.core.player import Player, RngKey, SubprocessPlayer
from rematch.core.stepping import seat_at

from .config import ACTS, POINTS, SCORINGS, STRENGTH, Config
from .describe import EFFECTS, happened, label, move_in_words
from .hints import Worth, review, weigh
from .reference import rules as reference
from .state import Card, State

ME, ROW = 0, np.zeros(1, np.int32)
AGENT = Path(__file__).with_name("agent.safetensors")  # the opponent, where one is shipped
LETTERS = "-ABC"  # of the others, where there are several
PAINT = ("31", "34", "33", "35")  # red, blue, yellow, purple: as in render.py
KEYS = "a number or a name plays a move; h hint, u undo, ? what the animals do, r resign, q quit"
WORTH_TELLING = 0.02  # a move that cost less is not worth a line


@dataclass(frozen=True, kw_only=True)
class Sitting:
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


def play(words: Sequence[str], entrant: Callable[..., Player]) -> int:
    """`rematch play beasty`; entrant(name, world, rules, role) finds an opponent."""
    sitting = settings.apply(Sitting(), settings.read_flags(words, Sitting()), "command line", text=True)
    settings.validate(sitting)
    rules = Config(players=sitting.players, scoring=sitting.scoring, first=-1)
    shipped = AGENT.is_file() and rules == Config(first=-1)  # it knows these rules and no others
    name = sitting.against or (str(AGENT) if shipped else "search")
    opponent = entrant(name, __name__.split(".")[-2], rules, "player")
    try:
        Game(sitting, rules, opponent).run()
    finally:
        if isinstance(opponent, SubprocessPlayer):
            opponent.close()
    return 0


class Game:
    """One game: what lies on the table, and what has been played."""

    def __init__(self, sitting: Sitting, rules: Config, opponent: Player) -> None:
        from .world import make

        self.sitting, self.rules, self.opponent = sitting, rules, opponent
        self.seed = sitting.seed if sitting.seed >= 0 else time.time_ns() % 10**6
        self.world = make(rules, 1, seed=rng.key(self.seed, rng.GAME))
        title = "agent" if opponent.name == str(AGENT) else opponent.name
        self.names = [
            "you",
            *([title] if rules.players == 2 else [f"{title} {x}" for x in LETTERS[1 : rules.players]]),
        ]
        self.past: list[tuple[Bytes, State, int]] = []  # saved before, the same to read, what was played
        self.state = self.world.read(ROW)[0]
        self.page = Page(self.names, sys.stdout)

    # --- the course of a game ---

    def run(self) -> None:
        page = self.page
        others = ", ".join(self.names[1:])
        page.say(f"Beasty Bar against {others}. Deal {self.seed}: --seed {self.seed} plays it again.")
        page.say(f"In your turn: {KEYS}.")
        page.say("Behind -> stands the line from the gate after a move; * marks what is yours.")
        ended = ""
        while not ended and not reference.is_over(self.state):
            if self.state.turn == ME:
                ended = self.my_turn()
            else:
                rng_key = RngKey(rng.key(self.seed, rng.BOT), rng.BOT, self.state.step)
                move = self.opponent.act(seat_at(self.world, self.state.turn, ROW), rng_key)
                if move.resigned is not None and move.resigned[0]:
                    troubles = self.opponent.troubles if isinstance(self.opponent, SubprocessPlayer) else {}
                    why = next(iter(troubles.values()), "it gave up")
                    page.say(f"\n{self.names[self.state.turn]} forfeits: {why}. You win.")
                    ended = "forfeit"
                else:
                    self.go(int(move.action[0]))
        if not ended:
            self.result()
        if ended != "quit":
            self.look_back()

    def go(self, action: int) -> None:
        before, saved = self.state, self.world.save(ROW)
        self.state = reference.play(before, action, self.rules)
        self.past.append((saved, before, action))
        self.world.step({"player": np.full((1, self.rules.players), action, np.int32)})
        self.page.say("\n" + self.page.paint(happened(before, action, self.state, self.names), before.turn))

    def my_turn(self) -> str:
        """Until something was played; or why the game ends here."""
        page, legal = self.page, self.moves()
        page.table(self.state, self.rules)
        page.moves(self.state, legal, self.rules)
        while True:
            word = page.ask(
                f"your move ({f'1-{len(legal)}' if len(legal) > 1 else '1'}, h u ? r q): "
            ).lower()
            if word in ("q", "quit", ""):
                if word or page.over:
                    page.say("Left unfinished." if not page.over else "The input ended: left unfinished.")
                    return "quit"
            elif word in ("r", "resign"):
                page.say("You resign.")
                return "resigned"
            elif word in ("h", "hint"):
                page.hint(legal, weigh(self.world.save(ROW), self.rules, self.sitting.thought))
            elif word in ("u", "undo"):
                if self.undo():
                    return ""
                page.say("There is nothing to undo: this is your first move.")
            elif word in ("?", "help"):
                page.say(
                    "\n".join(f"  {STRENGTH[n]:>2} {n:<10} {POINTS[n]} points  {EFFECTS[n]}" for n in EFFECTS)
                )
                page.say(f"In your turn: {KEYS}.")
            else:
                action = chosen(word, legal)
                if isinstance(action, int):
                    self.go(action)
                    return ""
                page.say(action)

    def moves(self) -> list[int]:
        """What is legal, strong cards last."""
        return sorted(reference.legal(self.state, self.rules), key=lambda a: (STRENGTH[ACTS[a].card], a))

    def undo(self) -> bool:
        """Back to my last decision."""
        mine = [i for i, (_, before, _) in enumerate(self.past) if before.turn == ME]
        if not mine:
            return False
        saved, self.state, action = self.past[mine[-1]]
        self.world.load(ROW, saved)
        del self.past[mine[-1] :]
        self.page.say(f"Taken back: {label(action)}.")
        return True

    # --- afterwards ---

    def result(self) -> None:
        outcome = reference.outcomes(self.state, self.rules)[ME]
        said = {1.0: "You win", 0.5: "A draw", 0.0: "You lose"}[outcome]
        self.page.say(f"\n{said}: {self.page.score(self.state, self.rules)}.")

    def look_back(self) -> None:
        moves = [(saved, action) for saved, before, action in self.past if before.turn == ME]
        slips = review(moves, self.rules, self.sitting.thought)
        telling = [
            slip for slip in slips if slip.cost[0] >= WORTH_TELLING or slip.could.difference is not None
        ][:3]
        if not moves:
            return
        head = f"\nReview of your moves, by search over {self.sitting.thought} deals"
        self.page.say(f"{head}; exact once both decks are empty:" if self.rules.players == 2 else f"{head}:")
        self.page.say(
            "\n".join(f"  {slip}" for slip in telling) or "  none that cost anything worth telling."
        )


def chosen(word: str, legal: list[int]) -> int | str:
    """The action that was meant, or what is wrong with the word."""
    if word.isdigit():
        if 1 <= int(word) <= len(legal):
            return legal[int(word) - 1]
        return f"{word}: expected a number from 1 to {len(legal)}."
    fits = [a for a in legal if label(a) == word] or [a for a in legal if label(a).startswith(word)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        return f"{word}: which one? {', '.join(f'{legal.index(a) + 1} {label(a)}' for a in fits)}."
    near = settings.nearest(word, [label(a) for a in legal])
    return f"{word!r:.40} is no move here: {KEYS}." + (f" Nearest: {near}." if near else "")


class Page:
    """What is written; colours only where a person looks and has not asked for none."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        self.names, self.out = names, out
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self.coloured = out.isatty() and not plain
        self.over = False  # nothing more can be read

    def say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def ask(self, prompt: str) -> str:
        self.out.write(prompt)
        self.out.flush()
        line = sys.stdin.readline()
        if not sys.stdin.isatty():
            self.say(line.strip())  # so that a piped game reads like one that was typed
        self.over = not line
        return line.strip()

    def paint(self, text: str, player: int) -> str:
        return f"\x1b[{PAINT[player]}m{text}\x1b[0m" if self.coloured else text

    def score(self, state: State, rules: Config) -> str:
        scores = []
        for player, name in enumerate(self.names):
            animals = f" and {len(state.bar[player])} animals" if rules.scoring == "count" else ""
            scores.append(self.paint(f"{name} {state.points(player)} points{animals}", player))
        return ", ".join(scores)

    def table(self, state: State, rules: Config) -> None:
        """Score, line, hand."""
        left = ", ".join(f"{name} {len(state.decks[p])}" for p, name in enumerate(self.names))
        self.say(f"\n--- turn {state.step + 1}: {self.score(state, rules)}; cards in decks: {left}")
        if not state.line:
            self.say("  The line is empty.")
        else:
            cells = [(f"{name} {STRENGTH[name]}", self.names[owner], owner) for owner, name in state.line]
            wide = [max(len(what), len(who)) for what, who, _ in cells]
            rows = (
                ["GATE <"] + [self.paint(what.ljust(w), p) for (what, _, p), w in zip(cells, wide)],
                ["      "] + [self.paint(who.ljust(w), p) for (_, who, p), w in zip(cells, wide)],
            )
            self.say("\n".join("  " + "   ".join(row).rstrip() for row in rows))
        hand = sorted(state.hands[ME], key=lambda name: STRENGTH[name])
        self.say(
            "  Your hand: " + ", ".join(f"{name} {STRENGTH[name]} ({POINTS[name]} points)" for name in hand)
        )

    def moves(self, state: State, legal: list[int], rules: Config) -> None:
        """Every legal move with what it makes of the line."""
        said = [move_in_words(state, action, self.names) for action in legal]
        wide = max(map(len, said))
        for number, (action, words) in enumerate(zip(legal, said), 1):
            after = reference.play(state, action, rules)
            self.say(f"  {number:>2}  {words.ljust(wide)}  -> {self.preview(state, after)}")

    def preview(self, before: State, after: State) -> str:
        def told(cards: list[Card]) -> str:
            return " ".join(self.paint(self.mark(card), card[0]) for card in cards)

        parts = [told(after.line)]
        for word, pile in (("in:", "bar"), ("out:", "thats_it")):
            then, now = getattr(before, pile), getattr(after, pile)
            came = [(p, name) for p in range(after.players) for name in sorted(now[p] - then[p])]
            parts += [f"{word} {told(came)}"] if came else []
        return "  ".join(part for part in parts if part)

    def mark(self, card: Card) -> str:
        owner, name = card
        return f"{name}*" if owner == ME else name if len(self.names) == 2 else f"{name}({LETTERS[owner]})"

    def hint(self, legal: list[int], worths: dict[int, Worth]) -> None:
        ranked = sorted(legal, key=lambda a: (worths[a].score, worths[a].difference or 0), reverse=True)
        if len(ranked) == 1:
            self.say("Hint: there is only one move.")
            return
        first = worths[ranked[0]]
        by = "exact" if first.difference is not None else "by search"
        told = [f"{legal.index(a) + 1} {label(a)} ({worths[a]})" for a in ranked[:3]]
        self.say(
            f"Hint, {by}: {'; '.join(told)}"
            + ("; about the chance to win." if first.points and by != "exact" else ".")
        )
