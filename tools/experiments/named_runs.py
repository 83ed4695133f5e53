"""Trains named runs of an earlier project side by side, several seeds each; the same command again continues.

    python tools/experiments/named_runs.py --device cuda --processes 12 --minutes 9 --out results
    python tools/experiments/named_runs.py w y --seeds 0-4 --processes 2

The default is all of them: w x y z2 h i v z1, seeds 0 to 2; runs are runs/named/RECIPE-SEED. The command ends
--minutes after its start: training stops, is saved, and continues when the command is started again. Films
and reports are not made (`rematch resume` makes them). The lines of the runs for
docs/results/reproductions.md are read at the end, and with --out every two minutes: OUT/reproductions.jsonl,
and the runs as archives (pack_runs.py), so that a command that is killed loses two minutes at most
(checkpoints are in the last archives alone, as far as there is room). `pack_runs.py ARCHIVE ... --unpack
runs/named` restores them on another machine. On a GPU, processes take turns; with NVIDIA's multi-process
service (`nvidia-cuda-mps-control -d`) they run at the same time.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import pack_runs  # noqa: E402
import reproductions  # noqa: E402

from rematch import api  # noqa: E402
from rematch.core.errors import ConfigError  # noqa: E402
from rematch.storage.run_folder import Run  # noqa: E402

NAMES = ("w", "x", "y", "z2", "h", "i", "v", "z1")
FOLDER = Path("runs/named")
LEAST = 20.0  # seconds: less time is not enough to start
SAVING = 10.0  # seconds before the end in which runs save and stop
STOPPING = 15.0  # seconds from a request to stop until a process is killed
PAUSE = 1.0  # seconds between looks at the runs
STORED_EVERY = 120.0  # seconds between archives
REPRODUCTIONS = Path(__file__).with_name("reproductions.py")
LINES = ROOT / "docs/results/data/reproductions.jsonl"


@dataclass(frozen=True)
class NamedRun:
    """One recipe with one seed."""

    recipe: str
    seed: int

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.recipe}-{self.seed}"

    @property
    def started(self) -> bool:
        return (self.folder / "config.yaml").exists()

    @property
    def complete(self) -> bool:
        """Whether all iterations are done, and evaluated. Cheap: it is asked while the run trains."""
        try:
            return reproductions.evaluated_at_its_checkpoint(self.folder) >= iterations(self.folder)
        except (ConfigError, OSError):  # its process says why
            return False

    def command(self, device: str, minutes: float) -> list[str]:
        """Starts the run, or continues it."""
        place, limit = str(self.folder), ["--max-minutes", f"{minutes:.2f}"]
        if self.started:
            return [sys.executable, "-m", "rematch", "resume", place, *limit]
        settings = ["--device", device, "--threads", "1", "--seed", str(self.seed), "--name", place]
        return [sys.executable, "-m", "rematch", "train", self.recipe, *settings, *limit]

    def start(self, device: str, seconds: float) -> subprocess.Popen[bytes]:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with FOLDER.joinpath(f"{self.folder.name}.log").open("a") as log:
            return subprocess.Popen(self.command(device, seconds / 60), stdout=log, stderr=log)


@cache
def iterations(folder: Path) -> int:
    """Of the whole run."""
    with Run.open(folder, write=False) as run:
        return int(api.stored_config(run).iterations)


class Stopped(Exception):
    """SIGTERM or Ctrl-C."""


def seeds_of(text: str) -> list[int]:
    """The seeds of a text such as 0-2 or 5."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask the processes to save and stop; kill those that do not."""
    for process in processes:
        process.terminate()
    end = time.monotonic() + STOPPING
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def exit_code(run: NamedRun, process: subprocess.Popen[bytes]) -> int:
    """That of an ended process; 0 where a run was complete, and only its film or report was killed."""
    killed = process.returncode < 0
    return 0 if killed and run.started and run.complete else process.returncode


def train(
    runs: Sequence[NamedRun], device: str, processes: int, end: float, store: Callable[[], None]
) -> dict[NamedRun, int]:
    """Train until all runs or the time ends, and call `store` every two minutes; exit codes of the runs."""
    running: dict[NamedRun, subprocess.Popen[bytes]] = {}
    codes: dict[NamedRun, int] = {}
    waiting = [run for run in runs if not (run.started and run.complete)]
    stored = time.monotonic()
    try:
        while waiting or running:
            for run, process in list(running.items()):
                if process.poll() is None and run.started and run.complete:
                    stop([process])  # a film and a report are all that is missing
                if process.poll() is not None:
                    codes[run] = exit_code(run, running.pop(run))
            left = end - time.monotonic()
            while waiting and len(running) < processes and left > LEAST:
                run = waiting.pop(0)
                running[run] = run.start(device, max(left - SAVING, LEAST / 2))
            if left <= LEAST:
                waiting.clear()
            if left <= 0:  # a report or a film is being made, or a process does not stop
                break
            if time.monotonic() > stored + STORED_EVERY:
                store()
                stored = time.monotonic()
            time.sleep(PAUSE)
    finally:
        stop(list(running.values()))
    return codes | {run: exit_code(run, process) for run, process in running.items()}


def store(runs: Sequence[NamedRun], out: Path | None, states: bool = True) -> int:
    """Read the lines of all runs that have started; with `out`, write them and the archives there.

    Without `states` the archives have no checkpoints.
    """
    started = [run for run in runs if run.started]
    if not started:
        return 0
    listed = [f"{run.recipe}={run.folder}" for run in started]
    results = out / LINES.name if out else LINES
    if out:
        for name in pack_runs.pack(out / "named", [run.folder for run in started], states=states):
            print(f"no room in the archives: {name}")
        if not results.exists():
            results.write_bytes(LINES.read_bytes() if LINES.exists() else b"")
    command = [sys.executable, str(REPRODUCTIONS), "gather", *listed, "--results", str(results)]
    return subprocess.run(command).returncode


def main(arguments: list[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("recipes", nargs="*", default=NAMES, help=f"default: {' '.join(NAMES)}")
    parser.add_argument("--seeds", default="0-2", type=seeds_of)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--processes", default=2, type=int, help="runs at a time")
    parser.add_argument("--minutes", default=600.0, type=float, help="for all runs together")
    parser.add_argument("--out", type=Path, help="folder for archives and lines of the runs")
    options = parser.parse_args(arguments)
    end = time.monotonic() + 60 * options.minutes
    runs = [NamedRun(recipe, seed) for seed in options.seeds for recipe in options.recipes]
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)

    def store_meanwhile() -> None:
        if options.out:
            store(runs, options.out, states=False)

    def interrupted(number: int, frame: FrameType | None) -> None:
        raise Stopped

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupted)
    codes: dict[NamedRun, int] = {}
    try:
        codes = train(runs, options.device, options.processes, end, store_meanwhile)
    except Stopped:
        print("stopped: the runs were saved; the same command continues", flush=True)
    failed = {run: code for run, code in codes.items() if code}
    for run, code in failed.items():
        print(f"{run.folder}: exit code {code}, see {FOLDER / run.folder.name}.log", flush=True)
    return store(runs, options.out) or int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
