"""rematch serve: runs in the browser."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rematch.cli.command import FOLDER, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import log_line
from rematch.core.errors import ConfigError
from rematch.verbs.arguments import RUNS

MOST_PORT = 65535
NICENESS = 10  # of the server: a training beside it goes first


def run(words: Sequence[str]) -> int:
    from rematch.web.server import PORT, serve

    options = Options.of(COMMAND, words)
    usage = "rematch serve [RUNS_DIR] [--port N] [--host ADDRESS]"
    folder = options.positional(1, usage)[0] if options.remaining else str(RUNS)
    host = options.values.get("--host", "127.0.0.1")
    if host in ("0.0.0.0", "::", ""):
        raise ConfigError(f"--host = {host!r}: expected one address: requests for others are refused")
    port = options.integer("--port", PORT, 0, MOST_PORT)
    os.nice(max(0, NICENESS - os.nice(0)))
    serve(folder, host=host, port=port, log=log_line)
    return 0


COMMAND = Command(
    name="serve",
    group="runs",
    summary="show runs in the browser, live",
    usage=("rematch serve [RUNS_DIR]",),
    run=run,
    details="""Prints an address with a token; open it in a browser. The page lists the runs of a folder
        (default: runs/) with progress, verdict and trend, compares several, and shows win rates with
        intervals, balance beside exploitability, alarms with likely causes, the curriculum, learning curves,
        changed settings, the log and the newest film. It follows runs while they train. Every run has a page
        of replays; in pursuit and lattice any policies and scripted players can meet there, and you can play
        against each of them. Runs of gameboy have a world map with all games and savestates, from each of
        which you can play.

        The same page plays Beasty Bar against agents, runs of the folder and bots. Games are stored in the
        subfolder saved_games; nothing else is written, and training does not notice the server. It answers on
        this machine only, unless --host names another of its addresses. The connection is not encrypted: from
        another machine, use an SSH tunnel. Ctrl-C ends the server.""",
    options=(
        Option(name="--port", value="N", help="port (default 7374, or the next free one; 0: any)"),
        Option(name="--host", value="ADDRESS",
               help="address to listen on (default 127.0.0.1: this machine only)"),
    ),
    examples=(
        ("rematch serve", "the runs in runs/"),
        ("rematch serve ~/experiments --port 8080", "another folder and port"),
        ("ssh -L 7374:127.0.0.1:7374 gpu-box", "then open the printed address on your own machine"),
    ),
    arguments=(FOLDER,),
)
