"""rematch play: play a world yourself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematch.cli.command import WORLD, Command


def run(words: Sequence[str]) -> int:
    from rematch.verbs.play import play_words

    return play_words(words[0] if words else "", words[1:])


def world_settings(world: str) -> Any:
    from rematch.verbs.play import play_settings

    return play_settings(world)


COMMAND = Command(
    name="play",
    group="games",
    summary="play a world yourself, in the terminal",
    usage=("rematch play WORLD", "rematch play RUN"),
    run=run,
    details="""Plays against scripted players, runs or policy files where the world has opponents (--against
        NAME). The game prints its keys when it starts.

        WORLD may be the path of a Python file with a game of your own; RUN is your opponent, under the rules
        of its training. Beasty Bar and Game Boy have interfaces of their own. In every other world you see
        what your seat observes, and type the number or the name of an action; --world.KEY VALUE changes a
        rule.""",
    examples=(
        ("rematch play beasty", "the card game Beasty Bar against the agent that comes with Rematch"),
        ("rematch play beasty --against search:200 --players 4", "against three searches"),
        ("rematch play ./my_game.py --seat 2", "a game of your own, as the second player"),
        ("rematch play my_run --allow-code", "against the agents of a run of such a game"),
        ("rematch play gameboy --terminal", "a cartridge in the terminal instead of a window"),
    ),
    arguments=(WORLD,),
    settings_of=WORLD,
    world_settings=world_settings,
)
