"""Builds the sdist, and from the unpacked sdist a wheel with portable cores, into dist/.

    make wheel
    python tools/setup/build_wheel.py [--levels x86-64-v2,x86-64-v3] [--out dist]

The wheel is built from the sdist, so a file that the sdist lacks is found here. It needs the packages of
.venv (setuptools, Cython, numpy, PyBoy) and a C compiler; installing the wheel needs neither.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOOK = "from setuptools import build_meta; print(build_meta.build_{kind}({out!r}))"


def build(kind: str, folder: Path, out: Path, levels: str = "") -> Path:
    """Run one hook of the build backend (PEP 517) in `folder`; the file that it wrote."""
    out.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"REMATCH_LEVELS": levels}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([sys.executable, "-c", HOOK.format(kind=kind, out=str(out))], cwd=folder,
                          env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"building the {kind} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return out / done.stdout.strip().splitlines()[-1]


def build_sdist(out: Path) -> Path:
    return build("sdist", ROOT, out)


def build_wheel(sdist: Path, out: Path, levels: str) -> Path:
    """The wheel of an sdist, which is unpacked into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="rematch-wheel-") as name:
        with tarfile.open(sdist) as archive:
            archive.extractall(name, filter="data")
        (folder,) = Path(name).iterdir()
        return build("wheel", folder, out, levels)


def missing_files(wheel: Path) -> list[str]:
    """Files of rematch/ that git knows and the wheel lacks."""
    listed = subprocess.run(["git", "ls-files", "rematch"], cwd=ROOT, capture_output=True, text=True)
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    return [name for name in listed.stdout.splitlines() if name not in packed and (ROOT / name).exists()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levels", default="all", help="processor levels (default: all)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    started = time.monotonic()
    sdist = build_sdist(options.out.resolve())
    print(f"sdist  {sdist}  {sdist.stat().st_size:,} bytes", flush=True)
    wheel = build_wheel(sdist, options.out.resolve(), options.levels)
    print(f"wheel  {wheel}  {wheel.stat().st_size:,} bytes, {time.monotonic() - started:.0f} s")
    for name in missing_files(wheel):
        print(f"MISSING in the wheel: {name}")
    return int(bool(missing_files(wheel)))


if __name__ == "__main__":
    sys.exit(main())
