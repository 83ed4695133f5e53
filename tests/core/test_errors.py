"""Missing libraries: one line with the command that installs them, and no setting's key."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rematch.core import config as settings
from rematch.core import errors
from rematch.core.errors import ConfigError, NotInstalled


@dataclass(frozen=True)
class World:
    error: type[ConfigError] = field(default=ConfigError)

    def check(self) -> None:
        raise NotInstalled("This", "that") if self.error is NotInstalled else ConfigError("id = 3: wrong")


def test_missing_library_names_no_setting() -> None:
    with pytest.raises(ConfigError, match=r"^world\.id = 3: wrong"):
        settings.validate(World(), "world.")
    with pytest.raises(NotInstalled, match=r"^This is not installed: .*pip install -c constraints.txt that$"):
        settings.validate(World(NotInstalled), "world.")


def test_install_command_names_venv_and_constraints_only_in_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert errors.install_command("that") == ".venv/bin/pip install -c constraints.txt that"
    monkeypatch.setattr(errors, "ROOT", tmp_path)  # as in site-packages
    assert str(NotInstalled("This", "that")) == "This is not installed: pip install that"
