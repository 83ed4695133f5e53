"""Libraries that are not here."""

from __future__ import annotations

from rematch.core.config import ConfigError


class NotInstalled(ConfigError):
    """What is not here, and the line that brings it, with the versions that everything is tested with."""

    blameless = True  # no setting is at fault: none is named before it (config.validate)

    def __init__(self, what: str, packages: str) -> None:
        super().__init__(f"{what} is not installed: .venv/bin/pip install -c constraints.txt {packages}")
