"""Best responses: policies trained against a run's frozen agents, to measure how exploitable they are.

For every role, responses learn with the run's own learner: some from new weights, some from the incumbent's
weights, and where the rules can be stepped from any position some plan one move ahead
(agents/learners/lookahead.py); each with several seeds. The best is chosen on one set of games and scored on
another, so its score is a lower bound ("at least") of the score of a true best response. A response that
scores less than the incumbent was too weak and shows nothing about the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import hypot
from typing import Any

import numpy as np

from rematch.agents.learners.lookahead import (
    Lookahead,
    LookaheadConfig,
    LookaheadPlayer,
    SuccessorSolver,
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
from rematch.curriculum.levels import LevelProgress, restart_on
from rematch.evaluation.match import Result, Scoreboard
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.seating import RoleSeating
from rematch.storage import atomic_files
from rematch.storage.run_folder import Run
from rematch.training.best_response_store import ResponseStore, response_name
from rematch.worlds import registry
from rematch.worlds.game import Game

FRESH, INCUMBENT, LOOKAHEAD = "fresh", "incumbent", "ahead"  # kinds of responses
SEED_OFFSET = 1 << 41  # random streams that training, its evaluations and `rematch eval` never use
SELECTION, REPORT = 1, 2  # match indices: a response is never reported on the games that selected it
# (factor on the run's learning rate, entropy weight) of responses with even and with odd numbers
RESPONSE_HYPERPARAMS = ((3.0, 0.5), (1.0, 0.1))
CONTINUOUS = 0.1  # factor on the entropy weight for continuous actions: their entropy has no upper bound
EPOCHS = 4  # at least: data against frozen players does not become outdated
LOOKAHEAD_CONFIG = LookaheadConfig(replay_ratio=4.0, explore=0.2)  # as in the recipe `lookahead`
BUDGET = 10_000_000  # steps


@dataclass(frozen=True, kw_only=True)
class ExploitRequest:
    """The size of a search for best responses."""

    budget: int = BUDGET  # steps of all games together, for each response
    seeds: int = 2  # responses of each kind
    games: int = 4000  # per match
    roles: tuple[str, ...] = ()  # roles of the responses; empty: all


@dataclass(frozen=True, kw_only=True)
class FrozenAgents:
    """The newest players of a run, which do not learn any more."""

    config: Config
    players: Mapping[str, Player]
    iteration: int
    level: LevelProgress | None = None  # responses play on the same level

    @property
    def game(self) -> Game:
        return registry.find(self.config.game)

    def make(self, games: int, first: int, seed: int) -> World:
        world: World = self.game.make(self.config.world, games, first, seed)
        if self.level:
            restart_on(world, self.level.present_stage)
        return world

    def identity(self) -> dict[str, Any]:
        """Distinguishes these players from those of other iterations of the run."""
        weights = {role: digest(p.weights) for role, p in self.players.items() if isinstance(p, Policy)}
        level = {"level": self.level.name} if self.level else {}
        return {"iteration": self.iteration, "weights": weights} | level


def response_config(config: Config, budget: int, number: int, spec: Spec) -> Config:
    """The run's settings, changed for one policy that learns against frozen players."""
    ppo = config.ppo
    lr_factor, entropy_weight = RESPONSE_HYPERPARAMS[number % len(RESPONSE_HYPERPARAMS)]
    lr = lr_factor * (ppo.lr or type(ppo)().lr)  # the default where a control run has the rate 0
    discrete = all(role.actions.kind == "discrete" for role in spec.roles.values())
    return settings.replace(settings.untracked(config), {
        "total_steps": budget, "schedule.kind": "simultaneous", "start_iteration": 0,
        "ppo.temperature": 1.0, "ppo.temperature_final": 1.0,
        "ppo.anneal": "linear", "ppo.lr": lr, "ppo.lr_final": min(ppo.lr_final, lr / 10),
        "ppo.entropy_weight": entropy_weight * (1 if discrete else CONTINUOUS),
        "ppo.entropy_weight_final": 0.0,
        "ppo.magnet_weight": 0.0, "ppo.target_kl": 0.0, "ppo.average_fraction": 0.0,
        "ppo.epochs": max(ppo.epochs, EPOCHS),
    })


# --- one response -----------------------------------------------------------------------------------------


class Response:
    """A response in training. It plays from slot 0 of its role; the frozen players have all other seats."""

    def __init__(self, frozen: FrozenAgents, config: Config, role: str, seed: int) -> None:
        self.config, self.role, self.seed = config, role, seed
        self.world = frozen.make(config.games, 0, seed)
        spec = self.world.spec
        self.policy = Policy(spec.roles[role], config.network, f"{role} (response)")
        self.policy.initialise(seed)
        self.learner = Ppo(self.policy, config.ppo, seed, config.threads)
        self.seating: dict[str, RoleSeating] = {}
        self.slot: dict[str, int] = {}  # role -> slot of its frozen player
        for name, player in frozen.players.items():
            policy = self.policy if name == role else Policy(spec.roles[name], config.network, name)
            self.seating[name] = seating = RoleSeating(policy, 2)
            if isinstance(player, Policy) and player.weights.shape == policy.weights.shape:
                seating.place(1, player.weights)
                self.slot[name] = 1
            else:
                seating.others.append(player)
                self.slot[name] = 2
        self.collector = ThreadCollector(self.world, self.seating, config.steps, config.threads, seed)

    def seat(self, iteration: int) -> None:
        """Seat the response: in all seats of its role, or in a random one if the world has one role."""
        world, spec = self.world, self.world.spec
        for name, role_spec in spec.roles.items():
            world.next.slot[:, list(role_spec.seats)] = self.slot[name]
        if len(spec.roles) > 1:
            world.next.slot[:, list(spec.roles[self.role].seats)] = 0
        else:
            uniforms = rng.units(self.seed, rng.SEATING, world.games, iteration)
            world.next.slot[np.arange(world.games), (uniforms * spec.seats).astype(int)] = 0
        if iteration == 0:
            world.slot[:] = world.next.slot  # no game has started yet

    def train(self) -> None:
        for iteration in range(self.config.iterations):
            self.seating[self.role].place(0, self.policy.weights)
            self.seat(iteration)
            rollout = self.collector.collect(iteration)
            self.learner.learn(rollout, iteration / self.config.iterations, iteration)

    @property
    def player(self) -> Player:
        return self.policy


class LookaheadResponse:
    """A response that plans one joint move ahead with the rules and the frozen player's action probabilities.

    `policy` is its value network. In training some of its own moves are random.
    """

    def __init__(self, frozen: FrozenAgents, config: Config, role: str, seed: int) -> None:
        self.config, self.role, self.seed = config, role, seed
        self.world = frozen.make(config.games, 0, seed)
        spec = self.world.spec
        other = next(seat for seat in (0, 1) if spec.role_of(seat).name != role)
        player: Any = frozen.players[spec.role_of(other).name]  # it has `action_probs`: can_look_ahead
        self.policy = Policy(spec.role_of(0), config.network, f"{role} (value)")
        self.policy.initialise(seed)
        solver = SuccessorSolver(frozen.make, spec, self.policy, fixed_opponent=(other, player))
        self.learner = Lookahead(solver, LOOKAHEAD_CONFIG, seed, config.threads)
        self.player = LookaheadPlayer(solver, role)
        self.player.name = f"{role} (response)"
        seating = {name: RoleSeating(self.policy, 0) for name in spec.roles}
        for name, role_seating in seating.items():
            explore = LOOKAHEAD_CONFIG.explore if name == role else 0.0
            role_seating.others.append(LookaheadPlayer(solver, name, explore))
        self.collector = ThreadCollector(self.world, seating, config.steps, config.threads, seed)

    def train(self) -> None:
        self.world.slot[:] = self.world.next.slot[:] = 0
        for iteration in range(self.config.iterations):
            rollout = self.collector.collect(iteration)
            self.learner.learn(rollout, iteration / self.config.iterations, iteration)


def can_look_ahead(frozen: FrozenAgents, role: str) -> bool:
    """Whether lookahead works: two roles, few actions, nothing hidden, opponents with `action_probs`."""
    spec = frozen.make(1, 0, 0).spec
    try:
        check_spec(spec)
        check_network(frozen.config.network)
    except ConfigError:
        return False
    others = [player for name, player in frozen.players.items() if name != role]
    return len(spec.roles) == 2 and all(isinstance(player, StochasticPlayer) for player in others)


def start_kinds(frozen: FrozenAgents, role: str) -> list[str]:
    """The kinds of responses that are possible for a role."""
    incumbent = [INCUMBENT] if isinstance(frozen.players[role], Policy) else []  # only a policy has weights
    return [FRESH, *incumbent, *([LOOKAHEAD] if can_look_ahead(frozen, role) else [])]


# --- the search ---------------------------------------------------------------------------------------------


def request_identity(frozen: FrozenAgents, request: ExploitRequest) -> dict[str, Any]:
    """Everything that the result depends on, as JSON: equal identities have equal results."""
    spec = frozen.make(1, 0, 0).spec
    numbers = range(len(RESPONSE_HYPERPARAMS))
    configs = [response_config(frozen.config, request.budget, number, spec) for number in numbers]
    texts = [settings.to_yaml(settings.replace(config, {"threads": 1})) for config in configs]
    settings_digest = atomic_files.sha256_hex("".join(texts).encode())
    fields = asdict(request) | {"roles": list(request.roles or frozen.players)}
    fields["starts"] = {role: start_kinds(frozen, role) for role in fields["roles"]}
    return {"frozen": frozen.identity(), "settings": settings_digest} | fields


def check_request(frozen: FrozenAgents, request: ExploitRequest) -> None:
    """ConfigError for a request that does not fit the run."""
    spec = frozen.make(1, 0, 0).spec
    if spec.seats == 1:
        raise ConfigError(f"exploit: {frozen.config.game} has one seat: the agent has no opponent")
    for role in request.roles:
        if role not in spec.roles:
            near = settings.nearest(role, list(spec.roles))
            hint = f"; nearest: {near}" if near else ""
            raise ConfigError(f"--role = {role!r}: expected one of {', '.join(spec.roles)}{hint}")


def exploit(
    frozen: FrozenAgents, request: ExploitRequest, run: Run, log: Callable[[str], None]
) -> dict[str, Any]:
    """Train missing responses, select the best, score and store it; returns the entry of exploit.json."""
    store, identity = ResponseStore(run), request_identity(frozen, request)
    board = Scoreboard(frozen.make, SEED_OFFSET + frozen.config.seed, frozen.config.threads)
    spec = frozen.make(1, 0, 0).spec
    config = response_config(frozen.config, request.budget, 0, spec)
    steps = config.iterations * config.games * config.steps  # whole iterations: the budget or a little more
    result: dict[str, Any] = {"question": identity, "steps": steps, "roles": {}}
    for role in identity["roles"]:
        trials = list(responses(frozen, request, store, role, log))
        answer, best = measure(frozen, board, role, request.games, trials)
        result["roles"][role] = answer | exact_scores(frozen, role, best)
    if len(frozen.players) == 2 and len(result["roles"]) == 2:
        bounds = [answer["gain_low"] for answer in result["roles"].values()]
        result["nash_conv_at_least"] = sum(max(0.0, low) for low in bounds)
    store.add_result(result)
    return result


def responses(
    frozen: FrozenAgents, request: ExploitRequest, store: ResponseStore, role: str, log: Callable[[str], None]
) -> Iterator[tuple[dict[str, Any], Any]]:
    """The responses of a role with their descriptions: from the run's folder, or trained now and stored."""
    identity, spec = request_identity(frozen, request), frozen.make(1, 0, 0).spec
    incumbent = frozen.players[role]
    for start in start_kinds(frozen, role):
        for number in range(request.seeds):
            description = {key: identity[key] for key in ("frozen", "settings", "budget")}
            description |= {"role": role, "start": start, "seed": number}
            seed = rng.key(SEED_OFFSET + frozen.config.seed, rng.INIT, 2 * number + (start == FRESH))
            config = response_config(frozen.config, request.budget, number, spec)
            response = (LookaheadResponse if start == LOOKAHEAD else Response)(frozen, config, role, seed)
            name = f"{role} response {start} {number}"
            if store.load(description, response.policy):
                log(f"{name}: already trained")
            else:
                if start == INCUMBENT and isinstance(incumbent, Policy):
                    response.policy.set(incumbent.weights)
                response.train()
                learner = "lookahead" if start == LOOKAHEAD else "ppo"
                store.add(description, response.policy, frozen.config, learner)
                log(f"{name}: {config.iterations * config.games * config.steps:,} steps")
            yield description, response.player


def players_by_seat(spec: Spec, role: str, player: Player, others: Mapping[str, Player]) -> list[Player]:
    """Players by seat: `player` in all seats of its role (the first seat, if there is one role)."""
    player_seats = spec.roles[role].seats if len(spec.roles) > 1 else spec.roles[role].seats[:1]
    return [player if seat in player_seats else others[spec.role_of(seat).name] for seat in range(spec.seats)]


def measure(
    frozen: FrozenAgents, board: Scoreboard, role: str, games: int, trials: list[tuple[dict[str, Any], Any]]
) -> tuple[dict[str, Any], Player]:
    """The best response, selected on one set of games and scored with the incumbent on another."""
    spec = board.make(1, 0, 0).spec

    def score(player: Player, index: int) -> Result:
        players = players_by_seat(spec, role, player, frozen.players)
        return board.results(players, games, index)[spec.roles[role].seats[0]]

    scores = []
    for description, player in trials:
        for play in ("sampled", "greedy"):
            player.greedy = play == "greedy"
            scores.append({"policy": response_name(description), "start": description["start"],
                           "seed": description["seed"], "play": play,
                           "score": score(player, SELECTION).score})
    best = max(range(len(scores)), key=lambda i: scores[i]["score"])
    player = trials[best // 2][1]
    player.greedy = scores[best]["play"] == "greedy"
    response, incumbent = score(player, REPORT), score(frozen.players[role], REPORT)
    answer: dict[str, Any] = {key: scores[best][key] for key in ("policy", "start", "seed", "play")}
    answer |= _rate(response) | {"incumbent": _rate(incumbent), "trials": scores}
    # The distances to the ends of both Wilson intervals add as squares (Zou and Donner 2008).
    gain = response.score - incumbent.score
    (low, high), (incumbent_low, incumbent_high) = response.interval, incumbent.interval
    answer["gain"] = gain
    answer["gain_low"] = gain - hypot(response.score - low, incumbent_high - incumbent.score)
    answer["gain_high"] = gain + hypot(high - response.score, incumbent.score - incumbent_low)
    answer["too_weak"] = gain < 0
    return answer, player


def _rate(result: Result) -> dict[str, Any]:
    low, high = result.interval
    rate = {"score": result.score, "low": low, "high": high, "games": result.games, "draws": result.draws}
    return rate | dict(zip(("win", "win_low", "win_high"), result.won))


def exact_scores(frozen: FrozenAgents, role: str, best: Player) -> dict[str, Any]:
    """In a solvable world: the exact scores of a true best response, of the incumbent and of our response.

    The solver gives scores of the first role: "played" by the pair, "best_ROLE" with ROLE's best response.
    """
    solver = frozen.game.solver
    if solver is None or len(frozen.players) != 2 or frozen.level:  # a solver knows no levels
        return {}
    world, threads = frozen.config.world, frozen.config.threads
    pair = solver.nash_conv(world, frozen.players, threads)
    if f"best_{role}" not in pair or "played" not in pair:
        return {}
    played = solver.nash_conv(world, {**frozen.players, role: best}, threads)["played"]
    scores = (pair[f"best_{role}"], pair["played"], played)
    if role != next(iter(frozen.players)):
        scores = (1 - scores[0], 1 - scores[1], 1 - scores[2])
    optimum, incumbent, response = scores
    share = (response - incumbent) / (optimum - incumbent) if optimum - incumbent > 1e-9 else None
    return {"exact": {"best": optimum, "incumbent": incumbent, "found": response, "share_found": share}}
