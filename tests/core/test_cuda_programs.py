"""Programs of the GPU: one line where they do not compile, and a compiled one is stored."""

from __future__ import annotations

import builtins
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.system import cuda

LOG = ("NVRTC_ERROR_COMPILATION: ...\nplay.cu(3): error: identifier \"gmaes\" is undefined\n"
       "play.cu(9): error: expected a \";\"\n2 errors detected")  # fmt: skip


class Compiler:
    """Stands for cuda-core: compiles, or fails with a log."""

    def __init__(self, log: str = "") -> None:
        self.log, self.compiled = log, 0
        self.ObjectCode = SimpleNamespace(from_cubin=lambda code: code)

    def ProgramOptions(self, **options: Any) -> Any:
        return options

    def Program(self, source: str, language: str, options: Any) -> Any:
        def compile(kind: str) -> Any:
            if self.log:
                raise RuntimeError(self.log)
            self.compiled += 1
            return SimpleNamespace(code=b"cubin")

        return SimpleNamespace(compile=compile)


def installed(monkeypatch: pytest.MonkeyPatch, compiler: Compiler, folder: Path) -> Path:
    monkeypatch.setattr(cuda, "_core", lambda: compiler)
    monkeypatch.setattr(cuda, "_device", lambda: SimpleNamespace(arch="90"))
    monkeypatch.setattr(cuda, "_compiler", lambda: (13, 0))
    monkeypatch.setattr(cuda, "_cache_folder", lambda: folder / "cache")
    file = folder / "play.cu"
    file.write_text("int gmaes;\n")
    return file


def test_kernel_that_does_not_compile_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = installed(monkeypatch, Compiler(LOG), tmp_path)
    with pytest.raises(ConfigError) as caught:
        cuda.Program(file, {})
    assert str(caught.value) == (
        'play.cu does not compile for sm_90: play.cu(3): error: identifier "gmaes" is undefined'
    )


def test_compiled_kernel_is_read_again_until_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler()
    file = installed(monkeypatch, compiler, tmp_path)
    for _ in range(3):
        cuda.Program(file, {"SIZE": 4})
    assert compiler.compiled == 1
    file.write_text("int games;\n")
    cuda.Program(file, {"SIZE": 4})
    assert compiler.compiled == 2


def test_missing_compiler_prints_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("cuda.core"):
            raise ImportError(name)
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NotInstalled, match=r"cuda-core is not installed: .*pip install .*cuda-bindings"):
        cuda._core()
