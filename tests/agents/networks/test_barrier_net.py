"""examples/barrier_net.py: the safety layer solves its program, has its gradient, and keeps robots safe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.trainers import start_run

import rematch
from rematch.agents.policy import Policy
from rematch.core.errors import ConfigError
from rematch.core.system import user_code
from rematch.training.recipes import configure
from rematch.worlds import registry

EXAMPLES = Path(rematch.__file__).parents[1] / "examples"
NET = f"{EXAMPLES / 'barrier_net.py'}:BarrierNet"


@pytest.fixture(autouse=True)
def trusted() -> Any:
    with user_code.nothing_allowed():
        yield


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import barrier_net

    yield barrier_net
    sys.modules.pop("barrier_net", None)


def programs(net: Any, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random wanted actions [n, 2] and lines [n, m, 3] of random observations of `quick`, in doubles."""
    generator = torch.Generator().manual_seed(1)
    observation = 2 * torch.rand(count, 21, generator=generator, dtype=torch.float64) - 1
    observation[:, 14:20:2] = 0.1 * observation[:, 14:20:2].abs()  # near obstacles
    gamma = 0.4 * torch.rand(count, 2, generator=generator, dtype=torch.float64) + 0.05
    span = torch.tensor([2 * net.ROOT, 2 * net.OMEGA_MAX], dtype=torch.float64)
    wanted = (torch.rand(count, 2, generator=generator, dtype=torch.float64) - 0.3) * span
    return wanted, net.constraints(observation, gamma)


def test_layer_solves_its_program(net: Any) -> None:
    """No point of a fine grid that satisfies all lines is nearer than the solution."""
    wanted, lines = programs(net, 60)
    safe = net.nearest(wanted, lines)
    margins = (lines[..., :2] * safe[:, None]).sum(-1) + lines[..., 2]
    assert margins.min() > -1e-4
    speed, turn = np.meshgrid(np.linspace(0, net.ROOT, 241), np.linspace(-net.OMEGA_MAX, net.OMEGA_MAX, 241))
    grid = torch.from_numpy(np.stack([speed.ravel(), turn.ravel()], -1))
    for row in range(len(wanted)):
        allowed = (grid @ lines[row, :, :2].T + lines[row, :, 2] >= 0).all(1)
        distances = (grid[allowed] - wanted[row]).norm(dim=1)
        assert (safe[row] - wanted[row]).norm() <= distances.min() + 1e-4
    moved = (safe - wanted).norm(dim=1)
    assert (moved < 1e-9).any() and (moved > 0.1).any()  # both kinds occur


def test_gradient_is_that_of_the_solution(net: Any) -> None:
    """Derivatives by wanted action and by gamma equal finite differences, where no other candidate ties."""
    wanted, lines = programs(net, 200)
    inside = lines[:, 4:, 2].min(1).values > 1e-3  # elsewhere several lines meet in one point: a kink
    wanted, lines = wanted[inside], lines[inside]
    wanted, offset = wanted.requires_grad_(), lines[..., 2].clone().requires_grad_()

    def total(point: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
        weights = torch.tensor([1.0, 0.7], dtype=torch.float64)
        return (net.nearest(point, torch.cat([lines[..., :2], free[..., None]], -1)) * weights).sum(1)

    by_point, by_offset = torch.autograd.grad(total(wanted, offset).sum(), [wanted, offset])
    step = 1e-7
    with torch.no_grad():
        shift = torch.tensor([0.3, -0.8], dtype=torch.float64)
        slope = (total(wanted + step * shift, offset) - total(wanted - step * shift, offset)) / (2 * step)
        assert torch.isclose((by_point * shift).sum(1), slope, atol=1e-4).float().mean() > 0.9
        slope = (total(wanted, offset + step) - total(wanted, offset - step)) / (2 * step)
        assert torch.isclose(by_offset.sum(1), slope, atol=1e-4).float().mean() > 0.9
    assert by_offset.abs().max() > 0  # gamma learns


def clearance(config: Any, seen: np.ndarray) -> np.ndarray:
    """[n] metres between a robot and the nearest wall or obstacle, from its observation."""
    half = config.world.arena_width / 2
    walls, obstacle = half - np.abs(seen[:, :2] * half).max(1), seen[:, 14] * np.hypot(2 * half, 2 * half)
    return np.asarray(np.minimum(walls, obstacle) - config.world.robot_radius)


def contacts(module: str) -> tuple[int, int]:
    """Steps with a contact, and all steps, of an untrained greedy pursuer in games that start clear."""
    config = configure("quick", changes={"network.module": module} if module else {})
    world = registry.find("pursuit").make(config.world, 64, 0, 3)
    policy = Policy(world.spec.roles["pursuer"], config.network, "pursuer")
    policy.initialise(5)
    clear = clearance(config, world.view["pursuer"]["state"][:, 0]) > 0.15
    touched = steps = 0
    for _ in range(150):
        mean = policy.forward(np.ascontiguousarray(world.view["pursuer"]["state"][:, 0]))[0]
        world.step({"pursuer": mean[:, None].copy(), "evader": np.zeros((64, 1, 2), np.float32)})
        room = clearance(config, world.view["pursuer"]["state"][:, 0])
        ended = world.view.ended != 0
        touched += int(((room < 1e-3) & clear & ~ended).sum())
        steps += int((clear & ~ended).sum())
        clear = np.where(ended, room > 0.15, clear)
    return touched, steps


def test_robots_with_the_layer_touch_nothing() -> None:
    touched, steps = contacts(NET)
    assert steps > 5000 and touched == 0
    assert contacts("")[0] > 100  # the same game without the layer


def test_it_trains_and_fixed_speed_is_refused(tmp_path: Path) -> None:
    small = {"games": 8, "steps": 8, "total_steps": 192, "evaluation.games": 2, "stagger": 0,
             "evaluation.opponents": ["random"], "network.module": NET}  # fmt: skip
    rows = start_run(tmp_path / "run", configure("quick", changes=small)).rows
    assert len(rows) == 3 and all(np.isfinite(row["pursuer/policy_loss"]) for row in rows)
    with pytest.raises(ConfigError, match="expected pursuit with full_obs, without fixed_speed"):
        start_run(tmp_path / "fixed", configure("quick", changes=small | {"world.fixed_speed": True}))
