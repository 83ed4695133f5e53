"""Encoders of what a robot has seen, compared under partial observation: docs/results/belief.md.

    python tools/experiments/encoders.py run [--seeds 0-2] [--only bimdn] [--out runs/encoders]
    python tools/experiments/encoders.py publish

`run` trains the recipe `belief` with every encoder and, as an upper bound, with full sight; it resumes an
interrupted run and skips those with a line in docs/results/data/encoders.jsonl. The line has the scores of
the final policies against every scripted player. `publish` writes the tables of docs/results/belief.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rematch import api  # noqa: E402
from rematch.cli.main import main as run_command  # noqa: E402
from rematch.core.errors import ConfigError, RunError  # noqa: E402
from rematch.evaluation.statistics import wilson  # noqa: E402
from rematch.reporting.console import Console  # noqa: E402
from rematch.reporting.status import status  # noqa: E402

PAGE, RESULTS = ROOT / "docs/results/belief.md", ROOT / "docs/results/data/encoders.jsonl"
BEGIN, END = "<!-- tools/experiments/encoders.py publish -->", "<!-- until here -->"
ARMS: dict[str, dict[str, Any]] = {
    "full sight": {"network.encoder": "mlp", "world.full_obs": True},
    "mlp": {"network.encoder": "mlp"},
    "lstm": {"network.encoder": "lstm"},
    "bimdn": {},
}

Line = dict[str, Any]


def train_arm(arm: str, seed: int, out: Path) -> Line:
    """Train or resume one run; its line."""
    folder = out / arm.replace(" ", "_") / str(seed)
    started, console = time.perf_counter(), Console(live=False)
    console.off = True
    if (folder / "config.yaml").exists():
        trained = api.resume(folder, console=console)
    else:
        trained = api.train("belief", ARMS[arm] | {"seed": seed}, folder, console)
    if status(folder)["state"] != "complete":
        raise RunError(f"{folder}: stopped before its end; the same command continues it")
    row = trained.history[-1]
    scores = {f"{match['role']} {match['rival']}": [match["wins"], match["games"]] for match in row["table"]}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {"arm": arm, "seed": seed, "steps": row["step"], "seconds": round(time.perf_counter() - started),
            "scores": scores, "commit": commit.stdout.strip()}


# --- results file and page ---------------------------------------------------------------------------------


def load_lines() -> list[Line]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def mean_score(line: Line, role: str) -> float:
    """Mean over all scripted opponents of a role."""
    results = [result for match, result in line["scores"].items() if match.startswith(role)]
    return float(sum(wins / games for wins, games in results) / len(results))


def tables(lines: Sequence[Line]) -> list[str]:
    if not lines:
        return ["", "No run is complete yet."]
    text = [""]
    arms = [arm for arm in ARMS if any(line["arm"] == arm for line in lines)]
    by_arm = {arm: sorted((line for line in lines if line["arm"] == arm), key=lambda line: int(line["seed"]))
              for arm in arms}
    for arm, runs in by_arm.items():
        seeds, steps = [line["seed"] for line in runs], {line["steps"] for line in runs}
        text.append(f"- {arm}: seeds {', '.join(map(str, seeds))}; {' and '.join(f'{s:,}' for s in steps)} "
                    f"steps; {', '.join(str(round(line['seconds'] / 60)) for line in runs)} minutes; "
                    f"commit {', '.join(sorted({line['commit'] for line in runs}))}")
    text += ["", f"| role, opponent | {' | '.join(arms)} |", "| --- |" + " --- |" * len(arms)]
    for role in ("pursuer", "evader"):
        means = [", ".join(f"{mean_score(line, role):.3f}" for line in by_arm[arm]) for arm in arms]
        text.append(f"| {role}, mean of all | {' | '.join(means)} |")
    for match in lines[0]["scores"]:
        cells = [", ".join(rate_text(*line["scores"][match]) for line in by_arm[arm]) for arm in arms]
        text.append(f"| {match.replace(' ', ', ')} | {' | '.join(cells)} |")
    games = {games for line in lines for _, games in line["scores"].values()}
    return [*text, "", f"n = {' and '.join(map(str, games))} games an entry; one number per seed, in that "
            "order, with its 95 % interval over games."]


def rate_text(wins: int, games: int) -> str:
    low, high = wilson(wins, games)
    return f"{wins / games:.3f} [{low:.3f}, {high:.3f}]"


def page() -> str:
    before, _, remainder = PAGE.read_text().partition(BEGIN)
    content = "\n".join(tables(load_lines()))
    return before + BEGIN + "\n" + content + "\n\n" + END + remainder.partition(END)[2]


# --- command line ------------------------------------------------------------------------------------------


def seeds_of(text: str) -> range:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal() and int(first) <= int(last or first)):
        raise ConfigError(f"--seeds {text!r}: expected FIRST-LAST, such as 0-2")
    return range(int(first), int(last or first) + 1)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "publish"))
    parser.add_argument("--seeds", default="0-2", help="seeds (default %(default)s)")
    parser.add_argument("--only", default="", help=f"arms, with commas (default {', '.join(ARMS)})")
    parser.add_argument("--out", type=Path, default=Path("runs/encoders"),
                        help="folder of the runs (default %(default)s)")
    args = parser.parse_args(arguments)
    if args.what == "publish":
        PAGE.write_text(page())
        return 0
    chosen = [arm for arm in args.only.split(",") if arm] or list(ARMS)
    if unknown := [arm for arm in chosen if arm not in ARMS]:
        raise ConfigError(f"--only {unknown[0]}: expected some of {', '.join(ARMS)}")
    for seed in seeds_of(args.seeds):
        for arm in chosen:
            if any(line["arm"] == arm and line["seed"] == seed for line in load_lines()):
                continue
            line = train_arm(arm, seed, args.out)
            with RESULTS.open("a") as file:
                file.write(json.dumps(line) + "\n")
            rates = ", ".join(f"{role} {mean_score(line, role):.3f}" for role in ("pursuer", "evader"))
            print(f"{arm} seed {seed}: {rates} on average, {line['seconds']} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(act=main))
