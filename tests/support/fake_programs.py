"""Stand-ins for the programs that the set-up starts: a Python with given properties, shell scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import doctor

GOOD = doctor.Python("python3", (3, 12, 1), prefix="/usr", executable="/usr/bin/python3", headers=True)


def changed(python: Any, **fields: Any) -> Any:
    return doctor.Python(**{**vars(python), **fields})


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)
    return path
