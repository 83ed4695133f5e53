"""The conformance test that every world passes; public, so that your own world can be tested too.

    from rematch.worlds import conformance
    print(conformance.check_game(GAME))

`CHECKS` lists the checks, each a function that gets the world under test: what can be read after a step
(shape_checks.py), what games come to (result_checks.py), then time, chance and hidden state
(determinism_checks.py); bots and subjects follow (player_checks.py). The first check that fails raises
`BrokenPromise`: one line with check, array, game and step. Checks that a world cannot pass by its
`Spec.resume` are skipped, and the report says so. `check_quickly` runs those that take a fraction of a
second: every training of a user's game starts with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rematch.core.errors import ConfigError, UserCodeError
from rematch.core.player import Player
from rematch.core.system import user_code
from rematch.worlds import registry
from rematch.worlds.conformance import determinism_checks, result_checks, shape_checks
from rematch.worlds.conformance.playback import BrokenPromise, Make, Trial, WorldUnderTest
from rematch.worlds.conformance.player_checks import Subject, check_bots, check_subjects
from rematch.worlds.conformance.shape_checks import ENDS
from rematch.worlds.game import Game

__all__ = ["CHECKS", "BrokenPromise", "Report", "Subject", "Trial", "check", "check_game",
           "check_quickly", "check_user_game"]


@dataclass(frozen=True)
class Check:
    """One check, and the ways of resuming (Spec.resume) with which a world can pass it.

    A `quick` one finds what would end or spoil a training, and runs before it.
    """

    name: str
    run: Callable[[WorldUnderTest], None]
    resume: tuple[Literal["state", "replay", "episode"], ...] = ("state", "replay", "episode")
    quick: bool = False


REPEATABLE: Any = ("state", "replay")  # worlds whose games can be brought back
CHECKS = (
    Check("spec", shape_checks.check_spec, quick=True),
    Check("shapes", shape_checks.check_shapes, quick=True),
    Check("borrowed arrays", shape_checks.check_borrowed_arrays, quick=True),
    Check("values", shape_checks.check_values, quick=True),
    Check("results", result_checks.check_results, quick=True),
    Check("turns", result_checks.check_turns, ("state",), quick=True),
    Check("observe", determinism_checks.check_observe),
    Check("determinism", determinism_checks.check_determinism, REPEATABLE, quick=True),
    Check("actions", determinism_checks.check_actions, REPEATABLE, quick=True),
    Check("parts", determinism_checks.check_parts, REPEATABLE, quick=True),
    Check("batch size", determinism_checks.check_batch_size, REPEATABLE),
    Check("restart", determinism_checks.check_restart, REPEATABLE),
    Check("save and load", determinism_checks.check_save_and_load, REPEATABLE, quick=True),
    Check("invalid states", determinism_checks.check_invalid_states, REPEATABLE),
    # A replay (seed and actions) brings back this game, but no other that a seat cannot tell from it.
    Check("resample", determinism_checks.check_resample, ("state",)),
)


@dataclass
class Report:
    """What was checked and what was not."""

    world: str
    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        skipped = "".join(f"\n  not checked: {why}" for why in self.skipped)
        return f"{self.world} passes {len(self.passed)} checks: {', '.join(self.passed)}{skipped}"


def check(
    make: Make,
    config: Any,
    *,
    bots: Mapping[str, Sequence[Player]] | None = None,
    moves: Sequence[Subject] = (),
    trial: Trial | None = None,
) -> Report:
    """Run all checks on a world; the first that fails raises BrokenPromise.

    bots: role -> players that must act legally. moves: subjects that must show in their fields.
    """
    test = WorldUnderTest(make, config, trial or Trial())
    run_checks(test, CHECKS)
    check_bots(test, bots or {})
    check_subjects(test, moves)
    return Report(test.spec.world, test.passed, test.skipped)


def run_checks(test: WorldUnderTest, checks: Iterable[Check]) -> None:
    for entry in checks:
        if test.spec.resume in entry.resume:
            test.start(entry.name)
            entry.run(test)
            test.passed.append(entry.name)
        else:
            test.skipped.append(f"{entry.name} (the world resumes by {test.spec.resume})")


def check_game(
    game: Game, config: Any = None, *, moves: Sequence[Subject] = (), trial: Trial | None = None
) -> Report:
    """`check` with a game's own worlds, settings and bots."""
    config = game.Config() if config is None else config
    trial = trial or Trial()
    trial = replace(trial, rare_results=trial.rare_results or game.defaults.rare_results)
    return check(game.make, config, bots=all_bots(game), moves=moves, trial=trial)


def all_bots(game: Game) -> dict[str, list[Player]]:
    return {role: [game.bot(name, role) for name in names] for role, names in game.bots.items()}


QUICK = Trial(games=4, steps=8, bound=1000, chance=None, seconds=0.3)


def check_quickly(game: Game, config: Any) -> Report:
    """The quick checks of a game and of its bots; the first that fails raises BrokenPromise."""
    test = WorldUnderTest(game.make, config, replace(QUICK, rare_results=game.defaults.rare_results))
    run_checks(test, [entry for entry in CHECKS if entry.quick])
    check_bots(test, all_bots(game))
    return Report(test.spec.world, test.passed, test.skipped)


def check_user_game(name: str, config: Any) -> list[str]:
    """`check_quickly` of a game that does not come with Rematch; notes for the user."""
    if not registry.is_user_game(name):
        return []
    try:
        report = check_quickly(registry.find(name), config)
    except (ConfigError, OSError, MemoryError):
        raise
    except Exception as error:  # in its own code, or in ours that its values have misled
        raise UserCodeError(f"{registry.title(name)}: {user_code.described(error)}") from error
    return [f"Not checked: {line}" for line in report.skipped if line.startswith(ENDS)]
