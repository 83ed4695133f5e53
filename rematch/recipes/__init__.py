"""The recipes that come with Rematch, as texts. Imports nothing heavy: shell completion reads them."""

from __future__ import annotations

import functools
import itertools
import re
from importlib import resources

OLD_NAMES = {"documents": "ams_drl"}  # old name -> present name


@functools.cache
def recipe_texts() -> dict[str, str]:
    """Name -> YAML text of every recipe of the package."""
    folder = resources.files("rematch") / "recipes"
    return {
        file.name.removesuffix(".yaml"): file.read_text()
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".yaml")
    }


def summary(name: str) -> str:
    """The first sentence of a recipe's comment."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), recipe_texts()[name].splitlines())
    text = " ".join(line.lstrip("# ") for line in lines).removeprefix(f"{name}: ")
    return re.split(r"(?<=[.]) ", text)[0]


def world_of(name: str) -> str:
    """The world that a recipe trains in, its own or that of the recipe that it is `like`."""
    text = recipe_texts().get(name, "")
    if match := re.search(r"^game: *(\S+)", text, re.M):
        return match[1]
    parent = re.search(r"^like: *(\S+)", text, re.M)
    return world_of(parent[1]) if parent else ""
