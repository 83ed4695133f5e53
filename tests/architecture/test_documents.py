"""Examples of the pages run, links lead to a file, and generated pages and lists are current."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import generate_reference
from support.source_tree import DOCS, PACKAGE, ROOT, name_of, package_of

from rematch import api
from rematch.cli import command_list
from rematch.core import config
from rematch.core.component import Component
from rematch.core.errors import NotInstalled
from rematch.training.component_list import COMPONENTS
from rematch.verbs.play import play_settings
from rematch.worlds import registry

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
            timeout=300,
        )
        assert run.returncode == 0, f"{name_of(page)}: {run.stderr[-500:]}"


def documented_commands() -> list[tuple[str, list[str]]]:
    """(page, words) of each line of a page that is a command; a remark stands after two spaces."""
    out = []
    for page in DOCS:
        for line in page.read_text().replace("\\\n", " ").splitlines():
            if match := re.match(r"    rematch (\S.*)|rematch (train .*)", line):
                text = re.split(r"\s{2,}#?|\s#", match[1] or match[2])[0]
                out.append((name_of(page), shlex.split(text)))
    return out


def known_options() -> set[str]:
    """Settings of all games, also of those who play them, as flags."""
    options = {"--help", "-h", "--allow-code", "--network"}
    for name in registry.names():
        with contextlib.suppress(NotInstalled):
            options |= {f"--{key}" for key, _, _ in config.leaves(api.default(name))}
            options |= {f"--{key}" for key, _, _ in config.leaves(registry.find(name).Config())}
            options |= {f"--{key}" for key, _, _ in config.leaves(play_settings(name))}
    return options


def test_commands_of_the_pages_exist_with_their_options() -> None:
    commands, settings = documented_commands(), known_options()
    assert len(commands) > 200
    for page, words in commands:
        command = command_list.find(words[0])
        options = {option.name for option in command.options} | settings
        for word in words[1:]:
            option = word.partition("=")[0]
            own = option.startswith(("--hash_novelty.", "--stop_at_entropy."))  # of the examples
            if option.startswith("--") and not own:
                assert option in options or option.replace("_", "-") in options, f"{page}: {' '.join(words)}"


def test_no_page_installs_another_project_of_this_name() -> None:
    """On PyPI `rematch` is a pattern matcher of somebody else."""
    for page in DOCS:
        for line in page.read_text().splitlines():
            other = re.match(r"\s*\S*pip install (?:.*\s)?['\"]?rematch\b", line)
            assert not other, f"{name_of(page)}: {line}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in DOCS:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in link and not link.startswith("mailto:"):
                assert (page.parent / link).exists(), f"{name_of(page)}: {link}"


def test_contributing_and_architecture_name_every_package() -> None:
    packages = sorted({package_of(path) for path in PACKAGE} - {"__init__", "__main__", "api"})
    contributing, architecture = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / ARCHITECTURE).read_text()
    for package in packages:
        assert contributing.count(f"\n  {package}/ ") == 1, f"CONTRIBUTING.md: one line for {package}/"
        assert f"`{package}`" in architecture, f"{ARCHITECTURE}: {package}"


def test_architecture_lists_the_components_in_their_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \w+ \|", (ROOT / ARCHITECTURE).read_text(), re.M)
    assert rows == [component.name for component in COMPONENTS]


def test_architecture_names_every_hook() -> None:
    table = (ROOT / ARCHITECTURE).read_text().partition("## The hooks")[2].partition("\n## ")[0]
    public = [name for name in vars(Component) if not name.startswith("_")]
    hooks = {name for name in public if callable(getattr(Component, name))}
    assert hooks - {"configs"} == hooks & set(re.findall(r"`(\w+)`", table))


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
