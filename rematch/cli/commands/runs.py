"""rematch runs: list the runs of a folder."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import FOLDER, JSON, Command
from rematch.cli.options import Options
from rematch.cli.output import print_result


def run(words: Sequence[str]) -> int:
    from rematch.verbs.arguments import RUNS, folder_of
    from rematch.verbs.runs import list_runs

    options = Options.of(COMMAND, words)
    folder = folder_of(options.positional(1, COMMAND.usage[0])[0]) if options.remaining else RUNS
    print_result(list_runs(folder), "--json" in options.values)
    return 0


COMMAND = Command(
    name="runs",
    group="runs",
    summary="list the runs: progress, state, newest verdict",
    usage=("rematch runs [FOLDER]",),
    run=run,
    details="""FOLDER is runs/ by default. The run that was written to last comes first; a sweep is one
        line, and `rematch runs SWEEP` lists its runs. States: running; stopped (on request, can be
        resumed); killed (its process ended without saving, can be resumed); failed (an update was not
        finite, or code raised an exception); finished.""",
    options=(JSON,),
    examples=(
        ("rematch runs", "the runs in runs/"),
        ("rematch runs runs/quick-sweep", "the runs of a sweep"),
    ),
    arguments=(FOLDER,),
    loads_api=False,
)
