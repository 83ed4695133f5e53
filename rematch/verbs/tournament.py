"""Matches between named players: scripted players, runs, policy files and user-defined bots."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.player import GreedyOption, Player, SubprocessPlayer
from rematch.core.spec import Spec
from rematch.core.system.progress import PROGRESS
from rematch.core.world import World
from rematch.evaluation.evaluator import evaluate_single_agent
from rematch.evaluation.match import Result, Scoreboard
from rematch.evaluation.round_robin import RoundRobin, is_round_robin, role_standings, standings
from rematch.sweeps.plan import flag_text
from rematch.training.player_lookup import find_player, find_trained, match_rules, trained_players
from rematch.verbs.arguments import MOST_GAMES, world_name
from rematch.verbs.evaluate import (
    SEED_OFFSET,
    Evaluation,
    check_size,
    sequential_board,
    stop_fields,
    stop_rule,
)
from rematch.worlds import registry
from rematch.worlds.game import Game

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rematch.verbs.on_cluster.match_shards import MatchShards


@dataclass(frozen=True, kw_only=True)
class Match:
    """The players, the number of games and the rules."""

    players: Sequence[str]
    against: Sequence[str] = ()  # empty: the players meet each other
    games: int | None = None  # games of every pair; None: the world's default
    seed: int = 0
    greedy: bool = False  # policies take their most likely action
    flags: Sequence[str] = ()  # settings of the world as on a command line: --world.KEY VALUE
    seconds: float = 0.0  # time limit for a move of a user-defined bot; 0: the world's default
    threads: int = 2
    other_rules: bool = False  # policies may play under other rules than those of their training
    until: float | None = None  # stop a match when its score's interval has this half-width
    better_than: float | None = None  # stop a match when its score's interval is on one side of this
    round_robin: bool = False  # pairs meet, also where there are as many players as seats
    elo_until: float | None = None  # stop a round robin when all Elo intervals have this half-width


@dataclass(frozen=True, kw_only=True)
class MatchOptions:
    """Options of `tournament` that are seldom needed."""

    changes: Mapping[str, Any] = field(default_factory=dict)  # settings of the world: {"players": 3}
    move_seconds: float = 0.0  # time limit for a move of a user-defined bot; 0: the world's default
    threads: int = 2
    # Policies may play under other rules than those of their training, where these change neither
    # observations nor actions; the result names them.
    other_rules: bool = False
    # Every pair of three or more players plays until the Elo rating of each is known to that many points,
    # with always-valid intervals, or until `games`.
    until: float | None = None


def tournament(
    world: str,
    players: Sequence[str],
    *,
    against: Sequence[str] = (),
    games: int | None = None,
    seed: int = 0,
    greedy: bool = False,
    options: MatchOptions | None = None,
) -> Evaluation:
    """Play matches in `world` between named players.

    Where seats have different roles, `players` holds one name for each seat, or three names or more: then
    every player of one role meets every one of the other. Otherwise every deal is played
    from every seat: by all players in one game where there are as many names as seats; else every player
    meets every other one, or those of `against`.
    """
    rare = options or MatchOptions()
    flags = [f"--{key}={flag_text(value)}" for key, value in rare.changes.items()]
    several = len(players) > 2 and len(roles_of(world)) == 2  # each role has a ranking of its own
    return play_match(world, Match(players=players, against=against, games=games, seed=seed, greedy=greedy,
                                   flags=flags, seconds=rare.move_seconds, threads=rare.threads,
                                   round_robin=several, other_rules=rare.other_rules, elo_until=rare.until))


def roles_of(world: str) -> list[str]:
    """The roles of a world under its default settings."""
    game = registry.find(registry.typed_name(world_name(world)))
    return list(game.spec(game.Config()).roles)


@dataclass(frozen=True)
class Setup:
    """A match with its world, the rules, the scoreboard and the players."""

    world: str  # its name, or FILE:NAME
    game: Game
    rules: Any
    spec: Spec
    board: Scoreboard
    match: Match
    games: int
    players: dict[str, Player] = field(default_factory=dict)

    @property
    def shared_role(self) -> bool:
        """Whether all seats play one role, so that players can change seats."""
        return len(self.spec.roles) == 1 and self.spec.seats > 1

    @property
    def two_roles(self) -> bool:
        """Whether there are two seats with a role each."""
        return len(self.spec.roles) == self.spec.seats == 2

    def entrants(self) -> dict[str, list[str]]:
        """role -> names of the players that can play it; a run plays both roles."""
        out: dict[str, list[str]] = {role: [] for role in self.spec.roles}
        for name in self.match.players:
            scripted = [role for role, bots in self.game.bots.items() if name.partition(":")[0] in bots]
            trained = None if scripted else find_trained(name, self.world)
            for role in scripted or (trained.players if trained is not None else self.spec.roles):
                out[role].append(name)
        return out


def play_match(world: str, match: Match, shards: MatchShards | None = None) -> Evaluation:
    """As `tournament`, with the settings of the world as flags; `shards` plays the games on a cluster."""
    setup = prepare(world, match)
    if shards is not None:
        setup.board.play_elsewhere = shards.of_match(setup)
    values: dict[str, Any] = {"world": setup.game.name, "settings": settings.tree(setup.rules), "step": 0}
    if match.other_rules:
        values["other_rules"] = different_rules(setup)
    with loaded_players(setup):
        if set_greedy(setup):
            values["play"] = "greedy" if match.greedy else "sampled"
        if setup.spec.seats == 1:  # no opponent: returns instead of scores
            (player,) = setup.players.values()
            role = setup.spec.role_of(0).name
            returns = evaluate_single_agent(setup.board, {role: player}, (setup.games, (), 0))
            return Evaluation(values | {"returns": returns, "table": []})
        rule = stop_rule(match.games, match.until, match.better_than)
        if rule is not None:
            setup = replace(setup, board=sequential_board(setup.board, rule, setup.game))
        if setup.two_roles and match.round_robin:
            values |= role_tournament(setup)
        elif match.elo_until is not None:
            values |= rated_round_robin(setup, match.elo_until)
        elif setup.shared_role:
            values["table"] = tournament_rows(setup)
        else:
            results = setup.board.results(list(setup.players.values()), setup.games, 0)
            values["table"] = [result.row() for result in results]
        if not {"ranking", "role_ranking"} & values.keys() and is_round_robin(values["table"]):
            values["ranking"] = [asdict(entry) for entry in standings(values["table"])]
        of_first = [row for row in values["table"] if row["player"] == values["table"][0]["player"]]
        values |= stop_fields(rule, of_first)
        return Evaluation(values | {"forfeits": forfeits(setup.players.values())})


def prepare(world: str, match: Match) -> Setup:
    """The setup of a match without its players; ConfigError for arguments that cannot be played."""
    check_size(match.games, match.seed)
    world = registry.typed_name(world_name(world))
    game = registry.find(world)
    names = [name.strip() for name in match.players]
    if not names or not all(names):
        raise ConfigError(f"--players = {','.join(names)!r}: expected names, separated by commas")
    match = replace(match, players=names)
    flags = [f"--{flag.removeprefix('--world.')}" if flag.startswith("--world.") else flag
             for flag in match.flags]
    changes = settings.read_flags(flags, game.Config())
    rules = match_rules([*names, *match.against], world, changes, match.other_rules)

    def make(games: int, first: int, key: int) -> World:
        return game.make(rules, games, first, key)

    spec = game.spec(rules)
    board = Scoreboard(make, SEED_OFFSET + match.seed, match.threads, game.random(rules))
    setup = Setup(world, game, rules, spec, board, match, match.games or game.defaults.evaluation_games)
    if match.round_robin and setup.two_roles:
        check_role_tournament(setup)
    elif match.round_robin and len(names) < 3:
        raise ConfigError(f"a tournament needs three players or more, found {', '.join(names)}; two players: "
                          f"rematch eval {setup.game.name} --players A,B")
    elif not setup.shared_role:
        check_seats(setup)
    return setup


def different_rules(setup: Setup) -> list[str]:
    """A sentence for each rule that a policy was not trained with; ConfigError if there is none."""
    match = setup.match
    trained = trained_players([*match.players, *match.against], setup.world)
    sentences = [text for players in trained for text in players.different_rules(setup.rules)]
    if not sentences:
        raise ConfigError("--other-rules has no effect: every policy was trained with the rules of the match")
    return sentences


def check_seats(setup: Setup) -> None:
    """Seats of different roles need one name each."""
    spec, players = setup.spec, setup.match.players
    if len(players) != spec.seats:
        roles = ", ".join(spec.role_of(seat).name for seat in range(spec.seats))
        raise ConfigError(f"--players = {','.join(players)}: expected {spec.seats} names, for {roles}")
    if setup.match.against:
        raise ConfigError(f"--against has no effect with --players: seats of {setup.game.name} have their "
                          "own roles")


@contextmanager
def loaded_players(setup: Setup) -> Iterator[None]:
    """Load the players into `setup.players`; at the end close those that run in processes."""
    match = setup.match
    try:
        for key, name, role in places(setup):
            if key not in setup.players:
                setup.players[key] = find_player(
                    name, setup.world, setup.rules, role, match.seconds, match.other_rules
                )
        yield
    finally:
        for player in setup.players.values():
            if isinstance(player, SubprocessPlayer):
                player.close()


def places(setup: Setup) -> Iterator[tuple[str, str, str]]:
    """(key in `setup.players`, name, role) of every player."""
    match = setup.match
    if setup.two_roles and match.round_robin:
        for role, names in setup.entrants().items():
            yield from ((f"{role} {name}", name, role) for name in names)
        return
    for seat, name in enumerate([*match.players, *match.against]):
        role = setup.spec.role_of(0 if setup.shared_role else seat).name
        yield name if setup.shared_role else f"{seat} {name}", name, role


def set_greedy(setup: Setup) -> list[Any]:
    """The learned players of the match, set to sample or to be greedy."""
    policies = [player for player in setup.players.values() if isinstance(player, GreedyOption)]
    if setup.match.greedy and not policies:
        raise ConfigError("--greedy has no effect: no player of --players is learned")
    for player in policies:
        player.greedy = setup.match.greedy
    return policies


def tournament_rows(setup: Setup) -> list[dict[str, Any]]:
    """A row per player and opponent. With more than two seats the opponent plays all other seats."""
    match, game, seats = setup.match, setup.game, setup.spec.seats
    opponents = list(match.against)
    if len(match.players) == 1 and not opponents:
        (role,) = setup.spec.roles
        opponents = [bot for bot in game.bot_names(role) if bot != match.players[0]]
        if not opponents:
            raise ConfigError(f"{game.name} has no scripted players to play against; expected two names")
        setup.players.update({bot: game.bot(bot, role) for bot in opponents})
    rows = []
    matches = seatings(match.players, opponents, seats, match.round_robin)
    for index, names in PROGRESS.each(list(enumerate(matches))):
        results = setup.board.results([setup.players[name] for name in names], setup.games, index)
        one_table = len(match.players) == seats and not match.round_robin
        all_rows = not opponents and (seats == 2 or one_table)
        rows += [result_row(setup, names, result) for result in (results if all_rows else results[:1])]
    return rows


def rated_round_robin(setup: Setup, until: float) -> dict[str, Any]:
    """Table and ranking of a tournament that plays until all Elo ratings are known to `until` points."""
    names = list(dict.fromkeys(setup.match.players))
    if not 0 < until <= 400:
        raise ConfigError(f"--until = {until:g}: expected Elo points, above 0 and at most 400")
    if len(names) < 3 or setup.match.against or not setup.shared_role or setup.spec.seats != 2:
        raise ConfigError("--until needs three players or more in a game of two seats with the same role")
    players = {name: setup.players[name] for name in names}
    tournament = RoundRobin(setup.board, players, until, setup.match.games or MOST_GAMES)
    results, width = tournament.play()
    table = [result_row(setup, (result.player, result.opponent), result) for result in results]
    ranking = [asdict(entry) for entry in standings(table, width)]
    return {"table": table, "ranking": ranking, "elo_until": until}


def check_role_tournament(setup: Setup) -> None:
    """Every role needs a player, and one of them at least two."""
    match, entrants = setup.match, setup.entrants()
    if match.elo_until is not None:
        raise ConfigError(f"--until: the seats of {setup.game.name} have different roles; expected --games")
    for role, names in entrants.items():
        if not names:
            expected = [*setup.game.bot_names(role), "or a run"]
            raise ConfigError(f"no player of {', '.join(match.players)} plays {role}; expected one of "
                              f"{', '.join(expected)}")
    if sum(map(len, entrants.values())) < 3:
        raise ConfigError("a tournament needs three players or more; two players: rematch eval "
                          f"{setup.game.name} --players A,B")


def role_tournament(setup: Setup) -> dict[str, Any]:
    """Table and rankings of a game of two roles: every player of one role meets every one of the other."""
    first, second = setup.spec.role_of(0).name, setup.spec.role_of(1).name
    entrants = setup.entrants()
    table = []
    pairs = [(one, two) for one in entrants[first] for two in entrants[second]]
    for index, (one, two) in PROGRESS.each(list(enumerate(pairs))):
        players = [setup.players[f"{first} {one}"], setup.players[f"{second} {two}"]]
        results = setup.board.results(players, setup.games, index)
        table += [replace(results[0], player=one, opponent=two).row(),
                  replace(results[1], player=two, opponent=one).row()]
    return {"table": table, **role_standings(table, (first, second)).to_dict()}


def seatings(
    players: Sequence[str], opponents: Sequence[str], seats: int, round_robin: bool = False
) -> list[tuple[str, ...]]:
    """The matches of a tournament: the names of the players by seat."""
    if opponents:
        return [(player, *[other] * (seats - 1)) for player in players for other in opponents]
    if len(players) == seats and not round_robin:
        return [tuple(players)]
    pairs = itertools.combinations(players, 2) if seats == 2 else itertools.permutations(players, 2)
    return [(player, *[other] * (seats - 1)) for player, other in pairs]


def result_row(setup: Setup, names: Sequence[str], result: Result) -> dict[str, Any]:
    """A row of the table, with the best response that was ever measured against this opponent."""
    seats, human = setup.spec.seats, setup.game.human
    if len(set(names[1:])) == 1 and seats > 2:
        result = replace(result, opponent=f"{seats - 1} x {names[1]}")
    row = result.row()
    best_known = human.best_known if human is not None else None
    if best_known is not None and (best := best_known(result.opponent, setup.rules)):
        row["best_known"] = best
    return row


def forfeits(players: Iterable[Player]) -> list[dict[str, Any]]:
    """Players that resigned games because of an error: the number of games, and the first error."""
    out = []
    for player in players:
        if isinstance(player, SubprocessPlayer) and player.errors:
            first = player.errors[min(player.errors, key=lambda at: (at[1:], at[0]))]
            out.append({"player": player.name, "games": len(player.errors), "first": first})
    return out
