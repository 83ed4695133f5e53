"""rematch worlds: the worlds of this installation, or one of them."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import JSON, WORLD, Command
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError


def run(words: Sequence[str]) -> int:
    from rematch.core import config as settings
    from rematch.verbs.catalog import describe_world, list_worlds, typed_world
    from rematch.worlds import registry

    options = Options.of(COMMAND, words)
    as_json = "--json" in options.values
    if not options.remaining:
        print_result(list_worlds(), as_json)
        return 0
    name, *flags = options.remaining
    if name.startswith("-"):
        raise ConfigError(f"unknown option {name!r}; usage: {COMMAND.usage[1]}")
    game = registry.find(typed_world(name))
    changes = settings.read_flags([flag.replace("--world.", "--", 1) for flag in flags], game.Config())
    print_result(describe_world(name, changes), as_json)
    return 0


COMMAND = Command(
    name="worlds",
    group="games",
    summary="list the worlds, or describe one: observations, actions, bots, settings",
    usage=("rematch worlds", "rematch worlds WORLD [--world.KEY VALUE ...]"),
    run=run,
    details="""Without a name, lists all worlds with their roles and scripted players. With the name of a
        world, or the path of a Python file with a game of your own, shows what each role observes, column by
        column, its actions, its scripted players, the settings of the world and its capabilities, such as
        films, levels or a solver.""",
    options=(JSON,),
    examples=(
        ("rematch worlds", "the names of scripted players are those of eval --players and --against"),
        ("rematch worlds pursuit --world.full_obs false", "what a robot observes through its sensors"),
        ("rematch worlds ./my_game.py", "a game of your own"),
    ),
    arguments=(WORLD,),
)
