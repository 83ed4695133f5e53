"""The commands: one file each in cli/commands. Names are case-insensitive; wrong ones get a suggestion."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from rematch.cli import commands
from rematch.cli.command import Command
from rematch.core.config import known_name, nearest
from rematch.core.errors import ConfigError

GROUPS = {  # group -> what its commands are for, in the order of the overview
    "train": "train agents",
    "runs": "inspect runs",
    "strength": "measure strength",
    "games": "play and explore",
    "tools": "speed and shell",
}
SYNONYMS = {  # command, in the order of the overview -> words that other tools use for it
    "train": ("start", "run", "learn", "fit", "new", "begin"),
    "resume": ("continue", "restart", "go", "proceed"),
    "fork": ("branch", "clone", "copy", "split"),
    "sweep": ("grid", "seeds"),
    "search": ("tune", "optuna", "hyperparameters", "optimize", "hpo"),
    "check": ("test", "rehearse", "validate", "dry-run", "dryrun", "preflight"),
    "notify": ("alert", "webhook", "ntfy", "message", "messages", "notification"),
    "runs": ("list", "ls", "experiments"),
    "status": ("info", "show", "progress", "state", "ps", "top"),
    "serve": ("web", "browser", "dashboard", "ui", "page", "live", "server", "http"),
    "report": ("html", "plot", "plots", "summary", "diagnose", "diagnosis", "verdict"),
    "diff": ("difference", "differences", "contrast"),
    "rewind": ("rerun", "retrace", "back"),
    "film": ("watch", "video", "gif", "mp4", "render", "movie"),
    "replay": ("record", "recording", "recorded", "demo"),
    "export": ("save", "onnx", "convert", "deploy"),
    "curves": ("tensorboard", "wandb", "logs", "scalars", "metrics", "tb", "export-logs"),
    "eval": ("evaluate", "evaluation", "match", "versus", "vs", "compare"),
    "tournament": ("elo", "ranking", "league", "rating", "round-robin"),
    "verify": ("proof", "prove", "claims", "audit", "card"),
    "exploit": ("exploitability", "attack", "best-response", "exploiter"),
    "calibrate": ("balance", "even", "fair", "handicap", "bisect"),
    "solve": ("nash", "exact", "solution"),
    "play": ("watch", "human"),
    "worlds": ("games", "envs", "environments", "env"),
    "recipes": ("configs", "presets", "config", "settings"),
    "bench": ("benchmark", "speed", "perf", "profile", "fps"),
    "cluster": ("ray", "nodes", "machines", "distributed"),
    "completion": ("autocomplete", "completions", "shell"),
}


def names() -> list[str]:
    """The names of all commands, those for programs included."""
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))


def command(name: str) -> Command:
    """The command of this name."""
    module = importlib.import_module(f"{commands.__name__}.{name}")
    description: Command = module.COMMAND
    return description


@functools.cache
def listed() -> list[Command]:
    """The commands for people, in the order of the overview."""
    groups, order = list(GROUPS), {name: index for index, name in enumerate(SYNONYMS)}
    shown = [each for each in map(command, names()) if not each.hidden]
    return sorted(shown, key=lambda each: (groups.index(each.group), order.get(each.name, len(order))))


def find(word: str) -> Command:
    """The command that a user typed."""
    name = known_name(word, names())
    if name in names():
        return command(name)
    expected = [each.name for each in listed()]
    same = [each for each, others in SYNONYMS.items() if word.lower().replace("_", "-") in others]
    near = ", ".join(same) or nearest(word.lower(), expected)
    raise ConfigError(f"unknown command {word!r}: expected one of {', '.join(expected)}"
                      + (f"; nearest: {near}" if near else ""))
