"""Criteria of balance of the recipes ra3 and ra4, from run folders: docs/results/balance.md.

    rematch sweep ra3 --seeds 0-9
    python tools/experiments/balance_criteria.py gather ra3=runs/ra3-sweep/seed-* ...
    python tools/experiments/balance_criteria.py publish

`gather` writes a line per run into docs/results/data/balance.jsonl: every evaluation, the scores on earlier
levels, and the final policies against all scripted players (n = 1000 a match, on games that no training and
no evaluation has), by games won and by the mean return that the training optimizes. `publish` writes the
tables from it: all seeds, no selection. GROUPS names the kinds of runs; a kind without runs is listed as
missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import game_value  # noqa: E402
import reproductions  # noqa: E402

from rematch import api  # noqa: E402
from rematch.cli.main import main as run_command  # noqa: E402
from rematch.core import config as settings  # noqa: E402
from rematch.core.errors import ConfigError  # noqa: E402
from rematch.evaluation.evaluation import Evaluation  # noqa: E402
from rematch.evaluation.statistics import Mean  # noqa: E402
from rematch.verbs.evaluate import run_board, scoreboard_row  # noqa: E402
from rematch.worlds import registry  # noqa: E402
from rematch.worlds.game import Game  # noqa: E402

PAGE, RESULTS = ROOT / "docs/results/balance.md", ROOT / "docs/results/data/balance.jsonl"
BEGIN, END = "<!-- tools/experiments/balance_criteria.py publish -->", "<!-- until here -->"
GAMES = 1000  # of a match of the final policies against a scripted player
SEED = 7  # of those games: `rematch eval` has 0
SETTLED, EARLY = 1_000_000, 2_010_000  # steps; rollouts are whole
GAP, SWING, DISTANCE, KEPT = 0.30, 0.15, 0.15, 0.95
SEEDS = 10  # that the criteria ask for
MISSING = "– (no evaluation there)"
BY_RETURN = "beside it, no criterion: the same by the mean return that is trained"
RETURN_INDEX = 5000  # of the scripted players' matches
# kind of run -> its settings; those at the author's own radius are judged by the value of their game
SCRATCH = "recipe before imitation: random initial weights, capture at 1.3 m, 128 games"
GROUPS: dict[str, str] = {
    "ra3": "`rematch sweep ra3`: no curriculum",
    "ra3_gpu": "`rematch sweep ra3 --device cuda`: the same settings on a GPU (NVIDIA H200)",
    "ra3_again_gpu": "the same again, with mean returns",
    "ra3_anchor_gpu": "`ra3 --imitation.anchored pursuer --imitation.anchor_weight 0.1`, on a GPU",
    "ra4": "`rematch sweep ra4`: distance curriculum",
    "ra4_gpu": "`rematch sweep ra4 --device cuda`: the same settings on a GPU (NVIDIA H200)",
    "ra4_far_gpu": "before: imitation of games that start 3 to 15 m apart, not 2 to 5 m, on a GPU",
    "ra3_own": "`ra3 --world.capture_radius 0.5`: the author's own game",
    "ra4_own": "`ra4 --world.capture_radius 0.5`: the author's own game",
    "ra3_zero": "`ra3 --ppo.lr 0 --ppo.lr_final 0`: control, imitation without any learning after it",
    "ra3_scratch": f"{SCRATCH}, `balance.threshold 0.1`",
    "ra3_scratch_gpu": f"{SCRATCH}, `balance.threshold 0.1`, on a GPU (NVIDIA H200)",
    "ra4_scratch": f"{SCRATCH}, `balance.threshold 0.1`, distance curriculum",
    "ra3_scratch_own": f"{SCRATCH}, at the author's 0.5 m instead",
    "ra3_scratch_fixed": f"{SCRATCH}; both roles always learn",
    "ra3_scratch_zero": f"{SCRATCH}; learning rate 0",
}
BY_VALUE = ("ra3_own", "ra4_own", "ra3_scratch_own")

Line = dict[str, Any]
Returns = dict[tuple[str, str], tuple[str, Mean]]  # (role, opponent) -> the best script's name and return
BEST_RETURNS: dict[str, Returns] = {}  # by rules and level: they are the same for all runs of a kind


def gather(kind: str, folder: Path) -> Line:
    """The line of a run: what reproductions.py keeps, and the final scoreboard."""
    line = reproductions.gather(kind, folder)
    trained = api.load(folder)
    game = registry.find(trained.config.game)
    row = scoreboard_row(trained, game, (GAMES, (), SEED))
    evaluation = Evaluation.from_json({"phase": "", "step": trained.step, **row})
    below = [[match.role, match.opponent, round(match.score, 4)] for match in evaluation.below_baseline]
    progress = trained.curriculum
    line["returns"] = returns_behind(evaluation, best_returns(trained, game))
    return line | {"matches": len(row["table"]), "below": below,
                   "levels": len(progress.levels) if progress else 0,
                   "level": progress.level + 1 if progress else 0}


def best_returns(trained: api.Trained, game: Game) -> Returns:
    """The scripted player with the highest mean return in each match-up."""
    board = run_board(trained, game, SEED)
    key = f"{settings.to_yaml(trained.config.world)} {trained.curriculum and trained.curriculum.name}"
    if key not in BEST_RETURNS:
        found: Returns = {}
        BEST_RETURNS[key] = found
        roles = list(game.bots)
        for seat, role in enumerate(roles):
            other = roles[1 - seat]
            for n, (opponent, script) in enumerate(product(game.bots[other], game.bots[role])):
                players = [game.bot(script, role), game.bot(opponent, other)][:: 1 if seat == 0 else -1]
                returned = board.results(players, GAMES, RETURN_INDEX + 1000 * seat + n)[seat].returned
                best = found.get((role, opponent))
                if returned and (best is None or returned.mean > best[1].mean):
                    found[role, opponent] = script, returned
    return BEST_RETURNS[key]


def returns_behind(evaluation: Evaluation, best: Returns) -> list[list[Any]]:
    """[role, opponent, mean return, script, its mean return] where the script's interval is above."""
    behind = []
    for match in evaluation.matches:
        script, theirs = best.get(match.match_up, ("", None))
        own = match.returned
        if theirs is not None and own and own["high"] < (theirs.low or theirs.mean):
            behind.append([*match.match_up, round(own["mean"], 2), script, round(theirs.mean, 2)])
    return behind


# --- criteria ----------------------------------------------------------------------------------------------


def criteria(line: Line, value: tuple[float, float] | None) -> dict[str, str]:
    """Criterion -> result of one run; `value`: the bracket of the value of the author's own game."""
    rows = [row for row in reproductions.evaluation_rows(line) if row["step"] >= SETTLED]
    early, late = ([row for row in rows if (row["step"] <= EARLY) == first] for first in (True, False))
    results = {}
    if line["recipe"] in BY_VALUE:
        results["SR_P within 0.15 of the game's value from 1 M on"] = value_text(rows, value)
    else:
        results["gap's upper bound < 0.30 from 1 M to 2 M"] = bound_text(early)
        results["gap's upper bound < 0.30 from 2 M on"] = bound_text(late)
    swings = [abs(b["SR_P"] - a["SR_P"]) for a, b in pairwise(rows)]
    results["consecutive evaluations differ by < 0.15 from 1 M on"] = (
        verdict(max(swings) < SWING, f"largest {max(swings):.3f}") if swings else MISSING)
    below = line["below"]
    worst = f"{len(below)} of {line['matches']} below"
    results["no role behind its best scripted player at the end"] = verdict(not below, worst)
    if "returns" in line:
        behind = len(line["returns"])
        results[BY_RETURN] = verdict(not behind, f"{behind} of {line['matches']} below")
    if line["levels"]:
        climbed = f"level {line['level']} of {line['levels']}"
        results["climbs every level"] = verdict(line["level"] == line["levels"], climbed)
        ratios = [final / initial if initial else 1.0 for _, initial, final in line["kept"]]
        results["keeps 95 % of the score on earlier levels"] = (
            verdict(min(ratios) >= KEPT, f"worst of {len(ratios)}: {min(ratios):.0%}") if ratios else MISSING)
    results["complete, no NaN"] = reproductions.completion(line)
    return results


def verdict(met: bool, detail: str) -> str:
    return f"{'met' if met else 'missed'} ({detail})"


def bound_text(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return MISSING
    over = sum(row["gap_high"] >= GAP for row in rows)
    highest = max(row["gap_high"] for row in rows)
    return verdict(not over, f"at most {highest:.2f}, {over} of {len(rows)} over")


def value_text(rows: Sequence[Mapping[str, Any]], value: tuple[float, float] | None) -> str:
    if not rows:
        return MISSING
    if value is None:
        return "– (no bracket yet)"
    low, high = value
    if high - low > game_value.VOID:
        return f"void (bracket {low:.2f} to {high:.2f})"
    furthest = max(abs(row["SR_P"] - (low + high) / 2) for row in rows)
    return verdict(furthest < DISTANCE, f"furthest {furthest:.3f} from {(low + high) / 2:.3f}")


# --- tables ------------------------------------------------------------------------------------------------


def load_lines() -> list[Line]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def value_of_own_game() -> tuple[float, float] | None:
    brackets = {line["game"]: game_value.bracket_of(line) for line in game_value.load_lines()}
    return brackets.get("ra1")


def tables(lines: Sequence[Line]) -> list[str]:
    text = ["", "| kind | runs | seeds | missing |", "| --- | --- | --- | --- |"]
    for kind, meaning in GROUPS.items():
        seeds = sorted(line["seed"] for line in lines if line["recipe"] == kind)
        absent = SEEDS - len(seeds)
        text.append(f"| {kind} | {meaning} | {', '.join(map(str, seeds)) or 'none'} | {absent} of {SEEDS} |")
    for kind in GROUPS:
        runs = sorted((line for line in lines if line["recipe"] == kind), key=lambda line: line["seed"])
        if runs:
            text += ["", reproductions.heading(kind, runs), "", *criteria_table(runs), ""]
            text += [*below_lines(runs), "", *reproductions.rate_table(runs)]
    return text


def criteria_table(runs: Sequence[Line]) -> list[str]:
    results = [criteria(line, value_of_own_game()) for line in runs]
    names = dict.fromkeys(name for result in results for name in result)
    return [f"| criterion | {' | '.join('seed ' + str(line['seed']) for line in runs)} |",
            "| --- |" + " --- |" * len(runs),
            *(f"| {name} | {' | '.join(result.get(name, '–') for result in results)} |" for name in names)]


def below_lines(runs: Sequence[Line]) -> list[str]:
    """Where a final policy is behind the best scripted player of its role."""
    out = []
    for line in runs:
        entries = [f"{role} against {opponent} ({score:.3f})" for role, opponent, score in line["below"]]
        text = f"Seed {line['seed']}, behind a script: {', '.join(entries) or 'nowhere'}"
        returns = [f"{role} against {opponent} ({own:.1f}; {script} {theirs:.1f})"
                   for role, opponent, own, script, theirs in line.get("returns", ())]
        text += f"; by mean return: {', '.join(returns) or 'nowhere'}" if "returns" in line else ""
        out.append(f"{text}.")
    return out


def page() -> str:
    before, _, remainder = PAGE.read_text().partition(BEGIN)
    content = "\n".join(tables(load_lines()))
    return before + BEGIN + "\n" + content + "\n\n" + END + remainder.partition(END)[2]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("gather", "publish"))
    parser.add_argument("runs", nargs="*", help=f"KIND=FOLDER with one of {', '.join(GROUPS)}")
    args = parser.parse_args(arguments)
    if args.what == "publish":
        PAGE.write_text(page())
        return 0
    lines = {(line["recipe"], line["seed"]): line for line in load_lines()}
    for text in args.runs:
        kind, _, folder = text.partition("=")
        if kind not in GROUPS or not folder:
            raise ConfigError(f"{text}: expected KIND=FOLDER with one of {', '.join(GROUPS)}")
        line = gather(kind, Path(folder))
        lines[kind, line["seed"]] = line
        print(f"{kind} seed {line['seed']}: {len(line['rows'])} evaluations, {line['steps']:,} steps, "
              f"{len(line['below'])} of {line['matches']} match-ups below", flush=True)
        RESULTS.write_text("".join(json.dumps(lines[key]) + "\n" for key in sorted(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(run_command(act=main))
