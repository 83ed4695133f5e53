"""The command line. Each command is one function below; settings of a run are flags made by config.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rematch.config import ConfigError, nearest

USAGE = """rematch: trains game agents by self-play and tells the truth about how strong they are

  rematch train RECIPE [--KEY VALUE ...] [--config FILE] [--name NAME] [--max-minutes M]
                                 start a run in runs/NAME; `rematch train RECIPE --help` lists every KEY
  rematch resume RUN [--max-minutes M] [--other-machine]
                                 go on exactly where it stopped
  rematch status RUN [--json]    where a run stands; exit code 0 fine, 1 alarm, 3 stopped before its end
  rematch check RECIPE [--KEY VALUE ...] [--config FILE]
                                 rehearsal: every feature once, kill and resume included; names unread settings
  rematch eval RUN [--against NAMES] [--games N] [--seed S] [--greedy] [--json]
  rematch eval WORLD --players A,B [--games N] [--seed S] [--json]
                                 matches with n and 95 % intervals
  rematch bench [WORLD] [--json] [--seconds S]
                                 speed, beside its peers, in one run
  rematch worlds                 the worlds there are, with their roles and scripted players
  rematch recipes                the recipes there are

RUN is a run's folder, or its name in runs/. Exit code 2: something in the command or its files is wrong.
"""


class Options:
    """A command's own options, taken out of its words; what is left are the run's settings."""

    def __init__(self, words: Sequence[str], values: Sequence[str] = (), switches: Sequence[str] = ()) -> None:
        self.given: dict[str, str] = {}
        self.rest: list[str] = []
        todo = list(words)
        while todo:
            word = todo.pop(0)
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name in values:
                if not equals:
                    if not todo:
                        raise ConfigError(f"{name} needs a value")
                    value = todo.pop(0)
                self.given[name] = value
            elif name in switches and not equals:
                self.given[name] = "yes"
            else:
                self.rest.append(word)
        self.known = [*values, *switches]

    def only(self, positional: int, usage: str) -> list[str]:
        """The positional words, exactly that many; anything else is an error."""
        for word in self.rest:
            if word.startswith("-"):
                near = nearest(word.partition("=")[0], self.known)
                raise ConfigError(f"unknown option {word}" + (f"; nearest: {near}" if near else f"; usage: {usage}"))
        if len(self.rest) != positional:
            raise ConfigError(f"usage: {usage}")
        return self.rest

    def number(self, name: str, default: float | None, low: float) -> float | None:
        if name not in self.given:
            return default
        try:
            value = float(self.given[name])
        except ValueError:
            value = float("nan")
        if not low <= value < 1e12:
            raise ConfigError(f"{name} = {self.given[name]!r}: expected a number of at least {low:g}")
        return value

    def whole(self, name: str, default: int, low: int) -> int:
        value = self.number(name, default, low)
        assert value is not None
        if value != int(value):
            raise ConfigError(f"{name} = {self.given[name]!r}: expected a whole number")
        return int(value)


def folder_of(run: str) -> Path:
    """A run by its folder, or by its name in runs/."""
    path = Path(run)
    return path if path.is_dir() or not (Path("runs") / run).is_dir() else Path("runs") / run


def recipe_words(words: Sequence[str], command: str) -> tuple[str, Options]:
    options = Options(words, values=("--config", "--name", "--max-minutes"), switches=("--help", "-h"))
    if not options.rest or options.rest[0].startswith("-"):
        from rematch.api import recipes

        raise ConfigError(f"usage: rematch {command} RECIPE [--KEY VALUE ...]; recipes: {', '.join(recipes())}")
    return options.rest[0], options


def train(words: Sequence[str]) -> int:
    from rematch import api
    from rematch.show.console import Console

    recipe, options = recipe_words(words, "train")
    file = Path(options.given["--config"]) if "--config" in options.given else None
    if "--help" in options.given or "-h" in options.given:
        return list_settings(api.configure(recipe, file))
    config = api.configure(recipe, file, options.rest[1:])
    minutes = options.number("--max-minutes", None, 0)
    name = options.given.get("--name")
    if name is not None and (not name or name.startswith((".", "-"))):
        raise ConfigError(f"--name = {name!r}: expected a folder name")
    folder = api.free_folder(Path("runs"), recipe) if name is None else Path(name) if "/" in name else Path("runs") / name
    api.train(config, folder=folder, console=Console(), minutes=minutes)
    return 0


def resume(words: Sequence[str]) -> int:
    from rematch import api
    from rematch.show.console import Console

    options = Options(words, values=("--max-minutes",), switches=("--other-machine",))
    (run,) = options.only(1, "rematch resume RUN")
    minutes = options.number("--max-minutes", None, 0)
    api.resume(folder_of(run), Console(), minutes, "--other-machine" in options.given)
    return 0


def list_settings(config: Any) -> int:
    """Every flag of a recipe, with its value there."""
    from rematch.config import help_lines

    rows = list(help_lines(config))
    width = max(len(flag) for flag, _, _ in rows)
    for flag, value, text in rows:
        print(f"{flag:<{width}}  {value:<14} {text}")
    return 0


def status(words: Sequence[str]) -> int:
    from rematch.show.status import status as look

    options = Options(words, switches=("--json",))
    (run,) = options.only(1, "rematch status RUN [--json]")
    about = look(folder_of(run))
    if "--json" in options.given:
        print(json.dumps(about, indent=1))
    else:
        for line in about["lines"]:
            print(line)
    return int(about["exit"])


def check(words: Sequence[str]) -> int:
    from rematch import api
    from rematch.engine.rehearsal import rehearse

    recipe, options = recipe_words(words, "check")
    file = Path(options.given["--config"]) if "--config" in options.given else None
    return rehearse(api.configure(recipe, file, options.rest[1:]))


def evaluate(words: Sequence[str]) -> int:
    from rematch.matches import eval_run, eval_world

    options = Options(words, values=("--against", "--games", "--players", "--seed"), switches=("--json", "--greedy"))
    (subject,) = options.only(1, "rematch eval RUN | rematch eval WORLD --players A,B")
    games, seed = options.whole("--games", 1000, 1), options.whole("--seed", 0, 0)
    named = [name for name in options.given.get("--against", "").split(",") if name]
    if "--players" in options.given:
        if named or "--greedy" in options.given:
            raise ConfigError("--against and --greedy have no effect with --players")
        row = eval_world(subject, options.given["--players"].split(","), games, seed)
    else:
        row = eval_run(folder_of(subject), named, games, seed, "--greedy" in options.given)
    if "--json" in options.given:
        print(json.dumps(row, indent=1))
    else:
        from rematch.show.console import Console

        Console(live=False).scoreboard(row)
    return 0


def bench(words: Sequence[str]) -> int:
    from rematch.bench import bench as measure

    options = Options(words, values=("--seconds",), switches=("--json",))
    if len(options.rest) > 1 or any(word.startswith("-") for word in options.rest):
        options.only(1, "rematch bench [WORLD] [--json] [--seconds S]")
    seconds = options.number("--seconds", 5.0, 0.1)
    assert seconds is not None
    return measure(options.rest[0] if options.rest else "pursuit", seconds, "--json" in options.given)


def list_worlds(words: Sequence[str]) -> int:
    from rematch import worlds

    Options(words).only(0, "rematch worlds")
    for name in worlds.names():
        module = worlds.find(name)
        spec = module.make(module.Config(), 1, 0, 0).spec
        print(f"{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
        for role, about in spec.roles.items():
            print(f"  {role}: sees {about.size} numbers, {about.actions.kind} actions {', '.join(about.actions.names)}; "
                  f"scripted: {', '.join(module.BOTS.get(role, ()))}")
    return 0


def list_recipes(words: Sequence[str]) -> int:
    from rematch.api import recipes

    Options(words).only(0, "rematch recipes")
    for name, text in recipes().items():
        head = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
        print(f"{name}: {head[0].removeprefix(name + ': ') if head else ''}")
    return 0


COMMANDS = {
    "train": train, "resume": resume, "status": status, "check": check, "eval": evaluate, "bench": bench,
    "worlds": list_worlds, "recipes": list_recipes,
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("--help", "-h", "help"):
        print(USAGE, end="")
        return 0 if words else 2
    if words[0] == "--version":
        from rematch import __version__

        print(f"rematch {__version__}")
        return 0
    try:
        if words[0] not in COMMANDS:
            near = nearest(words[0], list(COMMANDS))
            raise ConfigError(f"unknown command {words[0]!r}: expected one of {', '.join(COMMANDS)}"
                              + (f"; nearest: {near}" if near else ""))
        if words[0] != "train" and any(word in ("--help", "-h") for word in words[1:]):
            print(USAGE, end="")
            return 0
        return COMMANDS[words[0]](words[1:])
    except ConfigError as error:
        print(f"rematch: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"rematch: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    except MemoryError:
        print("rematch: not enough memory; expected fewer --games or --steps", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rematch: interrupted; the newest checkpoint stands", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
