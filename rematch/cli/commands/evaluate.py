"""Evaluations on demand: a run's policies against scripted rivals, or scripted players against each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from rematch import api
from rematch.agents import policy_export
from rematch.agents.learners.q_policy import QPlayer
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.world import World
from rematch.evaluation.evaluator import alone, best_scripted, check_rivals, evaluate, set_beside
from rematch.evaluation.match import Scoreboard
from rematch.evaluation.past_policies import card
from rematch.evaluation.player_lookup import entrant, rules_of
from rematch.evaluation.verdict import verdict
from rematch.reporting import match_film, mp4
from rematch.storage import atomic_files
from rematch.storage.run_folder import Run
from rematch.training.best_response import Ask, Frozen, check_ask, exploit, question
from rematch.training.best_response_store import Kept
from rematch.worlds import registry

# Far from training's and its evaluations' streams: nothing was ever selected on these games.
SEED_OFFSET = 1 << 40


def usual_games(module: ModuleType) -> int:
    """Of an evaluation that names no number: a world may have fewer, long ones."""
    games: int = getattr(module, "EPISODES", 1000)
    return games


def deployed(folder: Path, greedy: bool) -> tuple[api.Trained, ModuleType]:
    """A run or a policy's file with its world; its players sample, or are greedy where asked."""
    trained = api.load(folder)
    game, mine = trained.config.game, list(trained.policies)
    missing = [role for role in api.builder(trained.config)(1, 0, 0).spec.roles if role not in mine]
    if missing:
        raise ConfigError(f"{folder} plays {', '.join(mine)} alone, and nobody plays {', '.join(missing)}; "
                          f"expected rematch eval {game} --players with a name for each")
    for policy in trained.policies.values():
        policy.greedy = greedy
    return trained, registry.find(game)


def told_apart(module: ModuleType, games: int, greedy: bool) -> int:
    """How many games of a learnt player tell something: where nothing is left to chance, all are one."""
    return 1 if greedy and not getattr(module, "CHANCE", True) else games


def eval_run(
    folder: Path, against: list[str], games: int | None, seed: int, greedy: bool
) -> dict[str, Any]:
    """A scoreboard row of a run's newest policies, as deployed: sampled, or greedy where asked."""
    trained, module = deployed(folder, greedy)
    games = games or usual_games(module)
    check_rivals(module, against, "--against")
    make = api.builder(trained.config, trained.curriculum)  # strength is told where it was learnt
    spec = make(1, 0, 0).spec
    board = Scoreboard(make, SEED_OFFSET + seed, trained.config.threads)
    row = evaluate(board, module, spec, trained.policies, (told_apart(module, games, greedy), against, 0))
    set_beside(row, best_scripted(board, module, spec, (games, against, 1 << 20)))
    row |= {"run": str(folder), "step": trained.step, "play": "greedy" if greedy else "sampled"}
    if level := trained.curriculum:
        row |= {"level": level.level, "level_name": level.name}
    before = [] if greedy else trained.history  # the run's own evaluations are of sampled play
    row["verdict"] = verdict([*before, row], trained.config.evaluation)
    return row


def check_picture(folder: Path) -> None:
    """Refuse a picture of where policies lose, before anything is played, where nobody knows it exactly."""
    trained, module = deployed(folder, False)
    if not hasattr(module, "exact_picture"):
        raise ConfigError(f"--picture: best responses in {trained.config.game} are not known exactly")


def lost_picture(folder: Path, file: Path, greedy: bool) -> None:
    """Write a picture of the starts that a run's policies lose to exact best responses."""
    trained, module = deployed(folder, greedy)
    file.write_bytes(module.exact_picture(trained.config.world, trained.policies, trained.config.threads))


def exploit_run(
    folder: Path | str, ask: Ask | None = None, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Best responses to a run's newest policies. The run is held only where something has to be stored."""
    folder, ask = Path(folder), ask or Ask()
    trained = api.load(folder)
    frozen = Frozen(config=trained.config, players=trained.policies, iteration=trained.iteration,
                    level=trained.curriculum)
    check_ask(frozen, ask)
    with Run.open(folder, write=False) as run:
        known = Kept(run).result(question(frozen, ask))
    if known is not None:
        return known
    with Run.open(folder, write=True) as run:
        return exploit(frozen, ask, run, tell)


@dataclass(frozen=True, kw_only=True)
class Match:
    """Who plays whom, how often, under which rules."""

    players: Sequence[str]
    against: Sequence[str] = ()  # empty: each other
    games: int | None = None  # of every pairing; None: as the world has it
    seed: int = 0
    greedy: bool = False  # policies take their likeliest move
    flags: Sequence[str] = ()  # settings of the world as on a command line: --world.KEY VALUE
    seconds: float = 0.0  # for a move of a bot of one's own; 0: as the world has it
    threads: int = 2


def eval_world(name: str, match: Match) -> dict[str, Any]:
    """Matches between scripted players, runs, policy files and bots of one's own.

    Where seats have roles of their own: one name per seat. Else a tournament of mirrored deals: one table
    where there are as many names as seats, otherwise everybody meets everybody, or those of `against`.
    """
    module = registry.find(name)
    games = match.games or usual_games(module)
    match = replace(match, players=[who.strip() for who in match.players], games=games)
    if not all(match.players):
        raise ConfigError(f"--players = {','.join(match.players)!r}: expected names, split by commas")
    flags = [f"--{flag[8:]}" if flag.startswith("--world.") else flag for flag in match.flags]
    given = settings.read_flags(flags, module.Config(), prefix="world.")
    rules = rules_of([*match.players, *match.against], name, given)

    def make(count: int, first: int, key: int) -> World:
        world: World = module.make(rules, count, first, key)
        return world

    spec = make(1, 0, 0).spec
    board = Scoreboard(make, SEED_OFFSET + match.seed, match.threads)
    about: dict[str, Any] = {"world": name, "settings": settings.tree(rules), "step": 0}
    together = len(spec.roles) == 1 and spec.seats > 1
    if not together:
        if len(match.players) != spec.seats:
            seats = ", ".join(spec.role_of(seat).name for seat in range(spec.seats))
            said = ",".join(match.players)
            raise ConfigError(f"--players = {said}: expected {spec.seats} names, for {seats}")
        if match.against:
            raise ConfigError(f"--against has no effect with --players: seats of {name} have their own roles")
    seated: dict[str, Player] = {}
    try:
        for seat, who in enumerate([*match.players, *match.against]):
            role = spec.role_of(0 if together else seat).name
            key = who if together else f"{seat} {who}"
            if key not in seated:
                seated[key] = entrant(who, name, rules, role, match.seconds)
        learnt: list[Any] = [player for player in seated.values() if hasattr(player, "greedy")]
        if match.greedy and not learnt:
            raise ConfigError("--greedy has no effect: nobody of --players is learnt")
        for player in learnt:
            player.greedy = match.greedy
        if learnt:
            about["play"] = "greedy" if match.greedy else "sampled"
        if spec.seats == 1:  # nobody to play against: returns instead
            (only,) = seated.values()
            count = told_apart(module, games, match.greedy)
            whole = alone(board, {spec.role_of(0).name: only}, (count, (), 0))
            return about | {"returns": whole, "table": []}
        if together:
            about["table"] = tournament(board, module, rules, seated, match)
        else:
            about["table"] = [row.row() for row in board.results(list(seated.values()), games, 0)]
        return about | {"forfeits": forfeits(seated.values())}
    finally:
        for player in seated.values():
            if hasattr(player, "close"):
                player.close()


def tournament(
    board: Scoreboard, module: ModuleType, rules: Any, seated: dict[str, Player], match: Match
) -> list[dict[str, Any]]:
    """A row per player and opponent. The role has several seats: the opponent sits in all others."""
    seats = board.make(1, 0, 0).spec.seats
    names, rivals = list(match.players), list(match.against)
    if len(names) == 1 and not rivals:
        (role,) = module.BOTS
        rivals = [bot for bot in module.BOTS[role] if bot != names[0]]
        seated |= {bot: module.bot(bot, role) for bot in rivals}
    tables: list[tuple[str, ...]]
    if rivals:
        tables = [(me, *[rival] * (seats - 1)) for me in names for rival in rivals]
    elif len(names) == seats:
        tables = [tuple(names)]
    else:
        pairs = itertools.combinations(names, 2) if seats == 2 else itertools.permutations(names, 2)
        tables = [(me, *[rival] * (seats - 1)) for me, rival in pairs]
    rows = []
    for index, table in enumerate(tables):
        found = board.results([seated[who] for who in table], match.games or usual_games(module), index)
        each = found if not rivals and (seats == 2 or len(names) == seats) else found[:1]
        for result in each:
            if len(set(table[1:])) == 1 and seats > 2:
                result = replace(result, rival=f"{seats - 1} x {table[1]}")
            entry = result.row()
            if hasattr(module, "best_known") and (best := module.best_known(result.rival, rules)):
                entry["best_known"] = best
            rows.append(entry)
    return rows


def forfeits(players: Iterable[Player]) -> list[dict[str, Any]]:
    """Who resigned games because something went wrong: how many, and what first."""
    out = []
    for player in players:
        troubles: dict[tuple[int, int, int], str] = getattr(player, "troubles", {})
        if troubles:
            first = troubles[min(troubles, key=lambda at: (at[1:], at[0]))]
            out.append({"player": player.name, "games": len(troubles), "first": first})
    return out


def film_of(folder: Path, out: Path, seconds: float, seed: int, greedy: bool) -> str:
    """One game of a run's or a file's players, written to `out`; returns its caption."""
    if out.suffix not in (".gif", ".mp4") or not out.parent.is_dir() or out.is_dir():
        raise ConfigError(f"--out = {str(out)!r}: expected a name that ends in .gif or .mp4, in a folder "
                          "that is there")
    if out.suffix == ".mp4" and not mp4.encoder():
        raise ConfigError(mp4.NONE)
    trained, module = deployed(folder, greedy)
    if not hasattr(module, "draw"):
        raise ConfigError(f"{folder}: {trained.config.game} draws no pictures of its games")
    world = api.builder(trained.config, trained.curriculum)(1, 0, SEED_OFFSET + seed)
    pictures, last, caption = match_film.played(world, trained.policies, module.draw, seconds, seed)
    if out.suffix == ".gif":
        data = match_film.gif(pictures, last, match_film.MOST_BYTES)
    else:
        wide, high = (side - side % 2 for side in last.size)  # encoders want even sides
        frames = [*pictures, *[last] * int(match_film.FPS * match_film.HOLD)]
        data, why = mp4.mp4(lambda: (picture.crop((0, 0, wide, high)) for picture in frames), match_film.FPS)
        if not data:
            raise ConfigError(why)
    atomic_files.replace_file(out, data)
    return caption


def export_run(folder: Path, out: Path, with_onnx: bool) -> list[Path]:
    """A run's newest policies as files of their own; the paths that were written."""
    out = out.with_suffix(policy_export.SUFFIX) if out.name and not out.suffix and not out.is_dir() else out
    if out.suffix != policy_export.SUFFIX or not out.parent.is_dir():
        raise ConfigError(
            f"--out = {str(out)!r}: expected a name that ends in {policy_export.SUFFIX}, in a folder "
            "that is there"
        )
    trained = api.load(folder)
    alone = {role: player.policy if isinstance(player, QPlayer) else player
             for role, player in trained.policies.items()}  # fmt: skip
    networks = {role: policy for role, policy in alone.items() if isinstance(policy, Policy)}
    if with_onnx:
        policy_export.check_onnx(networks.values())
    if not networks:
        raise ConfigError(f"{folder}: its players look ahead with the rules; no network plays alone")
    about = {role: card(trained.config, policy, trained.iteration) for role, policy in networks.items()}
    made = policy_export.export(networks, about, out)
    if with_onnx:
        made += [policy_export.onnx(policy, path.with_suffix(".onnx"))
                 for policy, path in zip(networks.values(), list(made))]
    return made
