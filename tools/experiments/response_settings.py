"""Which settings make a best response strong: responses to one run with several settings, on equal games.

    python tools/experiments/response_settings.py RUN [--device cuda] [--budget 20000000] [--minutes 9]
    python tools/experiments/response_settings.py RUN --variants recipe,wide --starts fresh --roles pursuer
    python tools/experiments/response_settings.py RUN --starts selfplay --other RUN2 --variants first

Every role and start (`fresh`, `incumbent`) is trained with each variant: `first`, `second` and `recipe` are
the settings of the three kinds of responses of `rematch exploit`, of which `recipe` has the run's own; the
others change these: `no_magnet`; `wide` (the entropy weight of `first` at the start); `gentle` (a tenth of
the learning rate, the entropy weight of the run's end). Responses of the start `selfplay` begin with the
agents of --other, a run of the same recipe with another seed, in place of a training by self-play; their
lines have its seed and the score before the first step. A response is a line of the file (--out) as soon as
it is trained; the same command again continues. Scores are those of sampled and greedy play in games that
chose no checkpoint; that of the incumbent stands beside them, and where the game can be solved the exact
score and the share of the exact gain of the better play.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools/checks")]

from gpu_series import append, records  # noqa: E402

from rematch.cli.main import main as run_command  # noqa: E402
from rematch.core import config as settings  # noqa: E402
from rematch.core.errors import ConfigError  # noqa: E402
from rematch.evaluation.match import Scoreboard  # noqa: E402
from rematch.training import best_response, response_training  # noqa: E402
from rematch.training.response_training import (  # noqa: E402
    FRESH,
    INCUMBENT,
    SELF_PLAY,
    Course,
    FrozenAgents,
    Response,
)
from rematch.verbs.arguments import folder_of  # noqa: E402
from rematch.verbs.exploit import on_device  # noqa: E402
from rematch.verbs.on_cluster.response_actors import frozen_agents  # noqa: E402

PRESENT = {"first": 0, "second": 1, "recipe": 2}  # numbers of responses of `rematch exploit`
VARIANTS = (*PRESENT, "no_magnet", "wide", "gentle")
STARTS = (FRESH, INCUMBENT, SELF_PLAY)
CHECKPOINT_GAMES = 1000
SEED = 7  # variants have the same games and the same first weights
OWN = ("lr", "lr_final", "anneal", "entropy_weight", "entropy_weight_final", "magnet_weight", "magnet_decay",
       "epochs", "target_kl")  # fmt: skip
Line = dict[str, Any]


def variant_config(frozen: FrozenAgents, start: str, variant: str, budget: int) -> Any:
    """The settings of a response."""
    spec = frozen.make(1, 0, 0).spec
    config = response_training.search_config(frozen.config, budget, (start, PRESENT.get(variant, 0)), spec)
    if variant in PRESENT:
        return config
    own = {f"ppo.{key}": getattr(frozen.config.ppo, key) for key in OWN}
    changes = {
        "no_magnet": {"ppo.magnet_weight": 0.0},
        "wide": {"ppo.entropy_weight": config.ppo.entropy_weight},
        "gentle": {"ppo.lr": own["ppo.lr"] / 10, "ppo.entropy_weight": own["ppo.entropy_weight_final"]},
    }
    return settings.replace(config, own | changes.get(variant, {}))


def exact_score(frozen: FrozenAgents, role: str, policy: Any, play: str) -> Line:
    """Exact scores of the incumbent, of this response and of the best one; empty where none are known."""
    policy.greedy = play == "greedy"
    exact = best_response.exact_scores(frozen, role, policy).get("exact", {})
    policy.greedy = False
    return {key: None if value is None else round(value, 5) for key, value in exact.items()}


def train(
    frozen: FrozenAgents, role: str, start: str, variant: str, sizes: tuple[int, int, int],
    other: FrozenAgents | None = None,
) -> Line:  # fmt: skip
    """Train one response and measure it; sizes: budget, games of the report, seed."""
    budget, games, seed = sizes
    config = variant_config(frozen, start, variant, budget)
    course = Course.of(frozen, config, role) if start == FRESH else None
    response = Response(frozen, config, role, seed, course)
    board = Scoreboard(frozen.make, best_response.SEED_OFFSET + frozen.config.seed, frozen.config.threads)
    checkpoints: list[float] = []

    def score(player: Any, games: int, index: int) -> dict[str, float]:
        return {play: best_response._play(frozen, board, role, player, (play, games, index)).score
                for play in best_response.PLAYS}

    def checkpoint(player: Any) -> float:
        checkpoints.append(max(score(player, CHECKPOINT_GAMES, best_response.CHECKPOINT).values()))
        return checkpoints[-1]

    if start != FRESH:
        source: Any = other if start == SELF_PLAY else frozen
        response.policy.set(source.players[role].weights)
    untrained = score(response.policy, games, best_response.REPORT) if start == SELF_PLAY else {}
    began = time.perf_counter()
    iterations = response.search(start, checkpoint)
    seconds = time.perf_counter() - began
    steps = iterations * config.games * config.steps
    scores = score(response.policy, games, best_response.REPORT)
    exact = [exact_score(frozen, role, response.policy, play) for play in best_response.PLAYS]
    known = {"exact": max(exact, key=lambda each: each["found"])} if exact[0] else {}
    if untrained:
        known["untrained"] = {play: round(value, 4) for play, value in untrained.items()}
    return known | {"steps": steps, "seconds": round(seconds, 1),
            "checkpoints": [round(each, 4) for each in checkpoints],
            **{play: round(value, 4) for play, value in scores.items()}}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("run", help="folder of a run")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--starts", default=f"{FRESH},{INCUMBENT}")
    parser.add_argument("--other", default="", help="folder of the run with whose agents `selfplay` starts")
    parser.add_argument("--roles", default="", help="default: every role")
    parser.add_argument("--budget", type=int, default=20_000_000, help="steps of a response, at most")
    parser.add_argument("--games", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=SEED, help="of the responses (default %(default)s)")
    parser.add_argument("--device", default="", help="device of the responses (default: that of the run)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no response begins after them")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/results/data/response_settings.jsonl")
    args = parser.parse_args(arguments)
    end = time.monotonic() + 60 * args.minutes
    variants, starts = args.variants.split(","), args.starts.split(",")
    for name, known in [*((v, VARIANTS) for v in variants), *((s, STARTS) for s in starts)]:
        if name not in known:
            raise ConfigError(f"{name}: expected some of {', '.join(known)}")
    if (SELF_PLAY in starts) != bool(args.other):
        raise ConfigError("--starts selfplay and --other RUN belong together")
    other = frozen_agents(folder_of(args.other), print) if args.other else None
    folder = folder_of(args.run)
    frozen = on_device(frozen_agents(folder, print), args.device)
    for role in args.roles.split(",") if args.roles else frozen.players:
        for start in starts:
            for variant in variants:
                key = {"game": frozen.config.game, "seed": frozen.config.seed, "iteration": frozen.iteration,
                       "role": role, "start": start, "variant": variant, "budget": args.budget,
                       "response_seed": args.seed}  # fmt: skip
                if other is not None and start == SELF_PLAY:
                    key["other"] = other.config.seed
                if any(key.items() <= line.items() for line in records([args.out])):
                    continue
                if time.monotonic() > end:
                    print("the time is over: the same command continues")
                    return 0
                line = key | train(frozen, role, start, variant, (args.budget, args.games, args.seed), other)
                line["incumbent"] = round(_incumbent(frozen, role, args.games), 4)
                line["n"], line["device"] = args.games, frozen.config.device
                append(args.out, line)
                print(json.dumps(line), flush=True)
    return 0


def _incumbent(frozen: FrozenAgents, role: str, games: int) -> float:
    board = Scoreboard(frozen.make, best_response.SEED_OFFSET + frozen.config.seed, frozen.config.threads)
    match = ("sampled", games, best_response.REPORT)
    return best_response._play(frozen, board, role, frozen.players[role], match).score


if __name__ == "__main__":
    sys.exit(run_command(act=main))
