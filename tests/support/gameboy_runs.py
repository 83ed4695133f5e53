"""Little runs of the tiny cartridge for tests: seconds long, with all that a long one has.

    python tests/support/gameboy_runs.py FOLDER KILLS SEED      kills such runs there, compares what they end
    as
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rematch import api
from rematch.agents.learners import dqn
from rematch.core import config as settings
from support.kill_and_resume import kill_often
from support.single_seat_worlds import SIZES

# Games end, are cut off and saved in mid-episode; the ring is overwritten, chunks come and go.
LITTLE: dict[str, Any] = {
    "learner": "dqn", "threads": 1, "games": 3, "steps": 8, "total_steps": 3 * 8 * 14, "save_every": 2,
    "world.cartridge": "tiny", "world.max_steps": 22,
    "dqn.sequence": 8, "dqn.burn_in": 2, "dqn.batch": 5, "dqn.replay_size": 3 * 60, "dqn.warmup": 40,
    "dqn.target_every": 3, "dqn.replay_ratio": 1.0, "count_bonus.weight": 0.1, "rnd_images.weight": 0.1,
    "rnd_images.update_every": 16, "evaluation.games": 1, "evaluation.every": 7, "milestones.weight": 0.1,
    "savestates.mode": "bands", "episode_log.interval": 100,
}  # fmt: skip


def little(**changes: Any) -> Any:
    """LITTLE; `changes` with `__` for the dot."""
    more = {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default("gameboy"), LITTLE | more)


if __name__ == "__main__":
    dqn.SIZES = SIZES
    short = little(total_steps=3 * 8 * 10, evaluation__every=5)
    kill_often(short, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), 0.5)
