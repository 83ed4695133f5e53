""".ci/run: installs the browser where it can, fails with one line where it cannot, and runs all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support import browser

CI = Path(__file__).parents[2] / ".ci/run"
INSTALL = """echo "apt-get $*" >> "$LOG"
case "$*" in *install*) for name in chromium chromedriver; do
  printf '#!/bin/sh\\n' > "$BIN/$name"; chmod +x "$BIN/$name"
done;; esac
"""


def run(folder: Path, **programs: str) -> tuple[int, str, list[str]]:
    """Exit code, errors, and the programs that .ci/run called, on a machine with these programs only."""
    folder.mkdir()
    for name in ("bash", "chmod", "dirname"):
        (folder / name).symlink_to(str(shutil.which(name)))
    for name, text in {"id": "echo 0\n", "make": 'echo "make $* CI=$CI" >> "$LOG"\n', **programs}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    log = folder / "log"
    environment = {"PATH": str(folder), "LOG": str(log), "BIN": str(folder)}
    words = [str(shutil.which("bash")), str(CI)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr, log.read_text().splitlines() if log.exists() else []


def test_browser_is_installed_only_where_it_is_missing(tmp_path: Path) -> None:
    code, _, called = run(tmp_path / "bare", **{"apt-get": INSTALL})
    assert code == 0 and [line.split()[0] for line in called] == ["apt-get", "apt-get", "make"]
    assert called[1].endswith("install -y chromium chromium-driver")
    assert called[2] == "make test test-slow test-browser CI=true"
    code, _, called = run(tmp_path / "ready", chromium="", chromedriver="", **{"apt-get": INSTALL})
    assert code == 0 and called == ["make test test-slow test-browser CI=true"]


def test_browser_that_cannot_be_installed_is_one_line(tmp_path: Path) -> None:
    for name, programs in {"user": {"id": "echo 1000\n", "apt-get": INSTALL}, "no-apt": {},
                           "refused": {"apt-get": "exit 100\n"}}.items():  # fmt: skip
        code, errors, called = run(tmp_path / name, **programs)
        assert code == 2 and errors.count("\n") == 1 and errors.startswith(".ci/run: "), errors
        assert not any(line.startswith("make") for line in called)


def test_missing_browser_fails_in_ci_and_is_a_skip_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "CHROMIUM", None)
    monkeypatch.setenv("REMATCH_BROWSER", "1")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="chromium and chromedriver are not installed"):
        browser.require_browser()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="chromium and chromedriver are not installed"):
        browser.require_browser()
    monkeypatch.delenv("REMATCH_BROWSER")
    with pytest.raises(pytest.skip.Exception, match="make test-all"):
        browser.require_browser()


def test_ci_runs_what_the_makefile_offers() -> None:
    assert os.access(CI, os.X_OK)
    makefile = (CI.parents[1] / "Makefile").read_text()
    assert all(f"\n{target}: " in makefile for target in ("test", "test-slow", "test-browser"))
