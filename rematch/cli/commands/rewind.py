"""rematch rewind: train a stretch again and record it."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import FOLDER, JSON, RUN, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay


def run(words: Sequence[str]) -> int:
    from rematch.verbs.exact_runs.rewind import rewind

    options = Options.of(COMMAND, words)
    (name,) = options.positional(1, "rematch rewind RUN --from A --to B --log KINDS")
    for option in ("--from", "--to", "--log"):
        if option not in options.values:
            raise ConfigError(f"rematch rewind RUN needs {option}; usage: {COMMAND.usage[0]}")
    kinds = [kind.strip() for kind in options.values["--log"].split(",") if kind.strip()]
    as_json = "--json" in options.values
    with ProgressDisplay(quiet=as_json):
        result = rewind(name, options.values["--from"], options.values["--to"], kinds,
                        options.values.get("--out"))
    print_result(result, as_json)
    return 0


COMMAND = Command(
    name="rewind",
    group="train",
    summary="train a stretch of a run again, to the same bits, and record it",
    usage=("rematch rewind RUN --from A --to B --log KINDS",),
    run=run,
    details="""Trains the iterations after A up to B again in a temporary copy, from the newest checkpoint at
        or before A or from the beginning, and records what the run did not log. The run is not changed. A
        and B are iterations (120) or steps with a letter (2.5M).

        Every row of metrics.jsonl, every evaluation and every stored checkpoint of the stretch is compared.
        Where one bit differs, nothing is recorded: one line says what differs, exit code 2.""",
    options=(
        Option(name="--from", value="A", help="the stretch begins after this iteration; 0: at the start"),
        Option(name="--to", value="B", help="last iteration of the stretch"),
        Option(name="--log", value="KINDS",
               help="what to record, separated by commas: metrics (of every iteration, with the size of the "
                    "weights and of their change), episodes (every training game), policies (of every "
                    "iteration), films (one game of every iteration)"),
        Option(name="--out", value="FOLDER", completes=FOLDER,
               help="new folder for the records (default: RUN-rewind-A-B beside the run)"),
        JSON,
    ),
    examples=(
        ("rematch rewind quick-1 --from 100 --to 120 --log episodes,metrics",
         "every training game of 20 iterations, as a table"),
        ("rematch rewind quick-1 --from 0 --to 5 --log films", "the first games that the agents played"),
    ),
    arguments=(RUN,),
)
