"""Examples of the pages run, and links between pages lead to a file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.source_tree import DOCS, ROOT, name_of

# Pages whose examples have a test of their own.
TESTED_ELSEWHERE = {
    "worlds.md": "worlds/test_own_worlds.py",
    "python.md": "test_api.py",
    "gameboy.md": "worlds/gameboy/test_world.py",
}


def test_docs_python_runs(tmp_path: Path) -> None:
    """Examples of a page run one after another, in an empty folder."""
    for name, test in TESTED_ELSEWHERE.items():
        assert name in (ROOT / "tests" / test).read_text()
    for page in DOCS:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
        if not blocks or page.name in TESTED_ELSEWHERE:
            continue
        script = tmp_path / f"{page.stem}.py"
        script.write_text("\n".join(blocks))
        run = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            timeout=120,
        )
        assert run.returncode == 0, f"{name_of(page)}: {run.stderr[-500:]}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in DOCS:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in link and not link.startswith("mailto:"):
                assert (page.parent / link).exists(), f"{name_of(page)}: {link}"
