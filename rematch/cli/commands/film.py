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
    from rematch.verbs.replays import GAMES, LONGEST, MOST_GAMES, SECONDS, SHORTEST, GameChoice, film

    options = Options.of(COMMAND, words)
    (name,) = options.positional(1, "rematch film RUN --out FILE [--choose OUTCOME] [--seconds S] [--seed S]")
    values = options.values
    if "--out" not in values:
        raise ConfigError("rematch film RUN needs --out FILE, a name that ends in .gif or .mp4")
    seconds = options.number("--seconds", SHORTEST, LONGEST) if "--seconds" in values else SECONDS
    players = values["--players"].split(",") if "--players" in values else []
    with ProgressDisplay():
        PROGRESS.report(0.0, "playing and drawing the game")
        game = GameChoice(
            players=players, choose=values.get("--choose", ""), greedy="--greedy" in values,
            seed=options.integer("--seed", 0, 0, MOST_SEED),
            games=options.integer("--games", GAMES, 1, MOST_GAMES),
        )
        result = film(name, values["--out"], game, seconds=seconds)
    print_result(result)
    return 0


COMMAND = Command(
    name="film",
    group="runs",
    summary="film one game of a run's players as a GIF or MP4 file",
    usage=("rematch film RUN --out FILE",),
    run=run,
    details="""RUN may also be a .replay file, the .safetensors file of a policy that plays every seat,
        @beasty or @small, or, with --players, the name of a world. Games of turns are shown at one turn a
        second, pursuit and Game Boy games in real time; a game that would last longer than --seconds is
        shown faster.""",
    options=(
        Option(name="--out", value="FILE", completes=FILE,
               help="file to write; its name ends in .gif or .mp4, or in .replay for the game as data"),
        Option(name="--choose", value="OUTCOME",
               help='a game by its outcome: "evader loses", "player 2 wins", drawn, undecided, shortest or '
                    "longest"),
        Option(name="--games", value="N",
               help="with --choose: games that are played until one ends so (default 100)"),
        Option(name="--players", value="A,B", help="other players, one for each seat"),
        Option(name="--seconds", value="S", help="longest film, in seconds (default 60)"),
        Option(name="--seed", value="S", help="seed of the game (default 0)"),
        Option(name="--greedy", help="policies take their most likely action instead of sampling"),
    ),
    examples=(
        ("rematch film quick-1 --out game.gif --seed 4", "the game of seed 4"),
        ('rematch film quick-1 --out lost.mp4 --choose "evader loses"', "a game that the evader loses"),
        ("rematch film beasty --players heuristic,random --out cards.gif", "scripted players"),
    ),
    arguments=(RUN,),
)
