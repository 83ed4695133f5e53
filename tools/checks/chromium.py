"""A browser without a window: Chromium through chromedriver, for checks and tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1000")


@contextmanager
def browser() -> Iterator[Any]:
    """A driver of a new browser."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(str(DRIVER)), options=options)
    try:
        yield driver
    finally:
        driver.quit()


def prefer(driver: Any, scheme: str = "light", still: bool = True) -> None:
    """Set the user's preferences: colour scheme, and reduced motion."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
    ]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def resize(driver: Any, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def wait(driver: Any, script: str, seconds: float = 20) -> Any:
    """The value of an expression on the page, once it is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, seconds, 0.05).until(
        lambda page: page.execute_script(f"return {script}"), f"never true: {script}")  # fmt: skip


def processes() -> Mapping[int, tuple[int, str]]:
    """pid -> parent and command line of every process of this machine."""
    out = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            out[int(entry.name)] = parent, words
    return out


def tab_bytes(driver: Any) -> int:
    """Memory of the largest renderer process of a browser: its share of pages that are mapped (PSS)."""
    running = processes()
    own, sizes = {driver.service.process.pid}, [0]
    for _ in range(6):  # driver, browser, zygotes, renderers
        own |= {pid for pid, (parent, _) in running.items() if parent in own}
    for pid in own:
        if "--type=renderer" in running.get(pid, (0, ""))[1]:
            sizes.append(memory(pid))
    return max(sizes)


def memory(pid: int) -> int:
    """PSS of a process in bytes; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its ended children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
