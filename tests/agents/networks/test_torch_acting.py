"""Acting with torch in the rollout's graph beside the networks of the CPU, row by row, without a GPU."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.emulated_worlds import emulated_gpu
from support.torch_rollouts import FIRST, GAMES, SEED, SLOTS, STEPS, SUBJECTS, collector_of

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.torch_acting import TorchRoleActing
from rematch.agents.policy import Policy
from rematch.core import rng
from rematch.core.errors import ConfigError
from rematch.rollout.cuda_collector import CudaCollector

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the emulation"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # attention of the CPU in tiles
]
__all__ = ["emulated_gpu"]
def expected(collector: CudaCollector, role: str, t: int, step: int) -> dict[str, Any]:
    """What the network of the CPU does in the same rows."""
    track, seating = collector.rollout.role_tracks[role], collector.seating[role]
    rows, action = GAMES * len(track.role.seats), track.action[t].reshape(-1, *track.action.shape[3:])
    out = [np.zeros_like(action), np.zeros(rows, np.float32), np.zeros(rows, np.float32)]
    number = np.arange(FIRST * len(track.role.seats), FIRST * len(track.role.seats) + rows, dtype=np.uint32)
    slot, acting = (np.ascontiguousarray(column[t]).reshape(-1) for column in (track.slot, track.acted))
    seating.policy.network.act(
        seating.packed, slot, track.obs[t].reshape(rows, -1), number,
        (rng.key(SEED, rng.ACT, track.role.seats[0]), step), *out, acting=acting,
        mask=None if track.mask is None else track.mask[t].reshape(rows, -1),
        privileged=None if track.privileged is None else track.privileged[t].reshape(rows, -1),
    )  # fmt: skip
    return dict(zip(("action", "logp", "value"), out))


@pytest.mark.parametrize("slots", [1, SLOTS])
@pytest.mark.parametrize("subject", SUBJECTS)
def test_rows_act_as_on_the_cpu(subject: str, slots: int, emulated_gpu: None) -> None:
    collector, iteration, compared = collector_of(subject, slots), 2**33, set()
    for _ in range(2):
        rollout = collector.collect(iteration)
        for role, track in collector.rollout.role_tracks.items():
            for t in range(STEPS):
                reference = expected(collector, role, t, iteration * STEPS + t)
                acts = ((track.acted[t] != 0) & (track.slot[t] < slots)).reshape(-1)
                compared.update(track.slot[t].reshape(-1)[acts].tolist())
                for name, column in reference.items():
                    found = getattr(rollout[role], name)[t].reshape(column.shape)
                    np.testing.assert_allclose(found[acts], column[acts], atol=2e-4, err_msg=name)
        iteration += 1
    assert compared == set(range(slots))


def test_last_values_are_those_of_the_learner(emulated_gpu: None) -> None:
    collector = collector_of("two towers, privileged")
    collector.collect(0)
    track, seating = collector.rollout.role_tracks["player"], collector.seating["player"]
    assert track.privileged_tensor is not None
    last = (tensor[-1].flatten(0, 1).numpy() for tensor in (track.obs_tensor, track.privileged_tensor))
    obs, privileged = last
    learner = Policy(track.role, seating.policy.config, "learner", seating.placed[0])
    values = learner.forward(obs, privileged=privileged)[1]
    np.testing.assert_allclose(track.last_value.reshape(-1), values, atol=1e-5)


def test_privileged_columns_are_those_of_the_world(emulated_gpu: None) -> None:
    collector = collector_of("two towers, privileged")
    rollout = collector.collect(0)
    fields = collector.world.view.fields["player"]
    assert collector.rollout.role_tracks["player"].privileged_tensor is not None
    last = collector.rollout.role_tracks["player"].privileged_tensor[-1].numpy()
    assert np.array_equal(last, np.concatenate([fields["hands"], fields["next"]], -1))
    assert np.asarray(rollout["player"].host("privileged")).shape[0] == STEPS


def test_changed_weights_act_in_the_next_rollout(emulated_gpu: None) -> None:
    collector = collector_of("categories")
    collector.collect(0)
    seating = collector.seating["pursuer"]
    seating.place(1, np.zeros_like(seating.placed[1]))
    track = collector.collect(1)["pursuer"]
    of_slot = track.slot == 1
    assert of_slot.any() and np.allclose(track.logp[of_slot], np.log(1 / 3))
    assert not np.allclose(track.logp[track.slot == 0], np.log(1 / 3))


@given(st.data())
def test_every_acting_row_has_a_place_in_a_tile_of_its_slot(data: Any) -> None:
    rows, slots, tile = (data.draw(st.integers(1, most)) for most in (60, 5, 9))
    slot = torch.tensor(data.draw(st.lists(st.integers(0, slots + 1), min_size=rows, max_size=rows)))
    acting = torch.tensor(data.draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)))
    tiles = -(-rows // tile) + slots
    sizes: Any = SimpleNamespace(slots=slots, rows=rows, tile=tile, tiles=tiles, device="cpu")
    source, place, tile_slot = TorchRoleActing._arrange(sizes, slot, acting)
    computed = (acting != 0) & (slot < slots)
    assert torch.equal(source[place[computed]], torch.arange(rows)[computed])
    assert torch.equal(tile_slot[place[computed] // tile], slot[computed])
    assert len(set(place[computed].tolist())) == int(computed.sum())


def test_user_module_that_cannot_act_in_tiles_is_one_line(
    emulated_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = collector_of("categories")
    for seating in collector.seating.values():
        seating.policy.config = NetworkConfig(module="mine.py:Net")  # type: ignore[misc]
    monkeypatch.setattr(TorchRoleActing, "act", _fails)
    monkeypatch.setattr("rematch.agents.networks.torch_acting.layout", lambda role, config: [])
    monkeypatch.setattr("rematch.agents.networks.torch_acting.SlotWeights.set", lambda *arguments: None)
    with pytest.raises(ConfigError, match=r"network.module = mine.py:Net: cannot act on the GPU: no batch"):
        collector.collect(0)


def _fails(*arguments: Any) -> None:
    raise RuntimeError("no batching rule\nfor this operation")
