"""rematch curves: the curves of a run in TensorBoard or Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import FOLDER, JSON, RUN, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.core.errors import ConfigError


def run(words: Sequence[str]) -> int:
    from rematch.verbs.export import curves

    options = Options.of(COMMAND, words)
    (name,) = options.positional(1, "rematch curves RUN --to tensorboard|wandb [--out FOLDER] [--follow]")
    values = options.values
    if "--to" not in values:
        raise ConfigError("rematch curves RUN needs --to tensorboard or --to wandb")
    result = curves(name, values["--to"], out=values.get("--out"), live="--follow" in values)
    print_result(result, "--json" in values)
    return 0


COMMAND = Command(
    name="curves",
    group="runs",
    summary="copy the curves of a run to TensorBoard or Weights & Biases",
    usage=("rematch curves RUN --to tensorboard", "rematch curves RUN --to wandb"),
    run=run,
    details="""Copies the numbers of all iterations, the results of all evaluations with their intervals, the
        verdicts and the settings. The run folder is only read. TensorBoard: event files of an earlier copy
        are replaced. Weights & Biases: an offline run; nothing is sent until `wandb sync`.""",
    options=(
        Option(name="--to", value="TOOL", help="tensorboard or wandb; both are packages of their own"),
        Option(name="--out", value="FOLDER", completes=FOLDER,
               help="folder to write to (default: tensorboard; W&B: the present folder)"),
        Option(name="--follow", help="go on while the run trains, until it ends; Ctrl-C ends the copy only"),
        JSON,
    ),
    examples=(
        ("rematch curves quick-1 --to tensorboard", "then: tensorboard --logdir tensorboard"),
        ("rematch curves mine --to tensorboard --follow", "live, in a second terminal"),
        ("rematch curves mine --to wandb", "an offline run in wandb/"),
    ),
    arguments=(RUN,),
)
