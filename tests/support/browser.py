"""Chromium for tests of pages: a driver, a server, and waiting for a condition on the page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, DRIVER, browser, prefer, wait

from support.served_pages import TOKEN, serving

__all__ = ["prefer", "wait"]
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}


def require_browser() -> None:
    """Skip a module of browser tests unless they were asked for; in CI a missing browser is an error."""
    if not os.environ.get("REMATCH_BROWSER"):
        pytest.skip("browser tests run with `make test-all`", allow_module_level=True)
    if not (CHROMIUM and DRIVER):
        missing = "chromium and chromedriver are not installed"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing, allow_module_level=True)


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address of a server on this machine, with its token."""
    with serving(root) as port:
        yield f"http://127.0.0.1:{port}/?token={TOKEN}"


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window; an error in its console fails the test."""
    with browser() as driver:
        yield driver
        severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def accessibility_problems(browser: Any) -> list[str]:
    """What axe-core finds on the present page: rule and first element of each violation."""
    import axe_core_python

    browser.execute_script((Path(axe_core_python.__file__).parent / "axe.min.js").read_text())
    report = browser.execute_async_script("axe.run().then(arguments[0])")
    return [f"{found['id']}: {found['nodes'][0]['html'][:200]}" for found in report["violations"]]
