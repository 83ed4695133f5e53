"""CUDA graphs: a recording gives the output of its function, with the present weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rematch.agents.networks.cuda_graphs import Inputs, Recorder
from rematch.core.errors import ConfigError

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))


def slope(inputs: Inputs, weights: Tensor, power: int) -> tuple[Tensor, ...]:
    """A loss that needs a gradient, and its gradient."""
    loss = ((inputs["x"] @ weights) ** power).sum()
    return loss.detach(), torch.autograd.grad(loss, weights)[0]


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_outputs_follow_inputs_shapes_and_weights(device: str) -> None:
    recorder = Recorder(torch.device(device))
    weights = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    draw = np.random.default_rng(0)
    for rows in (3, 3, 5, 3):
        x = draw.normal(size=(2, rows)).astype(np.float32).T  # not contiguous
        for power in (1, 2):
            loss, grad = recorder(slope, {"x": x}, weights, power)
            own = weights.detach().cpu().numpy()
            assert loss == pytest.approx(((x @ own) ** power).sum(), rel=1e-4)
            assert np.allclose(grad, (power * (x @ own) ** (power - 1)) @ x, rtol=1e-4)
        with torch.no_grad():
            weights += 0.5  # in place
    assert len(recorder.recordings) == (4 if device == "cuda" else 0)


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    recorder = Recorder(torch.device("cuda"))
    monkeypatch.setattr(recorder, "_record", full)
    line = r"too little memory for a batch of x \(2, 3\); expected fewer games, a smaller batch"
    with pytest.raises(ConfigError, match=line):
        recorder(slope, {"x": np.zeros((2, 3), np.float32)})
