"""The commands: found by their files, in any case, by the words of other tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rematch
from rematch.cli import command_list, main
from rematch.cli.command import Command
from rematch.core.errors import ConfigError

FOLDER = Path(command_list.commands.__path__[0])


def test_commands_are_the_files_of_their_folder() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert set(command_list.names()) == files
    assert {command.name for command in command_list.listed()} == files - {"complete"}
    assert command_list.listed()[0].name == "train"


@pytest.mark.parametrize("name", command_list.names())
def test_command_describes_itself(name: str) -> None:
    command = command_list.command(name)
    assert isinstance(command, Command) and command.name == name
    assert command.group in command_list.GROUPS and command.summary[0].islower()
    assert not command.summary.endswith(".") and len(command.summary) < 80
    assert command.usage[0].startswith(f"rematch {name}")
    assert command.hidden or command.examples
    for option in command.options:
        assert re.fullmatch(r"--[a-z-]+", option.name) and option.help and not option.help.endswith(".")


def test_every_command_is_a_python_function() -> None:
    other = {"eval": "evaluate", "bench": "benchmark", "worlds": "list_worlds", "recipes": "list_recipes",
             "runs": "list_runs", "cluster": "cluster_check"}
    for command in command_list.listed():
        if command.name != "completion":  # a script for a shell
            assert callable(getattr(rematch, other.get(command.name, command.name)))


@pytest.mark.parametrize(("word", "suggestion"), [
    ("list", "runs"), ("ls", "runs"), ("evaluate", "eval"), ("elo", "tournament"), ("watch", "film, play"),
    ("benchmark", "bench"), ("continue", "resume"), ("LS", "runs"), ("dry_run", "check"), ("envs", "worlds"),
    ("trian", "train"), ("exprot", "export"), ("TRIAN", "train"), ("recipe", "recipes"), ("solv", "solve"),
])
def test_wrong_command_gets_a_suggestion(word: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown command '{word}': .*; nearest: {suggestion}$"):
        command_list.find(word)


def test_synonyms_are_no_commands_and_lead_to_commands() -> None:
    names = set(command_list.names())
    for name, words in command_list.SYNONYMS.items():
        assert name in names and not set(words) & names


def test_unlike_word_gets_the_list_alone() -> None:
    with pytest.raises(ConfigError, match=r"expected one of train, [a-z, ]+, completion$"):
        command_list.find("zzzzzz")


def test_names_are_case_insensitive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["Recipes"]) == 0 and "quick" in capsys.readouterr().out
    assert main.main(["TRAIN", "RA1", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Settings of ra1: ")
    assert main.main(["solve", "Lattice", "--help"]) == 0 and "--horizon" in capsys.readouterr().out
    words = ["eval", "Lattice", "--players", "random,random", "--games", "4"]
    assert main.main(words) == 0 and capsys.readouterr().out.startswith("Match in lattice")
