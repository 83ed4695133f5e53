"""Help texts: short, complete, and no wider than the terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import Runner, succeed

from rematch import api
from rematch.cli import command_list, help_text
from rematch.cli.settings_help import split_help
from rematch.core.config import leaves, to_yaml
from rematch.verbs.settings import describe_settings

__all__ = ["succeed"]


@pytest.fixture(params=[80, 40])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def words_of(text: str) -> str:
    """The text as one line: what is wrapped is joined again."""
    return " ".join(text.split())


def too_wide(text: str, columns: int) -> list[str]:
    """Lines that are wider than the terminal. An example is a command to copy: it is never broken."""
    examples = {line for command in command_list.listed() for line, _ in command.examples}
    return [line for line in text.splitlines() if len(line) > columns and line.strip() not in examples]


def test_overview_has_fifteen_lines_and_every_command(
    succeed: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = succeed()
    assert text.count("\n") == 15 and not too_wide(text, 80)
    for command in command_list.listed():
        assert re.search(rf"\b{command.name}\b", text)


def test_overview_fits_a_narrow_terminal(succeed: Runner, columns: int) -> None:
    assert not too_wide(succeed(), columns)


def test_help_lists_every_command_with_its_summary(succeed: Runner, columns: int) -> None:
    text = succeed("--help")
    assert text == succeed("help") == succeed("-h") and not too_wide(text, columns)
    for command in command_list.listed():
        assert command.summary in words_of(text)
    assert "complete SHELL" not in text


@pytest.mark.parametrize("name", [command.name for command in command_list.listed()])
def test_command_help_has_usage_options_and_examples(name: str, succeed: Runner, columns: int) -> None:
    text = succeed(name, "--help")
    assert text == succeed("help", name) == succeed(name.upper(), "-h") and not too_wide(text, columns)
    command = command_list.command(name)
    for usage in command.usage:
        assert usage in words_of(text)
    for option in command.options:
        assert f"  {option.name}" in text and option.help in words_of(text)
    for line, meaning in command.examples:
        assert f"  {line}\n" in text and meaning in words_of(text)


def test_width_is_80_where_the_output_is_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.__stdout__", None)
    assert help_text.width() == 80
    for given, used in ((10, 30), (60, 60), (300, 100)):
        monkeypatch.setenv("COLUMNS", str(given))
        assert help_text.width() == used


# --- settings ---------------------------------------------------------------------------------------------


def flags_of(text: str) -> list[str]:
    return re.findall(r"^  --(\S+)", text, re.M)


def test_settings_help_starts_with_what_the_recipe_sets(succeed: Runner, columns: int) -> None:
    text = succeed("train", "ra1", "--games", "1e3", "--help")
    assert not too_wide(text, columns)
    parts = re.split(r"^(recipe ams_drl|recipe ra1|command line) sets:$", text, flags=re.M)
    assert parts[1::2] == ["recipe ams_drl", "recipe ra1", "command line"]
    assert "ppo.minibatch_size" in flags_of(parts[2]) and "world.prep_steps" in flags_of(parts[4])
    assert parts[6].splitlines()[1].startswith("  --games 1000")
    assert "parallel games (environments) (default 2048 games)" in words_of(parts[6])
    assert words_of(parts[0]).startswith("Settings of ra1: ")


def test_settings_help_lists_each_setting_with_an_effect_once(succeed: Runner) -> None:
    table = describe_settings("quick")
    shown = flags_of(succeed("train", "quick", "--help"))
    assert len(shown) == len(set(shown))
    effective = {setting.key for setting in table if not setting.idle}
    assert effective <= set(shown) and set(shown) - effective <= {setting.key for setting in table.changed}
    assert "ppo.lr" in shown and "world.dt" in shown and "dqn.batch" not in shown
    assert not [key for key in shown if key.startswith("lookahead.")]


def test_settings_help_all_lists_every_setting_with_the_reason(succeed: Runner) -> None:
    table = describe_settings("quick")
    text = succeed("train", "quick", "--help", "all")
    assert flags_of(text) == [key for section in table.sections for key in
                              (setting.key for setting in table if setting.section == section)]
    assert len(flags_of(text)) == len(list(leaves(api.configure("quick"))))
    for setting in table:
        assert setting.help in words_of(text)
    assert "no effect: learner is 'ppo' (it needs dqn)" in words_of(text)
    assert "(tanh | relu)" in words_of(text)


def test_settings_help_of_one_section(succeed: Runner, columns: int) -> None:
    text = succeed("train", "quick", "--help", "ppo")
    assert flags_of(text)[:2] == ["ppo.lr", "ppo.lr_final"]
    assert all(flag.startswith("ppo.") for flag in flags_of(text))
    assert "set by recipe quick, default 0.001" in words_of(text)
    assert flags_of(succeed("train", "quick", "--help", "PPO")) == flags_of(text)
    assert flags_of(succeed("train", "quick", "--help", "ppo.lr")) == ["ppo.lr"]
    assert flags_of(succeed("train", "quick", "--help", "run"))[:2] == ["game", "seed"]


@pytest.mark.parametrize("command", ["train", "check", "sweep"])
def test_settings_help_belongs_to_every_command_with_a_recipe(command: str, succeed: Runner) -> None:
    assert succeed(command, "quick", "--help") == succeed("train", "--help", "quick")
    assert f"usage:\n  rematch {command} RECIPE" in succeed(command, "--help")


def test_settings_help_of_a_stored_run_shows_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(api.configure("pursuit", changes={"seed": 7})))
    table = describe_settings(str(file))
    assert [setting.key for setting in table.changed] == [
        setting.key for setting in table if setting.value != setting.default]
    assert "seed" in [setting.key for setting in table.changed]


def test_settings_help_of_play_and_solve(succeed: Runner) -> None:
    assert "--thought" in succeed("play", "beasty", "--help")
    assert "--cartridge" in succeed("play", "gameboy", "-h")
    assert flags_of(succeed("solve", "lattice", "--help"))[0] == "n"


@pytest.mark.parametrize(("words", "expected"), [
    ("quick --help", (["quick"], "")), ("quick --help ppo", (["quick"], "ppo")),
    ("--help quick", (["quick"], "")), ("quick --help --seed 3", (["quick", "--seed", "3"], "")),
    ("quick --seed 3 -h all", (["quick", "--seed", "3"], "all")), ("--help", ([], "")),
    ("quick --help -h", (["quick"], "")),
])
def test_split_help_finds_the_section(words: str, expected: tuple[list[str], str]) -> None:
    assert split_help(words.split()) == expected
