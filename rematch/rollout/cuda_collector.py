"""Collects rollouts on the GPU: all steps of all games are one CUDA graph.

Nothing runs on the host between the steps. In each step one kernel per role lets the policies of all slots
act (agents/networks/cuda/act.h), and one kernel lets the scripted players act and steps the games
(kernels.cu of the world).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rematch.core import rng
from rematch.core.arrays import Ints
from rematch.core.errors import ConfigError, WorldError
from rematch.core.spec import Field, Role
from rematch.core.system.cuda import record_graph, side_by_side
from rematch.rollout.cuda_rollout import DEVICE, CudaRolloutBuffer
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.seating import RoleSeating, Seating

GAMES_PER_BLOCK = 64
MAX_SEATS, MAX_BOTS, MAX_TABLES = 4, 32, 8  # of cuda_step.h
SETTINGS = np.dtype([("key", "u8", MAX_SEATS), ("table", "u8", MAX_TABLES), ("policies", "i4", MAX_SEATS),
                     ("bot", "i4", (MAX_SEATS, MAX_BOTS)), ("games", "i4"), ("first", "i4")],
                    align=True)  # fmt: skip


def on_device(struct: np.ndarray[Any, Any]) -> Tensor:
    """The bytes of C structs, on the GPU."""
    return torch.from_numpy(struct.view(np.uint8).reshape(-1)).to(DEVICE)


class RoleActing(Protocol):
    """The policies of one role: agents/networks/cuda_acting.py."""

    seating: RoleSeating

    def send_weights(self) -> None:
        """Send the slots that were filled since the last rollout."""

    def act(self, t: int, first_step: Tensor, only_values: bool = False) -> None:
        """Launch the kernel of step t; only_values: of the learner, for the position after the last step."""

    def join(self, other: Any) -> bool:
        """Whether one launch serves this role and the other from now on."""


MakeActing = Callable[[Role, RoleSeating, CudaRolloutBuffer, int, int], RoleActing]


class CudaCollector:
    """See rollout.collector.Collector."""

    lag = 0

    def __init__(self, world: Any, seating: Seating, steps: int, seed: int, make_acting: MakeActing) -> None:
        self.world, self.seating, self.seed, self.make_acting = world, seating, seed, make_acting
        self.before_step: Callable[[], None] = lambda: None
        self.rollout = CudaRolloutBuffer(world.spec, steps, world.games, world.cuda.one_seat_acts)
        for role in world.mask:
            self.rollout.role_tracks[role].add_mask()
        for role, seats in seating.items():
            if seats.policy.config.reads_privileged:
                self.rollout.role_tracks[role].add_privileged()
        self.first_step = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        self.failure = torch.zeros(2, dtype=torch.int32, device=DEVICE)
        self.graph: Any = None  # torch.cuda.CUDAGraph, recorded before the first rollout
        self.acting: list[RoleActing] = []

    def seat_running_games(self, slots: Ints) -> None:
        self.world.seat_running_games(slots)

    def allocate(self, columns: Collection[str]) -> None:
        if columns:
            raise ConfigError(
                f"device = cuda: a component reads {', '.join(sorted(columns))} of every step, "
                "which only the CPU records; expected cpu"
            )

    def force(self, forced: Any) -> None:
        raise ConfigError("device = cuda: demonstrations force actions on the CPU only; expected cpu")

    def submit(self, iteration: int) -> None:
        self.before_step()
        self.rollout.clear()
        if self.graph is None:
            self._prepare()
        for acting in self.acting:
            acting.send_weights()
        self.world.push_next()
        self.first_step.fill_(iteration * self.rollout.steps)
        self.graph.replay()

    def result(self) -> RolloutBuffer:
        kind, game = self.failure.tolist()
        if kind:
            meaning = self.world.cuda.failures.get(kind, f"failure {kind}")
            raise WorldError(f"game {self.world.first + game}: {meaning}")
        return self.rollout

    def collect(self, iteration: int) -> RolloutBuffer:
        self.submit(iteration)
        return self.result()

    # --- the graph ---

    def _prepare(self) -> None:
        """Compile the kernels and record the graph; the seats are final by now."""
        spec = self.world.spec
        self.acting = [
            self.make_acting(role, self.seating[name], self.rollout,
                             rng.key(self.seed, rng.ACT, role.seats[0]), self.world.first)
            for name, role in spec.roles.items()
            if len(self.seating[name].packed)
        ]  # fmt: skip
        for acting in self.acting:
            acting.seating.changed.update(acting.seating.placed)
            acting.send_weights()
        self.launches: list[RoleActing] = []
        for acting in self.acting:
            if not any(launch.join(acting) for launch in self.launches):
                self.launches.append(acting)
        self.step_kernel = self.world.program.kernel("step_games")
        self.settings = on_device(self._settings())
        self.steps = on_device(
            np.array([self._step_pointers(t) for t in range(self.rollout.steps)], np.uint64)
        )
        self.graph = record_graph(self._play)

    def _settings(self) -> np.ndarray[Any, Any]:
        spec, settings = self.world.spec, np.zeros(1, SETTINGS)
        settings["games"], settings["first"] = self.world.games, self.world.first
        for number, table in enumerate(self.world.tables.values()):
            settings["table"][0, number] = table.data_ptr()
        for role in spec.roles.values():
            seating = self.seating[role.name]
            numbers = [self.world.cuda.bot_number(player) for player in seating.others]
            foreign = [player.name for player, number in zip(seating.others, numbers) if number is None]
            if foreign or len(numbers) > MAX_BOTS:
                raise ConfigError(
                    f"device = cuda: {', '.join(foreign) or f'{len(numbers)} players'} cannot be seated "
                    "on the GPU; expected cpu"
                )
            for seat in role.seats:
                settings["key"][0, seat] = rng.key(self.seed, rng.BOT, seat)
                settings["policies"][0, seat] = len(seating.packed)
                settings["bot"][0, seat, : len(numbers)] = numbers
        return settings

    def _step_pointers(self, t: int) -> list[int]:
        """`StepArrays` of cuda_step.h: the members of Batch, then the slots before and after the step."""
        arrays, slot = self._arrays(t), self.rollout.slot_tensor
        tensors = [*(arrays[name] for name in self.world.batch), slot[t], slot[t + 1]]
        return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]

    def _arrays(self, t: int) -> dict[str, Tensor | None]:
        """The arrays of step t by the names that `Cuda.batch` uses; observations are those after the step."""
        rollout, world = self.rollout, self.world
        tensors: dict[str, Tensor | None] = dict.fromkeys(("", *world.cuda.arrays))  # may have no array
        tensors |= {
            "reward": rollout.reward_tensor[t], "outcome": rollout.outcome_tensor[t],
            "ended": rollout.ended_tensor[t], "length": rollout.length_tensor[t],
            "acting": rollout.acting_tensor[t + 1],
        }  # fmt: skip
        tensors |= world.arrays
        tensors |= {f"next.{name}": tensor for name, tensor in world.next_tensors.items()}
        tensors |= {f"field.{name}": tensor for name, tensor in world.fields.items()}
        for name, track in rollout.role_tracks.items():
            tensors[f"action.{name}"], tensors[f"obs.{name}"] = (
                track.action_tensor[t],
                track.obs_tensor[t + 1],
            )
            if track.mask_tensor is not None:
                tensors[f"mask.{name}"] = track.mask_tensor[t + 1]
        return tensors

    def _play(self) -> None:
        """What the graph records: the position after the last rollout becomes step 0, then all steps."""
        rollout, world, last = self.rollout, self.world, self.rollout.steps
        rollout.started_tensor.copy_(world.started)
        rollout.slot_tensor[0].copy_(world.slots)
        rollout.acting_tensor[0].copy_(world.acting)
        self._join_fields(0)
        for t in range(last):
            side_by_side([partial(acting.act, t, self.first_step) for acting in self.launches])
            self.step_games(t)
            self._join_written_fields(t + 1)
        side_by_side(
            [partial(acting.act, last, self.first_step, only_values=True) for acting in self.launches]
        )
        world.started.copy_(rollout.ended_tensor[-1] != 0)
        world.slots.copy_(rollout.slot_tensor[last])
        world.acting.copy_(rollout.acting_tensor[last])
        self._split_fields(last)

    def step_games(self, t: int) -> None:
        """Launch the kernel of the world: scripted players act, games step."""
        blocks = -(-self.world.games // GAMES_PER_BLOCK)
        self.step_kernel(
            (blocks, 1), GAMES_PER_BLOCK, self.steps, t, self.settings, self.first_step, self.failure
        )

    def _join_fields(self, t: int) -> None:
        """The observations and masks of step t from the world's."""
        for name, track in self.rollout.role_tracks.items():
            self._join(track.obs_tensor[t], track.role, track.role.fields)
            if track.mask_tensor is not None:
                track.mask_tensor[t].copy_(self.world.mask[name])
            if track.privileged_tensor is not None:
                self._join(track.privileged_tensor[t], track.role, track.role.privileged)

    def _join_written_fields(self, t: int) -> None:
        """Where the kernel writes several fields, they are joined; a single one is written in place."""
        for name, track in self.rollout.role_tracks.items():
            if f"obs.{name}" not in self.world.batch:
                self._join(track.obs_tensor[t], track.role, track.role.fields)
            if track.privileged_tensor is not None:
                self._join(track.privileged_tensor[t], track.role, track.role.privileged)

    def _join(self, columns: Tensor, role: Role, fields: Sequence[Field]) -> None:
        tensors = [self.world.fields[f"{role.name}.{field.name}"] for field in fields]
        if len(tensors) == 1:
            columns.copy_(tensors[0])
        else:
            torch.cat(tensors, -1, out=columns)

    def _split_fields(self, t: int) -> None:
        """The world's fields and masks from the observations of step t."""
        for name, track in self.rollout.role_tracks.items():
            if f"obs.{name}" in self.world.batch:
                (field,) = track.role.fields
                self.world.fields[f"{name}.{field.name}"].copy_(track.obs_tensor[t])
            if track.mask_tensor is not None:
                self.world.mask[name].copy_(track.mask_tensor[t])
