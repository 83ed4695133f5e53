"""Where a rehearsal runs commands of rematch: train, kill in the middle, resume; within one limit of time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.system import user_code
from rematch.rehearsal.shrink import ITERATIONS
from rematch.worlds import registry

LIMIT = 180.0  # seconds for all commands: well under a minute on a free core; a busy machine is no failure


def with_full_paths(config: Config) -> Config:
    """The settings for a process in another folder: files of the user's code with their full paths."""
    changes: dict[str, Any] = {key: tuple(map(user_code.absolute, settings.get(config, key)))
                                  for key in ("components", "reward_terms")}
    changes["network.module"] = user_code.absolute(config.network.module)
    user_code.allow([*changes["components"], *changes["reward_terms"], changes["network.module"]])
    return settings.replace(config, changes)


class Stage:
    """A temporary place in which commands of rematch run, all within one limit of time."""

    def __init__(self, place: Path, config: Config) -> None:
        self.place, self.until = place, time.monotonic() + LIMIT
        self.recipe = place / "rehearsal.yaml"
        self.recipe.write_text(settings.to_yaml(with_full_paths(config)))
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        ours = str(Path(registry.__file__).parents[2])
        path = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH"), os.getcwd()]))
        with (self.place / f"{len(self.running)}.err").open("wb") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "rematch.cli", *words, *user_code.child_flags()],
                cwd=self.place,
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        self.running.append(child)
        return child

    def finish(self, child: subprocess.Popen[bytes]) -> None:
        """Wait for a command; ConfigError with its own last line where it failed."""
        try:
            code = child.wait(max(0.1, self.until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ConfigError(f"not done within {LIMIT:.0f} seconds") from None
        if code:
            text = (self.place / f"{self.running.index(child)}.err").read_text(errors="replace").strip()
            raise ConfigError(text.splitlines()[-1] if text else f"exit code {code}")

    def kill_midway(self, folder: Path) -> str:
        """Train into `folder` and SIGKILL it in the middle; which checkpoint was the newest then."""
        child = self.start("train", str(self.recipe), "--name", str(folder))
        while child.poll() is None and time.monotonic() < self.until:
            if (folder / "checkpoints" / f"iter_{ITERATIONS // 2:08d}").exists():
                child.send_signal(signal.SIGKILL)
                child.wait()
                break
            time.sleep(0.001)
        if child.returncode != -signal.SIGKILL:
            self.finish(child)
            raise ConfigError("the run ended before it could be killed")
        return max(path.name for path in (folder / "checkpoints").glob("iter_*"))

    def close(self) -> None:
        for child in self.running:
            if child.poll() is None:
                child.kill()
                child.wait()
