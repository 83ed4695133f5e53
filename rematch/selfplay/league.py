"""The league: the roster of frozen rivals, and who is seated next.

A rival joins with the digest of its weights and is checked against it whenever it is placed. It plays from
a slot, a fixed buffer that is refilled only when no running game holds it, so nobody's opponent changes in
the middle of a game.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rematch.agents.networks.layout import network_bytes
from rematch.core import rng
from rematch.core.arrays import Tree
from rematch.core.clock import Clock
from rematch.core.component import Component, Evidence, Metrics, Record, Setup, SmallRun
from rematch.core.world import RUNNING, Next, World
from rematch.evaluation.evaluator import check_bot_names
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.selfplay.opponent_pool import LeagueConfig, Roster


class Matchmaker:
    """The rosters of all roles, and the seating of the next games."""

    def __init__(self, config: LeagueConfig, rosters: Mapping[str, Roster], seed: int) -> None:
        self.config, self.rosters, self.seed = config, rosters, seed

    def seat(
        self,
        world: World,
        iteration: int,
        learning: Sequence[str] | None = None,
        facing: Mapping[str, int] | None = None,
    ) -> None:
        """Fill `world.next.slot`: all current selves, or rivals beside a learner in a share of the games.

        Where all roles learn (`learning` is None), one seat of such a game does, and rivals take the others.
        Where only some do, their seats are theirs in every game; rivals take those of the roles that wait.
        `facing`, in a cold start: the slot that each of these roles plays from in all games.
        """
        c, n, spec = self.config, world.games, world.spec
        world.next.slot[:] = 0
        if c.opponent_share > 0:
            each = max(4, len(self.rosters))  # draws of an iteration: one set per role, never used twice
            for r, (role, roster) in enumerate(self.rosters.items()):
                running = set(np.unique(world.slot[:, list(spec.roles[role].seats)]).tolist())
                draws = rng.units(self.seed, rng.SEATING, c.slots + 1, each * iteration + r << 8)
                roster.refill(running, iteration, draws)
        if facing:
            for role, slot in facing.items():
                world.next.slot[:, list(spec.roles[role].seats)] = slot
            return
        if c.opponent_share == 0:
            return
        u = [rng.units(self.seed, rng.SEATING, n, iteration << 8 | i) for i in range(64, 68)]
        mixed = u[0] < c.opponent_share
        chosen = (u[1] * spec.seats).astype(int)
        all_learn = learning is None or len(learning) == len(spec.roles)
        for seat in range(spec.seats):
            role = spec.role_of(seat).name
            learns = chosen == seat if all_learn else np.full(n, role in (learning or ()))
            slots = self.rosters[role].choose((u[2] + 0.618 * seat) % 1.0, u[3])
            world.next.slot[:, seat] = np.where(mixed & ~learns, slots, 0)

    def due(self, iteration: int) -> bool:
        """Whether snapshots are taken now."""
        return self.config.opponent_share > 0 and iteration % self.config.snapshot_every == 0

    def snapshot(self, iteration: int, learnt: Collection[str] | None = None) -> list[str]:
        """When it is due, the current selves of the roles that learnt since may join; the names that did."""
        if not self.due(iteration):
            return []
        names = []
        for r, (role, roster) in enumerate(self.rosters.items()):
            if learnt is not None and role not in learnt:
                continue  # the same player would join twice
            name = f"{role}@{iteration}"
            draw = float(rng.units(self.seed, rng.RESERVOIR, 1, iteration << 8 | r)[0])
            if roster.add(name, roster.policy.weights.copy(), draw):
                names.append(name)
        return names

    def report(self, tape: RolloutBuffer) -> None:
        """Credit every rival with how it fared beside the learner in the same games.

        Of two seats one wins what the other loses; of more both may lose to a third, which is a draw between
        the two: (1 + rival's outcome - learner's) / 2.
        """
        tracks = [tape[role] for role in self.rosters]
        seats = sum((track.slot == 0).sum(2) for track in tracks)
        mine = sum((track.outcome * (track.slot == 0)).sum(2) for track in tracks) / np.maximum(seats, 1)
        there = (tape.ended != RUNNING) & (seats > 0)
        for role, roster in self.rosters.items():
            track = tape[role]
            lost = (1 + track.outcome - mine[:, :, None].astype(np.float32)) / 2
            roster.report(track.slot[there].reshape(-1), lost[there].reshape(-1))

    def judged(self, table: Sequence[Mapping[str, Any]]) -> None:
        """An evaluation's rows: each scripted rival that was met gets its own share of wins."""
        for role, roster in self.rosters.items():
            faced = [row for row in table if len(self.rosters) == 1 or row["role"] != role]
            for rival in roster.scripted:
                rows = [row for row in faced if row["rival"] == rival.name and row["games"]]
                if rows:
                    rival.won = sum(row["wins"] for row in rows) / sum(row["games"] for row in rows)

    def metrics(self) -> dict[str, float]:
        """Where scripted rivals are weighed: the weight of each, and the learner's score in training."""
        out: dict[str, float] = {}
        if self.config.opponent_share == 0 or self.config.matchmaking == "uniform":
            return out
        for role, roster in self.rosters.items():
            whose = f"{role}_" if len(self.rosters) > 1 else ""  # both roles may have one called alike
            odds = roster.odds(roster.scripted) if roster.scripted else ()
            for rival, weight in zip(roster.scripted, odds):
                out[f"league/weight_{whose}{rival.name}"] = float(weight)
                out[f"league/score_{whose}{rival.name}"] = rival.win_rate()
        return out

    def state_dict(self) -> Tree:
        return {role: roster.state_dict() for role, roster in self.rosters.items()}

    def load_state_dict(self, tree: Tree) -> None:
        for role, roster in self.rosters.items():
            roster.load_state_dict(tree[role])


class League(Component):
    """Frozen opponents in a fraction of the games; snapshots of the learners join the pools."""

    name = "league"
    Config = LeagueConfig
    needs = "learner=ppo|expert"
    copies_setting = "size"

    def __init__(self, config: LeagueConfig, setup: Setup) -> None:
        super().__init__(config, setup)
        rosters: dict[str, Roster] = {}
        for role, seating in setup.seating.items():
            seating.add_slots(config.slots)
            names = [name for name in config.bots if name in setup.game.bots[role]]
            bots = [setup.game.bot(name, role) for name in names]
            rosters[role] = Roster(seating.policy, seating, config, bots)
        self.matchmaker = Matchmaker(config, rosters, setup.config.seed)
        self.logged: Metrics = {}
        self.learned: list[str] = []  # roles that learned since the newest snapshots

    @classmethod
    def check(cls, config: LeagueConfig, setup: Setup) -> None:
        check_bot_names(setup.game, config.bots, "league.bots")

    @classmethod
    def off(cls, config: LeagueConfig, setup: Setup) -> str:
        if not setup.learner_class.seats_opponents:
            return f"learner {setup.learner_class.name} plays against itself alone"
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
        if 0 < config.bot_share < 1:  # opponents of both kinds have their turn
            changes["bot_share"] = min(max(config.bot_share, 0.3), 0.7)
        return changes

    def before_rollout(self, clock: Clock, next: Next) -> None:
        self.matchmaker.seat(self.setup.world, clock.iteration, clock.phase.roles, clock.fixed_slots)

    def after_rollout(self, rollout: RolloutBuffer, clock: Clock) -> None:
        self.logged = self.matchmaker.metrics()  # the weights that this rollout was seated by
        self.matchmaker.report(rollout)

    def metrics(self) -> Metrics:
        return self.logged

    def after_update(self, rollout: RolloutBuffer, metrics: Metrics, clock: Clock) -> None:
        roles = self.matchmaker.rosters
        self.learned = [role for role in roles if role in self.learned or role in clock.phase.roles]
        if self.matchmaker.due(clock.iteration):
            for name in self.matchmaker.snapshot(clock.iteration, self.learned):
                self.setup.log.line(f"Pool: {name} joined", console=False)
            self.learned = []

    def after_evaluation(self, evaluation: Any, rollout: RolloutBuffer, clock: Clock) -> None:
        self.matchmaker.judged(evaluation.row["table"])

    def evidence(self, record: Record) -> Iterable[Evidence]:
        c, rosters = self.config, self.matchmaker.rosters
        bots = {rival.name for roster in rosters.values() for rival in roster.scripted}
        seen = sum(roster.seen for roster in rosters.values())
        stored = sum(len(roster.rivals) for roster in rosters.values())
        made = [(name, count) for counts in record.decisions.values() for name, count in counts.items()]
        played = [count for name, count in made if "@" in name]
        joined = f"{seen} joined, {stored} stored ({c.replacement})" if seen > stored else ""
        yield Evidence("snapshots", joined)
        seated = f"{len(played)} snapshots made {sum(played):,} decisions" if played else ""
        full = "league.bot_share is 1" if bots and c.bot_share == 1 else ""
        yield Evidence("opponents seated", seated, full)
        scripted = sum(count for name, count in made if name in bots)
        none = "league.bots is empty" if not bots else ""
        none = none or ("" if c.bot_share else "league.bot_share is 0")
        yield Evidence("scripted opponents", f"{', '.join(sorted(bots))} made {scripted:,} decisions"
                       if scripted else "", none)

    def state_dict(self) -> Tree:
        return {"pools": self.matchmaker.state_dict(), "learned": list(self.learned)}

    def load_state_dict(self, tree: Tree) -> None:
        self.matchmaker.load_state_dict(tree["pools"])
        self.learned = list(tree["learned"])
