"""What our worlds hold, for the contract: each thing, the columns that claim to show it, how it is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rematch.worlds import registry
from rematch.worlds.conformance import Subject, Trial

Change = Callable[[Any], Any]


def changes(dtype: Any) -> Callable[[str, int, Change], Change]:
    """Ways of changing one number of a saved game by its name."""

    def change(name: str, index: int, to: Change) -> Change:
        def apply(states: Any) -> Any:
            column = states.view(dtype)[name].reshape(len(states), -1)
            column[:, index] = to(column[:, index])
            return states

        return apply

    return change


def halve(x: Any) -> Any:
    return x / 2


def pursuit_subjects() -> list[Subject]:
    """Each thing in an arena, the columns that claim to show it to either robot, and how it is moved."""
    change = changes(pytest.importorskip("rematch.worlds.pursuit.native").GAME_TYPE)

    def away(value: Any) -> Any:
        return np.where(value < 0.5, 0.75, 0.25)

    shown = {"x": halve, "y": halve, "theta": halve, "v": away, "omega": away}
    words = {"x": "x", "y": "y", "theta": "heading", "v": "speed", "omega": "turn"}
    bearings = ("obstacle_1_bearing", "obstacle_2_bearing")
    out = []
    for seat, role in enumerate(("pursuer", "evader")):
        for name, to in shown.items():
            for subject in (0, 1):
                column = ("own_" if subject == seat else "other_") + words[name]
                out.append((f"{name} of seat {subject}", role, (column,), change(name, subject, to)))
        for obstacle in (0, 1):
            for axis in ("x", "y"):
                to = change(f"obstacle_{axis}", obstacle, halve)
                out.append((f"obstacle {obstacle} {axis}", role, bearings, to))
        out.append(("step", role, ("time_to_go",), change("step", 0, lambda x: x + 1)))
        out.append(("slot", role, (), change("slot", 0, lambda x: x + 1)))
        out.append(("seed", role, (), change("seed", 0, lambda x: x + 1)))
    return [Subject(name=name, role=role, field="state" if columns else "", columns=columns, change=to)
            for name, role, columns, to in out]  # fmt: skip


def lattice_subjects() -> list[Subject]:
    """Robots' cells and headings, the clock, and what nobody sees.

    No symmetry of the square makes up for a heading turned by one or, on the odd board, a cell moved by one.
    """
    change = changes(pytest.importorskip("rematch.worlds.lattice.native").GAME_TYPE)

    def turned(state: Any) -> Any:
        return state // 8 * 8 + (state + 1) % 8

    def privileged(state: Any) -> Any:
        return state + np.where(state // 8 % 9 < 8, 8, -8)

    out: list[tuple[str, str, tuple[str, ...], Change]] = []
    for seat, role in enumerate(("pursuer", "evader")):
        for subject in (0, 1):
            own = "own" if subject == seat else "other"
            for column in (own, f"apart_{own}"):
                out.append((f"heading of seat {subject}", role, (column,), change("robot", subject, turned)))
            for column in (own, "apart_own", "apart_other"):
                out.append((f"cell of seat {subject}", role, (column,), change("robot", subject, privileged)))
        out.append(("moves left", role, ("to_go",), change("moves_left", 0, lambda x: x - 1)))
        for hidden in ("slot", "seed"):
            out.append((hidden, role, (), change(hidden, 0, lambda x: x + 1)))
    return [Subject(name=name, role=role, field="state" if columns else "", columns=columns, change=to)
            for name, role, columns, to in out]  # fmt: skip


IN = {"pursuit": pursuit_subjects, "lattice": lattice_subjects}

# world -> a library without which it cannot be made
NEEDS = {"openspiel": "pyspiel", "gameboy": "pyboy", "pettingzoo": "pygame"}


def game(name: str) -> Any:
    """A game; skips the test where its library is missing."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    return registry.find(name)


# A step of an emulator takes half a millisecond, a state of it twenty: short games, few of them.
SETTINGS: dict[str, dict[str, Any]] = {"gameboy": {"cartridge": "tiny", "max_steps": 6}}
FIXED = ("memory of the cartridge beyond these fields", "the screen's other pixels")
EMULATED = Trial(games=2, steps=5, bound=9, chance=False, fixed=FIXED)
