"""The best known response to every opponent of Beasty Bar: `search` with a true model of how they play.

    python tools/experiments/beasty_responses.py --games 10000 --completions 400

Each candidate (the search with its true model of the opponent, and the plain search) plays some games; the
better one plays the games that are reported, which are others. Writes rematch/worlds/beasty/responses.json,
after every opponent; one that is there with as many games is not measured again unless --anew. `rematch eval
beasty` shows it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.verbs.tournament import Match, play_match
from rematch.worlds.beasty.best_responses import FILE
from rematch.worlds.beasty.config import Config
from rematch.worlds.beasty.reference.bots import BOTS

CHOOSING, REPORTING = 1, 2  # seeds: no response is reported on games that it was chosen on


def play(response: str, rival: str, games: int, seed: int, threads: int) -> dict[str, Any]:
    """The response's row of a match."""
    match = Match(players=[response], against=[rival], games=games, seed=seed, threads=threads)
    row: dict[str, Any] = play_match("beasty", match)["table"][0]
    return row


def measure(rival: str, completions: int, games: int, threads: int) -> dict[str, Any]:
    """The entry of one opponent: chosen on a tenth as many games, measured on others."""
    able = [f"search:{completions}:{rival}", f"search:{completions}"]
    tried = {name: play(name, rival, max(2, games // 10), CHOOSING, threads)["win"] for name in able}
    best = max(able, key=lambda name: tried[name])
    row = play(best, rival, games, REPORTING, threads)
    command = f"rematch eval beasty --players {best} --against {rival} --games {games} --seed {REPORTING}"
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
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--opponents", default=",".join(BOTS))
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--anew", action="store_true")
    given = parser.parse_args(argv)
    whole: dict[str, Any] = {"rules": settings.tree(Config()), "responses": {}}
    if given.out.exists():
        whole = json.loads(given.out.read_text())
    for rival in given.opponents.split(","):
        old = whole["responses"].get(rival)
        if old and old["games"] >= given.games and not given.anew:
            continue
        entry = whole["responses"][rival] = measure(rival, given.completions, given.games, given.threads)
        given.out.write_text(json.dumps(whole, indent=1) + "\n")
        print(
            f"{rival}: {entry['response']} wins {entry['win']:.3f} [{entry['low']:.3f}, {entry['high']:.3f}] "
            f"n {entry['games']}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
