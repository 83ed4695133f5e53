from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

BUILD: str
STAT_NAMES: tuple[str, ...]

def adam(
    weights: NDArray[Any],
    grad: NDArray[Any],
    first: NDArray[Any],
    second: NDArray[Any],
    numbers: tuple[float, float, float, float, float, float],
) -> None: ...

def matrix_games(
    payoff: NDArray[Any], value: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any]
) -> None: ...

def sample(
    heads: NDArray[Any],
    log_std: NDArray[Any] | None,
    number: NDArray[Any],
    draw: tuple[int, int],
    action: NDArray[Any],
    logp: NDArray[Any],
    mask: NDArray[Any] | None = None,
    greedy: bool = False,
) -> None: ...

class Network:
    inputs: int
    privileged: int
    actions: int
    size: int
    discrete: bool
    packed_size: int
    def __init__(
        self,
        categories: Sequence[int],
        actions: int,
        discrete: bool,
        hidden: Sequence[int],
        shared: bool,
        activation: str,
        fourier: int = 0,
        privileged: Sequence[int] = (),
    ) -> None: ...
    def pack(self, flat: NDArray[Any], out: NDArray[Any]) -> None: ...
    def act(
        self,
        packed: NDArray[Any],
        slot: NDArray[Any],
        obs: NDArray[Any],
        number: NDArray[Any],
        draw: tuple[int, int],
        action: NDArray[Any],
        logp: NDArray[Any],
        value: NDArray[Any] | None,
        acting: NDArray[Any] | None = None,
        mask: NDArray[Any] | None = None,
        heads: NDArray[Any] | None = None,
        greedy: bool = False,
        privileged: NDArray[Any] | None = None,
    ) -> None: ...
    def gradient(
        self,
        packed: NDArray[Any],
        index: NDArray[Any],
        batch: Mapping[str, NDArray[Any]],
        coefficients: tuple[float, float, float, float, float],
        threads: int,
        out: NDArray[Any],
        cross: bool = False,
    ) -> dict[str, float]: ...
