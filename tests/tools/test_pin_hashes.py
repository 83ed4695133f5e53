"""requirements-wheel.txt: each package that the wheel needs, as constraints.txt pins it, with hashes."""

from __future__ import annotations

import re

import pin_hashes
import pytest
from support.source_tree import ROOT

ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M)


def test_every_needed_package_is_pinned_with_hashes() -> None:
    text = pin_hashes.FILE.read_text()
    entries = {name: (version, block) for name, version, block in ENTRY.findall(text)}
    assert sorted(entries) == pin_hashes.needed(), "run python tools/setup/pin_hashes.py"
    versions = pin_hashes.pins()
    assert {name: version for name, (version, _) in entries.items()} == {
        name: versions[name] for name in entries}, "run python tools/setup/pin_hashes.py"
    assert "torch" not in entries and "http" not in text


def test_needed_packages_are_those_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    direct = re.findall(r'"([A-Za-z0-9_-]+)>=', text.partition("dependencies = [")[2].partition("]")[0])
    assert len(direct) >= 8 and {pin_hashes.normal(name) for name in direct} <= set(pin_hashes.needed())


@pytest.mark.parametrize(("file", "belongs"), [
    ("demo_kit-1.0-py3-none-any.whl", True), ("demo-kit-1.0.tar.gz", True), ("demo_kit-1.0.1.tar.gz", False),
    ("demo_kit-1.0.post1-py3-none-any.whl", False), ("other_demo_kit-1.0.tar.gz", False),
])
def test_only_files_of_the_version_count(file: str, belongs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = "ab" * 32

    class Answer:
        def __enter__(self) -> Answer:
            return self

        def __exit__(self, *_: object) -> None: ...

        def read(self) -> bytes:
            return f'<a href="../x#sha256={digest}" data-x="1">{file}</a>'.encode()

    monkeypatch.setattr(pin_hashes.urllib.request, "urlopen", lambda address, timeout: Answer())
    assert pin_hashes.hashes("demo-kit", "1.0") == ([digest] if belongs else [])
