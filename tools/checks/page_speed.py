"""Measures the page of `rematch serve`: how fast and how large it opens, and what open pages cost a training.

    python tools/checks/page_speed.py open [--steps 10000000] [--times 5]
    python tools/checks/page_speed.py training [--pages 50] [--pairs 5] [--steps 3000000]
    python tools/checks/page_speed.py windows [--pages 50] [--pairs 40] [--seconds 4]

`open` writes a run of that many steps with the program's own writer (rows and evaluations of a short real
run, repeated), starts `rematch serve`, and opens the page of the run in Chromium. Each time the server is a
new process, so nothing is cached. Limits: 1 s from the click to all curves; 200 MB for the server and for the
tab (PSS: shared pages count in part).

`training` trains the same recipe with and without open pages, in turns and in alternating order. An open page
is a connection that waits for events and then loads what the page loads, at most every 4 s. The clients run
with the lowest priority: they stand for browsers of other machines. Output: CPU time and wall time of the
training, with pages over without; median of the pairs with its 95 % interval, smallest and largest. Limit:
2 % of CPU time, and of wall time where nothing else runs on the machine. Exit code 1: a limit was exceeded.

`windows` opens and closes the pages again and again beside one training and one server, and compares the
speed of the training in neighbouring windows of a few seconds, by the clock and as CPU time per
iteration: other work on the machine changes more slowly than that, so that it disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import chromium

import rematch
from rematch import api
from rematch.core import config as settings
from rematch.storage.run_folder import Run
from rematch.web.run_data import identifier
from rematch.web.server import cookie_name

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS, MOST_BYTES, MOST_SLOWER = 1.0, 200e6, 0.02
GAMES = STEPS = 32
EVALUATIONS = 100
PACE = 4.0  # seconds between two refreshes of a page (static/app.js)
SHORT = {"games": GAMES, "steps": STEPS, "total_steps": 4 * GAMES * STEPS, "evaluation.every": 1,
         "evaluation.games": 10, "threads": 1}  # fmt: skip


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    """A server process, started beside the folder: the address that it prints, and its process number."""
    command = [sys.executable, "-m", "rematch", "serve", str(folder), "--port", "0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder.parent,
                             env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        yield line.split(": ", 1)[1].strip(), child.pid
    finally:
        child.terminate()
        child.wait(10)


# --- open ---------------------------------------------------------------------------------------------------


def write_long_run(folder: Path, steps: int) -> None:
    """A run of so many steps, written by the program's own writer from the rows of a short one."""
    with tempfile.TemporaryDirectory(prefix="rematch-page-") as temporary:
        short = Path(temporary) / "short"
        rematch.train("quick", SHORT, folder=short)
        rows = [json.loads(line) for line in (short / "metrics.jsonl").read_text().splitlines()]
        evaluations = json.loads((short / "history.json").read_text())
        config = api.configure("quick", changes=SHORT | {"total_steps": steps})
        iterations = steps // (GAMES * STEPS)
        with Run.create(folder, settings.to_yaml(config)) as run:
            for iteration in range(1, iterations + 1):
                run.log(varied(rows[iteration % len(rows)], iteration))
                run.log_line(f"iteration {iteration}: {GAMES * STEPS} steps")
                if iteration % (iterations // EVALUATIONS) == 0:
                    row = evaluations[iteration % len(evaluations)]
                    run.append_history(row | {"iteration": iteration, "step": iteration * GAMES * STEPS})
        for name in ("observations.json", "timing.jsonl", "match.gif", "learning.png", "report.html"):
            shutil.copy(short / name, folder / name)


def varied(row: dict[str, Any], iteration: int) -> dict[str, Any]:
    """The row of an iteration; its numbers change slowly, so that curves have a shape."""
    factor = 1 + 0.3 * math.sin(iteration / 500)
    out = {name: value * factor if isinstance(value, float) else value for name, value in row.items()}
    return out | {"iteration": iteration, "step": iteration * GAMES * STEPS}


OPENED = """
const done = arguments[1], began = performance.now();
location.hash = `#/run/${arguments[0]}`;
const look = () => {
  const main = document.getElementById("main");
  if (main.dataset.ready === arguments[0] && main.querySelectorAll(".chart canvas").length >= 4) done(performance.now() - began);
  else requestAnimationFrame(look);
};
look();
"""  # noqa: E501


def open_page(folder: Path, name: str) -> dict[str, float]:
    """Open the page of a run once, in a new server and a new browser."""
    run = identifier(folder, folder / name)
    with served(folder) as (address, pid), chromium.browser() as driver:
        driver.get(address)
        chromium.wait(driver, "document.getElementById('main').dataset.ready === 'runs'")
        seconds = driver.execute_async_script(OPENED, run) / 1000
        time.sleep(1.0)
        server, tab = chromium.memory(pid), chromium.tab_bytes(driver)
        return {"seconds": seconds, "server_bytes": server, "tab_bytes": tab}


def measure_open(steps: int, times: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="rematch-page-") as temporary:
        folder = Path(temporary)
        write_long_run(folder / "long", steps)
        size = sum(path.stat().st_size for path in (folder / "long").iterdir() if path.is_file())
        print(f"run of {steps:,} steps: {steps // (GAMES * STEPS):,} rows of metrics, {EVALUATIONS} "
              f"evaluations, {size / 1e6:.0f} MB", flush=True)  # fmt: skip
        results = [open_page(folder, "long") for _ in range(times)]
    fine = True
    for key, unit, limit in (("seconds", 1.0, MOST_SECONDS), ("server_bytes", 1e6, MOST_BYTES),
                             ("tab_bytes", 1e6, MOST_BYTES)):  # fmt: skip
        values = sorted(result[key] / unit for result in results)
        median = statistics.median(values)
        fine &= median <= limit / unit
        print(f"{key:13} median {median:.2f}, {values[0]:.2f} to {values[-1]:.2f}, n = {times}, limit "
              f"{limit / unit:g}{' MB' if unit > 1 else ' s'}", flush=True)  # fmt: skip
    return fine


# --- training -----------------------------------------------------------------------------------------------


def train(folder: Path, steps: int) -> tuple[float, float]:
    """CPU seconds and wall seconds of a training process."""
    command = [sys.executable, "-m", "rematch", "train", "quick", "--threads", "1", "--total_steps",
               str(steps), "--evaluation.games", "50", "--name", "one"]  # fmt: skip
    began = time.monotonic()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL,
                             env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the training ended with status {status}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - began


class Page:
    """One open page of a run: it waits for events, and loads what the page loads."""

    def __init__(self, port: int, cookie: str, run: str) -> None:
        self.port, self.run, self.requests = port, run, 0
        self.listens = False  # whether it hears of every change from now on
        self.head = f"Host: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n"

    async def follow(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET /api/events HTTP/1.1\r\n{self.head}".encode())
        last = 0.0
        while line := await reader.readline():
            self.listens |= line.startswith(b"retry: ")  # the server has looked at the files
            if line.startswith(b"data: ") and time.monotonic() - last >= PACE:
                last = time.monotonic()
                await self.load()

    async def load(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for part in ("", "/curves", "/log"):
            writer.write(f"GET /api/runs/{self.run}{part} HTTP/1.1\r\n{self.head}".encode())
            size = 0
            while (line := await reader.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            await reader.readexactly(size)
            self.requests += 1
        writer.close()


async def keep_open(address: str, run: str, pages: int) -> None:
    """Open the pages at a line "open" of the input and close them at "close"; end with the input."""
    port, token = int(address.split(":")[2].split("/")[0]), address.partition("token=")[2]
    clients = [Page(port, f"{cookie_name(port)}={token}", run) for _ in range(pages)]
    tasks: list[asyncio.Task[None]] = []
    while line := await asyncio.to_thread(sys.stdin.readline):
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tasks = [asyncio.create_task(page.follow()) for page in clients] if line == "open\n" else []
        print(sum(page.requests for page in clients), flush=True)
    for task in tasks:
        task.cancel()
    print(sum(page.requests for page in clients), flush=True)


class OpenPages:
    """A server, and so many pages in a child process of the lowest priority."""

    def __init__(self, folder: Path, pages: int) -> None:
        self._served = served(folder)
        address, self.server = self._served.__enter__()
        command = [sys.executable, str(Path(__file__)), "pages", address,
                   identifier(folder, folder / "one"), str(pages)]  # fmt: skip
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       stderr=subprocess.DEVNULL, preexec_fn=lambda: os.nice(19))  # fmt: skip
        self.requests = 0

    def say(self, word: str) -> None:
        """ "open" or "close"; returns when it is done."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(f"{word}\n")
        self._child.stdin.flush()
        self.requests = int(self._child.stdout.readline())

    def server_cpu(self) -> float:
        return chromium.cpu_seconds(self.server)

    def end(self) -> None:
        self.requests = int(self._child.communicate(timeout=30)[0].split()[-1])
        self._served.__exit__(None, None, None)


@contextmanager
def pages_open(folder: Path, pages: int) -> Iterator[dict[str, float]]:
    """So many open pages; afterwards the CPU time of the server and the number of requests."""
    measured: dict[str, float] = {}
    opened = OpenPages(folder, pages)
    before = opened.server_cpu()
    opened.say("open")
    try:
        yield measured
    finally:
        measured["server"] = opened.server_cpu() - before
        opened.end()
        measured["requests"] = float(opened.requests)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median from order statistics; all values where there are fewer than six."""
    ordered, n = sorted(values), len(values)
    outside = [math.comb(n, k) / 2**n for k in range(n + 1)]
    k = 0
    while k + 1 <= (n - 1) // 2 and 2 * sum(outside[: k + 1]) <= 0.05:
        k += 1
    return ordered[max(0, k - 1)], ordered[n - 1 - max(0, k - 1)]


def measure_training(pages: int, pairs: int, steps: int) -> bool:
    ratios: dict[str, list[float]] = {"CPU time": [], "wall time": []}
    for pair in range(pairs):
        found: dict[bool, tuple[float, float]] = {}
        extra: dict[str, float] = {}
        for opened in (bool(pair % 2), not pair % 2):
            with tempfile.TemporaryDirectory(prefix="rematch-page-") as temporary:
                folder = Path(temporary) / "runs"
                folder.mkdir()
                if opened:
                    with pages_open(folder, pages) as extra:
                        found[opened] = train(folder.parent, steps)
                else:
                    found[opened] = train(folder.parent, steps)
        for index, name in enumerate(ratios):
            ratios[name].append(found[True][index] / found[False][index])
        print(f"pair {pair + 1}: training without pages {found[False][0]:.1f} s CPU, {found[False][1]:.1f} s "
              f"wall; with {pages} pages {found[True][0]:.1f} s, {found[True][1]:.1f} s; server "
              f"{extra['server']:.1f} s CPU, {extra['requests']:.0f} requests", flush=True)  # fmt: skip
    return report_ratios(ratios, f"{steps:,} steps each")


# --- windows ------------------------------------------------------------------------------------------------


class Progress:
    """Iterations and CPU seconds of a training process so far."""

    def __init__(self, run: Path, pid: int) -> None:
        self.log, self.pid = run / "metrics.jsonl", pid
        self.position = self.rows = 0

    def now(self) -> tuple[float, int, float]:
        with self.log.open("rb") as file:
            file.seek(self.position)
            data = file.read()
        self.position += len(data)
        self.rows += data.count(b"\n")
        return time.monotonic(), self.rows, chromium.cpu_seconds(self.pid)


def cost(progress: Progress, seconds: float) -> tuple[float, float]:
    """Seconds by the clock and CPU seconds per iteration, over the next `seconds`."""
    began, rows, cpu = progress.now()
    time.sleep(seconds)
    ended, more, used = progress.now()
    return (ended - began) / max(1, more - rows), (used - cpu) / max(1, more - rows)


def measure_windows(pages: int, pairs: int, seconds: float, threads: int) -> bool:
    ratios: dict[str, list[float]] = {"wall time": [], "CPU time": []}
    with tempfile.TemporaryDirectory(prefix="rematch-page-") as temporary:
        folder = Path(temporary) / "runs"
        folder.mkdir()
        command = [sys.executable, "-m", "rematch", "train", "quick", "--threads", str(threads),
                   "--games", "64", "--total_steps", "4000000000", "--evaluation.every", "1000000",
                   "--name", "one"]  # fmt: skip
        training = subprocess.Popen(command, cwd=folder.parent, stdout=subprocess.DEVNULL,
                                    env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
        try:
            while not (folder / "one/metrics.jsonl").is_file() and training.poll() is None:
                time.sleep(0.1)
            time.sleep(5.0)  # start-up
            progress = Progress(folder / "one", training.pid)
            opened = OpenPages(folder, pages)
            try:
                for pair in range(pairs):
                    found: dict[bool, tuple[float, float]] = {}
                    for are_open in (bool(pair % 2), not pair % 2):
                        opened.say("open" if are_open else "close")
                        time.sleep(0.5)
                        found[are_open] = cost(progress, seconds)
                    for index, name in enumerate(ratios):
                        ratios[name].append(found[True][index] / found[False][index])
            finally:
                print(f"server {opened.server_cpu():.1f} s CPU, {opened.requests} requests", flush=True)
                opened.end()
        finally:
            training.terminate()
            training.wait(60)
    return report_ratios(ratios, f"{progress.rows} iterations")


def report_ratios(ratios: dict[str, list[float]], what: str) -> bool:
    """Print the medians; whether that of the CPU time is within the limit."""
    fine = True
    for name, values in ratios.items():
        slower = statistics.median(values) - 1
        fine &= slower <= MOST_SLOWER or name == "wall time"
        low, high = (100 * (bound - 1) for bound in median_interval(values))
        smallest, largest = (100 * (bound - 1) for bound in (min(values), max(values)))
        print(f"{name}: median {100 * slower:+.1f} % [{low:+.1f}, {high:+.1f}], {smallest:+.1f} to "
              f"{largest:+.1f} %, n = {len(values)} pairs, {what}; limit {100 * MOST_SLOWER:g} %; load of "
              f"the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)  # fmt: skip
    return fine


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    opening = commands.add_parser("open", help="time and memory of the page of a long run")
    opening.add_argument("--steps", type=int, default=10_000_000)
    opening.add_argument("--times", type=int, default=5)
    training = commands.add_parser("training", help="what open pages cost a training")
    training.add_argument("--pages", type=int, default=50)
    training.add_argument("--pairs", type=int, default=5)
    training.add_argument("--steps", type=int, default=3_000_000)
    windows = commands.add_parser("windows", help="the same beside one training, in short windows")
    windows.add_argument("--pages", type=int, default=50)
    windows.add_argument("--pairs", type=int, default=40)
    windows.add_argument("--seconds", type=float, default=4.0)
    windows.add_argument("--threads", type=int, default=1, help="threads of the training")
    clients = commands.add_parser("pages", help="open pages; used by `training`")
    clients.add_argument("address")
    clients.add_argument("run")
    clients.add_argument("pages", type=int)
    options = parser.parse_args(words)
    if options.command == "open":
        if not (chromium.CHROMIUM and chromium.DRIVER):
            parser.error("chromium and chromedriver are not installed")
        return 0 if measure_open(options.steps, options.times) else 1
    if options.command == "training":
        return 0 if measure_training(options.pages, options.pairs, options.steps) else 1
    if options.command == "windows":
        return 0 if measure_windows(options.pages, options.pairs, options.seconds, options.threads) else 1
    with suppress(KeyboardInterrupt, TimeoutError, OSError):
        asyncio.run(keep_open(options.address, options.run, options.pages))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
