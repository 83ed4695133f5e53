"""Finds worlds: every folder here that has a `world.py`, and other people's through entry points.

A world's module offers: `Config` (a frozen dataclass), `make(config, games, first=0) -> World`,
`BOTS` (role -> names of scripted players), `bot(name, role) -> Player`, and where it can `draw` (see
reporting/match_film.py), `short(config) -> config`, the same rules with games that end within a rehearsal,
`RATE_NAMES` (role -> what its win rate is called in logs) and `BUILD` (the digest of its compiled rules).
A world that can be solved offers `solve(config, threads, picture) -> dict` (`rematch solve`), and where
players can be judged exactly `exact(config, players by role, threads) -> dict` with `nash_conv`, empty where
it cannot be; its worlds then have their `config`. `exact_picture`, asked alike, is a PNG of where they lose.
`bench(seconds) -> (plain data, lines)` takes the place of the usual measurements of `rematch bench`.

For people: `play(words)` (`rematch play`; with a parameter `entrant` it is handed entrants.entrant),
`guest(name, config, seconds) -> Player`, a bot of one's own by `module:Class`, `best_known(rival, config)`,
the best response measured, `speed()`, a module with `subjects` and `TARGETS` for `rematch bench`, and
`INDIFFERENT`, settings that may differ from those a policy learnt under, `CHANCE = False` where nothing in it
is random: a greedy player then plays one and the same game. Worlds whose games have points tell
them: `points_after(actions) -> [N, seats]`, not a number where the game goes on.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from rematch.core.config import nearest
from rematch.core.errors import ConfigError


def names() -> list[str]:
    here = Path(__file__).parent
    ours = {folder.parent.name for folder in here.glob("*/world.py")}
    return sorted(ours | {point.name for point in entry_points(group="rematch.worlds")})


def find(name: str) -> ModuleType:
    """The module of the world called `name`; one already in use also while its files are being replaced,
    as by an update during a training."""
    ours = f"{__package__}.{name}.world"
    if name.isidentifier() and (ours in sys.modules or (Path(__file__).parent / name / "world.py").is_file()):
        return importlib.import_module(ours)
    for point in entry_points(group="rematch.worlds"):
        if point.name == name:
            module = point.load()
            assert isinstance(module, ModuleType)
            return module
    near = nearest(name, names())
    raise ConfigError(f"unknown world {name!r}: expected one of {', '.join(names())}"
                      + (f"; nearest: {near}" if near else ""))
