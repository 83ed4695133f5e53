"""rematch report: one page about a run or several seeds."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rematch.cli.command import ACTORS, CLUSTER, FILE, JSON, RUN, Command, Option
from rematch.cli.options import Options
from rematch.core.system.interrupts import INTERRUPTS
from rematch.evaluation.text import clean
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import MOST_GAMES


def run(words: Sequence[str]) -> int:
    from rematch.cli.output import print_lines
    from rematch.verbs.report import report

    options = Options.of(COMMAND, words)
    usage = f"{COMMAND.usage[0]} [--out FILE] [--games N] [--quick] [--json]"
    names = options.positional(max(1, len(options.remaining)), usage)
    games = options.integer("--games", 0, 1, MOST_GAMES) if "--games" in options.values else None
    as_json = "--json" in options.values
    INTERRUPTS.raise_if_received()
    with ProgressDisplay(quiet=as_json) as display:
        log = print_to_stderr if as_json else display.line
        page = report(names, options.values.get("--out"), games, log, "--quick" in options.values,
                      options.cluster())
    if as_json:
        print(json.dumps(page.facts, indent=1, allow_nan=False))
    else:
        print_lines(page.lines())
    return 0


def print_to_stderr(line: str) -> None:
    print(clean(line), file=sys.stderr, flush=True)


COMMAND = Command(
    name="report",
    group="runs",
    summary="write one HTML page about a run, or about several seeds",
    usage=("rematch report RUN...",),
    run=run,
    details="""The page works offline and shows verdict, learning curves, NE gap beside exploitability, payoff
        matrix of past policies, forgetting, alarms and their likely causes. The page of one run is
        report.html in its folder, that of several runs report.html in the current folder. A sweep stands
        for all its runs.""",
    options=(
        Option(name="--out", value="FILE", help="write the page to this .html file", completes=FILE),
        Option(name="--games", value="N", help="games of each match between past policies"),
        Option(name="--quick", help="play no games: leave out the payoff matrix unless it is stored already"),
        CLUSTER,
        ACTORS,
        JSON,
    ),
    examples=(
        ("rematch report quick-1", "write runs/quick-1/report.html"),
        ("rematch report quick-1 --quick", "the same within seconds, without new games"),
        ("rematch report ra1-sweep --out ra1.html", "all seeds of a sweep on one page"),
    ),
    arguments=(RUN, RUN, RUN, RUN, RUN, RUN),
)
