"""How the score of a pursuit policy falls with each disturbance of the robots; nothing is trained.

    python tools/experiments/robustness.py runs/quick-1 --games 1000 --out robustness.jsonl
    python tools/experiments/robustness.py pursuer.policy --against lead_pursuit,obstacle_orbit

Each setting of DISTURBANCES is changed alone, all others are 0; every value is measured on the same start
positions, with seeds that no training and no other evaluation has. A disturbance applies to both robots;
scripted opponents read the true state, so sensor noise disturbs the policy only. Every row is printed with
its number of games, its 95 % interval and the interval of its drop from the undisturbed score, and is
appended to the file of --out as a JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rematch import api
from rematch.cli.main import main as run_command
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.evaluation import evaluator
from rematch.evaluation.match import Result, Scoreboard
from rematch.evaluation.statistics import Z95, score_drop
from rematch.training.trained_run import world_builder
from rematch.worlds import registry

DISTURBANCES: dict[str, tuple[float, ...]] = {
    "speed_variation": (0.1, 0.2, 0.4),
    "turn_variation": (0.2, 0.4, 0.8),
    "action_delay": (1, 2, 4),
    "actuator_noise": (0.1, 0.2, 0.4),
    "sensor_noise": (0.02, 0.05, 0.1),
}
SEED_OFFSET = 1 << 41  # of this program alone
AGAINST = ("lead_pursuit", "obstacle_orbit")  # one strong scripted player of each role


Request = tuple[int, Sequence[str], int]  # games of each match, scripted opponents, seed


def scores(trained: api.Trained, changes: Mapping[str, float], request: Request) -> list[Result]:
    """The results of the policies against scripted players in a world with these disturbances alone."""
    games, against, seed = request
    disturbances = {name: type(values[0])(changes.get(name, 0)) for name, values in DISTURBANCES.items()}
    config = settings.replace(trained.config, {f"world.{name}": x for name, x in disturbances.items()})
    board = Scoreboard(world_builder(config, trained.curriculum), SEED_OFFSET + seed, config.threads)
    game = registry.find(config.game)
    return evaluator.against_bots(board, game, board.spec, trained.policies, (games, against, 0))


def rows(trained: api.Trained, names: Sequence[str], request: Request) -> Iterator[dict[str, Any]]:
    """A row per setting, value and match; the first rows are the undisturbed ones."""
    nominal = scores(trained, {}, request)
    yield from (row_of("none", 0, result, result) for result in nominal)
    for name in names:
        for value in DISTURBANCES[name]:
            results = scores(trained, {name: value}, request)
            yield from (row_of(name, value, before, now) for before, now in zip(nominal, results))


def row_of(setting: str, value: float, before: Result, now: Result) -> dict[str, Any]:
    """Score and drop of one match, each with its interval."""
    low, high = now.interval
    old, new = (before.score, before.games), (now.score, now.games)
    drop, drop_low = score_drop(old, new, Z95)
    return {"setting": setting, "value": value, "role": now.role, "opponent": now.opponent,
            "games": now.games, "score": now.score, "low": low, "high": high,
            "drop": drop, "drop_low": drop_low, "drop_high": -score_drop(new, old, Z95)[1]}


def line(row: dict[str, Any]) -> str:
    """A row of the Markdown table."""
    drop = "" if row["setting"] == "none" else (
        f"{row['drop']:+.3f} [{row['drop_low']:+.3f}, {row['drop_high']:+.3f}]")
    return (f"| {row['setting']} | {row['value']:g} | {row['role']} | {row['opponent']} "
            f"| {row['score']:.3f} [{row['low']:.3f}, {row['high']:.3f}] | {row['games']} | {drop} |")


def measure(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", help="run folder or exported policy of pursuit")
    parser.add_argument("--games", type=int, default=1000, help="games of each match (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the games (default %(default)s)")
    parser.add_argument("--against", default=",".join(AGAINST), help="scripted opponents, with commas")
    parser.add_argument("--only", default=",".join(DISTURBANCES), help="settings, with commas")
    parser.add_argument("--greedy", action="store_true", help="policies take their most likely action")
    parser.add_argument("--out", type=Path, help="file to which the rows are appended as JSON lines")
    args = parser.parse_args(arguments)
    trained = api.load(args.run)
    names, against = args.only.split(","), args.against.split(",")
    for name in names:
        if name not in DISTURBANCES:
            raise ConfigError(f"--only {name}: expected some of {', '.join(DISTURBANCES)}")
    if args.games < 1:
        raise ConfigError(f"--games = {args.games}: expected at least 1")
    if trained.config.game != "pursuit":
        raise ConfigError(f"{args.run} plays {trained.config.game}: expected a run of pursuit")
    evaluator.check_bot_names(registry.find("pursuit"), against, "--against")
    for policy in trained.policies.values():
        policy.greedy = args.greedy
    print("| setting | value | role | opponent | score | n | drop |\n" + "| --- " * 7 + "|")
    for row in rows(trained, names, (args.games, against, args.seed)):
        print(line(row), flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps({"step": trained.step, "seed": args.seed} | row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(act=measure))
