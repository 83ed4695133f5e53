"""rematch train: start a run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rematch.cli.command import ACTORS, CLUSTER, CONFIG, MINUTES, RECIPE, RUN, Command, Option
from rematch.cli.notify_process import NOTIFY, address_of, notifying
from rematch.cli.options import Options
from rematch.cli.recipe_options import configured, recipe_words
from rematch.core.errors import ConfigError
from rematch.verbs.arguments import POLICY, RUNS, folder_of, new_folder

if TYPE_CHECKING:
    from rematch.core.run_config import Config
    from rematch.reporting.console import Console


def run(words: Sequence[str]) -> int:
    from rematch import api
    from rematch.reporting.console import Console

    recipe, options = recipe_words(COMMAND, words)
    config = configured(recipe, options)
    options.minutes()  # a wrong one is refused before anything is started
    name = options.values.get("--name")
    url = address_of(options.values)
    folder = api.free_folder(RUNS, recipe) if name is None else new_folder(name)
    with start_page(folder.parent) if "--serve" in options.values else contextlib.nullcontext():
        console = Console()
        with notifying(url, folder, console.line_from_thread):
            train(config, folder, options, console)
    return 0


def train(config: Config, folder: Path, options: Options, console: Console) -> None:
    from rematch import api

    if "--from" in options.values:
        source = options.values["--from"]
        start = Path(source) if source.endswith(POLICY) else folder_of(source)
        api.train_from(start, config, folder, console, options.minutes(), cluster=options.cluster())
    else:
        minutes, cluster = options.minutes(), options.cluster()
        api.train(config, folder=folder, console=console, minutes=minutes, cluster=cluster)


@contextlib.contextmanager
def start_page(folder: Path) -> Iterator[None]:
    """Serve the runs of a folder from a process of its own while a run trains; print the address first."""
    from rematch.sweeps.processes import CHILD

    folder.mkdir(0o700, parents=True, exist_ok=True)
    command = [sys.executable, "-c", CHILD, str(os.getpid()), "serve", str(folder)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, process_group=0) as child:
        assert child.stdout is not None
        try:
            if not (line := child.stdout.readline().decode().strip()):
                raise ConfigError("--serve: the page could not be started (see above)")
            print(line, flush=True)
            yield
        finally:
            child.terminate()


COMMAND = Command(
    name="train",
    group="train",
    summary="start a run and train it to its end",
    usage=("rematch train RECIPE",),
    run=run,
    details="""RECIPE is the name of a recipe (`rematch recipes` lists them), the path of a YAML file, or
        a world for its default settings: its name, or the path of a Python file with a game of your own
        (./my_world.py). The run gets a folder of its own, which holds
        settings, logs, checkpoints, policies, a picture, a film and a report. Ctrl-C saves and stops;
        `rematch resume` continues.

        `rematch train RECIPE --help` shows what the recipe sets and every other setting that has an effect;
        `--help SECTION` one section, `--help all` all settings.""",
    options=(
        Option(name="--name", value="NAME",
               help="folder of the run: runs/NAME, or the path NAME if it contains a slash (default: "
                    "runs/RECIPE-1, -2, ...)"),
        CONFIG,
        MINUTES,
        Option(name="--serve", help="show this run in the browser while it trains; prints the address"),
        NOTIFY,
        Option(name="--from", value="POLICY", completes=RUN,
               help="start with the weights of a policy file or of another run; with --start_iteration N "
                    "its schedules continue there"),
        CLUSTER,
        ACTORS,
    ),
    examples=(
        ("rematch train quick", "the first thing to run: about a minute on two cores"),
        ("rematch train ra1 --seed 3 --name ra1-seed3", "another seed, in the folder runs/ra1-seed3"),
        ("rematch train pursuit --ppo.lr 0.001 --games 512", "change two settings of a recipe"),
        ("rematch train ./my_world.py --total_steps 1000000", "a game of your own, from one file"),
        ("rematch train quick --help ppo", "explain the settings of PPO under this recipe"),
    ),
    arguments=(RECIPE,),
    settings_of=RECIPE,
)
