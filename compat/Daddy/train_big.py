"""The large-run document's command, verbatim, as a translation into the recipe `big`.

    python -m Daddy.train_big --num-envs 32 --total-steps 5000000 --model-size large --run-name big_run_01 \\
        --log-interval 5000 --save-interval 100000 --video-interval 250000

The run lies in runs/RUN_NAME; savestates/RUN_NAME and checkpoints/RUN_NAME/step_N lead there. The same
command again goes on with it. --max-minutes M stops in time, --other-machine resumes on another kind of
processor, and any setting of Rematch may follow: --world.rom FILE, --savestates.mode all, --dqn.device cuda.
docs/how_to/earlier_project.md says where this differs from the original, and why.
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
    """A flag of the document: our setting, if it is one, and what it means."""

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
OWN = ("--max-minutes",)  # of every command of ours
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def translate(given: Mapping[str, str], more: Sequence[str]) -> tuple[Any, list[str]]:
    """Flags of the document and settings of ours -> the run's config, and notes on what is read otherwise."""
    from rematch import api

    base, notes = api.configure(RECIPE), []
    known = [key for key, _, _ in leaves(base)]
    flags: list[str] = []
    for name, value in given.items():
        if name in FLAGS and FLAGS[name].key:
            flags += [f"--{FLAGS[name].key}", value]
    refuse_unknown(more, known)
    try:
        config = api.configure(RECIPE, flags=[*flags, *more])
    except ConfigError as error:
        raise ConfigError(in_their_words(str(error), given)) from None
    per, later = config.games * config.steps, []
    if "--save-interval" in given:
        wanted = Options([f"--save-interval={given['--save-interval']}"], ("--save-interval",)).integer(
            "--save-interval", 0, 1, 10**15)
        every = max(1, round(wanted / per))
        later.append(f"--save_every={every}")
        if every * per != wanted:
            notes.append(f"note: --save-interval {wanted}: every {every * per} steps, "
                         f"whole iterations of {per}")
    if config.total_steps % per:
        notes.append(f"note: --total-steps {config.total_steps}: {config.iterations * per} steps, "
                     f"whole iterations of {per}")
    if config.dqn.warmup >= config.total_steps and not any("warmup" in word for word in more):
        early = config.total_steps // 10
        later.append(f"--dqn.warmup={early}")
        notes.append(f"note: --total-steps {config.total_steps}: learning begins after {early} steps, not "
                     f"{config.dqn.warmup}")
    return api.configure(RECIPE, flags=[*flags, *more, *later]), notes


def in_their_words(text: str, given: Mapping[str, str]) -> str:
    """A complaint about a setting, by the name of the flag that was given for it."""
    for name in given:
        if name in FLAGS and FLAGS[name].key:
            text = text.replace(f"{FLAGS[name].key} = ", f"{name} = ")
    return text


def refuse_unknown(words: Sequence[str], known: Sequence[str]) -> None:
    """A mistyped flag is named with the nearest of the document's and of our own."""
    for word in words:
        name = word.partition("=")[0]
        key = name.removeprefix("--").replace("-", "_")
        leaf = key.rpartition(".")[2].removeprefix("no_")
        plain = f"{key.rpartition('.')[0]}.{leaf}".removeprefix(".")
        if word.startswith("--") and not {key, plain} & {*known, *RENAMED}:
            near = nearest(name, [*FLAGS, *OWN, *(f"--{one}" for one in known)])
            raise ConfigError(f"unknown flag {name!r}" + (f"; nearest: {near}" if near else ""))


# --- where the document looks for things ------------------------------------------------------------------


class Links:
    """savestates/NAME and checkpoints/NAME/step_N, which lead into the run's folder."""

    def __init__(self, folder: Path, per: int) -> None:
        self.folder, self.per = folder, per  # steps of an iteration
        self.states, self.checkpoints = Path("savestates") / folder.name, Path("checkpoints") / folder.name
        if os.path.lexists(self.states) and not self.states.is_symlink():
            raise ConfigError(f"{self.states}: is there, and no link of ours; expected another --run-name")
        strange = [path for path in self.checkpoints.glob("*") if not path.is_symlink()]
        if strange or (os.path.lexists(self.checkpoints) and not self.checkpoints.is_dir()):
            found = strange[0] if strange else self.checkpoints
            raise ConfigError(f"{found}: is there, and no link of ours; expected another --run-name")

    def renew(self) -> None:
        """One link a checkpoint that is kept: Rematch keeps the three newest, and they share their replay."""
        (self.folder / "savestates").mkdir(mode=0o700, exist_ok=True)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.states.parent.mkdir(exist_ok=True)
        lead(self.states, Path("..") / self.folder / "savestates")
        kept = self.folder.glob("checkpoints/iter_*")
        there = {f"step_{int(path.name[5:]) * self.per}": path for path in kept}
        for name, path in there.items():
            lead(self.checkpoints / name, Path("../..") / path)
        for path in self.checkpoints.iterdir():
            if path.name not in there:
                path.unlink()


def lead(link: Path, target: Path) -> None:
    """Make `link` lead to `target`, which is named as seen from the link."""
    if not link.is_symlink() or link.readlink() != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)


class Linking(Console):
    """The console of a run whose links are renewed as it goes. A link that fails costs no training."""

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


# The earlier project's names of the returns in episodes.csv.
COLUMN_NAMES = {"return_rnd_images": "return_rnd", "return_count_bonus": "return_novel",
                "return_milestones": "return_bayes", "return_demo_progress": "return_way"}


def train(words: Sequence[str]) -> int:
    from rematch import api

    options = Options(words, (*FLAGS, *OWN), ("--help", "-h", "--other-machine"))
    if "--help" in options.values or "-h" in options.values:
        print(__doc__)
        print("\n".join(f"  {name:<17} {flag.meaning}" for name, flag in FLAGS.items()))
        return 0
    config, notes = translate(options.values, options.remaining)
    minutes, name = options.minutes(), options.values.get("--run-name")
    if name is not None and not NAME.fullmatch(name):
        raise ConfigError(f"--run-name = {name!r}: expected a folder's name: letters, digits, _ . -")
    folder = api.free_folder(Path("runs"), RECIPE) if name is None else Path("runs") / name
    console = Linking(Links(folder, config.games * config.steps))
    elsewhere = "--other-machine" in options.values
    RunLog.column_names = COLUMN_NAMES
    try:
        if (folder / "config.yaml").exists():
            refuse_other(folder, config)
            api.resume(folder, console, minutes, elsewhere)
        else:
            notes += ["note: --other-machine has no effect: the run is new"] if elsewhere else []
            api.train(config, folder=folder, console=console, minutes=minutes, notes=notes)
    finally:
        RunLog.column_names = {}
        if (folder / "config.yaml").exists():
            console.renew()
    return 0


def refuse_other(folder: Path, config: Any) -> None:
    """The same command goes on with its run; one with other settings would be another run."""
    from rematch import api
    from rematch.storage.run_folder import Run

    with Run.open(folder, write=False) as run:
        held = {key: value for key, _, value in leaves(api.stored_config(run))}
    differ = [f"{key} {held.get(key)} there, {value} here" for key, _, value in leaves(config)
              if held.get(key) != value]
    if differ:
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise ConfigError(f"{folder} holds a run with other settings ({'; '.join(differ[:3])}{more}): "
                          "expected the same ones, or another --run-name")


if __name__ == "__main__":
    from rematch.cli.main import main

    sys.exit(main(act=train))
