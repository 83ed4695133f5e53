"""rematch notify: messages about a run that trains."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Sequence

from rematch.cli.command import RUN, Command, Option
from rematch.cli.notify_process import VARIABLE, address_of
from rematch.cli.options import Options
from rematch.cli.output import log_line
from rematch.core.errors import ConfigError
from rematch.verbs.arguments import folder_of


def run(words: Sequence[str]) -> int:
    from rematch.verbs.runs import notify

    options = Options.of(COMMAND, words)
    (name,) = options.positional(1, "rematch notify RUN --url URL")
    url = options.values.get("--url", "")
    from_stdin = url == "-"
    url = sys.stdin.readline().strip() if from_stdin else address_of({"--notify": url})
    if not url and not from_stdin:
        raise ConfigError(f"rematch notify RUN needs --url URL, or the variable {VARIABLE}")
    if not from_stdin:
        notify(folder_of(name), url, log=print_line)
    elif not url:
        return 0
    else:
        os.nice(10)  # the training goes first
        with contextlib.suppress(ConfigError):  # its command failed before the run began
            notify(folder_of(name), url, log=print_line, abandoned=at_end_of_input)
    return 0


def print_line(line: str) -> None:
    """Print a line; the reader may have died with the training, of which this process reports."""
    with contextlib.suppress(OSError):
        log_line(line)


def at_end_of_input() -> bool:
    """Whether standard input has ended: the command that started this one is over."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not sys.stdin.readline()


COMMAND = Command(
    name="notify",
    group="train",
    summary="send messages about a run that trains to a web address",
    usage=("rematch notify RUN",),
    run=run,
    details="""It follows the folder of a run that trains and sends: started or resumed, the verdict of every
        evaluation, alarms with their likely causes, stopped, died, done. It ends with the run. `rematch train
        --notify URL` starts it by itself.

        Messages are JSON; an address at ntfy.sh, or one that begins with ntfy+https://, gets plain text. Only
        http and https are accepted, redirects are not followed. The address is not stored.""",
    options=(
        Option(name="--url", value="URL",
               help=f"address that receives the messages; -: read it from standard input (default: the "
                    f"variable {VARIABLE})"),
    ),
    examples=(
        ("rematch notify mine --url https://ntfy.sh/my-topic", "to a phone with the app ntfy"),
        ("rematch train pursuit --notify https://host/hook", "from the start of a new run"),
    ),
    arguments=(RUN,),
)
