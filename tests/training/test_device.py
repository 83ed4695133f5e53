"""The setting `device`: one line where a GPU cannot be used, and what `auto` stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rematch import api
from rematch.agents.build import build_agents
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.system import cuda
from rematch.training.config import components_of, section
from rematch.training.device import chosen_device, settings_need_cpu
from rematch.training.fingerprint import fingerprint
from rematch.training.setup import RunSetup
from rematch.training.trained_run import with_available_device


def check_all(changes: dict[str, Any], recipe: str = "pursuit") -> None:
    """The checks that a run makes before it is built."""
    config = api.configure(recipe, changes=changes)
    for kind in components_of(config):
        kind.check(section(config, kind), RunSetup(config))


def on_gpu(recipe: str) -> Any:
    """The settings of a run that trained on a GPU."""
    return settings.replace(api.configure(recipe), {"device": "cuda"})


def test_recipe_pursuit_can_train_on_a_gpu() -> None:
    assert settings_need_cpu(RunSetup(api.configure("pursuit"))) == ""


@pytest.mark.skipif(not cuda.no_gpu(), reason="this machine has a GPU")
def test_cuda_without_a_gpu_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^device = cuda: .*; expected cpu$"):
        check_all({"device": "cuda"})


@pytest.mark.skipif(not cuda.no_gpu(), reason="this machine has a GPU")
def test_auto_is_the_processor_where_there_is_no_gpu() -> None:
    assert api.configure("pursuit", changes={"device": "auto"}).device == "cpu"


@pytest.mark.parametrize(("recipe", "changes", "reason"), [
    ("tiny", {}, "gameboy has no CUDA rules"),
    ("lattice", {}, "pursuer observes categorical columns"),
    ("beasty", {"network.hidden": [128, 128]}, "policy and value have separate layers"),
    ("pursuit", {"network.hidden": [64, 64, 64]}, "expected two layers"),
    ("pursuit", {"ppo.gradient": "torch"}, "ppo.gradient is torch"),
    ("pursuit", {"world.full_obs": False}, "bytes of shared memory"),
    ("pursuit", {"schedule.kind": "alternating", "schedule.warmup_steps": 131072}, "schedule.warmup_steps"),
])  # fmt: skip
def test_settings_that_need_the_cpu_are_named(recipe: str, changes: dict[str, Any], reason: str) -> None:
    setup = RunSetup(api.configure(recipe, changes=changes))
    assert reason in settings_need_cpu(setup)
    assert chosen_device(RunSetup(api.configure(recipe, changes=changes | {"device": "auto"}))) == "cpu"
    with pytest.raises(ConfigError, match="device = cuda"):
        check_all(changes | {"device": "cuda"}, recipe)


def test_sensors_with_few_columns_can_train_on_a_gpu() -> None:
    changes = {"world.full_obs": False, "world.lidar_rays": 8, "world.history_length": 2,
               "network.fourier": 0}  # fmt: skip
    assert settings_need_cpu(RunSetup(api.configure("pursuit", changes=changes))) == ""


def test_agents_of_a_run_on_the_gpu_play_without_one() -> None:
    setup = RunSetup(on_gpu("pursuit"))
    settings.validate(setup.config)  # a stored run's settings are valid on every machine
    config = with_available_device(setup.config)
    assert config.device == "cpu"
    assert set(build_agents(config, setup.spec, setup.make_world).learners) == {"pursuer", "evader"}


def test_exact_resume_needs_the_same_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    assert fingerprint(on_gpu("pursuit"))["device"] == "a card"
    assert "device" not in fingerprint(api.configure("pursuit"))
