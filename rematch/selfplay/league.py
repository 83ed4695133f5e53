"""The league: the roster of frozen rivals, and who is seated next.

A rival joins with the digest of its weights and is checked against it whenever it is placed. It plays from
a slot, a fixed buffer that is refilled only when no running game holds it, so nobody's opponent changes in
the middle of a game.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rematch.core import rng
from rematch.core.arrays import Tree
from rematch.core.world import RUNNING, World
from rematch.rollout.rollout_buffer import Tape
from rematch.selfplay.opponent_pool import LeagueConfig, Roster


class League:
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
        if c.history > 0:
            each = max(4, len(self.rosters))  # draws of an iteration: one set per role, never used twice
            for r, (role, roster) in enumerate(self.rosters.items()):
                running = set(np.unique(world.slot[:, list(spec.roles[role].seats)]).tolist())
                draws = rng.units(self.seed, rng.SEATING, c.slots + 1, each * iteration + r << 8)
                roster.refill(running, iteration, draws)
        if facing:
            for role, slot in facing.items():
                world.next.slot[:, list(spec.roles[role].seats)] = slot
            return
        if c.history == 0:
            return
        u = [rng.units(self.seed, rng.SEATING, n, iteration << 8 | i) for i in range(64, 68)]
        mixed = u[0] < c.history
        chosen = (u[1] * spec.seats).astype(int)
        all_learn = learning is None or len(learning) == len(spec.roles)
        for seat in range(spec.seats):
            role = spec.role_of(seat).name
            learns = chosen == seat if all_learn else np.full(n, role in (learning or ()))
            slots = self.rosters[role].choose((u[2] + 0.618 * seat) % 1.0, u[3])
            world.next.slot[:, seat] = np.where(mixed & ~learns, slots, 0)

    def due(self, iteration: int) -> bool:
        """Whether snapshots are taken now."""
        return self.config.history > 0 and iteration % self.config.snapshot_every == 0

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

    def report(self, tape: Tape) -> None:
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
        if self.config.history == 0 or self.config.pick == "uniform":
            return out
        for role, roster in self.rosters.items():
            whose = f"{role}_" if len(self.rosters) > 1 else ""  # both roles may have one called alike
            odds = roster.odds(roster.scripted) if roster.scripted else ()
            for rival, weight in zip(roster.scripted, odds):
                out[f"league/weight_{whose}{rival.name}"] = float(weight)
                out[f"league/score_{whose}{rival.name}"] = rival.win_rate()
        return out

    def state(self) -> Tree:
        return {role: roster.state() for role, roster in self.rosters.items()}

    def restore(self, tree: Tree) -> None:
        for role, roster in self.rosters.items():
            roster.restore(tree[role])
