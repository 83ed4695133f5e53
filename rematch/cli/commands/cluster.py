"""rematch cluster: check the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import JSON, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError


def run(words: Sequence[str]) -> int:
    from rematch.verbs.on_cluster.check import cluster_check

    options = Options.of(COMMAND, words)
    (verb,) = options.positional(1, COMMAND.usage[0])
    if verb != "check":
        raise ConfigError(f"rematch cluster {verb}: expected {COMMAND.usage[0]}")
    result = cluster_check(options.values.get("--cluster", "ray"))
    print_result(result, "--json" in options.values)
    return 0 if result["usable"] else 1


COMMAND = Command(
    name="cluster",
    group="tools",
    summary="check the nodes of a Ray cluster: versions, compiled cores, processors",
    usage=("rematch cluster check",),
    run=run,
    details="""Prints a row per node: versions of Rematch, Python, Ray, NumPy and PyTorch, the level of its
        processor, and what is missing or different from this machine. Games have the same bits only on nodes
        with the same versions and the same processor; other nodes are refused. Exit code 1: a node cannot be
        used.""",
    options=(
        Option(name="--cluster", value="ADDRESS",
               help="ray (default: started on this machine; where RAY_ADDRESS is set, that cluster) or "
                    "ray://HOST:PORT"),
        JSON,
    ),
    examples=(
        ("rematch cluster check", "whether Ray works on this machine"),
        ("rematch cluster check --cluster ray://127.0.0.1:10001", "a cluster behind an SSH tunnel"),
    ),
)
