"""Ablations on a cartridge: the savestate curriculum, each reward term, each recurrent layer. Resumable.

    python tools/experiments/ablations.py run swarm [--jobs 1] [--only "no swarm"] [--seeds 0-2] [--out
    runs/worth]
                                    [--minutes 20] [--cluster ray]
    python tools/experiments/ablations.py run parts [--with dqn.device=cuda ...]
    python tools/experiments/ablations.py publish

swarm   `mid` with and without the savestate curriculum: when each milestone was first reached, as survival
        curves.
parts   `tiny` with all reward terms and recurrent layers, then without each of them: which milestones
        episodes from power-on reach.

`run` trains the runs that have no line in docs/results/data/ablations.jsonl and resumes interrupted ones;
`publish` writes the tables and the picture of docs/results/ablations.md from the lines. A milestone that was
not reached within the steps of a run is censored, never left out. Times are actions of all games, including
explorers; an action is 24 frames.
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
from rematch.sweeps.processes import Task  # noqa: E402
from rematch.sweeps.run_place import train_all  # noqa: E402

PAGE, RESULTS = ROOT / "docs/results/ablations.md", ROOT / "docs/results/data/ablations.jsonl"
PICTURE = ROOT / "docs/results/images/survival.png"
BEGIN, END = "<!-- tools/experiments/ablations.py publish -->", "<!-- until here -->"
REACHED_RATE = 0.9  # fraction of episodes from power-on; a milestone with this rate counts as reached

Line = dict[str, Any]
Times = list[tuple[int, bool]]  # (actions, True if it was reached then, False if the run ended then)


@dataclass(frozen=True)
class Study:
    """A recipe, settings of all rows, and settings of each row."""

    recipe: str
    shared: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    seeds: int


# Names in the results file that the page shows with today's words.
SHOWN = {
    "swarm": "savestates", "no swarm": "no savestates",
    "no swarm, novelty for life": "no savestates, lifelong count bonus",
    "without novelty": "without count bonus", "without Bayesian milestones": "without milestone bonus",
    "everything, and the way's reward": "everything and the demonstration reward",
    "SSM alone, no screen, no bonus": "only SSM, no screen, no reward terms",
}  # fmt: skip
LIFELONG = {"count_bonus.weight": 0.1, "count_bonus.lifelong": True}
PARTS: dict[str, dict[str, Any]] = {
    "RND": {"rnd_images.weight": 0.0}, "novelty": {"count_bonus.weight": 0.0},
    "Bayesian milestones": {"milestones.weight": 0.0},
    "GRU": {"dqn.gru": False}, "LSTM": {"dqn.lstm": False}, "SSM": {"dqn.ssm": "off"},
}  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "world.screen": True, "dqn.gru": True, "dqn.lstm": True, "rnd_images.weight": 0.01,
    "count_bonus.weight": 0.005, "milestones.weight": 0.1,
}  # fmt: skip
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
    spec = STUDIES[study]
    return spec.shared | spec.rows[row] | {"seed": seed}


def gather(study: str, row: str, seed: int, folder: Path) -> Line:
    """Line of the results file: when each milestone was reached, and the evaluations from power-on."""
    with Run.open(folder, write=False) as run:
        history = run.history
    archive = json.loads((folder / "milestones.json").read_text())
    times = {name: [entry["frontier"], entry.get("scouted", 0), entry["cold"]]
             for name, entry in archive["milestones"].items()}  # fmt: skip
    evaluations = []
    for entry in history:
        (result,) = entry["returns"].values()
        rates = {name: round(rate["rate"], 4) for name, rate in result["milestones"].items()}
        finished = [round(result[key], 4) for key in ("success", "success_low", "success_high")]
        evaluations.append([entry["step"], result["games"], *finished, rates])
    rows = (json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines())
    scouted = max((row.get("rollout/scouted", 0) for row in rows), default=0)
    return {"study": study, "row": row, "seed": seed, "steps": archive["steps"], "scouted": int(scouted),
            "milestones": times, "evaluations": evaluations}  # fmt: skip


def load_lines() -> list[Line]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


# --- tables -----------------------------------------------------------------------------------------------


def time_reached(line: Line, milestone: str) -> tuple[int, bool]:
    """(actions of all games until the milestone was first reached, True), or (actions of the run, False)."""
    step, scouted, _ = line["milestones"][milestone]
    return (line["steps"] + line["scouted"], False) if step is None else (step + scouted, True)


def survival(times: Times) -> list[tuple[int, float]]:
    """Kaplan-Meier estimate: (actions, fraction that has not reached it by then), starting with (0, 1)."""
    curve, surviving = [(0, 1.0)], 1.0
    for time in sorted({end for end, reached in times if reached}):
        at_risk = sum(end >= time for end, _ in times)
        surviving *= 1 - sum(end == time and reached for end, reached in times) / at_risk
        curve.append((time, surviving))
    return curve


def share_at(curve: list[tuple[int, float]], time: int) -> float:
    """Fraction of a survival curve at `time`."""
    return next(surviving for start, surviving in reversed(curve) if start <= time)


def median(times: Times) -> tuple[int, bool]:
    """(median time, True), or (a lower bound on it, False) if fewer than half have reached it."""
    for time, surviving in survival(times):
        if surviving <= 0.5:
            return time, True
    return sorted(end for end, _ in times)[(len(times) - 1) // 2], False


def _millions(time: tuple[int, bool]) -> str:
    return f"{'' if time[1] else '> '}{time[0] / 1e6:.2f} M"


def swarm_table(lines: list[Line]) -> list[str]:
    rows = [row for row in STUDIES["swarm"].rows if any(line["row"] == row for line in lines)]
    by_row = {row: sorted((line for line in lines if line["row"] == row), key=lambda line: line["seed"])
          for row in rows}  # fmt: skip
    if "swarm" not in by_row:
        return ["Not measured yet."]
    names = sorted(
        by_row["swarm"][0]["milestones"],
        key=lambda name: median([time_reached(line, name) for line in by_row["swarm"]]),
    )
    headers = [f"{SHOWN[row]}, seeds {', '.join(str(line['seed']) for line in by_row[row])}" for row in rows]
    table = [f"| milestone | {' | '.join(headers)} |", "| --- |" + " --- |" * len(rows)]
    for name in names:
        cells = [", ".join(_millions(time_reached(line, name)) for line in by_row[row]) for row in rows]
        table.append(f"| {name} | {' | '.join(cells)} |")
    last = {row: median([time_reached(line, names[-1]) for line in by_row[row]]) for row in rows}
    table.append("")
    for row in rows[1:]:
        bound = "" if last[row][1] else "more than "
        table.append(
            f"Median actions to {names[-1]}: {_millions(last['swarm'])} with savestates, "
            f"{_millions(last[row])} with {SHOWN[row]}: {bound}{last[row][0] / last['swarm'][0]:.1f} times."
        )
    return [*table, "", f"![Survival curves to each milestone, by row](images/{PICTURE.name})"]


def parts_table(lines: list[Line]) -> list[str]:
    if not lines:
        return ["Not measured yet."]
    steps = sorted({entry[0] for line in lines for entry in line["evaluations"]})
    headers = [*(f"{step:,}" for step in steps), "milestones per episode, at the end", "finished"]
    table = [f"| row | {' | '.join(headers)} |", "| --- |" + " --- |" * (len(steps) + 2)]
    for row in STUDIES["parts"].rows:
        for line in (line for line in lines if line["row"] == row):
            by_step = {entry[0]: entry for entry in line["evaluations"]}
            reached = [
                str(sum(rate >= REACHED_RATE for rate in by_step[step][-1].values()))
                if step in by_step
                else "–"
                for step in steps
            ]
            _, games, rate, low, high, rates = line["evaluations"][-1]
            table.append(
                f"| {SHOWN.get(row, row)} | {' | '.join(reached)} | {sum(rates.values()):.2f} | "
                f"{rate:.2f} [{low:.3f}, {high:.3f}], n {games} |"
            )
    return table


def page() -> str:
    lines = load_lines()
    by_study = {study: [line for line in lines if line["study"] == study] for study in STUDIES}
    seeds = ", ".join(map(str, sorted({line["seed"] for line in by_study["parts"]})))
    total = len(by_study["parts"][0]["milestones"]) if by_study["parts"] else "all"
    body = [
        "",
        "## With and without savestates, `mid`",
        "",
        *swarm_table(by_study["swarm"]),
        "",
        "## Each reward term and each recurrent layer, `tiny`",
        "",
        f"Number of milestones (of {total}) that at least {REACHED_RATE:.0%} of the episodes from power-on "
        f"reach, at each evaluation. Seed {seeds}; without the demonstration reward "
        "(`demo_progress.weight` 0) unless the row names it.",
        "",
        *parts_table(by_study["parts"]),
    ]
    before, _, remainder = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + "\n" + "\n".join(body) + "\n\n" + END + remainder.partition(END)[2]


def picture(lines: list[Line]) -> bytes:
    """One panel per milestone: the fraction of runs that have not reached it, over actions."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = sorted(lines[0]["milestones"], key=lambda name: min(time_reached(line, name) for line in lines))
    figure = Figure(figsize=(15, 2.4 * -(-len(names) // 6)), dpi=90, facecolor="white")
    FigureCanvasAgg(figure)
    longest = max(line["steps"] + line["scouted"] for line in lines)
    for index, name in enumerate(names):
        axes = figure.add_subplot(-(-len(names) // 6), 6, index + 1)
        for colour, row in zip(COLOURS, STUDIES["swarm"].rows):
            times = [time_reached(line, name) for line in lines if line["row"] == row]
            if not times:
                continue
            curve = survival(times)
            end = max(at for at, _ in times)
            x, y = [at for at, _ in curve] + [end], [surviving for _, surviving in curve] + [curve[-1][1]]
            axes.step(
                [at / 1e6 for at in x], y, where="post", color=colour, label=f"{SHOWN[row]} (n {len(times)})"
            )
            censored = [at for at, reached in times if not reached]
            heights = [share_at(curve, at) for at in censored]
            axes.plot([at / 1e6 for at in censored], heights, "|", color=colour, markersize=10)
        axes.set(title=name, xlim=(0, longest / 1e6), ylim=(-0.05, 1.05))
        axes.title.set_fontsize(9)
        axes.tick_params(labelsize=7)
        if index == 0:
            axes.legend(fontsize=6, frameon=False)
            axes.set_ylabel("not reached yet", fontsize=7)
    figure.supxlabel("million actions of all games; a bar marks a run that ended before", fontsize=9)
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


# --- commands ---------------------------------------------------------------------------------------------


def cell_task(study: str, row: str, seed: int, out: Path, overrides: dict[str, str]) -> Task:
    """The run of a cell: its folder, and the command that starts it."""
    name = f"{study}/{row.replace(', ', '-').replace(' ', '-').replace(chr(39), '')}/{seed}"
    command = ["train", STUDIES[study].recipe, "--name", str(out / name)]
    for key, value in (settings(study, row, seed) | overrides).items():
        command += [f"--{key}", str(value).lower() if isinstance(value, bool) else str(value)]
    return Task(name, out / name, command)


def train_cell(task: Task, minutes: str) -> bool:
    """Trains or resumes a run to its end, or for `minutes`; False if it failed or did not finish."""
    words = ["resume", str(task.folder)] if task.started else list(task.command)
    words += ["--max-minutes", minutes] if minutes else []
    task.folder.parent.mkdir(parents=True, exist_ok=True)
    with task.output.open("a") as log:
        command = [sys.executable, "-m", "rematch", *words]
        succeeded = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log).returncode == 0
    return bool(succeeded and (minutes or status(task.folder)["state"] == "complete"))


def run(args: argparse.Namespace) -> int:
    study = STUDIES[args.study]
    rows = [word.strip() for word in args.only.split(";") if word.strip()] or list(study.rows)
    if unknown := [row for row in rows if row not in study.rows]:
        raise SystemExit(f"--only {unknown[0]!r}: no such row; expected {', '.join(study.rows)}")
    first, _, last = (args.seeds or f"0-{study.seeds - 1}").partition("-")
    finished = {(line["study"], line["row"], line["seed"]) for line in load_lines()}
    cells = [
        (row, seed)
        for seed in range(int(first), int(last or first) + 1)
        for row in rows
        if (args.study, row, seed) not in finished
    ]
    overrides = dict(word.split("=", 1) for word in args.more)
    for row, seed in cells:  # report errors before any training
        api.configure(study.recipe, changes=settings(args.study, row, seed))
    print(f"{len(cells)} runs to train, {args.jobs} at a time, into {args.out}", flush=True)

    tasks = {cell: cell_task(args.study, *cell, args.out.resolve(), overrides) for cell in cells}
    if args.cluster and args.minutes:
        raise SystemExit("--minutes has no effect with --cluster: expected one of them")
    if args.cluster:
        configs = [api.configure(study.recipe, changes=settings(args.study, *cell)) for cell in cells]
        train_all(list(tasks.values()), configs, args.jobs, args.cluster, print)

    def start(cell: tuple[str, int]) -> bool:
        task = tasks[cell]
        done = task.finished() if args.cluster else train_cell(task, args.minutes)
        if done:
            with RESULTS.open("a") as file:
                file.write(json.dumps(gather(args.study, *cell, task.folder)) + "\n")
        print(f"{cell[0]} seed {cell[1]}: {'done' if done else 'not finished; see its log'}", flush=True)
        return done

    with ThreadPoolExecutor(args.jobs) as pool:
        return 0 if all(list(pool.map(start, cells))) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run")
    run_parser.add_argument("study", choices=STUDIES)
    run_parser.add_argument("--jobs", type=int, default=1)
    run_parser.add_argument("--only", default="", help="rows, separated by ;")
    run_parser.add_argument("--seeds", default="", help="such as 0-2")
    run_parser.add_argument("--out", type=Path, default=ROOT / "runs" / "worth")
    run_parser.add_argument(
        "--with",
        dest="more",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="settings for all rows that depend on the machine: dqn.device, world.workers, threads",
    )
    run_parser.add_argument("--minutes", default="", help="stop each run after this time and use it as it is")
    run_parser.add_argument("--cluster", help="ray, or ray://HOST:PORT: train on the nodes of a Ray cluster")
    commands.add_parser("publish")
    args = parser.parse_args()
    if args.command == "run":
        return run(args)
    if swarm_lines := [line for line in load_lines() if line["study"] == "swarm"]:
        PICTURE.write_bytes(picture(swarm_lines))
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(cli.main(act=lambda words: main()))
