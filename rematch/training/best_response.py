"""Best responses: what could still beat a run's agents, found by training against them.

The agents stay frozen. For every role, responses learn by the very engine that trained them: some begin anew,
some from the incumbent's weights, and where the rules can be stepped from any position some look a move ahead
(agents/learners/lookahead.py); each with several seeds. The best is chosen on one set of games and scored on
another, so its score is a lower bound of what a best response reaches: "at least" (DESIGN section 7). One
that does worse than the incumbent was too weak: that says nothing about the agents it failed against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import hypot
from typing import Any

import numpy as np

from rematch.agents.learners.lookahead import (
    Foresight,
    Lookahead,
    LookaheadConfig,
    LookaheadPlayer,
    check_network,
    check_spec,
)
from rematch.agents.learners.ppo import Ppo
from rematch.agents.policy import Policy, digest
from rematch.core import config as settings
from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.core.player import Player, StochasticPlayer
from rematch.core.run_config import Config
from rematch.core.spec import Spec
from rematch.core.world import World
from rematch.curriculum.levels import LevelProgress, begin_on
from rematch.evaluation.match import Result, Scoreboard
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.seating import RoleSeating
from rematch.storage import atomic_files
from rematch.storage.run_folder import Run
from rematch.training.best_response_store import Kept, name_of
from rematch.worlds import registry
from rematch.worlds.game import Game

FRESH, INCUMBENT, AHEAD = "fresh", "incumbent", "ahead"  # how a response begins, and what it is
SEED_OFFSET = 1 << 41  # streams of responses: training, its evaluations and `rematch eval` never use them
CHOOSING, REPORTING = 1, 2  # match indices: no response is reported on games it was chosen on
# Responses of even numbers are bold, those of odd ones careful: how fast they learn, as a multiple of the
# run's own rate, and how much they look around before they settle, as the weight of the entropy.
TEMPERS = ((3.0, 0.5), (1.0, 0.1))
CONTINUOUS = 0.1  # of that weight, for continuous actions: their entropy has no upper end
EPOCHS = 4  # at least: games against players that stand still do not grow stale
FORESIGHT = LookaheadConfig(replay_ratio=4.0,
                            explore=0.2)  # how those learn that look ahead: recipe lookahead
BUDGET = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What to look for."""

    budget: int = BUDGET  # steps of all games together, for each response
    seeds: int = 2  # responses of each kind
    games: int = 4000  # of a match
    roles: tuple[str, ...] = ()  # that respond; empty: all


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A run's newest players as they stand."""

    config: Config
    players: Mapping[str, Player]
    iteration: int
    level: LevelProgress | None = None  # as it stands; responses play on the same level

    @property
    def game(self) -> Game:
        return registry.find(self.config.game)

    def make(self, games: int, first: int, seed: int) -> World:
        world: World = self.game.make(self.config.world, games, first, seed)
        if self.level:
            begin_on(world, self.level.here)
        return world

    def identity(self) -> dict[str, Any]:
        """What tells these players from the run's earlier and later ones."""
        weights = {role: digest(p.weights) for role, p in self.players.items() if isinstance(p, Policy)}
        level = {"level": self.level.name} if self.level else {}
        return {"iteration": self.iteration, "weights": weights} | level


def response_config(config: Config, budget: int, number: int, spec: Spec) -> Config:
    """The run's own settings, for learning alone against players that do not change."""
    ppo = config.ppo
    faster, curious = TEMPERS[number % len(TEMPERS)]
    lr = faster * (ppo.lr or type(ppo)().lr)  # a control that must not learn is exploited by one that does
    discrete = all(role.actions.kind == "discrete" for role in spec.roles.values())
    return settings.replace(settings.untracked(config), {
        "total_steps": budget, "schedule.kind": "simultaneous", "start_iteration": 0,
        "ppo.temperature": 1.0, "ppo.temperature_final": 1.0,
        "ppo.anneal": "linear", "ppo.lr": lr, "ppo.lr_final": min(ppo.lr_final, lr / 10),
        "ppo.entropy_weight": curious * (1 if discrete else CONTINUOUS), "ppo.entropy_weight_final": 0.0,
        "ppo.magnet_weight": 0.0, "ppo.target_kl": 0.0, "ppo.average_fraction": 0.0,
        "ppo.epochs": max(ppo.epochs, EPOCHS),
    })


# --- one response -----------------------------------------------------------------------------------------


class Response:
    """A response in training. It sits in slot 0 of its role; all other seats are the frozen players'."""

    def __init__(self, frozen: Frozen, config: Config, role: str, seed: int) -> None:
        self.config, self.role, self.seed = config, role, seed
        self.world = frozen.make(config.games, 0, seed)
        spec = self.world.spec
        self.policy = Policy(spec.roles[role], config.network, f"{role} (response)")
        self.policy.initialise(seed)
        self.learner = Ppo(self.policy, config.ppo, seed, config.threads)
        self.tables: dict[str, RoleSeating] = {}
        self.slot: dict[str, int] = {}  # where the frozen player of each role sits
        for name, player in frozen.players.items():
            own = self.policy if name == role else Policy(spec.roles[name], config.network, name)
            self.tables[name] = table = RoleSeating(own, 2)
            if isinstance(player, Policy) and player.weights.shape == own.weights.shape:
                table.place(1, player.weights)
                self.slot[name] = 1
            else:
                table.others.append(player)
                self.slot[name] = 2
        self.rollout = ThreadCollector(self.world, self.tables, config.steps, config.threads, seed)

    def seat(self, iteration: int) -> None:
        """The response's seats: all of its role, or any one where the world has no other role."""
        world, spec = self.world, self.world.spec
        for name, about in spec.roles.items():
            world.next.slot[:, list(about.seats)] = self.slot[name]
        if len(spec.roles) > 1:
            world.next.slot[:, list(spec.roles[self.role].seats)] = 0
        else:
            draws = rng.units(self.seed, rng.SEATING, world.games, iteration)
            world.next.slot[np.arange(world.games), (draws * spec.seats).astype(int)] = 0
        if iteration == 0:
            world.slot[:] = world.next.slot  # no game has begun: nobody's opponent changes

    def train(self) -> None:
        for iteration in range(self.config.iterations):
            self.tables[self.role].place(0, self.policy.weights)
            self.seat(iteration)
            tape = self.rollout.collect(iteration)
            self.learner.learn(tape, iteration / self.config.iterations, iteration)

    @property
    def player(self) -> Player:
        return self.policy


class Ahead:
    """A response that knows the rules and what the frozen player would do: it looks one joint move ahead.

    `policy` is its value network. In training some of its moves are drawn at random, the frozen one's never.
    """

    def __init__(self, frozen: Frozen, config: Config, role: str, seed: int) -> None:
        self.config, self.role, self.seed = config, role, seed
        self.world = frozen.make(config.games, 0, seed)
        spec = self.world.spec
        other = next(seat for seat in (0, 1) if spec.role_of(seat).name != role)
        player: Any = frozen.players[spec.role_of(other).name]  # `can_look_ahead` says whether it has chances
        self.policy = Policy(spec.role_of(0), config.network, f"{role} (value)")
        self.policy.initialise(seed)
        foresight = Foresight(frozen.make, spec, self.policy, facing=(other, player))
        self.learner = Lookahead(foresight, FORESIGHT, seed, config.threads)
        self.player = LookaheadPlayer(foresight, role)
        self.player.name = f"{role} (response)"
        tables = {name: RoleSeating(self.policy, 0) for name in spec.roles}
        for name, table in tables.items():
            table.others.append(LookaheadPlayer(foresight, name, FORESIGHT.explore if name == role else 0.0))
        self.rollout = ThreadCollector(self.world, tables, config.steps, config.threads, seed)

    def train(self) -> None:
        self.world.slot[:] = self.world.next.slot[:] = 0
        for iteration in range(self.config.iterations):
            tape = self.rollout.collect(iteration)
            self.learner.learn(tape, iteration / self.config.iterations, iteration)


def can_look_ahead(frozen: Frozen, role: str) -> bool:
    """Whether responses of this role can look ahead: two roles, few actions, nothing hidden, open chances."""
    spec = frozen.make(1, 0, 0).spec
    try:
        check_spec(spec)
        check_network(frozen.config.network)
    except ConfigError:
        return False
    others = [player for name, player in frozen.players.items() if name != role]
    return len(spec.roles) == 2 and all(isinstance(player, StochasticPlayer) for player in others)


def starts(frozen: Frozen, role: str) -> list[str]:
    """The kinds of response that there can be."""
    incumbent = [INCUMBENT] if isinstance(frozen.players[role], Policy) else []  # else it has no weights
    return [FRESH, *incumbent, *([AHEAD] if can_look_ahead(frozen, role) else [])]


# --- the search ---------------------------------------------------------------------------------------------


def question(frozen: Frozen, ask: Ask) -> dict[str, Any]:
    """Everything that the answer depends on, as JSON."""
    spec = frozen.make(1, 0, 0).spec
    configs = [response_config(frozen.config, ask.budget, i, spec) for i in range(len(TEMPERS))]
    texts = [settings.to_yaml(settings.replace(config, {"threads": 1})) for config in configs]
    learning = atomic_files.sha256_hex("".join(texts).encode())
    asked = asdict(ask) | {"roles": list(ask.roles or frozen.players)}
    asked["starts"] = {role: starts(frozen, role) for role in asked["roles"]}
    return {"frozen": frozen.identity(), "settings": learning} | asked


def check_ask(frozen: Frozen, ask: Ask) -> None:
    """Refuse what cannot be asked."""
    spec = frozen.make(1, 0, 0).spec
    if spec.seats == 1:
        raise ConfigError(f"exploit: {frozen.config.game} has one seat: nobody plays against the agent")
    for role in ask.roles:
        if role not in spec.roles:
            near = settings.nearest(role, list(spec.roles))
            raise ConfigError(f"--role = {role!r}: expected one of {', '.join(spec.roles)}"
                              + (f"; nearest: {near}" if near else ""))


def exploit(frozen: Frozen, ask: Ask, run: Run, tell: Callable[[str], None]) -> dict[str, Any]:
    """Train the responses that are missing, choose, measure, store; the result as it lies in exploit.json."""
    kept, asked = Kept(run), question(frozen, ask)
    board = Scoreboard(frozen.make, SEED_OFFSET + frozen.config.seed, frozen.config.threads)
    spec = frozen.make(1, 0, 0).spec
    learns = response_config(frozen.config, ask.budget, 0, spec)
    steps = learns.iterations * learns.games * learns.steps  # whole iterations: the budget or a little more
    result: dict[str, Any] = {"question": asked, "steps": steps, "roles": {}}
    for role in asked["roles"]:
        trials = list(responses(frozen, ask, kept, role, tell))
        answer, best = measure(frozen, board, role, ask.games, trials)
        result["roles"][role] = answer | exactly(frozen, role, best)
    if len(frozen.players) == 2 and len(result["roles"]) == 2:
        surely = [answer["gain_low"] for answer in result["roles"].values()]
        result["nash_conv_at_least"] = sum(max(0.0, low) for low in surely)
    kept.report(result)
    return result


def responses(
    frozen: Frozen, ask: Ask, kept: Kept, role: str, tell: Callable[[str], None]
) -> Iterator[tuple[dict[str, Any], Any]]:
    """The responses of a role, each with what it is: from the run's folder, or trained now and put there."""
    asked, spec = question(frozen, ask), frozen.make(1, 0, 0).spec
    incumbent = frozen.players[role]
    for start in starts(frozen, role):
        for number in range(ask.seeds):
            about = {key: asked[key] for key in ("frozen", "settings", "budget")}
            about |= {"role": role, "start": start, "seed": number}
            seed = rng.key(SEED_OFFSET + frozen.config.seed, rng.INIT, 2 * number + (start == FRESH))
            config = response_config(frozen.config, ask.budget, number, spec)
            response = (Ahead if start == AHEAD else Response)(frozen, config, role, seed)
            what = f"{role} response {start} {number}"
            if kept.load(about, response.policy):
                tell(f"{what}: kept from before")
            else:
                if start == INCUMBENT and isinstance(incumbent, Policy):
                    response.policy.set(incumbent.weights)
                response.train()
                learner = "lookahead" if start == AHEAD else "ppo"
                kept.keep(about, response.policy, frozen.config, learner)
                tell(f"{what}: {config.iterations * config.games * config.steps:,} steps")
            yield about, response.player


def seated(spec: Spec, role: str, mine: Player, others: Mapping[str, Player]) -> list[Player]:
    """Players by seat: `mine` wherever its role sits (the first seat, if there is one role)."""
    places = spec.roles[role].seats if len(spec.roles) > 1 else spec.roles[role].seats[:1]
    return [mine if seat in places else others[spec.role_of(seat).name] for seat in range(spec.seats)]


def measure(
    frozen: Frozen, board: Scoreboard, role: str, games: int, trials: list[tuple[dict[str, Any], Any]]
) -> tuple[dict[str, Any], Player]:
    """The best of the responses, chosen on one set of games and scored on another beside the incumbent."""
    spec = board.make(1, 0, 0).spec

    def score(player: Player, index: int) -> Result:
        players = seated(spec, role, player, frozen.players)
        return board.results(players, games, index)[spec.roles[role].seats[0]]

    tried = []
    for about, player in trials:
        for play in ("sampled", "greedy"):
            player.greedy = play == "greedy"
            tried.append({"policy": name_of(about), "start": about["start"], "seed": about["seed"],
                          "play": play, "score": score(player, CHOOSING).score})
    best = max(range(len(tried)), key=lambda i: tried[i]["score"])
    player = trials[best // 2][1]
    player.greedy = tried[best]["play"] == "greedy"
    ours, theirs = score(player, REPORTING), score(frozen.players[role], REPORTING)
    answer: dict[str, Any] = {key: tried[best][key] for key in ("policy", "start", "seed", "play")}
    answer |= _rate(ours) | {"incumbent": _rate(theirs), "trials": tried}
    # The distances to the ends of both Wilson intervals add as squares (Zou and Donner 2008).
    gain, (low, high), (under, over) = ours.score - theirs.score, ours.interval, theirs.interval
    answer["gain"] = gain
    answer["gain_low"] = gain - hypot(ours.score - low, over - theirs.score)
    answer["gain_high"] = gain + hypot(high - ours.score, theirs.score - under)
    answer["too_weak"] = gain < 0
    return answer, player


def _rate(result: Result) -> dict[str, Any]:
    low, high = result.interval
    rate = {"score": result.score, "low": low, "high": high, "games": result.games, "draws": result.draws}
    return rate | dict(zip(("win", "win_low", "win_high"), result.won))


def exactly(frozen: Frozen, role: str, best: Player) -> dict[str, Any]:
    """Where the world can tell: what an exact best response scores, what the incumbent and ours do.

    `exact` gives the first role's score: "played" by the pair, "best_ROLE" with the best response of ROLE.
    """
    solver = frozen.game.solver
    if solver is None or len(frozen.players) != 2 or frozen.level:  # exact answers are of the whole game
        return {}
    world, threads = frozen.config.world, frozen.config.threads
    pair = solver.nash_conv(world, frozen.players, threads)
    if f"best_{role}" not in pair or "played" not in pair:
        return {}
    ours = solver.nash_conv(world, {**frozen.players, role: best}, threads)["played"]
    first = role == next(iter(frozen.players))
    value, own, found = (x if first else 1 - x for x in (pair[f"best_{role}"], pair["played"], ours))
    share = (found - own) / (value - own) if value - own > 1e-9 else None
    return {"exact": {"best": value, "incumbent": own, "found": found, "share_found": share}}
