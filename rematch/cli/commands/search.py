"""rematch search: find good settings with Optuna, and confirm them on fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import ACTORS, CLUSTER, CONFIG, JSON, MINUTES, RECIPE, Command, Option
from rematch.cli.output import print_result
from rematch.cli.recipe_options import configured, recipe_words
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import MOST_SEED, new_folder


def run(words: Sequence[str]) -> int:
    from rematch.sweeps import search

    recipe, options = recipe_words(COMMAND, words)
    if any(word.partition("=")[0] == "--seed" for word in options.remaining):
        raise ConfigError("--seed has no effect in a search; --seeds is the number of seeds of each trial, "
                          "--search-seed the seed of the search")
    name = options.values.get("--name")
    usual = search.SearchRequest()
    wanted = search.SearchRequest(
        objective=options.values.get("--objective", usual.objective),
        trials=options.integer("--trials", usual.trials, 1, 10_000),
        seeds=options.integer("--seeds", usual.seeds, 1, 100),
        confirm=options.integer("--confirm", usual.confirm, 0, 100),
        seed=options.integer("--search-seed", usual.seed, 0, MOST_SEED))
    plan = search.make_plan(
        recipe, search.usual_folder(recipe) if name is None else new_folder(name), options.lists["--over"],
        lambda more: configured(recipe, options, more), wanted)
    as_json = "--json" in options.values
    with ProgressDisplay(quiet=as_json) as display:
        result = search.run(plan, options.minutes(), options.cluster())
        if result["stopped"] and not as_json:
            display.line(f"stopped ({result['stopped']}); the same command continues the search")
    print_result(result, as_json)
    return 0


COMMAND = Command(
    name="search",
    group="train",
    summary="find good settings with Optuna, and confirm them on fresh seeds",
    usage=("rematch search RECIPE --over KEY=LOW..HIGH:log",),
    run=run,
    details="""Each trial trains some seeds with settings that Optuna suggests. Trials that are worse than
        the median of the others at an evaluation are stopped there. The best trial is then trained on fresh
        seeds beside the recipe itself, because the best of many looks better than it is: the table says by
        how much it shrank. Every value has its 95 % interval over seeds.

        The same command again continues a search that was stopped or killed; no finished trial is lost.
        Needs Optuna (extra `search`).""",
    options=(
        Option(name="--over", value="KEY=RANGE", repeated=True,
               help="setting to vary: LOW..HIGH, LOW..HIGH:log, or values A,B,C; give it again for another"),
        Option(name="--objective", value="WHAT",
               help="score (against scripted players, the default), nash_conv (worlds that can be solved) "
                    "or steps:X (steps until the score is at least X)"),
        Option(name="--trials", value="N", help="number of trials (default 20)"),
        Option(name="--seeds", value="K", help="seeds of each trial (default 2)"),
        Option(name="--confirm", value="M", help="fresh seeds for the best trial and the recipe (default 3)"),
        Option(name="--search-seed", value="S", help="seed of the suggestions (default 0)"),
        Option(name="--name", value="NAME", help="folder of the search (default: runs/RECIPE-search)"),
        CONFIG,
        MINUTES,
        CLUSTER,
        ACTORS,
        JSON,
    ),
    examples=(
        ("rematch search lattice --over ppo.lr=1e-4..1e-1:log --objective nash_conv --trials 15",
         "the learning rate with the smallest exact NashConv"),
        ("rematch search quick --over ppo.lr=3e-4..1e-2:log --over ppo.epochs=1..6 --objective steps:0.7",
         "two settings, the fewest steps to a score of 0.7"),
    ),
    arguments=(RECIPE,),
    settings_of=RECIPE,
)
