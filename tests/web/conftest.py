"""Fixtures of the browser tests: a server of the module's runs, and a browser.

A module makes the folder of its runs in a fixture `root`; it may replace `browser` by its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import chromium, served


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with served(root) as text:
        yield text


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver
