"""What one seat knows of a game, as JSON for the page: never the hands of others, nor the order of a deck.

Without a person at the table the game is shown with open hands; decks are always numbers of cards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .. import reference
from ..config import ACTS, POINTS, SPECIES, STRENGTH, Config
from ..describe import EXPLANATIONS, entered, move_text, named_turn_text
from ..hints import Mistake, MoveValue, best_action
from ..state import Card, State
from .session import PlaySession, Turn

Json = dict[str, Any]

STAGES = {"placed": "joins the line", "acts": "acts", "recurs": "acts again", "enters": "opens the gate"}


def animals() -> list[Json]:
    """The twelve animals with strength, points and explanation, the strongest first."""
    return [{"name": name, "strength": STRENGTH[name], "points": POINTS[name], "text": EXPLANATIONS[name]}
            for name in reversed(SPECIES)]


def game_json(session: PlaySession, fresh: Iterable[Turn] = ()) -> Json:
    """The game as its person sees it now; `fresh` are the turns that the page has not shown yet."""
    table, state = session.table, session.state
    outcomes = session.outcomes()
    return {
        "step": session.step,
        "person": table.person,
        "names": list(table.names),
        "scoring": table.rules.scoring,
        "deal": table.seed if session.is_over else None,  # the deal follows from it
        "position": position(session, state),
        "moves": moves(session) if session.is_persons_turn else [],
        "turns": [turn_json(session, turn) for turn in fresh],
        "log": [turn_text(session, turn) for turn in session.turns],
        "over": session.is_over,
        "outcomes": outcomes,
        "end": end_text(session),
        "can_undo": bool(session.decisions()) and table.person is not None,
    }


def position(session: PlaySession, state: State) -> Json:
    """The table at a state, without the cards that the person cannot see."""
    person = session.table.person
    players = []
    for seat in range(state.players):
        seen = person is None or seat == person
        players.append({
            "points": state.points(seat),
            "bar": by_strength(state.bar[seat]),
            "out": by_strength(state.thats_it[seat]),
            "deck": len(state.decks[seat]),
            "cards": len(state.hands[seat]),
            "hand": by_strength(state.hands[seat]) if seen else None,
        })
    return {"turn": state.turn, "line": cards(state.line), "players": players}


def by_strength(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: STRENGTH[name])


def cards(line: Iterable[Card]) -> list[Json]:
    return [{"owner": owner, "animal": name} for owner, name in line]


def moves(session: PlaySession) -> list[Json]:
    """The legal moves, each with the line that it leads to."""
    out = []
    for action in session.legal():
        after = reference.play(session.state, action, session.table.rules)
        out.append({
            "action": action,
            "card": ACTS[action].card,
            "text": move_text(session.state, action, session.table.names),
            **result(session.state, after),
        })
    return out


def result(before: State, after: State) -> Json:
    """What a turn leads to: the line, and the animals that went into the bar or out."""
    return {"line": cards(after.line), "in": cards(entered(before, after, "bar")),
            "out": cards(entered(before, after, "thats_it"))}


# --- turns --------------------------------------------------------------------------------------------------


def turn_text(session: PlaySession, turn: Turn) -> str:
    return named_turn_text(turn.before, turn.action, turn.after, session.table.names)


def turn_json(session: PlaySession, turn: Turn) -> Json:
    """A turn with its stages, for the animation."""
    return {
        "seat": turn.before.turn,
        "card": ACTS[turn.action].card,
        "text": turn_text(session, turn),
        "frames": frames(turn, session.table.rules),
        **result(turn.before, turn.after),
    }


def frames(turn: Turn, rules: Config) -> list[Json]:
    """The line after each stage of a turn that changed it."""
    state, out = turn.before.copy(), list[Json]()
    line = list(state.line)
    for stage, (owner, animal) in reference.stages(state, turn.action, rules):
        if state.line != line:
            line = list(state.line)
            out.append({"stage": STAGES[stage], "owner": owner, "animal": animal, "line": cards(line)})
    return out


def history_json(session: PlaySession) -> Json:
    """Every position from the first to the present one, with the turn that led to it."""
    positions = [position(session, turn.before) for turn in session.turns]
    turns = [turn_json(session, turn) for turn in session.turns]
    return {"positions": [*positions, position(session, session.state)], "turns": turns}


# --- values -------------------------------------------------------------------------------------------------


def value_json(value: MoveValue) -> Json:
    chance = value.score if value.points and math.isfinite(value.score) else None
    return {"text": str(value) if math.isfinite(value.score) else "", "chance": chance,
            "exact": value.difference is not None}


def hint_json(session: PlaySession) -> Json:
    """The values of all legal moves now."""
    values = session.values()
    return {
        "step": session.step,
        "best": best_action(values, -1),
        "values": {str(action): value_json(value) for action, value in values.items()},
        "deals": session.table.completions,
    }


def review_json(session: PlaySession) -> Json:
    """The chance to win at every decision, and the mistakes with the largest loss first."""
    return {
        "seat": session.reviewed_seat,
        "chances": [{"step": c.step, "best": c.best, "played": c.played} for c in session.chances()],
        "mistakes": [mistake_json(session, mistake) for mistake in session.mistakes()],
        "deals": session.table.completions,
    }


def mistake_json(session: PlaySession, mistake: Mistake) -> Json:
    state, names = session.turns[mistake.step].before, session.table.names
    after = reference.play(state, mistake.best, session.table.rules)
    return {
        "step": mistake.step,
        "played": {"move": move_text(state, mistake.played, names), **value_json(mistake.value)},
        "best": {"move": move_text(state, mistake.best, names), **value_json(mistake.best_value),
                 "after": result(state, after)},
        "loss": mistake.cost[0],
        "position": position(session, state),
    }


def end_text(session: PlaySession) -> str:
    """The result in one sentence; empty while the game runs."""
    outcomes, names = session.outcomes(), session.table.names
    if outcomes is None:
        return ""
    if session.forfeit:
        return f"{names[session.forfeit[0]]} forfeits: {session.forfeit[1]}."
    if session.resigned:
        return "You resign."
    person = session.table.person
    if person is not None:
        return {1.0: "You win.", 0.5: "A draw.", 0.0: "You lose."}[outcomes[person]]
    best = [name for name, outcome in zip(names, outcomes) if outcome == max(outcomes)]
    return f"{best[0]} wins." if len(best) == 1 else f"A draw between {' and '.join(best)}."
