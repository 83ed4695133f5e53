"""rematch fork: continue a run's state under other settings."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import MINUTES, RUN, Command, Option
from rematch.cli.options import Options
from rematch.core.errors import ConfigError
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import new_folder


def run(words: Sequence[str]) -> int:
    from rematch.core import config as settings
    from rematch.reporting.console import Console
    from rematch.verbs.exact_runs import fork

    options = Options.of(COMMAND, words)
    if not options.remaining or options.remaining[0].startswith("-"):
        raise ConfigError("expected rematch fork RUN@ITERATION [--KEY VALUE ...]; `rematch runs` lists runs")
    source, _ = fork.parse_source(options.remaining[0])
    changes = settings.read_flags(options.remaining[1:], source.config)
    name = options.values.get("--name")
    folder = None if name is None else new_folder(name)
    with ProgressDisplay():
        draft = fork.make(options.remaining[0], changes, folder, text=True)
    fork.train(draft, Console(), options.minutes())
    return 0


COMMAND = Command(
    name="fork",
    group="train",
    summary="continue a run from any of its iterations under other settings",
    usage=("rematch fork RUN[@ITERATION] [--KEY VALUE ...]",),
    run=run,
    details="""The fork has a folder of its own with the state and the logs of that iteration, and trains to
        its end. RUN@120 is iteration 120, RUN@2.5M the iteration at 2.5 million steps, RUN alone the newest
        checkpoint. Where no checkpoint of the iteration is stored, it is trained again from the one before
        it, or from the beginning, and compared with the run's logs: other bits are refused. Without a
        changed setting the fork ends with the state of the run itself.

        lineage.json records the run, the iteration and the changes; `rematch status`, the report and the
        page show them. The world, games, steps and your own components cannot change in a fork.""",
    options=(
        Option(name="--name", value="NAME",
               help="folder of the fork: runs/NAME, or the path NAME if it contains a slash (default: "
                    "RUN-fork-1, -2, ... beside the run)"),
        MINUTES,
    ),
    examples=(
        ("rematch fork quick-1@200 --ppo.lr 0.0005", "from iteration 200 on with a lower learning rate"),
        ("rematch fork quick-1 --total_steps 40000000 --name longer", "train a finished run further"),
        ("rematch fork quick-1@2M --seed 7", "the same state, another future"),
    ),
    arguments=(RUN,),
)
