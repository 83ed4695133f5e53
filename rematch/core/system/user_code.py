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
import traceback
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rematch.core.config import nearest
from rematch.core.errors import CodeNotAllowed, ConfigError, UserCodeError

FLAG = "--allow-code"
PACKAGE = Path(__file__).resolve().parents[2]  # the folder rematch/: its files are not the user's
GROUP = "rematch.components"  # entry points of installed packages

_allowed: set[str] = set()
_everything = False
_modules: dict[str, Path] = {}  # reference that names a module or an entry point -> its file
_digests: dict[Path, str] = {}  # file of the user -> digest of its bytes when it was imported


def allow(references: Iterable[str]) -> None:
    """Allow these references, which the user named."""
    _allowed.update(map(absolute, references))


def allow_everything(allowed: bool = True) -> None:
    """--allow-code: allow all code that a file names."""
    global _everything
    _everything = allowed


def is_allowed(reference: str) -> bool:
    return _everything or absolute(reference) in _allowed


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
        is_class = isinstance(loaded, type)
        given = f"the class {loaded.__name__}" if is_class else f"one of {type(loaded).__name__}"
        raise ConfigError(f"{setting} = {reference}: expected an object of the class "
                          f"{kind.__module__}.{kind.__name__}, found {given}")
    return loaded


def _load(reference: str, setting: str) -> Any:
    if not is_allowed(reference):
        raise CodeNotAllowed(f"{setting} = {reference}: this names code that would be imported; allow it "
                             "with --allow-code if you trust it")
    try:
        loaded = _import(reference, setting)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # the imported code may raise any exception, or call sys.exit
        raise ConfigError(f"{setting} = {reference}: cannot be imported: {described(error)}") from error
    module_name = reference.rpartition(":")[0] or loaded.__module__  # an entry point names no module
    if not module_name.endswith(".py"):  # `load_file` records files
        record_module(reference, module_name)
    return loaded


def _import(reference: str, setting: str) -> Any:
    module_name, colon, name = reference.rpartition(":")
    if not colon:
        for point in entry_points(group=GROUP):
            if point.name == reference:
                return point.load()
        if reference.endswith(".py"):
            raise ConfigError(f"{setting} = {reference}: expected {reference}:NAME, a class of that file")
        raise ConfigError(f"{setting} = {reference}: expected module:Class, file.py:Class or the name of an "
                          f"entry point of the group {GROUP}")
    if not module_name.endswith(".py"):
        file = Path(f"{module_name}.py")
        if importlib.util.find_spec(module_name.partition(".")[0]) is None and file.is_file():
            raise ConfigError(f"{setting} = {reference}: there is no module {module_name}; nearest: "
                              f"{file}:{name}")
        return getattr(importlib.import_module(module_name), name)
    path = Path(module_name)
    if not path.is_file():
        raise ConfigError(f"{setting} = {reference}: there is no file {path}")
    module = load_file(path)
    if not hasattr(module, name):
        near = nearest(name, [key for key in vars(module) if not key.startswith("_")])
        hint = f"; nearest: {near}" if near else ""
        raise ConfigError(f"{setting} = {reference}: {path.name} has no {name}{hint}")
    return getattr(module, name)


def load_file(path: Path) -> Any:
    """The module in a Python file, imported once."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    module_name = f"rematch_user_{path.stem}_{digest}"
    if module_name not in sys.modules:
        record_file(path)  # before its code runs: an exception in it is the user's
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        before = set(sys.modules)
        sys.modules[module_name] = module
        folder = str(path.resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)  # as for a script: the file may import files beside it
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
        _record_siblings(path.resolve(), set(sys.modules) - before)
    return sys.modules[module_name]


def _record_siblings(path: Path, module_names: Iterable[str]) -> None:
    """Add the files beside `path` that it imported to its digest."""
    files = {Path(getattr(sys.modules[name], "__file__", None) or "").resolve() for name in module_names}
    for file in sorted(file for file in files if file.parent == path.parent and file != path):
        record_file(file)
        _digests[path] = hashlib.sha256(f"{_digests[path]} {_digests[file]}".encode()).hexdigest()[:16]


# --- the files of the code ---------------------------------------------------------------------------


def record_file(file: Path) -> None:
    """Record the digest that a file has when its code is imported."""
    _digests[file.resolve()] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def record_module(reference: str, module_name: str) -> None:
    """Record that `reference` names code in the file of a module that was imported."""
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if file and reference not in _modules:
        _modules[reference] = Path(file).resolve()
        record_file(Path(file))


def source_digest(reference: str) -> str:
    """The digest of the file that `reference` was imported from, as it was then; empty: not known."""
    file = reference.rpartition(":")[0]
    path = Path(file).resolve() if file.endswith(".py") else _modules.get(reference)
    return _digests.get(path, "") if path else ""


def described(error: BaseException) -> str:
    """An exception in one line; with file, line and function where code of the user raised it."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, SyntaxError):
        return text  # its text has file and line
    place = _place(error)
    return f"{text} ({place})" if place else text


def _place(error: BaseException) -> str:
    """The innermost line of the user's files in the traceback of an exception; empty: there is none."""
    folders = {path.parent for path in _digests}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        beside = path.parent in folders and PACKAGE not in path.parents and not frame.filename.startswith("<")
        if path in _digests or beside:
            return f"{path.name} line {frame.lineno}, in {frame.name}"
    return ""


def raised_by_user(error: BaseException) -> bool:
    """Whether a file of the user is in the traceback of an exception."""
    return bool(_place(error))


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """An exception that the user's code raises within the block becomes a UserCodeError: one line."""
    try:
        yield
    except (ConfigError, OSError, MemoryError):
        raise  # these have clear messages
    except (Exception, SystemExit) as error:
        if not raised_by_user(error):
            raise
        raise UserCodeError(described(error)) from error
