"""Best responses: policies trained against a run's frozen agents, to measure how exploitable they are.

For every role, responses learn with PPO: some from new weights, some from the incumbent's weights. Where the
rules can be stepped from any position, some plan one move ahead (agents/learners/lookahead.py); elsewhere
some start from a new training by self-play. Each kind has several seeds (training/response_training.py).
The best of them and of the incumbent itself is chosen on one set of games and scored on another, so its score
is a lower bound ("at least") of the score of a true best response. Where no fresh response reaches the
incumbent's score, the responses were too weak: a gain of 0 then shows nothing about the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from functools import partial
from math import hypot
from typing import Any

from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core import rng
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.spec import Spec
from rematch.core.system.progress import PROGRESS
from rematch.evaluation.match import Result, Scoreboard
from rematch.storage import atomic_files
from rematch.storage.run_folder import Run
from rematch.training.best_response_store import ResponseStore, response_name
from rematch.training.response_training import (
    FRESH,
    INCUMBENT,
    KINDS,
    LOOKAHEAD,
    SELF_PLAY,
    Course,
    FrozenAgents,
    LookaheadResponse,
    Response,
    search_config,
    self_play,
    self_play_config,
    start_kinds,
)

SEED_OFFSET = 1 << 41  # random streams that training, its evaluations and `rematch eval` never use
# match indices: a response is never reported on the games that selected it or its checkpoint
SELECTION, REPORT, CHECKPOINT = 1, 2, 3
CHECKPOINT_GAMES = 1000  # of a match that measures a checkpoint, at most
MIN_SHARE = 0.95  # of the incumbent's score: a fresh response below it was too weak to find weaknesses
PLAYS = ("sampled", "greedy")
UNTRAINED = "untrained"  # the incumbent itself as a candidate
BUDGET = 10_000_000  # steps
SELF_PLAY_BUDGETS = 10  # with the default budget as many steps as the recipe `pursuit`
METHOD = 4  # version of the training; stored responses of another version are trained again


Candidate = tuple[dict[str, Any], Any]  # an entry of "trials" in the result, and its player


@dataclass(frozen=True, kw_only=True)
class ExploitRequest:
    """The size of a search for best responses."""

    budget: int = BUDGET  # steps of all games together, for each response; at most
    self_play: int = -1  # steps of a training by self-play, at most; 0: none; -1: SELF_PLAY_BUDGETS budgets
    seeds: int = 2  # responses of each kind
    games: int = 4000  # per match
    roles: tuple[str, ...] = ()  # roles of the responses; empty: all

    @property
    def self_play_steps(self) -> int:
        return SELF_PLAY_BUDGETS * self.budget if self.self_play < 0 else self.self_play


@dataclass(frozen=True)
class ResponseKey:
    """One response of a request."""

    role: str
    start: str  # FRESH, INCUMBENT, SELF_PLAY or LOOKAHEAD
    number: int

    @property
    def name(self) -> str:
        return f"{self.role} response {self.start} {self.number}"


# Trains responses elsewhere: (keys of those that are missing) -> (key) -> its policy's weights and its steps.
TrainOne = Callable[[ResponseKey], tuple[Floats, int]]
TrainElsewhere = Callable[[Sequence[ResponseKey]], TrainOne]


# --- the search ---------------------------------------------------------------------------------------------


def request_identity(frozen: FrozenAgents, request: ExploitRequest) -> dict[str, Any]:
    """Everything that the result depends on, as JSON: equal identities have equal results."""
    spec = frozen.make(1, 0, 0).spec
    configs = [search_config(frozen.config, request.budget, (start, number), spec)
               for start in (FRESH, INCUMBENT, SELF_PLAY) for number in range(KINDS)]
    texts = [settings.to_yaml(settings.replace(config, {"threads": 1})) for config in configs]
    settings_digest = atomic_files.sha256_hex("".join([f"method {METHOD}", *texts]).encode())
    fields = asdict(request) | {"roles": list(request.roles or frozen.players)}
    fields["self_play"] = request.self_play_steps
    left_out = () if request.self_play_steps else (SELF_PLAY,)
    fields["starts"] = {role: [kind for kind in start_kinds(frozen, role) if kind not in left_out]
                        for role in fields["roles"]}
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
    frozen: FrozenAgents, request: ExploitRequest, run: Run, log: Callable[[str], None],
    elsewhere: TrainElsewhere | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train missing responses, select the best, score and store it; returns the entry of exploit.json.

    `elsewhere` trains responses in other processes, several at a time, to the same bits.
    """
    store, identity = ResponseStore(run), request_identity(frozen, request)
    train: TrainOne = partial(train_response, frozen, request)
    if elsewhere is not None:
        train = elsewhere(missing_responses(frozen, request, store))
    board = Scoreboard(frozen.make, SEED_OFFSET + frozen.config.seed, frozen.config.threads)
    spec = frozen.make(1, 0, 0).spec
    config = search_config(frozen.config, request.budget, (FRESH, 0), spec)
    steps = config.iterations * config.games * config.steps  # whole iterations: the budget or a little more
    result: dict[str, Any] = {"question": identity, "steps": steps, "roles": {}}
    for role in PROGRESS.each(identity["roles"]):
        with PROGRESS.part(0.0, 0.9):
            candidates = list(responses(frozen, request, store, role, (train, log)))
        with PROGRESS.part(0.9, 1.0):
            answer, best = measure(frozen, board, role, request.games, candidates)
        result["roles"][role] = answer | exact_scores(frozen, role, best)
    if len(frozen.players) == 2 and len(result["roles"]) == 2:
        bounds = [answer["gain_low"] for answer in result["roles"].values()]
        result["nash_conv_at_least"] = sum(max(0.0, low) for low in bounds)
    store.add_result(result)
    return result


def responses(
    frozen: FrozenAgents, request: ExploitRequest, store: ResponseStore, role: str, calls: tuple[Any, Any]
) -> Iterator[Candidate]:
    """The candidates of a role with their entries in the result: the incumbent, then all responses.

    Responses are read from the run's folder, or trained now and stored. calls: the function that trains one,
    and the log.
    """
    train, log = calls
    identity = request_identity(frozen, request)
    # A copy: greedy play of the candidate must not change the frozen player.
    yield {"policy": "", "start": UNTRAINED, "seed": 0, "steps": 0}, copy(frozen.players[role])
    for start in PROGRESS.each(identity["starts"][role]):
        for number in PROGRESS.each(range(request.seeds)):
            key = ResponseKey(role, start, number)
            description, response = describe(identity, key), new_response(frozen, request, key)
            PROGRESS.report(0.0, key.name)
            steps = store.load(description, response.policy)
            if steps is not None:
                log(f"{key.name}: already trained")
            else:
                weights, steps = train(key)
                response.policy.set(weights)
                learner = "lookahead" if start == LOOKAHEAD else "ppo"
                store.add(description, response.policy, frozen.config, {"learner": learner, "steps": steps})
                log(f"{key.name}: {steps:,} steps")
            entry = {"policy": response_name(description), "start": start, "seed": number, "steps": steps}
            yield entry, response.player


def describe(identity: Mapping[str, Any], key: ResponseKey) -> dict[str, Any]:
    """The description under which a response is stored; identity: that of its request."""
    names = ("frozen", "settings", "budget", *(["self_play"] if key.start == SELF_PLAY else []))
    common = {name: identity[name] for name in names}
    return common | {"role": key.role, "start": key.start, "seed": key.number}


def missing_responses(
    frozen: FrozenAgents, request: ExploitRequest, store: ResponseStore
) -> list[ResponseKey]:
    """The responses of a request that the run does not have, in the order in which they are needed."""
    identity = request_identity(frozen, request)
    keys = [ResponseKey(role, start, number) for role in identity["roles"]
            for start in identity["starts"][role] for number in range(request.seeds)]
    return [key for key in keys
            if store.load(describe(identity, key), new_response(frozen, request, key).policy) is None]


def new_response(frozen: FrozenAgents, request: ExploitRequest, key: ResponseKey) -> Any:
    """An untrained response: Response or LookaheadResponse."""
    seed = rng.key(SEED_OFFSET + frozen.config.seed, rng.INIT, 2 * key.number + (key.start == FRESH))
    config = search_config(frozen.config, request.budget, (key.start, key.number), frozen.make(1, 0, 0).spec)
    if key.start == LOOKAHEAD:
        return LookaheadResponse(frozen, config, key.role, seed)
    course = Course.of(frozen, config, key.role) if key.start == FRESH else None
    return Response(frozen, config, key.role, seed, course)


def train_response(
    frozen: FrozenAgents, request: ExploitRequest, key: ResponseKey,
    before_step: Callable[[], None] = lambda: None,
) -> tuple[Floats, int]:  # fmt: skip
    """The weights of a trained response, and its steps; `before_step` is called before each step."""
    board = Scoreboard(frozen.make, SEED_OFFSET + frozen.config.seed, frozen.config.threads)
    games, incumbent = min(request.games, CHECKPOINT_GAMES), frozen.players[key.role]
    response = new_response(frozen, request, key)
    response.collector.before_step = before_step

    def score(player: Any) -> float:
        """The better score of sampled and greedy play."""
        with PROGRESS.shown_by(None):
            return max(_play(frozen, board, key.role, player, (play, games, CHECKPOINT)).score
                       for play in PLAYS)

    steps = 0
    if key.start == INCUMBENT and isinstance(incumbent, Policy):
        response.policy.set(incumbent.weights)
    if key.start == SELF_PLAY:
        config = self_play_config(frozen, request.self_play_steps, key.number)
        with PROGRESS.part(0.0, 0.8):
            response.policy.set(self_play(frozen, config, before_step)[key.role])
        steps = config.iterations * config.games * config.steps
    iterations = response.search(key.start, score)
    return response.policy.weights, steps + iterations * response.config.games * response.config.steps


def players_by_seat(spec: Spec, role: str, player: Player, others: Mapping[str, Player]) -> list[Player]:
    """Players by seat: `player` in all seats of its role (the first seat, if there is one role)."""
    player_seats = spec.roles[role].seats if len(spec.roles) > 1 else spec.roles[role].seats[:1]
    return [player if seat in player_seats else others[spec.role_of(seat).name] for seat in range(spec.seats)]


def _play(
    frozen: FrozenAgents, board: Scoreboard, role: str, player: Any, match: tuple[str, int, int]
) -> Result:
    """The result of a player against the frozen ones; match: sampled or greedy, games, index."""
    play, games, index = match
    player.greedy = play == "greedy"
    spec = board.make(1, 0, 0).spec
    players = players_by_seat(spec, role, player, frozen.players)
    result: Result = board.results(players, games, index)[spec.roles[role].seats[0]]
    player.greedy = False
    return result


def measure(
    frozen: FrozenAgents, board: Scoreboard, role: str, games: int, candidates: list[Candidate]
) -> tuple[dict[str, Any], Player]:
    """The best candidate, selected on one set of games and scored with the incumbent on another."""
    trials = []
    for entry, player in PROGRESS.each(candidates):
        for play in PROGRESS.each(PLAYS):
            result = _play(frozen, board, role, player, (play, games, SELECTION))
            trials.append((entry | {"play": play, "score": result.score}, player))

    def best_of(rows: list[Candidate]) -> tuple[dict[str, Any], Any, Result]:
        entry, player = max(rows, key=lambda row: float(row[0]["score"]))
        return entry, player, _play(frozen, board, role, player, (entry["play"], games, REPORT))

    entry, player, response = best_of(trials)
    incumbent = _play(frozen, board, role, copy(frozen.players[role]), ("sampled", games, REPORT))
    answer: dict[str, Any] = {key: entry[key] for key in ("policy", "start", "seed", "steps", "play")}
    answer |= _rate(response) | {"incumbent": _rate(incumbent), "trials": [entry for entry, _ in trials]}
    # The distances to the ends of both Wilson intervals add as squares (Zou and Donner 2008).
    gain = response.score - incumbent.score
    (low, high), (incumbent_low, incumbent_high) = response.interval, incumbent.interval
    answer["gain"] = gain
    answer["gain_low"] = gain - hypot(response.score - low, incumbent_high - incumbent.score)
    answer["gain_high"] = gain + hypot(high - response.score, incumbent.score - incumbent_low)
    # How strong the search is: a response without the incumbent's weights should reach its score.
    fresh = best_of([row for row in trials if row[0]["start"] in (FRESH, LOOKAHEAD, SELF_PLAY)])[2]
    share = fresh.score / incumbent.score if incumbent.score else 1.0
    answer["fresh"] = _rate(fresh) | {"share": share, "reaches": share >= MIN_SHARE}
    answer["too_weak"] = share < MIN_SHARE and answer["gain_low"] <= 0
    player.greedy = entry["play"] == "greedy"
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
