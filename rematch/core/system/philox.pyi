import numpy as np
from numpy.typing import NDArray

BUILD: str

def words(key: int, stream: int, count: int, step: int) -> NDArray[np.uint64]: ...
def shuffled(key: int, values: NDArray[np.int64]) -> NDArray[np.int64]: ...
