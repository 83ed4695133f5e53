"""Collects rollouts on the GPU: all steps of all games are one CUDA graph.

Nothing runs on the host between the steps. In each step one kernel per role lets the policies of all slots
act (agents/networks/cuda/act.h), and one kernel lets the scripted players act and steps the games
(kernels.cu of the world). Collectors of runs that train together (`CudaPlay`) share these launches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematch.core import rng
from rematch.core.arrays import Ints
from rematch.core.errors import ConfigError, WorldError
from rematch.core.spec import Field, Role
from rematch.rollout.cuda_play import Copy, CudaPlay, RoleActing
from rematch.rollout.cuda_rollout import DEVICE, CudaRolloutBuffer
from rematch.rollout.cuda_rollout import on_device as on_device
from rematch.rollout.rollout_buffer import RolloutBuffer
from rematch.rollout.seating import RoleSeating, Seating

MAX_SEATS, MAX_BOTS, MAX_TABLES = 4, 32, 8  # of cuda_step.h
SETTINGS = np.dtype([("key", "u8", MAX_SEATS), ("table", "u8", MAX_TABLES), ("first_step", "u8"),
                     ("failure", "u8"), ("policies", "i4", MAX_SEATS), ("bot", "i4", (MAX_SEATS, MAX_BOTS)),
                     ("games", "i4"), ("first", "i4"), ("stream", "i4")], align=True)  # fmt: skip


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
        self.first_step = self.rollout.first_step_tensor
        self.failure = torch.zeros(2, dtype=torch.int32, device=DEVICE)
        self.acting: list[RoleActing] = []
        self.prepared = False
        self.play = CudaPlay([self])

    def seat_running_games(self, slots: Ints) -> None:
        self.world.seat_running_games(slots)

    def allocate(self, columns: Collection[str]) -> None:
        """Record `states` on the GPU, for a learner there; other optional columns are the CPU's."""
        if "states" in columns:
            self.rollout.add_states(self.world.arrays["states"].shape[1])
        if others := set(columns) - {"states"}:
            raise ConfigError(
                f"device = cuda: a component reads {', '.join(sorted(others))} of every step, "
                "which only the CPU records; expected cpu"
            )

    def force(self, forced: Any) -> None:
        raise ConfigError("device = cuda: demonstrations force actions on the CPU only; expected cpu")

    def submit(self, iteration: int) -> None:
        self.before_step()
        self.rollout.clear()
        if not self.prepared:
            self._prepare()
        for acting in self.acting:
            acting.send_weights()
        self.rule = self.world.push_next()
        self.rule["first_step"] = self.first_step.data_ptr()
        self.rule["start"] = iteration * self.rollout.steps
        self.play.start(self)

    def result(self) -> RolloutBuffer:
        self.play.launch()
        numbers = self.play.numbers(self)
        self.rollout.tally, self.world.next.in_use = numbers.tally, numbers.in_use
        self.world.host_counters = numbers.counters
        kind, game = numbers.failure
        if kind:
            meaning = self.world.cuda.failures.get(kind, f"failure {kind}")
            raise WorldError(f"game {self.world.first + game}: {meaning}")
        return self.rollout

    def collect(self, iteration: int) -> RolloutBuffer:
        self.submit(iteration)
        return self.result()

    # --- the arguments of the kernels ---

    def _prepare(self) -> None:
        """Compile the kernels; the seats are final by now."""
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
        self.settings = self._settings()
        self.steps = np.array([self._step_pointers(t) for t in range(self.rollout.steps)], np.uint64)
        self.prepared = True

    def _settings(self) -> np.ndarray[Any, Any]:
        spec, settings = self.world.spec, np.zeros(1, SETTINGS)
        settings["games"], settings["first"], settings["stream"] = self.world.games, self.world.first, rng.BOT
        settings["first_step"], settings["failure"] = self.first_step.data_ptr(), self.failure.data_ptr()
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

    # --- parts of the graph ---

    def begin(self) -> list[Copy]:
        """The position after the last rollout becomes step 0."""
        rollout, world = self.rollout, self.world
        copies = [(rollout.started_tensor, world.started), (rollout.slot_tensor[0], world.slots),
                  (rollout.acting_tensor[0], world.acting)]  # fmt: skip
        for name, track in rollout.role_tracks.items():
            copies += self._joined(track.obs_tensor[0], track.role, track.role.fields)
            if track.mask_tensor is not None:
                copies.append((track.mask_tensor[0], world.mask[name]))
            if track.privileged_tensor is not None:
                copies += self._joined(track.privileged_tensor[0], track.role, track.role.privileged)
        return copies

    def written_fields(self, t: int) -> list[Copy]:
        """Where the kernel writes several fields, they are joined; a single one is written in place."""
        copies: list[Copy] = []
        for name, track in self.rollout.role_tracks.items():
            if f"obs.{name}" not in self.world.batch:
                copies += self._joined(track.obs_tensor[t], track.role, track.role.fields)
            if track.privileged_tensor is not None:
                copies += self._joined(track.privileged_tensor[t], track.role, track.role.privileged)
        return copies

    def stored_states(self, t: int) -> list[Copy]:
        """The states of the games before step t, where a learner reads them."""
        states = self.rollout.states_tensor
        return [] if states is None else [(states[t], self.world.arrays["states"])]

    def end(self) -> list[Copy]:
        """The position after the last step becomes the world's."""
        rollout, world, last = self.rollout, self.world, self.rollout.steps
        torch.ne(rollout.ended_tensor[-1], 0, out=world.started)
        copies = [(world.slots, rollout.slot_tensor[last]), (world.acting, rollout.acting_tensor[last])]
        for name, track in rollout.role_tracks.items():
            if f"obs.{name}" in world.batch:
                (field,) = track.role.fields
                copies.append((world.fields[f"{name}.{field.name}"], track.obs_tensor[last]))
            if track.mask_tensor is not None:
                copies.append((world.mask[name], track.mask_tensor[last]))
        return copies

    def _joined(self, to: Tensor, role: Role, fields: Sequence[Field]) -> list[Copy]:
        """The fields of a role side by side, as the columns `to` of one step."""
        copies, column = [], 0
        for field in fields:
            columns = to[..., column : column + field.size]
            source = self.world.fields[f"{role.name}.{field.name}"]
            copies.append((columns, source.reshape(columns.shape)))
            column += field.size
        return copies
