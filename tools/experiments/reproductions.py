"""Tables of the reproduced runs of an earlier project, and its criteria: docs/results/reproductions.md.

    rematch sweep ra1 --seeds 0-2        (and ra2, v, z1, pursuit: docs/results/reproductions.md has them all)
    python tools/experiments/reproductions.py gather ra1=runs/ra1-sweep/seed-0 ...
    python tools/experiments/reproductions.py publish

`gather` writes a line per run into docs/results/data/reproductions.jsonl: its evaluations, without values
that can be computed from them. `publish` writes the tables of docs/results/reproductions.md from it:
all runs, no selection.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rematch import api  # noqa: E402
from rematch.cli import main as cli  # noqa: E402
from rematch.evaluation.evaluation import MatchResults  # noqa: E402
from rematch.evaluation.statistics import wilson  # noqa: E402
from rematch.reporting.status import status  # noqa: E402
from rematch.storage.run_folder import Run  # noqa: E402

PAGE, RESULTS = ROOT / "docs/results/reproductions.md", ROOT / "docs/results/data/reproductions.jsonl"
NOTHING = "– (no evaluation there)"
BEGIN, END = "<!-- tools/experiments/reproductions.py publish -->", "<!-- until here -->"
COLUMNS = ("phase", "role", "step", "SR_P", "SR_E", "gap", "gap_low", "gap_high", "rollbacks", "level",
           "games")
ORDER = ("ra1", "ra2", "v", "z1", "seed_sensitivity", "pursuit")
WANTED = {"ra1": 10_000_000, "ra2": 10_000_000, "v": 2_000_000, "z1": 2_000_000, "pursuit": 10_000_000}
FIRST, LAST = 1_000_000, 2_010_000  # "after ~2M total steps, sustained"; rollouts are whole

Line = dict[str, Any]


def gather(recipe: str, folder: Path) -> Line:
    """What is worth keeping of a run."""
    with Run.open(folder, write=False) as run:
        config, history = api.stored_config(run), run.history
        log = (folder / "train.log").read_text().splitlines()
    rows = [[_short(row.get(name)) for name in COLUMNS[:-1]] + [_games(row)] for row in history]
    said = [text for text in log if text.startswith(("ROLLBACK", "CURRICULUM"))]
    return {
        "recipe": recipe, "seed": config.seed, "steps": history[-1]["step"] if history else 0,
        "rows": rows, "rollbacks": sum(t.startswith("ROLLBACK") for t in said),
        "climbs": [t for t in said if t.startswith("CURRICULUM")],
        "verdict": history[-1]["verdict"] if history else "inconclusive: no evaluation",
        "complete": status(folder)["state"] == "complete", "finite": _finite(folder / "metrics.jsonl"),
        "kept": kept(history),
    }  # fmt: skip


def kept(history: list[Line]) -> list[list[Any]]:
    """Of each level below the last: its number, the mean score against scripted rivals when it was left, and
    that of the players at the end, who played it once more."""
    out = []
    for row in history[-1].get("levels", []) if history else []:
        on_it = [old for old in history if old.get("level") == row["level"]]
        if on_it:
            results = [MatchResults.from_json(entry) for entry in (on_it[-1], row)]
            scores = [entry.strength(entry.match_ups).score for entry in results]
            out.append([row["level"], *map(_short, scores)])
    return out


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _finite(metrics: Path) -> bool:
    """Whether every number of every iteration is one; a run stops at the first that is not, unsaved."""
    rows = [json.loads(text) for text in metrics.read_text().splitlines()]
    return all(isfinite(x) for row in rows for x in row.values() if isinstance(x, float))


def _games(row: Line) -> int:
    return min(rate["games"] for rate in row["rates"].values())


def known() -> list[Line]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def named(line: Line) -> list[Line]:
    return [dict(zip(COLUMNS, row)) for row in line["rows"]]


# --- criteria ---------------------------------------------------------------------------------------------


def criteria(line: Line) -> dict[str, str]:
    """Document 000's table of success and failure for one run, by its words; then ours."""
    rows = [row for row in named(line) if row["phase"] != "S0"]
    late = [row for row in rows if FIRST <= row["step"] <= LAST]
    until = [row for row in rows if row["step"] <= LAST]
    gaps, rates = [row["gap"] for row in late], [row["SR_P"] for row in late]
    swings = [abs(b["SR_P"] - a["SR_P"]) for a, b in pairwise(until)]
    apart = max(rates, default=0.0) - min(rates, default=0.0)
    lasting = _lasting([(row["step"], row["gap"]) for row in until], 0.80)
    out = {
        "gap < 0.30, 1M to 2M": _met(all(g < 0.30 for g in gaps), _range(gaps)),
        "gap > 0.80 for 500K": _raised(lasting >= 500_000, f"longest {lasting / 1000:.0f}K"),
        "swing < 0.30": _met(all(s < 0.30 for s in swings), f"largest {max(swings, default=0):.2f}"),
        "swing > 0.70": _raised(any(s > 0.70 for s in swings), f"{sum(s > 0.70 for s in swings)} of them"),
        "no crash, no NaN": _whole(line),
        "ours: bound < 0.30": _met(all(row["gap_high"] < 0.30 for row in late), f"at most {_most(late):.2f}"),
        "ours: SR_P within 0.15": _met(apart < 0.15, f"{apart:.2f} apart"),
    }
    if not late:  # nothing was evaluated there: nothing is claimed
        out |= dict.fromkeys([name for name in out if "1M to 2M" in name or "ours" in name], NOTHING)
    if any(row["level"] is not None for row in rows):
        top = max((row["level"] or 0) for row in until) if until else 0
        out["at least one level by 2M"] = _met(top >= 1, f"level {top + 1}")
        shares = [now / before if before else 1.0 for _, before, now in line.get("kept", [])]
        seen = f"of {len(shares)} the worst keeps {min(shares, default=0):.0%}"
        out["ours: earlier levels keep 95 %"] = _met(min(shares) >= 0.95, seen) if shares else NOTHING
    return out


def _most(rows: list[Line]) -> float:
    return max((row["gap_high"] for row in rows), default=0.0)


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else ""


def _whole(line: Line) -> str:
    """Whether the run came to its end with every number finite."""
    if not line["finite"]:
        return f"FAILED (NaN by step {line['steps']:,})"
    return "met" if line["complete"] else f"unfinished at step {line['steps']:,}"


def _met(fine: bool, seen: str) -> str:
    return f"{'met' if fine else 'missed'} ({seen})"


def _raised(raised: bool, seen: str) -> str:
    return f"{'FAILED' if raised else 'no'} ({seen})"


def _lasting(points: list[tuple[int, float]], most: float) -> int:
    """The longest stretch of steps over which every evaluation had a gap above `most`."""
    longest, since = 0, None
    for step, gap in points:
        since = (step if since is None else since) if gap > most else None
        longest = max(longest, step - since if since is not None else 0)
    return longest


# --- tables -----------------------------------------------------------------------------------------------


def tables(lines: list[Line]) -> list[str]:
    out: list[str] = []
    for recipe in ORDER:
        of = sorted((line for line in lines if line["recipe"] == recipe), key=lambda line: line["seed"])
        if not of:
            continue
        wanted = WANTED.get(recipe)
        short = [f"seed {line['seed']} {line['steps']:,}" for line in of if wanted and line["steps"] < wanted]
        reach = f"; not to the end: {', '.join(short)}" if short else ""
        seeds = ", ".join(str(line["seed"]) for line in of)
        furthest = max(line["steps"] for line in of)
        out += ["", f"### {recipe}: {len(of)} seeds ({seeds}), {furthest:,} steps{reach}", ""]
        found = [criteria(line) for line in of]
        out += [f"| criterion | {' | '.join('seed ' + str(line['seed']) for line in of)} |",
                "| --- |" + " --- |" * len(of)]
        out += [f"| {name} | {' | '.join(c.get(name, '–') for c in found)} |" for name in found[0]]
        out += ["", *(f"Seed {line['seed']}: {line['verdict']}." for line in of), ""]
        out += seeds(of) if recipe == "seed_sensitivity" else []
        out += phases(of) if recipe in ("v", "z1", "seed_sensitivity") else course(of)
    return out


def seeds(of: list[Line]) -> list[str]:
    """Document 002's table of seeds."""
    out = ["| seed | cold-start escape | S1 capture | S1 escape | NE gap | rollbacks |",
           "| --- | --- | --- | --- | --- | --- |"]
    for line in of:
        by = {row["phase"]: row for row in named(line)}
        if "S0" in by and (one := by.get("S1")):
            gap = f"{one['gap']:.3f} [{one['gap_low']:.3f}, {one['gap_high']:.3f}]"
            out.append(f"| {line['seed']} | {by['S0']['SR_E']:.3f} | {one['SR_P']:.3f} | {one['SR_E']:.3f} | "
                       f"{gap} | {line['rollbacks']} |")
    return [*out, "", f"n = {named(of[0])[-1]['games']} games an entry; rollbacks of the whole run."]


def phases(of: list[Line]) -> list[str]:
    """The earlier project's table per phase."""
    out = []
    for line in of:
        out += ["", f"Seed {line['seed']}:", "",
                "| phase | role | SR_P | SR_E | NE gap | rollbacks | steps | level |",
                "| --- | --- | --- | --- | --- | --- | --- | --- |"]
        for row in named(line):
            gap = f"{row['gap']:.3f} [{row['gap_low']:.3f}, {row['gap_high']:.3f}]"
            level = "–" if row["level"] is None else row["level"] + 1
            out.append(f"| {row['phase']} | {row['role']} | {row['SR_P']:.3f} | {row['SR_E']:.3f} | {gap} | "
                       f"{row['rollbacks']} | {row['step']:,} | {level} |")
        out += ["", f"n = {named(line)[-1]['games']} games a row."]
    return out


def course(of: list[Line]) -> list[str]:
    """SR_P along the run, one column a seed, about ten rows: every evaluation stands in the lines."""
    steps = sorted({row["step"] for line in of for row in named(line)})
    chosen = steps[:: max(1, len(steps) // 10)]
    chosen += [steps[-1]] if steps[-1] not in chosen else []
    every, games = max(1, len(steps) // 10), named(of[0])[-1]["games"]
    off = max(high - low for low, high in (wilson(k, games) for k in range(games + 1))) / 2
    told = f"{len(steps)} evaluations, a row every {every}" if every > 1 else f"{len(steps)} evaluations"
    out = [f"SR_P, {told}, n = {games} (95 % within ±{off:.3f}):", "",
           f"| steps | {' | '.join('seed ' + str(line['seed']) for line in of)} |",
           "| --- |" + " --- |" * len(of)]
    for step in chosen:
        cells = []
        for line in of:
            here = [row for row in named(line) if row["step"] == step]
            level = f" (level {here[0]['level'] + 1})" if here and here[0]["level"] is not None else ""
            cells.append(f"{here[0]['SR_P']:.3f}{level}" if here else "–")
        out.append(f"| {step:,} | {' | '.join(cells)} |")
    return out


def page() -> str:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + "\n" + "\n".join(tables(known())) + "\n\n" + END + rest.partition(END)[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("gather", "publish"))
    parser.add_argument("runs", nargs="*", type=Path, help="RECIPE=FOLDER, or a folder named RECIPE-...")
    args = parser.parse_args()
    if args.what == "publish":
        PAGE.write_text(page())
        return 0
    lines = {(line["recipe"], line["seed"]): line for line in known()}
    for folder in args.runs:
        recipe, equals, path = str(folder).partition("=")
        place = Path(path) if equals else folder
        name = recipe if equals else place.name.split("-")[0]
        if name not in ORDER:
            raise SystemExit(f"{folder}: which recipe? write RECIPE=FOLDER")
        line = gather(name, place)
        lines[name, line["seed"]] = line
        print(f"{name} seed {line['seed']}: {len(line['rows'])} evaluations, {line['steps']:,} steps")
    RESULTS.write_text("".join(json.dumps(lines[key]) + "\n" for key in sorted(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(cli.main(act=lambda words: main()))
