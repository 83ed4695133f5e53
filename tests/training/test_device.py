"""The setting `device`: one line where a GPU cannot be used, and what `auto` stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rematch import api
from rematch.agents.build import build_agents
from rematch.agents.learners.cuda_ppo import CudaPpo
from rematch.agents.learners.ppo import Ppo
from rematch.agents.learners.torch_ppo import TorchPpo
from rematch.agents.networks.cuda_acting import CudaRoleActing
from rematch.agents.networks.torch_acting import TorchRoleActing
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.system import cuda
from rematch.training.config import components_of, section
from rematch.training.device import chosen_device, places, settings_need_cpu
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


@pytest.mark.parametrize(("recipe", "changes", "learner"), [
    ("pursuit", {}, CudaPpo),
    ("pursuit", {"network.hidden": [64, 64, 64]}, TorchPpo),
    ("pursuit", {"ppo.gradient": "torch"}, TorchPpo),
    ("pursuit", {"world.full_obs": False}, TorchPpo),
    ("pursuit", {"world.full_obs": False, "network.encoder": "lstm"}, TorchPpo),
    ("pursuit", {"world.full_obs": False, "network.encoder": "bimdn"}, TorchPpo),
    ("pursuit", {"world.full_obs": False, "network.critic": "centralized"}, TorchPpo),
    ("pursuit", {"schedule.kind": "alternating", "schedule.warmup_steps": 131072}, CudaPpo),
    *((recipe, {}, TorchPpo) for recipe in ("v", "w", "x", "y", "z1", "z2", "h", "i", "ra1", "ra2")),
    ("x", {"network.hidden": [64, 64], "network.shared": True, "world.full_obs": True}, TorchPpo),
    ("lattice", {}, TorchPpo),
    ("lattice", {"network.table": True, "network.shared": False, "network.hidden": [64]}, TorchPpo),
    ("beasty", {}, TorchPpo),
    ("iter600_to_1000", {}, TorchPpo),
])  # fmt: skip
def test_every_network_can_train_on_a_gpu(recipe: str, changes: dict[str, Any], learner: type[Ppo]) -> None:
    setup = RunSetup(api.configure(recipe, changes=changes))
    assert settings_need_cpu(setup) == ""
    config = settings.replace(setup.config, {"device": "cuda"})
    assert Ppo.on_device(config, setup.spec) is learner
    acting = CudaRoleActing if learner is CudaPpo else TorchRoleActing
    assert Ppo.gpu_acting(config, setup.spec) is acting


@pytest.mark.parametrize(("recipe", "changes", "reason"), [
    ("tiny", {}, "gameboy has no CUDA rules"),
    ("lookahead", {}, "learner lookahead takes its games from the CPU"),
])  # fmt: skip
def test_settings_that_need_the_cpu_are_named(recipe: str, changes: dict[str, Any], reason: str) -> None:
    setup = RunSetup(api.configure(recipe, changes=changes))
    assert reason in settings_need_cpu(setup)
    assert chosen_device(RunSetup(api.configure(recipe, changes=changes | {"device": "auto"}))) == "cpu"
    with pytest.raises(ConfigError, match="device = cuda"):
        check_all(changes | {"device": "cuda"}, recipe)


def test_places_name_the_device_of_each_part() -> None:
    def places_of(recipe: str, changes: dict[str, Any]) -> tuple[str, ...]:
        return tuple(places(RunSetup(settings.replace(api.configure(recipe), changes))).values())

    cpu, gpu = "processor", "GPU"
    assert places_of("pursuit", {}) == (cpu, cpu, cpu)
    kernels = (gpu, "GPU, by compiled kernels, bfloat16", "GPU, float32")
    assert places_of("pursuit", {"device": "cuda"}) == kernels
    assert places_of("lattice", {"device": "cuda"}) == (gpu, "GPU, by PyTorch", "GPU, float32")
    both = {"device": "cuda", "network.device": "cuda"}
    evaluation = "GPU, float32"
    assert places_of("iter600_to_1000", both) == (gpu, "GPU, by PyTorch, bfloat16", evaluation)
    assert places_of("iter600_to_1000", {"network.device": "cuda"})[:2] == (cpu, "GPU, by PyTorch")
    assert places_of("tiny", {"dqn.device": "cuda"})[1] == "GPU, by PyTorch"


def test_large_game_boy_run_trains_on_a_gpu_without_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "no_gpu", lambda: "PyTorch finds no NVIDIA GPU")
    assert api.configure("big").dqn.device == "cpu"
    monkeypatch.setattr(cuda, "no_gpu", lambda: "")
    config = api.configure("big")
    assert (config.dqn.device, config.device) == ("cuda", "cpu")
    assert api.configure("big", changes={"dqn.device": "cpu"}).dqn.device == "cpu"
    assert api.configure("small").dqn.device == "cpu"
    shown = places(RunSetup(config))
    assert shown["networks in training"] == "GPU, by PyTorch"
    assert shown["training games"] == f"processor, {config.world.processes} processes and 2 threads"


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
