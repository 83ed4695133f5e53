"""rematch bench: measure the speed."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import JSON, WORLD, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import world_name


def run(words: Sequence[str]) -> int:
    from rematch.worlds import registry

    options = Options.of(COMMAND, words)
    usage = "rematch bench [WORLD] [--json] [--seconds S] [--device cuda]"
    names = options.positional(1, usage) if options.remaining else []
    seconds = options.number("--seconds", 0.0, 3600.0) if "--seconds" in options.values else 5.0
    for name in names:
        registry.find(world_name(name))  # a wrong name is refused before the slow import
    from rematch.bench.run import WORLD as DEFAULT_WORLD
    from rematch.bench.run import benchmark, check_device

    as_json, device = "--json" in options.values, options.values.get("--device", "cpu")
    world = names[0] if names else DEFAULT_WORLD
    check_device(world_name(world), device)
    with ProgressDisplay(quiet=as_json):
        result = benchmark(world, seconds, device)
    print_result(result, as_json)
    return 0


COMMAND = Command(
    name="bench",
    group="tools",
    summary="measure the speed of stepping and training, compared with other libraries",
    usage=("rematch bench [WORLD]",),
    run=run,
    details="""--seconds is the time of each measurement, not of the whole command: there are up to twenty
        measurements. The number of measurements and their time together are printed first, on stderr; then
        a line shows which one is running and the time left.

        --device cuda measures training on the GPU at several sizes, beside Stable-Baselines3 with its
        networks on the same card, and whether the timed training learns.""",
    options=(
        Option(name="--seconds", value="S",
               help="seconds of each measurement, not of all together (default 5)"),
        Option(name="--device", value="DEVICE",
               help="where the timed trainings run: cpu (the default) or cuda"),
        JSON,
    ),
    examples=(("rematch bench pursuit --seconds 2", "a short measurement of one world"),),
    arguments=(WORLD,),
)
