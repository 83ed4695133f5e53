"""The pages in a real browser: they open, follow a run, stay readable, and log no error.

    make test-all        or: REMATCH_BROWSER=1 python -m pytest tests/web/test_browser.py
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chromium import resize
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
from support.commands import environment
from support.evaluation_rows import evaluation_row
from support.patience import PATIENCE
from support.tiny_run import SMALL, flags

import rematch

require_browser()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    rematch.train("quick", SMALL, folder=folder / "one")
    shutil.copytree(folder / "one", folder / "<b>two</b>")
    return folder


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


def test_run_page_shows_newest_values_and_levels_in_the_colours_of_the_roles(
    browser: Any, address: str, root: Path
) -> None:
    open_run(browser, address)
    row = json.loads((root / "one/history.json").read_text())[-1]
    rates = {name: row["rates"][name] for name in ("pursuer", "evader")}
    first = browser.find_element("css selector", ".chart")
    legend = first.find_elements("css selector", ".u-series:not(.bound)")
    for entry, (role, rate) in zip(legend[1:], rates.items(), strict=True):
        interval = f"{rate['rate']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}]"
        assert entry.text == f"{role}{interval}", "no pointer is on the chart"
    colours = browser.execute_script(
        "const style = getComputedStyle(document.documentElement), dot = document.createElement('p');"
        "document.body.append(dot); const wanted = ['--seat0', '--seat1'].map((name) => {"
        " dot.style.color = style.getPropertyValue(name);"
        " return getComputedStyle(dot).color; }); dot.remove();"
        "const nodes = document.querySelector('.chart').querySelectorAll('.u-series:not(.bound) .u-marker');"
        "return [wanted, [...nodes]"
        ".slice(-2).map((node) => getComputedStyle(node).backgroundColor)]")  # fmt: skip
    assert colours[0] == colours[1], "the pursuer is red and the evader blue, as in films and replays"
    captions = [node.text for node in browser.find_elements("css selector", "figcaption")]
    assert "Mean score against scripted opponents, 95 % intervals" in captions
    cells = [[cell.text for cell in line.find_elements("css selector", "td")]
             for line in browser.find_elements("css selector", ".scoreboard tbody tr")]  # fmt: skip
    assert len(cells) == 2 and all(line[-1] in ("above", "level", "below") for line in cells)


def test_open_page_begins_at_its_top_and_names_the_run(browser: Any, address: str) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    open_run(browser, address)
    place = "document.querySelector('h1').getBoundingClientRect().top"
    assert wait(browser, f"{place} >= document.querySelector('.bar').getBoundingClientRect().bottom")
    assert browser.execute_script("return document.getElementById('trail').textContent") == "Runs / one"
    outline = browser.execute_script("return getComputedStyle(document.getElementById('main')).outlineStyle")
    assert outline == "none", "the page has the focus, and needs no frame"
    rows = browser.find_elements("css selector", ".scoreboard tbody tr")
    assert rows and all(row.size["height"] < 40 for row in rows), "one line of text each"
    browser.find_element("link text", "Replays").click()
    wait(browser, "document.getElementById('trail').textContent === 'Runs / one / Replays'")


def test_film_of_a_drawing_is_dark_in_dark_mode(browser: Any, address: str, root: Path) -> None:
    prefer(browser, "dark")
    open_run(browser, address)
    wait(browser, "document.querySelector('.film.drawing') !== null")
    look = "getComputedStyle(document.querySelector('.film')).filter"
    assert "invert" in browser.execute_script(f"return {look}")
    with (root / "one/train.log").open("a") as log:
        log.write("written while the film is shown\n")
    wait(browser, "document.querySelector('.log').textContent.includes('while the film is shown')")
    assert "invert" in browser.execute_script(f"return {look}")


def test_curriculum_without_a_change_is_said(tmp_path: Path, root: Path) -> None:
    shutil.copytree(root / "one", tmp_path / "one")
    history = tmp_path / "one/history.json"
    rows = [row | {"level": 0, "level_name": "near"} for row in json.loads(history.read_text())]
    history.write_text(json.dumps(rows))
    with served(tmp_path) as address, chromium() as browser:
        open_run(browser, address)
        assert "The level has not changed yet." in browser.find_element("id", "main").text
        titles = [node.text for node in browser.find_elements("css selector", "figcaption")]
        assert "Level at every evaluation" in titles


def test_run_page_shows_alarms_levels_balance_and_reward_terms(tmp_path: Path, root: Path) -> None:
    """Everything that a run may have: a swing with its causes, a promotion with its evidence, two terms."""
    shutil.copytree(root / "one", tmp_path / "one")
    rows = [evaluation_row(1000 * i, rate=(0.5, 0.6, 0.2, 0.95)[i]) | {
        "level": i // 2, "level_name": f"far {i // 2}", "verdict": "improving",
        "evidence": "rate 0.812 [0.770, 0.850], n = 320" if i == 1 else "",
        "exact": {"nash_conv": 0.4 - 0.1 * i},
    } for i in range(4)]  # fmt: skip
    (tmp_path / "one/history.json").write_text(json.dumps(rows))
    terms = {"pursuer/r_env": 0.5, "pursuer/r_count_bonus": 0.1, "pursuer/entropy": 1.0, "pursuer/kl": 0.3}
    lines = [json.dumps({"iteration": i, "step": 200 * i, **terms}) for i in range(1, 20)]
    (tmp_path / "one/metrics.jsonl").write_text("\n".join(lines) + "\n")
    with served(tmp_path) as address, chromium() as browser:
        open_run(browser, address)
        text = browser.find_element("id", "main").text
        titles = [node.text for node in browser.find_elements("css selector", "figcaption")]
        assert "win rate of pursuer changed by 0.75 between step 2,000 and step 3,000" in text
        causes = browser.find_element("css selector", ".alarm").text
        assert "Likely causes" in causes and "updates of pursuer are large: mean KL 0.300 nats" in causes
        moves = browser.find_element("css selector", "[aria-label='changes of level']").text
        assert "0 to 1 far 1 rate 0.812 [0.770, 0.850], n = 320" in moves
        for title in ("Balance (NE gap) beside exploitability (NashConv)", "Level at every evaluation",
                      "Reward terms: mean reward of a step", "KL divergence of an update",
                      "Entropy of the policy"):  # fmt: skip
            assert title in titles, title
        legends = [node.text for node in browser.find_elements("css selector", ".u-legend")]
        assert any("NE gap" in legend and "NashConv" in legend for legend in legends)
        assert any("count bonus" in legend and "env" in legend for legend in legends)
        assert browser.find_elements("css selector", ".films img"), "the newest film"
        assert accessibility_problems(browser) == []


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


@pytest.mark.parametrize("page", ["runs", "run"])
def test_live_updates_replace_no_element_that_stays(
    browser: Any, address: str, root: Path, page: str
) -> None:
    """A click whose press and release lie on both sides of a redraw arrives; focus and open details stay."""
    from selenium.webdriver import ActionChains

    browser.get(address)
    wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
    if page == "run":
        open_run(browser, address)
        browser.find_element("css selector", "#more-curves summary").click()
        wait(browser, "document.querySelectorAll('#more-curves canvas').length > 3")
    wait(browser, "document.getElementById('live').textContent === 'live'")
    selector = "input[type=checkbox]" if page == "runs" else "#more-curves summary"
    browser.execute_script(
        "window.held = [...document.querySelectorAll('#main *')].filter((one) => !one.closest('.chart'));"
        "window.charts = [...document.querySelectorAll('.chart canvas')];"
        f"document.querySelector({selector!r}).focus();")
    target = browser.find_element("css selector", selector)
    ActionChains(browser).move_to_element(target).click_and_hold().perform()
    ages = "[...document.querySelectorAll('td, .facts')].map((node) => node.textContent).join()"
    before = browser.execute_script(f"return {ages}")
    with (root / "one/train.log").open("a") as log:
        log.write(f"written while the {page} page is pressed\n")
    with (root / "one/metrics.jsonl").open("a") as log:
        log.write('{"iteration": 99, "step": 9999, "pursuer/entropy": 0.5}\n')
    wait(browser, f"{ages} !== {json.dumps(before)}")
    gone = "held.filter((one) => !one.isConnected).map((one) => one.outerHTML)"
    assert browser.execute_script(f"return {gone}") == []
    ActionChains(browser).release().perform()
    if page == "runs":
        wait(browser, "document.querySelectorAll('input:checked').length === 1")
        wait(browser, "document.querySelectorAll('.chart canvas').length === 1")
    else:
        wait(browser, "!document.querySelector('#more-curves').open")
        wait(browser, "document.querySelector('.log').textContent.includes('while the run page')")
    assert browser.execute_script(f"return document.activeElement.matches({selector!r})")
    kept = browser.execute_script("return charts.slice(0, 4).map((node) => node.isConnected)")
    assert kept == [True] * (4 if page == "run" else 0)


def test_seeds_of_a_sweep_are_a_band(tmp_path: Path, root: Path) -> None:
    for seed in (1, 2, 3):
        rematch.train("quick", SMALL | {"seed": seed}, folder=tmp_path / f"sweep/seed-{seed}")
    (tmp_path / "sweep/sweep.yaml").write_text("recipe: quick\n")
    shutil.copytree(root / "one", tmp_path / "other")
    with served(tmp_path) as address, chromium() as browser:
        browser.get(address)
        wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
        browser.find_element("css selector", "input[aria-label='compare all runs of sweep']").click()
        wait(browser, "document.querySelectorAll('input:checked').length === 4")  # the sweep and its seeds
        legend = "[...document.querySelectorAll('.u-series .u-label')].map((node) => node.textContent)"
        wait(browser, f"{legend}.includes('sweep, 3 seeds')")
        assert "sweep, 3 seeds, upper bound" in browser.execute_script(f"return {legend}")
        assert {f"sweep/seed-{seed}" for seed in (1, 2, 3)} < set(browser.execute_script(f"return {legend}"))
        browser.find_element("css selector", "input[aria-label='compare other']").click()
        wait(browser, f"{legend}.includes('other')")
        select = browser.find_element("css selector", "select[aria-label='compared curve']")
        select.find_element("xpath", "./option[contains(., 'NE gap')]").click()
        wait(browser, "document.querySelector('figcaption').textContent.includes('NE gap')")
        assert accessibility_problems(browser) == []
        rows = [row.text for row in browser.find_elements("css selector", "tbody tr")]
        assert any(row.startswith("sweep 3 runs 3 finished") for row in rows)
        assert sum("pursuit quick" in row for row in rows) == 4


def test_league_and_payoff_matrix_are_shown(tmp_path: Path) -> None:
    changes = SMALL | {"past_policies.count": 3, "evaluation.every": 1, "league.snapshot_every": 1}
    rematch.train("quick", changes, folder=tmp_path / "one")
    with served(tmp_path) as address, chromium() as browser:
        open_run(browser, address)
        assert "pursuer@1" in browser.find_element("css selector", "[aria-label='pool of pursuer']").text
        browser.find_element("xpath", "//button[.='Play the matrix']").click()
        wait(browser, "document.querySelectorAll('.heat tbody td').length === 9", 90)
        title = browser.find_element("css selector", ".heat tbody td").get_attribute("title")
        assert title.startswith("pursuer of step 32 against evader of step 32") and "n = " in title
        assert accessibility_problems(browser) == []
    assert not (tmp_path / "one/payoff.json").exists(), "the server writes nothing into a run"


def test_tables_of_the_league_show_all_columns(tmp_path: Path) -> None:
    changes = {"total_steps": 3200, "evaluation.every": 100, "save_every": 100, "league.snapshot_every": 10,
               "league.bots": ["proportional_navigation", "flee_to_corner"]}  # fmt: skip
    rematch.train("quick", SMALL | changes, folder=tmp_path / "one")
    with served(tmp_path) as address, chromium() as browser:
        for width in (1300, 1000, 360):
            resize(browser, width, 900)
            open_run(browser, address)
            wait(browser, "document.querySelectorAll('.pool tbody tr').length > 10")
            wide = ("[...document.querySelectorAll('.pool .scroll')]"
                    ".filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)")
            assert browser.execute_script(f"return {wide}") == [], width
            rows = browser.find_elements("css selector", ".pool tbody tr")
            names = [row.find_element("css selector", "td").text for row in rows]
            assert "proportional_navigation" in names and "pursuer@100" in names
            assert all(row.size["height"] < 40 for row in rows) or width < 500, "one line of text each"


def test_page_follows_a_training_that_was_started_with_serve(tmp_path: Path) -> None:
    words = flags(total_steps=40_000_000, evaluation__every=400, save_every=200)
    command = [sys.executable, "-m", "rematch", "train", "quick", *words, "--name", "live", "--serve"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            address = run.stdout.readline().partition(": ")[2].strip()
            with chromium() as browser:
                open_run(browser, address, "live")
                shown = "document.querySelector('.facts').textContent"
                seen = set()
                for _ in range(3):
                    text = browser.execute_script(f"return {shown}")
                    seen.add(text.partition(" of ")[0])
                    wait(browser, f"{shown}.split(' of ')[0] !== {json.dumps(text.partition(' of ')[0])}", 60)
                assert len(seen) == 3 and all("running" in text for text in seen)
                wait(browser, "document.querySelectorAll('.chart canvas').length >= 4")
                assert run.poll() is None
                assert "Pool: pursuer@" in browser.find_element("css selector", ".log").text
                run.send_signal(signal.SIGINT)
                run.communicate(timeout=PATIENCE)
                browser.get_log("browser")  # the server has ended with the training
        finally:
            run.kill()
    assert run.returncode == 0


def test_run_that_is_deleted_while_it_is_shown_is_reported(tmp_path: Path, root: Path) -> None:
    shutil.copytree(root / "one", tmp_path / "one")
    shutil.copytree(root / "one", tmp_path / "other")
    with served(tmp_path) as address, chromium() as browser:
        open_run(browser, address)
        wait(browser, "document.getElementById('live').textContent === 'live'")
        shutil.rmtree(tmp_path / "one")
        wait(browser, "document.body.textContent.includes('there is no such run')")
        expect_refusal(browser, 404)
        browser.find_element("link text", "All runs").click()
        wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
        assert [link.text for link in browser.find_elements("css selector", "td a")] == ["other"]


def test_deleted_run_is_reported(browser: Any, address: str) -> None:
    browser.get(address)
    wait(browser, "document.getElementById('main').dataset.ready === 'runs'")
    browser.execute_script("location.hash = '#/run/0000000000000000'")
    assert wait(browser, "document.body.textContent.includes('there is no such run')")
    expect_refusal(browser, 404)
