"""The card-game training of the earlier project on a GPU, for tools/checks/gpu.py: iterations 600 to 1000.

The run is runs/documents: the recipe `iter600_to_1000` as its file configures it, with evaluations and
without exploiters, which are shown once, in a run of one iteration. It starts at iteration 600, from the run
runs/documents_start if there is one (the check documents_start trains it, iterations 0 to 600), else from
random weights; the record says which. Every command trains until its time ends; the next one continues.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECIPE, FOLDER, START = "iter600_to_1000", Path("runs/documents"), Path("runs/documents_start")
SETTINGS = ["--device", "cuda", "--network.device", "cuda", "--exploiters.every", "0"]
OPPONENTS = ("random", "heuristic", "aggressive", "defensive", "queue", "skunk", "noisy", "online",
             "outcome_heuristic", "distilled_outcome")  # fmt: skip
GAMES = 10_000  # of a match of the table
RESERVE = 25.0  # seconds for the start of Python and for the last checkpoint
Record = dict[str, Any]


def newest(folder: Path) -> int:
    """Iteration of the newest checkpoint; 0 if there is none."""
    return max((int(path.name[5:]) for path in folder.glob("checkpoints/iter_*")), default=0)


def command(folder: Path, minutes: float) -> list[str]:
    """Starts a run, or continues it."""
    words, limit = [sys.executable, "-m", "rematch"], ["--max-minutes", f"{minutes:.2f}"]
    if (folder / "config.yaml").exists():
        return [*words, "resume", str(folder), *limit]
    more = []
    if folder == START:
        more = ["--start_iteration", "0", "--total_steps", str(600 * 8192 * 24)]
    elif is_complete(START):
        more = ["--from", str(START)]
    return [*words, "train", RECIPE, *SETTINGS, *more, "--name", str(folder), *limit]


def is_complete(folder: Path) -> bool:
    """Whether the training is complete, its last evaluation included."""
    from rematch import api
    from rematch.storage.run_folder import Run

    saved = newest(folder)
    if not saved:
        return False
    with Run.open(folder, write=False) as run:
        last, history = api.stored_config(run).iterations, run.history
    return bool(saved >= last and history and history[-1]["iteration"] >= last)


def trained(folder: Path, left: float, words: list[str]) -> float:
    """Run a command until the training is complete, or to its end; the seconds that took.

    What follows the training, a film and a report, is stopped.
    """
    started = time.monotonic()
    with folder.with_name(f"{folder.name}.log").open("a") as log:
        process = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log)
    while process.poll() is None and not is_complete(folder):
        if (remaining := left - (time.monotonic() - started)) <= 0.0:
            break
        time.sleep(min(1.0, remaining))
    seconds, stopped = time.monotonic() - started, process.poll() is None
    process.terminate()
    try:
        process.wait(RESERVE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.returncode and not stopped:
        text = folder.with_name(f"{folder.name}.log").read_text()
        raise SystemExit(f"exit code {process.returncode}: {text[-1500:]}")
    return seconds


def lines(file: Path) -> list[str]:
    """The lines of a file; none where the run has not begun."""
    return file.read_text().splitlines() if file.exists() else []


def train(left: float, start: bool = False) -> Record:
    """Continue the training, or that of its start; the record of all its commands so far."""
    folder = START if start else FOLDER
    folder.parent.mkdir(parents=True, exist_ok=True)
    journal, before = folder.with_name(f"{folder.name}-commands.jsonl"), newest(folder)
    seconds = trained(folder, left, command(folder, max(6.0, left - RESERVE) / 60))
    with journal.open("a") as file:
        file.write(json.dumps({"seconds": seconds, "from": before, "to": newest(folder)}) + "\n")
    commands = [json.loads(line) for line in journal.read_text().splitlines()]
    rows = [json.loads(line) for line in lines(folder / "timing.jsonl")]
    iterations = [row["seconds"] for row in rows if "learner_steps_per_second" in row]
    history = json.loads("".join(lines(folder / "history.json")) or "[]")
    return {
        "complete": is_complete(folder), "commands": commands,
        "seconds": sum(row["seconds"] for row in commands), "iterations": len(iterations),
        "seconds_of_iterations": sum(iterations), "evaluations": len(history),
        "start": str(START) if folder == FOLDER and is_complete(START) else "random weights",
        "last_evaluation": history[-1]["table"] if history else None,
    }  # fmt: skip


def table(opponent: str) -> Record:
    """The policy of the newest checkpoint against one opponent, in the rules of the run."""
    if not is_complete(FOLDER):
        return {"complete": False}
    words = [sys.executable, "-m", "rematch", "eval", str(FOLDER), "--against", opponent,
             "--games", str(GAMES), "--json"]  # fmt: skip
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(result.stderr[-1500:])
    return {"iteration": newest(FOLDER), "table": json.loads(result.stdout)["table"]}


def exploiter(left: float) -> Record:
    """One iteration and the exploiter that follows it."""
    folder = FOLDER.with_name("documents_exploiter")
    words = [sys.executable, "-m", "rematch", "train", RECIPE, *SETTINGS[:4], "--exploiters.every", "1",
             "--total_steps", str(601 * 8192 * 24), "--name", str(folder)]  # fmt: skip
    if (folder / "config.yaml").exists():
        words = [sys.executable, "-m", "rematch", "resume", str(folder)]
    seconds = trained(folder, left, words)
    return {"complete": is_complete(folder), "seconds": seconds}


def continues(measure: Callable[[float], Record]) -> Callable[[float], Record]:
    """Marks a part that takes the seconds that are left."""
    measure.continues = True  # type: ignore[attr-defined]
    return measure


PARTS: dict[str, Callable[..., Record]] = {
    "iterations 600 to 1000": continues(train),
    **{f"table, {opponent}": partial(table, opponent) for opponent in OPPONENTS},
    "one exploiter": continues(exploiter),
}
START_PARTS = {"iterations 0 to 600": continues(partial(train, start=True))}
