"""Installs a wheel into a clean environment without a compiler, outside the checkout, and tries it.

    make wheel
    python tools/checks/wheel.py dist/rematch-0.1.0-cp311-cp311-linux_x86_64.whl
    python tools/checks/wheel.py WHEEL --more .venv/lib/python3.11/site-packages

With --extras the extras `torch` and `gameboy` are installed too (pip, pinned by constraints.txt), and the
recipe `tiny` is trained; with --more FOLDER it uses PyTorch and PyBoy from that folder instead.

Prints the size of the installation, the result of each command, and whether the cores of all processor
levels that run here give the same bits. Exit code 1 where a command fails or the worlds differ.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PINS = Path(__file__).resolve().parents[2] / "requirements-wheel.txt"
CONSTRAINTS = PINS.with_name("constraints.txt")
SPEED_PAIRS = 5
SMALL = ["--total_steps", "200000", "--evaluation.games", "100", "--threads", "1"]
TINY = ["--total_steps", "320", "--games", "2", "--steps", "16", "--stagger", "0", "--explorers.games", "2",
        "--explorers.steps", "8", "--evaluation.games", "1", "--world.max_steps", "60", "--threads", "1",
        "--dqn.warmup", "100", "--dqn.batch", "4"]
COMPILERS = "import shutil; print([shutil.which(name) for name in ('gcc', 'cc', 'clang')])"
WORLDS = """
import hashlib, sys
import numpy as np
from rematch.evaluation.match import Scoreboard
from rematch.evaluation.evaluator import versus
from rematch.worlds import registry
out = hashlib.sha256()
for name, one, two in (("pursuit", "lion", "obstacle_orbit"), ("lattice", "random", "random"),
                       ("beasty", "heuristic", "queue")):
    game = registry.find(name)
    rules = game.Config()
    board = Scoreboard(lambda n, first, seed: game.make(rules, n, first, seed), 1, 1)
    roles = list(board.spec.roles)
    seats = versus(board.spec, game.bot(one, roles[0]), roles[0], game.bot(two, roles[-1]))
    for array in board.match(seats, 200, 0):
        out.update(np.ascontiguousarray(array).tobytes())
print(out.hexdigest())
"""
LEARNER = """
import hashlib, tempfile, sys
import rematch
with tempfile.TemporaryDirectory() as folder:
    run = rematch.train("quick", {"total_steps": 65536, "games": 256, "stagger": 0, "evaluation.games": 10,
                        "evaluation.opponents": ["random"], "threads": 1}, folder=folder + "/x")
    print(hashlib.sha256(b"".join(p.weights.tobytes() for p in run.policies.values())).hexdigest())
"""
SPEED = """
import time, rematch
from rematch.training.loop import iterate
from rematch.training.trainer import Trainer
trainer = Trainer(rematch.configure("quick", changes={"threads": 1, "stagger": 0}))
trainer.start()
for _ in range(3):
    iterate(trainer)
t = time.process_time()
for _ in range(15):
    iterate(trainer)
print(f"{15 * trainer.clock.steps_per_iteration / (time.process_time() - t):.0f}")
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment and an empty folder to work in; no other program can be found there."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv/bin/python"

    def run(self, *words: str, stdin: str = "", level: str = "") -> subprocess.CompletedProcess[str]:
        variables = {"PATH": str(self.folder / "venv/bin"), "HOME": str(self.folder), "LANG": "C.UTF-8"}
        if level:
            variables["REMATCH_LEVEL"] = level
        return subprocess.run([str(self.python), *words], cwd=self.folder, env=variables, input=stdin,
                              capture_output=True, text=True)

    def rematch(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self.run("-m", "rematch", *words, stdin=stdin)

    @property
    def site(self) -> Path:
        return next((self.folder / "venv/lib").glob("python*/site-packages"))

    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.site.rglob("*") if path.is_file())


def pip(environment: Environment, *arguments: str) -> None:
    """pip install, without a compiler in the path."""
    words = [str(environment.python), "-m", "pip", "install", "-q", "--no-input", "--only-binary", ":all:"]
    subprocess.run([*words, *arguments], cwd=environment.folder, check=True,
                   env=os.environ | {"PATH": str(environment.folder / "venv/bin")})


def install(wheel: Path, folder: Path) -> Environment:
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    environment = Environment(folder)
    before = environment.bytes()
    pip(environment, "--require-hashes", "-r", str(PINS))
    pip(environment, "--no-deps", str(wheel.resolve()))
    size = (environment.bytes() - before) / 2**20
    print(f"installed  {size:.0f} MiB with all required packages", flush=True)
    return environment


def report(name: str, done: subprocess.CompletedProcess[str], expected: str) -> bool:
    """Print the result of a command; whether it succeeded and printed the expected text."""
    good = done.returncode == 0 and expected in done.stdout
    lines = (done.stdout + done.stderr).strip().splitlines()
    print(f"{'ok    ' if good else 'FAILED'}  {name}" + ("" if good else f": {lines[-1:]}"), flush=True)
    return good


def compare_levels(environment: Environment) -> bool:
    """Print whether worlds and learners have the same bits on all levels; True if the worlds have."""
    folder = environment.site / "rematch/cores"
    levels = sorted(path.name for path in folder.iterdir())
    code = "from rematch.core.native_build import *; print(portable_level())"
    best = environment.run("-c", code).stdout.strip()
    worlds, learners = {}, {}
    for level in [level for level in levels if level <= best]:
        worlds[level] = environment.run("-c", WORLDS, level=level).stdout.strip()
        learners[level] = environment.run("-c", LEARNER, level=level).stdout.strip()
        print(f"{level:<10} worlds {worlds[level][:16]}  weights after 65,536 steps {learners[level][:16]}",
              flush=True)
    print(f"chosen here: {best}; in the wheel: {', '.join(levels)}")
    return len(set(worlds.values())) == 1 and "" not in worlds.values()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--more", type=Path, help="folder of packages with PyTorch and PyBoy, for Game Boy")
    parser.add_argument("--extras", action="store_true", help="install PyTorch and PyBoy, and train tiny")
    parser.add_argument("--speed", type=Path, help="Python of a native build, whose speed is compared")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rematch-clean-") as name:
        environment = install(options.wheel, Path(name))
        good = environment.run("-c", "import torch").returncode != 0
        print(f"PyTorch is {'not ' if good else ''}installed")
        good &= report("no compiler is found", environment.run("-c", COMPILERS), "[None, None, None]")
        done = environment.rematch("train", "quick", *SMALL, "--name", "q")
        good &= report("rematch train quick (shortened)", done, "report    runs/q/report.html")
        done = environment.rematch("play", "beasty", stdin="1\n" * 400)
        good &= report("rematch play beasty", done, "Review of your moves")
        refused = environment.rematch("train", "tiny", *TINY, "--name", "t")
        good &= refused.returncode == 2 and "is not installed" in refused.stderr
        print(f"without extras, train tiny: {refused.stderr.strip()}")
        good &= compare_levels(environment)
        if options.speed:  # before PyTorch is installed
            good &= compare_speed(environment, options.speed)
        if options.extras:
            pip(environment, "-c", str(CONSTRAINTS), f"{options.wheel.resolve()}[torch,gameboy]")
            print(f"installed  {environment.bytes() / 2**20:.0f} MiB with PyTorch and PyBoy")
        elif options.more:
            (environment.site / "more.pth").write_text(f"{options.more.resolve()}\n")
        if options.extras or options.more:
            done = environment.rematch("train", "tiny", *TINY, "--name", "t")
            good &= report("rematch train tiny (shortened)", done, "report    runs/t/report.html")
    return int(not good)


def compare_speed(environment: Environment, native: Path) -> bool:
    """Steps per second of processor time: wheel and native build in turn; False where the wheel is more than
    a tenth slower."""
    ratios = []
    for _ in range(SPEED_PAIRS):
        wheel = float(environment.run("-c", SPEED).stdout or "nan")
        done = subprocess.run([str(native), "-c", SPEED], capture_output=True, text=True)
        ratios.append(wheel / float(done.stdout or "nan"))
        print(f"speed      wheel {wheel:,.0f} steps per second of processor time, {ratios[-1]:.3f} of the "
              "native build", flush=True)
    middle = statistics.median(ratios)
    print(f"median of {SPEED_PAIRS} ratios: {middle:.3f}; load {os.getloadavg()[0]:.1f}")
    return middle >= 0.9


if __name__ == "__main__":
    sys.exit(main())
