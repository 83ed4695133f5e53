"""The opponent pool of one role: frozen snapshots, bots, and the slots that they play from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from rematch.agents.policy import Policy, digest
from rematch.core.arrays import (
    Floats,
    Tree,
    stored_array,
    stored_bool,
    stored_float,
    stored_int,
    stored_list,
    stored_text,
)
from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.world import SeatRule
from rematch.rollout.seating import RoleSeating

DECAY = 0.95  # of an opponent's record per iteration, so that win rates follow the learner


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
    bot_weights: tuple[float, ...] = knob(
        (), "relative probabilities of the bots, in their order; empty: equal; adaptive selection uses them "
        "until the first evaluation (empty: win rates of training games)", low=0, needs="bots",
    )  # fmt: skip

    def check(self) -> None:
        self._check_bot_weights()
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

    def _check_bot_weights(self) -> None:
        if not self.bot_weights:
            return
        if self.matchmaking == "pfsp":
            raise ConfigError("bot_weights has no effect with matchmaking = pfsp; expected another one")
        if len(self.bot_weights) != len(self.bots) or not sum(self.bot_weights):
            raise ConfigError(f"bot_weights = {list(self.bot_weights)}: expected a number for each of the "
                              f"{len(self.bots)} bots, not all 0")


@dataclass
class Opponent:
    """A member of the pool with its record; the fields are stored in checkpoints.

    `games` and `score` count the learner's games against it in training, with the decay DECAY. `won` is the
    learner's win rate against it in the newest evaluation, or -1.
    """

    name: str
    digest: str
    games: float = 0.0
    score: float = 0.0
    won: float = -1.0

    def win_rate(self) -> float:
        """The learner's score, shrunk towards one half while there are few games."""
        return (self.score + 1.0) / (self.games + 2.0)


def stored_opponent(record: Tree) -> Opponent:
    """An opponent of a checkpoint; ValueError where its values are none of a record."""
    if set(record) != {"name", "digest", "games", "score", "won"}:
        raise ValueError(f"an opponent with the fields {sorted(record)!r:.60}")
    games = stored_float(record, "games", 0)
    return Opponent(stored_text(record, "name"), stored_text(record, "digest"), games,
                    stored_float(record, "score", 0, games + 1), stored_float(record, "won", -1, 1))


def probs_with_floor(weight: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """Probabilities [n] in proportion to `weight`, none below `floor`; equal ones if all weights are 0.

    Entries below the floor are set to it and the others share the remainder, repeated until none is below.
    """
    at_floor = np.zeros(len(weight), bool)
    while True:
        remaining, total = 1.0 - floor * at_floor.sum(), float(weight[~at_floor].sum())
        if total >= np.finfo(np.float64).tiny:  # a subnormal total would overflow the quotient
            probs = weight * (remaining / total)
        else:
            probs = np.full(len(weight), remaining / max(1, (~at_floor).sum()))
        below = ~at_floor & (probs < floor)
        if not below.any():
            return np.where(at_floor, floor, probs)
        at_floor |= below
        if at_floor.all():  # the floor is 1 / n
            return np.full(len(weight), 1.0 / len(weight))


class OpponentPool:
    """The opponents of one role and the slots that they play from. Slot 0 belongs to the learner."""

    def __init__(
        self, policy: Policy, seating: RoleSeating, config: LeagueConfig, bots: list[Player]
    ) -> None:
        self.policy, self.seating, self.config = policy, seating, config
        self.snapshots: list[Opponent] = []
        self.weights: Floats = np.zeros((config.size, policy.weights.size), np.float32)  # of the snapshots
        self.seen = 0  # snapshots that were offered to `add`
        count = len(seating.packed)
        self.slot_weights: Floats = np.zeros((count, policy.weights.size), np.float32)
        self.slot_names = [""] * count
        self.filled_at = [0] * count  # iteration
        self.is_open = [False] * count  # whether new games may use the slot
        self.bots = [Opponent(player.name, "") for player in bots]
        for player in bots:
            seating.seat_player(player)

    def add(self, name: str, weights: Floats, uniform: float) -> bool:
        """Store a copy of the weights. A full pool replaces its oldest snapshot, or a uniformly random one.

        The random replacement is Vitter's algorithm R with the number `uniform` in [0, 1). False if the new
        snapshot itself is the one that is dropped.
        """
        self.seen += 1
        index = len(self.snapshots)
        if index == self.config.size:
            if self.config.replacement == "reservoir":
                index = int(uniform * self.seen)
            else:
                index = (self.seen - 1) % self.config.size
            if index >= self.config.size:
                return False
        self.weights[index] = weights
        self.snapshots[index : index + 1] = [Opponent(name, digest(weights))]
        return True

    def selection_probs(self, among: list[Opponent]) -> NDArray[np.float64]:
        """Probability [n] that each of these opponents is selected next."""
        kind = self.config.matchmaking
        evaluated = kind == "adaptive" and any(opponent.won >= 0 for opponent in among)
        if self.config.bot_weights and among is self.bots and not evaluated:
            weights = dict(zip(self.config.bots, self.config.bot_weights))
            floor = self.config.adaptive_floor if kind == "adaptive" else 0.0
            return probs_with_floor(np.array([weights[opponent.name] for opponent in among]), floor)
        if kind == "uniform" or (kind == "adaptive" and among is self.snapshots):
            return np.full(len(among), 1.0 / len(among))
        if kind == "adaptive":  # before the first evaluation: win rates of training games
            win_rates = [opponent.win_rate() if opponent.won < 0 else opponent.won for opponent in among]
            return probs_with_floor(1.0 - np.array(win_rates), self.config.adaptive_floor)
        losses = np.array([(1.0 - opponent.win_rate()) ** self.config.pfsp_power for opponent in among])
        weight = np.maximum(losses, max(self.config.pfsp_floor, 1e-9))  # never all zero
        return np.asarray(weight / weight.sum())

    def refill(self, running: set[int], iteration: int, uniforms: NDArray[np.float64]) -> None:
        """Close slots after `rotate` iterations; fill slots that no running game uses with new snapshots.

        `running` are the slots of running games, `uniforms` [slots + 1] random numbers in [0, 1).
        """
        if not self.snapshots:
            return
        slots = range(1, len(self.slot_names))
        expired = [slot for slot in slots
                   if self.is_open[slot] and iteration - self.filled_at[slot] >= self.config.rotate]
        # Close one at a time, so that one is always open; a single slot must close before it can change.
        if expired and (sum(self.is_open) > 1 or len(slots) == 1):
            self.is_open[min(expired, key=lambda slot: self.filled_at[slot])] = False
        for slot in slots:
            if slot in running or (self.is_open[slot] and (slot not in expired)):
                continue
            cumulative = np.cumsum(self.selection_probs(self.snapshots))
            index = int(np.searchsorted(cumulative, uniforms[slot], side="right"))
            index = min(index, len(self.snapshots) - 1)
            opponent = self.snapshots[index]
            if digest(self.weights[index]) != opponent.digest:
                raise ConfigError(f"opponent {opponent.name}: its weights changed after it joined the pool")
            self.slot_weights[slot] = self.weights[index]
            self.seating.place(slot, self.weights[index])
            self.slot_names[slot], self.filled_at[slot] = opponent.name, iteration
            self.is_open[slot] = True
            self.seating.names[slot] = opponent.name

    def seat_rule(self, learns: bool | None) -> SeatRule:
        """How the next games draw a player of this pool for a seat; `learns`: see SeatRule."""
        open_slots = [slot for slot in range(1, len(self.slot_names)) if self.is_open[slot]]
        bot_slots = [len(self.slot_names) + i for i in range(len(self.bots))]
        limits = np.cumsum(self.selection_probs(self.bots)) if bot_slots else np.zeros(0)
        return SeatRule(
            learns=learns,
            bot_share=self.config.bot_share if bot_slots else 0.0,
            bot_limits=limits,
            bot_slots=np.asarray(bot_slots, np.int32),
            open_slots=np.asarray(open_slots, np.int32),
        )

    def record_results(self, slot: NDArray[np.int32], lost: Floats, names: Sequence[str]) -> None:
        """Results of finished games, by slot [m]: `lost` [m] is 1 where the opponent beat the learner.

        `names` of the players that were in the slots; a slot may have another opponent by now.
        """
        count = len(self.slot_names) + len(self.bots)
        games = np.bincount(slot, minlength=count)
        score = np.bincount(slot, weights=1.0 - lost, minlength=count)
        self.add_results(games, score.astype(np.float64), names)

    def add_results(
        self, games: NDArray[np.number], score: NDArray[np.float64], names: Sequence[str]
    ) -> None:
        """Games [slots] against the opponent in each slot, and the learner's score in them."""
        count = len(self.slot_names) + len(self.bots)
        played = [(s, name) for s, name in enumerate(names[:count]) if s and games[s]]
        for opponent in [*self.snapshots, *self.bots]:
            opponent.games *= DECAY
            opponent.score *= DECAY
            for s, name in played:
                if name == opponent.name:
                    opponent.games += float(games[s])
                    opponent.score += float(score[s])

    def state_dict(self) -> Tree:
        return {
            "rivals": [asdict(opponent) for opponent in self.snapshots],
            "scripted": [asdict(opponent) for opponent in self.bots],
            "weights": self.weights[: len(self.snapshots)],
            "seen": self.seen,
            "held": self.slot_weights,
            "who": list(self.slot_names),
            "since": list(self.filled_at),
            "open": list(self.is_open),
        }

    def load_state_dict(self, tree: Tree) -> None:
        snapshots = [stored_opponent(record) for record in stored_list(tree, "rivals")]
        bots = [stored_opponent(record) for record in stored_list(tree, "scripted", len(self.bots))]
        if len(snapshots) > self.config.size or [bot.name for bot in bots] != [bot.name for bot in self.bots]:
            raise ValueError(f"a pool of {len(snapshots)} snapshots and the bots "
                             f"{[bot.name for bot in bots]!r:.60} does not fit the settings of the league")
        count = len(self.slot_names)
        slots = [{"since": since, "open": is_open, "who": name} for since, is_open, name in zip(
            stored_list(tree, "since", count), stored_list(tree, "open", count),
            stored_list(tree, "who", count))]  # fmt: skip
        self.filled_at = [stored_int(slot, "since") for slot in slots]
        self.is_open = [stored_bool(slot, "open") for slot in slots]
        self.slot_names = [stored_text(slot, "who") for slot in slots]
        self.weights[: len(snapshots)] = stored_array(tree, "weights", self.weights[: len(snapshots)])
        self.slot_weights[:] = stored_array(tree, "held", self.slot_weights)
        self.snapshots, self.bots = snapshots, bots
        self.seen = stored_int(tree, "seen", len(snapshots))
        for slot in range(1, len(self.slot_names)):
            self.seating.place(slot, self.slot_weights[slot])
            self.seating.names[slot] = self.slot_names[slot]
