"""Writes requirements-wheel.txt: the packages that a wheel needs, pinned with the SHA-256 of every file.

    python tools/setup/pin_hashes.py

The versions are those of constraints.txt; the hashes come from the package index, for all systems.
Then: pip install --require-hashes -r requirements-wheel.txt, and pip install --no-deps WHEEL.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "requirements-wheel.txt"
INDEX = "https://pypi.org/simple/"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LINK = re.compile(r'href="[^"]*#sha256=([0-9a-f]{64})"[^>]*>\s*([^<\s]+)\s*<')
HEAD = """# The packages that a wheel of Rematch needs, without extras; written by tools/setup/pin_hashes.py.
# pip install --require-hashes -r requirements-wheel.txt && pip install --no-deps dist/rematch-*.whl
"""


def normal(name: str) -> str:
    """The name of a package as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Package -> version, from constraints.txt."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pairs = [line.split(";")[0].strip().split("==") for line in lines if "==" in line]
    return {normal(name): version for name, version in pairs}


def needed() -> list[str]:
    """The required packages of Rematch and theirs, without extras; they must be installed here."""
    text = (ROOT / "pyproject.toml").read_text()
    block = text.partition("dependencies = [")[2].partition("]")[0]
    unread = [match[0] for match in map(NAME.search, block.split('"')[1::2]) if match]
    pins: list[str] = []
    while unread:
        name = normal(unread.pop())
        if name in pins:
            continue
        pins.append(name)
        try:
            further = requires(name) or []
        except PackageNotFoundError:
            further = []
        plain = [line for line in further if "extra ==" not in line]
        unread += [match[0] for match in map(NAME.match, plain) if match and is_wanted(match[0])]
    return sorted(pins)


def is_wanted(name: str) -> bool:
    """Whether a package is pinned: others are for systems or Pythons that Rematch does not support."""
    return normal(name) in pins()


def hashes(name: str, version: str) -> list[str]:
    """SHA-256 of every file of a version; the file names tell the version."""
    with urllib.request.urlopen(f"{INDEX}{name}/", timeout=60) as answer:
        page = answer.read().decode()
    spelled = r"[-_.]+".join(map(re.escape, name.split("-")))
    stem = re.compile(rf"{spelled}-{re.escape(version)}(?:-.*\.whl|\.tar\.gz|\.zip)", re.I)
    return sorted({digest for digest, file in LINK.findall(page) if stem.fullmatch(file)})


def main() -> int:
    versions, lines = pins(), [HEAD]
    for name in needed():
        digests = hashes(name, versions[name])
        if not digests:
            print(f"{name} {versions[name]}: the index has no file of this version", file=sys.stderr)
            return 1
        entry = [f"{name}=={versions[name]}", *(f"--hash=sha256:{each}" for each in digests)]
        lines.append(" \\\n    ".join(entry))
    FILE.write_text("\n".join(lines) + "\n")
    print(f"{FILE.name}: {len(lines) - 1} packages, {sum(map(len, lines)):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
