from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.player import RngKey
from rematch.core.world import Next, Observations, View

BUILD: str
MOST_OBSTACLES: int
MOST_RAYS: int
BOTS: int
MARK: int
RULES: dict[str, str]
RULES_TYPE: np.dtype[np.void]
GAME_TYPE: np.dtype[np.void]

class Core:
    columns: int
    controls: int
    shown_obstacles: int
    def __init__(self, values: Mapping[str, Any]) -> None: ...
    optional_type: np.dtype[np.void]
    def observe(self, games: Bytes, optional: Bytes, obs: Observations) -> None: ...
    def bot(
        self, games: Bytes, rows: Ints, seat_and_bot: tuple[int, int], rng_key: RngKey, first: int
    ) -> Floats: ...

class Arena:
    def __init__(self, core: Core, games: Bytes, optional: Bytes, view: View, next: Next) -> None: ...
    def start(self, episode: int) -> tuple[int, int]: ...
    def step(self, pursuer: NDArray[Any], evader: NDArray[Any], threads: int) -> tuple[int, int]: ...

def sincos(x: Floats) -> tuple[Floats, Floats]: ...
def atan2(y: Floats, x: Floats) -> Floats: ...
