"""Shrinks the settings of a run for `rematch check` and the tests; each component shrinks its own section."""

from __future__ import annotations

from typing import Any

from rematch.core import config as settings
from rematch.core.component import SmallRun, user_errors_named
from rematch.core.run_config import Config
from rematch.training.config import components_of, section
from rematch.training.setup import RunSetup

ITERATIONS = 8
LONG_STEPS = 256  # steps per iteration in worlds that cannot shorten their games: some games must end


def small_run(config: Config) -> SmallRun:
    """The size of the small copy."""
    setup = RunSetup(config)
    games, steps = setup.learner_class.short_steps
    if setup.game.defaults.short is None:
        games, steps = (2 * games, LONG_STEPS // 4) if games < 32 else (games, LONG_STEPS)
    return SmallRun(iterations=ITERATIONS, games=games, steps=steps, setup=setup)


def shrink(config: Config) -> Config:
    """The settings of a short trial: disabled parts stay disabled, enabled ones act in a few iterations."""
    small = small_run(config)
    games, steps = small.games, small.steps
    changes: dict[str, Any] = {
        "games": games, "steps": steps, "total_steps": small.iterations * games * steps,
        "stagger": min(config.stagger, steps), "save_every": 1,
        "start_iteration": min(config.start_iteration, 1),
    }  # fmt: skip
    short = RunSetup(config).game.defaults.short
    if short is not None:
        changes["world"] = short(config.world)
    for kind in components_of(config):
        with user_errors_named(kind.name, "shrink"):
            changes_of_kind = kind.shrink(section(config, kind), small)
        for key, value in changes_of_kind.items():
            full_key = key.removeprefix("run:") if key.startswith("run:") else f"{kind.name}.{key}"
            changes[full_key] = value
    return settings.replace(config, changes)
