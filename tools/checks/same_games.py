"""Games of the GPU, played again on the CPU: every array must have the same bits.

`tools/checks/gpu.py same` runs it on a GPU, tests/worlds/test_cuda_worlds.py in an emulation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematch.core import rng
from rematch.core.player import RngKey
from rematch.core.spec import Role, Spec
from rematch.core.stepping import concat_fields, seat_at
from rematch.core.world import World
from rematch.rollout.cuda_collector import CudaCollector
from rematch.rollout.cuda_rollout import CudaRolloutBuffer
from rematch.rollout.seating import BotsOnly, RoleSeating, Seating
from rematch.worlds.game import Game

Record = dict[str, Any]


class Difference(Exception):
    """An array that differs between CPU and GPU."""


def equal(name: str, expected: Any, actual: Any) -> None:
    """Difference where two arrays differ in type, shape or bits."""
    expected, actual = np.ascontiguousarray(expected), np.ascontiguousarray(actual)
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        raise Difference(
            f"{name}: {expected.dtype} {expected.shape} on the CPU, {actual.dtype} {actual.shape} on the GPU"
        )
    if expected.tobytes() != actual.tobytes():
        rows = np.flatnonzero((expected != actual).reshape(len(expected), -1).any(1))
        raise Difference(f"{name} differs between CPU and GPU in {len(rows)} games, first in row {rows[:1]}")


class RandomActing:
    """A policy that plays at random, in slot 0: of masked actions a legal one."""

    def __init__(
        self, role: Role, seating: RoleSeating, rollout: CudaRolloutBuffer, key: int, first: int
    ) -> None:
        self.seating, self.track = seating, rollout.role_tracks[role.name]

    def send_weights(self) -> None:
        """Nothing to send: there are no weights."""

    def join(self, other: RandomActing) -> bool:
        return False

    def act(self, t: int, first_step: Tensor, only_values: bool = False) -> None:
        if only_values:
            return
        action, role = self.track.action_tensor[t], self.track.role
        if role.actions.kind == "continuous":
            action.copy_(2.4 * torch.rand_like(action) - 1.2)
            return
        noise = torch.rand((*action.shape, role.actions.size), device=action.device)
        if self.track.mask_tensor is not None:
            noise = noise * self.track.mask_tensor[t]
        action.copy_(noise.argmax(-1))


def seats_of(game: Game, spec: Spec) -> Seating:
    """Slot 0 for a policy, and after it every scripted player that can be seated on the GPU."""
    assert game.cuda is not None
    seating = {}
    for name, role in spec.roles.items():
        seating[name] = RoleSeating(BotsOnly(role), 1)
        for bot in game.bots[name]:
            player = game.bot(bot, name)
            if game.cuda.bot_number(player) is not None:
                seating[name].seat_player(player)
    return seating


def draw_slots(world: Any, seating: Seating, seed: int) -> None:
    """Seat a random player on every seat of the next episodes."""
    generator = np.random.default_rng(seed)
    for name, role in world.spec.roles.items():
        count = len(seating[name].player_names())
        seats = list(role.seats)
        world.next.slot[:, seats] = generator.integers(count, size=(world.games, len(seats)), dtype=np.int32)


def compare(collector: CudaCollector, twin: World, iteration: int) -> Record:
    """One rollout of the collector, played again by `twin` from its actions; its bots decide again too."""
    world, rows = collector.world, np.arange(twin.games, dtype=np.int32)
    for track in collector.rollout.role_tracks.values():
        if track.role.privileged and track.privileged_tensor is None:
            track.add_privileged()  # before the first rollout: the graph records it
    for name in ("seed", "slot", "stage"):
        getattr(twin.next, name)[:] = getattr(world.next, name)
    twin.load(rows, world.save(rows))
    rollout, steps = collector.collect(iteration), collector.rollout.steps
    counts: Record = {"steps": 0, "bot_decisions": 0, "games_ended": 0}
    for t in range(steps):
        for role in twin.spec.roles:
            _compare_position(rollout, twin, role, t)
            key = RngKey(collector.seed, rng.BOT, iteration * steps + t)
            counts["bot_decisions"] += _compare_bots(collector, twin, role, t, key)
        view = twin.step({role: rollout[role].action[t] for role in twin.spec.roles})
        for role, role_spec in twin.spec.roles.items():
            seats = list(role_spec.seats)
            equal("reward", view.reward[:, seats], rollout[role].reward[t])
            equal("outcome", view.outcome[:, seats], rollout[role].outcome[t])
        equal("ended", view.ended, rollout.ended[t])
        equal("length", view.length, rollout.length[t])
        counts["steps"] += twin.games
        counts["games_ended"] += int((view.ended != 0).sum())
    _compare_end(world, twin)
    return counts


def _compare_position(rollout: Any, twin: World, role: str, t: int) -> None:
    role_spec, track = twin.spec.roles[role], rollout[role]
    seats = list(role_spec.seats)
    equal(f"obs of {role}", concat_fields(role_spec, twin.view[role]), track.obs[t])
    equal("slot", twin.slot[:, seats], track.slot[t])
    equal("acting", twin.view.acting[:, seats], track.acted[t])
    if role_spec.privileged:
        equal(f"privileged columns of {role}", _privileged(role_spec, twin), track.host("privileged")[t])
    if role in twin.view.mask:
        equal(f"mask of {role}", twin.view.mask[role], track.mask[t])


def _privileged(role: Role, twin: World) -> Any:
    fields = twin.view.fields[role.name]
    return np.concatenate([fields[field.name] for field in role.privileged], -1)


def _compare_bots(collector: CudaCollector, twin: World, role: str, t: int, key: RngKey) -> int:
    """The number of decisions of scripted players that were compared."""
    seating, compared = collector.seating[role], 0
    for number, player in enumerate(seating.others):
        for j, seat in enumerate(twin.spec.roles[role].seats):
            seated = twin.slot[:, seat] == len(seating.packed) + number
            games = np.flatnonzero(seated & (twin.view.acting[:, seat] != 0)).astype(np.int32)
            if len(games):
                decided = player.act(seat_at(twin, seat, games), key).action
                equal(f"bot {player.name}", decided, collector.rollout[role].action[t, games, j])
                compared += len(games)
    return compared


def _compare_end(world: Any, twin: World) -> None:
    """The games after the last step, as the world on the GPU gives them to others."""
    rows = np.arange(twin.games, dtype=np.int32)
    equal("states", twin.save(rows), world.save(rows))
    equal("slot", np.ascontiguousarray(twin.slot), world.slot)
    view = world.view
    equal("acting", twin.view.acting, view.acting)
    for role, fields in twin.view.fields.items():
        for name, field in fields.items():
            equal(f"field {name} of {role}", field, view.fields[role][name])
    for role, mask in twin.view.mask.items():
        equal(f"mask of {role}", mask, view.mask[role])
