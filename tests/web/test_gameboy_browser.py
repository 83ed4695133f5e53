"""The page of gameboy in a browser: dots and lists open games, keys play them, the map follows the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import gameboy_worlds, savestate_runs, single_seat_worlds
from support.browser import accessibility_problems, chromium, prefer, require_browser, served, wait

from rematch.agents.learners import dqn
from rematch.web.run_data import identifier
from rematch.web.worlds import gameboy_play

require_browser()
gameboy_worlds.need_pyboy()
SCREEN = "document.querySelector('.gb-screen')"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, sizes = tmp_path_factory.mktemp("served"), dqn.SIZES
    dqn.SIZES = single_seat_worlds.SIZES
    try:
        config = savestate_runs.config(total_steps=4 * 20 * 8, episode_log__interval=80)
        savestate_runs.go_on(folder / "walk", config)
    finally:
        dqn.SIZES = sizes
    shutil.copytree(folder / "walk", folder / "old")
    (folder / "old/world_map.json").unlink()
    return folder


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, served(root) as text:
        patch.setattr(gameboy_play, "MOST_SESSIONS", 100)  # a browser that is killed does not close its game
        yield text


@pytest.fixture
def browser(address: str) -> Iterator[Any]:
    with chromium() as driver:
        driver.get(address)
        wait(driver, "document.getElementById('main').dataset.ready === 'runs'")
        yield driver


def open_page(browser: Any, root: Path, name: str = "walk") -> None:
    run = identifier(root, root / name)
    browser.execute_script(f"location.hash = '#/run/{run}/gameboy'")
    wait(browser, f"document.getElementById('main').dataset.ready === '{run}/gameboy'")
    wait(browser, "document.querySelector('.world-map').height > 10")


def shown_place(browser: Any) -> str:
    return str(wait(browser, f"{SCREEN}.dataset.place"))


def press(browser: Any, key: str) -> None:
    browser.execute_script(f"{SCREEN}.dispatchEvent(new KeyboardEvent('keydown', "
                           f"{{key: {json.dumps(key)}, bubbles: true, cancelable: true}}))")  # fmt: skip


def colours(browser: Any) -> set[tuple[int, int, int]]:
    """The colours of the map."""
    data = browser.execute_script(
        "const c = document.querySelector('.world-map');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const out = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255)"
        " out.add(`${d[i]},${d[i + 1]},${d[i + 2]}`); return [...out]")  # fmt: skip
    return {tuple(map(int, text.split(","))) for text in data}  # type: ignore[misc]


def test_run_page_links_to_the_map(browser: Any) -> None:
    browser.find_element("link text", "walk").click()
    wait(browser, "document.querySelector('.links a')?.textContent === 'World map and play'")
    browser.find_element("link text", "World map and play").click()
    wait(browser, "document.querySelector('.world-map') !== null")


def test_map_draws_tiles_dots_flags_and_the_way(browser: Any, root: Path) -> None:
    prefer(browser, "light")
    open_page(browser, root)
    stored = json.loads((root / "walk/world_map.json").read_text())
    dots = wait(browser, "document.querySelectorAll('[data-game]').length")
    assert dots == len(stored["games"]) == 4
    flags = browser.execute_script("return document.querySelectorAll('[data-savestate]').length")
    assert flags == len(stored["savestates"]) > 0
    groups = {game["group"] for game in stored["games"]}
    paints = {"early": (31, 111, 209), "mid": (138, 62, 200), "late": (196, 80, 27)}
    assert {paints[group] for group in groups} | {(29, 127, 78)} <= colours(browser)
    text = browser.find_element("id", "main").text
    assert "0 of 0 episodes" not in text
    assert "way to the frontier" in text and "Probability that an episode reaches a milestone" in text


def test_click_on_a_dot_shows_the_screen_of_its_game(browser: Any, root: Path) -> None:
    from selenium.webdriver import ActionChains

    prefer(browser, "light", still=True)
    open_page(browser, root)
    stored = json.loads((root / "walk/world_map.json").read_text())["games"]
    # the middle of a dot: the mean of the pixels with its colour
    canvas = browser.find_element("css selector", ".world-map")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    paint = {"early": "31,111,209", "mid": "138,62,200", "late": "196,80,27"}[stored[0]["group"]]
    x, y = browser.execute_script(
        "const c = document.querySelector('.world-map'), n = c.getContext('2d');"
        "const d = n.getImageData(0, 0, c.width, c.height).data;"
        f"const want = [{paint}];"
        "for (let i = 0; i < d.length; i += 4) if (want.every((v, k) => d[i + k] === v))"
        " { const p = i / 4; return [p % c.width / c.width * c.clientWidth,"
        " (Math.floor(p / c.width) + 2) / c.height * c.clientHeight]; }")  # fmt: skip
    box = canvas.rect
    ActionChains(browser).move_to_element_with_offset(
        canvas, int(x - box["width"] / 2), int(y - box["height"] / 2 + 2)).click().perform()  # fmt: skip
    place = shown_place(browser)
    title = browser.execute_script("return document.querySelector('.gb-console h2').textContent")
    if title.startswith("Game "):
        number = int(title.split()[1])
        assert place == ",".join(map(str, stored[number]["path"][-1]))
    else:
        assert title.startswith("Savestate ")


def test_keyboard_opens_a_savestate_and_plays(browser: Any, root: Path) -> None:
    open_page(browser, root)
    browser.execute_script("document.querySelector('[data-savestate]').focus()")
    browser.switch_to.active_element.send_keys("\n")
    first = shown_place(browser)
    picture = browser.execute_script(f"return {SCREEN}.toDataURL()")
    assert browser.execute_script(f"return document.activeElement === {SCREEN}")
    for key in ("ArrowUp", "ArrowLeft", "x", "z", "ArrowRight", "ArrowDown", "ArrowDown"):
        press(browser, key)
    wait(browser, "document.querySelector('.gb-console .note').textContent.includes('7 actions')")
    assert browser.execute_script(f"return {SCREEN}.toDataURL()") != picture
    browser.find_element("css selector", "[data-button=start]").click()
    wait(browser, "document.querySelector('.gb-console .note').textContent.includes('8 actions')")
    assert first and browser.find_element("css selector", ".gb-console .problem").text == ""


def test_dots_move_while_the_run_writes(browser: Any, root: Path) -> None:
    prefer(browser, "light", still=True)
    open_page(browser, root)
    wait(browser, "document.getElementById('live').textContent === 'live'")
    picture = "document.querySelector('.world-map').toDataURL()"
    before = browser.execute_script(f"return {picture}")
    file = root / "walk/world_map.json"
    whole = file.read_text()
    value = json.loads(whole)
    for game in value["games"]:
        game["path"] = [value["frontier"][0], value["frontier"][len(value["frontier"]) // 2]]
    try:
        file.write_text(json.dumps(value | {"step": value["step"] + 80}))
        wait(browser, f"{picture} !== {json.dumps(before)}")
        wait(browser, "document.querySelector('.facts').textContent.includes('720 steps')")
    finally:
        file.write_text(whole)


def test_run_without_a_map_is_said_and_can_be_played(browser: Any, root: Path) -> None:
    open_page(browser, root, "old")
    assert "this run has no map yet" in browser.find_element("id", "main").text
    browser.find_element("css selector", "[data-start]").click()
    assert shown_place(browser) == "0,0,0"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_page_is_accessible_and_fits(browser: Any, root: Path, scheme: str, width: int) -> None:
    prefer(browser, scheme)
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    open_page(browser, root)
    # a change of the run's files while the page opens draws it again: choose again where nothing is chosen
    wait(browser, f"{SCREEN}.dataset.place || (document.querySelector('[data-savestate][aria-pressed=true]')"
                  " || document.querySelector('[data-savestate]').click(), '')")  # fmt: skip
    assert wait(browser, f"document.documentElement.scrollWidth <= {width}")
    assert accessibility_problems(browser) == []
