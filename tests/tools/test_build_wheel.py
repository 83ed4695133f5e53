"""The sdist holds every file of the package and all that a build needs."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import build_wheel
import pytest
from support.source_tree import ROOT


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the sdist, without its first folder."""
    sdist = build_wheel.build_sdist(tmp_path_factory.mktemp("dist"))
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_sdist_is_complete(packed: set[str]) -> None:
    listed = subprocess.run(["git", "ls-files", "rematch", "setup.py", "pyproject.toml", "LICENSE"], cwd=ROOT,
                            capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    assert len(files) > 300 and not [name for name in files if name not in packed]


def test_sdist_has_neither_compiled_files_nor_runs(packed: set[str]) -> None:
    assert not [name for name in packed if name.endswith((".so", ".c", ".pyc")) or name.startswith("runs")]


def test_missing_files_are_named(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("rematch/__init__.py", "")
    missing = build_wheel.missing_files(tmp_path / "x.whl")
    assert "rematch/api.py" in missing and "rematch/__init__.py" not in missing
