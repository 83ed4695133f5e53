"""The best known response to every bot of Beasty Bar, among three kinds of search.

    python tools/experiments/beasty_responses.py --games 10000 --completions 400

Candidates are `model` (the search with an exact model of the bot), `plain` (the search) and `guided` (the
search that the agent in the repository guides). Each plays some games; the best one plays the reported games,
which have another seed. A single candidate is not selected: it plays only the reported games. The results are
written to rematch/worlds/beasty/responses.json after every bot; a bot that already has as many games is
skipped unless --anew is given. `rematch eval beasty` shows them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.verbs.tournament import Match, play_match
from rematch.worlds.beasty.best_responses import FILE
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.reference.bots import BOTS

AGENT = "rematch/worlds/beasty/agent.safetensors"  # the commands are run in the root of the repository
KINDS = ("model", "plain", "guided")
SELECTION_SEED, REPORT_SEED = 1, 2  # a response is not reported on the games that selected it


def play(response: str, opponent: str, games: int, seed: int, threads: int) -> dict[str, Any]:
    """Row of the response in the table of a match."""
    match = Match(players=[response], against=[opponent], games=games, seed=seed, threads=threads)
    row: dict[str, Any] = play_match("beasty", match)["table"][0]
    return row


def candidate(kind: str, opponent: str, completions: int) -> str:
    """Name of the player of this kind for `rematch eval`."""
    plain = f"search:{completions}"
    return {"model": f"{plain}:{opponent}", "plain": plain, "guided": f"{AGENT}+{plain}"}[kind]


def measure(opponent: str, candidates: Sequence[str], games: int, threads: int) -> dict[str, Any]:
    """Entry of one opponent: the response is selected on games // 5 games and measured on `games` others."""
    best = candidates[0]
    if len(candidates) > 1:
        few = max(2, games // 5)
        rows = {name: play(name, opponent, few, SELECTION_SEED, threads) for name in candidates}
        best = max(candidates, key=lambda name: float(rows[name]["win"]))
    row = play(best, opponent, games, REPORT_SEED, threads)
    command = (
        f"rematch eval beasty --players {best} --against {opponent} --games {games} --seed {REPORT_SEED}"
    )
    return {
        "response": best,
        "win": row["win"],
        "low": row["win_low"],
        "high": row["win_high"],
        "draws": row["draws"] / row["games"],
        "score": row["score"],
        "games": row["games"],
        "command": command,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--games", type=int, default=10_000)
    parser.add_argument("--completions", type=int, default=400)
    parser.add_argument("--candidates", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--opponents", default=",".join(BOTS))
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--anew", action="store_true")
    args = parser.parse_args(argv)
    report: dict[str, Any] = {"rules": settings.tree(Config()), "responses": {}}
    if args.out.exists():
        report = json.loads(args.out.read_text())
    for opponent in args.opponents.split(","):
        previous = report["responses"].get(opponent)
        if previous and previous["games"] >= args.games and not args.anew:
            continue
        candidates = [candidate(kind, opponent, args.completions) for kind in args.candidates]
        entry = report["responses"][opponent] = measure(opponent, candidates, args.games, args.threads)
        args.out.write_text(json.dumps(report, indent=1) + "\n")
        print(
            f"{opponent}: {entry['response']} wins {entry['win']:.3f} "
            f"[{entry['low']:.3f}, {entry['high']:.3f}] n {entry['games']}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
