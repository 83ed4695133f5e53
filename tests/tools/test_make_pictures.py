"""tools/setup/make_pictures.py makes every picture of README.md and docs/; what is missing is one line."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import make_pictures
from PIL import Image

ROOT = make_pictures.ROOT
MADE = {"match.gif", "learning.png", "small.gif", "survival.png"} | {
    f"page_{shot.name}_{scheme}.png" for shot in make_pictures.SHOTS for scheme in ("light", "dark")
}


def test_every_shown_picture_is_made_by_the_command() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pattern = re.compile(r"images/([\w.-]+\.(?:png|gif))")
    shown = {name for page in pages for name in pattern.findall(page.read_text())}
    stored = {path.name for path in make_pictures.IMAGES.iterdir()}
    assert shown <= MADE and stored <= MADE and shown <= stored
    assert all((make_pictures.IMAGES / name).stat().st_size < 1_000_000 for name in stored)


def test_pictures_of_the_page_are_shown_in_both_colour_schemes() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(r"images/(page_\w+)_light\.png", page.read_text()):
            assert f"{name}_dark.png" in page.read_text(), page


def test_missing_runs_and_browser_are_one_line_each(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    assert make_pictures.main(["--runs", str(tmp_path), "--only", "match", "learning"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["match", "learning"]
    assert all("rematch train quick --seed 0 --name quick" in line for line in lines)
    monkeypatch.setattr(make_pictures.chromium, "CHROMIUM", None)
    assert make_pictures.main(["--runs", str(tmp_path), "--only", "page_run"]) == 2
    assert capsys.readouterr().err == "page_run: the page needs chromium and chromedriver\n"


def test_only_the_runs_of_the_chosen_pictures_are_trained(tmp_path: Path, monkeypatch: Any) -> None:
    trained: list[str] = []

    def train(*words: str, folder: Path) -> None:
        trained.append(words[-1])
        (folder / "runs" / words[-1]).mkdir(parents=True)

    monkeypatch.setattr(make_pictures, "rematch", train)
    monkeypatch.setattr(make_pictures.chromium, "CHROMIUM", None)
    make_pictures.main(["--runs", str(tmp_path), "--train", "--only", "page_run", "page_beasty", "page_runs"])
    assert trained == ["quick", "band"]
    assert make_pictures.needed(list(make_pictures.PICTURES)) == set(make_pictures.COMMANDS)


def test_pictures_replace_the_stored_ones_as_a_whole(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "runs/quick").mkdir(parents=True)
    (tmp_path / "runs/quick/config.yaml").write_text("game: pursuit\n")
    (tmp_path / "runs/quick/match.gif").write_bytes(b"GIF89a")
    monkeypatch.setattr(make_pictures, "IMAGES", tmp_path)
    assert make_pictures.main(["--runs", str(tmp_path / "runs"), "--only", "match", "survival"]) == 0
    assert (tmp_path / "match.gif").read_bytes() == b"GIF89a"
    stored = Image.open(ROOT / "docs/results/images/survival.png")
    assert Image.open(tmp_path / "survival.png").size == stored.size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["match.gif", "runs", "survival.png"]


def test_smaller_pictures_have_the_same_pixels() -> None:
    image = Image.new("RGBA", (60, 40), (240, 240, 240, 255))
    image.paste((200, 30, 30, 255), (10, 10, 30, 30))
    data = io.BytesIO()
    image.save(data, "PNG", compress_level=0)
    again = make_pictures.smaller(data.getvalue())
    assert len(again) < len(data.getvalue())
    assert Image.open(io.BytesIO(again)).tobytes() == image.convert("RGB").tobytes()
