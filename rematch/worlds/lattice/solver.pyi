from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUILD: str
MOST: int

Doubles = NDArray[np.float64]

class Solver:
    def __init__(
        self, row_after: NDArray[Any], frame_after: NDArray[Any], col_after: NDArray[Any]
    ) -> None: ...
    def back(
        self,
        stays: bool,  # the pursuer only turns
        after: Mapping[int, Doubles],  # kind -> values after the move [rows, cols]
        now: Mapping[int, Doubles],  # kind -> values before the move [rows, cols], output
        # of pursuer and evader [rows, cols, 3]; None: the solution's
        action_probs: tuple[Doubles | None, Doubles | None],
        # outputs of both sides: "mixes" [rows, cols, 3], the solution; "replies" [rows, cols], best actions
        out: Mapping[str, tuple[NDArray[Any], NDArray[Any]]],
        threads: int,
    ) -> None: ...

def matrix_value(payoff: Doubles) -> tuple[float, Doubles, Doubles]: ...
