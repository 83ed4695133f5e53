"""What the swarm, each bonus and each memory are worth on a cartridge. One command a study, resumable.

    python tools/experiments/ablations.py run swarm [--jobs 1] [--only "no swarm"] [--seeds 0-2] [--out
    runs/worth]
                                    [--minutes 20]
    python tools/experiments/ablations.py run parts [--with dqn.device=cuda ...]
    python tools/experiments/ablations.py publish

swarm   `mid` with the swarm and without it: when each milestone was first reached, as survival curves.
parts   `tiny` with every bonus and every memory on, then with each of them off: how far cold starts come.

`run` trains the runs that docs/results/data/ablations.jsonl has no line for and resumes interrupted ones;
`publish` writes the tables of docs/results/ablations.md and its picture from the lines. A
milestone that was not reached within a run's steps is censored there, never left out. Times are actions of
all games, those of explorers included; an action is 24 frames.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rematch import api  # noqa: E402
from rematch.cli import main as cli  # noqa: E402
from rematch.reporting.learning_curves import COLOURS  # noqa: E402
from rematch.reporting.status import status  # noqa: E402
from rematch.storage.run_folder import Run  # noqa: E402

PAGE, RESULTS = ROOT / "docs/results/ablations.md", ROOT / "docs/results/data/ablations.jsonl"
PICTURE = ROOT / "docs/results/images/survival.png"
BEGIN, END = "<!-- tools/experiments/ablations.py publish -->", "<!-- until here -->"
MOST = 0.9  # of the cold starts reach it: a milestone that is had

Line = dict[str, Any]
Times = list[tuple[int, bool]]  # actions, and whether it was reached then; else the run ended there


@dataclass(frozen=True)
class Study:
    """A recipe, what all its rows share, and what each changes."""

    recipe: str
    shared: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    seeds: int


LIFELONG = {"count_bonus.weight": 0.1, "count_bonus.lifelong": True}
PARTS = {
    "RND": {"rnd_images.weight": 0.0}, "novelty": {"count_bonus.weight": 0.0},
    "Bayesian milestones": {"milestones.weight": 0.0},
    "GRU": {"dqn.gru": False}, "LSTM": {"dqn.lstm": False}, "SSM": {"dqn.ssm": "off"},
}  # fmt: skip
EVERYTHING = {"world.screen": True, "dqn.gru": True, "dqn.lstm": True, "rnd_images.weight": 0.01,
              "count_bonus.weight": 0.005, "milestones.weight": 0.1}  # fmt: skip
STUDIES = {
    "swarm": Study("mid", {"episode_video.interval": 0}, {
        "swarm": {"total_steps": 600_000},
        "no swarm": {"total_steps": 5_000_000, "savestates.mode": "off"},
        "no swarm, novelty for life": {"total_steps": 5_000_000, "savestates.mode": "off"} | LIFELONG,
    }, 3),
    "parts": Study("tiny", {"total_steps": 400_000, "evaluation.every": 100, "episode_video.interval": 0,
                            "demo_progress.weight": 0.0}, {
        "everything": EVERYTHING,
        **{f"without {name}": EVERYTHING | change for name, change in PARTS.items()},
        "everything, and the way's reward": EVERYTHING | {"demo_progress.weight": 0.02},
        "SSM alone, no screen, no bonus": {"dqn.gru": False},
    }, 1),
}  # fmt: skip


def settings(study: str, row: str, seed: int) -> dict[str, Any]:
    of = STUDIES[study]
    return of.shared | of.rows[row] | {"seed": seed}


def gather(study: str, row: str, seed: int, folder: Path) -> Line:
    """What is worth keeping of a run: when each milestone was reached, and how far cold starts came."""
    with Run.open(folder, write=False) as run:
        history = run.history
    found = json.loads((folder / "milestones.json").read_text())
    times = {name: [at["frontier"], at.get("scouted", 0), at["cold"]]
             for name, at in found["milestones"].items()}  # fmt: skip
    evaluations = []
    for entry in history:
        (one,) = entry["returns"].values()
        rates = {name: round(rate["rate"], 4) for name, rate in one["milestones"].items()}
        finished = [round(one[key], 4) for key in ("success", "success_low", "success_high")]
        evaluations.append([entry["step"], one["games"], *finished, rates])
    rows = (json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines())
    scouted = max((row.get("rollout/scouted", 0) for row in rows), default=0)
    return {"study": study, "row": row, "seed": seed, "steps": found["steps"], "scouted": int(scouted),
            "milestones": times, "evaluations": evaluations}  # fmt: skip


def known() -> list[Line]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


# --- tables -----------------------------------------------------------------------------------------------


def when(line: Line, milestone: str) -> tuple[int, bool]:
    """When any chain first reached it, in actions of all games; or where the run ended without."""
    at, scouted, _ = line["milestones"][milestone]
    return (line["steps"] + line["scouted"], False) if at is None else (at + scouted, True)


def survival(times: Times) -> list[tuple[int, float]]:
    """Kaplan and Meier's estimate: (actions, share that has not reached it by then), from (0, 1) on."""
    out, left = [(0, 1.0)], 1.0
    for now in sorted({at for at, reached in times if reached}):
        at_risk = sum(at >= now for at, _ in times)
        left *= 1 - sum(at == now and reached for at, reached in times) / at_risk
        out.append((now, left))
    return out


def share_at(curve: list[tuple[int, float]], now: int) -> float:
    """How many have not reached it by then, by such a curve."""
    return next(left for at, left in reversed(curve) if at <= now)


def median(times: Times) -> tuple[int, bool]:
    """When half have reached it; where they have not, what half have surely not reached it by, and False."""
    for now, left in survival(times):
        if left <= 0.5:
            return now, True
    return sorted(at for at, _ in times)[(len(times) - 1) // 2], False


def _millions(at: tuple[int, bool]) -> str:
    return f"{'' if at[1] else '> '}{at[0] / 1e6:.2f} M"


def swarm_table(lines: list[Line]) -> list[str]:
    rows = [row for row in STUDIES["swarm"].rows if any(line["row"] == row for line in lines)]
    by = {row: sorted((line for line in lines if line["row"] == row), key=lambda line: line["seed"])
          for row in rows}  # fmt: skip
    if "swarm" not in by:
        return ["Not measured yet."]
    names = sorted(by["swarm"][0]["milestones"],
                   key=lambda name: median([when(line, name) for line in by["swarm"]]))
    heads = [f"{row}, seeds {', '.join(str(line['seed']) for line in by[row])}" for row in rows]
    out = [f"| milestone | {' | '.join(heads)} |", "| --- |" + " --- |" * len(rows)]
    for name in names:
        cells = [", ".join(_millions(when(line, name)) for line in by[row]) for row in rows]
        out.append(f"| {name} | {' | '.join(cells)} |")
    last = {row: median([when(line, names[-1]) for line in by[row]]) for row in rows}
    out.append("")
    for row in rows[1:]:
        bound = "" if last[row][1] else "more than "
        out.append(f"Median actions to {names[-1]}: {_millions(last['swarm'])} with the swarm, "
                   f"{_millions(last[row])} with {row}: {bound}{last[row][0] / last['swarm'][0]:.1f} times.")
    return [*out, "", f"![Survival curves to each milestone, by row](images/{PICTURE.name})"]


def parts_table(lines: list[Line]) -> list[str]:
    if not lines:
        return ["Not measured yet."]
    steps = sorted({entry[0] for line in lines for entry in line["evaluations"]})
    heads = [*(f"{step:,}" for step in steps), "milestones an episode, at the end", "finished"]
    out = [f"| row | {' | '.join(heads)} |",
           "| --- |" + " --- |" * (len(steps) + 2)]
    for row in STUDIES["parts"].rows:
        for line in (line for line in lines if line["row"] == row):
            by = {entry[0]: entry for entry in line["evaluations"]}
            had = [str(sum(rate >= MOST for rate in by[step][-1].values())) if step in by else "–"
                   for step in steps]
            _, games, rate, low, high, rates = line["evaluations"][-1]
            out.append(f"| {row} | {' | '.join(had)} | {sum(rates.values()):.2f} | "
                       f"{rate:.2f} [{low:.3f}, {high:.3f}], n {games} |")
    return out


def page() -> str:
    lines = known()
    of = {study: [line for line in lines if line["study"] == study] for study in STUDIES}
    seeds = ", ".join(map(str, sorted({line["seed"] for line in of["parts"]})))
    body = ["", "## The swarm against none, `mid`", "", *swarm_table(of["swarm"]), "",
            "## Each bonus and each memory, `tiny`", "",
            f"Milestones of {len(of['parts'][0]['milestones']) if of['parts'] else 'all'} that at least "
            f"{MOST:.0%} of the cold starts reach, at each evaluation. Seed {seeds}; without the "
            "way's reward (`demo_progress.weight` 0) unless a row says so.", "",
            *parts_table(of["parts"])]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + "\n" + "\n".join(body) + "\n\n" + END + rest.partition(END)[2]


def picture(lines: list[Line]) -> bytes:
    """A panel a milestone: the share of runs that have not reached it, over actions."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = sorted(lines[0]["milestones"], key=lambda name: min(when(line, name) for line in lines))
    figure = Figure(figsize=(15, 2.4 * -(-len(names) // 6)), dpi=90, facecolor="white")
    FigureCanvasAgg(figure)
    longest = max(line["steps"] + line["scouted"] for line in lines)
    for place, name in enumerate(names):
        axes = figure.add_subplot(-(-len(names) // 6), 6, place + 1)
        for colour, row in zip(COLOURS, STUDIES["swarm"].rows):
            times = [when(line, name) for line in lines if line["row"] == row]
            if not times:
                continue
            curve = survival(times)
            end = max(at for at, _ in times)
            x, y = [at for at, _ in curve] + [end], [left for _, left in curve] + [curve[-1][1]]
            axes.step([at / 1e6 for at in x], y, where="post", color=colour, label=f"{row} (n {len(times)})")
            cut = [at for at, reached in times if not reached]
            heights = [share_at(curve, at) for at in cut]
            axes.plot([at / 1e6 for at in cut], heights, "|", color=colour, markersize=10)
        axes.set(title=name, xlim=(0, longest / 1e6), ylim=(-0.05, 1.05))
        axes.title.set_fontsize(9)
        axes.tick_params(labelsize=7)
        if place == 0:
            axes.legend(fontsize=6, frameon=False)
            axes.set_ylabel("not reached yet", fontsize=7)
    figure.supxlabel("million actions of all games; a bar marks a run that ended without", fontsize=9)
    figure.tight_layout()
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


# --- commands ---------------------------------------------------------------------------------------------


def one(study: str, row: str, seed: int, out: Path, more: dict[str, str], minutes: str) -> Line | None:
    """Train a cell to its end, from where it stands, or for so long; None if it did not come to it."""
    folder = out / study / row.replace(", ", "-").replace(" ", "-").replace("'", "") / str(seed)
    words = [sys.executable, "-m", "rematch.cli"]
    if (folder / "config.yaml").exists():
        words += ["resume", str(folder)]
    else:
        words += ["train", STUDIES[study].recipe, "--name", f"{folder}"]
        words += [part for key, value in (settings(study, row, seed) | more).items()
                  for part in (f"--{key}", str(value).lower() if isinstance(value, bool) else str(value))]
    words += ["--max-minutes", minutes] if minutes else []
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{seed}.log").open("a") as log:
        well = subprocess.run(words, cwd=ROOT, stdout=log, stderr=log).returncode == 0
    done = well and (minutes or status(folder)["state"] == "complete")
    return gather(study, row, seed, folder) if done else None


def run(args: argparse.Namespace) -> int:
    study = STUDIES[args.study]
    wanted = [word.strip() for word in args.only.split(";") if word.strip()] or list(study.rows)
    if odd := [row for row in wanted if row not in study.rows]:
        raise SystemExit(f"--only {odd[0]!r}: no such row; expected {', '.join(study.rows)}")
    first, _, last = (args.seeds or f"0-{study.seeds - 1}").partition("-")
    measured = {(line["study"], line["row"], line["seed"]) for line in known()}
    todo = [(row, seed) for seed in range(int(first), int(last or first) + 1) for row in wanted
            if (args.study, row, seed) not in measured]
    more = dict(word.split("=", 1) for word in args.more)
    for row, seed in todo:  # what is wrong is told before anything is trained
        api.configure(study.recipe, changes=settings(args.study, row, seed))
    print(f"{len(todo)} runs to train, {args.jobs} at a time, into {args.out}", flush=True)

    def start(cell: tuple[str, int]) -> bool:
        line = one(args.study, *cell, args.out.resolve(), more, args.minutes)
        if line:
            with RESULTS.open("a") as file:
                file.write(json.dumps(line) + "\n")
        print(f"{cell[0]} seed {cell[1]}: {'done' if line else 'not to its end; see its log'}", flush=True)
        return line is not None

    with ThreadPoolExecutor(args.jobs) as pool:
        return 0 if all(list(pool.map(start, todo))) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    trains = commands.add_parser("run")
    trains.add_argument("study", choices=STUDIES)
    trains.add_argument("--jobs", type=int, default=1)
    trains.add_argument("--only", default="", help="rows, separated by ;")
    trains.add_argument("--seeds", default="", help="such as 0-2")
    trains.add_argument("--out", type=Path, default=ROOT / "runs" / "worth")
    trains.add_argument("--with", dest="more", nargs="*", default=[], metavar="KEY=VALUE",
                        help="settings of this machine for all rows: dqn.device, world.workers, threads")
    trains.add_argument("--minutes", default="", help="stop each run then, and keep it so")
    commands.add_parser("publish")
    args = parser.parse_args()
    if args.command == "run":
        return run(args)
    if shown := [line for line in known() if line["study"] == "swarm"]:
        PICTURE.write_bytes(picture(shown))
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(cli.main(act=lambda words: main()))
