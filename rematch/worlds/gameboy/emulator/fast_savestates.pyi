from typing import Any

BUILD: str
PYBOY: str  # the version that it was compiled against

def save(boy: Any) -> bytes: ...
def load(boy: Any, state: bytes) -> None: ...
