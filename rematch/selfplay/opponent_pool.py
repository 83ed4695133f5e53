"""The opponent pool of one role: frozen snapshots, bots, and the slots they play from."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from rematch.agents.policy import Policy, digest
from rematch.core.arrays import Floats, Tree
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.rollout.seating import RoleSeating

FORGET = 0.95  # how much of a rival's record stays per iteration: win rates follow the learner


@dataclass(frozen=True, kw_only=True)
class LeagueConfig:
    """League: training games against a pool of snapshots and bots."""

    opponent_share: float = knob(
        0.3, "fraction of games in which one role learns against the opponent pool; 0: current policies only",
        unit="fraction", low=0, high=1,
    )  # fmt: skip
    size: int = knob(
        20, "snapshots in the pool of each role, at most", unit="snapshots", low=0, high=10_000,
        needs="opponent_share",
    )  # fmt: skip
    replacement: str = knob(
        "reservoir", "replacement in a full pool; reservoir: a uniform sample of all snapshots stays; fifo: "
        "the newest stay", choices=("reservoir", "fifo"), needs="opponent_share",
    )  # fmt: skip
    matchmaking: str = knob(
        "uniform", "selection of opponents; uniform: equal probabilities; pfsp: prioritized by the "
        "learner's losses against them in training; adaptive: bots in proportion to 1 - win rate in the "
        "newest evaluation, snapshots uniformly", choices=("uniform", "pfsp", "adaptive"),
        needs="opponent_share",
    )  # fmt: skip
    adaptive_floor: float = knob(
        0.05, "smallest probability of each bot in adaptive selection, after normalization", low=0, high=1,
        needs="matchmaking=adaptive",
    )  # fmt: skip
    pfsp_power: float = knob(
        2.0, "exponent p of the selection weight (1 - win rate)^p", low=0, needs="matchmaking=pfsp"
    )
    pfsp_floor: float = knob(
        0.05, "smallest selection weight of an opponent", low=0, high=1, needs="matchmaking=pfsp"
    )
    snapshot_every: int = knob(
        10, "iterations between snapshots", unit="iterations", low=1, needs="opponent_share"
    )
    slots: int = knob(
        4, "different opponents of a role that play at the same time", unit="opponents", low=1, high=64,
        needs="opponent_share",
    )  # fmt: skip
    rotate: int = knob(
        5, "iterations before a slot gets its next opponent", unit="iterations", low=1, needs="opponent_share"
    )
    bots: tuple[str, ...] = knob((), "bots in the pool, by name", needs="opponent_share")
    bot_share: float = knob(
        0.5, "fraction of the opponents that are bots, once the pool has snapshots", unit="fraction", low=0,
        high=1, needs="bots",
    )  # fmt: skip

    def check(self) -> None:
        if self.matchmaking == "adaptive" and self.adaptive_floor * len(self.bots) > 1:
            raise ConfigError(
                f"adaptive_floor = {self.adaptive_floor:g}: {len(self.bots)} bots cannot all "
                f"have that share; expected at most {1 / len(self.bots):g}"
            )
        if self.opponent_share and not self.size:
            raise ConfigError(
                f"size = 0: the pool has no snapshots for opponent_share = {self.opponent_share:g} of the "
                "games; expected at least 1, or opponent_share 0"
            )


@dataclass
class Rival:
    """One on the roster. `games` and `score` are the learner's, fading by FORGET; `won` its share of wins in
    the newest evaluation, or -1."""

    name: str
    digest: str
    games: float = 0.0
    score: float = 0.0
    won: float = -1.0

    def win_rate(self) -> float:
        """The learner's score, drawn towards one half while games are few."""
        return (self.score + 1.0) / (self.games + 2.0)


def floored(weight: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """Shares [n] in proportion to `weight`, none below `floor`; equal ones where all weights are 0.

    Those that would lie below have the floor, the others share what is left: again, until none does.
    """
    low = np.zeros(len(weight), bool)
    while True:
        left, total = 1.0 - floor * low.sum(), float(weight[~low].sum())
        share = weight * (left / total) if total > 0 else np.full(len(weight), left / max(1, (~low).sum()))
        below = ~low & (share < floor)
        if not below.any():
            return np.where(low, floor, share)
        low |= below
        if low.all():  # as many as the floor leaves room for
            return np.full(len(weight), 1.0 / len(weight))


class Roster:
    """One role's rivals and the slots they play from. Slot 0 is the learner's."""

    def __init__(
        self, policy: Policy, table: RoleSeating, config: LeagueConfig, others: list[Player]
    ) -> None:
        self.policy, self.table, self.config = policy, table, config
        self.rivals: list[Rival] = []
        self.weights: Floats = np.zeros((config.size, policy.weights.size), np.float32)
        self.seen = 0
        count = len(table.packed)
        self.held: Floats = np.zeros((count, policy.weights.size), np.float32)  # weights in each slot
        self.who = [""] * count
        self.since = [0] * count
        self.open = [False] * count
        self.scripted = [Rival(player.name, "") for player in others]
        for player in others:
            table.seat_player(player)

    def add(self, name: str, weights: Floats, draw: float) -> bool:
        """Freeze a copy. A full roster drops its oldest, or any at equal odds (Vitter's algorithm R).

        The one that is dropped may be the new one: then the answer is False.
        """
        self.seen += 1
        at = len(self.rivals)
        if at == self.config.size:
            at = (
                int(draw * self.seen)
                if self.config.replacement == "reservoir"
                else (self.seen - 1) % self.config.size
            )
            if at >= self.config.size:
                return False
        self.weights[at] = weights
        self.rivals[at : at + 1] = [Rival(name, digest(weights))]
        return True

    def odds(self, among: list[Rival]) -> NDArray[np.float64]:
        """How likely each rival is seated next, [n]."""
        kind = self.config.matchmaking
        if kind == "uniform" or (kind == "adaptive" and among is self.rivals):
            return np.full(len(among), 1.0 / len(among))
        if kind == "adaptive":  # before the first evaluation: win rates of training games
            won = [rival.win_rate() if rival.won < 0 else rival.won for rival in among]
            return floored(1.0 - np.array(won), self.config.adaptive_floor)
        hard = np.array([(1.0 - rival.win_rate()) ** self.config.pfsp_power for rival in among])
        weight = np.maximum(hard, max(self.config.pfsp_floor, 1e-9))  # never all zero
        return np.asarray(weight / weight.sum())

    def refill(self, running: set[int], iteration: int, draws: NDArray[np.float64]) -> None:
        """Close slots that served long enough; give slots that nobody plays in their next rival."""
        if not self.rivals:
            return
        slots = range(1, len(self.who))
        tired = [s for s in slots if self.open[s] and iteration - self.since[s] >= self.config.rotate]
        # One at a time, so that somebody is always there; but a lone slot must empty before it can change.
        if tired and (sum(self.open) > 1 or len(slots) == 1):
            self.open[min(tired, key=lambda s: self.since[s])] = False
        for slot in slots:
            if slot in running or (self.open[slot] and (slot not in tired)):
                continue
            at = int(np.searchsorted(np.cumsum(self.odds(self.rivals)), draws[slot], side="right"))
            at = min(at, len(self.rivals) - 1)
            rival = self.rivals[at]
            if digest(self.weights[at]) != rival.digest:
                raise ConfigError(f"rival {rival.name}: its weights are not those it joined with")
            self.held[slot] = self.weights[at]
            self.table.place(slot, self.weights[at])
            self.who[slot], self.since[slot], self.open[slot] = rival.name, iteration, True
            self.table.names[slot] = rival.name

    def choose(self, draws: NDArray[np.float64], kind: NDArray[np.float64]) -> NDArray[np.int32]:
        """A slot for each draw; 0 where nobody is on the roster yet."""
        policies = [s for s in range(1, len(self.who)) if self.open[s]]
        bots = [len(self.who) + i for i in range(len(self.scripted))]
        out = np.zeros(len(draws), np.int32)
        share = self.config.bot_share if bots else 0.0
        scripted = kind < share
        if share > 0:
            cumulative = np.cumsum(self.odds(self.scripted))
            pick = np.searchsorted(cumulative, draws, side="right").clip(max=len(bots) - 1)
            out = np.asarray(bots, np.int32)[pick]
        if policies:
            fresh = np.asarray(policies, np.int32)[
                (draws * len(policies)).astype(int).clip(max=len(policies) - 1)
            ]
            out = np.where(scripted, out, fresh).astype(np.int32)
        return out

    def report(self, slot: NDArray[np.int32], lost: Floats) -> None:
        """How this role's seats fared beside the learner: 1 where they beat it, 0 where it beat them, [m]."""
        names = self.who + [rival.name for rival in self.scripted]
        for rival in [*self.rivals, *self.scripted]:
            rival.games *= FORGET
            rival.score *= FORGET
            for s, name in enumerate(names):
                if s and name == rival.name:
                    here = slot == s
                    rival.games += float(here.sum())
                    rival.score += float((1.0 - lost[here]).sum())

    def state_dict(self) -> Tree:
        def record(rival: Rival) -> Tree:
            return asdict(rival)

        return {
            "rivals": [record(r) for r in self.rivals],
            "scripted": [record(r) for r in self.scripted],
            "weights": self.weights[: len(self.rivals)],
            "seen": self.seen,
            "held": self.held,
            "who": list(self.who),
            "since": list(self.since),
            "open": list(self.open),
        }

    def load_state_dict(self, tree: Tree) -> None:
        self.rivals = [Rival(**record) for record in tree["rivals"]]
        self.scripted = [Rival(**record) for record in tree["scripted"]]
        self.weights[: len(self.rivals)] = tree["weights"]
        self.seen, self.who = tree["seen"], list(tree["who"])
        self.since, self.open = list(tree["since"]), list(tree["open"])
        self.held[:] = tree["held"]
        for slot in range(1, len(self.who)):
            self.table.place(slot, self.held[slot])
            self.table.names[slot] = self.who[slot]
