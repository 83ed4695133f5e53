"""The rollout writes on the tape what happened: against a replay by one game, seat and step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import toys
from support.networks import policy

from rematch.agents.policy import Policy
from rematch.core import rng as keys
from rematch.core.player import RngKey, Seat
from rematch.core.stepping import concat_fields
from rematch.core.world import CUT_OFF, RUNNING
from rematch.rollout.collector import ThreadCollector
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.seating import RoleSeating

SEED, STEPS, GAMES = 5, 9, 11
SLOTS = 3  # of policies; scripted players follow
BOTS = {"matching": ["heads", "random"], "sticks": ["random", "careful"], "drift": ["back", "random"]}
BOTS["recall"] = ["random", "random"]


class Cast:
    """The players of one toy: per role a learner, two frozen selves, two scripted ones: slots 0 .. 4."""

    def __init__(self, name: str) -> None:
        self.module = toys.TOYS[name]
        self.world = self.module.make(self.module.Config(), GAMES, 0, SEED)
        self.spec = self.world.spec
        self.selves: dict[str, list[Policy]] = {}
        self.tables: dict[str, RoleSeating] = {}
        for r, (role, role_spec) in enumerate(self.spec.roles.items()):
            self.selves[role] = [policy(role_spec, seed=10 * r + s, hidden=(9,)) for s in range(SLOTS)]
            table = RoleSeating(self.selves[role][0], SLOTS)
            for slot, self_ in enumerate(self.selves[role]):
                table.place(slot, self_.weights)
            table.others[:] = [self.module.bot(bot, role) for bot in BOTS[name]]
            self.tables[role] = table

    def seat(self, iteration: int) -> None:
        rng = np.random.default_rng(iteration)
        self.world.next.slot[:] = rng.integers(0, SLOTS + 2, (GAMES, self.spec.seats))

    def rollout(self, threads: int = 1) -> ThreadCollector:
        return ThreadCollector(self.world, self.tables, STEPS, threads, SEED)


def slow_rollout(cast: Cast, iteration: int) -> RolloutBuffer:
    """What `collect` should write, by the plainest means."""
    world, spec = cast.world, cast.spec
    buffer = RolloutBuffer(spec, STEPS, GAMES)
    for t in range(STEPS):
        step = iteration * STEPS + t
        actions: dict[str, Any] = {}
        for role, role_spec in spec.roles.items():
            track, k = buffer[role], len(role_spec.seats)
            if role in world.view.mask and track.mask is None:
                track.mask = np.zeros((STEPS, GAMES, k, role_spec.actions.size), np.uint8)
            for n in range(GAMES):
                for j, seat in enumerate(role_spec.seats):
                    seen = np.concatenate([world.view[role][f.name][n, j] for f in role_spec.fields])
                    slot = int(world.slot[n, seat])
                    track.obs[t, n, j], track.slot[t, n, j] = seen, slot
                    track.acted[t, n, j] = world.view.acting[n, seat]
                    mask = world.view.mask[role][n, j] if role in world.view.mask else None
                    if mask is not None and track.mask is not None:
                        track.mask[t, n, j] = mask
                    if not world.view.acting[n, seat]:
                        continue
                    legal = None if mask is None else mask[None].copy()
                    if slot >= SLOTS:
                        at = Seat(role_spec, seat, world, np.array([n], np.int32), seen[None], legal)
                        player = cast.tables[role].others[slot - SLOTS]
                        track.action[t, n, j] = player.act(at, RngKey(SEED, keys.BOT, step)).action[0]
                        continue
                    policy = cast.selves[role][slot]
                    action, logp, value = (
                        track.action[t, n, j][None].copy(),
                        np.zeros(1, np.float32),
                        np.zeros(1, np.float32),
                    )
                    policy.network.act(
                        policy.packed,
                        np.zeros(1, np.int32),
                        seen[None],
                        np.array([n * k + j], np.uint32),
                        (keys.key(SEED, keys.ACT, role_spec.seats[0]), step),
                        action,
                        logp,
                        value,
                        mask=legal,
                    )
                    track.action[t, n, j], track.logp[t, n, j], track.value[t, n, j] = (
                        action[0],
                        logp[0],
                        value[0],
                    )
            actions[role] = track.action[t].copy()
        view = world.step(actions)
        buffer.ended[t], buffer.length[t] = view.ended, view.length
        for role, role_spec in spec.roles.items():
            track, learner = buffer[role], cast.selves[role][0]
            for j, seat in enumerate(role_spec.seats):
                track.reward[t, :, j], track.outcome[t, :, j] = view.reward[:, seat], view.outcome[:, seat]
                for n in np.flatnonzero(view.ended == CUT_OFF):
                    last = np.concatenate([view.final[role][f.name][n, j] for f in role_spec.fields])
                    track.cut_value[t, n, j] = learner.forward(last[None])[1][0]
    for role, role_spec in spec.roles.items():
        for j, seat in enumerate(role_spec.seats):
            buffer[role].last_acting[:, j] = world.view.acting[:, seat]
            for n in range(GAMES):
                seen = np.concatenate([world.view[role][f.name][n, j] for f in role_spec.fields])
                buffer[role].last_value[n, j] = cast.selves[role][0].forward(seen[None])[1][0]
    return buffer


def summary(buffer: RolloutBuffer) -> dict[str, Any]:
    """Everything on a tape that means something; what a seat that was not to move left behind is blanked."""
    out: dict[str, Any] = {"ended": buffer.ended, "length": buffer.length}
    for role, track in buffer.tracks.items():
        acted, by_policy = track.acted != 0, (track.acted != 0) & (track.slot < SLOTS)
        out |= {
            f"{role}.{name}": getattr(track, name)
            for name in ("obs", "slot", "acted", "reward", "last_acting", "last_value")
        }
        out[f"{role}.action"] = track.action[acted]
        out[f"{role}.logp"], out[f"{role}.value"] = track.logp[by_policy], track.value[by_policy]
        out[f"{role}.outcome"] = track.outcome[buffer.ended != RUNNING]
        out[f"{role}.cut_value"] = track.cut_value[buffer.ended == CUT_OFF]
        if track.mask is not None:
            out[f"{role}.mask"] = track.mask
        # outside its games an undecided slot says nothing, but what is learnt from is part of the record
        out[f"{role}.counts"] = buffer.advantages(role, 0.9, 0.8)[2]
        out[f"{role}.advantage"] = buffer.advantages(role, 0.9, 0.8)[0][out[f"{role}.counts"]]
    return {name: np.copy(array) for name, array in out.items()}


@pytest.mark.parametrize("name", toys.TOYS)
def test_rollout_equals_a_slow_replay(name: str) -> None:
    fast, slow = Cast(name), Cast(name)
    rollout = fast.rollout()
    endings: set[int] = set()
    for iteration in range(7):
        for cast in (fast, slow):
            cast.seat(iteration)
        buffer = summary(rollout.collect(iteration))
        wanted = summary(slow_rollout(slow, iteration))
        assert buffer.keys() == wanted.keys()
        for key, array in wanted.items():
            assert array.tobytes() == buffer[key].tobytes(), f"{key} in iteration {iteration}"
        endings |= set(np.unique(buffer["ended"]).tolist())
        rows = np.arange(GAMES, dtype=np.int32)
        assert fast.world.save(rows).tobytes() == slow.world.save(rows).tobytes()
    assert CUT_OFF in endings or name != "drift"
    assert len(endings) > 1


@pytest.mark.parametrize("name", toys.TOYS)
def test_threads_change_nothing(name: str) -> None:
    output = []
    for threads in (1, 3, 64):
        cast = Cast(name)
        rollout = cast.rollout(threads)
        assert len(rollout.parts) == min(threads, GAMES)
        tapes = []
        for iteration in range(4):
            cast.seat(iteration)
            tapes.append({key: array.tobytes() for key, array in summary(rollout.collect(iteration)).items()})
        output.append(tapes)
    assert output[0] == output[1] == output[2]


@pytest.mark.parametrize("name", toys.TOYS)
def test_player_is_never_replaced_in_mid_game(name: str) -> None:
    cast = Cast(name)
    rollout = cast.rollout()
    before = cast.world.slot.copy()
    for iteration in range(6):
        cast.seat(iteration)
        coming = cast.world.next.slot.copy()
        buffer = rollout.collect(iteration)
        for role, role_spec in cast.spec.roles.items():
            seats = list(role_spec.seats)
            now = before[:, seats].copy()
            for t in range(STEPS):
                assert (buffer[role].slot[t] == now).all()
                over = buffer.ended[t] != RUNNING
                now[over] = coming[over][
                    :, seats
                ]  # who was announced sits down when the game is over, not before
        before = cast.world.slot.copy()


def test_scripted_opponents_play_only_their_games() -> None:
    cast = Cast("sticks")
    asked: list[tuple[int, int, int]] = []

    class Spy:
        name = "spy"

        def act(self, seat: Seat, rng_key: RngKey, recurrent_state: Any = None) -> Any:
            world: Any = seat.world
            assert (world.slot[seat.rows, seat.seat] == SLOTS).all()
            assert (world.view.acting[seat.rows, seat.seat] == 1).all()
            assert (
                seat.mask is not None and (seat.mask == world.view.mask["player"][seat.rows, seat.seat]).all()
            )
            wanted = concat_fields(seat.role, world.view["player"])[seat.rows, seat.seat]
            assert (seat.obs == wanted).all()
            asked.extend((rng_key.step, int(row) + world.first, seat.seat) for row in seat.rows)
            return toys.sticks.bot("random", "player").act(seat, rng_key)

    cast.tables["player"].others[0] = Spy()
    rollout = cast.rollout()
    wanted = []
    for iteration in range(5):
        cast.seat(iteration)
        track = rollout.collect(iteration)["player"]
        hers = (track.slot == SLOTS) & (track.acted == 1)
        wanted += [(iteration * STEPS + int(t), int(n), int(k)) for t, n, k in np.argwhere(hers)]
    assert sorted(asked) == sorted(wanted) and len(wanted) > 20


@pytest.mark.parametrize("name", toys.TOYS)
def test_only_the_learners_decisions_count(name: str) -> None:
    cast = Cast(name)
    rollout = cast.rollout()
    for iteration in range(3):
        cast.seat(iteration)
        buffer = rollout.collect(iteration)
        for role in cast.spec.roles:
            counts = buffer.advantages(role, 0.9, 0.9)[2]
            assert (buffer[role].slot[counts] == 0).all() and (buffer[role].acted[counts] == 1).all()
    assert counts.any()


def test_draws_of_two_iterations_and_two_roles_differ() -> None:
    cast = Cast("matching")
    for role in cast.spec.roles:  # the same weights for both roles: only the draws can differ
        cast.selves[role][0].set(np.zeros_like(cast.selves[role][0].weights))
        cast.tables[role].place(0, cast.selves[role][0].weights)
    rollout = cast.rollout()
    first = {role: rollout.collect(0)[role].action.copy() for role in cast.spec.roles}
    second = rollout.collect(1)
    assert (first["matcher"] != first["hider"]).any()
    for role in cast.spec.roles:
        assert (second[role].action != first[role]).any()


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    cast = Cast("sticks")

    class Cheat:
        name = "cheat"

        def act(self, seat: Seat, rng_key: RngKey, recurrent_state: Any = None) -> Any:
            raise RuntimeError("out of sticks")

    cast.tables["player"].others[0] = Cheat()
    cast.seat(0)
    rollout = cast.rollout(3)
    with pytest.raises(RuntimeError, match="out of sticks"):
        for iteration in range(6):
            rollout.collect(iteration)


def test_side_by_side_goes_by_the_roles_order() -> None:
    cast = Cast("sticks")
    role_spec = cast.spec.roles["player"]
    seen = concat_fields(role_spec, cast.world.view["player"])
    assert seen.shape == (GAMES, 3, role_spec.size)
    at = 0
    for field in role_spec.fields:
        assert (seen[..., at : at + field.size] == cast.world.view["player"][field.name]).all()
        at += field.size


@pytest.mark.parametrize("name", [*BOTS])
def test_started_rows_are_the_same_in_a_restored_world(name: str) -> None:
    """A restored world tells of no end: whether row 0 starts an episode shows in its steps."""
    cast, seen = Cast(name), set()
    collector = cast.rollout()
    assert collector.collect(0).started.all(), "all games are new"
    for iteration in range(1, 8):
        again = Cast(name)
        every = np.arange(GAMES, dtype=np.int32)
        again.world.load(every, cast.world.save(every))
        ended = collector.rollout.ended[-1] != RUNNING
        started = [made.collect(iteration).started.copy() for made in (collector, again.rollout())]
        assert np.array_equal(started[0], ended) and np.array_equal(started[0], started[1])
        seen |= set(ended.tolist())
    assert True in seen
