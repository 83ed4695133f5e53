"""Files, folders, signatures and the repository stay small."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support.source_tree import CORES, PACKAGE, ROOT, TESTS, TOOLS, name_of, nodes, package_of

LONGEST_FILE = 450  # lines; about 300 is the aim
LARGEST_FOLDER = 15  # modules
LARGEST_COMMITTED_FILE = 5_000_000  # bytes
# The interface of compiled cores: arrays of one batch, without an object for each call.
CORES_INTERFACE = {("rematch/agents/networks/torch_network.py", "act")}
# Functions that pass on what another library hands them.
TAKE_ANY_KEYWORD = {"rematch/bench/sb3_subject.py", "rematch/cli/main.py", "rematch/reporting/console.py"}


def test_files_are_read_in_one_sitting() -> None:
    for path in [*PACKAGE, *TOOLS, *CORES, *TESTS]:
        lines = len(path.read_text().splitlines())
        assert lines <= LONGEST_FILE, f"{name_of(path)} has {lines} lines"


def test_folders_hold_few_modules() -> None:
    """One command is one module, so rematch/cli/commands may grow."""
    modules = [path for path in [*PACKAGE, *CORES] if path.suffix in (".py", ".pyx")]
    count = Counter(path.parent for path in modules if path.name != "__init__.py")
    count.pop(ROOT / "rematch/cli/commands", None)
    large = {name_of(folder): number for folder, number in count.items() if number > LARGEST_FOLDER}
    assert not large, f"folders with more than {LARGEST_FOLDER} modules: {large}"


def test_nothing_large_lies_in_the_tree() -> None:
    """What is committed is small: a package that pip left behind was committed once."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    assert "README.md" in names
    large = [name for name in names if (ROOT / name).stat().st_size > LARGEST_COMMITTED_FILE]
    assert not large and not [name for name in names if name.endswith((".whl", ".tar.gz", ".zip", ".gb"))]


def parameters(function: ast.FunctionDef, keywords: bool = False) -> list[str]:
    given = [*function.args.posonlyargs, *function.args.args]
    given += function.args.kwonlyargs if keywords else []
    return [argument.arg for argument in given if argument.arg not in ("self", "cls")]


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in nodes(path) if isinstance(node, ast.FunctionDef)]


def test_functions_take_at_most_six_parameters_by_place_and_seven_in_all() -> None:
    for path in PACKAGE:
        for function in functions(path):
            given, every = parameters(function), parameters(function, keywords=True)
            assert len(given) <= 6, f"{name_of(path)}: {function.name}({', '.join(given)})"
            if (name_of(path), function.name) not in CORES_INTERFACE:
                assert len(every) <= 7, f"{name_of(path)}: {function.name}({', '.join(every)})"


def test_settings_travel_whole() -> None:
    """No `**settings`: a key that nobody reads would pass unseen."""
    for path in (path for path in PACKAGE if name_of(path) not in TAKE_ANY_KEYWORD):
        for function in functions(path):
            extra = function.args.kwarg
            assert extra is None, f"{name_of(path)}: {function.name} takes **{extra.arg}"
    assert {package_of(ROOT / name) for name in TAKE_ANY_KEYWORD} == {"bench", "cli", "reporting"}
