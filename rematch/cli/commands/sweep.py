"""rematch sweep: many seeds and settings, one table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from rematch.cli.command import CLUSTER, CONFIG, JOBS, JSON, MINUTES, RECIPE, Command, Option
from rematch.cli.recipe_options import configured, recipe_words
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import new_folder


def run(words: Sequence[str]) -> int:
    from rematch.sweeps import plan as sweeps

    recipe, options = recipe_words(COMMAND, words)
    if "--seeds" not in options.values:
        raise ConfigError(f"rematch sweep {recipe} needs --seeds; {sweeps.SEEDS}")
    if any(word.partition("=")[0] == "--seed" for word in options.remaining):
        raise ConfigError(f"--seed has no effect in a sweep; {sweeps.SEEDS} as --seeds")
    limits, name = options.limits(), options.values.get("--name")
    folder = sweeps.usual_folder(recipe) if name is None else new_folder(name)
    plan = sweeps.make_plan(folder, recipe, sweeps.read_seeds(options.values["--seeds"]),
                            sweeps.read_grid(options.lists["--grid"]),
                            lambda more: configured(recipe, options, more))
    as_json = "--json" in options.values
    with ProgressDisplay(quiet=as_json) as display:
        result = sweeps.run(plan, limits, display.line, shlex.join(["rematch", "sweep", *words]))
    if as_json:
        print(json.dumps(result, indent=1))
    return 1 if result["failed"] else 0


COMMAND = Command(
    name="sweep",
    group="train",
    summary="train many seeds and settings, and print one table",
    usage=("rematch sweep RECIPE --seeds 0-9",),
    run=run,
    details="""Trains every seed of every combination of the --grid values, each as a process and a run
        folder of its own; with --device cuda one process trains all seeds of a combination. The table
        shows every run, and the interquartile mean over the seeds with its 95 % interval. The
        same command again continues a sweep that was stopped. Exit code 1: a run failed.""",
    options=(
        Option(name="--seeds", value="SEEDS", help="seeds: 0-9, or 1,4,7"),
        Option(name="--grid", value="KEY=A,B", repeated=True,
               help="values of a setting to compare; give it again for another setting"),
        JOBS,
        Option(name="--name", value="NAME", help="folder of the sweep (default: runs/RECIPE-sweep)"),
        CONFIG,
        MINUTES,
        CLUSTER,
        JSON,
    ),
    examples=(
        ("rematch sweep quick --seeds 0-4", "five seeds of one recipe"),
        ("rematch sweep quick --seeds 0-2 --grid ppo.lr=0.001,0.0003",
         "two learning rates, three seeds each"),
        ("rematch status quick-sweep", "the table while it runs, or afterwards"),
    ),
    arguments=(RECIPE,),
    settings_of=RECIPE,
)
