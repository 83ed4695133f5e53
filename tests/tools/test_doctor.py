"""tools/setup/doctor.py: choice of Python, missing parts, installation commands. No pip, no network."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import doctor
import pytest
from support.fake_programs import GOOD, changed, program

ROOT = Path(__file__).resolve().parents[2]

def fake_python(folder: Path, name: str, **fields: Any) -> None:
    """A command that answers PROBE like an interpreter with these fields."""
    values = {**vars(GOOD), "executable": str(folder / name), **fields}
    del values["command"]
    program(folder, name, f"echo '{json.dumps(values)}'")


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({}, []),
        ({"version": (3, 11, 0)}, []),
        ({"version": (3, 14, 9)}, []),
        ({"version": (3, 10, 13)}, ["python"]),
        ({"version": (3, 15, 0)}, ["python"]),
        ({"implementation": "PyPy"}, ["python"]),
        ({"bits64": False}, ["python"]),
        ({"free_threaded": True}, ["python"]),
        ({"absent": ("ensurepip",)}, ["venv"]),
        ({"absent": ("venv", "ensurepip")}, ["venv"]),
        ({"absent": ("ssl",)}, ["python"]),
        ({"headers": False}, ["headers"]),
        ({"headers": False, "absent": ("ensurepip",)}, ["venv", "headers"]),
    ],
)
def test_doctor_names_each_thing_an_interpreter_lacks(fields: dict[str, Any], kinds: list[str]) -> None:
    assert [problem.kind for problem in doctor.find_problems(changed(GOOD, **fields))] == kinds


def test_probe_tells_the_truth_about_this_interpreter() -> None:
    python = doctor.query_python(sys.executable)
    assert python.version == sys.version_info[:3]
    assert python.suffix == sysconfig.get_config_var("EXT_SUFFIX")
    assert os.path.samefile(python.prefix, sys.base_prefix)
    assert doctor.query_python("no-such-python") is None
    assert doctor.query_python(shutil.which("true")) is None


def test_own_python3_comes_first_and_the_newest_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path, "python3.14", "exit 127")  # like the stub of a version manager
    fake_python(tmp_path, "python3.11", version=[3, 11, 9])
    fake_python(tmp_path, "python3.13", version=[3, 13, 0])
    assert doctor.choose_python()[0].command == "python3.13"
    fake_python(tmp_path, "python3", version=[3, 12, 3])
    assert doctor.choose_python()[0].command == "python3"
    fake_python(tmp_path, "python3", version=[3, 10, 1])
    python, missing, rejected = doctor.choose_python()
    assert (python.command, missing) == ("python3.13", [])
    assert any("3.10.1" in line for line in rejected)
    assert any("python3.14: does not run" in line for line in rejected)
    assert doctor.choose_python("python3.11")[0].version == (3, 11, 9)


def test_nearest_interpreter_is_the_one_that_a_package_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_python(tmp_path, "python3", version=[3, 9, 1])
    fake_python(tmp_path, "python3.11", version=[3, 11, 2], absent=["ensurepip"])
    program(tmp_path, "apt-get", "")
    program(tmp_path, "make", "")
    program(tmp_path, "gcc", "")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor.platform, "system", lambda: "Linux")
    report = doctor.examine_machine()
    assert report.install_commands == ("sudo apt-get update && sudo apt-get install -y python3.11-venv",)
    assert report.python.command == "python3.11" and len(report.problems) == 2


def test_an_interpreter_from_elsewhere_is_not_mended_with_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_python(tmp_path, "python3", prefix="/opt/own", headers=False)
    for name in ("dnf", "make", "cc"):
        program(tmp_path, name, "")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor.platform, "system", lambda: "Linux")
    assert doctor.examine_machine().install_commands == ("dnf install -y python3.12 python3.12-devel",)


def test_bare_machine_gets_one_clear_answer(tmp_path: Path) -> None:
    """No suitable Python, compiler or make: exit code 2, the installation command, no traceback."""
    fake_python(tmp_path, "python3", version=[3, 8, 18])
    program(tmp_path, "pacman", "")
    command = [sys.executable, str(ROOT / "tools/setup/doctor.py")]
    answer = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert answer.returncode == 2 and "Traceback" not in answer.stderr
    for words in ("3.8.18", "not one of Python 3.11 to 3.14", "no C compiler", "make was not found"):
        assert words in answer.stderr
    if sys.platform == "linux":
        assert "pacman -S --needed python base-devel make" in answer.stderr


@pytest.mark.parametrize(
    ("manager", "root", "line"),
    [
        (
            "apt-get",
            True,
            "apt-get update && apt-get install -y python3.12-venv python3.12-dev build-essential",
        ),
        ("dnf", False, "sudo dnf install -y python3.12 python3.12-devel gcc"),
        ("pacman", False, "sudo pacman -S --needed python base-devel"),
        ("apk", True, "apk add python3 python3-dev build-base"),
        ("zypper", False, "sudo zypper install -y python312 python312-devel gcc"),
        ("brew", False, "brew install python@3.12 gcc"),
    ],
)
def test_install_line_of_every_package_manager(manager: str, root: bool, line: str) -> None:
    kinds = ["venv", "headers", "compiler"]
    assert doctor.install_lines(kinds, "3.12", manager, "Linux", root) == [line]
    for names in doctor.PACKAGES.values():
        assert len(names) == 1 + len(doctor.KINDS)


def test_install_lines_on_a_mac_and_where_nothing_is_known() -> None:
    lines = doctor.install_lines(["python", "compiler", "make"], "3.12", "", "Darwin", False)
    assert lines == ["xcode-select --install", "brew install python@3.12"]
    assert doctor.install_lines(["compiler"], "3.12", "", "Linux", False) == []


def test_compiler_is_tried_and_not_only_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.working_compiler(["no-such-compiler", "false"])
    program(tmp_path, "gcc", "exit 1")  # exists, but without a C library
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.working_compiler() == ""


def test_download_is_announced_with_a_smaller_alternative() -> None:
    words, space = doctor.download("", "Linux", "x86_64")
    assert "3 GB" in words and f"TORCH_INDEX={doctor.CPU_INDEX}" in words and space > 5
    assert "430 MB" in doctor.download("https://host/cpu", "Linux", "x86_64")[0]
    assert "CUDA" not in doctor.download("", "Darwin", "arm64")[0]
    assert doctor.warnings(changed(GOOD, suffix=".cpython-312-x86_64-linux-musl.so"), "Linux", "x86_64")
    assert not doctor.warnings(GOOD, "Linux", "x86_64")


@pytest.mark.parametrize(
    "name", ["tools/setup/doctor.py", "tools/setup/prepare.py", "rematch/core/native_build.py"]
)
def test_first_steps_parse_on_python_3_8(name: str) -> None:
    text = (ROOT / name).read_text()
    ast.parse(text, feature_version=(3, 8))
    assert not re.search(r"removeprefix|removesuffix|match \w+:|kw_only|slots=", text)
