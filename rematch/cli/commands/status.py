"""rematch status: progress, evaluations and alarms of a run."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import JSON, RUN, Command
from rematch.cli.options import Options
from rematch.cli.output import print_result


def run(words: Sequence[str]) -> int:
    from rematch.verbs.runs import status

    options = Options.of(COMMAND, words)
    result = status(options.positional(1, f"{COMMAND.usage[0]} [--json]")[0])
    print_result(result, "--json" in options.values)
    return result.exit_code


COMMAND = Command(
    name="status",
    group="runs",
    summary="show the progress, evaluations and alarms of a run or a sweep",
    usage=("rematch status RUN",),
    run=run,
    details="""It only reads files, so it works while the run trains. Exit code 0: running or finished
        without alarm; 1: alarm; 3: stopped before its end.""",
    options=(JSON,),
    examples=(
        ("rematch status quick-1", "one run"),
        ("rematch status quick-sweep", "the table of a sweep"),
    ),
    arguments=(RUN,),
)
