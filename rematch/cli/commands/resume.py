"""rematch resume: continue a run."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import ACTORS, CLUSTER, MINUTES, RUN, Command, Option
from rematch.cli.notify_process import NOTIFY, address_of, notifying
from rematch.cli.options import Options
from rematch.verbs.arguments import folder_of


def run(words: Sequence[str]) -> int:
    from rematch import api
    from rematch.reporting.console import Console

    options = Options.of(COMMAND, words)
    (name,) = options.positional(1, COMMAND.usage[0])
    folder, console, url = folder_of(name), Console(), address_of(options.values)
    minutes, other_machine = options.minutes(), "--other-machine" in options.values
    with notifying(url, folder, console.line_from_thread):
        api.resume(folder, console, minutes, other_machine, cluster=options.cluster())
    return 0


COMMAND = Command(
    name="resume",
    group="train",
    summary="continue a stopped or killed run, bit for bit",
    usage=("rematch resume RUN",),
    run=run,
    details="""The run continues from its newest checkpoint that verifies and ends with the same bytes as a
        run that was never stopped. A finished run trains no further; missing pictures and reports are made
        again.""",
    options=(
        MINUTES,
        NOTIFY,
        Option(name="--other-machine",
               help="continue although the checkpoint was saved with other library versions: the result is "
                    "valid, but not the same bits"),
        CLUSTER,
        ACTORS,
    ),
    examples=(
        ("rematch resume quick-1", "continue runs/quick-1"),
        ("rematch resume quick-1 --max-minutes 30", "continue for half an hour"),
    ),
    arguments=(RUN,),
)
