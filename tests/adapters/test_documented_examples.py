"""The examples of docs/how_to/adapters.md run where the libraries that they need are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = "how_to/adapters.md"
ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / PAGE).read_text(), re.S)


def libraries(block: str) -> list[str]:
    """The libraries that an example names in its first line, `# needs NAME, NAME`."""
    first = re.match(r"# needs (.*)\n", block)
    return first[1].split(", ") if first else []


def test_examples_of_all_three_libraries_exist() -> None:
    named = {name for block in BLOCKS for name in libraries(block)}
    assert named == {"stable_baselines3", "sb3_contrib", "supersuit"}


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_example_runs(index: int, tmp_path: Path) -> None:
    for name in ("gymnasium", "pettingzoo", *libraries(BLOCKS[index])):
        pytest.importorskip(name)
    script = tmp_path / "example.py"
    script.write_text(BLOCKS[index])
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-800:]
