"""examples/nim_package: a world that is installed as a package of its own, found by name and trained."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import ROOT

PACKAGE = ROOT / "examples/nim_package"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built as a wheel from a copy and installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("package")
    source, target = folder / "source", folder / "site"
    shutil.copytree(PACKAGE, source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
               "--no-index", "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]
    return target


def rematch(site: Path, workdir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), str(ROOT)])
    return subprocess.run([sys.executable, "-m", "rematch", *words], cwd=workdir, text=True, timeout=300,
                          capture_output=True, env=os.environ | {"PYTHONPATH": path})


@pytest.mark.slow
def test_installed_world_is_listed_checked_trained_and_measured(site: Path, tmp_path: Path) -> None:
    listed = rematch(site, tmp_path, "worlds")
    assert "nim" in listed.stdout and "takes the last stick wins" in listed.stdout, listed.stderr
    done = rematch(site, tmp_path, "train", "nim", "--games", "64", "--steps", "16", "--total_steps", "40960",
                   "--network.hidden", "32", "--evaluation.games", "200", "--world.sticks", "3", "--ppo.lr",
                   "0.01", "--name", "x")
    errors = [line for line in done.stderr.splitlines() if not line.startswith("progress: ")]
    assert done.returncode == 0 and not errors, done.stderr
    result = rematch(site, tmp_path, "eval", "x", "--games", "300", "--json")
    rows = {row["rival"]: row for row in json.loads(result.stdout)["table"]}
    assert rows["random"]["low"] > 0.6, rows
    perfect = rematch(site, tmp_path, "eval", "nim", "--players", "bouton,random", "--games", "300", "--json")
    assert json.loads(perfect.stdout)["table"][0]["low"] > 0.9


@pytest.mark.slow
def test_without_the_package_a_run_says_what_is_missing(site: Path, tmp_path: Path) -> None:
    small = ("--games", "4", "--steps", "4", "--total_steps", "32", "--evaluation.games", "4")
    assert rematch(site, tmp_path, "train", "nim", *small, "--name", "x").returncode == 0
    missing = rematch(tmp_path, tmp_path, "resume", "x")
    assert missing.returncode == 2 and missing.stderr.count("\n") == 1
    assert "unknown world 'nim'" in missing.stderr


def test_package_passes_the_conformance_test(site: Path, tmp_path: Path) -> None:
    code = ("from rematch.worlds import conformance, registry; game = registry.find('nim');"
            "print(conformance.check_game(game, trial=conformance.Trial()))")
    path = os.pathsep.join([str(site), str(ROOT)])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": path})
    assert "nim passes" in done.stdout, done.stderr[-500:]
