"""A differentiable safety layer (BarrierNet; Xiao et al. 2021) as a user-defined network for pursuit.

    rematch train quick --network examples/barrier_net.py:BarrierNet --total_steps 200000

The last layer is a quadratic program with control barrier functions: of all actions that keep a point ahead
of the robot away from walls and obstacles, it returns the nearest one to the action of the layers before it.
Its derivative is that of the solution, so the network learns through it. It also learns gamma, the fraction
of the remaining distance that a step may use, for every observation. Unlike `world.safety_filter` it acts in
the network, for both roles. The mean of the policy is safe; sampled actions add noise to it, so play greedily
where safety counts: `rematch eval RUN --greedy --allow-code`.

The constants below are those of the recipe `quick`; full observation and a free speed are expected.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

WIDTH = HEIGHT = 10.0  # m
DT, V_MAX, OMEGA_MAX, ROBOT_RADIUS = 0.2, 1.0, 2.84, 0.15
AHEAD, MARGIN = 0.1, 0.02  # m; from the axle to the point that is kept safe; for the curve of a turn
ROOT = math.sqrt(150.0)  # the cost is 150 (v - v0)^2 + (omega - omega0)^2: a distance in (ROOT v, omega)
MAX_GAMMA = 0.5
ROBOTS, LAST = 14, 1  # columns before the obstacles, and behind them
TOLERANCE = 1e-5


class BarrierNet(torch.nn.Module):
    """Two layers of 64, then the safety layer; the value function has its own layers."""

    def __init__(self, observation_size: int, action_size: int) -> None:
        super().__init__()
        if action_size != 2 or observation_size < ROBOTS + LAST:
            raise ValueError("expected pursuit with full_obs, without fixed_speed")
        self.body = layers(observation_size)
        self.action = torch.nn.Linear(64, 2)
        self.gamma = torch.nn.Linear(64, 2)  # of the walls, of the obstacles
        self.value = torch.nn.Sequential(layers(observation_size), torch.nn.Linear(64, 1))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(observation)
        gamma = MAX_GAMMA * torch.sigmoid(self.gamma(features))
        chosen = 0.1 * self.action(features)
        wanted = torch.stack([ROOT * V_MAX * (chosen[:, 0] + 1) / 2, OMEGA_MAX * chosen[:, 1]], -1)
        safe = nearest(wanted, constraints(observation, gamma))
        mean = torch.stack([2 * safe[:, 0] / (ROOT * V_MAX) - 1, safe[:, 1] / OMEGA_MAX], -1)
        return mean, self.value(observation)[:, 0]


def layers(size: int) -> torch.nn.Sequential:
    first, second = torch.nn.Linear(size, 64), torch.nn.Linear(64, 64)
    return torch.nn.Sequential(first, torch.nn.Tanh(), second, torch.nn.Tanh())


def constraints(observation: Tensor, gamma: Tensor) -> Tensor:
    """Lines [n, m, 3]: a s + b w + c >= 0 for s = ROOT v, w = omega, with (a, b) of length 1."""
    heading = math.pi * observation[:, 2]
    cosine, sine = torch.cos(heading), torch.sin(heading)
    x = WIDTH / 2 * observation[:, 0] + AHEAD * cosine  # of the point ahead
    y = HEIGHT / 2 * observation[:, 1] + AHEAD * sine
    zero, one = torch.zeros_like(x), torch.ones_like(x)
    lines = [(one, zero, zero), (-one, zero, ROOT * V_MAX * one),
             (zero, one, OMEGA_MAX * one), (zero, -one, OMEGA_MAX * one)]  # fmt: skip
    for side in (1.0, -1.0):  # d/dt (side x) = side (v cos - AHEAD omega sin)
        room_x = WIDTH / 2 - ROBOT_RADIUS - MARGIN - side * x
        room_y = HEIGHT / 2 - ROBOT_RADIUS - MARGIN - side * y
        lines.append(barrier(-side * cosine, side * AHEAD * sine, gamma[:, 0], room_x))
        lines.append(barrier(-side * sine, -side * AHEAD * cosine, gamma[:, 0], room_y))
    for column in range(ROBOTS, observation.shape[1] - LAST, 2):
        bearing = math.pi * observation[:, column + 1]
        towards, across = torch.cos(bearing), torch.sin(bearing)
        gap = math.hypot(WIDTH, HEIGHT) * observation[:, column]  # from the axle to the surface
        room = gap - AHEAD * towards - ROBOT_RADIUS - MARGIN
        lines.append(barrier(-towards, -AHEAD * across, gamma[:, 1], room))
    return torch.stack([torch.stack(line, -1) for line in lines], 1)


def barrier(per_v: Tensor, per_omega: Tensor, gamma: Tensor, room: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The line of dt (per_v v + per_omega omega) + gamma room >= 0; without room, of room 0: stand still."""
    a, b = DT * per_v / ROOT, DT * per_omega
    length = torch.sqrt(a * a + b * b)
    return a / length, b / length, gamma * room.clamp(min=0.0) / length


def nearest(wanted: Tensor, lines: Tensor) -> Tensor:
    """The point [n, 2] nearest to `wanted` that satisfies all lines [n, m, 3]; differentiable.

    It is `wanted` itself, its projection onto a line, or the intersection of two lines; standing still is
    always allowed. The choice among them is piecewise constant, so the gradient is that of the chosen one.
    """
    normal, offset = lines[..., :2], lines[..., 2]
    margin = (normal * wanted[:, None]).sum(-1) + offset
    projections = wanted[:, None] - margin[..., None] * normal
    i, j = torch.triu_indices(lines.shape[1], lines.shape[1], 1)
    one, two = lines[:, i], lines[:, j]
    determinant = one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0]
    parallel = determinant.abs() < 1e-6
    divisor = torch.where(parallel, torch.ones_like(determinant), determinant)
    crossings = torch.stack([one[..., 1] * two[..., 2] - two[..., 1] * one[..., 2],
                             two[..., 0] * one[..., 2] - one[..., 0] * two[..., 2]], -1)  # fmt: skip
    crossings = crossings / divisor[..., None]
    candidates = torch.cat([wanted[:, None], projections, crossings, torch.zeros_like(wanted)[:, None]], 1)
    with torch.no_grad():
        margins = candidates @ normal.transpose(1, 2) + offset[:, None]
        cost = ((candidates - wanted[:, None]) ** 2).sum(-1)
        forbidden = (margins < -TOLERANCE).any(-1)
        forbidden[:, 1 + lines.shape[1] : -1] |= parallel
        forbidden[:, -1] = False
        best = cost.masked_fill(forbidden, math.inf).argmin(1)
    return candidates[torch.arange(len(wanted)), best]
