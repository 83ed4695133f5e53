from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.spec import Bytes, Floats, Ints, Next, Noise, View

BUILD: str
MOST_OBSTACLES: int
BOTS: int
MARK: int
RULES: dict[str, str]
RULES_TYPE: np.dtype[np.void]
GAME_TYPE: np.dtype[np.void]

class Core:
    columns: int
    controls: int
    shown: int
    def __init__(self, values: Mapping[str, Any]) -> None: ...
    def observe(self, games: Bytes, pursuer: Floats, evader: Floats) -> None: ...
    def bot(self, games: Bytes, rows: Ints, who: tuple[int, int], noise: Noise, first: int) -> Floats: ...

class Arena:
    def __init__(self, core: Core, games: Bytes, view: View, next: Next) -> None: ...
    def start(self, episode: int) -> tuple[int, int]: ...
    def step(self, pursuer: NDArray[Any], evader: NDArray[Any], threads: int) -> tuple[int, int]: ...

def sincos(x: Floats) -> tuple[Floats, Floats]: ...
def atan2(y: Floats, x: Floats) -> Floats: ...
