"""The long comparison of compiled Beasty Bar with its Python reference: rules, bots, search, win rates.

    python tools/checks/beasty_check.py --games 1000000      about half an hour on one core
    python tools/checks/beasty_check.py --games 0 --positions 0 --decisions 0    only the win rates

The first difference ends the check with a message; the tests make the same comparison with fewer games.
"""

from __future__ import annotations

import argparse
import time

from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.reference.compare import compare_bots, compare_rules, compare_search, match

RULE_SETS = {
    "two players": Config(),
    "document variant": Config(earlier_rules=True),
    "three, by count": Config(players=3, scoring="count", first=-1),
    "four": Config(players=4, first=-1),
}
GAME_SHARES = {"two players": 0.4, "document variant": 0.4, "three, by count": 0.1, "four": 0.1}

# Win, draw and loss rates of the first bot against the second, in percent, from the specification.
EXPECTED_RATES = {
    ("random", "heuristic"): (8, 4, 88),
    ("random", "outcome_heuristic"): (4, 4, 92),
    ("heuristic", "defensive"): (51, 12, 37),
    ("heuristic", "online"): (41, 11, 48),
    ("heuristic", "outcome_heuristic"): (36, 10, 54),
    ("outcome_heuristic", "distilled_outcome"): (44, 11, 45),
}
TOLERANCE = 2.0  # percentage points


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=1_000_000, help="random games over all rule sets")
    parser.add_argument("--positions", type=int, default=10_000, help="positions per bot and rule set")
    parser.add_argument(
        "--decisions", type=int, default=10_000, help="decisions of the search, with one completion each"
    )
    parser.add_argument("--deals", type=int, default=10_000, help="deals per win rate, each played twice")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    started = time.perf_counter()
    for name, config in RULE_SETS.items():
        turns = compare_rules(config, round(args.games * GAME_SHARES[name]), args.seed)
        bots = compare_bots(config, args.positions, args.seed) if args.positions else 0
        decisions = round(args.decisions * GAME_SHARES[name])
        search_decisions = compare_search(config, decisions, args.seed) if decisions else 0
        print(f"{name}: {turns} turns, {bots} decisions of bots, {search_decisions} decisions of the search "
              f"are equal ({time.perf_counter() - started:.0f} s)", flush=True)  # fmt: skip
    mismatches = 0
    for names, expected in EXPECTED_RATES.items() if args.deals else ():
        rates = 100 * match(RULE_SETS["document variant"], names, args.deals, args.seed)
        within_tolerance = max(abs(rates - expected)) <= TOLERANCE
        mismatches += not within_tolerance
        measured_text = "/".join(f"{share:.1f}" for share in rates)
        expected_text, verdict = "/".join(map(str, expected)), "ok" if within_tolerance else "DIFFERENT"
        print(f"{' - '.join(names)}: {measured_text}, expected {expected_text}: {verdict}")
    return 1 if mismatches else 0


if __name__ == "__main__":
    raise SystemExit(main())
