"""Runs commands of rematch for a trial: train, kill in the middle, resume; with one time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.system import user_code
from rematch.rehearsal.shrink import ITERATIONS
from rematch.worlds import registry

LIMIT = 180.0  # seconds for all commands: they take less than a minute on a free core


class CommandRunner:
    """Runs commands of rematch in a temporary folder, with one time limit for all of them."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.deadline = folder, time.monotonic() + LIMIT
        self.recipe = folder / "rehearsal.yaml"
        self.recipe.write_text(settings.to_yaml(config))
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        package = str(Path(registry.__file__).parents[2])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH"), os.getcwd()]))
        with (self.folder / f"{len(self.running)}.err").open("wb") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "rematch", *arguments, *user_code.child_flags()],
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        self.running.append(child)
        return child

    def finish(self, child: subprocess.Popen[bytes]) -> None:
        """Wait for a command; ConfigError with its last line of output where it failed."""
        try:
            code = child.wait(max(0.1, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ConfigError(f"not done within {LIMIT:.0f} seconds") from None
        if code:
            text = (self.folder / f"{self.running.index(child)}.err").read_text(errors="replace").strip()
            raise ConfigError(text.splitlines()[-1] if text else f"exit code {code}")

    def kill_midway(self, folder: Path) -> str:
        """Train in `folder` and kill the run in the middle; returns the name of its newest checkpoint."""
        child = self.start("train", str(self.recipe), "--name", str(folder))
        while child.poll() is None and time.monotonic() < self.deadline:
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
