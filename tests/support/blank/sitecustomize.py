"""Python imports this by itself where the fixture `blank_pictures` has put its folder on PYTHONPATH: children
of such tests leave a white learning.png and match.gif."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import white

DRAWS = {"rematch.reporting.learning_curves": ("learning", lambda *_: white.png()),
         "rematch.reporting.match_film": ("film", lambda *_, **__: (white.gif(), ""))}


class Blank(MetaPathFinder):
    """Loads a module that draws as ever, then has it draw nothing."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in DRAWS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        sys.meta_path.insert(0, self)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_blank(module: ModuleType) -> None:
            load(module)
            setattr(module, *DRAWS[name])

        spec.loader.exec_module = load_blank  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Blank())
