"""tools/checks/page_speed.py: a long run that the page shows, and clients that load what the page loads."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import page_speed
import pytest
from support.patience import PATIENCE
from support.served_pages import TOKEN, serving

from rematch.web.metric_columns import POINTS
from rematch.web.run_data import RunData
from rematch.web.server import cookie_name

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    page_speed.write_long_run(folder / "long", 1_000_000)
    return folder


def test_long_run_is_shown_with_all_its_parts(root: Path) -> None:
    data = RunData(root)
    (run,) = data.scan()
    shown, curves = data.run(run), data.curves(run)
    rows = (root / "long/metrics.jsonl").read_text().splitlines()
    assert len(rows) == 976 and shown["problems"] == [] and shown["total_steps"] == 977 * 1024
    assert len(shown["evaluations"]) >= page_speed.EVALUATIONS
    assert POINTS // 2 < len(curves["step"]) <= POINTS and curves["step"][-1] == 976 * 1024
    assert len(curves["series"]) > 20 and list(shown["films"]) == ["match.gif", "learning.png"]


def test_page_client_waits_for_events_and_loads_three_parts(root: Path) -> None:
    run = next(iter(RunData(root).scan()))

    async def follow(port: int) -> int:
        page = page_speed.Page(port, f"{cookie_name(port)}={TOKEN}", run)
        task = asyncio.create_task(page.follow())
        while not page.listens:
            await asyncio.sleep(0.02)
        with (root / "long/metrics.jsonl").open("a") as log:
            log.write(json.dumps({"iteration": 977, "step": 977 * 1024}) + "\n")
        while page.requests < 3:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return page.requests

    with serving(root) as port:
        assert asyncio.run(asyncio.wait_for(follow(port), PATIENCE)) == 3


def test_interval_of_the_median_has_95_percent() -> None:
    assert page_speed.median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)  # too few: all of them
    assert page_speed.median_interval([float(value) for value in range(1, 13)]) == (3.0, 10.0)
