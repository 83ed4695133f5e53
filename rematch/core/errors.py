"""Error classes that several packages raise. Each ends a command with one line on stderr and exit code 2."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]  # the folder that holds the package: a checkout, or site-packages


class ConfigError(ValueError):
    """A refused setting or input: one line with its key, its value, what was expected and the nearest key."""


class NotInstalled(ConfigError):
    """A missing library; the line holds the command that installs it, in a checkout the tested version.

    No setting causes this error, so `config.validate` does not put a setting's key before it.
    """

    def __init__(self, library: str, packages: str) -> None:
        super().__init__(f"{library} is not installed: {install_command(packages)}")


def install_command(packages: str) -> str:
    """The pip command for these packages: with the pinned versions in a checkout, else plain."""
    in_checkout = (ROOT / "constraints.txt").is_file() and (ROOT / "pyproject.toml").is_file()
    return f"{'.venv/bin/pip install -c constraints.txt' if in_checkout else 'pip install'} {packages}"


class CodeNotAllowed(ConfigError):
    """A run, recipe or policy names code of the user's own, and --allow-code was not given."""


class TrainingError(ConfigError):
    """A run failed in the middle of an iteration, whose state is half changed and therefore not saved."""

    unsaved: int | None = None  # the last whole iteration, if no checkpoint has it


class UserCodeError(TrainingError):
    """Code of the user's own raised an exception: one line with its file, line and function."""


class RunError(ConfigError):
    """A run folder that cannot be read or written: one line with the file and the reason."""


class Damaged(RunError):
    """A file whose bytes or contents do not verify; the message is the reason."""


class LearnError(TrainingError):
    """A gradient, a weight or a value that is not finite: one line with its name."""


class WorldError(ConfigError):
    """Actions, rows or saved states that a world cannot play: one line with the game."""
