"""Rollouts of one run, or of several runs that train together, as one launch, and their results."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rematch.core.spec import Spec
from rematch.core.system import cuda
from rematch.rollout.cuda_rollout import DEVICE, on_device
from rematch.rollout.rollout_buffer import Tally
from rematch.rollout.seating import RoleSeating
from rematch.worlds.cuda_world import GAMES_PER_BLOCK, SLOT_RULE

if TYPE_CHECKING:
    from rematch.rollout.cuda_collector import CudaCollector

MAX_COUNTERS = 4  # of cuda_step.h
ENDED, LENGTH, FIRST_COUNTER, FIRST_SEAT, FIRST_SLOT = 2, 3, 4, 8, 2  # of its results
POINTERS = ("ended", "outcome", "length", "slot", "states", "failure", "out")
INTEGERS = ("steps", "games", "slots", "state_bytes", "counters")
TALLY = np.dtype([*((name, "u8") for name in POINTERS), *((name, "i4") for name in INTEGERS),
                  ("counter_at", "i4", MAX_COUNTERS)], align=True)  # fmt: skip


class RoleActing(Protocol):
    """The policies of one role: agents/networks/cuda_acting.py."""

    seating: RoleSeating

    def send_weights(self) -> None:
        """Send the slots that were filled since the last rollout."""

    def act(self, t: int, first_step: Tensor, only_values: bool = False) -> None:
        """Launch the kernel of step t; only_values: of the learner, for the position after the last step."""

    def join(self, other: Any) -> bool:
        """Whether one launch serves this role and the other from now on."""


Copy = tuple[Tensor, Tensor]  # to, from


def copy_all(copies: Sequence[Copy]) -> None:
    """Many copies in few launches: one for all of a type."""
    for dtype in dict.fromkeys(to.dtype for to, _ in copies):
        pairs = [pair for pair in copies if pair[0].dtype == dtype]
        torch._foreach_copy_([to for to, _ in pairs], [source for _, source in pairs])


def tally_of(row: Sequence[int], slots: int, spec: Spec) -> Tally:
    """The results of cuda_step.h; scores are there in quarters."""
    learner, opponents = {}, {}
    for seat in range(spec.seats):
        role, first = spec.role_of(seat).name, FIRST_SEAT + seat * (FIRST_SLOT + 2 * slots)
        learner[role] = (row[first], row[first + 1] / 4)
        counts = np.array(row[first + FIRST_SLOT : first + FIRST_SLOT + 2 * slots], np.float64)
        opponents[role] = (counts[::2], counts[1::2] / 8)
    return Tally(row[ENDED], row[LENGTH], learner, opponents)


class Launches:
    """The kernels of one rollout of some collectors, whose worlds have the same rules and sizes."""

    def __init__(self, collectors: Sequence[CudaCollector]) -> None:
        self.collectors = list(collectors)
        first = self.collectors[0]
        self.count, self.games = first.rollout.steps, first.world.games
        self.acting: list[RoleActing] = []
        for collector in self.collectors:
            for acting in collector.acting:
                if not any(launch.join(acting) for launch in self.acting):
                    self.acting.append(copy.copy(acting))
        self.first_step = first.first_step
        self.settings = on_device(np.concatenate([collector.settings for collector in self.collectors]))
        self.steps = on_device(np.concatenate([collector.steps for collector in self.collectors]))
        self.numbers = RolloutNumbers(self.collectors)
        self.begin_kernel = first.world.program.kernel("begin_rollout")
        rule_bytes = len(self.collectors) * SLOT_RULE.itemsize
        self.host_rules = cuda.pinned(torch.zeros(rule_bytes, dtype=torch.uint8))
        self.rules = self.host_rules.to(DEVICE, copy=True)

    def begin(self) -> None:
        """Before the graph: number the steps, draw the slots of the next games."""
        rules = np.concatenate([collector.rule for collector in self.collectors])
        self.host_rules.numpy()[:] = rules.view(np.uint8).reshape(-1)
        self.rules.copy_(self.host_rules, non_blocking=True)
        grid = (-(-self.games // GAMES_PER_BLOCK), len(self.collectors))
        self.begin_kernel(grid, GAMES_PER_BLOCK, self.rules)

    def numbers_of(self, collector: CudaCollector) -> CollectorNumbers:
        place, numbers = self.collectors.index(collector), self.numbers
        row = numbers.host[place].tolist()
        counters = dict(zip(numbers.names, row[FIRST_COUNTER:])) if numbers.simple else None
        tally = tally_of(row, numbers.slots, collector.world.spec) if numbers.simple else None
        in_use = np.array(row[-2 * numbers.slots :]).reshape(2, -1) if numbers.simple else None
        return CollectorNumbers((row[0], row[1]), in_use, counters, tally)

    def play(self) -> None:
        """What the graph records: all steps of all games."""
        copy_all([pair for collector in self.collectors for pair in collector.begin()])
        for t in range(self.count):
            copy_all([pair for collector in self.collectors for pair in collector.stored_states(t)])
            cuda.side_by_side([partial(acting.act, t, self.first_step) for acting in self.acting])
            self.step_games(t)
            copy_all([pair for collector in self.collectors for pair in collector.written_fields(t + 1)])
        cuda.side_by_side(
            [partial(acting.act, self.count, self.first_step, only_values=True) for acting in self.acting]
        )
        copy_all([pair for collector in self.collectors for pair in collector.end()])
        self.numbers.record()

    def step_games(self, t: int) -> None:
        """Launch the kernels of the world: scripted players act, games step."""
        world = self.collectors[0].world
        world.launch_step((len(self.collectors), self.games), self.steps, (t, self.count), self.settings)


class RolloutNumbers:
    """What the host reads of a rollout: in pinned memory, copied when the rollout ends."""

    def __init__(self, collectors: Sequence[CudaCollector]) -> None:
        first = collectors[0]
        world, seats = first.world, len(first.world.spec.roles)
        self.names: tuple[str, ...] = tuple(world.cuda.counters)
        self.simple = world.spec.seats == len(world.spec.roles) == 2 and "optional" not in world.arrays
        self.simple = self.simple and len(self.names) <= MAX_COUNTERS
        self.slots = max(len(seating.player_names()) for seating in first.seating.values())
        self.size = FIRST_SEAT + seats * (FIRST_SLOT + 3 * self.slots)
        self.device = torch.zeros((len(collectors), self.size), dtype=torch.int64, device=DEVICE)
        self.host = cuda.pinned(torch.zeros((len(collectors), self.size), dtype=torch.int64))
        self.collectors = list(collectors)
        if self.simple:
            self._prepare(collectors)

    def _prepare(self, collectors: Sequence[CudaCollector]) -> None:
        """The kernel that counts, and its arguments."""
        self.kernel = collectors[0].world.program.kernel("tally")
        structs = np.zeros(len(collectors), TALLY)
        for struct, out, collector in zip(structs, self.device, collectors):
            rollout, states = collector.rollout, collector.world.arrays["states"]
            members = collector.world.twin.game_type.fields
            tensors = {"ended": rollout.ended_tensor, "outcome": rollout.outcome_tensor,
                       "length": rollout.length_tensor, "slot": rollout.slot_tensor, "states": states,
                       "failure": collector.failure, "out": out}  # fmt: skip
            for name, tensor in tensors.items():
                struct[name] = tensor.data_ptr()
            struct["steps"], struct["games"], struct["slots"] = rollout.steps, rollout.games, self.slots
            struct["state_bytes"], struct["counters"] = states.shape[1], len(self.names)
            struct["counter_at"][: len(self.names)] = [members[name][1] for name in self.names]
        self.arguments = on_device(structs)

    def record(self) -> None:
        """Part of the graph: count, and copy to the host."""
        if self.simple:
            self.device.zero_()
            blocks = -(-self.collectors[0].world.games // GAMES_PER_BLOCK)
            self.kernel((blocks, len(self.collectors)), GAMES_PER_BLOCK, self.arguments)
        else:
            for out, collector in zip(self.device, self.collectors):
                out[:2].copy_(collector.failure)
        self.host.copy_(self.device, non_blocking=True)


@dataclass(frozen=True)
class CollectorNumbers:
    """The numbers of one collector's newest rollout."""

    failure: tuple[int, int]
    in_use: Any  # [seats, slots] not 0 where a slot plays a seat of a running game; None: not counted
    counters: dict[str, int] | None
    tally: Tally | None


class CudaPlay:
    """Collectors whose rollouts are one launch: those of one run, or of several runs that train together."""

    def __init__(self, collectors: Sequence[CudaCollector]) -> None:
        self.collectors = list(collectors)
        for collector in self.collectors:
            collector.play = self
        self.started: list[CudaCollector] = []
        self.graphs: dict[tuple[int, ...], Any] = {}  # places of collectors -> torch.cuda.CUDAGraph
        self.launches: dict[tuple[int, ...], Launches] = {}  # what the graphs read
        self.newest: Launches | None = None
        self.waiting = False

    def start(self, collector: CudaCollector) -> None:
        """Play a rollout of this collector in the next launch."""
        self.started.append(collector)

    def launch(self) -> None:
        """Launch the rollouts of all collectors that were started since the last launch."""
        if not self.started:
            return
        started, self.started = self.started, []
        places = tuple(sorted(self.collectors.index(collector) for collector in started))
        if places not in self.graphs:
            self.launches[places] = Launches([self.collectors[place] for place in places])
            self.graphs[places] = cuda.record_graph(self.launches[places].play)
        self.newest = self.launches[places]
        self.newest.begin()
        self.graphs[places].replay()
        self.waiting = True

    def numbers(self, collector: CudaCollector) -> CollectorNumbers:
        """The results of the newest rollout of a collector, after its end."""
        if self.waiting:
            cuda.wait_for_stream()
            self.waiting = False
        assert self.newest is not None
        return self.newest.numbers_of(collector)
