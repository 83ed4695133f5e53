"""rematch solve: the exact value of a small game."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematch.cli.command import FILE, JSON, WORLD, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay


def run(words: Sequence[str]) -> int:
    from rematch.core.config import apply, read_flags
    from rematch.verbs.solve import MOST_THREADS, solvable, solve_config

    options = Options.of(COMMAND, words)
    if not options.remaining or options.remaining[0].startswith("-"):
        raise ConfigError(f"expected {COMMAND.usage[0]} [--KEY VALUE ...] [--threads T] [--json] "
                          "[--picture FILE]")
    world = options.remaining[0]
    default = solvable(world).Config()
    changes = read_flags(options.remaining[1:], default)
    config = apply(default, changes, "command line", text=True)
    threads = options.integer("--threads", 1, 1, MOST_THREADS) if "--threads" in options.values else None
    as_json = "--json" in options.values
    with ProgressDisplay(quiet=as_json):
        result = solve_config(world, config, list(changes), threads=threads,
                              picture=options.values.get("--picture"), source="command line")
    print_result(result, as_json)
    return 0


def world_settings(world: str) -> Any:
    from rematch.verbs.solve import solvable

    return solvable(world).Config()


COMMAND = Command(
    name="solve",
    group="strength",
    summary="compute the exact value of a game that is small enough",
    usage=("rematch solve WORLD",),
    run=run,
    details="""Computes the value under best play of both sides from every start position, backwards from the
        last step with a matrix game at every position. Any other world is refused with the names of those
        that can be solved.""",
    options=(
        Option(name="--threads", value="T", help="CPU threads (default: all cores)"),
        Option(name="--picture", value="FILE", completes=FILE,
               help="PNG file: the value of every start position"),
        JSON,
    ),
    examples=(("rematch solve lattice --n 5", "the lattice of 5 by 5 cells"),),
    arguments=(WORLD,),
    settings_of=WORLD,
    world_settings=world_settings,
)
