"""Evaluations on demand: a run's policies against scripted rivals, or scripted players against each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rematch import api, worlds
from rematch import config as settings
from rematch.config import ConfigError, nearest
from rematch.engine import shipped
from rematch.engine.evaluate import alone, best_scripted, check_rivals, evaluate, set_beside
from rematch.engine.exploit import Ask, Frozen, check_ask, exploit, question
from rematch.engine.kept import Kept
from rematch.engine.past import card
from rematch.engine.policy import Policy
from rematch.engine.run import Run
from rematch.engine.scoreboard import Scoreboard
from rematch.engine.verdict import verdict
from rematch.spec import Player, World

# Far from training's and its evaluations' streams: nothing was ever selected on these games.
SEED_OFFSET = 1 << 40


def eval_run(folder: Path, against: list[str], games: int, seed: int, greedy: bool) -> dict[str, Any]:
    """A scoreboard row of a run's newest policies, as deployed: sampled, or greedy where asked."""
    trained = api.load(folder)
    module = worlds.find(trained.config.game)
    check_rivals(module, against, "--against")

    def make(count: int, first: int, key: int) -> World:
        world: World = module.make(trained.config.world, count, first, key)
        return world

    spec = make(1, 0, 0).spec
    for policy in trained.policies.values():
        policy.greedy = greedy
    board = Scoreboard(make, SEED_OFFSET + seed, trained.config.threads)
    row = evaluate(board, module, spec, trained.policies, (games, against, 0))
    set_beside(row, best_scripted(board, module, spec, (games, against, 1 << 20)))
    step = trained.history[-1]["step"] if trained.history else 0
    row |= {"run": str(folder), "step": step, "play": "greedy" if greedy else "sampled"}
    before = [] if greedy else trained.history  # the run's own evaluations are of sampled play
    row["verdict"] = verdict([*before, row], trained.config.evaluation)
    return row


def lost_picture(folder: Path, file: Path, greedy: bool) -> None:
    """Write a picture of the starts that a run's policies lose to exact best responses."""
    trained = api.load(folder)
    module = worlds.find(trained.config.game)
    if not hasattr(module, "exact_picture"):
        raise ConfigError(f"--picture: best responses in {trained.config.game} are not known exactly")
    for policy in trained.policies.values():
        policy.greedy = greedy
    file.write_bytes(module.exact_picture(trained.config.world, trained.policies, trained.config.threads))


def exploit_run(
    folder: Path | str, ask: Ask | None = None, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Best responses to a run's newest policies. The run is held only where something has to be stored."""
    folder, ask = Path(folder), ask or Ask()
    trained = api.load(folder)
    frozen = Frozen(config=trained.config, players=trained.policies, iteration=trained.iteration)
    check_ask(frozen, ask)
    with Run.open(folder, write=False) as run:
        known = Kept(run).result(question(frozen, ask))
    if known is not None:
        return known
    with Run.open(folder, write=True) as run:
        return exploit(frozen, ask, run, tell)


def eval_world(name: str, players: list[str], games: int, seed: int) -> dict[str, Any]:
    """A match between scripted players, runs or policies' files (+search[:N]), one name per seat.

    The rules are those that the runs learnt under, which must be the same; the world's defaults without any.
    """
    module = worlds.find(name)
    spec = module.make(module.Config(), 1, 0, 0).spec
    learnt_under: dict[str, Any] = {}
    if len(players) != spec.seats:
        seats = ", ".join(spec.role_of(seat).name for seat in range(spec.seats))
        raise ConfigError(f"--players = {','.join(players)}: expected {spec.seats} names, for {seats}")
    seated: list[Player] = []
    for seat, player in enumerate(players):
        found, rules = seated_player(name, player, spec.role_of(seat).name)
        seated.append(found)
        if rules is not None:
            learnt_under[player] = rules
    config = common_rules(learnt_under) if learnt_under else module.Config()

    def make(count: int, first: int, key: int) -> World:
        world: World = module.make(config, count, first, key)
        return world

    board = Scoreboard(make, SEED_OFFSET + seed, 2)
    about: dict[str, Any] = {"world": name, "settings": settings.tree(config), "step": 0}
    if spec.seats == 1:  # nobody to play against: returns instead
        whole = alone(board, {spec.role_of(0).name: seated[0]}, (games, (), 0))
        return about | {"returns": whole, "table": []}
    rows = board.results(seated, games, 0)
    return about | {"table": [row.row() for row in rows]}


def export_run(folder: Path, out: Path, with_onnx: bool) -> list[Path]:
    """A run's newest policies as files of their own; the paths that were written."""
    out = out.with_suffix(shipped.SUFFIX) if not out.suffix else out
    if out.suffix != shipped.SUFFIX or not out.parent.is_dir():
        raise ConfigError(f"--out = {str(out)!r}: expected a name that ends in {shipped.SUFFIX}, in a folder "
                          "that is there")
    trained = api.load(folder)
    networks = {role: player for role, player in trained.policies.items() if isinstance(player, Policy)}
    if not networks:
        raise ConfigError(f"{folder}: its players look ahead with the rules; no network plays alone")
    about = {role: card(trained.config, policy, trained.iteration) for role, policy in networks.items()}
    made = shipped.export(networks, about, out)
    if with_onnx:
        made += [shipped.onnx(policy, path.with_suffix(".onnx"))
                 for policy, path in zip(networks.values(), list(made))]
    return made


def seated_player(game: str, name: str, role: str) -> tuple[Player, Any]:
    """A player by name, and the rules that it learnt under, where it did: see `eval_world`."""
    module = worlds.find(game)
    if name in module.BOTS[role]:
        return module.bot(name, role), None
    stem, plus, budget = name.partition("+search")
    path = Path(stem)
    if not (path.is_dir() or path.suffix == shipped.SUFFIX):
        path = Path("runs") / stem
    if path.is_dir() or path.is_file():
        trained = api.load(path)
        if trained.config.game != game:
            raise ConfigError(f"--players: {stem} is of {trained.config.game}, not of {game}")
        player = trained.policies[role]
        if not plus:
            return player, trained.config.world
        if not hasattr(module, "guided"):
            raise ConfigError(f"--players: {name}: {game} has no search for a policy to guide")
        return module.guided(player, budget.removeprefix(":")), trained.config.world
    near = nearest(name, module.BOTS[role])
    known = ", ".join(module.BOTS[role])
    raise ConfigError(f"--players: no {role} called {name!r}: expected one of {known}, a run or a policy file"
                      + (f"; nearest: {near}" if near else ""))


def common_rules(learnt_under: dict[str, Any]) -> Any:
    """The world settings that all these runs (name -> its settings) have in common."""
    (first, rules), *others = learnt_under.items()
    for run, other in others:
        for key, _, value in settings.leaves(rules):
            if value != settings.get(other, key):
                raise ConfigError(f"--players: {first} and {run} learnt under other rules: {key} = {value} "
                                  f"and {settings.get(other, key)}; expected the same")
    return rules
