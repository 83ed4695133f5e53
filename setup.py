"""Compiles every rematch/**/*.pyx; a new world needs no line in this file.

A core that needs another package (PyBoy) is skipped if that package is not installed.

With REMATCH_LEVELS (all, or x86-64-v2,x86-64-v3) the cores are portable: each is compiled once per processor
level into rematch/cores/LEVEL/, for a wheel. Without it they are compiled for this machine's processor.

Each compiled core contains a digest of its sources, the compiler flags and the processor.
`rematch/core/native_build.py` compares that digest at import, so an old core never runs with new rules.
"""

import contextlib
import os
import platform
import shutil
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext  # turns .pyx into C where Cython is installed

root = Path(__file__).resolve().parent
os.chdir(root)
sys.path.insert(0, str(root / "rematch/core"))
from native_build import DIRECTIVES, LEVELS, digest, flags, is_fresh, source_files  # noqa: E402

del sys.path[0]
with contextlib.suppress(ImportError):  # without Cython the existing C files are compiled
    from Cython.Compiler import Errors

    Errors.LEVEL = 3  # hides warnings about PyBoy's .pxd files


def pyboy() -> str:
    """The installed version of PyBoy, or an empty string."""
    try:
        return version("pyboy")
    except PackageNotFoundError:
        return ""


def can_compile(source: Path) -> bool:
    """Whether the packages that this core needs are installed."""
    return bool(pyboy()) or b"from pyboy" not in source.read_bytes()


# Python's flags include debugging symbols, a quarter of the compile time; CFLAGS with -g turns them on again.
SYMBOLS = [] if "-g" in os.environ.get("CFLAGS", "") else ["-g0"]


def wanted_levels() -> list[str]:
    """The processor levels of REMATCH_LEVELS; empty: this machine's processor."""
    text = os.environ.get("REMATCH_LEVELS", "")
    known = LEVELS.get(platform.machine(), [])
    levels = known if text == "all" else [word for word in text.split(",") if word]
    unknown = [level for level in levels if level not in known]
    if unknown or (text and not levels):
        raise SystemExit(f"REMATCH_LEVELS = {text!r}: expected all, or levels of {', '.join(known)}")
    return levels


def macros(source: Path, level: str = "") -> list[tuple[str, str]]:
    return [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"),
            ("REMATCH_BUILD", f'"{digest(source, level)}"'), ("REMATCH_PYBOY", f'"{pyboy()}"')]


def extension(source: Path) -> Extension:
    core = Extension(
        ".".join(source.relative_to(root).with_suffix("").parts),
        [str(source.relative_to(root))],
        include_dirs=[numpy.get_include(), "rematch/worlds/native"],
        depends=[str(path.relative_to(root)) for path in source_files(source)],
        define_macros=macros(source),
        extra_compile_args=[*SYMBOLS, *flags(source)],
        extra_link_args=["-pthread"],
    )
    core.cython_directives = DIRECTIVES
    return core


class BuildStale(build_ext):
    """Compiles cores whose digest differs from their sources; file dates do not show another processor."""

    def build_extension(self, ext: Extension) -> None:
        source = root / (ext.name.replace(".", "/") + ".pyx")
        compiled = source.with_name(source.stem + sysconfig.get_config_var("EXT_SUFFIX"))
        target = Path(self.get_ext_fullpath(ext.name))
        target.unlink(missing_ok=True)
        if wanted_levels():
            self.build_levels(ext, source, target)
            return
        if not self.force and is_fresh(source, compiled):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(compiled, target)
            return
        source.with_suffix(".c").unlink(missing_ok=True)
        super().build_extension(ext)

    def build_levels(self, ext: Extension, source: Path, target: Path) -> None:
        """Compiles a core once per level, into rematch/cores/LEVEL/DOTTED.NAME.so of the wheel."""
        before = self.build_temp
        for level in wanted_levels():
            ext.extra_compile_args = [*SYMBOLS, *flags(source, level)]
            ext.define_macros = macros(source, level)
            self.build_temp = os.path.join(before, level)
            super().build_extension(ext)
            folder = Path(self.build_lib) / "rematch/cores" / level
            folder.mkdir(parents=True, exist_ok=True)
            os.replace(target, folder / f"{ext.name}{sysconfig.get_config_var('EXT_SUFFIX')}")
        self.build_temp = before

    def copy_file(self, infile: Any, outfile: Any, *args: Any, **options: Any) -> Any:
        """Replaces a core atomically: running programs keep the old file, a killed build leaves no part."""
        part = f"{outfile}.{os.getpid()}.part"
        _, copied = super().copy_file(infile, part, *args, **options)
        os.replace(part, outfile)
        return outfile, copied


setup(
    ext_modules=[extension(path) for path in sorted(root.glob("rematch/**/*.pyx")) if can_compile(path)],
    cmdclass={"build_ext": BuildStale},
)
