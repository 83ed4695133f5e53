"""Every self-play schedule on four lattices, by exact NashConv. One command, resumable.

    python tools/experiments/nash_conv_table.py run [--jobs 2] [--only "n5/together;n9-block3"] [--seeds 0-2]
        [--out runs/nash_conv]
    python tools/experiments/nash_conv_table.py publish

`run` trains the runs that docs/results/data/nash_conv.jsonl has no line for, and resumes those that were
interrupted: hours on two cores. Each is an ordinary run in OUT/LATTICE/ROW/SEED, on one thread; its last
evaluation becomes a line of that file, from which `publish` writes the tables of docs/results/nash_conv.md.
All rows of a lattice share network, optimizer, batch and starts. The last iterate is judged, with sampled
policies; no checkpoint is selected.
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
TITLES = {"n5": "5 × 5, 10 moves", "n5-skip3": "5 × 5, the pursuer loses every third move",
          "n9-block3": "9 × 9, 3 × 3 blocked, 20 moves", "n9-skip8": "9 × 9, every eighth lost, 20 moves"}
ALTERNATE = {"schedule.kind": "alternating", "schedule.phase_steps": 500_000}
MICRO = {"schedule.kind": "micro"}
POOL = {"league.opponent_share": 0.5}
PLAIN = {"ppo.entropy_weight": 0.01, "ppo.entropy_weight_final": 0.01, "ppo.magnet_weight": 0.0}
ROWS: dict[str, dict[str, Any]] = {
    "alternate": ALTERNATE | PLAIN, "alternate+reg": ALTERNATE,
    "micro": MICRO | PLAIN, "micro+reg": MICRO,
    "micro+pool": MICRO | POOL | PLAIN, "micro+pool+reg": MICRO | POOL,
    "together": PLAIN, "together+reg": {},
    "together+pool+reg": POOL,
    "together+reg, own starts": {"random_starts.fraction": 0.0},
    "together+reg, 8 x steps": {},
    "lookahead": {"learner": "lookahead"},
}
# The remedies of the earlier project, each switched on beside the same run without it, on the smallest board.
CLIMB = {"curriculum.kind": "discrete", "curriculum.capture_rate": 0.4, "evaluation.every": 30}
REMEDIES: dict[str, dict[str, Any]] = {
    "warm-up": {"schedule.short_phases": (100_000, 200_000, 300_000)},
    "rollback": {"rollback.checkpoints_back": 3, "rollback.bilateral": True},
    "RND": {"rnd.weight": 0.1},
    "curriculum": CLIMB,
    "curriculum+EWC": CLIMB | {"ewc.weight": 1000.0},
}
ROWS |= {f"alternate+{name}": ALTERNATE | PLAIN | change for name, change in REMEDIES.items()}
ROWS |= {f"together+reg+{name}": change for name, change in REMEDIES.items()
         if name not in ("warm-up", "rollback")}  # those two are about turns
REMEDIED = "n5"
OURS = ("together+reg", "lookahead")
LONGER = {"together+reg, 8 x steps": 8}  # beyond the comparison at equal steps: how many times as many
EXTRA = ("together+pool+reg", "together+reg, own starts", *LONGER)  # beyond it too: three seeds


def is_remedy(row: str) -> bool:
    return any(row.endswith(f"+{name}") for name in REMEDIES)


def seeds(lattice: str, row: str) -> range:
    if is_remedy(row):
        return range(5 if lattice == REMEDIED else 0)
    if row in EXTRA:
        return range(3)
    return range(10 if lattice.startswith("n5") else 5 if row in OURS else 3)


def configure(lattice: str, row: str, seed: int) -> Any:
    """The recipe `lattice` (or `lookahead`) with what this cell changes."""
    ahead = row == "lookahead"
    changes = LATTICES[lattice] | ROWS[row] | {"seed": seed, "threads": 1}
    changes["total_steps"] *= LONGER.get(row, 1)
    changes["evaluation.games"] = 200  # NashConv and gap are exact: no games are needed for them
    if ahead:
        kept = [key for key in changes if key in ("seed", "threads") or key.startswith("world.")]
        changes = {key: changes[key] for key in kept} | LOOKAHEAD[lattice]
    return api.configure("lookahead" if ahead else "lattice", changes=changes)


LOOKAHEAD: dict[str, dict[str, Any]] = {  # about five minutes of two cores each, or less
    "n5": {"total_steps": 4_000_000}, "n5-skip3": {"total_steps": 4_000_000},
    "n9-block3": {"total_steps": 8_000_000}, "n9-skip8": {"total_steps": 24_000_000},
}


class Quiet:
    """Nobody watches: the run's own files say everything."""

    def line(self, text: str) -> None: ...

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None: ...

    def evaluation(self, row: dict[str, Any]) -> None: ...

    def film(self, take: Any) -> dict[str, bytes]:
        return {}


def one(lattice: str, row: str, seed: int, out: Path) -> None:
    """Train one cell to its end, from where it stands."""
    folder = out / lattice / row.replace(", ", "-").replace(" ", "-") / str(seed)
    config = configure(lattice, row, seed)
    trainer = Trainer(config)
    if not (folder / "config.yaml").exists():
        with Run.create(folder, settings.to_yaml(config)) as run:
            trainer.bind(run, Quiet())
            trainer.start()
            train(trainer, lambda: False)
        return
    with Run.open(folder, write=True) as run:
        if settings.to_yaml(api.stored_config(run)) != settings.to_yaml(config):
            raise SystemExit(f"{folder}: made with other settings; remove it first")
        checkpoint = run.load()
        if checkpoint is not None:
            trainer.load_state_dict(checkpoint.parts)
        run.rewind(checkpoint)
        trainer.bind(run, Quiet())
        trainer.start(resumed=True)
        train(trainer, lambda: False)


def cells(args: argparse.Namespace) -> list[tuple[str, str, int]]:
    wanted = [w.strip() for w in args.only.split(";") if w.strip()]
    known = {*LATTICES, *ROWS, *(f"{lattice}/{row}" for lattice in LATTICES for row in ROWS)}
    if odd := [w for w in wanted if w not in known]:
        raise SystemExit(f"--only {odd[0]!r}: no such lattice or row; lattices are {', '.join(LATTICES)}, "
                         f"rows are {', '.join(ROWS)}")
    few = None
    if args.seeds:
        first, _, last = args.seeds.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal() and int(first) <= int(last or first)):
            raise SystemExit(f"--seeds {args.seeds!r}: expected FIRST-LAST, such as 0-2")
        few = range(int(first), int(last or first) + 1)
    out = []
    for seed in range(10):  # all cells of a seed before the next: a table that was interrupted is even
        for lattice in LATTICES:
            for row in ROWS:
                fits = not wanted or any(w in (lattice, row, f"{lattice}/{row}") for w in wanted)
                if fits and seed in seeds(lattice, row) and (few is None or seed in few):
                    out.append((lattice, row, seed))
    return out


def known() -> dict[tuple[str, str, int], dict[str, Any]]:
    """What has been measured: (lattice, row, seed) -> its line of RESULTS."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    found = [json.loads(line) for line in lines]
    return {(line["lattice"], line["row"], line["seed"]): line for line in found}


def note(lattice: str, row: str, seed: int, ended: dict[str, Any]) -> None:
    """Add a finished cell's line."""
    exact = {key: round(ended["exact"][key], 6) for key in ("nash_conv", "gap", "played", "value")}
    line = {"lattice": lattice, "row": row, "seed": seed, "steps": ended["step"]} | exact
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")


def last_row(lattice: str, row: str, seed: int, out: Path) -> dict[str, Any] | None:
    """The last evaluation of a finished cell."""
    folder = out / lattice / row.replace(", ", "-").replace(" ", "-") / str(seed)
    if not (folder / "config.yaml").exists():
        return None
    with Run.open(folder, write=False) as run:
        history, config = run.history, api.stored_config(run)
    done = history and history[-1]["iteration"] == config.iterations
    return history[-1] if done else None


def run(args: argparse.Namespace) -> int:
    done = known()
    todo = [cell for cell in cells(args) if cell not in done]
    print(f"{len(todo)} runs to train, {args.jobs} at a time, into {args.out}", flush=True)

    def start(cell: tuple[str, str, int]) -> int:
        lattice, row, seed = cell
        cell_name = f"{lattice}/{row}/{seed}"
        words = [sys.executable, __file__, "one", "--out", str(args.out), "--cell", cell_name]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        code = subprocess.run(words, env=os.environ | {"PYTHONPATH": path}).returncode
        ended = last_row(*cell, args.out)
        if ended:
            note(*cell, ended)
        told = f"NashConv {ended['exact']['nash_conv']:.4f}" if ended else f"exit code {code}"
        print(f"{lattice} {row} seed {seed}: {told}", flush=True)
        return code

    with ThreadPoolExecutor(args.jobs) as pool:
        return max(pool.map(start, todo), default=0)


Found = dict[tuple[str, str, int], dict[str, Any]]


def summary(found: Found) -> list[str]:
    """The summary: a cell is the mean NashConv (the worst seed's; how many seeds) and the mean NE gap."""
    lines = [f"| | {' | '.join(TITLES.values())} |", "| --- |" + " --- |" * len(LATTICES)]
    for row in ROWS:
        if is_remedy(row):
            continue
        cells = []
        for lattice in LATTICES:
            ended = [found[lattice, row, s] for s in seeds(lattice, row) if (lattice, row, s) in found]
            conv, gaps = [line["nash_conv"] for line in ended], [line["gap"] for line in ended]
            count = len(ended)
            figures = f"{sum(conv) / max(count, 1):.3f} ({max(conv, default=0):.3f}; {count})"
            cells.append(f"{figures} *{sum(gaps) / count:.2f}*" if count else "–")
        if any(cell != "–" for cell in cells):
            lines.append(f"| {row.replace('+', ' + ')} | {' | '.join(cells)} |")
    return [*lines, "", *remedies(found)]


def remedies(found: Found) -> list[str]:
    """The remedies of the earlier project on the smallest board, off and on.

    A cell is the mean NashConv (the worst seed's; n).
    """

    def cell(row: str) -> str:
        same = seeds(REMEDIED, f"alternate+{next(iter(REMEDIES))}")  # also where more were run without it
        conv = [line["nash_conv"] for (lattice, name, seed), line in found.items()
                if (lattice, name) == (REMEDIED, row) and seed in same]
        return f"{sum(conv) / len(conv):.3f} ({max(conv):.3f}; {len(conv)})" if conv else "–"

    lines = [f"| on {TITLES[REMEDIED]} | alternate | together + reg |", "| --- | --- | --- |",
             f"| as it is | {cell('alternate')} | {cell('together+reg')} |"]
    for name in REMEDIES:
        lines.append(f"| + {name.replace('+', ' + ')} | {cell(f'alternate+{name}')} | "
                     f"{cell(f'together+reg+{name}')} |")
    return lines


def tables(found: Found) -> list[str]:
    """Every seed of every board."""
    lines = []
    for lattice in LATTICES:
        about = configure(lattice, "together", 0)
        value = solve(about.world, 2)["value"]
        other = configure(lattice, "lookahead", 0).total_steps
        title = (f"**{lattice}** ({TITLES[lattice]}): value {value:.4f}, {about.total_steps:,} steps "
                 f"(lookahead {other:,})")
        lines += ["", title, "",
                  "| schedule | seeds | NashConv, mean | worst | every seed | NE gap |",
                  "| --- | --- | --- | --- | --- | --- |"]
        for row in ROWS:
            ended = [found[lattice, row, s] for s in seeds(lattice, row) if (lattice, row, s) in found]
            if not ended:
                continue
            conv, gaps = [line["nash_conv"] for line in ended], [line["gap"] for line in ended]
            mean, told = sum(conv) / len(conv), " ".join(f"{x:.3f}" for x in conv)
            many, gap = f"{len(ended)} of {len(seeds(lattice, row))}", f"{min(gaps):.2f}–{max(gaps):.2f}"
            lines.append(f"| {row} | {many} | {mean:.3f} | {max(conv):.3f} | {told} | {gap} |")
    return lines[1:]


def page() -> str:
    """PAGE with its tables as RESULTS has them."""
    results = known()
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
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
    parser.add_argument("--cell", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what == "one":
        lattice, row, seed = args.cell.split("/")
        one(lattice, row, int(seed), args.out)
        return 0
    return run(args) if args.what == "run" else publish()


if __name__ == "__main__":
    sys.exit(main())
