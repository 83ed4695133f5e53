"""EWC, rollback and RND together: a stopped run continues identically; threads change nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import advancing_curriculum, toys
from support.stop_and_resume import stop_and_go_on

from rematch import api
from rematch.core import config as settings
from rematch.core.run_config import Config
from rematch.rehearsal.compare import differences, event_log
from rematch.rehearsal.trial import play
from rematch.stability.rollback import Rollback
from rematch.worlds import registry


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))
    advancing_curriculum.stand_in(monkeypatch)


PER = 32 * 8


def everything(game: str, gradient: str = "native", **changes: Any) -> Config:
    """Rollbacks every third iteration, EWC and RND for all roles; roles learn in turn."""
    tiny: dict[str, Any] = {
        "threads": 1, "games": 32, "steps": 8, "total_steps": 10 * PER, "save_every": 1,
        "network.hidden": (8,), "ppo.minibatch_size": 64, "ppo.magnet_weight": 0.1, "ppo.gradient": gradient,
        "league.opponent_share": 0.5, "league.snapshot_every": 2, "evaluation.every": 3,
        "evaluation.games": 4,
        "evaluation.opponents": ("random",), "schedule.kind": "alternating", "schedule.phase_steps": 3 * PER,
        "schedule.warmup_steps": 2 * PER, "rollback.checkpoints_back": 2, "rollback.every": PER,
        "rollback.keep": 3,
        "rollback.episodes": 8, "rollback.min_win_rate": 0.4999, "rollback.max_win_rate": 0.5,
        "rollback.cooldown": 2 * PER,
        "rollback.bilateral": True, "ewc.weight": 100.0, "ewc.fisher_samples": 20, "ewc.roles": "all",
        "rnd.weight": 0.1, "rnd.hidden": 16, "rnd.embed": 8, "rnd.roles": "all",
    }
    if game == "pursuit":
        tiny |= {"world.max_steps": 9}
    return settings.replace(api.default(game), tiny | changes)


@pytest.mark.parametrize(("game", "gradient", "at"), [
    ("matching", "native", 1), ("matching", "torch", 5), ("pursuit", "native", 6), ("pursuit", "native", 7),
])  # fmt: skip
def test_stopped_run_continues_to_the_same_bytes(
    game: str, gradient: str, at: int, tmp_path: Path
) -> None:
    config = everything(game, gradient)
    whole = play(config, tmp_path / "whole")
    rollback = whole.trainer.setup.get(Rollback)
    assert rollback is not None and rollback.guard.count >= 2
    assert len(list((tmp_path / "whole" / "policies").glob("*@level-*.safetensors"))) >= 10
    stop_and_go_on(config, tmp_path / "cut", at)
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_threads_change_nothing() -> None:
    games = {"games": 37}
    assert len({event_log(everything("pursuit", **games, threads=threads)) for threads in (1, 2, 3)}) == 1


def test_native_training_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = ['tests', 'tests/stability'];"
        "import pytest, test_all_together; from pathlib import Path;"
        "from support import advancing_curriculum;"
        "advancing_curriculum.stand_in(pytest.MonkeyPatch());"
        "test_all_together.play(test_all_together.everything('pursuit'), "
        f"Path({str(tmp_path / 'run')!r}));"
        "sys.exit('torch' in sys.modules)"
    )
    root = Path(api.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
