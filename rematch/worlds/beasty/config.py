"""The settings of Beasty Bar, and the names of its animals and actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rematch.core.config import knob
from rematch.core.errors import ConfigError
from rematch.core.native_build import refuse_stale

from . import native

SPECIES = ("skunk", "parrot", "kangaroo", "monkey", "chameleon", "seal", "zebra", "giraffe", "snake",
           "crocodile", "hippo", "lion")  # fmt: skip
STRENGTH = {name: strength for strength, name in enumerate(SPECIES, 1)}
POINTS = dict(zip(SPECIES, (4, 4, 4, 3, 3, 2, 4, 3, 2, 3, 2, 2)))
RECURRING = ("giraffe", "crocodile", "hippo")
PLAIN = tuple(  # species without a choice
    name for name in SPECIES if name not in ("parrot", "kangaroo", "chameleon")
)
SCORINGS = ("points", "count")  # in the order of the enum in rules.h


@dataclass(frozen=True)
class Act:
    """An action: the card played, the species whose effect it has (or none), and a choice.

    The choice is the number of animals that a kangaroo hops over, or the place of a parrot's target.
    """

    card: str
    effect: str = ""
    choice: int = 0

    def __str__(self) -> str:
        copied = f" as {self.effect}" if self.card == "chameleon" and self.effect else ""
        choice = {"kangaroo": f" over {self.choice}", "parrot": f" at {self.choice}"}.get(self.effect, "")
        return self.card + copied + choice


# The 33 actions, in the order of their ids in rules.h.
ACTS = (
    *(Act(name, name) for name in PLAIN),
    *(Act("kangaroo", "kangaroo", over) for over in range(3)),
    Act("parrot"), *(Act("parrot", "parrot", place) for place in range(4)),
    Act("chameleon"), *(Act("chameleon", name) for name in PLAIN),
    *(Act("chameleon", "kangaroo", over) for over in (1, 2)),
    *(Act("chameleon", "parrot", place) for place in range(4)),
)  # fmt: skip
ACTIONS = tuple(str(act) for act in ACTS)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The rules of Beasty Bar."""

    players: int = knob(2, "number of players", unit="players", low=2, high=4)
    scoring: str = knob(
        "points", "winner of a game; points: most points in the bar; count: most animals in the bar, then "
        "most points", choices=SCORINGS,
    )  # fmt: skip
    earlier_rules: bool = knob(
        False, "rules of the earlier project's engine where they differ: order of recurring actions, and "
        "legality of actions without effect",
    )  # fmt: skip
    first: int = knob(0, "player with the first turn; -1: drawn at random in every game", low=-1, high=3)

    def check(self) -> None:
        if self.first >= self.players:
            raise ConfigError(f"first = {self.first}: expected less than players = {self.players}, or -1")
        if self.earlier_rules and (self.players, self.first, self.scoring) != (2, 0, "points"):
            raise ConfigError(
                "earlier_rules = true: expected players = 2, first = 0, scoring = points, as its engine "
                f"has them; found {self.players}, {self.first} and {self.scoring}"
            )

    def values(self) -> dict[str, int]:
        """The members of `Rules` in rules.h."""
        return {
            "players": self.players,
            "scoring": SCORINGS.index(self.scoring),
            "earlier_rules": int(self.earlier_rules),
            "first": self.first,
        }


def compare_with_struct(struct: Mapping[str, str]) -> None:
    """ImportError where Config and the struct in rules.h differ in a name or type."""
    c_types = {"int": "int32_t", "str": "int32_t", "bool": "rm_flag"}
    fields = {field.name: c_types[str(field.type)] for field in dataclasses.fields(Config)}
    for name in sorted(fields.keys() | struct.keys()):
        if fields.get(name) != struct.get(name):
            raise ImportError(
                f"beasty: setting {name} is {fields.get(name, 'absent')} in config.py and "
                f"{struct.get(name, 'absent')} in rules.h"
            )
    if len(ACTS) != native.ACTIONS:
        raise ImportError(f"beasty: {len(ACTS)} actions; expected {native.ACTIONS}, as in rules.h")


refuse_stale(native.__name__, native.BUILD, Path(__file__).with_name("native.pyx"))
compare_with_struct(native.RULES)
