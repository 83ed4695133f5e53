"""Policies that version 0.1 exported or stored: their arrays have older names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.single_seat_worlds import SIZES

from rematch import api
from rematch.agents import policy_export
from rematch.agents.learners import dqn
from rematch.agents.learners.q_policy import QPolicy
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.evaluation import past_policies
from rematch.storage import policy_files
from rematch.worlds import registry

pytestmark = pytest.mark.usefixtures("blank_pictures")

TRANSFORMER = """
embed.table embed.weight embed.bias FIELDS place.table
layer.0.first.scale layer.0.first.bias layer.0.ask.weight layer.0.ask.bias
layer.0.told.weight layer.0.told.bias
layer.0.second.scale layer.0.second.bias
layer.0.up.weight layer.0.up.bias layer.0.down.weight layer.0.down.bias
last.scale last.bias policy.head.weight policy.head.bias value.head.weight value.head.bias
"""
Q_NETWORK = """
eye.convs.0.weight eye.convs.0.bias eye.convs.1.weight eye.convs.1.bias eye.convs.2.weight eye.convs.2.bias
eye.norms.0.weight eye.norms.0.bias eye.norms.1.weight eye.norms.1.bias eye.norms.2.weight eye.norms.2.bias
map.weight map.bias table.weight mix.weight count.weight count.bias mixed.weight mixed.bias
layers.gru.look.weight layers.gru.look.bias layers.gru.recall.weight layers.gru.recall.bias
layers.lstm.look.weight layers.lstm.look.bias layers.lstm.recall.weight
layers.ssm.fading layers.ssm.angle layers.ssm.look.weight layers.ssm.tell.weight layers.ssm.tell.bias
layers.ssm.through.weight layers.ssm.through.bias
norms.gru.weight norms.gru.bias norms.lstm.weight norms.lstm.bias norms.ssm.weight norms.ssm.bias
first.weight first.bias firsts.weight firsts.bias value.weight value.bias advantage.weight advantage.bias
"""


def transformer() -> tuple[Any, Policy]:
    network = NetworkConfig(kind="transformer", width=8, heads=2, layers=1, embedding=4)
    config = settings.replace(api.default("beasty"), {"threads": 1})
    policy = Policy(registry.find("beasty").spec(config.world).roles["player"], network, "transformer")
    return config, policy


def q_network() -> tuple[Any, Policy]:
    changes = {"learner": "dqn", "dqn.ssm": "complex", "world.cartridge": "tiny"}
    config = settings.replace(api.default("gameboy"), changes)
    return config, QPolicy(registry.find("gameboy").spec(config.world).roles["joypad"], config.dqn, "q")


def old_arrays(policy: Policy, names: str) -> dict[str, Any]:
    """The weights of the policy under their old names."""
    policy.initialise(4)
    arrays = policy.arrays()
    fields = " ".join(name for name in arrays if name.startswith("field."))
    old = names.replace("FIELDS", fields).split()
    assert len(old) == len(arrays)
    return dict(zip(old, arrays.values()))


@pytest.mark.parametrize(("build", "names"), [(transformer, TRANSFORMER), (q_network, Q_NETWORK)])
def test_policy_with_old_weight_names_is_read(
    build: Any, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    config, policy = build()
    arrays = old_arrays(policy, names)
    assert set(arrays) & set(policy.arrays()) != set(arrays), "some names are old"
    metadata = past_policies.policy_metadata(config, policy, 3)
    path = policy_files.write_file(tmp_path / "old.safetensors", arrays, metadata, replace=False)
    exported = policy_export.read(path).policy
    assert np.array_equal(exported.weights, policy.weights) and policy.weights.any()
    copy = build()[1]
    copy.load_arrays(arrays)  # past policies: names have a prefix in the file
    assert np.array_equal(copy.weights, policy.weights)


def test_exported_agents_with_old_weight_names_are_read() -> None:
    for file in ("beasty/agent_first.safetensors", "gameboy/agent.safetensors"):
        path = Path(registry.__file__).parent / file
        assert policy_export.read(path).policy.weights.any()
