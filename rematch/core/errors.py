"""Errors that end a command with one line and exit code 2."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting that is refused: one line with its key, its value, what was expected and the nearest key."""


class NotInstalled(ConfigError):
    """A missing library, and the command that installs it in the version that the tests use."""

    blameless = True  # no setting is at fault: config.validate names none

    def __init__(self, what: str, packages: str) -> None:
        super().__init__(f"{what} is not installed: .venv/bin/pip install -c constraints.txt {packages}")
