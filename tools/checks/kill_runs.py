"""The kill test at length: SIGKILL trainings at random instants and compare what they end as.

    python tools/checks/kill_runs.py --kills 200

A tiny run is trained undisturbed; then copies of it are started and killed again and again, at random times
and inside their saves, and resumed until they are complete. Every file of each must equal the undisturbed
run's, byte for byte (timing.jsonl aside). All instants come from --seed. tests/tools/test_kill_runs.py does
it briefly.
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
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rematch.rehearsal.compare import differences  # noqa: E402

ITERATIONS = 40
TINY = {
    "threads": 2, "games": 32, "steps": 8, "total_steps": ITERATIONS * 32 * 8, "save_every": 1, "stagger": 8,
    "world.max_steps": 20, "network.hidden": "16,16", "ppo.minibatch_size": 64, "ppo.magnet_weight": 0.1,
    "ppo.average_fraction": 0.5, "league.opponent_share": 0.6, "league.snapshot_every": 2, "league.size": 3,
    "league.slots": 2, "league.rotate": 2, "league.matchmaking": "pfsp", "league.bots": "lion,flee_straight",
    "evaluation.every": 4, "evaluation.games": 4, "evaluation.opponents": "random",
    "rollback.checkpoints_back": 2, "rollback.every": 256, "rollback.keep": 3, "rollback.episodes": 20,
    "rollback.min_win_rate": 0.3, "rollback.max_win_rate": 0.7, "rollback.cooldown": 1024, "rnd.weight": 0.1,
    "rnd.hidden": 16,
}
FLAGS = [word for key, value in TINY.items() for word in (f"--{key}", str(value))]
PER_RUN = 8  # kills before a run may end


def command(*words: str) -> subprocess.Popen[str]:
    """A rematch command as a process of its own."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen([sys.executable, "-m", "rematch.cli", *words], text=True,
                            env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def go_on(folder: Path, *more: str) -> subprocess.Popen[str]:
    """Start the run, or resume it where its settings have come to lie there."""
    if (folder / "config.yaml").exists():
        return command("resume", str(folder), *more)
    return command("train", "pursuit", *FLAGS, "--name", str(folder), *more)


def finish(folder: Path) -> str:
    """Let the run come to its end; what it printed."""
    child = go_on(folder)
    said = child.communicate(timeout=300)[0]
    if child.returncode:
        raise AssertionError(f"exit code {child.returncode}: {said}")
    return said


def newest(folder: Path) -> int:
    """The iteration of the newest checkpoint; 0 if there is none."""
    return max((int(path.name[5:]) for path in folder.glob("checkpoints/iter_*")), default=0)


def saving(folder: Path) -> bool:
    """Whether a checkpoint is half written at this moment."""
    return any(folder.glob("checkpoints/.tmp-*"))


def kill(folder: Path, draw: random.Random, seconds: float) -> str:
    """Start or resume the run and SIGKILL it at an instant of `draw`; how that went, empty if it had ended.

    Two in five instants are by the clock: early ones, which mostly meet training, and some over all of the
    `seconds` that an undisturbed run takes. The others lie inside a save, after some saves have passed.
    """
    before = newest(folder)
    child, begun = go_on(folder), time.monotonic()
    if before >= ITERATIONS - 1 or draw.random() < 0.4:
        late = before >= ITERATIONS - 1 or draw.random() < 0.2
        where = "by the clock"
        time.sleep(draw.uniform(0.0, seconds if late else seconds / 4))
    else:
        where, target = "in a save", min(ITERATIONS - 1, before + 1 + draw.randrange(8))
        while child.poll() is None and newest(folder) < target:
            time.sleep(0.0005)
        while child.poll() is None and newest(folder) < ITERATIONS and not saving(folder):
            time.sleep(0.0002)
        time.sleep(draw.uniform(0.0, 0.004))
    child.send_signal(signal.SIGKILL)
    said = child.communicate()[0]
    if child.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(f"exit code {child.returncode} before it was killed: {said}")
    at = f"{where}, after {time.monotonic() - begun:.2f} s, at iteration {newest(folder)} of {ITERATIONS}"
    return at if child.returncode else ""


def undisturbed(folder: Path) -> float:
    """Train the twin to its end; the seconds it took."""
    begun = time.monotonic()
    finish(folder)
    return time.monotonic() - begun


def trial(twin: Path, folder: Path, draw: random.Random, times: tuple[int, float]) -> Iterator[str]:
    """One run killed `times[0]` times or until it ends, then compared; a line per kill.

    times: how many kills, and the seconds an undisturbed run takes. AssertionError names what differs.
    """
    count, seconds = times
    for _ in range(count):
        said = kill(folder, draw, seconds)
        if not said:
            break
        yield said
    finish(folder)
    unlike = differences(twin, folder)
    if unlike:
        raise AssertionError(f"{folder} differs from {twin} in {', '.join(unlike)}")


def main() -> int:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--kills", type=int, default=200, help="how many processes to kill")
    parser.add_argument("--seed", type=int, default=0, help="where the random instants come from")
    parser.add_argument("--folder", type=Path, help="keep the runs there (else in a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rematch-kill-") as place:
        folder = options.folder or Path(place)
        begun = time.monotonic()
        seconds = undisturbed(folder / "twin")
        print(f"undisturbed run: {seconds:.1f} s", flush=True)
        kills = different = run = 0
        while kills < options.kills:
            run += 1
            draw = random.Random(f"{options.seed} {run}")
            try:
                for said in trial(folder / "twin", folder / f"run-{run}", draw,
                                  (min(PER_RUN, options.kills - kills), seconds)):
                    kills += 1
                    print(f"run {run} kill {kills}: {said}", flush=True)
                print(f"run {run}: equal", flush=True)
            except AssertionError as error:
                different += 1
                print(f"run {run} (seed {options.seed}): DIFFERENT: {error}", flush=True)
        print(f"{kills} kills, {different} differences, {time.monotonic() - begun:.0f} s", flush=True)
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
