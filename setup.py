"""Builds every rematch/**/*.pyx it finds: a new world's core needs no line here.

One that is compiled against another package is left out where that package is not installed.

Each compiled core carries a digest of the C text, the flags and the processor it was made from.
`rematch/core/native_build.py` compares that digest at import, so an old core never runs against new rules.
"""

import contextlib
import os
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
from native_build import DIRECTIVES, digest, flags, is_fresh, source_files  # noqa: E402  (standard library only)

del sys.path[0]
with contextlib.suppress(ImportError):  # compiled from C text that is there already
    from Cython.Compiler import Errors

    Errors.LEVEL = 3  # not what it has to say of PyBoy's own .pxd files


def pyboy() -> str:
    """The version of PyBoy that is here."""
    try:
        return version("pyboy")
    except PackageNotFoundError:
        return ""


def wanted(source: Path) -> bool:
    return bool(pyboy()) or b"from pyboy" not in source.read_bytes()


# Python's own flags ask for debugging symbols: a quarter of the compiler's time. CFLAGS may ask again.
SYMBOLS = [] if "-g" in os.environ.get("CFLAGS", "") else ["-g0"]


def extension(source: Path) -> Extension:
    made = Extension(
        ".".join(source.relative_to(root).with_suffix("").parts),
        [str(source.relative_to(root))],
        include_dirs=[numpy.get_include(), "rematch/worlds/native"],
        depends=[str(path.relative_to(root)) for path in source_files(source)],
        define_macros=[
            ("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"),
            ("REMATCH_BUILD", f'"{digest(source)}"'),
            ("REMATCH_PYBOY", f'"{pyboy()}"'),
        ],
        extra_compile_args=[*SYMBOLS, *flags(source)],
        extra_link_args=["-pthread"],
    )
    made.cython_directives = DIRECTIVES
    return made


class BuildStale(build_ext):
    """Compiles the cores whose digest is not that of their text; dates do not tell another processor."""

    def build_extension(self, ext: Extension) -> None:
        source = root / (ext.name.replace(".", "/") + ".pyx")
        there = source.with_name(source.stem + sysconfig.get_config_var("EXT_SUFFIX"))
        target = Path(self.get_ext_fullpath(ext.name))
        target.unlink(missing_ok=True)
        if not self.force and is_fresh(source, there):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(there, target)
            return
        source.with_suffix(".c").unlink(missing_ok=True)
        super().build_extension(ext)

    def copy_file(self, infile: Any, outfile: Any, *rest: Any, **more: Any) -> Any:
        """A running program keeps the old core it has open; a killed build leaves no half of a new one."""
        part = f"{outfile}.{os.getpid()}.part"
        _, copied = super().copy_file(infile, part, *rest, **more)
        os.replace(part, outfile)
        return outfile, copied


setup(
    ext_modules=[extension(source) for source in sorted(root.glob("rematch/**/*.pyx")) if wanted(source)],
    cmdclass={"build_ext": BuildStale},
)
