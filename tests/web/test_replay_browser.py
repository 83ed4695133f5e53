"""The pages of pursuit and lattice in a real browser: scrubbing, speed, keyboard, colours, phones, jobs.

    make test-all        or: REMATCH_BROWSER=1 python -m pytest tests/web/test_replay_browser.py
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import accessibility_problems, chromium, prefer, require_browser
from support.tiny_run import SMALL

import rematch
from rematch.evaluation.replay import Playback
from rematch.storage import replay_files
from rematch.web.run_data import identifier

require_browser()
RANGE = "document.querySelector('.player input[type=range]')"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    often = SMALL | {"evaluation.every": 1, "world.max_steps": 60}
    rematch.train("quick", often, folder=folder / "chase")
    rematch.train("quick", often | {"world.full_obs": False}, folder=folder / "sensors")
    board = {"games": 8, "steps": 4, "total_steps": 64, "save_every": 1, "evaluation.games": 4, "world.n": 4,
             "world.block": 0, "world.horizon": 6, "network.hidden": [8]}  # fmt: skip
    rematch.train("lattice", board, folder=folder / "board")
    return folder


@pytest.fixture
def browser(address: str) -> Iterator[Any]:
    with chromium() as driver:
        driver.get(address)
        wait(driver, "document.getElementById('main').dataset.ready === 'runs'")
        yield driver


def wait(browser: Any, script: str, seconds: float = 120) -> Any:
    """The first true value of an expression on the page; jobs take seconds."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, seconds, 0.05).until(
        lambda driver: driver.execute_script(f"return {script}"), f"never true: {script}")  # fmt: skip


def emulate(browser: Any, scheme: str, width: int = 1200) -> None:
    prefer(browser, scheme)
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def open_page(browser: Any, root: Path, name: str, world: str) -> Path:
    """Open the page of a run; returns the file of the replay that it shows."""
    run = identifier(root, root / name)
    browser.execute_script(f"location.hash = '#/run/{run}/{world}'")
    wait(browser, f"document.getElementById('main').dataset.ready === '{run}/{world}'")
    replay = wait(browser, "document.querySelector('.games [aria-pressed=true]')?.dataset.replay")
    wait(browser, f"{RANGE} !== null")
    return root / name / "replays" / f"{replay}.replay"


def press(browser: Any, key: str) -> None:
    browser.execute_script(
        "document.activeElement.blur(); document.body.dispatchEvent(new KeyboardEvent('keydown', "
        f"{{key: {json.dumps(key)}, bubbles: true, cancelable: true}}))")


def state_text(browser: Any) -> str:
    return str(browser.execute_script("return document.querySelector('.state-list').textContent"))


def test_run_page_links_to_the_replays(browser: Any, root: Path) -> None:
    browser.find_element("link text", "chase").click()
    wait(browser, "[...document.querySelectorAll('.links a')].some((link) => link.textContent === 'Replays')")
    browser.find_element("link text", "Replays").click()
    wait(browser, "document.querySelector('.stage') !== null")


def test_scrubber_shows_the_exact_state_of_a_step(browser: Any, root: Path) -> None:
    file = open_page(browser, root, "chase", "pursuit")
    playback = Playback(replay_files.read(file))
    world: Any = playback.world
    for step in playback.steps():
        if step not in (0, 7, 33, playback.replay.length - 1):
            continue
        browser.execute_script(f"const r = {RANGE}; r.value = {step}; r.dispatchEvent(new Event('input'))")
        state = world.state_of(0)
        for seat, role in enumerate(("pursuer", "evader")):
            x, y = float(state["x"][seat]), float(state["y"][seat])
            shown = browser.execute_script(
                "return [...document.querySelectorAll('.state-list dt')]"
                f".find((node) => node.textContent === '{role}').nextSibling.textContent")
            numbers = [float(number) for number in re.findall(r"[xy] (-?[0-9.]+) m", shown)]
            assert numbers == pytest.approx([x, y], abs=0.0051), (step, shown)
        label = browser.execute_script("return document.querySelector('.step-label').textContent")
        assert label.startswith(f"step {step} of {playback.replay.length - 1}")


def test_play_pause_and_speed(browser: Any, root: Path) -> None:
    file = open_page(browser, root, "chase", "pursuit")
    last = replay_files.read(file).length - 1
    browser.execute_script("document.querySelector('.player select').value = '8';"
                           "document.querySelector('.player select').dispatchEvent(new Event('change'))")
    browser.find_element("css selector", ".play").click()
    wait(browser, f"Number({RANGE}.value) > 3")
    browser.find_element("css selector", ".play").click()
    paused = browser.execute_script(f"return {RANGE}.value")
    browser.execute_async_script("setTimeout(arguments[0], 300)")
    assert browser.execute_script(f"return {RANGE}.value") == paused
    browser.find_element("css selector", ".play").click()
    wait(browser, f"Number({RANGE}.value) === {last}")
    assert wait(browser, "document.querySelector('.play').getAttribute('aria-label') === 'play'")


def test_keyboard_steps_jumps_and_plays(browser: Any, root: Path) -> None:
    last = replay_files.read(open_page(browser, root, "chase", "pursuit")).length - 1
    for key, step in (("ArrowRight", 1), (".", 2), ("ArrowLeft", 1), ("End", last), ("Home", 0)):
        press(browser, key)
        assert browser.execute_script(f"return Number({RANGE}.value)") == step, key
    press(browser, " ")
    wait(browser, f"Number({RANGE}.value) > 0")
    press(browser, " ")
    assert wait(browser, "document.querySelector('.play').getAttribute('aria-label') === 'play'")


def test_every_step_changes_the_picture_and_switches_hide_parts(browser: Any, root: Path) -> None:
    open_page(browser, root, "sensors", "pursuit")
    pixels = "document.querySelector('.stage').toDataURL()"
    press(browser, "End")
    pictures = {browser.execute_script(f"return {pixels}")}
    boxes = browser.find_elements("css selector", ".switch input")
    assert len(boxes) == 3, "trails, sight line, LiDAR"
    for box in boxes:
        box.click()
        pictures.add(browser.execute_script(f"return {pixels}"))
    press(browser, "Home")
    pictures.add(browser.execute_script(f"return {pixels}"))
    assert len(pictures) == 5


def test_filter_and_new_game_of_chosen_players(browser: Any, root: Path) -> None:
    open_page(browser, root, "chase", "pursuit")
    browser.execute_script("const s = document.querySelectorAll('.new-game select'); s[0].value = 'bot:lion';"
                           "s[1].value = 'bot:random';")
    browser.find_element("css selector", ".new-game button").click()
    wait(browser, "document.querySelector('.players')?.textContent.includes('scripted: lion')", 60)
    saved = browser.execute_script("return document.querySelector('a[download]').download")
    assert saved == "game.replay"
    assert "scripted: random" in browser.find_element("css selector", ".players").text
    losers = browser.execute_script(
        "const s = document.querySelector('[aria-label=\"show games by outcome\"]'); s.value = '0';"
        "s.dispatchEvent(new Event('change')); return document.querySelectorAll('.games button').length")
    stored = [replay_files.read(path) for path in (root / "chase/replays").glob("*.replay")]
    assert losers == sum(replay.outcome[0] < 0.25 for replay in stored)


@pytest.mark.parametrize(("name", "world"), [("chase", "pursuit"), ("board", "lattice")])
def test_user_plays_a_whole_game_by_keyboard_and_sees_its_replay(
    browser: Any, root: Path, name: str, world: str
) -> None:
    open_page(browser, root, name, world)
    play = ("[...document.querySelectorAll('section')]"
            ".find((one) => one.querySelector('h2')?.textContent === 'Play yourself')")
    browser.execute_script(f"const s = {play}; s.querySelector('select').value = 'evader';"
                           f"{play}.querySelector('button').click()")
    wait(browser, "document.querySelector('.held-buttons') !== null", 60)
    assert "You are the evader" in browser.find_element("css selector", ".caption").text
    assert accessibility_problems(browser) == []
    before = browser.find_element("css selector", ".step-label").text
    press(browser, "ArrowUp")
    wait(browser, f"document.querySelector('.step-label')?.textContent !== {json.dumps(before)}", 60)
    for _ in range(200):
        if not browser.execute_script("return document.querySelector('.held-buttons') !== null"):
            break
        browser.execute_script("document.dispatchEvent(new KeyboardEvent('keyup', {key: 'ArrowUp'}))")
        press(browser, "ArrowUp")
        time.sleep(0.1)
    wait(browser, f"{RANGE} !== null", 60)
    players = browser.find_element("css selector", ".players").text
    assert "evader you" in players.replace("\n", " ")
    value, last = browser.execute_script(f"return [{RANGE}.value, {RANGE}.max]")
    assert value == last, "the end of the game is shown"


def test_page_follows_the_run_and_keeps_the_shown_step(browser: Any, root: Path) -> None:
    file = open_page(browser, root, "chase", "pursuit")
    press(browser, "ArrowRight")
    wait(browser, "document.getElementById('live').textContent === 'live'")
    later = file.with_name("00000099-1.replay")
    shutil.copy(file, later)
    with (root / "chase/train.log").open("a") as log:
        log.write("an evaluation\n")
    try:
        wait(browser, "document.querySelector('[data-replay=\"00000099-1\"]') !== null")
        assert browser.execute_script(f"return Number({RANGE}.value)") == 1
    finally:
        later.unlink()


def test_lattice_page_solves_the_board_and_plays_from_a_start(browser: Any, root: Path) -> None:
    open_page(browser, root, "board", "lattice")
    browser.execute_script("document.querySelector('[aria-label=\"exact values\"] button').click()")
    wait(browser, "document.querySelectorAll('.map').length === 3", 90)
    for cell in (0, 15):
        browser.execute_script(f"document.querySelector('[data-table=value][data-cell=\"{cell}\"]').click()")
    assert "Pursuer at (0, 0), evader at (3, 3): value" in browser.find_element("id", "exact").text
    browser.execute_script("[...document.querySelectorAll('#exact button')].at(-1).click()")
    wait(browser, "document.querySelector('.players')?.textContent.includes('optimal play')", 90)
    text = state_text(browser)
    assert "cell (0, 0)" in text and "cell (3, 3)" in text
    assert accessibility_problems(browser) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize(
    ("name", "world"), [("sensors", "pursuit"), ("board", "lattice"), ("board", "other")])
def test_pages_are_accessible_and_fit(
    browser: Any, root: Path, scheme: str, width: int, name: str, world: str
) -> None:
    emulate(browser, scheme, width)
    open_page(browser, root, name, world)
    assert wait(browser, f"document.documentElement.scrollWidth <= {width}")
    assert accessibility_problems(browser) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_list_and_run_page_are_accessible(browser: Any, root: Path, scheme: str) -> None:
    emulate(browser, scheme)
    assert accessibility_problems(browser) == []
    browser.find_element("link text", "chase").click()
    wait(browser, "document.querySelector('.chart') !== null")
    assert accessibility_problems(browser) == []


def test_damaged_replay_is_said_and_the_page_stays(browser: Any, root: Path) -> None:
    bad = root / "chase/replays/00000098-1.replay"
    bad.write_bytes(b"{}")
    try:
        open_page(browser, root, "chase", "pursuit")
        games = browser.find_element("css selector", ".games").text
        assert "00000098-1.replay is not a replay of Rematch" in games
    finally:
        bad.unlink()
