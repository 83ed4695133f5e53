"""MP4 files by the ffmpeg of this machine, or by the one in the package imageio-ffmpeg."""

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
SAME_BYTES = ("-pix_fmt", "yuv420p", "-threads", "1", "-fflags", "+bitexact", "-flags", "+bitexact",
              "-movflags", "+faststart")  # options under which equal pictures give equal files
CODECS = (("libx264", "-preset", "veryfast", "-crf", "23"), ("mpeg4", "-q:v", "5"))
TIME_LIMIT = 120  # seconds for an encoder


def encoder() -> str:
    """The path of an ffmpeg program; empty if none is installed."""
    if program := shutil.which("ffmpeg"):
        return program
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # not installed; installed without its binary
        return ""


def mp4(pictures: Callable[[], Iterator[Image]], fps: int) -> tuple[bytes, str]:
    """An MP4 of pictures of one size, both sides even; or no bytes and the reason.

    Equal pictures give equal bytes. `pictures` is called once for each codec that is tried; its pictures go
    to the encoder one by one.
    """
    program = encoder()
    if not program:
        return b"", NONE
    width, height = next(pictures()).size
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps)]
    message = ""
    with tempfile.TemporaryDirectory(prefix="rematch-") as folder:
        for codec in CODECS:
            out = Path(folder) / f"{codec[0]}.mp4"
            target = ["-an", "-c:v", *codec, *SAME_BYTES, str(out)]
            command = [program, "-loglevel", "error", "-y", *source, "-i", "-", *target]
            try:
                code, output = _encode(command, pictures())
            except OSError as error:
                return b"", f"no MP4: {program}: {error}"
            if code == 0 and out.is_file() and out.stat().st_size:
                return out.read_bytes(), ""
            message = output.strip().partition("\n")[0]
    return b"", f"no MP4: {program}: {message or 'it wrote no file'}"


def _encode(command: list[str], pictures: Iterator[Image]) -> tuple[int, str]:
    """Run the encoder on the pictures; returns its exit code and error output. TIME_LIMIT ends it."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
        timer = threading.Timer(TIME_LIMIT, child.kill)
        timer.start()
        try:
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # the encoder ended: its exit code counts
                for picture in pictures:
                    child.stdin.write(picture.tobytes())
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            code = child.wait()
        finally:
            timer.cancel()
            child.kill()
        errors.seek(0)
        output = errors.read(4000).decode(errors="replace")
    return code, output or (f"no end after {TIME_LIMIT} s" if code == -signal.SIGKILL else "")
