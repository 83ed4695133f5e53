"""The games of a native world on the GPU: the same rules (rules.h), one game per thread, the same bits.

A CudaWorld has a twin on the CPU, from which it takes its spec and its checks. The running games live on the
GPU; they are copied to the twin only where a caller saves, loads or counts them. The collector
(rollout/cuda_collector.py) steps them: nothing runs on the host inside a rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.errors import WorldError
from rematch.core.spec import Spec
from rematch.core.system.cuda import Program
from rematch.core.world import (
    RUNNING,
    SEAT_OFFSET,
    EventLog,
    Next,
    Observations,
    PointCounter,
    SlotRule,
    View,
)
from rematch.worlds.capabilities import Cuda
from rematch.worlds.native_world import NativeWorld

DEVICE = torch.device("cuda")


def tensor_of(array: NDArray[Any]) -> Tensor:
    """A copy on the GPU; unsigned numbers keep their bits."""
    signed = {np.dtype(np.uint64): np.int64, np.dtype(np.uint32): np.int32, np.dtype(np.uint16): np.int16}
    contiguous = np.ascontiguousarray(array)
    numbers = torch.from_numpy(contiguous.view(signed.get(contiguous.dtype, contiguous.dtype)))
    return numbers.to(DEVICE, copy=True)


def c_number(value: Any, c_type: str) -> str:
    """A number as an initialiser in C, exactly."""
    return f"{float(np.float32(value)).hex()}f" if c_type == "float" else str(int(value))


def same_bytes(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays of one shape and type have the same bytes: eight at a time where they can."""
    kind = np.uint64 if one.nbytes % 8 == 0 else np.uint8
    return bool((one.reshape(-1).view(kind) == other.reshape(-1).view(kind)).all())


GAMES_PER_BLOCK, OBSERVER_THREADS = 128, 128
MAX_SEATS, MAX_BOTS, MAX_SLOTS = 4, 32, 64  # of cuda_step.h
SEAT_RULE = np.dtype([("bot_share", "f8"), ("offset", "f8"), ("bot_limit", "f8", MAX_BOTS), ("learns", "i4"),
                      ("bots", "i4"), ("open", "i4"), ("bot_slot", "i4", MAX_BOTS),
                      ("open_slot", "i4", MAX_SLOTS)], align=True)  # fmt: skip
SLOT_RULE = np.dtype([("slot", "u8"), ("first_step", "u8"), ("start", "i8"), ("seed", "u8"),
                      ("step", "u8", 4), ("opponent_share", "f8"), ("seats", "i4"), ("games", "i4"),
                      ("seat", SEAT_RULE, MAX_SEATS)], align=True)  # fmt: skip


def rule_struct(rule: SlotRule, games: int) -> NDArray[Any] | None:
    """The C struct of a rule; None if it is too large for the kernel."""
    out = np.zeros(1, SLOT_RULE)
    if len(rule.seats) > MAX_SEATS:
        return None
    out["seed"], out["step"], out["opponent_share"] = rule.seed, rule.random_steps(), rule.opponent_share
    out["seats"], out["games"] = len(rule.seats), games
    for number, seat in enumerate(rule.seats):
        struct, bots, slots = out["seat"][0, number], len(seat.bot_slots), len(seat.open_slots)
        if bots > MAX_BOTS or slots > MAX_SLOTS:
            return None
        struct["learns"] = -1 if seat.learns is None else int(seat.learns)
        struct["bot_share"], struct["offset"] = seat.bot_share, SEAT_OFFSET * number
        struct["bots"], struct["open"] = bots, slots
        struct["bot_limit"][:bots], struct["bot_slot"][:bots] = seat.bot_limits, seat.bot_slots
        struct["open_slot"][:slots] = seat.open_slots
    return out


class CudaNext(Next):
    """`Next` whose slots are drawn on the GPU. Reading `slot` draws them on the host too."""

    rule: SlotRule | None = None
    fixed: Sequence[int] | None = None  # of all games, not yet written
    host_slot: Ints

    @property
    def slot(self) -> Ints:
        if self.rule is not None:
            self.host_slot[:] = self.rule.draw(len(self.host_slot))
            self.rule = None
        if self.fixed is not None:
            self.host_slot[:] = self.fixed
            self.fixed = None
        return self.host_slot

    @slot.setter
    def slot(self, slot: Ints) -> None:
        self.host_slot, self.rule, self.fixed = slot, None, None

    def draw_slots(self, rule: SlotRule) -> None:
        self.rule, self.fixed = rule, None

    def fix_slots(self, slots: Sequence[int]) -> None:
        self.rule, self.fixed = None, slots


class CudaWorld:
    """See rematch.core.world.World. `step` is the collector's: see `arrays` and `program`."""

    event_log: EventLog | None = None

    def __init__(self, twin: NativeWorld, cuda: Cuda) -> None:
        self.twin, self.cuda = twin, cuda
        self.spec: Spec = twin.spec
        self.games, self.first = twin.games, twin.first
        self.next = CudaNext(twin.next.seed, twin.next.slot, twin.next.stage)
        struct = cuda.rules(twin.config)
        rules = ", ".join(c_number(value, c_type) for value, c_type in struct)
        self.program = Program(
            cuda.source, {}, include=cuda.include, exact=True, text=f"#define RULES {{{rules}}}"
        )
        step_games = self.program.kernel("step_games", cuda.step_bytes(twin.config))
        self.step_kernels = [(step_games, GAMES_PER_BLOCK, GAMES_PER_BLOCK)]
        self.step_kernels += [(self.program.kernel(name), 1, OBSERVER_THREADS)
                              for name in cuda.after_step(twin.config)]  # fmt: skip
        self.batch = cuda.batch(twin.config)
        self.arrays = {name: tensor_of(array) for name, array in self._twin_arrays().items()}
        self.tables = {name: tensor_of(table(twin).copy()) for name, table in cuda.tables.items()}
        self.next_tensors = {name: tensor_of(getattr(self.next, name)) for name in ("seed", "slot", "stage")}
        roles = self.spec.roles.values()
        self.fields = {
            f"{role.name}.{field.name}": tensor_of(twin.view.fields[role.name][field.name])
            for role in roles
            for field in (*role.fields, *role.privileged)
        }
        self.mask = {role: tensor_of(mask) for role, mask in twin.view.mask.items()}
        self.acting = tensor_of(twin.view.acting)
        self.slots = tensor_of(twin.slot)
        self.sent: dict[str, NDArray[Any]] = {}  # what `push_next` has sent
        self.host_counters: dict[str, int] | None = None  # those of the newest rollout
        self.started = tensor_of((twin.view.ended != RUNNING) | (twin.view.length == 0))

    def launch_step(
        self, shape: tuple[int, int], steps: Tensor, place: tuple[int, int], settings: Tensor
    ) -> None:
        """One step of (worlds, games of each) with these rules: scripted players act, games step.

        steps, settings: `StepArrays` [worlds][count] and `StepSettings` [worlds] of cuda_step.h; place: the
        step, count."""
        worlds, games = shape
        for kernel, each, threads in self.step_kernels:
            kernel((-(-games // each), worlds), threads, steps, *place, settings)

    # --- copies between the GPU and the twin ---

    def _twin_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the twin's running games; without those that these settings leave empty."""
        arrays = {name: array(self.twin) for name, array in self.cuda.arrays.items()}
        return {name: array for name, array in arrays.items() if array.size}

    def push_next(self) -> NDArray[Any]:
        """Send the starts of the next episodes to the GPU; the rule by which it draws their slots.

        A rule of no games: the slots were sent too."""
        rule = None if self.next.rule is None else rule_struct(self.next.rule, self.games)
        for name, tensor in self.next_tensors.items():
            if name == "slot" and rule is not None:
                self.sent.pop(name, None)
                continue
            array = getattr(self.next, name)
            if name not in self.sent or not same_bytes(self.sent[name], array):
                self.sent[name] = array.copy()
                signed = array.view(np.int64) if array.dtype == np.uint64 else array
                tensor.copy_(torch.from_numpy(signed))
        out = np.zeros(1, SLOT_RULE) if rule is None else rule
        out["slot"] = self.next_tensors["slot"].data_ptr()
        return out

    def pull(self) -> None:
        """Copy the running games and what their seats observe to the twin."""
        for name, array in self._twin_arrays().items():
            array[:] = self.arrays[name].cpu().numpy()
        view = self.twin.view
        for name, tensor in self.fields.items():
            role, field = name.split(".")
            view.fields[role][field][:] = tensor.cpu().numpy()
        for role, tensor in self.mask.items():
            view.mask[role][:] = tensor.cpu().numpy()
        view.acting[:] = self.acting.cpu().numpy()

    def push(self) -> None:
        """Copy all games of the twin to the GPU."""
        self.next.in_use = self.host_counters = None
        for name, array in self._twin_arrays().items():
            self.arrays[name].copy_(torch.from_numpy(array))
        view = self.twin.view
        for name, tensor in self.fields.items():
            role, field = name.split(".")
            tensor.copy_(torch.from_numpy(view.fields[role][field]))
        for role, tensor in self.mask.items():
            tensor.copy_(torch.from_numpy(view.mask[role]))
        self.acting.copy_(torch.from_numpy(view.acting))
        self.slots.copy_(torch.from_numpy(np.ascontiguousarray(self.twin.slot)))
        self.started.copy_(torch.from_numpy((view.ended != RUNNING) | (view.length == 0)))

    # --- World ---

    @property
    def view(self) -> View:
        """The view of the twin, after a copy of all games."""
        self.pull()
        return self.twin.view

    @property
    def slot(self) -> Ints:
        """[N, seats] slots of the players in the running games, a copy."""
        out: Ints = self.slots.cpu().numpy()
        return out

    @property
    def points(self) -> PointCounter | None:
        self.pull()
        return self.twin.points

    @property
    def counters(self) -> Mapping[str, int]:
        """Event counts of the running games."""
        if self.host_counters is not None:
            return self.host_counters
        if "optional" in self.arrays:
            self.pull()
            return self.twin.counters
        members = self.twin.game_type.fields
        assert members is not None
        words = self.arrays["states"].view(torch.int32)
        return {
            name: int(words[:, members[name][1] // 4].sum(dtype=torch.int64)) for name in self.cuda.counters
        }

    def step(self, actions: Mapping[str, NDArray[Any]]) -> View:
        raise WorldError("games on the GPU are stepped by its collector")

    def observe(self, rows: Ints) -> Observations:
        self.pull()
        return self.twin.observe(rows)

    def save(self, rows: Ints) -> Bytes:
        self.pull()
        return self.twin.save(rows)

    def load(self, rows: Ints, states: Bytes) -> None:
        self.pull()
        self.twin.load(rows, states)
        self.push()

    def resample(self, rows: Ints, seat: int, key: int) -> Bytes:
        self.pull()
        return self.twin.resample(rows, seat, key)

    def restart(self) -> None:
        """Start every game from `next`, as its episode 0."""
        assert self.next.slot is self.twin.next.slot  # reading it draws the slots
        self.twin.restart()
        self.push()

    def seat_running_games(self, slots: Ints) -> None:
        """Let the players of these slots [N, seats] play the running games."""
        self.pull()
        self.twin.slot[:] = slots
        self.push()

    def set_stage(self, rows: Ints, values: Floats) -> None:
        """Start values of the next episodes of these games."""
        self.twin.set_stage(rows, values)

    def parts(self, count: int) -> list[CudaWorld]:
        """The whole world: its games are not divided among threads."""
        return [self]
