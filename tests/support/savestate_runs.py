"""For tests of the savestate archive: runs on the tiny cartridge whose games follow its solution.

    python tests/support/savestate_runs.py FOLDER KILLS SEED [scouted]     kills such runs there, compares
    what they end as
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rematch import api
from rematch.agents.learners import dqn
from rematch.core import config as settings
from rematch.core import rng
from rematch.core.player import Decision, RngKey, Seat
from rematch.rehearsal.compare import differences
from rematch.rehearsal.trial import Recorder
from rematch.storage.run_folder import Run
from rematch.training.loop import train
from rematch.training.recipes import stored_config
from rematch.training.trainer import Trainer
from support import gameboy_worlds, single_seat_worlds

BASE: dict[str, Any] = {
    "learner": "dqn", "threads": 1, "games": 4, "steps": 20, "total_steps": 4 * 20 * 14, "save_every": 3,
    "savestates.mode": "bands", "world.cartridge": "tiny", "world.max_steps": 60, "dqn.sequence": 8,
    "dqn.burn_in": 2, "dqn.batch": 4, "dqn.replay_size": 4 * 80, "dqn.warmup": 80, "dqn.replay_ratio": 0.2,
    "milestones.weight": 0.5, "milestones.budget": 60, "evaluation.games": 1, "evaluation.every": 100,
}  # fmt: skip

# Explorers find the demonstration, and training games are forced along it. No milestone is four steps away:
# a rollout ends while games are being forced.
SCOUTED: dict[str, Any] = {
    "steps": 4, "total_steps": 4 * 4 * 13, "demonstrations__enabled": True, "explorers__games": 3,
    "explorers__steps": 30, "explorers__patience": 20, "world__screen": False, "world__max_steps": 14,
    "seed": 1, "count_bonus__weight": 0.1, "count_bonus__lifelong": True, "demo_progress__weight": 0.02,
}  # fmt: skip


def config(**changes: Any) -> Any:
    """BASE; `changes` with `__` for the dot."""
    more = {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default("gameboy"), BASE | more)


class Guide:
    """Follows the solution from the start of each game, except for random actions that make games differ."""

    name = "guide"

    def __init__(self, astray: float = 0.0) -> None:
        self.astray, self.solution = astray, gameboy_worlds.tiny().solution

    def act(self, seat: Seat, rng_key: RngKey, recurrent_state: NDArray[Any] | None = None) -> Decision:
        world: Any = seat.world
        uniform = rng.units(rng_key.seed, rng.BOT, 1000, rng_key.step)
        out = []
        for row in seat.rows.tolist():
            origin, game = world._origin(row), world.first + row
            index = (len(origin.actions) if origin else 0) + int(world.state["time"][row])
            on = index < len(self.solution) and uniform[game] >= self.astray * (game % 2)
            out.append(self.solution[index] if on else int(uniform[game] * 1e6) % 7)
        return Decision(np.array(out, np.int32))


def trainer(made: Any, astray: float | None = 0.0) -> Trainer:
    """With a guide in every game; None: the learner's own player, which follows demonstrations."""
    out = Trainer(made)
    for seating in out.setup.seating.values() if astray is not None else ():
        seating.others[:] = [Guide(astray or 0.0)]
    return out


def go_on(folder: Path, made: Any = None, stop: int = 10**9, astray: float | None = 0.0) -> Recorder:
    """Start the run in `folder`, or resume it; until iteration `stop`."""
    torch.set_num_threads(1)
    with Run.open(folder, write=True) if made is None else Run.create(folder, settings.to_yaml(made)) as run:
        position = trainer(stored_config(run) if made is None else made, astray)
        checkpoint = run.load() if made is None else None
        if checkpoint:
            position.load_state_dict(checkpoint.parts)
        if made is None:
            run.rewind(checkpoint)
        seen = Lines(position, folder)
        position.bind(run, seen)
        position.start(resumed=made is None)
        train(position, lambda: position.clock.iteration >= stop)
        return seen


class Lines(Recorder):
    """And what the console was told."""

    def line(self, text: str) -> None:
        self.__dict__.setdefault("said", []).append(text)


def kill(folder: Path, draw: random.Random, kind: Kind) -> bool:
    """Let a child go on in `folder` and SIGKILL it at an instant of `draw`; False if it had ended."""
    child = os.fork()
    if not child:
        begin_or_go_on(folder, kind)
        os._exit(0)
    until = time.monotonic() + draw.uniform(0.05, 0.9)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True
        time.sleep(0.0005)
    return False


Kind = tuple[dict[str, Any], float | None]  # changes of the settings, and how far astray its guides go
GUIDED: Kind = ({"total_steps": 4 * 20 * 9}, 0.1)
ALONE: Kind = (SCOUTED, None)


def begin_or_go_on(folder: Path, kind: Kind) -> None:
    go_on(folder, None if (folder / "config.yaml").exists() else config(**kind[0]), astray=kind[1])


def main(place: Path, kills: int, seed: int, kind: Kind) -> None:
    dqn.SIZES = single_seat_worlds.SIZES
    draw, done, number = random.Random(seed), 0, 0
    begin_or_go_on(place / "twin", kind)
    while done < kills:
        number += 1
        folder = place / f"run-{number}"
        for _ in range(5):
            done += kill(folder, draw, kind)
        begin_or_go_on(folder, kind)
        unlike = differences(place / "twin", folder)
        assert not unlike, f"run {number}: {', '.join(unlike)}"
    print(f"{done} kills")


if __name__ == "__main__":
    chosen = ALONE if sys.argv[4:] == ["scouted"] else GUIDED
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), chosen)
