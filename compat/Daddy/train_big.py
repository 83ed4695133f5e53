"""Runs the earlier project's large Game Boy command unchanged, translated into the recipe `big`.

    python -m Daddy.train_big --num-envs 32 --total-steps 5000000 --model-size large --run-name big_run_01 \\
        --log-interval 5000 --save-interval 100000 --video-interval 250000

The run is runs/RUN_NAME; savestates/RUN_NAME and checkpoints/RUN_NAME/step_N are links into it. The same
command again resumes the run. --max-minutes M stops after M minutes, --other-machine resumes on another
kind of processor, and any setting of Rematch may follow: --world.rom FILE, --savestates.mode all. The network
trains on an NVIDIA GPU if there is one; --dqn.device cpu or cuda decides it.
docs/how_to/earlier_project.md describes the differences from the original.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch.agents.learners.dqn import SIZES
from rematch.cli.options import Options
from rematch.core.config import RENAMED, leaves, nearest
from rematch.core.errors import ConfigError
from rematch.reporting.console import Console
from rematch.training.run_log import RunLog

RECIPE = "big"
MODEL_CONFIGS = {
    name: {"cnn_channels": list(channels), "gru_hidden": width, "lstm_hidden": width, "ssm_hidden": width}
    for name, (channels, width) in SIZES.items()
}


@dataclass(frozen=True)
class Flag:
    """A flag of the earlier project: the setting of Rematch, if there is one, and the help text."""

    key: str
    meaning: str


FLAGS: dict[str, Flag] = {
    "--num-envs": Flag("games", "environments that step together (32)"),
    "--total-steps": Flag("total_steps", "steps of all environments together (5000000)"),
    "--batch-size": Flag("dqn.batch", "sequences in one update (16)"),
    "--model-size": Flag("dqn.size", f"{' or '.join(MODEL_CONFIGS)} (large)"),
    "--run-name": Flag("", "the run's folder in runs/ (big-1, big-2, ...)"),
    "--log-interval": Flag("episode_log.interval", "steps between two log lines (5000)"),
    "--save-interval": Flag("", "steps between two checkpoints (100000), in whole iterations"),
    "--video-interval": Flag("episode_video.interval", "steps between two films (250000); 0: none"),
}
COMMON_FLAGS = ("--max-minutes",)  # flags of every rematch command
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def translate(flag_values: Mapping[str, str], settings: Sequence[str]) -> tuple[Any, list[str]]:
    """Flags and settings -> (config of the run, notes on values that are rounded or replaced)."""
    from rematch import api

    base, notes = api.configure(RECIPE), []
    keys = [key for key, _, _ in leaves(base)]
    flags: list[str] = []
    for name, value in flag_values.items():
        if name in FLAGS and FLAGS[name].key:
            flags += [f"--{FLAGS[name].key}", value]
    check_flag_names(settings, keys)
    try:
        config = api.configure(RECIPE, flags=[*flags, *settings])
    except ConfigError as error:
        raise ConfigError(with_flag_names(str(error), flag_values)) from None
    iteration_steps, extra = config.games * config.steps, []
    if "--save-interval" in flag_values:
        word = f"--save-interval={flag_values['--save-interval']}"
        interval = Options([word], ("--save-interval",)).integer("--save-interval", 0, 1, 10**15)
        every = max(1, round(interval / iteration_steps))
        extra.append(f"--save_every={every}")
        if every * iteration_steps != interval:
            notes.append(f"note: --save-interval {interval}: every {every * iteration_steps} steps, "
                         f"whole iterations of {iteration_steps}")
    if config.total_steps % iteration_steps:
        notes.append(f"note: --total-steps {config.total_steps}: {config.iterations * iteration_steps} "
                     f"steps, whole iterations of {iteration_steps}")
    if config.dqn.warmup >= config.total_steps and not any("warmup" in setting for setting in settings):
        warmup = config.total_steps // 10
        extra.append(f"--dqn.warmup={warmup}")
        notes.append(f"note: --total-steps {config.total_steps}: learning begins after {warmup} steps, not "
                     f"{config.dqn.warmup}")
    return api.configure(RECIPE, flags=[*flags, *settings, *extra]), notes


def with_flag_names(text: str, flag_values: Mapping[str, str]) -> str:
    """Replaces names of settings in an error message with the flags that set them."""
    for name in flag_values:
        if name in FLAGS and FLAGS[name].key:
            text = text.replace(f"{FLAGS[name].key} = ", f"{name} = ")
    return text


def check_flag_names(arguments: Sequence[str], keys: Sequence[str]) -> None:
    """Raises ConfigError for an unknown flag; the message has the nearest known one."""
    for argument in arguments:
        name = argument.partition("=")[0]
        key = name.removeprefix("--").replace("-", "_")
        leaf = key.rpartition(".")[2].removeprefix("no_")
        plain = f"{key.rpartition('.')[0]}.{leaf}".removeprefix(".")
        if argument.startswith("--") and not {key, plain} & {*keys, *RENAMED}:
            near = nearest(name, [*FLAGS, *COMMON_FLAGS, *(f"--{key}" for key in keys)])
            raise ConfigError(f"unknown flag {name!r}" + (f"; nearest: {near}" if near else ""))


# --- folders of the earlier project -----------------------------------------------------------------------


class Links:
    """The links savestates/NAME and checkpoints/NAME/step_N into the run's folder."""

    def __init__(self, folder: Path, iteration_steps: int) -> None:
        self.folder, self.iteration_steps = folder, iteration_steps  # steps of an iteration
        self.states, self.checkpoints = Path("savestates") / folder.name, Path("checkpoints") / folder.name
        if os.path.lexists(self.states) and not self.states.is_symlink():
            raise ConfigError(f"{self.states}: is there, and no link of ours; expected another --run-name")
        foreign = [path for path in self.checkpoints.glob("*") if not path.is_symlink()]
        if foreign or (os.path.lexists(self.checkpoints) and not self.checkpoints.is_dir()):
            path = foreign[0] if foreign else self.checkpoints
            raise ConfigError(f"{path}: is there, and no link of ours; expected another --run-name")

    def renew(self) -> None:
        """One link per checkpoint: Rematch keeps the three newest, which share the chunks of their replay."""
        (self.folder / "savestates").mkdir(mode=0o700, exist_ok=True)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.states.parent.mkdir(exist_ok=True)
        link_to(self.states, Path("..") / self.folder / "savestates")
        checkpoints = self.folder.glob("checkpoints/iter_*")
        targets = {f"step_{int(path.name[5:]) * self.iteration_steps}": path for path in checkpoints}
        for name, path in targets.items():
            link_to(self.checkpoints / name, Path("../..") / path)
        for path in self.checkpoints.iterdir():
            if path.name not in targets:
                path.unlink()


def link_to(link: Path, target: Path) -> None:
    """Makes `link` a symbolic link to `target`, a path relative to the link."""
    if not link.is_symlink() or link.readlink() != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)


class LinkingConsole(Console):
    """A console that also updates the links. An error in a link does not stop the training."""

    def __init__(self, links: Links) -> None:
        super().__init__()
        self.links, self.failed = links, ""

    def progress(self, step: int, rate: float, metrics: Mapping[str, Any]) -> None:
        super().progress(step, rate, metrics)
        self.renew()

    def renew(self) -> None:
        try:
            self.links.renew()
        except OSError as error:
            if self.failed != str(error):
                self.failed = str(error)
                self.line(f"links to {self.links.folder} were not made: {error}")


# --- the command ------------------------------------------------------------------------------------------


# Names of the earlier project for the returns in episodes.csv.
COLUMN_NAMES = {"return_rnd_images": "return_rnd", "return_count_bonus": "return_novel",
                "return_milestones": "return_bayes", "return_demo_progress": "return_way"}


def train(arguments: Sequence[str]) -> int:
    from rematch import api

    options = Options(arguments, (*FLAGS, *COMMON_FLAGS), ("--help", "-h", "--other-machine"))
    if "--help" in options.values or "-h" in options.values:
        print(__doc__)
        print("\n".join(f"  {name:<17} {flag.meaning}" for name, flag in FLAGS.items()))
        return 0
    minutes, name = options.minutes(), options.values.get("--run-name")
    if name is not None and not NAME.fullmatch(name):
        raise ConfigError(f"--run-name = {name!r}: expected a folder's name: letters, digits, _ . -")
    device = device_of_run(Path("runs") / name, options.remaining) if name else []
    config, notes = translate(options.values, [*options.remaining, *device])
    folder = api.free_folder(Path("runs"), RECIPE) if name is None else Path("runs") / name
    console = LinkingConsole(Links(folder, config.games * config.steps))
    other_machine = "--other-machine" in options.values
    RunLog.column_names = COLUMN_NAMES
    try:
        if (folder / "config.yaml").exists():
            check_same_settings(folder, config)
            api.resume(folder, console, minutes, other_machine)
        else:
            notes += ["note: --other-machine has no effect: the run is new"] if other_machine else []
            api.train(config, folder=folder, console=console, minutes=minutes, notes=notes)
    finally:
        RunLog.column_names = {}
        if (folder / "config.yaml").exists():
            console.renew()
    return 0


def device_of_run(folder: Path, settings: Sequence[str]) -> list[str]:
    """The device of an existing run as a setting, unless the command names one."""
    from rematch import api
    from rematch.storage.run_folder import Run

    names = [word.partition("=")[0].removeprefix("--").replace("-", "_") for word in settings]
    if "dqn.device" in names or not (folder / "config.yaml").exists():
        return []
    with Run.open(folder, write=False) as run:
        return [f"--dqn.device={api.stored_config(run).dqn.device}"]


def check_same_settings(folder: Path, config: Any) -> None:
    """Raises ConfigError if the existing run has other settings: only the same command resumes it."""
    from rematch import api
    from rematch.storage.run_folder import Run

    with Run.open(folder, write=False) as run:
        stored = {key: value for key, _, value in leaves(api.stored_config(run))}
    differences = [f"{key} {stored.get(key)} there, {value} here" for key, _, value in leaves(config)
              if stored.get(key) != value]
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise ConfigError(f"{folder} holds a run with other settings ({'; '.join(differences[:3])}{more}): "
                          "expected the same ones, or another --run-name")


if __name__ == "__main__":
    from rematch.cli.main import main

    sys.exit(main(act=train))
