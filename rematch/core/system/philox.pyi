import numpy as np
from numpy.typing import NDArray

BUILD: str

def words(key: int, stream: int, count: int, step: int) -> NDArray[np.uint64]: ...
