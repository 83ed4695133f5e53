"""The long kill test: ends training processes with SIGKILL at random moments and compares the final files.

    python tools/checks/kill_runs.py --kills 200 [--lag 1] [--subject kernels]

A tiny run is trained without interruption. Then runs with the same settings are started, killed many times,
at random moments and during saves, and resumed until they are complete. Every file of them must equal that of
the uninterrupted run, byte for byte (except timing.jsonl). --seed determines all moments.
tests/tools/test_kill_runs.py is the short version.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rematch.rehearsal.compare import differences  # noqa: E402

ITERATIONS = 40
TINY = {
    "threads": 2,
    "games": 32,
    "steps": 8,
    "total_steps": ITERATIONS * 32 * 8,
    "save_every": 1,
    "stagger": 8,
    "world.max_steps": 20,
    "network.hidden": "16,16",
    "ppo.minibatch_size": 64,
    "ppo.magnet_weight": 0.1,
    "ppo.average_fraction": 0.5,
    "league.opponent_share": 0.6,
    "league.snapshot_every": 2,
    "league.size": 3,
    "league.slots": 2,
    "league.rotate": 2,
    "league.matchmaking": "pfsp",
    "league.bots": "lion,flee_straight",
    "evaluation.every": 4,
    "evaluation.games": 4,
    "evaluation.opponents": "random",
    "rollback.checkpoints_back": 2,
    "rollback.every": 256,
    "rollback.keep": 3,
    "rollback.episodes": 20,
    "rollback.min_win_rate": 0.3,
    "rollback.max_win_rate": 0.7,
    "rollback.cooldown": 1024,
    "rnd.weight": 0.1,
    "rnd.hidden": 16,
}
# On the GPU: a network that its kernels compute, and no reward term, which reads columns on the host.
ON_GPU = {key: value for key, value in TINY.items() if not key.startswith("rnd.")}
ON_GPU |= {"device": "cuda", "games": 512, "total_steps": ITERATIONS * 512 * 8, "network.hidden": "64,64",
            "ppo.minibatch_size": 512, "rollback.every": 4096, "rollback.cooldown": 16384}  # fmt: skip
# On the GPU by torch: categories, the magnet, past policies in slots.
CATEGORIES = {
    "device": "cuda", "games": 256, "steps": 8, "total_steps": ITERATIONS * 256 * 8, "save_every": 1,
    "ppo.minibatch_size": 512, "ppo.average_fraction": 0.5, "league.opponent_share": 0.6,
    "league.snapshot_every": 2, "league.size": 3, "league.slots": 2, "league.rotate": 2,
    "evaluation.every": 10, "evaluation.games": 4,
}  # fmt: skip
# On the GPU by torch: attention in bfloat16, dropout, a temperature, bots, exploiters.
TRANSFORMER = {
    "device": "cuda", "network.device": "cuda", "games": 256, "total_steps": ITERATIONS * 256 * 24,
    "start_iteration": 0, "save_every": 1, "ppo.minibatch_size": 1024, "network.layers": 2,
    "league.snapshot_every": 2, "league.size": 3, "league.slots": 2, "league.rotate": 2,
    "exploiters.every": 16, "exploiters.steps": 256 * 24 * 2, "evaluation.every": 10, "evaluation.games": 4,
    "evaluation.opponents": "random,heuristic",
}  # fmt: skip
SUBJECTS = {"cpu": ("pursuit", TINY), "kernels": ("pursuit", ON_GPU), "categories": ("lattice", CATEGORIES),
            "transformer": ("iter600_to_1000", TRANSFORMER)}  # fmt: skip


def flags(settings: Mapping[str, object]) -> list[str]:
    """Settings as words of the command line."""
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


RECIPE_AND_FLAGS = ["pursuit", *flags(TINY)]
KILLS_PER_RUN = 8  # kills before a run is trained to its end


def command(*arguments: str) -> subprocess.Popen[str]:
    """Starts a rematch command as a new process."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "rematch", *arguments],
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def start_or_resume(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Starts the run, or resumes it if its settings file exists."""
    if (folder / "config.yaml").exists():
        return command("resume", str(folder), *options)
    return command("train", *RECIPE_AND_FLAGS, "--name", str(folder), *options)


def finish(folder: Path) -> str:
    """Trains the run to its end; returns its output."""
    child = start_or_resume(folder)
    output = child.communicate(timeout=300)[0]
    if child.returncode:
        raise AssertionError(f"exit code {child.returncode}: {output}")
    return output


def newest(folder: Path) -> int:
    """Iteration of the newest checkpoint; 0 if there is none."""
    return max((int(path.name[5:]) for path in folder.glob("checkpoints/iter_*")), default=0)


def is_saving(folder: Path) -> bool:
    """Whether a checkpoint is being written."""
    return any(folder.glob("checkpoints/.tmp-*"))


def kill(folder: Path, rng: random.Random, seconds: float) -> str:
    """Starts or resumes the run and kills it at a random moment; returns a description, "" if it had ended.

    Two in five moments are by the clock: mostly early ones, during training, and some over all of the
    `seconds` that an uninterrupted run takes. The others are during a save, after a random number of saves.
    """
    before = newest(folder)
    child, started = start_or_resume(folder), time.monotonic()
    if before >= ITERATIONS - 1 or rng.random() < 0.4:
        whole_run = before >= ITERATIONS - 1 or rng.random() < 0.2
        moment = "by the clock"
        time.sleep(rng.uniform(0.0, seconds if whole_run else seconds / 4))
    else:
        moment, target = "in a save", min(ITERATIONS - 1, before + 1 + rng.randrange(8))
        while child.poll() is None and newest(folder) < target:
            time.sleep(0.0005)
        while child.poll() is None and newest(folder) < ITERATIONS and not is_saving(folder):
            time.sleep(0.0002)
        time.sleep(rng.uniform(0.0, 0.004))
    child.send_signal(signal.SIGKILL)
    output = child.communicate()[0]
    if child.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(f"exit code {child.returncode} before it was killed: {output}")
    description = (
        f"{moment}, after {time.monotonic() - started:.2f} s, at iteration {newest(folder)} of {ITERATIONS}"
    )
    return description if child.returncode else ""


def undisturbed(folder: Path) -> float:
    """Trains the reference run to its end; returns the seconds it took."""
    started = time.monotonic()
    finish(folder)
    return time.monotonic() - started


def trial(
    twin: Path, folder: Path, rng: random.Random, kills_and_seconds: tuple[int, float]
) -> Iterator[str]:
    """Kills a run up to N times, lets it finish and compares it; yields a line per kill.

    kills_and_seconds: N, and the seconds that an uninterrupted run takes. AssertionError names the files that
    differ.
    """
    count, seconds = kills_and_seconds
    for _ in range(count):
        description = kill(folder, rng, seconds)
        if not description:
            break
        yield description
    finish(folder)
    different = differences(twin, folder)
    if different:
        raise AssertionError(f"{folder} differs from {twin} in {', '.join(different)}")


def main() -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--kills", type=int, default=200, help="number of processes to kill")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments")
    parser.add_argument("--lag", type=int, default=0, help="the setting `lag` of the runs")
    parser.add_argument("--subject", choices=SUBJECTS, default="cpu", help="what trains, and where")
    parser.add_argument("--folder", type=Path, help="folder for the runs (default: a temporary folder)")
    options = parser.parse_args()
    recipe, settings = SUBJECTS[options.subject]
    RECIPE_AND_FLAGS[:] = [recipe, *flags(settings), "--lag", str(options.lag)]
    with tempfile.TemporaryDirectory(prefix="rematch-kill-") as temporary:
        folder = options.folder or Path(temporary)
        started = time.monotonic()
        seconds = undisturbed(folder / "twin")
        print(f"undisturbed run: {seconds:.1f} s", flush=True)
        kills = differences = run = 0
        while kills < options.kills:
            run += 1
            rng = random.Random(f"{options.seed} {run}")
            try:
                for description in trial(
                    folder / "twin",
                    folder / f"run-{run}",
                    rng,
                    (min(KILLS_PER_RUN, options.kills - kills), seconds),
                ):
                    kills += 1
                    print(f"run {run} kill {kills}: {description}", flush=True)
                print(f"run {run}: equal", flush=True)
            except AssertionError as error:
                differences += 1
                print(f"run {run} (seed {options.seed}): DIFFERENT: {error}", flush=True)
        print(f"{kills} kills, {differences} differences, {time.monotonic() - started:.0f} s", flush=True)
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
