"""docs/results/requirements.md: each row has a verdict, and the files, tests and commands it names exist."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest
from support.source_tree import ROOT, WORLDS

from rematch.cli import command_list
from rematch.training.recipes import recipes

PAGE = ROOT / "docs/results/requirements.md"
ROWS = {"A": 47, "B": 17, "C": 45, "D": 68, "E": 82}  # requirements of each document
VERDICTS = ("works", "differs", "not reached")
OTHER_FOLDERS = ("examples/", "compat/", "tools/", "docs/", "tests/")


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def rows(text: str) -> list[list[str]]:
    """[number, requirement, where, shown by, verdict] of every row."""
    lines = [line for line in text.splitlines() if re.match(r"\| [A-E]\d+ \|", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def verdict_of(row: list[str]) -> str:
    verdicts = [verdict for verdict in VERDICTS if row[4].startswith(verdict)]
    assert len(verdicts) == 1, f"{row[0]}: {row[4]}"
    return verdicts[0]


def missing_file(name: str) -> str:
    """A line about a file of the column "where" that does not exist; else empty."""
    inside = name.startswith(OTHER_FOLDERS) or ("/" not in name and name != "api.py")
    return "" if (ROOT / name if inside else ROOT / "rematch" / name).is_file() else f"no file {name}"


def missing_proof(name: str) -> str:
    """A line about a test or a command that does not exist; else empty."""
    if match := re.fullmatch(r"([\w/]+\.py)(?:::(test_\w+))?", name):
        file, test = match.groups()
        if not (ROOT / "tests" / file).is_file():
            return f"no file tests/{file}"
        return "" if not test or f"def {test}(" in text_of(f"tests/{file}") else f"{file} has no {test}"
    program, _, arguments = name.partition(" ")
    words = arguments.split()
    if program == "make" and len(words) == 1:
        target = re.search(rf"^{re.escape(words[0])}:", text_of("Makefile"), re.M)
        return "" if target else f"no target {name}"
    if program == "python" and words:
        return "" if (ROOT / words[0]).is_file() else f"no program {words[0]}"
    if program == "rematch" and words and words[0] in command_list.names():
        subject = next((word for word in words[1:] if not word.startswith("--")), "")
        return "" if not subject or subject in (*recipes(), *WORLDS) else f"no recipe or world {subject}"
    return f"no test or command: {name}"


def test_page_has_every_requirement_once_and_counts_its_verdicts() -> None:
    text = PAGE.read_text()
    table = rows(text)
    assert len(table) == len({row[0] for row in table}) == 259
    assert Counter(row[0][0] for row in table) == ROWS
    summary = re.findall(r"^\| (\w+)(?:: [^|]*)? ((?:\| \d+ ){4})\|$", text, re.M)
    expected = [(letter, [row for row in table if row[0][0] == letter]) for letter in ROWS]
    expected.append(("together", table))
    for (name, numbers), (letter, part) in zip(summary, expected, strict=True):
        counts = Counter(map(verdict_of, part))
        assert name == letter
        assert [int(word) for word in re.findall(r"\d+", numbers)] == [
            *(counts[verdict] for verdict in VERDICTS),
            len(part),
        ]


def test_everything_but_plain_working_has_a_reason() -> None:
    for row in rows(PAGE.read_text()):
        verdict = verdict_of(row)
        assert verdict == "works" or row[4].startswith(f"{verdict}: "), row[0]


def test_named_files_tests_and_commands_exist() -> None:
    problems = []
    for number, _, where, shown, verdict in rows(PAGE.read_text()):
        files, proofs = re.findall(r"`([^`]+)`", where), re.findall(r"`([^`]+)`", shown)
        assert (files and proofs) or verdict.startswith("not reached"), f"{number} names nothing"
        lines = [*map(missing_file, files), *map(missing_proof, proofs)]
        problems += [f"{number}: {line}" for line in lines if line]
    assert problems == []


@pytest.mark.parametrize("name", [
    "compat/test_pursuit.py::test_nothing", "compat/test_none.py", "rematch dance", "rematch check nothing",
    "make coffee", "python tools/none.py", "curl x",
])  # fmt: skip
def test_what_does_not_exist_is_noticed(name: str) -> None:
    assert missing_proof(name)


def test_missing_files_are_noticed() -> None:
    assert missing_file("core/none.py") and missing_file("compat/none.py") and missing_file("None.toml")
