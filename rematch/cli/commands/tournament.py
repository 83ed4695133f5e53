"""rematch tournament: every player meets every other one; a ranking with Elo ratings."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import ACTORS, CLUSTER, JSON, WORLD, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import MOST_GAMES, MOST_SEED

MOST_POINTS = 400.0  # of --until


def run(words: Sequence[str]) -> int:
    from rematch.verbs.on_cluster.match_shards import check_players, match_shards
    from rematch.verbs.tournament import Match, play_match

    options = Options.of(COMMAND, words)
    names, flags = split_words(options.remaining)
    if len(names) < 3:
        raise ConfigError(f"expected {COMMAND.usage[0]} with the names of players, found "
                          f"{' '.join(map(repr, names)) or 'nothing'}; two players: rematch eval WORLD "
                          "--players A,B")
    twice = next((name for name in names[1:] if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice} is given twice; expected each player once")
    until = options.number("--until", 0.0, MOST_POINTS) if "--until" in options.values else None
    games = options.integer("--games", 1, 2, MOST_GAMES) if "--games" in options.values else None
    limit = options.number("--move-seconds", 0.0, 3600.0) if "--move-seconds" in options.values else 0.0
    as_json = "--json" in options.values
    match = Match(players=names[1:], games=games, seed=options.integer("--seed", 0, 0, MOST_SEED),
                  seconds=limit, greedy="--greedy" in options.values, flags=flags,
                  other_rules="--other-rules" in options.values, round_robin=True, elo_until=until)
    request = options.cluster()
    if request is not None:
        check_players(names[0], names[1:])
    with ProgressDisplay(quiet=as_json), match_shards(request) as shards:
        result = play_match(names[0], match, shards)
    print_result(result, as_json)
    return 0


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """WORLD with the players (also separated by commas), and the settings of the world as flags."""
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    names = [name.strip() for word in words[:first] for name in word.split(",") if name.strip()]
    return names, list(words[first:])


COMMAND = Command(
    name="tournament",
    group="strength",
    summary="let every player meet every other one; a ranking with Elo ratings",
    usage=("rematch tournament WORLD PLAYER PLAYER PLAYER...",),
    run=run,
    details="""Players are scripted players, runs, policy files, agents that come with Rematch (@beasty), or
        module:Class for a bot of your own. Every pair plays the same number of games, every deal from every
        seat. Prints the ranking with Elo ratings and their 95 % intervals, and the score of each player
        against each other one. Settings of the world (--world.KEY VALUE) follow the players.

        Where the two seats have different roles (pursuit, lattice), every player of one role meets every
        player of the other; a run plays both. Each role has a ranking of its own.

        With --until the games go on until every rating is known to that many Elo points; these intervals
        are always valid, although the results decide when to stop.""",
    options=(
        Option(name="--games", value="N",
               help="games of each pair (default: 1000 in most worlds; with --until at most N, default "
                    "100000)"),
        Option(name="--until", value="ELO", help="play until every Elo rating is known to +- ELO points"),
        Option(name="--seed", value="S", help="seed of the games (default 0)"),
        Option(name="--greedy", help="policies take their most likely action instead of sampling"),
        Option(name="--move-seconds", value="S", help="seconds for a move of a bot of your own"),
        Option(name="--other-rules",
               help="policies may play under other rules than those of their training"),
        CLUSTER,
        ACTORS,
        JSON,
    ),
    examples=(
        ("rematch tournament beasty @beasty queue random --games 400", "three players, 400 games a pair"),
        ("rematch tournament pursuit my_run lion pure_pursuit flee_straight", "rankings of both roles"),
        ("rematch tournament beasty @beasty queue heuristic my_run --until 20",
         "until every rating is known to 20 Elo points"),
    ),
    arguments=(WORLD,),
)
