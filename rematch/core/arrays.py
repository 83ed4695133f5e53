"""Array types used everywhere, and the tree that a state is stored as."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]


Tree = dict[str, Any]  # nested dicts with arrays, numbers, strings and lists at the leaves
