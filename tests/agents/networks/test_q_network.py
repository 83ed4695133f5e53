"""The Q network: scan equals loop, episode starts clear the state, layers are optional, Q is dueling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from rematch.agents.learners.dqn import SIZES
from rematch.agents.networks.q_network import FASTEST_DECAY, SLOWEST_DECAY, QNetwork, Ssm, scan


@dataclass
class Shape:
    """Settings of a small network."""

    channels: tuple[int, int, int] = (2, 3, 4)
    width: int = 8
    gru: bool = True
    lstm: bool = True
    ssm: str = "real"


def network(shape: Shape, image: tuple[int, ...] = (12, 16)) -> QNetwork:
    torch.manual_seed(3)
    net = QNetwork(image, 8, (0, 4, 0), 5, shape)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return net


def random_inputs(b: int, t: int, image: tuple[int, ...] = (12, 16)) -> tuple[Any, Any]:
    numbers = torch.rand(b, t, 3)
    numbers[..., 1] = torch.randint(0, 4, (b, t)).float()
    return torch.rand(b, t, *image) if image else None, (numbers, torch.ones(b, t, 8, 8))


@pytest.mark.parametrize("kind", [torch.float32, torch.complex64])
@pytest.mark.parametrize("steps", [1, 2, 7, 40])
def test_the_scan_equals_the_loop(steps: int, kind: torch.dtype) -> None:
    torch.manual_seed(steps)
    size = torch.linspace(FASTEST_DECAY, SLOWEST_DECAY, 16).expand(3, steps, 16)
    decay = (size.to(kind) if kind == torch.float32 else torch.polar(size, torch.rand(3, steps, 16))).clone()
    decay[1, steps // 2] = 0  # a reset
    drive = torch.randn(3, steps, 16, dtype=kind)
    x, loop = torch.zeros(3, 16, dtype=kind), []
    for t in range(steps):
        x = decay[:, t] * x + drive[:, t]
        loop.append(x)
    assert torch.allclose(scan(decay, drive), torch.stack(loop, 1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("is_complex", [False, True])
def test_acting_is_one_step_of_the_scan(is_complex: bool) -> None:
    torch.manual_seed(0)
    layer = Ssm(6, 8, is_complex)
    with torch.no_grad():
        layer.log_decay.uniform_(-6, -2)
    x, keep = torch.randn(2, 9, 6), torch.ones(2, 9, 1)
    keep[0, 4] = 0
    start = torch.randn(2, layer.recurrent_size)
    whole, end = layer(x, start, keep)
    state, parts = start, []
    for t in range(9):
        out, state = layer(x[:, t : t + 1], state, keep[:, t : t + 1])
        parts.append(out)
    assert torch.allclose(whole, torch.cat(parts, 1), atol=1e-6) and torch.allclose(end, state, atol=1e-6)


@pytest.mark.parametrize("ssm", ["real", "complex", "off"])
def test_sequence_equals_single_steps_with_resets(ssm: str) -> None:
    net = network(Shape(ssm=ssm))
    frames, (numbers, visited) = random_inputs(3, 7)
    done = torch.zeros(3, 7)
    done[0, 3] = done[2, 0] = done[2, 1] = 1
    state = torch.rand(3, net.state_size)
    whole, end, _ = net(frames, (numbers, visited), state, done)
    parts = []
    for t in range(7):
        cut = slice(t, t + 1)
        q, state, _ = net(frames[:, cut], (numbers[:, cut], visited[:, cut]), state, done[:, cut])
        parts.append(q)
    assert torch.allclose(whole, torch.cat(parts, 1), atol=1e-5) and torch.allclose(end, state, atol=1e-5)


def test_episode_start_clears_the_state() -> None:
    net = network(Shape())
    frames, (numbers, visited) = random_inputs(1, 6)
    done = torch.zeros(1, 6)
    done[0, 3] = 1
    q, _, _ = net(frames, (numbers, visited), torch.rand(1, net.state_size), done)
    structured = numbers[:, 3:], visited[:, 3:]
    later = net(frames[:, 3:], structured, torch.zeros(1, net.state_size), done[:, :3])[0]
    assert torch.allclose(q[:, 3:], later, atol=1e-5)
    q, _, _ = net(frames, (numbers, visited), torch.rand(1, net.state_size), torch.zeros(1, 6))
    assert not torch.allclose(q[:, 3:], later, atol=1e-3)


def test_cnn_reads_the_two_frames_before() -> None:
    net = network(Shape(gru=False, lstm=False, ssm="off"))
    frames, structured = random_inputs(1, 4)
    state, done = torch.zeros(1, net.state_size), torch.zeros(1, 4)
    before = net(frames, structured, state, done)[0][0, 3]
    for age, visible in ((1, True), (2, True), (3, False)):
        other = frames.clone()
        other[0, 3 - age] = 1 - other[0, 3 - age]
        assert torch.equal(net(other, structured, state, done)[0][0, 3], before) != visible


def test_dueling() -> None:
    net = network(Shape())
    q, _, outputs = net(*random_inputs(2, 3), torch.zeros(2, net.state_size), torch.zeros(2, 3))
    assert torch.allclose(q.mean(-1, keepdim=True), outputs["value"], atol=1e-6)  # advantages sum to 0
    centred = outputs["advantage"] - outputs["advantage"].mean(-1, keepdim=True)
    assert torch.allclose(q - outputs["value"], centred, atol=1e-6)


@pytest.mark.parametrize(
    ("off", "numbers"), [({"gru": False}, 24), ({"lstm": False}, 16), ({"ssm": "off"}, 24)]
)
def test_each_recurrent_layer_is_optional(off: dict[str, Any], numbers: int) -> None:
    net = network(Shape(**off), image=())
    assert net.recurrent_size == net.state_size == numbers and len(net.layers) == 2
    q, state, outputs = net(*random_inputs(2, 3, ()), torch.zeros(2, numbers), torch.zeros(2, 3))
    assert q.shape == (2, 3, 5) and state.shape == (2, numbers)
    assert set(outputs) == {"value", "advantage", *net.layers}


@pytest.mark.parametrize(
    ("size", "channels", "width"), [("slim", [16, 32, 64], 128), ("large", [32, 64, 128], 256)]
)
def test_sizes(size: str, channels: list[int], width: int) -> None:
    net = QNetwork((72, 80), 48, (0, 0), 7, Shape(*SIZES[size]))
    assert net.conv_encoder is not None
    assert [conv.out_channels for conv in net.conv_encoder.convs] == channels
    assert net.layer_sizes == [width, 2 * width, width]
