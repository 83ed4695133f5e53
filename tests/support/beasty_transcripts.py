"""Transcripts of Beasty Bar games, with the line after every move; replayed by both engines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rematch.worlds.beasty.config import ACTIONS, Config
from rematch.worlds.beasty.describe import turn_text
from rematch.worlds.beasty.reference import rules
from support.beasty_positions import play

HEAD = re.compile(r"(\w+) players, (points|count)(, the document's variant)?")
MOVE = re.compile(r" *\d+\. player \d plays (.*?)\. (?:Line|Over)")


def transcript(config: Config, orders: Sequence[Sequence[str]], actions: Sequence[str]) -> str:
    """The transcript of one game, from its deal to the last of these actions."""
    words = {2: "Two", 3: "Three", 4: "Four"}
    variant = ", the document's variant" if config.earlier_rules else ""
    out = [f"{words[config.players]} players, {config.scoring}{variant}."]
    out += [f"  player {p} holds {', '.join(order[:4])}; next come {', '.join(order[4:])}"
            for p, order in enumerate(orders)]  # fmt: skip
    state = rules.deal(orders, config)
    for number, action in enumerate(actions, 1):
        before, state = state, play(state, action, config)
        out.append(f"{number:4}. {turn_text(before, ACTIONS.index(action), state)}")
    if rules.is_over(state):
        points = " to ".join(str(state.points(p)) for p in range(state.players))
        outcomes = rules.outcomes(state, config)
        result = f"player {outcomes.index(1.0)} wins" if 1.0 in outcomes else "a draw"
        out.append(f"  Over: {points} points, {result}.")
    return "\n".join(out) + "\n"


def replay(text: str) -> str:
    """The transcripts of the same games, replayed from the deals and moves in the text."""
    games = []
    for game in text.split("\n\n"):
        head = HEAD.match(game)
        assert head, game[:80]
        players = {"Two": 2, "Three": 3, "Four": 4}[head[1]]
        config = Config(players=players, scoring=head[2], earlier_rules=bool(head[3]))
        orders = [re.split(", |; next come ", line) for line in re.findall(r"player \d holds (.*)", game)]
        actions = [action for action in MOVE.findall(game) if action in ACTIONS]
        games.append(transcript(config, orders, actions))
    return "\n".join(games)
