"""Native build: a compiled core that does not match its sources, flags and processor is never loaded."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from rematch.core import native_build
from rematch.core.system import philox, portable_cores

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


# --- wheels -------------------------------------------------------------------------------------------------


@pytest.fixture
def wheel(core: Path) -> Path:
    """The small package as a wheel installs it: with cores for three levels."""
    folder = native_build.cores_folder()
    for level in native_build.LEVELS["x86_64"]:
        (folder / level).mkdir(parents=True)
    return folder


def on(monkeypatch: pytest.MonkeyPatch, machine: str, flags: str = "") -> None:
    monkeypatch.setattr(native_build.platform, "machine", lambda: machine)
    monkeypatch.setattr(native_build, "processor", lambda: f"{machine} {flags}")
    monkeypatch.delenv(native_build.LEVEL_VARIABLE, raising=False)


V3, V4 = " ".join(native_build.NEEDS["x86-64-v3"]), " ".join(native_build.NEEDS["x86-64-v4"])


@pytest.mark.parametrize(("flags", "level"), [
    ("sse4_2", "x86-64-v2"), (V3, "x86-64-v3"), (V4, "x86-64-v4"), (V4.replace("fma", ""), "x86-64-v2"),
    (V4.replace("avx512dq", ""), "x86-64-v3"),
])
def test_wheel_uses_the_best_level_of_the_processor(
        wheel: Path, monkeypatch: pytest.MonkeyPatch, flags: str, level: str) -> None:
    on(monkeypatch, "x86_64", flags)
    assert native_build.portable_level() == level
    (wheel / "x86-64-v4").rmdir()
    assert native_build.portable_level() == min(level, "x86-64-v3")


def test_lower_level_can_be_chosen_and_a_missing_one_is_one_line(
        wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "x86_64", V3)
    for wanted, message in (("x86-64-v2", ""), ("x86-64-v9", "expected one of x86-64-v2, x86-64-v3"),
                            ("x86-64-v4", "no cores for this processor")):
        monkeypatch.setenv(native_build.LEVEL_VARIABLE, wanted)
        if not message:
            assert native_build.portable_level() == wanted
            continue
        with pytest.raises(ImportError, match=message):
            native_build.portable_level()
    on(monkeypatch, "riscv64")
    with pytest.raises(ImportError, match="no cores for this processor"):
        native_build.portable_level()


def test_portable_core_does_not_depend_on_the_machine_that_built_it(
        core: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "x86_64", V3)
    built = native_build.digest(core, "x86-64-v3")
    native_build.refuse_stale("tiny", built, core)
    on(monkeypatch, "x86_64", f"{V3} another_instruction")
    native_build.refuse_stale("tiny", built, core)
    with pytest.raises(ImportError, match="install the wheel again"):
        native_build.refuse_stale("tiny", native_build.digest(core, "x86-64-v2"), core)
    assert "-march=x86-64-v3" in native_build.flags(core, "x86-64-v3")
    assert "-march=native" not in native_build.flags(core, "x86-64-v3")


def test_finder_takes_cores_from_the_folder_of_the_level(
        wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "x86_64", V3)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    compiled = Path(philox.__file__)
    for level in ("x86-64-v2", "x86-64-v3"):
        shutil.copy(compiled, wheel / level / f"rematch.core.system.philox{suffix}")
    finder = portable_cores.CoreFinder()
    assert finder.level == "x86-64-v3"
    spec = finder.find_spec("rematch.core.system.philox", None)
    assert spec is not None and spec.origin is not None and "x86-64-v3" in spec.origin
    assert finder.find_spec("rematch.core.system.other", None) is None
    assert not any(isinstance(each, portable_cores.CoreFinder) for each in sys.meta_path)  # a checkout


def test_every_compiled_core_has_the_digest_of_its_sources() -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for source in ROOT.glob("rematch/**/*.pyx"):
        assert native_build.is_fresh(source, source.with_name(source.stem + suffix)), (
            f"{source}: run make build"
        )
