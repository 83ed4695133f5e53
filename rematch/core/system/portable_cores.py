"""Loads the compiled cores of a wheel: for each module that of the best processor level that runs here.

A wheel holds rematch/cores/LEVEL/DOTTED.NAME.so (setup.py). Imports the standard library and native_build
only, because every import of Rematch runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from rematch.core import native_build


class CoreFinder(MetaPathFinder):
    """Finds the cores of one level by their dotted names."""

    def __init__(self) -> None:
        self.level = native_build.portable_level()
        folder = native_build.cores_folder() / self.level
        self.files: dict[str, Path] = {}
        for suffix in reversed(EXTENSION_SUFFIXES):  # the most specific suffix last: it wins
            self.files |= {path.name.removesuffix(suffix): path for path in folder.glob(f"*{suffix}")}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, str(file)))


def install() -> None:
    """Let imports find the cores of the wheel; once per process."""
    if not any(isinstance(finder, CoreFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, CoreFinder())
