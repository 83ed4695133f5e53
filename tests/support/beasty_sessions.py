"""Sessions of Beasty Bar for tests: games against bots, and games whose moves a random generator chooses."""

from __future__ import annotations

import random

from rematch.worlds.beasty.bots import bot
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.play.session import YOU, PlaySession, Table, seat_names


def table(seats: tuple[str, ...] = (YOU, "random"), seed: int = 3, scoring: str = "points") -> Table:
    players = [None if name == YOU else bot(name, "player") for name in seats]
    rules = Config(players=len(seats), scoring=scoring, first=-1)
    return Table(rules=rules, seed=seed, players=tuple(players), names=seat_names(seats), completions=10)


def play_randomly(session: PlaySession, seed: int, steps: int = 100) -> None:
    """Let the opponents play, and random moves for the person, until `steps` turns or the end."""
    generator = random.Random(seed)
    session.play_opponents()
    while not session.is_over and session.step < steps:
        session.play(generator.choice(session.legal()))
        session.play_opponents()
