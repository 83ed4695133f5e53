"""The setting `device`: one line where a GPU cannot be used, and what `auto` stands for."""

from __future__ import annotations

from typing import Any

import pytest

from rematch import api
from rematch.core.errors import ConfigError
from rematch.core.system import cuda
from rematch.training.config import components_of, section
from rematch.training.device import chosen_device, settings_need_cpu
from rematch.training.setup import RunSetup


def check_all(changes: dict[str, Any], recipe: str = "pursuit") -> None:
    """The checks that a run makes before it is built."""
    config = api.configure(recipe, changes=changes)
    for kind in components_of(config):
        kind.check(section(config, kind), RunSetup(config))


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
    ("lattice", {}, "lattice has no CUDA rules"),
    ("pursuit", {"network.hidden": [64, 64, 64]}, "expected two layers"),
    ("pursuit", {"ppo.gradient": "torch"}, "ppo.gradient is torch"),
    ("pursuit", {"world.full_obs": False}, "sensors"),
])  # fmt: skip
def test_settings_that_need_the_cpu_are_named(recipe: str, changes: dict[str, Any], reason: str) -> None:
    setup = RunSetup(api.configure(recipe, changes=changes))
    assert reason in settings_need_cpu(setup)
    assert chosen_device(RunSetup(api.configure(recipe, changes=changes | {"device": "auto"}))) == "cpu"
    with pytest.raises(ConfigError, match="device = cuda"):
        check_all(changes | {"device": "cuda"}, recipe)
