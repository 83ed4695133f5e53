"""Rows as evaluations write them, for the tests of whatever shows them."""

from __future__ import annotations

from typing import Any


def entry(**changes: Any) -> dict[str, Any]:
    return {"player": "pursuer (learnt)", "role": "pursuer", "rival": "flee_straight", "games": 1000,
            "wins": 931, "draws": 0, "score": 0.931, "low": 0.913, "high": 0.945, "best_bot": "pure_pursuit",
            "best_bot_score": 0.88, "best_bot_low": 0.86, "best_bot_high": 0.9, **changes}


def evaluated(**changes: Any) -> dict[str, Any]:
    rates = {"pursuer": {"rate": 0.52, "low": 0.489, "high": 0.551, "games": 1000},
             "evader": {"rate": 0.48, "low": 0.449, "high": 0.511, "games": 1000}}
    return {"iteration": 20, "step": 1_000_000, "phase": 1, "role": "both", "rates": rates, "gap": 0.04,
            "gap_high": 0.102, "SR_P": 0.52, "SR_E": 0.48, "rollbacks": 0, "verdict": "improving",
            "table": [entry(), entry(role="evader", player="evader (learnt)", rival="lead", score=0.4,
                                     low=0.37, high=0.43, best_bot="zigzag")], **changes}
