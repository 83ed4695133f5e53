"""Play a world yourself, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.sweeps.plan import flag_text
from rematch.training.player_lookup import find_player
from rematch.verbs.arguments import world_name
from rematch.worlds import registry
from rematch.worlds.capabilities import Human


def play(world: str, changes: Mapping[str, Any] | None = None) -> int:
    """One game against the world's players; `changes` as `rematch play WORLD --help` lists them."""
    return play_words(world, [f"--{key}={flag_text(value)}" for key, value in (changes or {}).items()])


def play_words(world: str, words: Sequence[str]) -> int:
    """As `play`, with the settings as flags."""
    return playable(world).play(words, find_player)


def playable(world: str) -> Human:
    """The interface of the game for a person; ConfigError where it has none."""
    if registry.is_file(world):
        human = registry.find(registry.typed_name(world)).human
        if human is None:
            raise ConfigError(f"{world}: its GAME.human is None, so it cannot be played in the terminal; "
                              "expected a Human (docs/how_to/worlds.md, More that a game may offer)")
        return human
    humans = {name: human for name in registry.names() if (human := registry.find(name).human) is not None}
    name = world_name(world)
    if name not in humans:
        near = nearest(world, list(humans)) if world else ""
        raise ConfigError(f"expected rematch play WORLD [--KEY VALUE ...], with one of {', '.join(humans)}"
                          + (f"; nearest: {near}" if near else ""))
    return humans[name]


def play_settings(world: str) -> Any:
    """The settings that `play` accepts."""
    return playable(world).settings()
