"""Examples of the pages run, links lead to a file, and generated pages and lists are current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import generate_reference
from support.source_tree import DOCS, PACKAGE, ROOT, name_of, package_of

from rematch.training.component_list import COMPONENTS

ARCHITECTURE = "docs/explanation/architecture.md"

# Pages whose examples have a test of their own.
TESTED_ELSEWHERE = {
    "how_to/adapters.md": "adapters/test_documented_examples.py",
    "how_to/worlds.md": "worlds/test_own_worlds.py",
    "how_to/python.md": "test_api.py",
    "reference/gameboy.md": "worlds/gameboy/test_world.py",
}


def test_docs_python_runs(tmp_path: Path) -> None:
    """Examples of a page run one after another, in an empty folder."""
    for name, test in TESTED_ELSEWHERE.items():
        assert name in (ROOT / "tests" / test).read_text()
    for page in DOCS:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
        if not blocks or name_of(page).removeprefix("docs/") in TESTED_ELSEWHERE:
            continue
        script = tmp_path / f"{page.stem}.py"
        script.write_text("\n".join(blocks))
        run = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            timeout=120,
        )
        assert run.returncode == 0, f"{name_of(page)}: {run.stderr[-500:]}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in DOCS:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in link and not link.startswith("mailto:"):
                assert (page.parent / link).exists(), f"{name_of(page)}: {link}"


def test_contributing_and_architecture_name_every_package() -> None:
    packages = sorted({package_of(path) for path in PACKAGE} - {"__init__", "api"})
    contributing, architecture = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / ARCHITECTURE).read_text()
    for package in packages:
        assert contributing.count(f"\n  {package}/ ") == 1, f"CONTRIBUTING.md: one line for {package}/"
        assert f"`{package}`" in architecture, f"{ARCHITECTURE}: {package}"


def test_architecture_lists_the_components_in_their_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \w+ \|", (ROOT / ARCHITECTURE).read_text(), re.M)
    assert rows == [component.name for component in COMPONENTS]


def test_reference_pages_are_current() -> None:
    for page, text in generate_reference.pages().items():
        assert page.read_text() == text, f"{name_of(page)}: run tools/setup/generate_reference.py"


def test_tutorial_shows_the_example_game() -> None:
    page = (ROOT / "docs/tutorials/your_own_game.md").read_text()
    assert (ROOT / "examples/tic_tac_toe.py").read_text().strip() in page


def test_user_texts_speak_of_an_earlier_project() -> None:
    """Runs of other people are reproductions of an earlier project; LOG.md is history."""
    for page in DOCS:
        if page.name not in ("LOG.md", "glossary.md", "settings.md"):
            words = re.findall(r"\b[Tt]he documents?\b(?:'s?)?", page.read_text())
            assert not words, f"{name_of(page)}: {words[0]}"
