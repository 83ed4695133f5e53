"""rematch verify: play a random part of the games that a policy's card claims."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import FILE, JSON, Command, Option
from rematch.cli.options import Options
from rematch.cli.output import print_result
from rematch.reporting.terminal.progress_display import ProgressDisplay
from rematch.verbs.arguments import MOST_SEED


def run(words: Sequence[str]) -> int:
    from rematch.verbs.exact_runs.verify import GAMES, MOST_REPLAYED, verify

    options = Options.of(COMMAND, words)
    (name,) = options.positional(1, COMMAND.usage[0])
    games = options.integer("--games", GAMES, 1, MOST_REPLAYED)
    seed = options.integer("--seed", 0, 0, MOST_SEED) if "--seed" in options.values else None
    as_json = "--json" in options.values
    with ProgressDisplay(quiet=as_json):
        result = verify(name, games, seed)
    print_result(result, as_json)
    return result.exit_code


COMMAND = Command(
    name="verify",
    group="strength",
    summary="check the claims of a policy: play a random part of its games again",
    usage=("rematch verify FILE",),
    run=run,
    details="""FILE is a policy that `rematch export RUN --out FILE --games N` wrote. Its card, the JSON file
        beside it, claims the result of every game. A random part is played again with the same seeds; each
        game must end as claimed. Exit code 0: true; 1: false, or unknown because the claims were made with
        another processor or other cores.""",
    options=(
        Option(name="--games", value="N", help="games to play again (default 50)"),
        Option(name="--seed", value="S", help="seed that draws the games (default: a new one each time)"),
        JSON,
    ),
    examples=(
        ("rematch export quick-1 --out agent --games 500", "write policies whose cards claim their results"),
        ("rematch verify agent-evader.safetensors", "play 50 of these games again"),
    ),
    arguments=(FILE,),
)
