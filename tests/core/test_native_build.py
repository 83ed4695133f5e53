"""Native build: a compiled core that does not match its sources, flags and processor is never loaded."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest

from rematch.core import native_build

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package with one core, one header beside it and one shared header."""
    package = tmp_path / "rematch"
    (package / "worlds/native").mkdir(parents=True)
    (package / "worlds/tiny").mkdir()
    (package / "core").mkdir()
    shutil.copy(ROOT / "rematch/core/native_build.py", package / "core")
    (package / "worlds/native/random.h").write_text("shared")
    (package / "worlds/tiny/rules.h").write_text("rules")
    source = package / "worlds/tiny/native.pyx"
    source.write_text("core")
    monkeypatch.setattr(native_build, "__file__", str(package / "core/native_build.py"))
    return source


@pytest.mark.parametrize(
    "name",
    [
        "native.pyx", "rules.h", "new.pxd", "../native/random.h", "../native/new.pxi",
        "../../core/native_build.py",
    ],
)  # fmt: skip
def test_core_with_changed_sources_is_refused_and_rebuilt(core: Path, name: str) -> None:
    built = native_build.digest(core)
    compiled = core.with_suffix(".so")
    assert not native_build.is_fresh(core, compiled)
    compiled.write_bytes(b"\x7fELF" + built.encode() + b"\0")
    assert native_build.is_fresh(core, compiled)
    native_build.refuse_stale("tiny", built, core)
    with open(core.parent / name, "a") as text:
        text.write(" ")
    assert not native_build.is_fresh(core, compiled)
    with pytest.raises(ImportError, match="make build"):
        native_build.refuse_stale("tiny", built, core)


def test_core_for_another_processor_or_flag_is_refused(core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = native_build.digest(core)
    for name, value in (("processor", lambda: "another"), ("FLAGS", ["-O0"])):
        with monkeypatch.context() as patch:
            patch.setattr(native_build, name, value)
            with pytest.raises(ImportError, match="processor"):
                native_build.refuse_stale("tiny", built, core)
    native_build.refuse_stale("tiny", built, core)
    native_build.refuse_stale("tiny", "anything", core.with_name("absent.pyx"))  # installed without sources


def test_world_cores_are_compiled_without_fused_multiply_add() -> None:
    assert "-ffp-contract=off" in native_build.flags(ROOT / "rematch/worlds/tiny/native.pyx")
    assert "-ffp-contract=fast" in native_build.flags(ROOT / "rematch/agents/networks/fused.pyx")


def test_every_compiled_core_has_the_digest_of_its_sources() -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for source in ROOT.glob("rematch/**/*.pyx"):
        assert native_build.is_fresh(source, source.with_name(source.stem + suffix)), (
            f"{source}: run make build"
        )
