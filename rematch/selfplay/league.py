"""The league: opponent pools of all roles, and the choice of opponents for the next games.

A snapshot joins a pool with the digest of its weights, which is checked whenever a slot is filled with it.
A slot is a fixed buffer of weights that is refilled only when no running game uses it, so the opponent never
changes within a game.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rematch.agents.networks.layout import network_bytes
from rematch.core import rng
from rematch.core.arrays import Tree, stored_texts
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Metrics, Record, Setup, SmallRun
from rematch.core.world import Next, SlotRule, World, slots_in_use
from rematch.evaluation.evaluator import check_bot_names
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.selfplay.opponent_pool import LeagueConfig, OpponentPool


class Matchmaker:
    """Chooses the players of the next games from the opponent pools of all roles."""

    def __init__(self, config: LeagueConfig, pools: Mapping[str, OpponentPool], seed: int) -> None:
        self.config, self.pools, self.seed = config, pools, seed

    def seat(
        self,
        world: World,
        iteration: int,
        learning: Sequence[str] | None = None,
        fixed_slots: Mapping[str, int] | None = None,
    ) -> None:
        """Fill `world.next.slot`: current policies only, or opponents beside a learner in some of the games.

        If all roles learn (`learning` is None), one seat of such a game learns and opponents take the others.
        If only some roles learn, they keep their seats in every game, and opponents take seats of the other
        roles. `fixed_slots` (warm-up phase): role -> slot that it plays from in all games.
        """
        c, spec = self.config, world.spec
        if c.opponent_share > 0:
            streams = max(4, len(self.pools))  # random streams of an iteration, one per role
            for r, (role, pool) in enumerate(self.pools.items()):
                running = slots_in_use(world, spec.roles[role].seats)
                uniforms = rng.units(self.seed, rng.SEATING, c.slots + 1, streams * iteration + r << 8)
                pool.refill(running, iteration, uniforms)
        if fixed_slots or c.opponent_share == 0:
            world.next.fix_slots(spec.slots_of(fixed_slots or {}))
            return
        all_learn = learning is None or len(learning) == len(spec.roles)
        rules = []
        for seat in range(spec.seats):
            role = spec.role_of(seat).name
            rules.append(self.pools[role].seat_rule(None if all_learn else role in (learning or ())))
        world.next.draw_slots(SlotRule(self.seed, iteration, c.opponent_share, tuple(rules)))

    def snapshot_due(self, iteration: int) -> bool:
        """Whether snapshots are taken after this iteration."""
        return self.config.opponent_share > 0 and iteration % self.config.snapshot_every == 0

    def snapshot(self, iteration: int, learned: Collection[str] | None = None) -> list[str]:
        """If due, offer the current policies of the roles in `learned` to the pools; names of those added."""
        if not self.snapshot_due(iteration):
            return []
        names = []
        for r, (role, pool) in enumerate(self.pools.items()):
            if learned is not None and role not in learned:
                continue  # the same policy would join twice
            name = f"{role}@{iteration}"
            uniform = float(rng.units(self.seed, rng.RESERVOIR, 1, iteration << 8 | r)[0])
            if pool.add(name, pool.policy.weights.copy(), uniform):
                names.append(name)
        return names

    def record_results(self, rollout: RolloutBuffer) -> None:
        """Add the finished games of a rollout to the record of each opponent that played in them.

        The opponent's score against the learner is (1 + outcome of opponent - outcome of learner) / 2. With
        two seats that is the outcome; with more, both may lose to a third, which is a draw between the two.
        """
        if rollout.tally is not None:
            for role, pool in self.pools.items():
                pool.add_results(*rollout.tally.opponents[role], rollout.players[role])
            return
        games = rollout.finished()
        by_learner = {role: games.slot[role] == 0 for role in self.pools}
        learner_seats = sum(learns.sum(1) for learns in by_learner.values())
        outcome_sum = sum((games.outcome[role] * learns).sum(1) for role, learns in by_learner.items())
        learner_outcome = outcome_sum / np.maximum(learner_seats, 1)
        counts = learner_seats > 0
        for role, pool in self.pools.items():
            lost = (1 + games.outcome[role] - learner_outcome[:, None].astype(np.float32)) / 2
            slots = games.slot[role][counts].reshape(-1)
            pool.record_results(slots, lost[counts].reshape(-1), rollout.players[role])

    def record_evaluation(self, table: Sequence[Mapping[str, Any]]) -> None:
        """Store the learner's win rate against each bot, from the match-ups of an evaluation."""
        for role, pool in self.pools.items():
            opposing = [row for row in table if len(self.pools) == 1 or row["role"] != role]
            for bot in pool.bots:
                rows = [row for row in opposing if row["rival"] == bot.name and row["games"]]
                if rows:
                    bot.won = sum(row["wins"] for row in rows) / sum(row["games"] for row in rows)

    def metrics(self) -> dict[str, float]:
        """Unless matchmaking is uniform: each bot's probability, and the learner's score against it."""
        metrics: dict[str, float] = {}
        if self.config.opponent_share == 0 or self.config.matchmaking == "uniform":
            return metrics
        for role, pool in self.pools.items():
            prefix = f"{role}_" if len(self.pools) > 1 else ""  # two roles may have bots of one name
            probs = pool.selection_probs(pool.bots) if pool.bots else ()
            for bot, prob in zip(pool.bots, probs):
                metrics[f"league/weight_{prefix}{bot.name}"] = float(prob)
                metrics[f"league/score_{prefix}{bot.name}"] = bot.win_rate()
        return metrics

    def state_dict(self) -> Tree:
        return {role: pool.state_dict() for role, pool in self.pools.items()}

    def load_state_dict(self, tree: Tree) -> None:
        for role, pool in self.pools.items():
            pool.load_state_dict(tree[role])


class League(Component):
    """Frozen opponents in a fraction of the games; snapshots of the learners join the pools."""

    name = "league"
    Config = LeagueConfig
    needs = "learner=ppo|expert"
    copies_setting = "size"
    in_play = True

    def __init__(self, config: LeagueConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        pools: dict[str, OpponentPool] = {}
        for role, seating in setup.seating.items():
            seating.add_slots(config.slots)
            names = [name for name in config.bots if name in setup.game.bot_names(role)]
            bots = [setup.game.bot(name, role) for name in names]
            pools[role] = OpponentPool(seating.policy, seating, config, bots)
        self.matchmaker = Matchmaker(config, pools, setup.config.seed)
        self.logged: Metrics = {}
        self.learned: list[str] = []  # roles that learned since the newest snapshots

    @classmethod
    def check(cls, config: LeagueConfig, setup: Setup) -> None:
        check_bot_names(setup.game, config.bots, "league.bots")

    @classmethod
    def off(cls, config: LeagueConfig, setup: Setup) -> str:
        if not setup.learner_class.seats_opponents:
            return f"learner {setup.learner_class.name} plays only against itself"
        unset = "" if config.opponent_share else "league.opponent_share is 0"
        return cls.no_effect("", config, setup) or unset

    @classmethod
    def no_effect(cls, key: str, config: LeagueConfig, setup: Setup) -> str:
        return "the world has one seat, and so no opponents" if setup.spec.seats == 1 else ""

    @classmethod
    def memory_bytes(cls, config: LeagueConfig, setup: Setup) -> int:
        if cls.off(config, setup):
            return 0
        return sum(network_bytes(role, setup.config) for role in setup.spec.roles.values()) * (
            2 * (config.slots + 1) + config.size)

    @classmethod
    def shrink(cls, config: LeagueConfig, small: SmallRun) -> Mapping[str, Any]:
        changes: dict[str, Any] = {"size": min(config.size, 2), "slots": min(config.slots, 2),
                                   "snapshot_every": 1, "rotate": 1}
        if config.opponent_share:
            changes["opponent_share"] = max(config.opponent_share, 0.5)
        if 0 < config.bot_share < 1:  # both kinds of opponents are seated
            changes["bot_share"] = min(max(config.bot_share, 0.3), 0.7)
        return changes

    def before_rollout(self, clock: Clock, next: Next) -> None:
        self.matchmaker.seat(self.setup.world, clock.iteration, clock.phase.roles, clock.fixed_slots)

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        self.logged = self.matchmaker.metrics()  # the probabilities that the newest rollout was seated with
        self.matchmaker.record_results(rollout)

    def metrics(self) -> Metrics:
        return self.logged

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        roles = self.matchmaker.pools
        self.learned = [role for role in roles if role in self.learned or role in clock.phase.roles]
        if self.matchmaker.snapshot_due(clock.iteration):
            for name in self.matchmaker.snapshot(clock.iteration, self.learned):
                self.setup.log.line(f"Pool: {name} joined", console=False)
            self.learned = []

    def after_evaluation(self, evaluation: Any, rollout: RolloutBuffer, clock: Clock) -> None:
        self.matchmaker.record_evaluation(evaluation.row["table"])

    def evidence(self, record: Record) -> Iterable[Evidence]:
        c, pools = self.config, self.matchmaker.pools
        bots = {opponent.name for pool in pools.values() for opponent in pool.bots}
        seen = sum(pool.seen for pool in pools.values())
        stored = sum(len(pool.snapshots) for pool in pools.values())
        decisions = [(name, count) for counts in record.decisions.values() for name, count in counts.items()]
        by_snapshots = [count for name, count in decisions if "@" in name]
        joined = f"{seen} joined, {stored} stored ({c.replacement})" if seen > stored else ""
        yield Evidence("snapshots", joined)
        seated = ""
        if by_snapshots:
            seated = f"{len(by_snapshots)} snapshots made {sum(by_snapshots):,} decisions"
        only_bots = "league.bot_share is 1" if bots and c.bot_share == 1 else ""
        yield Evidence("opponents seated", seated, only_bots)
        by_bots = sum(count for name, count in decisions if name in bots)
        no_bots = "league.bots is empty" if not bots else ""
        no_bots = no_bots or ("" if c.bot_share else "league.bot_share is 0")
        yield Evidence("scripted opponents", f"{', '.join(sorted(bots))} made {by_bots:,} decisions"
                       if by_bots else "", no_bots)

    def state_dict(self) -> Tree:
        return {"pools": self.matchmaker.state_dict(), "learned": list(self.learned)}

    def load_state_dict(self, tree: Tree) -> None:
        self.matchmaker.load_state_dict(tree["pools"])
        self.learned = stored_texts(tree, "learned", self.matchmaker.pools)
