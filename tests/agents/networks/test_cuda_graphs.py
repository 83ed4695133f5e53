"""CUDA graphs: a recording gives the output of its function, with the present weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rematch.agents.networks.cuda_graphs import Inputs, Recorder

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
