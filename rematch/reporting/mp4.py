"""MP4 by an encoder of this machine: ffmpeg itself, or the one that comes with imageio-ffmpeg."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
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


def mp4(pictures: Callable[[], Iterator[Image]], fps: int) -> tuple[bytes, str]:
    """Pictures of one size, both sides even, as an MP4; or nothing, and why. Equal pictures, equal bytes.

    They are asked for once for each codec that is tried, and given to the encoder one by one.
    """
    program = encoder()
    if not program:
        return b"", NONE
    width, height = next(pictures()).size
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
                code, said = _encode(words, pictures())
            except OSError as error:
                return b"", f"no MP4: {program}: {error}"
            if code == 0 and out.is_file() and out.stat().st_size:
                return out.read_bytes(), ""
            why = said.strip().partition("\n")[0]
    return b"", f"no MP4: {program}: {why or 'it wrote nothing'}"


def _encode(words: list[str], pictures: Iterator[Image]) -> tuple[int, str]:
    """Give the pictures to the encoder; its exit code and what it said. One that hangs is killed."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
        late = threading.Timer(PATIENCE, child.kill)
        late.start()
        try:
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it gave up: its code says so
                for picture in pictures:
                    child.stdin.write(picture.tobytes())
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            code = child.wait()
        finally:
            late.cancel()
            child.kill()
        errors.seek(0)
        said = errors.read(4000).decode(errors="replace")
    return code, said or (f"no end after {PATIENCE} s" if code == -signal.SIGKILL else "")
