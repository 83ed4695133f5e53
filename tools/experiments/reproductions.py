"""Tables of the reproduced runs of an earlier project, and its criteria: docs/results/reproductions.md.

    rematch sweep ra1 --seeds 0-2        (and every other name in NAMES)
    python tools/experiments/reproductions.py gather runs/ra1-sweep/seed-0 z2=results/run_Z2 ...
    python tools/experiments/reproductions.py publish

`gather` writes a line per run into docs/results/data/reproductions.jsonl: its evaluations, without values
that can be computed from them; a line of the same run with more steps stays. `publish` writes the tables of
docs/results/reproductions.md from it: all runs, no selection. Criteria are those of the earlier project, over
the whole run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rematch import api  # noqa: E402
from rematch.cli import main as cli  # noqa: E402
from rematch.core.errors import ConfigError  # noqa: E402
from rematch.evaluation.evaluation import MatchResults  # noqa: E402
from rematch.evaluation.statistics import wilson  # noqa: E402
from rematch.reporting.status import status  # noqa: E402
from rematch.storage.run_folder import Run  # noqa: E402
from rematch.training import recipes  # noqa: E402

PAGE, RESULTS = ROOT / "docs/results/reproductions.md", ROOT / "docs/results/data/reproductions.jsonl"
NOT_EVALUATED = "– (no evaluation there)"
BEGIN, END = "<!-- tools/experiments/reproductions.py publish -->", "<!-- until here -->"
COLUMNS = (
    "phase",
    "role",
    "step",
    "SR_P",
    "SR_E",
    "gap",
    "gap_low",
    "gap_high",
    "rollbacks",
    "level",
    "games",
)
NAMES = ("ra1", "ra2", "v", "w", "x", "y", "z1", "z2", "h", "i", "seed_sensitivity", "pursuit")
SEED_STUDY, SAME_SETTINGS = "seed_sensitivity", ("w", "y")  # y: w with EWC and RND
MANY_EVALUATIONS = ("ra1", "ra2", "pursuit")  # a row per evaluation would be too long; the others have phases
SETTLED = 1_000_000  # steps from which a gap must be small: "after ~2M total steps, sustained"
SEEDS = 3  # wanted of each run
BY_TWO_MILLION = 2_010_000  # steps; rollouts are whole

Line = dict[str, Any]


def gather(recipe: str, folder: Path) -> Line:
    """Line of the results file for one run."""
    with Run.open(folder, write=False) as run:
        config, history = api.stored_config(run), run.history
        log = (folder / "train.log").read_text().splitlines()
    rows = [[_short(row.get(name)) for name in COLUMNS[:-1]] + [_games(row)] for row in history]
    events = [text for text in log if text.startswith(("ROLLBACK", "CURRICULUM"))]
    return {
        "recipe": recipe, "seed": config.seed, "steps": history[-1]["step"] if history else 0,
        "total_steps": config.total_steps, "rows": rows,
        "rollbacks": sum(t.startswith("ROLLBACK") for t in events),
        "climbs": [t for t in events if t.startswith("CURRICULUM")],
        "verdict": history[-1]["verdict"] if history else "inconclusive: no evaluation",
        "complete": training_is_complete(folder), "finite": _finite(folder / "metrics.jsonl"),
        "kept": scores_on_earlier_levels(history),
    }  # fmt: skip


def training_is_complete(folder: Path) -> bool:
    """Whether the last checkpoint and the last evaluation are there; film and report may be missing."""
    if not evaluated_at_its_checkpoint(folder):
        return False
    facts = status(folder)
    return bool(facts["iteration"] >= facts["iterations"] or facts["ended"])


def evaluated_at_its_checkpoint(folder: Path) -> int:
    """The iteration of the newest checkpoint if it is that of the newest evaluation, else 0."""
    saved = max((int(path.name[5:]) for path in folder.glob("checkpoints/iter_*")), default=0)
    with Run.open(folder, write=False) as run:
        return saved if run.history and run.history[-1]["iteration"] == saved else 0


def scores_on_earlier_levels(history: list[Line]) -> list[list[Any]]:
    """[level, score at its last evaluation, score of the final policies] for each level below the last.

    A score is the mean against all bots.
    """
    scores_by_level = []
    for row in history[-1].get("levels", []) if history else []:
        evaluations = [earlier for earlier in history if earlier.get("level") == row["level"]]
        if evaluations:
            results = [MatchResults.from_json(entry) for entry in (evaluations[-1], row)]
            scores = [entry.strength(entry.match_ups).score for entry in results]
            scores_by_level.append([row["level"], *map(_short, scores)])
    return scores_by_level


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _finite(metrics: Path) -> bool:
    """Whether all metrics are finite; a run stops before it saves a value that is not.

    The last line of a run that is training may be incomplete.
    """
    whole = metrics.read_text().rpartition("\n")[0] if metrics.exists() else ""
    rows = [json.loads(text) for text in whole.splitlines()]
    return all(isfinite(x) for row in rows for x in row.values() if isinstance(x, float))


def _games(row: Line) -> int:
    return min(int(rate["games"]) for rate in row["rates"].values())


def load_lines(results: Path | None = None) -> list[Line]:
    results = results or RESULTS
    lines = results.read_text().splitlines() if results.exists() else []
    return [json.loads(line) for line in lines]


def add(runs: Sequence[tuple[str, Path]], results: Path) -> None:
    """Add the lines of runs. A line with more steps stays; the file is replaced as a whole."""
    lines = {(line["recipe"], line["seed"]): line for line in load_lines(results)}
    for name, place in runs:
        line = gather(name, place)
        key, steps = (name, line["seed"]), line["steps"]
        longer = lines.get(key, line)["steps"] > steps
        lines[key] = lines[key] if longer else line
        stays = f"; the line with {lines[key]['steps']:,} steps stays" if longer else ""
        print(f"{name} seed {line['seed']}: {len(line['rows'])} evaluations, {steps:,} steps{stays}")
    unfinished = results.with_name(f".{results.name}")
    unfinished.write_text("".join(json.dumps(lines[key]) + "\n" for key in sorted(lines)))
    unfinished.replace(results)


def evaluation_rows(line: Line) -> list[Line]:
    return [dict(zip(COLUMNS, row)) for row in line["rows"]]


# --- criteria ---------------------------------------------------------------------------------------------


def criteria(line: Line) -> dict[str, str]:
    """Criterion -> result for one run: first those of the earlier project (its report 000), then ours.

    All cover the run from the end of its warm-up S0 to its last step; a gap counts from SETTLED steps on.
    """
    rows = [row for row in evaluation_rows(line) if row["phase"] != "S0"]
    settled = [row for row in rows if row["step"] >= SETTLED]
    gaps, rates = [row["gap"] for row in settled], [row["SR_P"] for row in settled]
    swings = [abs(b["SR_P"] - a["SR_P"]) for a, b in pairwise(rows)]
    spread = max(rates, default=0.0) - min(rates, default=0.0)
    longest = _longest_stretch([(row["step"], row["gap"]) for row in rows], 0.80)
    results = {
        "gap < 0.30 from 1M on": _target_text(all(g < 0.30 for g in gaps), _value_range(gaps)),
        "gap > 0.80 for 500K": _failure_text(longest >= 500_000, f"longest {longest / 1000:.0f}K"),
        "swing < 0.30": _target_text(all(s < 0.30 for s in swings), f"largest {max(swings, default=0):.3f}"),
        "swing > 0.70": _failure_text(
            any(s > 0.70 for s in swings), f"{sum(s > 0.70 for s in swings)} of {len(swings)}"
        ),
        "no crash, no NaN": completion(line),
        "ours: bound < 0.30 from 1M on": _target_text(
            all(row["gap_high"] < 0.30 for row in settled), f"at most {_highest_bound(settled):.2f}"
        ),
        "ours: SR_P within 0.15 from 1M on": _target_text(spread < 0.15, f"{spread:.2f} apart"),
    }
    if not settled:  # no evaluation there: no claim
        results |= dict.fromkeys([name for name in results if "from 1M on" in name], NOT_EVALUATED)
    if len(rows) < 2:
        results |= dict.fromkeys([name for name in results if "swing" in name], NOT_EVALUATED)
    if any(row["level"] is not None for row in rows):
        early = [row["level"] or 0 for row in rows if row["step"] <= BY_TWO_MILLION]
        last = max(row["level"] or 0 for row in rows)
        detail = f"level {max(early, default=0) + 1}; highest of the run {last + 1}"
        results["at least one level by 2M"] = _target_text(max(early, default=0) >= 1, detail)
        ratios = [final / initial if initial else 1.0 for _, initial, final in line.get("kept", [])]
        detail = f"of {len(ratios)} the worst keeps {min(ratios, default=0):.0%}"
        results["ours: earlier levels keep 95 %"] = (
            _target_text(min(ratios) >= 0.95, detail) if ratios else NOT_EVALUATED
        )
    return results


def _highest_bound(rows: list[Line]) -> float:
    return max((row["gap_high"] for row in rows), default=0.0)


def _value_range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else ""


def completion(line: Line) -> str:
    """Whether the run is complete and all its metrics are finite."""
    if not line["finite"]:
        return f"FAILED (NaN by step {line['steps']:,})"
    return "met" if line["complete"] else f"unfinished at step {line['steps']:,}"


def _target_text(met: bool, detail: str) -> str:
    return f"{'met' if met else 'missed'} ({detail})"


def _failure_text(failed: bool, detail: str) -> str:
    return f"{'FAILED' if failed else 'no'} ({detail})"


def _longest_stretch(points: list[tuple[int, float]], limit: float) -> int:
    """Longest interval of steps in which every evaluation had a gap above `limit`."""
    longest, since = 0, None
    for step, gap in points:
        since = (step if since is None else since) if gap > limit else None
        longest = max(longest, step - since if since is not None else 0)
    return longest


# --- tables -----------------------------------------------------------------------------------------------


def recipe_steps(recipe: str) -> int:
    return int(recipes.configure(recipe).total_steps)


def is_shortened(line: Line) -> bool:
    """Whether a run was started with fewer steps than its recipe has.

    Lines of older runs do not hold their setting: it is their last step. Those of the seed study are whole.
    """
    if "total_steps" not in line and (line["recipe"] == SEED_STUDY or not line["complete"]):
        return False
    steps = int(line["total_steps"] if "total_steps" in line else line["steps"])
    return steps < recipe_steps(line["recipe"])


def coverage_table(lines: list[Line]) -> list[str]:
    """Which runs exist: those with all steps of their recipe, those with fewer, and how many are missing."""
    text = ["| run | steps of the recipe | seeds with all steps | seeds with fewer | missing of three |",
            "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for recipe in NAMES:
        runs = sorted((line for line in lines if line["recipe"] == recipe), key=lambda line: line["seed"])
        fewer = [line for line in runs if is_shortened(line) or not line["complete"]]
        whole = ", ".join(str(line["seed"]) for line in runs if line not in fewer)
        steps = sorted({line["steps"] for line in fewer})
        parts = [f"{', '.join(str(line['seed']) for line in fewer if line['steps'] == each)} "
                 f"({each / 1e6:.1f} M)" for each in steps]  # fmt: skip
        missing = max(0, SEEDS - len(runs) + len(fewer)) or "none"
        total = "1,700,000 (three phases)" if recipe == SEED_STUDY else f"{recipe_steps(recipe):,}"
        text.append(f"| {recipe} | {total} | {whole or '–'} | {'; '.join(parts) or '–'} | {missing} |")
    return text


def tables(lines: list[Line]) -> list[str]:
    text = ["", *coverage_table(lines)]
    for recipe in NAMES:
        runs = sorted((line for line in lines if line["recipe"] == recipe), key=lambda line: line["seed"])
        if not runs:
            continue
        text += ["", heading(recipe, runs), ""]
        if recipe == SEED_STUDY:
            text += seed_table(runs + [line for line in lines if line["recipe"] in SAME_SETTINGS])
        else:
            text += criteria_table(runs)
        text += ["", *(f"Seed {line['seed']}: {line['verdict']}." for line in runs), ""]
        runs = [line for line in runs if line["rows"]]
        if runs:
            text += rate_table(runs) if recipe in MANY_EVALUATIONS else phase_tables(runs)
    return text


def heading(recipe: str, runs: list[Line]) -> str:
    unfinished = [f"seed {line['seed']} at {line['steps']:,}" for line in runs if not line["complete"]]
    seeds = ", ".join(str(line["seed"]) for line in runs)
    name = f"{recipe}, the seed study" if recipe == SEED_STUDY else recipe
    if recipe in NAMES and any(is_shortened(line) for line in runs):
        name += f" with fewer steps than its {recipe_steps(recipe):,}"
    return (f"### {name}: {len(runs)} seed{'s' if len(runs) > 1 else ''} ({seeds}), "
            f"{max(line['steps'] for line in runs):,} steps"
            + (f"; not to the end: {', '.join(unfinished)}" if unfinished else ""))


def criteria_table(runs: list[Line]) -> list[str]:
    """A row per criterion, a column per seed, and the range of steps that the rows cover."""
    results = [criteria(line) for line in runs]
    names = dict.fromkeys(name for result in results for name in result)
    steps = [row["step"] for line in runs for row in evaluation_rows(line) if row["phase"] != "S0"]
    covered = f"evaluations from step {min(steps):,} to step {max(steps):,}" if steps else "no evaluation"
    return [
        f"Criteria over the whole run after its warm-up: {covered}.",
        "",
        f"| criterion | {' | '.join('seed ' + str(line['seed']) for line in runs)} |",
        "| --- |" + " --- |" * len(runs),
        *(f"| {name} | {' | '.join(result.get(name, '–') for result in results)} |" for name in names),
    ]


def seed_table(runs: list[Line]) -> list[str]:
    """The table of seeds of the earlier project (its report 002); runs of w and y are its last two rows."""
    text = [
        "| seed | cold-start escape | S1 capture | S1 escape | NE gap | rollbacks |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    games = set()
    for line in runs:
        by_phase = {row["phase"]: row for row in evaluation_rows(line)}
        warm, first = by_phase.get("S0"), by_phase.get("S1")
        games |= {row["games"] for row in (warm, first) if row}
        cells = [f"{warm['SR_E']:.3f}" if warm else "–", "–", "–", "–"]
        if first:
            gap = f"{first['gap']:.3f} [{first['gap_low']:.3f}, {first['gap_high']:.3f}]"
            cells[1:] = [f"{first['SR_P']:.3f}", f"{first['SR_E']:.3f}", gap]
        run = "" if line["recipe"] == SEED_STUDY else f" (run {line['recipe']})"
        text.append(f"| {line['seed']}{run} | {' | '.join(cells)} | {line['rollbacks']} |")
    numbers = " and ".join(map(str, sorted(games))) or "no"
    return [*text, "", f"n = {numbers} games an entry; rollbacks of the whole run."]


def phase_tables(runs: list[Line]) -> list[str]:
    """The table per phase of the earlier project."""
    text = []
    for line in runs:
        text += [
            "",
            f"Seed {line['seed']}:",
            "",
            "| phase | role | SR_P | SR_E | NE gap | rollbacks | steps | level |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in evaluation_rows(line):
            gap = f"{row['gap']:.3f} [{row['gap_low']:.3f}, {row['gap_high']:.3f}]"
            level = "–" if row["level"] is None else row["level"] + 1
            text.append(
                f"| {row['phase']} | {row['role']} | {row['SR_P']:.3f} | {row['SR_E']:.3f} | {gap} | "
                f"{row['rollbacks']} | {row['step']:,} | {level} |"
            )
        text += ["", f"n = {evaluation_rows(line)[-1]['games']} games a row."]
    return text


def rate_table(runs: list[Line]) -> list[str]:
    """SR_P over the run, one column per seed, about ten rows; the results file has every evaluation."""
    steps = sorted({row["step"] for line in runs for row in evaluation_rows(line)})
    chosen = steps[:: max(1, len(steps) // 10)]
    chosen += [steps[-1]] if steps[-1] not in chosen else []
    every, games = max(1, len(steps) // 10), evaluation_rows(runs[0])[-1]["games"]
    half_width = max(high - low for low, high in (wilson(k, games) for k in range(games + 1))) / 2
    description = (
        f"{len(steps)} evaluations, a row every {every}" if every > 1 else f"{len(steps)} evaluations"
    )
    text = [
        f"SR_P, {description}, n = {games} (95 % within ±{half_width:.3f}):",
        "",
        f"| steps | {' | '.join('seed ' + str(line['seed']) for line in runs)} |",
        "| --- |" + " --- |" * len(runs),
    ]
    for step in chosen:
        cells = []
        for line in runs:
            matching = [row for row in evaluation_rows(line) if row["step"] == step]
            level = (
                f" (level {matching[0]['level'] + 1})"
                if matching and matching[0]["level"] is not None
                else ""
            )
            cells.append(f"{matching[0]['SR_P']:.3f}{level}" if matching else "–")
        text.append(f"| {step:,} | {' | '.join(cells)} |")
    return text


def page() -> str:
    before, _, remainder = PAGE.read_text().partition(BEGIN)
    return (
        before + BEGIN + "\n" + "\n".join(tables(load_lines())) + "\n\n" + END + remainder.partition(END)[2]
    )


def recipe_of(folder: Path) -> str:
    """The recipe in the name of a run's folder (z2-1) or of its sweep (z2-sweep/seed-0)."""
    names = [part.split("-")[0] for part in reversed(folder.resolve().parts[-3:])]
    return next((name for name in names if name in NAMES), names[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("gather", "publish"))
    parser.add_argument("runs", nargs="*", type=Path,
                        help="NAME=FOLDER, or a folder of `rematch train NAME` or `rematch sweep NAME`")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of the lines (%(default)s)")
    args = parser.parse_args()
    if args.what == "publish":
        PAGE.write_text(page())
        return 0
    runs = []
    for folder in args.runs:
        recipe, equals, path = str(folder).partition("=")
        place = Path(path) if equals else folder
        name = recipe if equals else recipe_of(place)
        if name not in NAMES:
            raise ConfigError(f"{folder}: {name!r} is no recipe of a reproduction; expected NAME=FOLDER with "
                              f"one of {', '.join(NAMES)}")
        runs.append((name, place))
    add(runs, args.results)
    return 0


if __name__ == "__main__":
    sys.exit(cli.main(act=lambda words: main()))
