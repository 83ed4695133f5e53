from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.core.arrays import Bytes, Floats, Ints
from rematch.core.world import Next, View

BUILD: str
MARK: int
RULES: dict[str, str]
RULES_TYPE: np.dtype[np.void]
GAME_TYPE: np.dtype[np.void]

class Core:
    reach: int
    table: dict[str, NDArray[Any]]
    def __init__(self, values: Mapping[str, Any]) -> None: ...
    def observe(self, games: Bytes, pursuer: Floats, evader: Floats, mirrored: Bytes) -> None: ...

class Boards:
    def __init__(self, core: Core, games: Bytes, mirrored: Bytes, view: View, next: Next) -> None: ...
    def start(self, episode: int) -> tuple[int, int]: ...
    def step(self, pursuer: Ints, evader: Ints, threads: int) -> tuple[int, int]: ...
