"""Film one game of a run's policies as a GIF or an MP4 file."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematch import api
from rematch.core.errors import ConfigError
from rematch.reporting import match_film, mp4
from rematch.reporting.result import Block, Printable, block_html
from rematch.storage import atomic_files
from rematch.verbs.arguments import MOST_SEED, check_integer, folder_of
from rematch.verbs.evaluate import SEED_OFFSET, deployed

SECONDS = 12.0  # default length of a film
SHORTEST, LONGEST = 3.0, 600.0  # seconds


@dataclass(frozen=True, repr=False)
class Film(Printable):
    """A film's file and its caption; a notebook shows the pictures of a GIF."""

    file: Path
    caption: str

    def blocks(self) -> Iterator[Block]:
        yield self.caption
        yield f"{self.file}  {self.file.stat().st_size:,} bytes"

    def _repr_html_(self) -> str:
        text = super()._repr_html_()
        if self.file.suffix != ".gif":
            return text
        data = base64.b64encode(self.file.read_bytes()).decode()
        return f'<img alt="" src="data:image/gif;base64,{data}">{block_html(self.caption)}'

    def to_dict(self) -> dict[str, Any]:
        return {"file": str(self.file), "caption": self.caption}


def film(
    run: Path | str, out: Path | str, *, seconds: float = SECONDS, seed: int = 0, greedy: bool = False
) -> Film:
    """Film one game of a run's or a policy file's players; `out` ends in .gif or .mp4."""
    check_integer("seed", seed, 0, MOST_SEED)
    if not SHORTEST < seconds <= LONGEST:
        raise ConfigError(f"seconds = {seconds!r}: expected a number above {SHORTEST:g}, at most {LONGEST:g}")
    folder, target = folder_of(run), film_file(Path(out))
    trained, game = deployed(folder, greedy)
    if game.renderer is None:
        raise ConfigError(f"{folder}: {trained.config.game} has no renderer, so its games cannot be filmed")
    world = api.world_builder(trained.config, trained.curriculum)(1, 0, SEED_OFFSET + seed)
    pictures, last, caption = match_film.played(world, trained.policies, game.renderer.draw, seconds, seed)
    atomic_files.replace_file(target, encode(pictures, last, target.suffix))
    return Film(target, caption)


def film_file(out: Path) -> Path:
    """The file to write; ConfigError where it cannot be written or encoded."""
    if out.suffix not in (".gif", ".mp4") or not out.parent.is_dir() or out.is_dir():
        raise ConfigError(f"--out = {str(out)!r}: expected a name that ends in .gif or .mp4, in a folder "
                          "that exists")
    if out.suffix == ".mp4" and not mp4.encoder():
        raise ConfigError(mp4.NONE)
    return out


def encode(pictures: list[Any], last: Any, suffix: str) -> bytes:
    """The bytes of the file; the last picture is shown for some seconds."""
    if suffix == ".gif":
        return match_film.gif(pictures, last, match_film.MOST_BYTES)
    width, height = (side - side % 2 for side in last.size)  # encoders need even sides
    frames = [*pictures, *[last] * int(match_film.FPS * match_film.HOLD)]
    data, problem = mp4.mp4(lambda: (frame.crop((0, 0, width, height)) for frame in frames), match_film.FPS)
    if not data:
        raise ConfigError(problem)
    return data
