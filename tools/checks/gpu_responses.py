"""Best responses that train on a GPU, for tools/checks/gpu.py: to `pursuit`, to the agent of Beasty Bar.

The agents of three seeds of `pursuit` are trained first. The agent of Beasty Bar becomes a run by one
iteration with the learning rate 0. Responses are stored in the run's folder as soon as each is trained, so a
command that was too short is continued. The lines of tools/checks/best_responses.py are in the record;
`best_responses.py add FILE` copies them from it.
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
FOLDER = Path("runs/responses")
AGENT = ROOT / "rematch/worlds/beasty/agent.safetensors"
TRAIN = [sys.executable, "-m", "rematch", "train"]
PURSUIT = ["pursuit", "--device", "cuda"]
BEASTY = ["beasty_expert", "--from", str(AGENT), "--network.hidden", "1024,512",
          "--network.activation", "relu", "--expert.lr", "0", "--expert.lr_final", "0", "--games", "4096",
          "--total_steps", str(4096 * 24),
          "--expert.positions", "16", "--expert.minibatch_size", "16", "--expert.completions", "1",
          "--evaluation.games", "2", "--evaluation.opponents", "random", "--replays.games", "0"]  # fmt: skip
SIZES = {"pursuit": ["--budget", "20000000", "--responses", "2"],
         "beasty": ["--budget", "30000000", "--responses", "3", "--games", "10000"]}  # fmt: skip
RESERVE = 20.0  # seconds in which a command ends
Record = dict[str, Any]


def run(words: list[str], log: Path, seconds: float) -> int | None:
    """The exit code of a command; None where its time is over."""
    with log.open("a") as file:
        process = subprocess.Popen(words, cwd=ROOT, stdout=file, stderr=file)
        try:
            return process.wait(max(1.0, seconds - RESERVE))
        except subprocess.TimeoutExpired:
            process.terminate()
        try:
            process.wait(RESERVE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return None


def measure(name: str, words: list[str], size: list[str], left: float) -> Record:
    """Train the agents if they are not there, then their best responses."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    folder, log = FOLDER / name, FOLDER / f"{name}.log"
    lines = FOLDER / f"{name}.jsonl"
    if not (folder / "report.html").exists():
        resume = [*TRAIN[:-1], "resume", str(folder)]
        start = [*TRAIN, *words, "--name", str(folder)]
        code = run(resume if (folder / "config.yaml").exists() else start, log, left)
        if code is None:
            return {"complete": False}
        check(code, log)
    search = [sys.executable, str(ROOT / "tools/checks/best_responses.py"), "run",
              name.partition("-")[0], str(folder), "--device", "cuda", "--results",
              str(lines.resolve()), *size]  # fmt: skip
    code = run(search, log, left - (time.monotonic() - started))
    found = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    if code not in (None, 0, 1) or (code == 1 and not found):  # 1: a criterion is missed
        check(code or 1, log)
    return {"complete": code is not None, "lines": found}


def check(code: int, log: Path) -> None:
    if code:
        raise SystemExit(f"exit code {code}: {log.read_text()[-1500:]}")


def part(name: str, words: list[str], size: list[str]) -> Callable[[float], Record]:
    """A part that takes the seconds that are left."""
    measure_part: Any = partial(measure, name, words, size)
    measure_part.continues = True
    return measure_part  # type: ignore[no-any-return]


PARTS: dict[str, Callable[[float], Record]] = {
    "beasty": part("beasty", BEASTY, SIZES["beasty"]),
    **{f"pursuit, seed {seed}": part(f"pursuit-{seed}", [*PURSUIT, "--seed", str(seed)], SIZES["pursuit"])
       for seed in range(3)},
}  # fmt: skip
