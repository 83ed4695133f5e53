"""The pages in a real browser: they open, follow a run, stay readable, and log no error.

    make test-all        or: REMATCH_BROWSER=1 python -m pytest tests/web/test_browser.py
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from support.tiny_run import SMALL

import rematch
from rematch.web import server

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not os.environ.get("REMATCH_BROWSER"):
    pytest.skip("browser tests run with `make test-all`", allow_module_level=True)
if not (CHROMIUM and DRIVER):
    missing = "chromium and chromedriver are not installed"
    assert not os.environ.get("CI"), missing
    pytest.skip(missing, allow_module_level=True)
TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    rematch.train("quick", SMALL, folder=folder / "one")
    shutil.copytree(folder / "one", folder / "<b>two</b>")
    return folder


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    listening = server.bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    app = server.make_app(root, TOKEN, server.host_names("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{port}/?token={TOKEN}"
    running.should_exit = True
    thread.join(10)


@pytest.fixture
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1000"):
        options.add_argument(argument)
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(str(DRIVER)), options=options)
    yield driver
    severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    driver.quit()
    assert severe == []


def wait(browser: Any, script: str) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 20).until(lambda driver: driver.execute_script(f"return {script}"))


def open_run(browser: Any, address: str, name: str = "one") -> None:
    browser.get(address)
    wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
    browser.find_element("link text", name).click()
    wait(browser, "document.getElementById('main').dataset.ready !== 'runs'")
    wait(browser, "document.querySelector('.chart') !== null")


def test_list_shows_every_run_as_text_and_compares_two(browser: Any, address: str) -> None:
    browser.get(address)
    wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
    names = [link.text for link in browser.find_elements("css selector", "td a")]
    assert sorted(names) == ["<b>two</b>", "one"]
    for box in range(2):
        browser.find_elements("css selector", "input[type=checkbox]")[box].click()
        wait(browser, f"document.querySelectorAll('input:checked').length === {box + 1}")
    assert wait(browser, "document.querySelectorAll('.chart canvas').length === 1")


def test_run_page_shows_curves_and_follows_the_run(browser: Any, address: str, root: Path) -> None:
    open_run(browser, address)
    text = browser.find_element("id", "main").text
    for heading in ("Strength", "Learning", "Settings that differ from the defaults", "End of the log"):
        assert heading in text
    assert browser.execute_script("return document.querySelectorAll('.chart canvas').length") >= 4
    wait(browser, "document.getElementById('live').textContent === 'live'")
    with (root / "one/train.log").open("a") as log:
        log.write("a line that was written later\n")
    wait(browser, "document.querySelector('.log').textContent.includes('a line that was written later')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_a_phone_in_both_colour_schemes(browser: Any, address: str, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    open_run(browser, address)
    assert wait(browser, "document.documentElement.scrollWidth <= 360")
    colours = browser.execute_script(
        "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]")
    brightness = [sum(json.loads("[" + colour.partition("(")[2].rstrip(")") + "]")[:3]) for colour in colours]
    assert (brightness[0] > brightness[1]) == (scheme == "light")


def test_deleted_run_is_reported(browser: Any, address: str) -> None:
    browser.get(address)
    wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
    browser.execute_script("location.hash = '#/run/0000000000000000'")
    assert wait(browser, "document.body.textContent.includes('there is no such run')")
    # the browser itself reports the answer 404 as an error
    browser.get_log("browser")
