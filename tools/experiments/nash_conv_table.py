"""Exact NashConv of every self-play schedule on four lattices. Resumable.

    python tools/experiments/nash_conv_table.py run [--jobs 2] [--only "n5/together;n9-block3"] [--seeds 0-2]
        [--out runs/nash_conv] [--cluster ray]
    python tools/experiments/nash_conv_table.py publish

`run` trains the runs that have no line in docs/results/data/nash_conv.jsonl and resumes interrupted ones; all
take hours on two cores. Each is a normal run in OUT/LATTICE/ROW/SEED on one thread; its last evaluation
becomes a line of that file, from which `publish` writes the tables of docs/results/nash_conv.md. All rows of
a lattice share network, optimizer, batch size and start states. The final policies are evaluated, with
sampled actions; no checkpoint is selected.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rematch import api  # noqa: E402
from rematch.core import config as settings  # noqa: E402
from rematch.storage.run_folder import Run  # noqa: E402
from rematch.sweeps.processes import Task  # noqa: E402
from rematch.sweeps.run_place import train_all  # noqa: E402
from rematch.training.loop import train  # noqa: E402
from rematch.training.trainer import Trainer  # noqa: E402
from rematch.worlds.lattice.solve import solve  # noqa: E402

BEGIN, END = "<!-- tools/experiments/nash_conv_table.py publish -->", "<!-- until here -->"
RESULTS = ROOT / "docs/results/data/nash_conv.jsonl"
PAGE = ROOT / "docs/results/nash_conv.md"
SMALL, LARGE = {"total_steps": 5_000_000, "ppo.minibatch_size": 1024}, {"total_steps": 10_000_000}
LATTICES: dict[str, dict[str, Any]] = {
    "n5": {"world.n": 5, "world.block": 0, "world.horizon": 10} | SMALL,
    "n5-skip3": {"world.n": 5, "world.block": 0, "world.horizon": 10, "world.skip": 3} | SMALL,
    "n9-block3": LARGE,
    "n9-skip8": {"world.block": 0, "world.skip": 8} | LARGE,
}
TITLES = {
    "n5": "5 × 5, 10 moves",
    "n5-skip3": "5 × 5, the pursuer loses every third move",
    "n9-block3": "9 × 9, 3 × 3 blocked, 20 moves",
    "n9-skip8": "9 × 9, every eighth lost, 20 moves",
}
ALTERNATE = {"schedule.kind": "alternating", "schedule.phase_steps": 500_000}
MICRO = {"schedule.kind": "micro"}
POOL = {"league.opponent_share": 0.5}
PLAIN = {"ppo.entropy_weight": 0.01, "ppo.entropy_weight_final": 0.01, "ppo.magnet_weight": 0.0}
ROWS: dict[str, dict[str, Any]] = {
    "alternate": ALTERNATE | PLAIN,
    "alternate+reg": ALTERNATE,
    "micro": MICRO | PLAIN,
    "micro+reg": MICRO,
    "micro+pool": MICRO | POOL | PLAIN,
    "micro+pool+reg": MICRO | POOL,
    "together": PLAIN,
    "together+reg": {},
    "together+pool+reg": POOL,
    "together+reg, own starts": {"random_starts.fraction": 0.0},
    "together+reg, 8 x steps": {},
    "lookahead": {"learner": "lookahead"},
}
# Remedies of the earlier project, each compared with the same run without it, on the smallest board.
CLIMB = {"curriculum.kind": "discrete", "curriculum.capture_rate": 0.4, "evaluation.every": 30}
REMEDIES: dict[str, dict[str, Any]] = {
    "warm-up": {"schedule.short_phases": (100_000, 200_000, 300_000)},
    "rollback": {"rollback.checkpoints_back": 3, "rollback.bilateral": True},
    "RND": {"rnd.weight": 0.1},
    "curriculum": CLIMB,
    "curriculum+EWC": CLIMB | {"ewc.weight": 1000.0},
}
ROWS |= {f"alternate+{name}": ALTERNATE | PLAIN | change for name, change in REMEDIES.items()}
ROWS |= {
    f"together+reg+{name}": change for name, change in REMEDIES.items() if name not in ("warm-up", "rollback")
}  # these two need alternating phases
REMEDY_LATTICE = "n5"
MAIN_ROWS = ("together+reg", "lookahead")
STEP_MULTIPLIERS = {
    "together+reg, 8 x steps": 8
}  # row -> factor of the steps; not part of the comparison at equal steps
EXTRA_ROWS = (
    "together+pool+reg",
    "together+reg, own starts",
    *STEP_MULTIPLIERS,
)  # not part of it either; three seeds


def is_remedy(row: str) -> bool:
    return any(row.endswith(f"+{name}") for name in REMEDIES)


def seeds(lattice: str, row: str) -> range:
    if is_remedy(row):
        return range(5 if lattice == REMEDY_LATTICE else 0)
    if row in EXTRA_ROWS:
        return range(3)
    return range(10 if lattice.startswith("n5") else 5 if row in MAIN_ROWS else 3)


def configure(lattice: str, row: str, seed: int) -> Any:
    """Config of a cell: the recipe `lattice` (or `lookahead`) with the changes of lattice, row and seed."""
    lookahead = row == "lookahead"
    changes = LATTICES[lattice] | ROWS[row] | {"seed": seed, "threads": 1}
    changes["total_steps"] *= STEP_MULTIPLIERS.get(row, 1)
    changes["evaluation.games"] = 200  # NashConv and gap are exact: they need no games
    if lookahead:
        keys = [key for key in changes if key in ("seed", "threads") or key.startswith("world.")]
        changes = {key: changes[key] for key in keys} | LOOKAHEAD[lattice]
    return api.configure("lookahead" if lookahead else "lattice", changes=changes)


LOOKAHEAD: dict[str, dict[str, Any]] = {  # at most about five minutes on two cores each
    "n5": {"total_steps": 4_000_000},
    "n5-skip3": {"total_steps": 4_000_000},
    "n9-block3": {"total_steps": 8_000_000},
    "n9-skip8": {"total_steps": 24_000_000},
}


class SilentConsole:
    """A console without output."""

    def line(self, text: str) -> None: ...

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None: ...

    def evaluation(self, row: dict[str, Any]) -> None: ...

    def activity(self, text: str) -> None: ...

    def film(self, recording: Any) -> dict[str, bytes]:
        return {}


def train_cell(lattice: str, row: str, seed: int, out: Path) -> None:
    """Trains or resumes one cell to its end."""
    folder = out / lattice / row.replace(", ", "-").replace(" ", "-") / str(seed)
    config = configure(lattice, row, seed)
    trainer = Trainer(config)
    if not (folder / "config.yaml").exists():
        with Run.create(folder, settings.to_yaml(config)) as run:
            trainer.bind(run, SilentConsole())
            trainer.start()
            train(trainer, lambda: False)
        return
    with Run.open(folder, write=True) as run:
        if settings.to_yaml(api.stored_config(run)) != settings.to_yaml(config):
            raise SystemExit(f"{folder} has other settings; expected the same ones, or no such folder")
        checkpoint = run.load()
        if checkpoint is not None:
            trainer.load_state_dict(checkpoint.parts)
        run.rewind(checkpoint)
        trainer.bind(run, SilentConsole())
        trainer.start(resumed=True)
        train(trainer, lambda: False)


def cells(args: argparse.Namespace) -> list[tuple[str, str, int]]:
    selected = [name.strip() for name in args.only.split(";") if name.strip()]
    names = {*LATTICES, *ROWS, *(f"{lattice}/{row}" for lattice in LATTICES for row in ROWS)}
    if unknown := [name for name in selected if name not in names]:
        raise SystemExit(
            f"--only {unknown[0]!r}: no such lattice or row; lattices are {', '.join(LATTICES)}, "
            f"rows are {', '.join(ROWS)}"
        )
    chosen_seeds = None
    if args.seeds:
        first, _, last = args.seeds.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal() and int(first) <= int(last or first)):
            raise SystemExit(f"--seeds {args.seeds!r}: expected FIRST-LAST, such as 0-2")
        chosen_seeds = range(int(first), int(last or first) + 1)
    cells = []
    for seed in range(10):  # all cells of a seed first: an interrupted table has equal numbers of seeds
        for lattice in LATTICES:
            for row in ROWS:
                fits = not selected or any(name in (lattice, row, f"{lattice}/{row}") for name in selected)
                if fits and seed in seeds(lattice, row) and (chosen_seeds is None or seed in chosen_seeds):
                    cells.append((lattice, row, seed))
    return cells


def load_results() -> dict[tuple[str, str, int], dict[str, Any]]:
    """(lattice, row, seed) -> its line of RESULTS."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    results = [json.loads(line) for line in lines]
    return {(line["lattice"], line["row"], line["seed"]): line for line in results}


def append_result(lattice: str, row: str, seed: int, evaluation: dict[str, Any]) -> None:
    """Appends the line of a finished cell to RESULTS."""
    exact = {key: round(evaluation["exact"][key], 6) for key in ("nash_conv", "gap", "played", "value")}
    line = {"lattice": lattice, "row": row, "seed": seed, "steps": evaluation["step"]} | exact
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")


def last_evaluation(lattice: str, row: str, seed: int, out: Path) -> dict[str, Any] | None:
    """Last evaluation of a cell; None if it is not finished."""
    folder = out / lattice / row.replace(", ", "-").replace(" ", "-") / str(seed)
    if not (folder / "config.yaml").exists():
        return None
    with Run.open(folder, write=False) as run:
        history, config = run.history, api.stored_config(run)
    finished = history and history[-1]["iteration"] == config.iterations
    return history[-1] if finished else None


def train_on_cluster(cells: list[tuple[str, str, int]], args: argparse.Namespace) -> None:
    """All cells on the nodes of a Ray cluster; their folders are those of a training here."""
    tasks, configs = [], [configure(*cell) for cell in cells]
    for (lattice, row, seed), config in zip(cells, configs):
        name = f"{lattice}/{row.replace(', ', '-').replace(' ', '-')}/{seed}"
        file = args.out.resolve() / "settings" / f"{name.replace('/', '-')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(settings.to_yaml(config))
        folder = args.out.resolve() / name
        tasks.append(Task(name, folder, ["train", str(file), f"--name={folder}"], total=config.total_steps))
    train_all(tasks, configs, args.jobs, args.cluster, print)


def run(args: argparse.Namespace) -> int:
    finished = load_results()
    remaining = [cell for cell in cells(args) if cell not in finished]
    print(f"{len(remaining)} runs to train, {args.jobs} at a time, into {args.out}", flush=True)

    if args.cluster:
        train_on_cluster(remaining, args)

    def start(cell: tuple[str, str, int]) -> int:
        lattice, row, seed = cell
        cell_name = f"{lattice}/{row}/{seed}"
        command = [sys.executable, __file__, "one", "--out", str(args.out), "--cell", cell_name]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"PYTHONPATH": path}
        code = 0 if args.cluster else subprocess.run(command, env=environment).returncode
        evaluation = last_evaluation(*cell, args.out)
        if evaluation:
            append_result(*cell, evaluation)
        outcome = f"NashConv {evaluation['exact']['nash_conv']:.4f}" if evaluation else f"exit code {code}"
        print(f"{lattice} {row} seed {seed}: {outcome}", flush=True)
        return code

    with ThreadPoolExecutor(args.jobs) as pool:
        return max(pool.map(start, remaining), default=0)


Results = dict[tuple[str, str, int], dict[str, Any]]


def summary(results: Results) -> list[str]:
    """Summary table; a cell is: mean NashConv (maximum over seeds; number of seeds) *mean NE gap*."""
    lines = [f"| | {' | '.join(TITLES.values())} |", "| --- |" + " --- |" * len(LATTICES)]
    for row in ROWS:
        if is_remedy(row):
            continue
        cells = []
        for lattice in LATTICES:
            runs = [results[lattice, row, s] for s in seeds(lattice, row) if (lattice, row, s) in results]
            nash_convs, gaps = [line["nash_conv"] for line in runs], [line["gap"] for line in runs]
            count = len(runs)
            figures = f"{sum(nash_convs) / max(count, 1):.3f} ({max(nash_convs, default=0):.3f}; {count})"
            cells.append(f"{figures} *{sum(gaps) / count:.2f}*" if count else "–")
        if any(cell != "–" for cell in cells):
            lines.append(f"| {row.replace('+', ' + ')} | {' | '.join(cells)} |")
    return [*lines, "", *remedies(results)]


def remedies(results: Results) -> list[str]:
    """Table of the earlier project's remedies; a cell is: mean NashConv (maximum over seeds; n)."""

    def cell(row: str) -> str:
        compared_seeds = seeds(
            REMEDY_LATTICE, f"alternate+{next(iter(REMEDIES))}"
        )  # more seeds may exist without remedies
        nash_convs = [
            line["nash_conv"]
            for (lattice, name, seed), line in results.items()
            if (lattice, name) == (REMEDY_LATTICE, row) and seed in compared_seeds
        ]
        return (
            f"{sum(nash_convs) / len(nash_convs):.3f} ({max(nash_convs):.3f}; {len(nash_convs)})"
            if nash_convs
            else "–"
        )

    lines = [
        f"| on {TITLES[REMEDY_LATTICE]} | alternate | together + reg |",
        "| --- | --- | --- |",
        f"| as it is | {cell('alternate')} | {cell('together+reg')} |",
    ]
    for name in REMEDIES:
        lines.append(
            f"| + {name.replace('+', ' + ')} | {cell(f'alternate+{name}')} | {cell(f'together+reg+{name}')} |"
        )
    return lines


def tables(results: Results) -> list[str]:
    """One table per lattice, with the values of all seeds."""
    lines = []
    for lattice in LATTICES:
        config = configure(lattice, "together", 0)
        value = solve(config.world, 2)["value"]
        lookahead_steps = configure(lattice, "lookahead", 0).total_steps
        title = (
            f"**{lattice}** ({TITLES[lattice]}): value {value:.4f}, {config.total_steps:,} steps "
            f"(lookahead {lookahead_steps:,})"
        )
        lines += [
            "",
            title,
            "",
            "| schedule | seeds | NashConv, mean | worst | every seed | NE gap |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for row in ROWS:
            runs = [results[lattice, row, s] for s in seeds(lattice, row) if (lattice, row, s) in results]
            if not runs:
                continue
            nash_convs, gaps = [line["nash_conv"] for line in runs], [line["gap"] for line in runs]
            mean, all_values = sum(nash_convs) / len(nash_convs), " ".join(f"{x:.3f}" for x in nash_convs)
            seed_count, gap = f"{len(runs)} of {len(seeds(lattice, row))}", f"{min(gaps):.2f}–{max(gaps):.2f}"
            lines.append(
                f"| {row} | {seed_count} | {mean:.3f} | {max(nash_convs):.3f} | {all_values} | {gap} |"
            )
    return lines[1:]


def page() -> str:
    """Text of PAGE with tables from RESULTS."""
    results = load_results()
    before, _, remainder = PAGE.read_text().partition(BEGIN)
    after = remainder.partition(END)[2]
    lines = [*summary(results), "", *tables(results)]
    return before + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END + after


def publish() -> int:
    PAGE.write_text(page())
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "publish", "one"))
    parser.add_argument("--out", type=Path, default=Path("runs/nash_conv"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="lattices, rows or lattice/row, split by semicolons")
    parser.add_argument("--seeds", default="", help="first-last")
    parser.add_argument("--cluster", help="ray, or ray://HOST:PORT: train on the nodes of a Ray cluster")
    parser.add_argument("--cell", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what == "one":
        lattice, row, seed = args.cell.split("/")
        train_cell(lattice, row, int(seed), args.out)
        return 0
    return run(args) if args.what == "run" else publish()


if __name__ == "__main__":
    sys.exit(main())
