"""rematch replay: recorded games as data."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import FILE, JSON, RUN, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import MOST_SEED


def run(words: Sequence[str]) -> int:
    from rematch.verbs.replays import GAMES, LONGEST, MOST_GAMES, SECONDS, SHORTEST, GameChoice, replay

    options = Options.of(COMMAND, words)
    (source,) = options.positional(1, "rematch replay FILE|RUN [--out FILE] [--choose OUTCOME] [--verify]")
    values, as_json = options.values, "--json" in options.values
    players = values["--players"].split(",") if "--players" in values else []
    if not players and (extra := [name for name in ("--seed", "--games") if name in values]):
        raise ConfigError(f"{extra[0]} has no effect without --players: stored games are not played again")
    seconds = options.number("--seconds", SHORTEST, LONGEST) if "--seconds" in values else SECONDS
    game = GameChoice(
        players=players, choose=values.get("--choose", ""), seed=options.integer("--seed", 0, 0, MOST_SEED),
        games=options.integer("--games", GAMES, 1, MOST_GAMES),
    )  # fmt: skip
    with ProgressDisplay(quiet=as_json) as display:
        result = replay(source, game, out=values.get("--out"), verify="--verify" in values, seconds=seconds,
                        log=(lambda line: None) if as_json else display.line)
    print_result(result, as_json)
    return 0


COMMAND = Command(
    name="replay",
    group="runs",
    summary="list, verify or film the recorded games of a run or of a .replay file",
    usage=("rematch replay FILE", "rematch replay RUN"),
    run=run,
    details="""A replay is data: start state, actions, players and result. A run stores one game of every
        evaluation (--replays.games). The rules are stepped again to show a game, so the file is small and the
        film can be made at any time.

        --players plays a new game under the rules of the run: scripted players, runs, RUN@ITERATION for
        policies of an earlier iteration, and policy files. RUN may then also be the name of a world.

        --verify steps through every game and compares all states with the recorded ones, byte by byte.""",
    options=(
        Option(name="--out", value="FILE", completes=FILE,
               help="write one game, the newest or the chosen one: as a film (.gif, .mp4) or as data "
                    "(.replay)"),
        Option(name="--choose", value="OUTCOME",
               help='a game by its outcome: "evader loses", "player 2 wins", drawn, undecided, shortest or '
                    "longest"),
        Option(name="--verify",
               help="step through the games again and compare all states; exit code 2 where one differs"),
        Option(name="--players", value="A,B",
               help="play a new game between these players, one for each seat"),
        Option(name="--games", value="N",
               help="with --players and --choose: games that are played until one ends so (default 100)"),
        Option(name="--seed", value="S", help="with --players: seed of the games (default 0)"),
        Option(name="--seconds", value="S", help="longest film, in seconds; longer games are shown faster "
                                                 "(default 60)"),
        JSON,
    ),
    examples=(
        ("rematch replay quick-1", "the stored games of a run"),
        ('rematch replay quick-1 --choose "evader loses" --out lost.mp4', "the newest that the evader loses"),
        ("rematch replay quick-1 --players quick-1@16,quick-1 --out g.replay", "an earlier pursuer, as data"),
        ("rematch replay g.replay --verify", "the same states to the byte"),
    ),
    arguments=(RUN,),
)
