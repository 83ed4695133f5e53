"""rematch film: one game as a GIF or MP4 file."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import FILE, RUN, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError
from rematch.core.system.progress import PROGRESS
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import MOST_SEED


def run(words: Sequence[str]) -> int:
    from rematch.verbs.film import LONGEST, SECONDS, SHORTEST, film

    options = Options.of(COMMAND, words)
    (name,) = options.positional(1, "rematch film RUN --out FILE [--seconds S] [--seed S] [--greedy]")
    if "--out" not in options.values:
        raise ConfigError("rematch film RUN needs --out FILE, a name that ends in .gif or .mp4")
    seconds = options.number("--seconds", SHORTEST, LONGEST) if "--seconds" in options.values else SECONDS
    seed = options.integer("--seed", 0, 0, MOST_SEED)
    with ProgressDisplay():
        PROGRESS.report(0.0, "playing and drawing the game")
        result = film(name, options.values["--out"], seconds=seconds, seed=seed,
                      greedy="--greedy" in options.values)
    print_result(result)
    return 0


COMMAND = Command(
    name="film",
    group="runs",
    summary="film one game of a run's players as a GIF or MP4 file",
    usage=("rematch film RUN --out FILE",),
    run=run,
    details="RUN may also be the .safetensors file of a policy that plays every seat, or @beasty or @small.",
    options=(
        Option(name="--out", value="FILE", completes=FILE,
               help="file to write; its name ends in .gif or .mp4"),
        Option(name="--seconds", value="S",
               help="longest film, in seconds; pictures of longer games are left out (default 12)"),
        Option(name="--seed", value="S", help="seed of the game (default 0)"),
        Option(name="--greedy", help="policies take their most likely action instead of sampling"),
    ),
    examples=(("rematch film quick-1 --out game.gif --seed 4", "the game of seed 4"),),
    arguments=(RUN,),
)
