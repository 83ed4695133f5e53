"""rematch diff: two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import BOTS, JSON, RUN, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import MOST_GAMES, MOST_SEED


def run(words: Sequence[str]) -> int:
    from rematch.verbs.exact_runs.diff import diff

    options = Options.of(COMMAND, words)
    first, second = options.positional(2, COMMAND.usage[0])
    games = options.integer("--games", 1, 2, MOST_GAMES) if "--games" in options.values else None
    against = [name.strip() for name in options.values.get("--against", "").split(",") if name.strip()]
    if "--against" in options.values and not against:
        raise ConfigError(f"--against = {options.values['--against']!r}: expected names, separated by commas")
    as_json = "--json" in options.values
    with ProgressDisplay(quiet=as_json):
        result = diff(first, second, games=games, against=against,
                      seed=options.integer("--seed", 0, 0, MOST_SEED))
    print_result(result, as_json)
    return 0


COMMAND = Command(
    name="diff",
    group="strength",
    summary="compare two runs: settings, metrics, and their agents in the same games",
    usage=("rematch diff A B",),
    run=run,
    details="""A and B are runs of one world, RUN@ITERATION for policies of an earlier iteration, or policy
        files. Prints the settings that differ, the newest evaluations, the mean of the last metrics, and up
        to which iteration both runs are equal to the bit.

        Then the agents of both play the same games, with the same deals, start positions and random
        numbers, against every scripted player and against the agents of both runs. Each difference has its
        number of games and its 95 % interval.""",
    options=(
        Option(name="--games", value="N", help="games for each opponent (default: 1000 in most worlds)"),
        Option(name="--against", value="NAMES", completes=BOTS,
               help="scripted players, separated by commas (default: all)"),
        Option(name="--seed", value="S", help="seed of the games (default 0)"),
        JSON,
    ),
    examples=(
        ("rematch diff quick-1 quick-1-fork-1", "a run and its fork"),
        ("rematch diff quick-1@100 quick-1 --games 2000", "what a run has learned since iteration 100"),
    ),
    arguments=(RUN, RUN),
)
