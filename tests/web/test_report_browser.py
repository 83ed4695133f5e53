"""report.html in a real browser: tables not clipped at 1300 px, charts readable at 360 px, dark pictures.

    make test-browser    or: REMATCH_BROWSER=1 python -m pytest tests/web/test_report_browser.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import gameboy_worlds, savestate_runs, single_seat_worlds
from support.browser import accessibility_problems, prefer, require_browser, wait
from support.tiny_run import SMALL

import rematch
from rematch.agents.learners import dqn

require_browser()
NAMES = ("pursuit", "walk")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, sizes = tmp_path_factory.mktemp("runs"), dqn.SIZES
    opponents = ["random", "proportional_navigation", "obstacle_orbit", "flee_to_corner"]
    changes = SMALL | {"evaluation.every": 1, "past_policies.count": 3, "evaluation.opponents": opponents}
    rematch.train("quick", changes, folder=folder / "pursuit")
    rematch.report(folder / "pursuit", games=2)
    gameboy_worlds.need_pyboy()
    dqn.SIZES = single_seat_worlds.SIZES
    try:
        savestate_runs.go_on(folder / "walk", savestate_runs.config(total_steps=4 * 20 * 8))
    finally:
        dqn.SIZES = sizes
    rematch.report(folder / "walk", quick=True)
    return folder


def open_report(browser: Any, root: Path, name: str, scheme: str, width: int) -> None:
    prefer(browser, scheme)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((root / name / "report.html").as_uri())
    wait(browser, "document.readyState === 'complete'")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_report_fits_and_is_accessible(
    browser: Any, root: Path, name: str, scheme: str, width: int
) -> None:
    open_report(browser, root, name, scheme, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert accessibility_problems(browser) == []
    browser.get("about:blank")


@pytest.mark.parametrize("name", NAMES)
def test_no_table_is_clipped_at_1300_pixels(browser: Any, root: Path, name: str) -> None:
    open_report(browser, root, name, "light", 1300)
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    clipped = browser.execute_script(
        "return [...document.querySelectorAll('.wide')]"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1)"
        ".map((one) => one.textContent.slice(0, 80))")  # fmt: skip
    assert clipped == [] and browser.find_elements("css selector", ".wide table")
    browser.get("about:blank")


@pytest.mark.parametrize("name", NAMES)
def test_letters_of_charts_are_readable_at_360_pixels(browser: Any, root: Path, name: str) -> None:
    open_report(browser, root, name, "light", 360)
    heights = browser.execute_script(
        "return [...document.querySelectorAll('svg.chart text')].map((one) => one.getBoundingClientRect())"
        ".filter((box) => box.height > 0).map((box) => box.height)")  # fmt: skip
    assert heights and min(heights) >= 9
    browser.get("about:blank")


def test_letters_of_the_picture_of_curves_are_readable_at_360_pixels(browser: Any, root: Path) -> None:
    """The smallest letters are 11 pixels high in the file; on a phone the picture is scrolled."""
    open_report(browser, root, "pursuit", "light", 360)
    picture = browser.find_element("css selector", ".wide img.plot")
    whole = int(browser.execute_script("return arguments[0].naturalWidth", picture))
    assert 11 * picture.size["width"] / whole >= 9
    browser.get("about:blank")


@pytest.mark.parametrize("picture", ["img.plot", "img.drawing"], ids=["curves", "film of a drawing"])
def test_pictures_are_dark_in_dark_mode(browser: Any, root: Path, picture: str) -> None:
    means = {}
    for scheme in ("light", "dark"):
        open_report(browser, root, "pursuit", scheme, 1300)
        shown = browser.find_element("css selector", picture)
        browser.execute_script("arguments[0].scrollIntoView()", shown)
        means[scheme] = brightness(shown.screenshot_as_png)
    assert means["dark"] < 70 < 200 < means["light"]
    browser.get("about:blank")


def brightness(png: bytes) -> float:
    import io

    from PIL import Image, ImageStat

    return float(ImageStat.Stat(Image.open(io.BytesIO(png)).convert("L")).mean[0])
