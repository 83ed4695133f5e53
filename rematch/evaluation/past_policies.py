"""past/: the policies that a run had at some of its iterations, evenly spaced over the whole run.

The payoff matrix and the forgetting curve need them (docs/explanation/strength.md). The iteration alone
decides which are stored: the multiples of a stride, and the last iteration. The stride is a power of two; it
doubles whenever there would be too many. A killed and resumed run therefore ends with the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rematch.agents.build import build_agents
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.world import World
from rematch.storage import policy_files
from rematch.storage.run_folder import PAST_FOLDER

if TYPE_CHECKING:
    from rematch.core.run_config import Config


def stride(iteration: int, most: int) -> int:
    """Iterations between two stored sets of policies: the smallest power of two with at most `most` sets."""
    spacing = 1
    while iteration // spacing > most:
        spacing *= 2
    return spacing


def policy_metadata(config: Config, policy: Policy, iteration: int) -> dict[str, Any]:
    """The metadata in the file of a policy."""
    return {"game": config.game, "role": policy.role.name, "iteration": iteration,
            "step": iteration * config.games * config.steps,
            "columns": list(policy.role.columns), "network": settings.tree(policy.config),
            "learner": config.learner, "world": settings.tree(config.world)}


@dataclass(frozen=True, kw_only=True)
class PastPolicies:
    """The players of a run after an iteration, by role."""

    iteration: int
    step: int
    players: dict[str, Player]


def evenly_spaced(iterations: Sequence[int], most: int) -> list[int]:
    """At most `most` of ascending iterations, evenly spaced, with the first and the newest."""
    if len(iterations) <= most:
        return list(iterations)
    last = len(iterations) - 1
    return [iterations[last - round(i * last / (most - 1))] for i in reversed(range(most))]


def stored_iterations(folder: Path) -> list[int]:
    """The iterations whose policies lie in past/, ascending."""
    names = policy_files.policy_names(folder, PAST_FOLDER)
    return sorted(int(name) for name in names if name.isdecimal())


def load_iteration(
    folder: Path, config: Config, make: Callable[[int, int, int], World], iteration: int
) -> PastPolicies:
    """The policies of one iteration in past/; ConfigError where they are missing or damaged."""
    agents = build_agents(config, make(1, 0, 0).spec, make)
    arrays, _ = policy_files.read(folder / PAST_FOLDER / f"{iteration:08d}.safetensors")
    for name, policy in agents.networks.items():
        prefix = f"{name}/"
        policy.load_arrays({key.removeprefix(prefix): array for key, array in arrays.items()
                            if key.startswith(prefix)})
    step = iteration * config.games * config.steps
    return PastPolicies(iteration=iteration, step=step, players=agents.players)


def load_past_policies(
    folder: Path, config: Config, make: Callable[[int, int, int], World], until: int, most: int
) -> tuple[list[PastPolicies], list[str]]:
    """At most `most` sets of policies up to iteration `until`, oldest first; a line for each damaged file."""
    stored = [i for i in stored_iterations(folder) if 0 < i <= until]
    past, problems = [], []
    for iteration in evenly_spaced(stored, most):
        try:
            past.append(load_iteration(folder, config, make, iteration))
        except ConfigError as error:
            problems.append(str(error))
    return past, problems
