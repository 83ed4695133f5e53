"""MP4 by an encoder of this machine: ffmpeg itself, or the one that comes with imageio-ffmpeg."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

NONE = "no MP4 encoder was found: films are GIF only; install ffmpeg, or pip install imageio-ffmpeg"
CODECS = (("libx264", "-preset", "veryfast", "-crf", "23"), ("mpeg4", "-q:v", "5"))
PATIENCE = 120  # seconds that an encoder may take


def encoder() -> str:
    """The path of an ffmpeg, or nothing."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # not installed; installed without its binary
        return ""


def mp4(pictures: Sequence[Image], fps: int) -> tuple[bytes, str]:
    """Pictures of one size, both sides even, as an MP4; or nothing, and why. Equal pictures, equal bytes."""
    program = encoder()
    if not program:
        return b"", NONE
    width, height = pictures[0].size
    raw = b"".join(picture.tobytes() for picture in pictures)
    why = ""
    with tempfile.TemporaryDirectory(prefix="rematch-") as place:
        for codec in CODECS:
            out = Path(place) / f"{codec[0]}.mp4"
            words = [
                program,
                "-loglevel",
                "error",
                "-y",
                "-f",
                "rawvideo",
                "-pix_fmt",
                "rgb24",
                "-s",
                f"{width}x{height}",
                "-r",
                str(fps),
                "-i",
                "-",
                "-an",
                "-c:v",
                *codec,
                "-pix_fmt",
                "yuv420p",
                "-threads",
                "1",
                "-fflags",
                "+bitexact",
                "-flags",
                "+bitexact",
                "-movflags",
                "+faststart",
                str(out),
            ]
            try:
                done = subprocess.run(words, input=raw, capture_output=True, timeout=PATIENCE, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                return b"", f"no MP4: {program}: {error}"
            if done.returncode == 0 and out.is_file() and out.stat().st_size:
                return out.read_bytes(), ""
            why = done.stderr.decode(errors="replace").strip().partition("\n")[0]
    return b"", f"no MP4: {program}: {why or 'it wrote nothing'}"
