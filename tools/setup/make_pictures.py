"""Makes the pictures of README.md and docs/: films and curves of real runs, and the page in light and dark.

    python tools/setup/make_pictures.py [--runs runs] [--train] [--only match page_run ...]

Runs are taken from the folder of runs: `quick`, which is the run of `make train` (its film, its curves, the
page of a run, a replay), `band` (a sweep of four seeds) and `small` (the world map). With --train those that
are needed and missing are made first: 2, 1 and 30 minutes on an idle machine of two cores. The picture
`survival` is drawn from docs/results/data, `small` is a film of the agent that comes with Rematch. The page
needs chromium and chromedriver. Each picture is written as a whole to docs/results/images/.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "checks"))

import chromium
from page_speed import served

from rematch.web.run_data import identifier

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs/results/images"
COMMANDS = {  # run or sweep -> the words of the command that makes it, without its name
    "quick": ("train", "quick", "--seed", "0"),
    "band": ("sweep", "quick", "--seeds", "0-3", "--games", "128", "--total_steps", "800000",
             "--evaluation.every", "24", "--evaluation.games", "100", "--evaluation.opponents",
             "random,lion,wall_runner", "--jobs", "2"),
    "small": ("train", "small", "--seed", "0", "--max-minutes", "30"),
}  # fmt: skip
AGENT = ROOT / "rematch/worlds/gameboy/agent.safetensors"
READY = "document.getElementById('main').dataset.ready"


class Missing(Exception):
    """What is needed for a picture, and how to get it."""


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A picture of the page."""

    name: str  # page_NAME_light.png and page_NAME_dark.png
    run: str  # the run that it shows; "": none
    address: str  # behind #; {run} is the identifier of the run
    ready: str  # JavaScript that is true once everything is drawn
    before: str = ""  # JavaScript that is run first, when the page is open
    height: int = 820  # pixels; the width is 1280


FIVE_MOVES = """
fetch("/api/worlds/beasty/games", {method: "POST", headers: {"Content-Type": "application/json"},
  body: JSON.stringify({seats: ["you", "agent"], deal: 11})}).then((answer) => answer.json())
  .then((game) => { location.hash = `#/world/beasty/${game.id}`; });
let left = 5, shown = "";
const timer = setInterval(() => {
  const step = document.querySelector(".bb")?.dataset.step, move = document.querySelector(".bb-move");
  if (!move || step === undefined || step === shown) return;
  shown = step;
  if (left-- > 0) move.click();
  else { clearInterval(timer); document.querySelector(".hint").click(); }
}, 200);
"""  # of one deal, so that both pictures show the same game; then the hint

SHOTS = (
    Shot(name="runs", run="band", address="/", before="document.querySelector('.sweep input').click();",
         ready="document.querySelectorAll('.compared canvas').length >= 1", height=1150),
    Shot(name="run", run="quick", address="/run/{run}",
         ready="document.querySelectorAll('.chart canvas').length >= 6", height=1000),
    Shot(name="replay", run="quick", address="/run/{run}/pursuit",
         before="const r = document.querySelector('.player input[type=range]');"
                "r.value = Math.round(r.max / 2); r.dispatchEvent(new Event('input'));",
         ready="document.querySelector('.step-label').textContent.startsWith('step ')", height=1060),
    Shot(name="map", run="small", address="/run/{run}/gameboy",
         before="document.querySelectorAll('[data-savestate]')[0].click();",
         ready="document.querySelector('.gb-screen').dataset.place !== undefined", height=1240),
    Shot(name="beasty", run="", address="/world/beasty", before=FIVE_MOVES,
         ready="document.querySelector('.bb-move.best') !== null", height=1000),
)  # fmt: skip


# --- the page -----------------------------------------------------------------------------------------------


@contextmanager
def linked(runs: Path) -> Iterator[Path]:
    """A temporary folder with links to the runs: games that are played for a picture are not stored there."""
    with tempfile.TemporaryDirectory(prefix="rematch-pictures-") as temporary:
        folder = Path(temporary).resolve() / "runs"
        folder.mkdir()
        for name in COMMANDS:
            if (runs / name).is_dir():
                (folder / name).symlink_to((runs / name).resolve())
        yield folder


def page(shot: Shot, runs: Path) -> Iterator[tuple[str, bytes]]:
    """One picture of the page, in both colour schemes."""
    if not (chromium.CHROMIUM and chromium.DRIVER):
        raise Missing("the page needs chromium and chromedriver")
    if shot.run:
        existing(runs, shot.run)
    with linked(runs) as folder, served(folder) as (address, _):
        for scheme in ("light", "dark"):
            with chromium.browser() as driver:
                picture = take(driver, address, folder / shot.run, shot, scheme)
            yield f"page_{shot.name}_{scheme}.png", smaller(picture)


def take(driver: Any, address: str, run_folder: Path, shot: Shot, scheme: str) -> bytes:
    chromium.prefer(driver, scheme)
    chromium.resize(driver, 1280, shot.height)
    driver.get(address)
    chromium.wait(driver, f"{READY} === 'runs'", 60)
    if shot.address != "/":
        run = identifier(run_folder.parent, run_folder)
        driver.execute_script(f"location.hash = '#{shot.address.format(run=run)}'")
        chromium.wait(driver, f"{READY} !== 'runs'", 60)
    time.sleep(2.0)  # pictures and canvases
    if shot.before:
        driver.execute_script(shot.before)
    chromium.wait(driver, shot.ready, 60)
    time.sleep(2.0)
    picture: bytes = driver.get_screenshot_as_png()
    return picture


def smaller(png: bytes) -> bytes:
    """The same pixels in fewer bytes."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "PNG", optimize=True)
    return out.getvalue()


# --- films and curves ---------------------------------------------------------------------------------------


def complete(folder: Path) -> bool:
    """Whether a run or a sweep lies here."""
    return (folder / "config.yaml").is_file() or (folder / "sweep.yaml").is_file()


def existing(runs: Path, name: str) -> Path:
    if not complete(runs / name):
        command = f"rematch {' '.join(COMMANDS[name])} --name {name}"
        raise Missing(f"{runs / name} is missing: make it with `{command}`, or use --train")
    return runs / name


def of_run(file: str) -> Callable[[Path], Iterator[tuple[str, bytes]]]:
    """A file that the finished run `quick` has made itself."""

    def picture(runs: Path) -> Iterator[tuple[str, bytes]]:
        path = existing(runs, "quick") / file
        if not path.is_file():
            raise Missing(f"{path} is missing: the run has not finished")
        yield file, path.read_bytes()

    return picture


def small(runs: Path) -> Iterator[tuple[str, bytes]]:
    """A film of the agent that comes with Rematch."""
    with tempfile.TemporaryDirectory(prefix="rematch-pictures-") as temporary:
        file = Path(temporary) / "small.gif"
        rematch("film", str(AGENT), "--out", str(file), "--seconds", "30")
        yield file.name, file.read_bytes()


def survival(runs: Path) -> Iterator[tuple[str, bytes]]:
    """The survival curves of the ablations, drawn from the stored data."""
    sys.path.insert(0, str(ROOT / "tools/experiments"))
    import ablations

    lines = [line for line in ablations.load_lines() if line["study"] == "swarm"]
    yield "survival.png", ablations.picture(lines)


PICTURES: dict[str, Callable[[Path], Iterator[tuple[str, bytes]]]] = {
    "match": of_run("match.gif"), "learning": of_run("learning.png"), "small": small, "survival": survival,
    **{f"page_{shot.name}": partial(page, shot) for shot in SHOTS},
}  # fmt: skip


# --- the command --------------------------------------------------------------------------------------------


def rematch(*words: str, folder: Path = ROOT) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "rematch", *words], cwd=folder, env=environment, check=True)


def needed(names: Sequence[str]) -> set[str]:
    """The runs that these pictures show."""
    shown = {f"page_{shot.name}": shot.run for shot in SHOTS} | {"match": "quick", "learning": "quick"}
    return {shown.get(name, "") for name in names} - {""}


def train_missing(runs: Path, names: set[str]) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rematch-pictures-", dir=runs) as temporary:
        for name, words in COMMANDS.items():
            if name in names and not complete(runs / name):
                rematch(*words, "--name", name, folder=Path(temporary))
                shutil.move(Path(temporary) / "runs" / name, runs / name)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="folder of the runs (default: runs)")
    parser.add_argument("--train", action="store_true", help="train the runs that are needed and missing")
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES), help="what to make")
    options = parser.parse_args(words)
    if options.train:
        train_missing(options.runs, needed(options.only))
    code = 0
    for name in options.only:
        try:
            for file, data in PICTURES[name](options.runs):
                part = IMAGES / f".{file}.part"
                part.write_bytes(data)
                os.replace(part, IMAGES / file)
                print(f"{file}: {len(data) / 1e3:.0f} kB", flush=True)
        except (Missing, subprocess.CalledProcessError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            code = 2
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
