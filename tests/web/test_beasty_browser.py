"""Beasty Bar in a real browser: whole games by mouse and keyboard, hints, review, saved games, phones.

make test-all        or: REMATCH_BROWSER=1 python -m pytest tests/web/test_beasty_browser.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.browser import (
    PHONE,
    accessibility_problems,
    chromium,
    expect_refusal,
    prefer,
    require_browser,
    served,
    wait,
)

require_browser()
ROOT = "document.querySelector('.bb')"
START = """
const [seats, deal, done] = arguments;
fetch("/api/worlds/beasty/games", {method: "POST", headers: {"Content-Type": "application/json"},
  body: JSON.stringify({seats, deal})}).then((answer) => answer.json()).then((game) => done(game.id));
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served")) as url:
        yield url


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as driver:
        prefer(driver)
        yield driver


def open_start(browser: Any, address: str) -> None:
    browser.get(address)
    wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
    browser.find_element("link text", "Play Beasty Bar").click()
    wait(browser, "document.querySelector('.bb-gallery') !== null")


def open_game(browser: Any, address: str, seats: list[str], deal: int = 11) -> str:
    open_start(browser, address)
    game = str(browser.execute_async_script(START, seats, deal))
    browser.execute_script("location.hash = `#/world/beasty/${arguments[0]}`", game)
    wait(browser, f"{ROOT}.dataset.step !== undefined")
    return game


def step_of(browser: Any) -> int:
    return int(browser.execute_script(f"return {ROOT}.dataset.step"))


def is_over(browser: Any) -> bool:
    return bool(browser.execute_script(f"return {ROOT}.dataset.over === 'true'"))


def played(browser: Any, step: int) -> None:
    """Wait until the game is beyond a step and the browser shows it."""
    wait(browser, f"Number({ROOT}.dataset.step) !== {step}")


def click_to_the_end(browser: Any) -> None:
    while not is_over(browser):
        step = step_of(browser)
        browser.find_elements("css selector", ".bb-move")[-1].click()
        played(browser, step)
    wait(browser, f"{ROOT}.dataset.reviewed === 'true'")


def test_whole_game_by_clicking(browser: Any, address: str) -> None:
    open_start(browser, address)
    browser.find_element("css selector", ".bb-actions .main").click()  # against the agent
    wait(browser, "document.querySelector('.bb-move') !== null")
    cards = browser.find_elements("css selector", ".bb-hand .bb-card")
    assert len(cards) == 4 and wait(browser, "document.querySelectorAll('.bb-art use').length > 4")
    drawn = "document.querySelector('.bb-hand .bb-art use').getBoundingClientRect().width > 20"
    assert wait(browser, drawn), "the drawing is loaded"
    click_to_the_end(browser)
    status = browser.find_element("css selector", ".bb-status").text
    assert any(word in status for word in ("You win.", "You lose.", "A draw.")) and "Points: you " in status
    assert browser.find_elements("css selector", ".bb-graph polyline")
    browser.find_element("css selector", ".bb-end .main").click()
    wait(browser, "document.querySelector('.bb-saved a') !== null")


def test_whole_game_by_keyboard(browser: Any, address: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        ActionChains(browser).send_keys(*keys).perform()

    open_start(browser, address)
    wait(browser, "document.activeElement.id === 'main'")
    press(Keys.TAB, Keys.ENTER)  # the first control starts a game against the agent
    wait(browser, "document.querySelector('.bb-move') !== null")
    press("h")
    wait(browser, "document.querySelector('.bb-move.best') !== null")
    turns = 0
    while not is_over(browser):
        step = step_of(browser)
        press("1")
        wait(browser, "document.activeElement.matches('.bb-move')")
        if turns % 2:
            press(Keys.ARROW_RIGHT)
        assert (
            browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") != "none"
        )
        press(Keys.ENTER)
        played(browser, step)
        turns += 1
        if turns == 3:
            before = step_of(browser)
            press("u")
            played(browser, before)
    wait(browser, f"{ROOT}.dataset.reviewed === 'true'")
    last = browser.find_element("css selector", ".bb-scrub-text").text
    press(Keys.ARROW_LEFT)
    assert browser.find_element("css selector", ".bb-scrub-text").text != last
    assert turns >= 10


def test_hint_and_undo(browser: Any, address: str) -> None:
    open_game(browser, address, ["you", "random"])
    browser.find_element("css selector", ".hint").click()
    wait(browser, "document.querySelectorAll('.bb-move.best').length === 1")
    values = [value.text for value in browser.find_elements("css selector", ".bb-value")]
    assert all("%" in value for value in values)
    assert "chance to win" in browser.find_element("css selector", ".bb-status").text
    first = step_of(browser)
    texts = [move.text.split("\n")[1] for move in browser.find_elements("css selector", ".bb-move-text")]
    browser.find_element("css selector", ".bb-move").click()
    played(browser, first)
    browser.find_element("css selector", ".undo").click()
    wait(browser, f"Number({ROOT}.dataset.step) === {first}")
    again = [move.text.split("\n")[1] for move in browser.find_elements("css selector", ".bb-move-text")]
    assert again == texts


def test_review_tries_again_and_the_scrubber_reaches_every_position(browser: Any, address: str) -> None:
    game = open_game(browser, address, ["you", "heuristic"])
    click_to_the_end(browser)
    script = "fetch(arguments[0]).then((answer) => answer.json()).then(arguments[1])"
    history = browser.execute_async_script(script, f"/api/worlds/beasty/games/{game}/history")
    for step in (0, 3, len(history["turns"]) - 1):
        browser.execute_script(
            "const range = document.getElementById('bb-scrub'); range.value = arguments[0];"
            "range.dispatchEvent(new Event('input'))",
            step,
        )
        shown = [
            card.get_attribute("data-animal")
            for card in browser.find_elements("css selector", ".bb-line .bb-card")
        ]
        assert shown == [card["animal"] for card in history["positions"][step]["line"]]
    review = browser.execute_async_script(script, f"/api/worlds/beasty/games/{game}/review")
    assert len(browser.find_elements("css selector", ".bb-mistakes > li")) == len(review["mistakes"]) > 0
    browser.find_element("css selector", ".bb-mistakes .again").click()
    wait(browser, f"!location.hash.includes('{game}') && document.querySelector('.bb-move') !== null")
    assert step_of(browser) == review["mistakes"][0]["step"]


def test_saved_game_goes_on_after_reload(browser: Any, address: str) -> None:
    open_game(browser, address, ["random", "you", "queue"])
    step = step_of(browser)
    browser.find_element("css selector", ".bb-move").click()
    played(browser, step)
    step, shown = step_of(browser), browser.find_element("css selector", ".bb-table").text
    browser.refresh()
    wait(browser, f"{ROOT} !== null && {ROOT}.dataset.step !== undefined")
    assert step_of(browser) == step and browser.find_element("css selector", ".bb-table").text == shown
    open_start(browser, address)
    browser.find_element("css selector", ".bb-saved a").click()
    wait(browser, "document.querySelector('.bb-move') !== null")
    assert step_of(browser) == step


def test_hover_focus_and_tap_explain_an_animal(browser: Any, address: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    open_game(browser, address, ["you", "random"])
    tip = browser.find_element("css selector", ".bb-tip")
    card = browser.find_element("css selector", ".bb-hand .bb-card")
    for show in (
        lambda: ActionChains(browser).move_to_element(card).perform(),
        lambda: card.send_keys(""),
        card.click,
    ):
        show()
        wait(browser, "!document.querySelector('.bb-tip').hidden")
        assert card.get_attribute("data-animal") in tip.text.lower() and "strength" in tip.text
        ActionChains(browser).send_keys(Keys.ESCAPE).perform()
        wait(browser, "document.querySelector('.bb-tip').hidden")


def test_turns_are_animated_unless_switched_off(browser: Any, address: str) -> None:
    prefer(browser, still=False)
    open_game(browser, address, ["you", "random"])
    assert browser.find_element("id", "bb-animation").is_selected()
    step = step_of(browser)
    browser.find_element("css selector", ".bb-move").click()
    wait(browser, "document.querySelector('.bb-stage').textContent.includes('joins the line')")
    assert step_of(browser) == step, "the turn is still shown"
    browser.find_element("css selector", ".bb-below button").click()  # skip
    played(browser, step)
    browser.find_element("id", "bb-animation").click()
    browser.find_element("id", "bb-chance").click()
    step = step_of(browser)
    browser.find_element("css selector", ".bb-move").click()
    played(browser, step)
    wait(browser, "document.querySelector('.bb-live .bb-graph') !== null")
    assert browser.find_element("css selector", ".bb-stage").text == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_and_accessibility_in_both_colour_schemes(browser: Any, address: str, scheme: str) -> None:
    prefer(browser, scheme)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    open_start(browser, address)
    browser.find_element("css selector", ".bb-form summary").click()
    colours = browser.execute_script(
        "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    )
    brightness = [sum(json.loads("[" + colour.partition("(")[2].rstrip(")") + "]")[:3]) for colour in colours]
    assert (brightness[0] > brightness[1]) == (scheme == "light")
    check_phone(browser)
    open_game(browser, address, ["you", "random", "queue", "skunk"], deal=5)
    for _ in range(2):
        step = step_of(browser)
        browser.find_element("css selector", ".bb-move").click()
        played(browser, step)
    browser.find_element("css selector", ".hint").click()
    wait(browser, "document.querySelector('.bb-move.best') !== null")
    check_phone(browser)
    click_to_the_end(browser)
    check_phone(browser)
    letters = "document.querySelector('.bb-graph text').getBoundingClientRect().height"
    assert wait(browser, f"{letters} >= 11"), "the numbers of the graph can be read on a phone"


def check_phone(browser: Any) -> None:
    assert wait(browser, "document.documentElement.scrollWidth <= 360")
    assert accessibility_problems(browser) == []


def test_lost_game_is_said(browser: Any, address: str) -> None:
    open_start(browser, address)
    browser.execute_script("location.hash = '#/world/beasty/' + '0'.repeat(32)")
    assert wait(browser, "document.body.textContent.includes('there is no such game')")
    expect_refusal(browser, 400)


def test_drawings_are_one_file_of_twelve_symbols() -> None:
    from rematch.web.server import static_file
    from rematch.worlds.beasty.config import SPECIES

    text = static_file("beasty_animals.svg").decode()
    assert all(f'<symbol id="{name}"' in text for name in SPECIES) and text.count("<symbol") == 12
    assert "script" not in text and "style=" not in text
