"""Imports between packages point one way, and no package imports a world."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from support.source_tree import PACKAGE, ROOT, WORLDS, name_of, nodes, package_of

# A package imports packages of earlier layers only. Packages of one layer may import each other; FEATURES may
# not.
FEATURES = ("selfplay", "curriculum", "exploration", "stability")
LAYERS = (
    ("core", "recipes"),
    ("storage",),
    ("worlds",),
    ("rollout",),
    ("agents",),
    ("evaluation",),
    FEATURES,
    ("training",),
    ("cluster",),
    ("reporting",),
    ("rehearsal", "sweeps"),
    ("api", "verbs"),
    ("bench", "adapters", "cli", "web"),
    ("__main__",),
)
LAYER_OF = {package: number for number, layer in enumerate(LAYERS) for package in layer}


def world_of(path: Path) -> tuple[str, ...]:
    """The folder of the world that a file belongs to, as ("rematch", "worlds", NAME); else ()."""
    folder = path.relative_to(ROOT).parts[:-1]
    is_world = folder[:2] == ("rematch", "worlds") and len(folder) > 2 and folder[2] in WORLDS
    return folder[:3] if is_world else ()


def page_of(path: Path) -> tuple[str, ...]:
    """The world whose page (web/worlds/NAME.py, NAME_*.py) a file is part of, as `world_of`; else ()."""
    world = path.stem.partition("_")[0]
    is_page = name_of(path.parent) == "rematch/web/worlds" and world in WORLDS
    return ("rematch", "worlds", world) if is_page else ()


def module_of(node: ast.ImportFrom, path: Path) -> str:
    """The dotted name of the module that `from ... import` names."""
    folder = path.relative_to(ROOT).parts[:-1]
    parents = folder[: len(folder) - node.level + 1] if node.level else ()
    return ".".join([*parents, *([node.module] if node.module else [])])


@functools.cache
def is_module(name: str) -> bool:
    file = ROOT / name.replace(".", "/")
    return file.is_dir() or any(file.with_suffix(suffix).exists() for suffix in (".py", ".pyx"))


@functools.cache
def imports(path: Path) -> set[str]:
    """Modules of rematch that a file imports, anywhere in it, as dotted names."""
    modules: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = module_of(node, path)
            for alias in node.names:
                full = f"{module}.{alias.name}"
                modules.add(full if is_module(full) else module)
    return {name for name in modules if name.split(".")[0] == "rematch"}


def is_allowed(package: str, imported: str) -> bool:
    """Whether a module of `package` may import a module of the package `imported`."""
    if package in ("__init__", imported):
        return True  # rematch/__init__.py offers the functions of all packages
    if imported == "__init__":
        return True  # the version and the folder; importing it loads nothing else
    if LAYER_OF[package] == LAYER_OF[imported]:
        return package not in FEATURES
    return LAYER_OF[imported] < LAYER_OF[package]


def later_imports() -> set[tuple[str, str]]:
    result: set[tuple[str, str]] = set()
    for path in PACKAGE:
        for name in imports(path):
            imported = name.split(".")[1] if "." in name else "__init__"
            if not is_allowed(package_of(path), imported):
                result.add((name_of(path), name))
    return result


def test_every_package_has_a_layer() -> None:
    packages = {package_of(path) for path in PACKAGE}
    assert packages - {"__init__"} <= set(LAYER_OF)


def test_packages_import_earlier_layers_only() -> None:
    assert not later_imports()


@pytest.mark.parametrize(
    ("package", "imported", "allowed"),
    [
        ("training", "core", True),
        ("core", "training", False),
        ("selfplay", "selfplay", True),
        ("selfplay", "curriculum", False),
        ("cli", "bench", True),
        ("__init__", "cli", True),
        ("reporting", "__init__", True),
    ],
)
def test_layer_rule_examples(package: str, imported: str, allowed: bool) -> None:
    assert is_allowed(package, imported) == allowed


def test_relative_imports_only_within_the_folder_of_a_world() -> None:
    """A world's folder imports its own files relatively, so that a copy of the folder uses its own files."""
    for path in PACKAGE:
        world = world_of(path)
        for node in (node for node in nodes(path) if isinstance(node, ast.ImportFrom)):
            module = module_of(node, path)
            own = bool(world) and f"{module}.".startswith(".".join(world) + ".")
            if node.level:
                assert own, f"{name_of(path)}: imports are written out in full"
            elif path.parts[-2] in WORLDS:
                assert not own, f"{name_of(path)}: a world's folder imports its own files as `from . import`"


def test_only_a_world_and_its_page_import_it() -> None:
    for path in PACKAGE:
        for name in imports(path):
            parts = name.split(".")
            if parts[:2] == ["rematch", "worlds"] and len(parts) > 2 and parts[2] in WORLDS:
                assert tuple(parts[:3]) in (world_of(path), page_of(path)), f"{name_of(path)} imports {name}"


def test_packages_never_name_a_world() -> None:
    """Except pages of worlds, the default of `game`, old names of worlds, a library, and `bench`."""
    named = set()
    for path in (path for path in PACKAGE if package_of(path) != "bench" and not world_of(path)):
        if page_of(path):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Constant) and node.value in WORLDS:
                named.add(name_of(path))
    libraries = {"rematch/adapters/gymnasium_env.py", "rematch/adapters/pettingzoo_env.py"}
    old_names = "rematch/worlds/registry.py"
    assert named == {"rematch/core/run_config.py", "rematch/training/recipes.py", old_names} | libraries
