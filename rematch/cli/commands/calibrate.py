"""rematch calibrate: the value of a setting at which the game is even."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from typing import Any

from rematch.cli.command import CLUSTER, CONFIG, JOBS, JSON, MINUTES, RECIPE, ROLES, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_lines, print_result
from rematch.cli.recipe_options import configured, recipe_words
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import new_folder


def run(words: Sequence[str]) -> int:
    from rematch.sweeps import calibration
    from rematch.sweeps.plan import read_seeds
    from rematch.verbs.calibrate import CalibrationResult, make_request

    recipe, options = recipe_words(COMMAND, words)
    if "--by" not in options.values:
        raise ConfigError(f"rematch calibrate {recipe} needs --by KEY, the setting to calibrate, for example "
                          "--by world.evader_v_max")
    wanted: dict[str, Any] = {"by": options.values["--by"], "role": options.values.get("--role")}
    wanted["range"] = read_range(options)
    for option, most in (("target", 1.0), ("tolerance", math.inf)):
        if f"--{option}" in options.values:
            wanted[option] = options.number(f"--{option}", 0.0, most)
    if "--rounds" in options.values:
        wanted["rounds"] = options.integer("--rounds", 8, 0, calibration.MOST_ROUNDS)
    if "--seeds" in options.values:
        wanted["seeds"] = read_seeds(options.values["--seeds"])
    limits, name = options.limits(), options.values.get("--name")
    request = make_request(configured(recipe, options), recipe, wanted)
    folder = calibration.usual_folder(recipe, request.key) if name is None else new_folder(name)
    as_json = "--json" in options.values
    with ProgressDisplay(quiet=as_json) as display:
        result = calibration.calibrate(
            request, folder, lambda more: configured(recipe, options, more), limits, display.line)
    if as_json:
        print(json.dumps(result, indent=1))
    else:
        print_result(CalibrationResult(result))
        if result["stopped"]:
            print_lines([f"stopped ({result['stopped']}); continue with: "
                         + shlex.join(["rematch", "calibrate", *words])])
    return 0 if result["value"] is not None and not result["failed"] else 1


def read_range(options: Options) -> tuple[float, float] | None:
    """--range LOW,HIGH; None where it is not given."""
    if "--range" not in options.values:
        return None
    text = options.values["--range"]
    try:
        low, high = (float(word) for word in text.split(","))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError
    except ValueError:
        raise ConfigError(f"--range = {text!r}: expected LOW,HIGH, two numbers") from None
    return low, high


COMMAND = Command(
    name="calibrate",
    group="strength",
    summary="find the value of a setting at which the game is even",
    usage=("rematch calibrate RECIPE --by KEY",),
    run=run,
    details="""Trains runs of the recipe at both ends of a range of the setting, then at values in between, by
        bisection, several seeds each. Prints the win rate at every value with its interval over the seeds,
        and the value at which the role wins the target fraction of its games, with an interval and the cost.
        Every run lies in a folder of its own; the same command again continues. Exit code 1: the range does
        not contain the target, or a run failed.""",
    options=(
        Option(name="--by", value="KEY", help="the numeric setting to calibrate, such as world.evader_v_max"),
        Option(name="--target", value="P", help="wanted win rate, a fraction of games (default 0.5)"),
        Option(name="--role", value="ROLE", completes=ROLES,
               help="role whose win rate is meant (default: the first role of the world)"),
        Option(name="--range", value="LOW,HIGH",
               help="range of the setting (default: half to twice its value in the recipe)"),
        Option(name="--seeds", value="SEEDS", help="seeds of every value: 0-9, or 1,4,7 (default 0-2)"),
        Option(name="--tolerance", value="W",
               help="stop when the bracket is at most this wide, in units of the setting (default: 1 % of "
                    "the range)"),
        Option(name="--rounds", value="N", help="values tried inside the range, at most (default 8)"),
        JOBS,
        Option(name="--name", value="NAME", help="folder (default: runs/RECIPE-calibrate-KEY)"),
        CONFIG,
        MINUTES,
        CLUSTER,
        JSON,
    ),
    examples=(
        ("rematch calibrate ra1 --by world.evader_v_max --range 0.9,1.15 --total_steps 4000000",
         "the evader's speed at which both roles win half of the games"),
        ("rematch calibrate quick --by world.capture_radius --target 0.7 --seeds 0-4",
         "another target, five seeds"),
    ),
    arguments=(RECIPE,),
    settings_of=RECIPE,
)
