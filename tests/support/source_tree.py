"""The repository's own files, parsed once, for the tests of tests/architecture/."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import rematch
from rematch.worlds import registry

ROOT = Path(rematch.__file__).parent.parent
WORLDS = registry.names()
PACKAGE = sorted((ROOT / "rematch").rglob("*.py"))
TOOLS = [*sorted((ROOT / "tools").rglob("*.py")), ROOT / "setup.py"]
CORES = [path for kind in ("*.pyx", "*.h", "*.pyi") for path in sorted((ROOT / "rematch").rglob(kind))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
DOCS = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]


def name_of(path: Path) -> str:
    """The file's path within the repository, for example rematch/core/config.py."""
    return path.relative_to(ROOT).as_posix()


def package_of(path: Path) -> str:
    """The package of rematch/ that a file belongs to (core, storage, ...), or the name of a single module."""
    return path.relative_to(ROOT / "rematch").parts[0].removesuffix(".py")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))
