"""Chromium for tests of pages: a driver, a server, and waiting for a condition on the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.served_pages import TOKEN, serving

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
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
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1000"):
        options.add_argument(argument)
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(str(DRIVER)), options=options)
    try:
        yield driver
        severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    finally:
        driver.quit()
    assert severe == []


def prefer(browser: Any, scheme: str = "light", still: bool = True) -> None:
    """Set the user's preferences: colour scheme, and reduced motion."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def wait(browser: Any, script: str) -> Any:
    """The value of an expression on the page, once it is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 20).until(lambda driver: driver.execute_script(f"return {script}"))


def accessibility_problems(browser: Any) -> list[str]:
    """What axe-core finds on the present page: rule and first element of each violation."""
    import axe_core_python

    browser.execute_script((Path(axe_core_python.__file__).parent / "axe.min.js").read_text())
    report = browser.execute_async_script("axe.run().then(arguments[0])")
    return [f"{found['id']}: {found['nodes'][0]['html'][:200]}" for found in report["violations"]]
