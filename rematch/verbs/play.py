"""Play a world yourself, in the terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rematch.core import config as settings
from rematch.core.config import knob, nearest
from rematch.core.errors import ConfigError
from rematch.core.player import Player, SubprocessPlayer
from rematch.core.spec import Role, Spec
from rematch.evaluation.replay import Match
from rematch.reporting.terminal.terminal_game import play_game
from rematch.storage.run_folder import Run
from rematch.sweeps.plan import flag_text
from rematch.training.player_lookup import find_player, match_rules
from rematch.training.recipes import stored_config
from rematch.verbs.arguments import folder_of, world_name
from rematch.worlds import registry
from rematch.worlds.capabilities import Human
from rematch.worlds.game import Game

RANDOM = "random"
WORLD_FLAG = "--world."


@dataclass(frozen=True, kw_only=True)
class PlaySettings:
    """Settings of a game in the terminal."""

    against: str = knob("", "opponent: a bot, a run or a policy file; empty: the run itself, or the first "
                        "scripted player of the role")  # fmt: skip
    seat: int = knob(1, "your seat, counted from 1", low=1)
    seed: int = knob(-1, "seed of the start and of the players; -1: a new one", low=-1)


def play(world: str, changes: Mapping[str, Any] | None = None) -> int:
    """One game against the world's players; `changes` as `rematch play WORLD --help` lists them."""
    return play_words(world, [f"--{key}={flag_text(value)}" for key, value in (changes or {}).items()])


def play_words(world: str, words: Sequence[str]) -> int:
    """As `play`, with the settings as flags; `world` may also be a run or a Python file with a game."""
    name, run = find_game(world)
    game = registry.find(name)
    if game.human is not None:
        if run:
            raise ConfigError(f"{run} is a run of {name}: expected rematch play {name} --against {run}")
        return game.human.play(words, find_player)
    return play_any(name, run, words)


def find_game(word: str) -> tuple[str, str]:
    """The world that `word` names, and the run where it names one; ConfigError where it is neither."""
    if registry.is_file(word):
        return registry.typed_name(word), ""
    name = world_name(word)
    if name in registry.names():
        return name, ""
    if word and (folder_of(word) / "config.yaml").is_file():
        with Run.open(folder_of(word), write=False) as run:
            return stored_config(run).game, word
    near = nearest(word, registry.names()) if word else ""
    raise ConfigError(f"expected rematch play WORLD [--KEY VALUE ...] with one of "
                      f"{', '.join(registry.names())}, a .py file with a game, or a run"
                      + (f"; nearest: {near}" if near else ""))


def play_any(world: str, run: str, words: Sequence[str]) -> int:
    """A game of a world without an interface of its own: observations and actions as text."""
    rule_flags, own_flags = split_flags(words)
    flags = settings.read_flags(own_flags, PlaySettings())
    own = settings.apply(PlaySettings(), flags, "command line", text=True)
    settings.validate(own)
    game = registry.find(world)
    against = own.against or run
    rules = match_rules([against] if against else [], world, settings.read_flags(rule_flags, game.Config()))
    spec = game.spec(rules)
    if own.seat > spec.seats:
        raise ConfigError(f"seat = {own.seat}: expected a whole number from 1 to {spec.seats}")
    seed = own.seed if own.seed >= 0 else time.time_ns() % 10**6
    opponents = find_opponents(game, world, rules, spec, (own.seat - 1, against))
    try:
        return play_game(game.make(rules, 1, 0, seed), opponents, Match(world=world, config=rules, seed=seed))
    finally:
        for player in opponents.values():
            if isinstance(player, SubprocessPlayer):
                player.close()


def find_opponents(
    game: Game, world: str, rules: Any, spec: Spec, chosen: tuple[int, str]
) -> dict[int, Player]:
    """The players of all seats but the person's; `chosen`: seat of the person, name of the opponent."""
    person, against = chosen
    out = {}
    for seat in range(spec.seats):
        if seat != person:
            role = spec.role_of(seat)
            out[seat] = find_player(against or first_bot(game, role), world, rules, role.name)
    return out


def first_bot(game: Game, role: Role) -> str:
    """The scripted player that is seated where the person names none: the first one that is not random."""
    names = list(game.bot_names(role.name))
    if not names:
        raise ConfigError(f"{game.name} has no scripted player of the role {role.name}; expected --against "
                          "with a run or a policy file")
    return next((name for name in names if name != RANDOM), names[0])


def split_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags of the world, without their prefix, and the other flags."""
    rules: list[str] = []
    own: list[str] = []
    chosen = own
    for word in words:
        if word.startswith("--"):
            chosen = rules if word.startswith(WORLD_FLAG) else own
        chosen.append(f"--{word.removeprefix(WORLD_FLAG)}" if word.startswith(WORLD_FLAG) else word)
    return rules, own


def play_settings(world: str) -> Any:
    """The settings that `play` accepts."""
    human: Human | None = registry.find(find_game(world)[0]).human
    return human.settings() if human is not None else PlaySettings()
