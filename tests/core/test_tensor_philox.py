"""Random numbers on tensors have the bits of core/rng.py."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rematch.core import rng
from rematch.core.system import tensor_philox

WORD = st.integers(0, 2**32 - 1)


@given(st.integers(0, 2**64 - 1), st.lists(st.tuples(WORD, WORD, WORD, WORD), min_size=1, max_size=20))
def test_words_have_the_bits_of_the_reference(key: int, counters: list[tuple[int, int, int, int]]) -> None:
    counter = np.array(counters, np.uint64)
    columns = [torch.from_numpy(counter[:, i].astype(np.int64)) for i in range(4)]
    drawn = torch.stack(tensor_philox.words(key, (columns[0], columns[1], columns[2], columns[3])), -1)
    assert np.array_equal(drawn.numpy().astype(np.uint64), rng.philox(key, counter))


def test_counters_broadcast_and_may_be_numbers() -> None:
    step = torch.arange(3)[:, None] + 2**33
    low, high = tensor_philox.step_words(step)
    drawn = tensor_philox.words(7, (torch.arange(4), low, rng.ACT, high))[1]
    assert drawn.shape == (3, 4)
    counter = np.array([2, 1, rng.ACT, 2], np.uint64)
    assert int(drawn[1, 2]) == int(rng.philox(7, counter)[1])


def test_units_are_24_bits_in_0_to_1() -> None:
    numbers = tensor_philox.units(torch.tensor([0, 2**32 - 1, 1 << 8]))
    assert numbers.tolist() == [0.0, 1 - 2**-24, 2**-24]
