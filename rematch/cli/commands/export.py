"""rematch export: a run's policies as files."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import FILE, RUN, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay


def run(words: Sequence[str]) -> int:
    from rematch.verbs.exact_runs.claims import MOST_CLAIMED
    from rematch.verbs.export import export

    options = Options.of(COMMAND, words)
    (name,) = options.positional(1, "rematch export RUN --out FILE [--onnx] [--c-header]")
    if "--out" not in options.values:
        raise ConfigError("rematch export RUN needs --out FILE, a name that ends in .safetensors")
    games = options.integer("--games", 0, 1, MOST_CLAIMED) if "--games" in options.values else 0
    formats = {"onnx": "--onnx" in options.values, "c_header": "--c-header" in options.values}
    with ProgressDisplay():
        result = export(name, options.values["--out"], games=games, **formats)
    print_result(result)
    return 0


COMMAND = Command(
    name="export",
    group="runs",
    summary="write the newest policies of a run to files",
    usage=("rematch export RUN --out FILE",),
    run=run,
    details="""Writes FILE.safetensors with the weights, and FILE.json with the game, the rules and the
        network; FILE-ROLE where there are several roles. The files can be named in eval --players, in play
        --against and in train --from.

        With --games the card FILE.json also claims the result of every game against the scripted players;
        `rematch verify FILE` plays a random part of them again.

        --onnx and --c-header write each policy for use without Rematch: they take measured quantities, scale
        them, mask illegal actions and return clipped actions in their units. Names and units of all inputs
        and outputs are in the file.""",
    options=(
        Option(name="--out", value="FILE", completes=FILE,
               help="file to write; its name ends in .safetensors"),
        Option(name="--games", value="N",
               help="play N games against each scripted opponent and claim their results in the card"),
        Option(name="--onnx", help="write each policy as an .onnx file too, for onnxruntime"),
        Option(name="--c-header", help="write each policy as a C99 header too, for a robot; its network has "
                                       "fully connected layers"),
    ),
    examples=(
        ("rematch export quick-1 --out agent", "write agent-pursuer.safetensors, agent-evader.safetensors"),
        ("rematch export quick-1 --out agent --onnx --c-header", "agent-pursuer.onnx, agent-pursuer.h too"),
    ),
    arguments=(RUN,),
)
