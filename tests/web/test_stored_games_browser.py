"""Stored games of Beasty Bar and the Game Boy in a real browser, and replay files of the user.

    make test-browser    or: REMATCH_BROWSER=1 python -m pytest tests/web/test_stored_games_browser.py
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import gameboy_worlds
from support.browser import (
    accessibility_problems,
    chromium,
    expect_refusal,
    prefer,
    require_browser,
    wait,
)
from support.recorded_games import recorded
from support.tiny_run import SMALL

import rematch
from rematch.evaluation.replay import Playback
from rematch.storage import replay_files
from rematch.web.run_data import identifier

require_browser()
TINY = {"games": 8, "steps": 4, "total_steps": 64, "save_every": 1, "evaluation.every": 1,
        "evaluation.games": 4, "network.hidden": [8]}  # fmt: skip
SCREEN = "document.querySelector('.gb-screen')"
RANGE = "document.querySelector('.player input[type=range]')"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    rematch.train("beasty", TINY, folder=folder / "cards")
    rematch.train("quick", SMALL, folder=folder / "chase")
    cartridge = folder / "cartridge"  # a run as the page needs it: settings, and one stored game
    (cartridge / "replays").mkdir(parents=True)
    (cartridge / "config.yaml").write_text("game: gameboy\nworld:\n  cartridge: tiny\n")
    return folder


@pytest.fixture
def browser(address: str) -> Iterator[Any]:
    with chromium() as driver:
        prefer(driver)
        driver.get(address)
        wait(driver, "document.getElementById('main').dataset.ready === 'runs'")
        yield driver


def open_page(browser: Any, root: Path, name: str, world: str) -> None:
    run = identifier(root, root / name)
    browser.execute_script(f"location.hash = '#/run/{run}/{world}'")
    wait(browser, f"document.getElementById('main').dataset.ready === '{run}/{world}'")


def scrub(browser: Any, selector: str, step: int) -> None:
    browser.execute_script(f"const r = {selector}; r.value = '{step}'; r.dispatchEvent(new Event('input'));")


def emulate(browser: Any, scheme: str, width: int) -> None:
    prefer(browser, scheme)
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


# --- Beasty Bar ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1200)])
def test_stored_card_game_scrubs_to_an_exact_turn(browser: Any, root: Path, scheme: str, width: int) -> None:
    emulate(browser, scheme, width)
    open_page(browser, root, "cards", "beasty")
    assert browser.find_element("id", "trail").text == "Runs / cards / Play Beasty Bar"
    newest = browser.find_element("css selector", ".games button")
    name = newest.get_attribute("data-replay")
    newest.click()
    wait(browser, "document.querySelector('#bb-scrub') !== null")
    playback = Playback(replay_files.read(root / f"cards/replays/{name}.replay"))
    world: Any = playback.world
    for step in playback.steps():
        if step in (0, 5, playback.replay.length - 1):
            (state,) = world.read(np.zeros(1, np.int32))
            scrub(browser, "document.querySelector('#bb-scrub')", step)
            cards = "[...document.querySelectorAll('.bb-line [data-animal]')].map((c) => c.dataset.animal)"
            assert browser.execute_script(f"return {cards}") == [animal for _, animal in state.line]
    wait(browser, "document.querySelector('.bb-theatre .bb-review') !== null")
    assert browser.find_elements("css selector", ".bb-theatre .bb-graph")
    assert wait(browser, f"document.documentElement.scrollWidth <= {width}")
    assert accessibility_problems(browser) == []
    browser.execute_script("document.querySelector('.bb-theatre .bb-actions button:nth-child(4)').click()")


def test_start_page_without_a_run_shows_a_replay_file(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.replay"
    game = recorded("beasty", players=3)
    replay_files.write(file, game)
    browser.find_element("link text", "Play Beasty Bar").click()
    wait(browser, "document.querySelector('.replay-file') !== null")
    browser.find_element("css selector", ".replay-file").send_keys(str(file))
    wait(browser, "document.querySelector('.bb-theatre .bb-review') !== null", 60)
    assert game.caption() in browser.find_element("css selector", ".bb-theatre").text
    wrong = tmp_path / "wrong.replay"
    wrong.write_text("{}")
    browser.find_element("css selector", ".replay-file").send_keys(str(wrong))
    wait(browser, "document.body.textContent.includes('this file is not a replay of Rematch')", 60)


# --- pursuit ------------------------------------------------------------------------------------------------


def test_replay_file_and_saved_game_are_shown_again(browser: Any, root: Path, tmp_path: Path) -> None:
    open_page(browser, root, "chase", "pursuit")
    file = tmp_path / "game.replay"
    game = recorded("pursuit", max_steps=30)
    replay_files.write(file, game)
    browser.find_element("css selector", ".replay-file").send_keys(str(file))
    wait(browser, f"document.querySelector('.theatre .caption')?.textContent === {game.caption()!r}", 60)
    saved = browser.execute_script("return document.querySelector('a[download]').href")
    assert saved.startswith("blob:")
    groups = browser.execute_script(
        "return [...document.querySelectorAll('.new-game select')[0].querySelectorAll('optgroup')]"
        ".map((one) => one.label)")  # fmt: skip
    assert groups == ["this run", "scripted players"]


# --- Game Boy -----------------------------------------------------------------------------------------------


def screen_of(world: Any) -> list[int]:
    """Every 97th pixel, 0 to 3."""
    pixels: list[int] = (world.screen(0) >> 6).reshape(-1)[::97].tolist()
    return pixels


SHOWN = f"""
const c = {SCREEN}, d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, out = [];
for (let i = 0; i < c.width * c.height; i += 97) out.push([22, 64, 142, 224].indexOf(d[4 * i]));
return out;
"""


def test_stored_cartridge_game_scrubs_plays_and_becomes_the_users(browser: Any, root: Path) -> None:
    gameboy_worlds.need_pyboy()
    game = recorded("gameboy", limit=40, cartridge="tiny", max_steps=100)
    replay_files.write(root / "cartridge/replays/00000002-1.replay", game)
    screens, playback = [], Playback(game)
    for _ in playback.steps():
        screens.append(screen_of(playback.world))
    open_page(browser, root, "cartridge", "gameboy")
    browser.find_element("css selector", "[data-replay]").click()
    wait(browser, f"{RANGE} !== null && {SCREEN}.dataset.place !== undefined")
    assert browser.execute_script(SHOWN) == screens[0]
    for step in (30, 33, 4, game.length - 1):
        scrub(browser, RANGE, step)
        wait(browser, f"{SCREEN}.dataset.step === '{step}'")
        assert browser.execute_script(SHOWN) == screens[step], step
    assert accessibility_problems(browser) == []
    scrub(browser, RANGE, 0)
    wait(browser, f"{SCREEN}.dataset.step === '0'")
    browser.execute_script("const s = document.querySelector('.player select'); s.value = '8';"
                           "s.dispatchEvent(new Event('change'));")
    browser.find_element("css selector", ".player .play").click()
    wait(browser, f"Number({SCREEN}.dataset.step) >= 6")
    browser.find_element("css selector", "[data-button=a]").click()
    wait(browser, f"{SCREEN}.dataset.step === ''")
    assert browser.find_element("css selector", ".player .play").get_attribute("aria-label") == "play"
    scrub(browser, RANGE, 30)
    wait(browser, f"{SCREEN}.dataset.step === '30'")
    assert browser.execute_script(SHOWN) == screens[30], "the recorded game is there again"
    assert browser.find_element("css selector", ".gb-console .problem").text == ""
    browser.find_element("css selector", "[data-start]").click()
    wait(browser, f"{RANGE} === null")


@pytest.mark.parametrize(("name", "world"), [("chase", "pursuit"), ("cards", "beasty")])
def test_run_deleted_while_its_games_are_shown_is_said(
    browser: Any, root: Path, name: str, world: str
) -> None:
    copy = root / f"{name}-copy"
    wait(browser, "document.getElementById('live').textContent === 'live'")
    shutil.copytree(root / name, copy)
    wait(browser, f"document.getElementById('main').textContent.includes('{copy.name}')")  # it is noticed
    open_page(browser, root, copy.name, world)
    wait(browser, "document.querySelector('.games button') !== null")
    shutil.rmtree(copy)
    wait(browser, "document.querySelector('#unreadable')?.textContent.includes('no such run')")
    expect_refusal(browser, 404)
    assert browser.find_elements("css selector", ".games button"), "the rest of the page stays"
    assert accessibility_problems(browser) == []


def test_change_of_files_or_colours_while_a_page_opens_draws_it_once(browser: Any, root: Path) -> None:
    wait(browser, "document.getElementById('live').textContent === 'live'")
    browser.execute_script("const ask = window.fetch; window.asked = 0; window.fetch = async (...words) => {"
                           "asked++; "
                           "await new Promise((done) => setTimeout(done, 2500)); return ask(...words); }")
    run = identifier(root, root / "chase")
    browser.execute_script(f"location.hash = '#/run/{run}/pursuit'")
    wait(browser, "asked > 0")
    prefer(browser, "dark")
    with (root / "chase/train.log").open("a") as log:
        log.write("a line\n")
    wait(browser, f"document.getElementById('main').dataset.ready === '{run}/pursuit'")
    browser.execute_script("document.querySelector('.new-game').marked = true")
    assert not browser.execute_async_script("setTimeout(arguments[0], 4000)")
    assert browser.execute_script("return document.querySelector('.new-game').marked"), "the same element"
