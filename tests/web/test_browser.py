"""The pages in a real browser: they open, follow a run, stay readable, and log no error.

    make test-all        or: REMATCH_BROWSER=1 python -m pytest tests/web/test_browser.py
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import PHONE, accessibility_problems, chromium, prefer, require_browser, served, wait
from support.tiny_run import SMALL

import rematch

require_browser()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    rematch.train("quick", SMALL, folder=folder / "one")
    shutil.copytree(folder / "one", folder / "<b>two</b>")
    return folder


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with served(root) as text:
        yield text


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


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
        wait(browser, "document.querySelectorAll('.chart canvas').length === 1")  # drawn again
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
def test_list_and_run_page_fit_a_phone_in_both_colour_schemes(
    browser: Any, address: str, scheme: str
) -> None:
    prefer(browser, scheme)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    browser.get(address)
    wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
    assert wait(browser, "document.documentElement.scrollWidth <= 360")
    assert accessibility_problems(browser) == []
    open_run(browser, address)
    assert wait(browser, "document.documentElement.scrollWidth <= 360")
    assert accessibility_problems(browser) == []
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
