"""Arrays that begin at a cache line."""

from __future__ import annotations

import numpy as np
import pytest

from rematch.core.arrays import CACHE_LINE, aligned_zeros


@pytest.mark.parametrize("shape", [(1, 16), (3, 48), (7,), (0, 16)])
def test_aligned_zeros_begin_at_a_cache_line(shape: tuple[int, ...]) -> None:
    for _ in range(8):  # wherever the allocator puts them
        array = aligned_zeros(shape)
        assert array.shape == shape and array.dtype == np.float32 and not array.any()
        assert array.size == 0 or array.ctypes.data % CACHE_LINE == 0
