"""The hierarchy of memories: scan equals loop, resets forget, pieces can be left out, Q is dueling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from rematch.agents.learners.dqn import SIZES
from rematch.agents.networks.q_network import FASTEST, SLOWEST, Hierarchy, Ssm, scan


@dataclass
class Shape:
    """Settings of a little network."""

    channels: tuple[int, int, int] = (2, 3, 4)
    width: int = 8
    gru: bool = True
    lstm: bool = True
    ssm: str = "real"


def network(shape: Shape, picture: tuple[int, ...] = (12, 16)) -> Hierarchy:
    torch.manual_seed(3)
    net = Hierarchy(picture, 8, (0, 4, 0), 5, shape)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return net


def shown(b: int, t: int, picture: tuple[int, ...] = (12, 16)) -> tuple[Any, Any]:
    numbers = torch.rand(b, t, 3)
    numbers[..., 1] = torch.randint(0, 4, (b, t)).float()
    return torch.rand(b, t, *picture) if picture else None, (numbers, torch.ones(b, t, 8, 8))


@pytest.mark.parametrize("kind", [torch.float32, torch.complex64])
@pytest.mark.parametrize("steps", [1, 2, 7, 40])
def test_the_scan_equals_the_loop(steps: int, kind: torch.dtype) -> None:
    torch.manual_seed(steps)
    size = torch.linspace(FASTEST, SLOWEST, 16).expand(3, steps, 16)
    decay = (size.to(kind) if kind == torch.float32 else torch.polar(size, torch.rand(3, steps, 16))).clone()
    decay[1, steps // 2] = 0  # a reset
    drive = torch.randn(3, steps, 16, dtype=kind)
    x, loop = torch.zeros(3, 16, dtype=kind), []
    for t in range(steps):
        x = decay[:, t] * x + drive[:, t]
        loop.append(x)
    assert torch.allclose(scan(decay, drive), torch.stack(loop, 1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("turning", [False, True])
def test_acting_is_one_step_of_the_scan(turning: bool) -> None:
    torch.manual_seed(0)
    layer = Ssm(6, 8, turning)
    with torch.no_grad():
        layer.fading.uniform_(-6, -2)
    x, keep = torch.randn(2, 9, 6), torch.ones(2, 9, 1)
    keep[0, 4] = 0
    start = torch.randn(2, layer.memory)
    whole, end = layer(x, start, keep)
    memory, parts = start, []
    for t in range(9):
        out, memory = layer(x[:, t : t + 1], memory, keep[:, t : t + 1])
        parts.append(out)
    assert torch.allclose(whole, torch.cat(parts, 1), atol=1e-6) and torch.allclose(end, memory, atol=1e-6)


@pytest.mark.parametrize("ssm", ["real", "complex", "off"])
def test_a_sequence_is_its_steps_one_by_one_resets_included(ssm: str) -> None:
    net = network(Shape(ssm=ssm))
    frames, (numbers, visited) = shown(3, 7)
    done = torch.zeros(3, 7)
    done[0, 3] = done[2, 0] = done[2, 1] = 1
    state = torch.rand(3, net.carried)
    whole, end, _ = net(frames, (numbers, visited), state, done)
    parts = []
    for t in range(7):
        cut = slice(t, t + 1)
        q, state, _ = net(frames[:, cut], (numbers[:, cut], visited[:, cut]), state, done[:, cut])
        parts.append(q)
    assert torch.allclose(whole, torch.cat(parts, 1), atol=1e-5) and torch.allclose(end, state, atol=1e-5)


def test_a_reset_is_a_new_beginning_and_nothing_else_is() -> None:
    net = network(Shape())
    frames, (numbers, visited) = shown(1, 6)
    done = torch.zeros(1, 6)
    done[0, 3] = 1
    q, _, _ = net(frames, (numbers, visited), torch.rand(1, net.carried), done)
    later = net(frames[:, 3:], (numbers[:, 3:], visited[:, 3:]), torch.zeros(1, net.carried), done[:, :3])[0]
    assert torch.allclose(q[:, 3:], later, atol=1e-5)
    q, _, _ = net(frames, (numbers, visited), torch.rand(1, net.carried), torch.zeros(1, 6))
    assert not torch.allclose(q[:, 3:], later, atol=1e-3)


def test_the_eye_sees_the_two_pictures_before() -> None:
    net = network(Shape(gru=False, lstm=False, ssm="off"))
    frames, rest = shown(1, 4)
    state, done = torch.zeros(1, net.carried), torch.zeros(1, 4)
    before = net(frames, rest, state, done)[0][0, 3]
    for back, sees in ((1, True), (2, True), (3, False)):
        other = frames.clone()
        other[0, 3 - back] = 1 - other[0, 3 - back]
        assert torch.equal(net(other, rest, state, done)[0][0, 3], before) != sees


def test_dueling() -> None:
    net = network(Shape())
    q, _, said = net(*shown(2, 3), torch.zeros(2, net.carried), torch.zeros(2, 3))
    assert torch.allclose(q.mean(-1, keepdim=True), said["value"], atol=1e-6)  # advantages add to nothing
    centred = said["advantage"] - said["advantage"].mean(-1, keepdim=True)
    assert torch.allclose(q - said["value"], centred, atol=1e-6)


@pytest.mark.parametrize(
    ("off", "numbers"), [({"gru": False}, 24), ({"lstm": False}, 16), ({"ssm": "off"}, 24)]
)
def test_each_memory_can_be_left_out(off: dict[str, Any], numbers: int) -> None:
    net = network(Shape(**off), picture=())
    assert net.memory == net.carried == numbers and len(net.layers) == 2
    q, state, said = net(*shown(2, 3, ()), torch.zeros(2, numbers), torch.zeros(2, 3))
    assert q.shape == (2, 3, 5) and state.shape == (2, numbers)
    assert set(said) == {"value", "advantage", *net.layers}


@pytest.mark.parametrize(
    ("size", "channels", "width"), [("slim", [16, 32, 64], 128), ("large", [32, 64, 128], 256)]
)
def test_sizes(size: str, channels: list[int], width: int) -> None:
    net = Hierarchy((72, 80), 48, (0, 0), 7, Shape(*SIZES[size]))
    assert net.eye is not None
    assert [conv.out_channels for conv in net.eye.convs] == channels
    assert net.memories == [width, 2 * width, width]
