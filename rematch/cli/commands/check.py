"""rematch check: test a recipe before a long run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rematch.cli.command import CONFIG, RECIPE, Command
from rematch.cli.recipe_options import configured, recipe_words


def run(words: Sequence[str]) -> int:
    from rematch.verbs.check import check

    recipe, options = recipe_words(COMMAND, words)
    out = sys.stdout
    result = check(configured(recipe, options), log=lambda line: print(line, file=out, flush=True))
    return 0 if result.passed else 1


COMMAND = Command(
    name="check",
    group="train",
    summary="test every feature of a recipe in a minute, before a long run",
    usage=("rematch check RECIPE",),
    run=run,
    details="""Trains a shrunk copy of the run in a temporary folder. Every enabled feature must take effect
        once; then a second copy is killed (SIGKILL) and resumed, and must end with the same bytes. Lists
        the settings that nothing read. Exit code 1: a feature did not take effect, or a copy differs.""",
    options=(CONFIG,),
    examples=(
        ("rematch check ra1", "test a recipe"),
        ("rematch check ra1 --ewc.weight 0.1", "test it with a changed setting"),
    ),
    arguments=(RECIPE,),
    settings_of=RECIPE,
)
