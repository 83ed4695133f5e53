"""Best responses on the page of a run, in a real browser: the table, the chart, and what is not measured yet.

    make test-browser    or: REMATCH_BROWSER=1 python -m pytest tests/web/test_best_responses_browser.py
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.browser import (
    PHONE,
    accessibility_problems,
    chromium,
    prefer,
    require_browser,
    served,
    wait,
)
from support.tiny_run import SMALL

import rematch

require_browser()
TABLE = "[aria-label='best responses']"
BALANCE = "Balance (NE gap) beside exploitability (gain of best responses, at least)"
BUDGETS = (64, 96)
GAIN = ("gain", "gain_low", "gain_high")
NOTE = "[...document.querySelectorAll('.note')].find((one) => one.textContent.startsWith('Not measured yet'))"
TITLES = "[...document.querySelectorAll('figcaption')].map((one) => one.textContent)"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without best responses, and the same run with those of two budgets."""
    folder = tmp_path_factory.mktemp("served")
    rematch.train("quick", SMALL | {"evaluation.every": 1}, folder=folder / "before")
    shutil.copytree(folder / "before", folder / "after")
    for budget in BUDGETS:
        respond(folder / "after", budget)
    return folder


def respond(run: Path, budget: int) -> None:
    rematch.exploit(run, rematch.ExploitRequest(budget=budget, self_play=0, seeds=1, games=10))


def results(run: Path) -> list[Any]:
    return sorted(json.loads((run / "exploit.json").read_text())["results"],
                  key=lambda one: one["question"]["budget"])  # fmt: skip


def open_run(browser: Any, address: str, name: str) -> None:
    browser.get(address)
    wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
    browser.find_element("link text", name).click()
    wait(browser, "document.querySelector('.chart canvas') !== null")


def cells(browser: Any) -> list[list[str]]:
    rows = browser.find_elements("css selector", f"{TABLE} tbody tr")
    return [[cell.text for cell in row.find_elements("css selector", "td")] for row in rows]


def words(value: float, low: float, high: float) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def expected_row(budget: int, role: str, answer: Any) -> list[str]:
    gain = words(*(answer[key] for key in GAIN))
    return ["96", str(budget), role, words(answer["score"], answer["low"], answer["high"]),
            str(answer["games"]), "too weak: no evidence" if answer["too_weak"] else gain]  # fmt: skip


def legends(browser: Any) -> dict[str, str]:
    """label -> value, of the chart of balance."""
    figure = browser.find_element("xpath", f"//figure[figcaption[.='{BALANCE}']]")
    entries = figure.find_elements("css selector", ".u-series:not(.bound)")[1:]
    return {entry.find_element("css selector", ".u-label").text:
            entry.find_element("css selector", ".u-value").text for entry in entries}  # fmt: skip


def test_table_and_chart_show_the_stored_best_responses(browser: Any, address: str, root: Path) -> None:
    open_run(browser, address, "after")
    stored = results(root / "after")
    assert [one["question"]["budget"] for one in stored] == list(BUDGETS)
    assert cells(browser) == [expected_row(one["question"]["budget"], role, answer)
                              for one in stored for role, answer in one["roles"].items()]  # fmt: skip
    text = browser.find_element("id", "main").text
    assert "Each score is a lower bound: a better response may exist." in text
    assert "Not measured yet: exploitability" not in text
    shown = legends(browser)
    for role, answer in stored[-1]["roles"].items():  # the largest budget
        assert shown[f"best response as {role}"] == words(*(answer[key] for key in GAIN))
    assert "NE gap" in shown
    colours = browser.execute_script(
        "const boxes = [...document.querySelectorAll('figure')];"
        f"const box = boxes.find((one) => one.textContent.startsWith({BALANCE!r}));"
        "return [...box.querySelectorAll('.u-series:not(.bound) .u-marker')].slice(1)"
        ".map((node) => getComputedStyle(node).backgroundColor.match(/\\d+/g).map(Number))")  # fmt: skip
    distances = [sum(abs(a - b) for a, b in zip(*pair)) for pair in itertools.combinations(colours, 2)]
    assert len(distances) == 3 and min(distances) > 100, "the gap has no colour of a role"


def test_response_that_is_too_weak_is_in_the_table_and_not_in_the_chart(tmp_path: Path, root: Path) -> None:
    shutil.copytree(root / "after", tmp_path / "one")
    stored = {"results": results(tmp_path / "one")}
    for one in stored["results"]:
        one["roles"]["evader"]["too_weak"] = True
    (tmp_path / "one/exploit.json").write_text(json.dumps(stored))
    with served(tmp_path) as address, chromium() as browser:
        open_run(browser, address, "one")
        assert [row[-1] for row in cells(browser) if row[2] == "evader"] == ["too weak: no evidence"] * 2
        assert set(legends(browser)) == {"NE gap", "best response as pursuer"}


def test_open_page_shows_best_responses_as_soon_as_they_are_stored(tmp_path: Path, root: Path) -> None:
    shutil.copytree(root / "before", tmp_path / "one")
    with served(tmp_path) as address, chromium() as browser:
        open_run(browser, address, "one")
        text = wait(browser, f"{NOTE}?.textContent")
        assert "exploitability, 1,000,000 training steps for each best response: rematch exploit " in text
        assert text.endswith("one --budget 1000000") and browser.find_elements("css selector", TABLE) == []
        wait(browser, "document.getElementById('live').textContent === 'live'")
        respond(tmp_path / "one", 64)
        wait(browser, f"document.querySelectorAll({TABLE + ' tbody tr'!r}).length === 2")
        assert {row[2] for row in cells(browser)} == {"pursuer", "evader"}
        assert browser.execute_script(f"return {NOTE} === undefined")
        assert wait(browser, f"{TITLES}.includes({BALANCE!r})")


def test_damaged_file_of_best_responses_is_said(tmp_path: Path, root: Path) -> None:
    shutil.copytree(root / "after", tmp_path / "one")
    (tmp_path / "one/exploit.json").write_text('{"results": [{"question"')
    with served(tmp_path) as address, chromium() as browser:
        open_run(browser, address, "one")
        assert "exploit.json" in browser.find_element("css selector", ".problem").text
        assert browser.find_elements("css selector", TABLE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_best_responses_fit_a_phone_in_both_colour_schemes(
    browser: Any, address: str, scheme: str
) -> None:
    prefer(browser, scheme)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    open_run(browser, address, "after")
    assert browser.find_elements("css selector", TABLE)
    assert wait(browser, "document.documentElement.scrollWidth <= 360")
    assert accessibility_problems(browser) == []
