"""Set-up: the plan for .venv, the pins, the Makefile, .ci/run. No pip, no network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import doctor
import prepare
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.fake_programs import GOOD, changed, program

ROOT = Path(__file__).resolve().parents[2]

ODD = "a b 'c \"d"  # a folder name with spaces and both kinds of quotes
# --- the plan for .venv ----------------------------------------------------------------------------

FINISHED = {
    "finished": True, "python": "3.12", "pins": "p", "root": str(ROOT), "extras": ["dev"], "torch_index": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("record", "python", "requirements", "expected"),
    [
        (FINISHED, GOOD, {}, "keep"),
        (None, None, {}, "new"),
        (FINISHED, None, {}, "new"),  # its interpreter was removed
        ({"finished": False}, GOOD, {}, "new"),  # killed half-way
        ({}, GOOD, {}, "install"),  # created by hand: completed, not deleted
        (FINISHED, changed(GOOD, version=(3, 13, 0)), {}, "new"),  # the system's python3 was upgraded
        (FINISHED, changed(GOOD, version=(3, 12, 9)), {}, "keep"),
        (FINISHED, changed(GOOD, version=(3, 10, 0)), {}, "new"),
        (FINISHED, GOOD, {"pins": "q"}, "install"),
        (FINISHED, GOOD, {"extras": ("dev", "bench")}, "install"),
        ({**FINISHED, "extras": ["bench", "dev"]}, GOOD, {}, "keep"),
        (FINISHED, GOOD, {"torch_index": "https://host/cpu"}, "install"),
        ({**FINISHED, "torch_index": "https://host/cpu"}, GOOD, {}, "keep"),
        (FINISHED, GOOD, {"python": "3.11 /usr"}, "new"),
        (FINISHED, GOOD, {"python": "3.12 /usr"}, "keep"),
        ({**FINISHED, "root": "/elsewhere"}, GOOD, {}, "link"),
        ({**FINISHED, "root": ""}, GOOD, {}, "link"),
    ],
)
def test_plan(record: Any, python: Any, requirements: dict[str, Any], expected: str) -> None:
    action, reason = prepare.plan_update(
        record, python, prepare.Requirements(**{"pins": "p", **requirements})
    )
    assert action == expected
    assert bool(reason) == (expected != "keep" and record is not None)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in a folder with an odd name; its .venv has this Python and a finished record; no pip."""
    root = tmp_path / ODD
    (root / ".venv/bin").mkdir(parents=True)
    (root / "rematch").mkdir()
    (root / ".venv/bin/python").symlink_to(sys.executable)
    for name in ("constraints.txt", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, root)
    for name, path in {"ROOT": root, "VENV": root / ".venv", "RECORD": root / ".venv/rematch.json"}.items():
        monkeypatch.setattr(prepare, name, path)
    monkeypatch.setattr(prepare, "PYTHON", root / ".venv/bin/python")
    monkeypatch.delenv("PYTHON", raising=False)
    monkeypatch.delenv("TORCH_INDEX", raising=False)

    def forbidden(*arguments: str) -> None:
        raise AssertionError(f"pip was called: {arguments}")

    monkeypatch.setattr(prepare, "pip", forbidden)
    pins = prepare.digest_of("constraints.txt", "pyproject.toml", "setup.py")
    minor = "{}.{}".format(*sys.version_info)
    prepare.write_record({**FINISHED, "python": minor, "pins": pins, "root": str(root)})
    return root


def test_nothing_runs_when_nothing_changed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = prepare.RECORD.stat().st_mtime_ns
    assert prepare.main(["dev"]) == 0
    assert capsys.readouterr() == ("", "")
    assert prepare.RECORD.stat().st_mtime_ns == before


def test_failed_pip_leaves_the_old_installation(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """New pins but no network: pip fails, and the next run tries again with the same .venv."""
    old = {**prepare.read_record(), "pins": "older"}
    prepare.write_record(old)

    def offline(*arguments: str) -> None:
        assert prepare.read_record() == {"finished": False}
        raise subprocess.CalledProcessError(1, ["pip"])

    monkeypatch.setattr(prepare, "pip", offline)
    assert prepare.main(["dev"]) == 2
    assert "pip could not install" in capsys.readouterr().err
    assert prepare.read_record() == old


def test_interrupted_pip_is_begun_anew(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "pip", interrupted)
    assert prepare.main(["dev", "bench"]) == 130
    assert "interrupted" in capsys.readouterr().err
    requirements = prepare.Requirements(prepare.digest_of("constraints.txt", "pyproject.toml", "setup.py"))
    python = doctor.query_python(str(prepare.PYTHON))
    assert prepare.plan_update(prepare.read_record(), python, requirements) == (
        "new",
        "an earlier set-up was interrupted",
    )


def test_torch_alone_comes_from_the_other_index(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(prepare, "pip", lambda *arguments: calls.append(arguments))
    monkeypatch.setenv("TORCH_INDEX", "https://host/cpu")
    assert prepare.main(["dev"]) == 0
    torch_calls = [call for call in calls if "--index-url" in call]
    assert torch_calls == [
        ("--no-deps", "--index-url", "https://host/cpu", "--force-reinstall", "torch==2.13.0")
    ]
    assert not any("--extra-index-url" in call for call in calls)
    assert calls[-1] == ("-q", "--no-deps", "--no-build-isolation", "-e", ".")
    assert prepare.read_record()["torch_index"] == "https://host/cpu"
    assert prepare.read_record()["finished"] and prepare.read_record()["root"] == str(project)


def test_bad_python_is_refused_before_anything_is_touched(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHON", str(project / "no such python"))
    before = prepare.read_record()
    assert prepare.main(["dev"]) == 2
    assert "no such python: not found" in capsys.readouterr().err
    assert prepare.read_record() == before


# --- pins ------------------------------------------------------------------------------------------

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins() -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pairs = [line.split("==") for line in lines if line]
    assert all(len(pair) == 2 and re.fullmatch(r"[\w.]+", pair[1]) for pair in pairs), "an exact version each"
    names = [canonicalize_name(name) for name, _ in pairs]
    assert len(names) == len(set(names)), "one line each"
    return dict(zip(names, (version for _, version in pairs)))


def required_packages() -> list[Requirement]:
    project = PROJECT["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    lines = [*project["dependencies"], *extras, *PROJECT["build-system"]["requires"], *prepare.BUILD_TOOLS]
    return [Requirement(line) for line in lines]


def test_every_dependency_has_a_pin_that_satisfies_it() -> None:
    pinned = pins()
    assert pinned["torch"] == "2.13.0"
    for requirement in required_packages():
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_everything_that_dependencies_need_is_pinned_too() -> None:
    """All transitive dependencies of installed packages have a pin, so that pip chooses no version freely."""
    pinned, seen, queue = pins(), set(), required_packages()
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if (name, *requirement.extras) in seen:
            continue
        seen.add((name, *requirement.extras))
        assert name in pinned, requirement
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # an extra that only `make bench` installs
        for need in map(Requirement, requirements):
            extras = ("", *requirement.extras)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
                queue.append(need)
    assert len(seen) > 40


# --- make ------------------------------------------------------------------------------------------


@pytest.fixture
def make_folder(tmp_path: Path) -> Path:
    """The Makefile and .ci/run in a folder with an odd name, with programs that log their arguments."""
    root = tmp_path / ODD
    for name in ("Makefile", ".ci/run"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "tools/setup").mkdir(parents=True)
    (root / "tools/setup/prepare.py").write_text(
        "import os, sys\nprint('prepare', *sys.argv[1:], 'PYTHON=' + os.environ['PYTHON'],"
        " 'TORCH_INDEX=' + os.environ['TORCH_INDEX'], file=open('log', 'a'))\n"
        "sys.exit(os.path.exists('broken'))\n"
    )
    program(root / ".venv/bin", "python", 'echo "$@" >> log')
    return root


def make(make_folder: Path, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """(exit code of `make ARGUMENTS` without a terminal, logged calls)."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    with open(os.devnull) as null:
        process = subprocess.run(
            ["make", *arguments],
            cwd=make_folder,
            env={**inherited, **environment},
            stdin=null,
            capture_output=True,
        )
    log = make_folder / "log"
    return process.returncode, log.read_text().splitlines() if log.exists() else []


READY = "prepare dev PYTHON= TORCH_INDEX="


@pytest.mark.parametrize(
    ("target", "calls"),
    [
        ("train", [READY, ".venv/bin/rematch train quick"]),
        ("test", [READY, "-m ruff check", "-m mypy", "-m pytest -n 2 --dist worksteal -m not slow"]),
        ("test-slow", [READY, "-m pytest -n 2 --dist worksteal -m slow"]),
        ("lint", [READY, "-m ruff check", "-m mypy"]),
        ("build", [READY]),
        ("bench", [READY.replace("dev", "dev bench"), ".venv/bin/rematch bench"]),
        ("help", []),
    ],
)
def test_targets_in_a_folder_with_spaces_and_quotes(make_folder: Path, target: str, calls: list[str]) -> None:
    code, actual = make(make_folder, target, PYTHON="", TORCH_INDEX="")
    assert code == 0 and actual[:2] == calls[:2]
    assert sorted(actual) == sorted(calls), "types and tests are checked at the same time"


@pytest.mark.parametrize("fails", ["ruff", "mypy", "pytest"])
def test_whatever_fails_the_tests_fail(make_folder: Path, fails: str) -> None:
    program(make_folder / ".venv/bin", "python", f'echo "$@" >> log; case "$*" in *{fails}*) exit 3;; esac')
    code, calls = make(make_folder, "test", PYTHON="", TORCH_INDEX="")
    assert code != 0 and (len(calls) == 2 if fails == "ruff" else len(calls) == 4)


def test_make_variables_reach_set_up_whole(make_folder: Path) -> None:
    _, calls = make(make_folder, "build", "PYTHON=/a b/it's", "TORCH_INDEX=https://host/x?y=1&z")
    assert calls == ["prepare dev PYTHON=/a b/it's TORCH_INDEX=https://host/x?y=1&z"]


def test_failed_set_up_stops_make(make_folder: Path) -> None:
    (make_folder / "broken").touch()
    code, calls = make(make_folder, "train", PYTHON="", TORCH_INDEX="")
    assert code != 0 and calls == [READY]


def test_make_reports_a_missing_python(make_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("make", "sh"):
        (folder / name).symlink_to(shutil.which(name) or "")
    done = subprocess.run(["make", "train"], cwd=make_folder, env={"PATH": str(folder)}, capture_output=True)
    assert (
        done.returncode == 2 and b"no Python was found" in done.stderr and not (make_folder / "log").exists()
    )


def test_clean_keeps_text_and_runs(make_folder: Path) -> None:
    for name in ("rematch/x/core.pyx", "rematch/x/core.c", "rematch/x/core.a.so", "rematch/x/own.c",
                 "build/y", "runs/first/train.log", "tests/t.py"):  # fmt: skip
        (make_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (make_folder / name).touch()
    assert make(make_folder, "clean")[0] == 0
    remaining = {str(path.relative_to(make_folder)) for path in make_folder.rglob("*") if path.is_file()}
    assert {"rematch/x/core.pyx", "rematch/x/own.c", "runs/first/train.log", ".venv/bin/python"} <= remaining
    assert not {"rematch/x/core.c", "rematch/x/core.a.so", "build/y"} & remaining


def test_ci_runs_the_test_command_and_the_pages(make_folder: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin", "make", 'echo "$PWD: make $*" >> log')
    for name in ("chromium", "chromedriver"):  # present: nothing is installed
        program(tmp_path / "bin", name, "exit 0")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    subprocess.run(["bash", str(make_folder / ".ci/run")], cwd="/", env={"PATH": path}, check=True)
    assert (make_folder / "log").read_text() == f"{make_folder}: make test test-slow test-browser\n"
    assert os.access(ROOT / ".ci/run", os.X_OK)


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="not a git checkout")
def test_what_set_up_leaves_is_ignored_by_git() -> None:
    kinds = (".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "rematch/__pycache__")
    caches = [f"{kind}/x" for kind in kinds]
    compiled = [f"rematch/worlds/x/core.{suffix}" for suffix in ("c", "abi.so", "abi.so.7.part")]
    names = [".venv/x", "build/x", "rematch.egg-info/x", "runs/x/train.log", *caches, *compiled]
    process = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True)
    assert process.stdout.split() == names


def test_mypy_checks_the_package_the_tools_and_compat() -> None:
    assert PROJECT["tool"]["mypy"]["files"] == ["rematch", "tools", "compat"]
    assert PROJECT["tool"]["mypy"]["strict"] is True
