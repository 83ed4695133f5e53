"""The trained agents that come with Rematch, by short names: @beasty, @beasty_first, @small."""

from __future__ import annotations

from pathlib import Path

from rematch.core.config import nearest
from rematch.core.errors import ConfigError

MARK = "@"
FILES = {  # short name -> policy file in this folder
    "@beasty": "beasty/agent.safetensors",
    "@beasty_first": "beasty/agent_first.safetensors",
    "@small": "gameboy/agent.safetensors",
}


def is_short_name(name: str) -> bool:
    return name.startswith(MARK)


def agent_file(name: str) -> Path:
    """The policy file of a short name; ConfigError for an unknown one."""
    known = name.lower()
    if known not in FILES:
        near = nearest(known, list(FILES))
        raise ConfigError(f"{name}: no agent of this name comes with Rematch; expected one of "
                          f"{', '.join(FILES)}" + (f"; nearest: {near}" if near else ""))
    return Path(__file__).parent / FILES[known]
