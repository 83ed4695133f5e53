"""Compiled Beasty Bar beside its readable references, in large: rules, opponents, search, known figures.

    python tools/checks/beasty_check.py --games 1000000      about half an hour on one core
    python tools/checks/beasty_check.py --games 0 --positions 0 --decisions 0    the figures alone

The first difference ends it with what differs; the tests do the same in small.
"""

from __future__ import annotations

import argparse
import time

from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.reference.compare import compare_bots, compare_rules, compare_search, match

RULES = {
    "two players": Config(),
    "the document's": Config(document_variant=True),
    "three, by count": Config(players=3, scoring="count", first=-1),
    "four": Config(players=4, first=-1),
}
SHARES = {"two players": 0.4, "the document's": 0.4, "three, by count": 0.1, "four": 0.1}

# Win, draw, loss in per cent of the first against the second, as the specification has them (+-2).
FIGURES = {
    ("random", "heuristic"): (8, 4, 88),
    ("random", "outcome_heuristic"): (4, 4, 92),
    ("heuristic", "defensive"): (51, 12, 37),
    ("heuristic", "online"): (41, 11, 48),
    ("heuristic", "outcome_heuristic"): (36, 10, 54),
    ("outcome_heuristic", "distilled_outcome"): (44, 11, 45),
}
ASIDE = 2.0  # points by which a figure may be off


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=1_000_000, help="random games, all rules together")
    parser.add_argument(
        "--positions", type=int, default=10_000, help="for each opponent and each set of rules"
    )
    parser.add_argument("--decisions", type=int, default=10_000, help="of the search, one completion each")
    parser.add_argument("--deals", type=int, default=10_000, help="of each figure, played twice")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    began = time.perf_counter()
    for name, config in RULES.items():
        turns = compare_rules(config, round(given.games * SHARES[name]), given.seed)
        bots = compare_bots(config, given.positions, given.seed) if given.positions else 0
        asked = round(given.decisions * SHARES[name])
        found = compare_search(config, asked, given.seed) if asked else 0
        print(f"{name}: {turns} turns, {bots} decisions of opponents, {found} of the search agree "
              f"({time.perf_counter() - began:.0f} s)", flush=True)  # fmt: skip
    off = 0
    for names, wanted in FIGURES.items() if given.deals else ():
        found_shares = 100 * match(RULES["the document's"], names, given.deals, given.seed)
        fine = max(abs(found_shares - wanted)) <= ASIDE
        off += not fine
        told = "/".join(f"{share:.1f}" for share in found_shares)
        known, verdict = "/".join(map(str, wanted)), "as known" if fine else "OFF"
        print(f"{' - '.join(names)}: {told}, expected {known}: {verdict}")
    return 1 if off else 0


if __name__ == "__main__":
    raise SystemExit(main())
