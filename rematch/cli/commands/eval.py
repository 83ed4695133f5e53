"""rematch eval: matches with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rematch.cli.command import ACTORS, BOTS, CLUSTER, FILE, JSON, PLAYERS, RUN_OR_WORLD, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import MOST_GAMES, MOST_SEED, check_picture_file, folder_of, world_name

if TYPE_CHECKING:
    from rematch.verbs.evaluate import Evaluation


def run(words: Sequence[str]) -> int:
    options = Options.of(COMMAND, words)
    as_json = "--json" in options.values
    with ProgressDisplay(quiet=as_json):
        result = match(options) if "--players" in options.values else evaluate_run(options)
    print_result(result, as_json)
    wanted = "--better-than" in options.values
    return 1 if wanted and not all(entry.get("better", True) for entry in result["table"]) else 0


def evaluate_run(options: Options) -> Evaluation:
    """eval RUN: against the scripted players of its world."""
    from rematch.verbs.evaluate import EvaluationOptions, evaluate
    from rematch.verbs.on_cluster.match_shards import match_shards
    from rematch.worlds import registry

    (name,) = options.positional(1, "rematch eval RUN | rematch eval WORLD --players A,B")
    for option in ("--move-seconds", "--other-rules"):
        if option in options.values:
            raise ConfigError(f"{option} has no effect without --players")
    games, seed, against = match_size(options)
    folder = folder_of(name)
    if world_name(name) in registry.names() and not folder.exists():
        raise ConfigError(f"eval {name}: a world needs --players A,B; expected those, or a run")
    file = options.values.get("--picture")
    if file is not None:
        check_picture_file(file)
    until, better_than = stop_numbers(options)
    rare = EvaluationOptions(until=until, better_than=better_than, picture=file)
    with match_shards(options.cluster()) as shards:
        return evaluate(folder, against=against, games=games, seed=seed, greedy="--greedy" in options.values,
                        options=rare, shards=shards)


def match(options: Options) -> Evaluation:
    """eval WORLD --players A,B: the other words are settings of the world."""
    from rematch.verbs.on_cluster.match_shards import check_players, match_shards
    from rematch.verbs.tournament import Match, play_match

    if not options.remaining or options.remaining[0].startswith("-"):
        raise ConfigError("expected rematch eval WORLD --players A,B [--world.KEY VALUE ...]")
    if "--picture" in options.values:
        raise ConfigError("--picture has no effect with --players: it shows where a run's policies lose")
    games, seed, against = match_size(options)
    limit = options.number("--move-seconds", 0.0, 3600.0) if "--move-seconds" in options.values else 0.0
    until, better_than = stop_numbers(options)
    wanted = Match(players=options.values["--players"].split(","), against=against, games=games, seed=seed,
                   seconds=limit, greedy="--greedy" in options.values, flags=options.remaining[1:],
                   other_rules="--other-rules" in options.values, until=until, better_than=better_than)
    request = options.cluster()
    if request is not None:
        check_players(options.remaining[0], [*wanted.players, *against])
    with match_shards(request) as shards:
        return play_match(options.remaining[0], wanted, shards)


def stop_numbers(options: Options) -> tuple[float | None, float | None]:
    """--until and --better-than; None where they are absent."""
    until = options.number("--until", 0.0, 0.5) if "--until" in options.values else None
    better = options.number("--better-than", 0.0, 1.0) if "--better-than" in options.values else None
    return until, better


def match_size(options: Options) -> tuple[int | None, int, list[str]]:
    """--games (None: the world's default), --seed, --against."""
    games = options.integer("--games", 1, 1, MOST_GAMES) if "--games" in options.values else None
    seed = options.integer("--seed", 0, 0, MOST_SEED)
    names = [name.strip() for name in options.values.get("--against", "").split(",") if name.strip()]
    if "--against" in options.values and not names:
        raise ConfigError(f"--against = {options.values['--against']!r}: expected names, separated by commas")
    return games, seed, names


COMMAND = Command(
    name="eval",
    group="strength",
    summary="play matches; every score comes with n and its 95 % interval",
    usage=("rematch eval RUN", "rematch eval WORLD --players A,B [--world.KEY VALUE ...]"),
    run=run,
    details="""eval RUN plays the newest policies of a run against the scripted players of its world; where
        the world can be solved, it prints the exact NashConv too. RUN may also be the .safetensors file of
        a policy that plays every seat, or an agent that comes with Rematch: @beasty, @small.

        eval WORLD plays named players against each other: scripted players, runs, policy files, or
        module:Class for a bot of your own. Where seats have different roles, give one name for each seat;
        else every pair plays every deal from every seat.

        --until and --better-than stop a match by its results. Their 95 % intervals are always valid
        (confidence sequences): they hold at all numbers of games together, and are wider than those of a
        match with a fixed number of games.""",
    options=(
        Option(name="--players", value="A,B", completes=PLAYERS,
               help="names of the players, separated by commas"),
        Option(name="--against", value="NAMES", help="opponents, separated by commas (default: all)",
               completes=BOTS),
        Option(name="--games", value="N",
               help="games of each match (default: 1000 in most worlds; with --until and --better-than at "
                    "most N, default 100000)"),
        Option(name="--until", value="W",
               help="play each match until the half-width of its score's interval is at most W (0.01)"),
        Option(name="--better-than", value="X",
               help="play each match until its score is shown to be above or below X; exit code 1 unless all "
                    "are above"),
        Option(name="--seed", value="S", help="seed of the games (default 0)"),
        Option(name="--greedy", help="policies take their most likely action instead of sampling"),
        Option(name="--move-seconds", value="S", help="seconds for a move of a bot of your own"),
        Option(name="--other-rules",
               help="policies may play under other rules than those of their training (with --players)"),
        Option(name="--picture", value="FILE", completes=FILE,
               help="PNG file: the start positions that the policies lose (worlds that can be solved)"),
        CLUSTER,
        ACTORS,
        JSON,
    ),
    examples=(
        ("rematch eval quick-1 --games 500", "a run against every scripted player"),
        ("rematch eval pursuit --players quick-1,flee_straight",
         "one match: the pursuer of a run against a scripted evader"),
        ("rematch eval beasty --players @beasty,queue --until 0.01",
         "the agent that comes with Rematch, its score to one percent"),
        ("rematch eval quick-1 --against lion --better-than 0.5", "whether the pursuer and evader win more"),
    ),
    arguments=(RUN_OR_WORLD,),
)
