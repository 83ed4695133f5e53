"""past/: what a run's players were at some of its iterations, spread evenly over the whole run.

A payoff matrix and a forgetting curve need them (docs/strength.md). Who stays follows from the iteration
alone: the multiples of a stride, a power of two that doubles whenever there would be too many, and the run's
last. So a killed and resumed run ends with the very same files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rematch.agents.build import build
from rematch.agents.policy import Policy
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.player import Player
from rematch.core.world import World
from rematch.storage import policy_files
from rematch.storage.run_folder import PAST_FOLDER, Run

if TYPE_CHECKING:
    from rematch.training.trainer import Config, Session


def stride(iteration: int, most: int) -> int:
    """Iterations between two selves that stay: the least power of two that leaves at most `most`."""
    apart = 1
    while iteration // apart > most:
        apart *= 2
    return apart


def card(config: Config, policy: Policy, iteration: int) -> dict[str, Any]:
    """What a policy's file says about it."""
    return {"game": config.game, "role": policy.role.name, "iteration": iteration,
            "step": iteration * config.games * config.steps,
            "columns": list(policy.role.columns), "network": settings.tree(policy.config),
            "learner": config.learner, "world": settings.tree(config.world)}


def keep(session: Session, run: Run) -> None:
    """Put the players as they are now into past/, if it is their turn, and thin out.

    Alone at the table nobody would ever meet them: then none are kept.
    """
    most, iteration = session.config.evaluation.past, session.iteration
    if not most or session.spec.seats == 1:
        return
    apart = stride(iteration, most)
    if iteration % apart and not session.done:
        return
    networks = session.minds.networks
    arrays = {f"{name}/{key}": array for name, policy in networks.items()
              for key, array in policy.arrays().items()}
    about = {name: card(session.config, policy, iteration) for name, policy in networks.items()}
    run.write_past_policy(iteration, arrays, about, [*range(apart, iteration, apart), iteration])


@dataclass(frozen=True, kw_only=True)
class Self:
    """The players of a run as they were after some iteration."""

    iteration: int
    step: int
    players: dict[str, Player]


def chosen(iterations: Sequence[int], most: int) -> list[int]:
    """At most `most` of ascending iterations, evenly spread, the newest among them."""
    if len(iterations) <= most:
        return list(iterations)
    last = len(iterations) - 1
    return [iterations[last - round(i * last / (most - 1))] for i in reversed(range(most))]


def selves(
    folder: Path, config: Config, make: Callable[[int, int, int], World], until: int, most: int
) -> tuple[list[Self], list[str]]:
    """At most `most` selves up to iteration `until`, oldest first; a line for each that does not verify."""
    names = [name for name in policy_files.policy_names(folder, PAST_FOLDER) if name.isdecimal()]
    there = chosen(sorted(i for i in map(int, names) if 0 < i <= until), most)
    found, problems = [], []
    spec = make(1, 0, 0).spec
    for iteration in there:
        minds = build(config, spec, make)
        try:
            arrays, _ = policy_files.read(folder / PAST_FOLDER / f"{iteration:08d}.safetensors")
            for name, policy in minds.networks.items():
                head = f"{name}/"
                policy.load_arrays({key.removeprefix(head): array for key, array in arrays.items()
                                    if key.startswith(head)})
        except ConfigError as why:
            problems.append(str(why))
            continue
        step = iteration * config.games * config.steps
        found.append(Self(iteration=iteration, step=step, players=minds.players))
    return found, problems
