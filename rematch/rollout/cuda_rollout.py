"""The rollout buffer on the GPU: tensors; a component that reads a column gets a copy on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematch.core.spec import Role, Spec
from rematch.rollout.rollout_buffer import (
    ColumnReads,
    FinishedGames,
    RewardTerm,
    RoleRollout,
    RolloutBuffer,
    Tally,
)

DEVICE = torch.device("cuda")


def on_device(struct: np.ndarray[Any, Any]) -> Tensor:
    """The bytes of C structs, on the GPU."""
    return torch.from_numpy(struct.view(np.uint8).reshape(-1)).to(DEVICE)


class HostCopies:
    """Attributes that are copied from the GPU when they are read first in a rollout."""

    sources: dict[str, Callable[[], Tensor]]

    def __getattr__(self, name: str) -> Any:
        source = self.__dict__.get("sources", {}).get(name)
        if source is None:
            raise AttributeError(name)
        self.__dict__[name] = copy = source().cpu().numpy()
        return copy

    def forget_copies(self) -> None:
        for name in self.sources:
            self.__dict__.pop(name, None)


class CudaRoleRollout(HostCopies, RoleRollout):
    """One role's columns; T + 1 entries where the position after the last step has one too."""

    def __init__(self, role: Role, steps: int, games: int, shared: CudaRolloutBuffer) -> None:
        k, discrete, size = len(role.seats), role.actions.kind == "discrete", role.actions.size
        after = (steps + 1, games, k)
        seats = slice(role.seats[0], role.seats[0] + k)
        self.role, self.mask, self.privileged = role, None, None
        self.reads = shared.reads
        self.reward_terms: dict[str, RewardTerm] = {}
        self.obs_tensor = torch.zeros((*after, role.size), device=DEVICE)
        self.mask_tensor: Tensor | None = None
        self.privileged_tensor: Tensor | None = None  # [T + 1, N, k, P], where a critic reads it
        self.input_tensor: Tensor | None = None
        shape = (steps, games, k) if discrete else (steps, games, k, size)
        self.action_tensor = torch.zeros(
            shape, dtype=torch.int32 if discrete else torch.float32, device=DEVICE
        )
        self.logp_tensor, self.value_tensor = (
            torch.zeros(after, device=DEVICE),
            torch.zeros(after, device=DEVICE),
        )
        self.seats = seats
        self.sources = {
            "obs": lambda: self.obs_tensor[:steps], "action": lambda: self.action_tensor,
            "logp": lambda: self.logp_tensor[:steps], "value": lambda: self.value_tensor[:steps],
            "reward": lambda: shared.reward_tensor[:, :, seats],
            "outcome": lambda: shared.outcome_tensor[:, :, seats],
            "acted": lambda: shared.acting_tensor[:steps, :, seats],
            "slot": lambda: shared.slot_tensor[:steps, :, seats],
            "cut_value": lambda: torch.zeros((steps, games, k)),
            "last_value": lambda: self.value_tensor[steps],
            "last_acting": lambda: shared.acting_tensor[steps, :, seats],
        }  # fmt: skip

    def store_inputs(self, size: int) -> Tensor:
        """[T, N, k, size] what the first layer read, where the learner decided; for learning."""
        shape = (*self.logp_tensor[1:].shape, size)
        self.input_tensor = torch.zeros(shape, dtype=torch.bfloat16, device=DEVICE)
        return self.input_tensor

    def add_mask(self) -> None:
        """The world masks actions."""
        shape = (*self.logp_tensor.shape, self.role.actions.size)
        self.mask_tensor = torch.zeros(shape, dtype=torch.uint8, device=DEVICE)
        del self.__dict__["mask"]
        steps = shape[0] - 1
        self.sources["mask"] = lambda: self.mask_tensor[:steps]  # type: ignore[index]


    def add_privileged(self) -> None:
        """A critic reads privileged fields."""
        shape = (*self.logp_tensor.shape, self.role.privileged_size)
        self.privileged_tensor = torch.zeros(shape, device=DEVICE)
        del self.__dict__["privileged"]
        steps = shape[0] - 1
        self.sources["privileged"] = lambda: self.privileged_tensor[:steps]  # type: ignore[index]


class CudaRolloutBuffer(HostCopies, RolloutBuffer):
    """The columns of all roles, and those that they share: [T, N, seats] or [T, N]."""

    def __init__(self, spec: Spec, steps: int, games: int, one_seat_acts: bool = False) -> None:
        self.steps, self.games, self.one_seat_acts = steps, games, one_seat_acts
        self.reads = ColumnReads()
        per_seat, after = (steps, games, spec.seats), (steps + 1, games, spec.seats)
        self.reward_tensor, self.outcome_tensor = (torch.zeros(per_seat, device=DEVICE) for _ in range(2))
        self.ended_tensor = torch.zeros((steps, games), dtype=torch.uint8, device=DEVICE)
        self.length_tensor = torch.zeros((steps, games), dtype=torch.int32, device=DEVICE)
        self.slot_tensor = torch.zeros(after, dtype=torch.int32, device=DEVICE)
        self.acting_tensor = torch.ones(after, dtype=torch.uint8, device=DEVICE)
        self.first_step_tensor = torch.zeros(1, dtype=torch.int64, device=DEVICE)  # of this run
        self.started_tensor = torch.ones(games, dtype=torch.bool, device=DEVICE)
        self.sources = {
            "ended": lambda: self.ended_tensor,
            "length": lambda: self.length_tensor,
            "started": lambda: self.started_tensor,
        }
        self.role_tracks = {
            name: CudaRoleRollout(role, steps, games, self) for name, role in spec.roles.items()
        }
        self.tracks: dict[str, RoleRollout] = dict(self.role_tracks)
        self.events, self.captured, self.forced_events, self.episode_infos = [], [], [], []
        self.states, self.forced, self.demo_index = None, None, None
        self.states_tensor: Tensor | None = None  # [T, N, S] before each step, where a learner reads them
        self._finished: FinishedGames | None = None
        self.tally: Tally | None = None

    def add_states(self, size: int) -> None:
        """A learner reads the states of the games; `size`: bytes of one."""
        shape = (self.steps, self.games, size)
        states = self.states_tensor = torch.zeros(shape, dtype=torch.uint8, device=DEVICE)
        self.sources["states"] = lambda: states
        del self.__dict__["states"]

    def clear(self) -> None:
        super().clear()
        self._finished = None
        self.forget_copies()
        for track in self.role_tracks.values():
            track.forget_copies()

    def finished(self) -> FinishedGames:
        """As RolloutBuffer.finished: only these games are copied to the host."""
        for column in ("slot", "outcome", "length"):
            self.reads.record(f"{column} of finished games")
        if self._finished is None:
            rows = torch.nonzero(self.ended_tensor.reshape(-1)).reshape(-1)
            seats = self.outcome_tensor.shape[2]
            slot = self.slot_tensor[:-1].reshape(-1, seats)[rows].cpu().numpy()
            outcome = self.outcome_tensor.reshape(-1, seats)[rows].cpu().numpy()
            length = self.length_tensor.reshape(-1)[rows].cpu().numpy()
            parts = {name: track.seats for name, track in self.role_tracks.items()}
            self._finished = FinishedGames(
                slot={name: slot[:, part] for name, part in parts.items()},
                outcome={name: outcome[:, part] for name, part in parts.items()},
                length=length,
            )
        return self._finished
