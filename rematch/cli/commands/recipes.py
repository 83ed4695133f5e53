"""rematch recipes: the recipes that come with Rematch."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import JSON, Command
from rematch.cli.options import Options
from rematch.cli.output import print_result


def run(words: Sequence[str]) -> int:
    from rematch.verbs.catalog import list_recipes

    options = Options.of(COMMAND, words)
    options.positional(0, COMMAND.usage[0])
    print_result(list_recipes(), "--json" in options.values)
    return 0


COMMAND = Command(
    name="recipes",
    group="games",
    summary="list the recipes that come with Rematch",
    usage=("rematch recipes",),
    run=run,
    details="A recipe is a YAML file with settings. `rematch train RECIPE --help` shows what it sets.",
    options=(JSON,),
    examples=(("rematch recipes", "name, world and purpose of each"),),
    loads_api=False,
)
