"""Names say something, and every module says what it is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from support.source_tree import CORES, PACKAGE, ROOT, TESTS, TOOLS, name_of, nodes, parsed

EMPTY_WORDS = {"manager", "handler", "helper", "helpers", "util", "utils", "misc"}
SAY_NOTHING = {"about", "found", "here", "kept", "mine", "said", "there", "thing", "told"}
# Words that come from outside: apt and dnf are called package managers.
FOREIGN = {"tools/setup/doctor.py": {"manager"}, "tests/tools/test_doctor.py": {"manager"}}


def words_in(name: str) -> set[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    return set(spaced.split("_"))


def names_in(path: Path) -> set[str]:
    """Names that a file defines, its own and those of its folders."""
    names = {path.stem, *path.relative_to(ROOT).parts[:-1]}
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def test_names_do_without_empty_words() -> None:
    for path in [*PACKAGE, *TOOLS, *TESTS]:
        empty = EMPTY_WORDS - FOREIGN.get(name_of(path), set())
        for name in names_in(path):
            assert not words_in(name) & empty, f"{name_of(path)}: {name}"


def test_names_of_the_package_are_nouns_of_what_they_hold() -> None:
    """A name says what a thing is, not what happened to it or where it is."""
    for path in PACKAGE:
        for name in names_in(path):
            assert name.strip("_").lower() not in SAY_NOTHING, f"{name_of(path)}: {name}"


def test_names_of_the_package_do_not_begin_with_base() -> None:
    for path in PACKAGE:
        for name in names_in(path):
            assert name != "env_kwargs" and not name.startswith("base_"), f"{name_of(path)}: {name}"


def test_every_module_says_what_it_is() -> None:
    for path in [*PACKAGE, *TOOLS, *TESTS]:
        if path.read_text().strip():
            docstring = ast.get_docstring(parsed(path))
            assert docstring and len(docstring) > 15, f"{name_of(path)} has no docstring"
    for core in CORES:
        if core.suffix != ".pyi":
            assert core.read_text().lstrip().startswith(("/*", '"""', "#")), (
                f"{name_of(core)} does not say what it is"
            )


def test_no_text_names_the_packages_of_the_first_edition() -> None:
    """rematch/engine, rematch/show and rematch/benchmarks are gone."""
    old = re.compile(r"\brematch[./](engine|show|benchmarks)\b|(?<![\w/])(engine|show)/\w")
    run_in_that_edition = {ROOT / "tools/checks" / name for name in ("same_run_baseline.py", "same_speed.py")}
    for path in [*PACKAGE, *TOOLS, *CORES, *TESTS]:
        if path not in {Path(__file__), *run_in_that_edition}:
            result = [line.strip() for line in path.read_text().splitlines() if old.search(line)]
            assert result == [], f"{name_of(path)}: {result[0]}"
