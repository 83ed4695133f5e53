"""RECIPE [--config FILE] [--KEY VALUE ...]: the words that train, sweep and check have in common."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rematch.cli.command import Command
from rematch.cli.options import Options
from rematch.core.config import known_name
from rematch.core.errors import ConfigError
from rematch.recipes import recipe_texts

if TYPE_CHECKING:
    from rematch.core.run_config import Config


def recipe_words(command: Command, words: Sequence[str]) -> tuple[str, Options]:
    """RECIPE and the options of a command; the other words are settings of the run."""
    options = Options.of(command, words)
    if not options.remaining or options.remaining[0].startswith("-"):
        first = f"found {options.remaining[0]!r}" if options.remaining else "found nothing"
        raise ConfigError(f"expected rematch {command.name} RECIPE [--KEY VALUE ...], {first}; "
                          f"recipes: {', '.join(recipe_texts())}")
    return recipe_name(options.remaining[0]), options


def recipe_name(word: str) -> str:
    """The recipe or world that `word` names in any case; `word` itself where there is none."""
    from rematch.worlds import registry

    return known_name(word, dict.fromkeys([*recipe_texts(), *registry.names()]))


def config_file(options: Options) -> Path | None:
    return Path(options.values["--config"]) if "--config" in options.values else None


def configured(recipe: str, options: Options, more: Sequence[str] = ()) -> Config:
    """The settings of the run: recipe, --config and flags."""
    from rematch import api

    with nearest_options(options):
        return api.configure(recipe, config_file(options), [*options.remaining[1:], *more])


@contextlib.contextmanager
def nearest_options(options: Options) -> Iterator[None]:
    """An unknown setting that is a mistyped option of the command gets the option's name in its error."""
    try:
        yield
    except ConfigError as error:
        for word in options.remaining[1:]:
            name = word.partition("=")[0]
            near = difflib.get_close_matches(name, options.names, n=1, cutoff=0.8)
            if near and f"unknown setting {name} " in str(error):
                raise ConfigError(f"command line: unknown option {word!r}; nearest: {near[0]}") from None
        raise
