"""Settings of a run that belong to no component; training/config.py adds a section per component."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rematch.core.config import knob

LEARNERS = ("ppo", "lookahead", "expert", "dqn")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run. `world` has the settings of the chosen world, each other section those of a component."""

    game: str = knob("pursuit", "world to train on; `rematch worlds` lists them")
    seed: int = knob(0, "seed of all random numbers of the run", low=0, high=2**32 - 1)
    threads: int = knob(
        2, "CPU threads; results do not depend on their number", unit="threads", low=1, high=64
    )
    games: int = knob(2048, "parallel games (environments)", unit="games", low=1, high=2**22)
    steps: int = knob(
        32, "steps of each game per iteration (rollout length)", unit="steps", low=1, high=2**20
    )
    total_steps: int = knob(
        10_000_000, "steps after which the run ends, all games together", unit="steps", low=1
    )
    lag: int = knob(
        0, "rollouts that are played ahead of the learner; 1: other threads play the next rollout while the "
        "learners learn, so its policies are one update older (PPO's ratio uses the probabilities with which "
        "they chose the actions); results do not depend on timing",
        unit="rollouts", low=0, high=1,
    )  # fmt: skip
    stagger: int = knob(
        0, "the first episodes start at different steps, spread over this number, so that they end at "
        "different times; 0: all start at once", unit="steps", low=0, high=2**20,
    )  # fmt: skip
    start_iteration: int = knob(
        0, "number of the first iteration of a run that continues from a policy (--from); annealing covers "
        "the iterations that remain", unit="iterations", low=0,
    )  # fmt: skip
    save_every: int = knob(
        20, "iterations between checkpoints; one follows every evaluation too", unit="iterations", low=1
    )
    save_seconds: float = knob(
        60.0, "time after which a checkpoint is saved between two regular ones; it is deleted when the next "
        "one is saved, so the files of a complete run do not depend on it; 0: off", unit="seconds", low=0,
    )  # fmt: skip
    device: str = knob(
        "cpu", "device of the training games and of their learners; cpu: the processor; cuda: the NVIDIA GPU "
        "(ppo and expert, in worlds with CUDA rules); auto: the GPU where it can be used, else the processor",
        choices=("cpu", "cuda", "auto"),
    )  # fmt: skip
    learner: str = knob(
        "ppo", "learning algorithm; ppo: proximal policy optimization; lookahead: one-step planning with a "
        "value network; expert: expert iteration; dqn: recurrent Q-learning", choices=LEARNERS,
    )  # fmt: skip
    components: tuple[str, ...] = knob(
        (), "user-defined components: module:Class, file.py:Class or the name of an entry point"
    )
    reward_terms: tuple[str, ...] = knob(
        (), "user-defined reward terms: module:Class, file.py:Class or the name of an entry point"
    )
    world: Any = field(default=None)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Sections of components, which are added at run time."""

    @property
    def iterations(self) -> int:
        """The largest number of iterations; phases and levels may end a run earlier."""
        raise NotImplementedError
