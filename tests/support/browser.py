"""Chromium for tests of pages: a driver, a server, and waiting for a condition on the page."""

from __future__ import annotations

import atexit
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


_open: list[Any] = []  # the browser of this process, once a test has needed it


def _browser() -> Any:
    """One browser for all tests of this process: a new one takes seconds. It ends with the process."""
    if not _open:
        context = browser()
        _open.append(context.__enter__())
        atexit.register(context.__exit__, None, None, None)
    return _open[0]


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window, as good as new; an error in its console fails the test."""
    driver = _browser()
    _renew(driver)
    yield driver
    severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def _renew(driver: Any) -> None:
    """A new tab without cookies, stored values, preferences and messages; the earlier tabs are closed."""
    for handle in driver.window_handles[1:]:
        driver.switch_to.window(handle)
        driver.close()
    driver.switch_to.window(driver.window_handles[0])
    before = driver.current_window_handle
    if driver.current_url.startswith("http"):
        origin = driver.execute_script("return location.origin")
        driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    driver.switch_to.new_window("tab")
    fresh = driver.current_window_handle
    driver.switch_to.window(before)
    driver.close()
    driver.switch_to.window(fresh)
    driver.get_log("browser")


def expect_refusal(browser: Any, status: int) -> None:
    """Take the browser's own message of a refused request from its console, where it may come late."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 120, 0.05).until(
        lambda page: any(f"status of {status}" in entry["message"] for entry in page.get_log("browser")))


def accessibility_problems(browser: Any) -> list[str]:
    """What axe-core finds on the present page: rule and first element of each violation."""
    import axe_core_python

    browser.execute_script((Path(axe_core_python.__file__).parent / "axe.min.js").read_text())
    report = browser.execute_async_script("axe.run().then(arguments[0])")
    return [f"{found['id']}: {found['nodes'][0]['html'][:200]}" for found in report["violations"]]
