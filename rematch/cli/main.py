"""The command line. Each command is one function below; settings of a run are flags made by config.py."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rematch.cli.options import Options, folder_of, new_folder
from rematch.cli.usage import USAGE
from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.interrupts import INTERRUPTS

MOST_GAMES = 100_000  # of one match: they are in memory together
LONGEST_LINE = 600  # characters of a complaint


def recipe_words(words: Sequence[str], command: str, own: Sequence[str], switches: Sequence[str] = (),
                 several: Sequence[str] = ()) -> tuple[str, Options]:
    """RECIPE and the options of a command that takes a run's settings too."""
    options = Options(words, ("--config", *own), ("--help", "-h", *switches), several)
    if not options.rest or options.rest[0].startswith("-"):
        from rematch.api import recipes

        found = f"found {options.rest[0]!r}" if options.rest else "found nothing"
        raise ConfigError(f"expected rematch {command} RECIPE [--KEY VALUE ...], {found}; "
                          f"recipes: {', '.join(recipes())}")
    return options.rest[0], options


def configured(recipe: str, options: Options, more: Sequence[str] = ()) -> Any:
    """The run's settings: recipe, --config and flags; a mistyped option of the command is named too."""
    from rematch import api

    file = Path(options.given["--config"]) if "--config" in options.given else None
    try:
        return api.configure(recipe, file, [*options.rest[1:], *more])
    except ConfigError as error:
        for word in options.rest[1:]:
            name = word.partition("=")[0]
            near = difflib.get_close_matches(name, options.known, n=1, cutoff=0.8)
            if near and f"unknown setting {name} " in str(error):
                raise ConfigError(f"command line: unknown option {word!r}; nearest: {near[0]}") from None
        raise


def train(words: Sequence[str]) -> int:
    from rematch import api
    from rematch.reporting.console import Console

    recipe, options = recipe_words(words, "train", ("--name", "--max-minutes", "--from"))
    config = configured(recipe, options)
    if "--help" in options.given or "-h" in options.given:
        return list_settings(config)
    minutes, name = options.minutes(), options.given.get("--name")
    folder = api.free_folder(Path("runs"), recipe) if name is None else new_folder(name)
    if "--from" in options.given:
        source = options.given["--from"]
        start = Path(source) if source.endswith(".safetensors") else folder_of(source)
        api.train_from(start, config, folder, Console(), minutes)
    else:
        api.train(config, folder=folder, console=Console(), minutes=minutes)
    return 0


def resume(words: Sequence[str]) -> int:
    from rematch import api
    from rematch.reporting.console import Console

    options = Options(words, values=("--max-minutes",), switches=("--other-machine",))
    (run,) = options.only(1, "rematch resume RUN")
    api.resume(folder_of(run), Console(), options.minutes(), "--other-machine" in options.given)
    return 0


def sweep(words: Sequence[str]) -> int:
    from rematch.reporting.console import Console
    from rematch.sweeps import plan as sweeps

    own = ("--seeds", "--jobs", "--name", "--max-minutes")
    recipe, options = recipe_words(words, "sweep", own, ("--json",), ("--grid",))
    if "--seeds" not in options.given:
        raise ConfigError(f"rematch sweep {recipe} needs --seeds; {sweeps.SEEDS}")
    if any(word.partition("=")[0] == "--seed" for word in options.rest):
        raise ConfigError(f"--seed has no effect in a sweep; {sweeps.SEEDS} as --seeds")
    jobs = options.whole("--jobs", 1, 1, sweeps.MOST_RUNS) if "--jobs" in options.given else None
    minutes, name = options.minutes(), options.given.get("--name")
    plan = sweeps.make_plan(sweeps.usual_folder(recipe) if name is None else new_folder(name), recipe,
                            sweeps.read_seeds(options.given["--seeds"]),
                            sweeps.read_grid(options.many["--grid"]),
                            lambda more: configured(recipe, options, more))
    console, with_words = Console(live=False), "--json" not in options.given
    console.off = not with_words
    found = sweeps.run(plan, jobs, minutes, console, shlex.join(["rematch", "sweep", *words]))
    if not with_words:
        print(json.dumps(found, indent=1))
    return 1 if found["failed"] else 0


def list_settings(config: Any) -> int:
    """Every flag of a recipe or a world, with its value there."""
    from rematch.core.config import help_lines
    from rematch.reporting.text import aligned

    print("\n".join(aligned([("flag", "value here", "meaning"), *help_lines(config)])))
    return 0


def status(words: Sequence[str]) -> int:
    from rematch.reporting.status import status as look
    from rematch.sweeps import status as swept

    options = Options(words, switches=("--json",))
    folder = folder_of(options.only(1, "rematch status RUN [--json]")[0])
    about = swept.status(folder) if swept.is_sweep(folder) else look(folder)
    if "--json" in options.given:
        print(json.dumps(about, indent=1))
    else:
        for line in about["lines"]:
            print(line)
    return int(about["exit"])


def check(words: Sequence[str]) -> int:
    from rematch.rehearsal.check import rehearse

    recipe, options = recipe_words(words, "check", ())
    return rehearse(configured(recipe, options))


def evaluate(words: Sequence[str]) -> int:
    from rematch.reporting.tournament_text import lines

    values = ("--against", "--games", "--players", "--seed", "--picture", "--move-seconds")
    options = Options(words, values, ("--json", "--greedy"))
    row = match_rows(options) if "--players" in options.given else run_row(options)
    print(json.dumps(row, indent=1) if "--json" in options.given else "\n".join(lines(row)))
    return 0


def run_row(options: Options) -> dict[str, Any]:
    """eval RUN: against its world's scripted players."""
    from rematch.cli.commands.evaluate import check_picture, eval_run, lost_picture
    from rematch.worlds import registry

    (subject,) = options.only(1, "rematch eval RUN | rematch eval WORLD --players A,B")
    if "--move-seconds" in options.given:
        raise ConfigError("--move-seconds has no effect without --players")
    games, seed, named = match_size(options)
    folder, greedy = folder_of(subject), "--greedy" in options.given
    if subject in registry.names() and not folder.exists():
        raise ConfigError(f"eval {subject}: a world needs --players A,B; expected those, or a run")
    file = picture_file(options) if "--picture" in options.given else None
    if file is not None:
        check_picture(folder)
    row = eval_run(folder, named, games, seed, greedy)
    if file is not None:
        lost_picture(folder, file, greedy)
    return row


def match_size(options: Options) -> tuple[int | None, int, list[str]]:
    """--games (None: as the world has it), --seed, --against."""
    games = options.whole("--games", 1, 1, MOST_GAMES) if "--games" in options.given else None
    seed = options.whole("--seed", 0, 0, 2**32 - 1)
    named = [name.strip() for name in options.given.get("--against", "").split(",") if name.strip()]
    if "--against" in options.given and not named:
        raise ConfigError(f"--against = {options.given['--against']!r}: expected names, split by commas")
    return games, seed, named


def match_rows(options: Options) -> dict[str, Any]:
    """eval WORLD --players A,B: what is left of the words are the world's settings."""
    from rematch.cli.commands.evaluate import Match, eval_world

    if not options.rest or options.rest[0].startswith("-"):
        raise ConfigError("expected rematch eval WORLD --players A,B [--world.KEY VALUE ...]")
    if "--picture" in options.given:
        raise ConfigError("--picture has no effect with --players: it shows where a run's policies lose")
    games, seed, named = match_size(options)
    slow = options.number("--move-seconds", 0.0, 3600.0) if "--move-seconds" in options.given else 0.0
    return eval_world(options.rest[0], Match(
        players=options.given["--players"].split(","), against=named, games=games, seed=seed, seconds=slow,
        greedy="--greedy" in options.given, flags=options.rest[1:]))


def play(words: Sequence[str]) -> int:
    from rematch.evaluation.player_lookup import entrant
    from rematch.worlds import registry

    able = [name for name in registry.names() if hasattr(registry.find(name), "play")]
    if not words or words[0] not in able:
        near = nearest(words[0], able) if words else ""
        raise ConfigError(f"expected rematch play WORLD [--KEY VALUE ...], with one of {', '.join(able)}"
                          + (f"; nearest: {near}" if near else ""))
    module = registry.find(words[0])
    if {"--help", "-h"} & set(words):
        return list_settings(module.sitting() if hasattr(module, "sitting") else module.Config())
    takes = "entrant" in inspect.signature(module.play).parameters  # it seats others by name
    return int(module.play(words[1:], entrant=entrant) if takes else module.play(words[1:]))


def exploit(words: Sequence[str]) -> int:
    from rematch.cli.commands.evaluate import exploit_run
    from rematch.reporting import best_response_text
    from rematch.training.best_response import Ask

    options = Options(words, values=("--budget", "--seeds", "--games", "--role"), switches=("--json",))
    (run,) = options.only(1, "rematch exploit RUN [--budget STEPS] [--seeds K] [--games N] [--role ROLE]")
    usual = Ask()
    ask = Ask(budget=options.whole("--budget", usual.budget, 1, 10**15),
              seeds=options.whole("--seeds", usual.seeds, 1, 1000),
              games=options.whole("--games", usual.games, 1, MOST_GAMES),
              roles=(options.given["--role"],) if "--role" in options.given else ())
    INTERRUPTS.raise_if_received()
    with_words = "--json" not in options.given
    result = exploit_run(folder_of(run), ask, lambda line: print(line, flush=True) if with_words else None)
    print("\n".join(best_response_text.lines(result)) if with_words else json.dumps(result, indent=1))
    return 0


def export(words: Sequence[str]) -> int:
    from rematch.cli.commands.evaluate import export_run

    options = Options(words, values=("--out",), switches=("--onnx",))
    (run,) = options.only(1, "rematch export RUN --out FILE [--onnx]")
    if "--out" not in options.given:
        raise ConfigError("rematch export RUN needs --out FILE, a name that ends in .safetensors")
    for path in export_run(folder_of(run), Path(options.given["--out"]), "--onnx" in options.given):
        print(f"{path}  {path.stat().st_size:,} bytes")
    return 0


def film(words: Sequence[str]) -> int:
    from rematch.cli.commands.evaluate import film_of

    options = Options(words, values=("--out", "--seconds", "--seed"), switches=("--greedy",))
    (run,) = options.only(1, "rematch film RUN --out FILE [--seconds S] [--seed S] [--greedy]")
    if "--out" not in options.given:
        raise ConfigError("rematch film RUN needs --out FILE, a name that ends in .gif or .mp4")
    seconds = options.number("--seconds", 3.0, 600.0) if "--seconds" in options.given else 12.0
    out, seed = Path(options.given["--out"]), options.whole("--seed", 0, 0, 2**32 - 1)
    caption = film_of(folder_of(run), out, seconds, seed, "--greedy" in options.given)
    print(f"{caption}\n{out}  {out.stat().st_size:,} bytes")
    return 0


def report(words: Sequence[str]) -> int:
    from rematch.reporting import run_summary
    from rematch.sweeps import status as swept

    options = Options(words, values=("--out", "--games"), switches=("--json",))
    usage = "rematch report RUN... [--out FILE] [--games N] [--json]"
    named = [folder_of(run) for run in options.only(max(1, len(options.rest)), usage)]
    folders = [run for each in named for run in (swept.begun(each) if swept.is_sweep(each) else [each])]
    games = options.whole("--games", 0, 1, MOST_GAMES) if "--games" in options.given else None
    quiet = "--json" in options.given
    INTERRUPTS.raise_if_received()
    out, whole = run_summary.report(folders, options.given.get("--out"), games,
                                lambda line: print(line, file=sys.stderr if quiet else None, flush=True))
    if quiet:
        print(json.dumps(whole, indent=1, allow_nan=False))
        return 0
    for run in whole["runs"]:
        for problem in run["problems"]:
            print(f"PROBLEM: {run['label']}: {problem}")
        print(f"{run['label']}: {run['verdict']}")
    print(f"report  {out}")
    return 0


def picture_file(options: Options) -> Path:
    """--picture FILE: refused before any work where it could not be written."""
    file = Path(options.given["--picture"])
    if file.suffix != ".png" or not file.parent.is_dir() or file.is_dir():
        raise ConfigError(f"--picture = {str(file)!r}: expected a name that ends in .png, in a folder that "
                          "is there")
    return file


def solve(words: Sequence[str]) -> int:
    from rematch.core.config import apply, read_flags, refuse_inert, validate
    from rematch.reporting.text import solution_lines
    from rematch.worlds import registry

    options = Options(words, values=("--threads", "--picture"), switches=("--json", "--help", "-h"))
    if not options.rest or options.rest[0].startswith("-"):
        raise ConfigError("expected rematch solve WORLD [--KEY VALUE ...] [--threads T] [--json] "
                          "[--picture FILE]")
    name, flags = options.rest[0], options.rest[1:]
    module = registry.find(name)
    if not hasattr(module, "solve"):
        able = ", ".join(world for world in registry.names() if hasattr(registry.find(world), "solve"))
        raise ConfigError(f"solve {name}: no exact solution is known for this world; expected one of {able}")
    if "--help" in options.given or "-h" in options.given:
        return list_settings(module.Config())
    given = read_flags(flags, module.Config(), prefix="world.")
    config = apply(module.Config(), given, "command line", text=True, prefix="world.")
    validate(config)
    refuse_inert(config, list(given), "command line")
    threads = options.whole("--threads", min(os.cpu_count() or 1, 64), 1, 64)
    row = module.solve(config, threads, picture_file(options) if "--picture" in options.given else None)
    print(json.dumps(row, indent=1) if "--json" in options.given else "\n".join(solution_lines(row)))
    return 0


def bench(words: Sequence[str]) -> int:
    from rematch.worlds import registry

    options = Options(words, values=("--seconds",), switches=("--json",))
    world = options.only(1, "rematch bench [WORLD] [--json] [--seconds S]")[0] if options.rest else "pursuit"
    seconds = options.number("--seconds", 0.0, 3600.0) if "--seconds" in options.given else 5.0
    registry.find(world)
    from rematch.bench.run import bench as measure

    return measure(world, seconds, "--json" in options.given)


def list_worlds(words: Sequence[str]) -> int:
    from rematch.cli.commands.worlds import list_worlds as tell

    return tell(words)


def list_recipes(words: Sequence[str]) -> int:
    from rematch.cli.commands.recipes import list_recipes as tell

    return tell(words)


COMMANDS = {
    "train": train, "resume": resume, "sweep": sweep, "status": status, "check": check, "eval": evaluate,
    "exploit": exploit, "export": export, "film": film, "report": report, "solve": solve, "play": play,
    "bench": bench, "worlds": list_worlds, "recipes": list_recipes,
}


def obey(words: Sequence[str]) -> int:
    """Do what the words say; returns the exit code."""
    if not words or words[0] in ("--help", "-h", "help"):
        print(USAGE, end="")
        return 0 if words else 2
    if words[0] == "--version":
        from rematch import __version__

        print(f"rematch {__version__}")
        return 0
    if words[0] not in COMMANDS:
        near = nearest(words[0], list(COMMANDS))
        raise ConfigError(f"unknown command {words[0]!r}: expected one of {', '.join(COMMANDS)}"
                          + (f"; nearest: {near}" if near else ""))
    helps = [word for word in words[1:] if word in ("--help", "-h")]
    if helps and (words[0] not in ("train", "solve", "play") or len(words) == 2):
        print(USAGE, end="")
        return 0
    with INTERRUPTS.deferred():  # loading the compiled parts would lose a Ctrl-C
        importlib.import_module("rematch.api")
    return COMMANDS[words[0]](words[1:])


def complain(text: object, code: int = 2) -> int:
    """One line on stderr, whatever the text holds; returns the exit code."""
    line = "".join(c if c.isprintable() else " " for c in f"rematch: {text}")
    if len(line) > LONGEST_LINE:
        line = f"{line[:LONGEST_LINE - 105]} ... {line[-100:]}"
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # nobody listens there either
            print(line, file=sys.stderr, flush=True)
    return code


def hush() -> None:
    """Nobody reads our output any more. It goes to /dev/null, else Python's own flush at exit would fail
    and change the exit code (docs.python.org, signal, "Note on SIGPIPE")."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def main(argv: Sequence[str] | None = None, act: Callable[[Sequence[str]], int] | None = None) -> int:
    """The command line, or `act` on its words: another face of the same house (compat/)."""
    words = list(sys.argv[1:] if argv is None else argv)
    with INTERRUPTS:
        try:
            return answer(words, act or obey)
        except KeyboardInterrupt:
            pass
        except Exception:
            if not INTERRUPTS.received:  # else it is what became of the interruption on its way here
                raise
        return complain("interrupted; what was saved stands", 130)


def plainly(message: Warning | str, *_: object, **__: object) -> str:
    """A warning as a line of ours, without the place in the code that gave it."""
    return f"rematch: {message}\n"


def answer(words: Sequence[str], act: Callable[[Sequence[str]], int]) -> int:
    """Obey; what goes wrong is one line."""
    code = 0
    warnings.formatwarning = plainly
    try:
        code = act(words)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # `| head`: whoever read us has read enough
        hush()
        return code
    except (ConfigError, ImportError) as error:  # ImportError: a stale core, or a library that is missing
        INTERRUPTS.raise_if_received()
        return complain(error)
    except OSError as error:
        hush()
        where = f"{error.filename}: " if error.filename else "output: "
        return complain(f"{where}{error.strerror or error}")
    except MemoryError:
        return complain("not enough memory: expected fewer or smaller games, steps or network.hidden")


if __name__ == "__main__":
    sys.exit(main())
