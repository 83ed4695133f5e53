"""Rows of history.json as evaluations write them: fixed examples, and rows computed from scores."""

from __future__ import annotations

from typing import Any

from rematch.evaluation.statistics import wilson

Row = dict[str, Any]
ROLES = ("pursuer", "evader")


# --- fixed examples ---------------------------------------------------------------------------------------


def entry(**changes: Any) -> Row:
    """A match row with its baseline."""
    return {"player": "pursuer (learnt)", "role": "pursuer", "rival": "flee_straight", "games": 1000,
            "wins": 931, "draws": 0, "score": 0.931, "low": 0.913, "high": 0.945, "best_bot": "pure_pursuit",
            "best_bot_score": 0.88, "best_bot_low": 0.86, "best_bot_high": 0.9, **changes}


def evaluated(**changes: Any) -> Row:
    """An evaluation of two roles with two matches."""
    rates = {"pursuer": {"rate": 0.52, "low": 0.489, "high": 0.551, "games": 1000},
             "evader": {"rate": 0.48, "low": 0.449, "high": 0.511, "games": 1000}}
    return {"iteration": 20, "step": 1_000_000, "phase": 1, "role": "both", "rates": rates, "gap": 0.04,
            "gap_high": 0.102, "SR_P": 0.52, "SR_E": 0.48, "rollbacks": 0, "verdict": "improving",
            "table": [entry(), entry(role="evader", player="evader (learnt)", rival="lead", score=0.4,
                                     low=0.37, high=0.43, best_bot="zigzag")], **changes}


# --- computed rows ----------------------------------------------------------------------------------------


def rate_row(rate: float, games: int = 1000) -> Row:
    low, high = wilson(rate * games, games)
    return {"rate": rate, "low": low, "high": high, "games": games}


def match_row(role: str, opponent: str, score: float, games: int = 1000, best: float | None = None) -> Row:
    """A match with Wilson's interval; `best` is the score of the best scripted player."""
    low, high = wilson(score * games, games)
    row: Row = {"role": role, "rival": opponent, "score": score, "games": games, "low": low, "high": high}
    if best is not None:
        row |= {"best_bot": "ace", "best_bot_score": best}
        row["best_bot_low"], row["best_bot_high"] = wilson(best * games, games)
    return row


def evaluation_row(
    step: int, rate: float = 0.5, score: float = 0.6, games: int = 1000, best: float | None = None
) -> Row:
    """An evaluation: the first role's rate head to head, and one score against two opponents per role."""
    low, high = wilson(rate * games, games)
    table = [match_row(role, opponent, score, games, best) for role in ROLES for opponent in ("x", "y")]
    return {"step": step, "rates": {"pursuer": rate_row(rate, games), "evader": rate_row(1 - rate, games)},
            "gap": abs(2 * rate - 1), "gap_high": max(abs(2 * low - 1), abs(2 * high - 1)), "table": table}


def return_row(mean: float, half: float | None, step: int = 0, **changes: Any) -> Row:
    """An evaluation of a world with one seat: a mean return, and half the width of its interval."""
    low, high = (None, None) if half is None else (mean - half, mean + half)
    entry = {"mean": mean, "low": low, "high": high, "games": 20, "player": "player (learnt)"} | changes
    return {"step": step, "rates": {}, "table": [], "returns": {"player": entry}}
