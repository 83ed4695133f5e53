"""User-defined code, named as module:Class, file.py:Class or by the name of an entry point.

Nothing is imported unless the user allowed it: by naming it on the command line or in a Python call, or by
--allow-code where a file (a recipe, a run folder, a policy) names it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rematch.core.errors import CodeNotAllowed, ConfigError

FLAG = "--allow-code"
GROUP = "rematch.components"  # entry points of installed packages

_allowed: set[str] = set()
_everything = False


def allow(references: Iterable[str]) -> None:
    """Allow these references, which the user named."""
    _allowed.update(references)


def allow_everything(allowed: bool = True) -> None:
    """--allow-code: allow all code that a file names."""
    global _everything
    _everything = allowed


def is_allowed(reference: str) -> bool:
    return _everything or reference in _allowed


def child_flags() -> list[str]:
    """Flags for commands that this process starts, so that the same code is allowed there."""
    return [FLAG] if _everything or _allowed else []


@contextlib.contextmanager
def nothing_allowed() -> Iterator[None]:
    """For tests: nothing is allowed within the block; afterwards the earlier state is restored."""
    global _everything
    before, everything = set(_allowed), _everything
    _allowed.clear()
    _everything = False
    try:
        yield
    finally:
        _allowed.clear()
        _allowed.update(before)
        _everything = everything


def absolute(reference: str) -> str:
    """The reference with the full path of its file, for a process in another folder."""
    file, colon, name = reference.rpartition(":")
    return f"{Path(file).resolve()}:{name}" if colon and file.endswith(".py") else reference


def load_class(reference: str, kind: type[Any], setting: str) -> type[Any]:
    """The class that `reference` names, a subclass of `kind`; ConfigError where it cannot be loaded."""
    loaded = _load(reference, setting)
    if not (isinstance(loaded, type) and issubclass(loaded, kind)):
        raise ConfigError(
            f"{setting} = {reference}: expected a subclass of {kind.__module__}.{kind.__name__}"
        )
    return loaded


def load_object(reference: str, kind: type[Any], setting: str) -> Any:
    """The object that `reference` names, an instance of `kind`; ConfigError where it cannot be loaded."""
    loaded = _load(reference, setting)
    if not isinstance(loaded, kind):
        raise ConfigError(f"{setting} = {reference}: expected an object of the class "
                          f"{kind.__module__}.{kind.__name__}, found one of {type(loaded).__name__}")
    return loaded


def _load(reference: str, setting: str) -> Any:
    if not is_allowed(reference):
        raise CodeNotAllowed(f"{setting} = {reference}: this names code that would be imported; allow it "
                             "with --allow-code if you trust it")
    try:
        return _import(reference, setting)
    except ConfigError:
        raise
    except Exception as error:  # the imported code may raise any exception
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{setting} = {reference}: cannot be imported: {reason}") from error


def _import(reference: str, setting: str) -> Any:
    module_name, colon, name = reference.rpartition(":")
    if not colon:
        for point in entry_points(group=GROUP):
            if point.name == reference:
                return point.load()
        raise ConfigError(f"{setting} = {reference}: expected module:Class, file.py:Class or the name of an "
                          f"entry point of the group {GROUP}")
    if not module_name.endswith(".py"):
        return getattr(importlib.import_module(module_name), name)
    path = Path(module_name)
    if not path.is_file():
        raise ConfigError(f"{setting} = {reference}: there is no file {path}")
    return getattr(load_file(path), name)


def load_file(path: Path) -> Any:
    """The module in a Python file, imported once."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    module_name = f"rematch_user_{path.stem}_{digest}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
    return sys.modules[module_name]
