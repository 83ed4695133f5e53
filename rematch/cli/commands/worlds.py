"""rematch worlds: the worlds of this installation."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import JSON, Command
from rematch.cli.options import Options
from rematch.cli.output import print_result


def run(words: Sequence[str]) -> int:
    from rematch.verbs.catalog import list_worlds

    options = Options.of(COMMAND, words)
    options.positional(0, COMMAND.usage[0])
    print_result(list_worlds(), "--json" in options.values)
    return 0


COMMAND = Command(
    name="worlds",
    group="games",
    summary="list the worlds with their roles, actions and scripted players",
    usage=("rematch worlds",),
    run=run,
    options=(JSON,),
    examples=(("rematch worlds", "the names of scripted players are those of eval --players and --against"),),
)
