"""Options of a command, read strictly: no unknown option, none twice, every number within its bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rematch.cli.command import Command
from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.core.settings import config_values
from rematch.verbs.arguments import folder_of, new_folder

if TYPE_CHECKING:
    from rematch.cluster.request import ClusterRequest
    from rematch.sweeps.run_place import Limits

__all__ = ["Options", "folder_of", "new_folder"]

MOST_MINUTES = 1e7  # 19 years
MOST_ACTORS = 4096


class Options:
    """The options of a command by name; `remaining` holds the other words: names and settings of a run."""

    def __init__(
        self, words: Sequence[str], single: Sequence[str] = (), switches: Sequence[str] = (),
        repeated: Sequence[str] = (),
    ) -> None:
        self.values: dict[str, str] = {}  # a switch has the value "yes"
        self.lists: dict[str, list[str]] = {name: [] for name in repeated}
        self.remaining: list[str] = []
        self.names = [*single, *repeated, *switches]
        unread = list(words)
        while unread:
            word = unread.pop(0)
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name in single or name in repeated:
                if not equals and not unread:
                    raise ConfigError(f"{name} needs a value")
                self._store(name, value if equals else unread.pop(0))
            elif name in switches and not equals:
                self.values[name] = "yes"
            else:
                self.remaining.append(word)

    def _store(self, name: str, value: str) -> None:
        """Store the value of an option; ConfigError for an empty value and for a second one."""
        if not value and name != "--name":  # new_folder reports an empty name in more detail
            raise ConfigError(f"{name} needs a value")
        if name in self.lists:
            self.lists[name].append(value)
        elif name in self.values:
            raise ConfigError(f"{name} is given twice: {self.values[name]!r} and {value!r}")
        else:
            self.values[name] = value

    @classmethod
    def of(cls, command: Command, words: Sequence[str]) -> Options:
        """The options of a command, as its description lists them."""
        single = [option for option in command.options if option.value and not option.repeated]
        return cls(words, [option.name for option in single],
                   [option.name for option in command.options if not option.value],
                   [option.name for option in command.options if option.repeated])

    def positional(self, count: int, usage: str) -> list[str]:
        """The `count` positional words; ConfigError for another number of them or an unknown option."""
        for word in self.remaining:
            if word.startswith("-"):
                near = nearest(word.partition("=")[0], self.names)
                raise ConfigError(f"unknown option {word!r}"
                                  + (f"; nearest: {near}" if near else f"; usage: {usage}"))
        if len(self.remaining) != count or "" in self.remaining:
            hint = "" if self.remaining or " RUN" not in usage else "; `rematch runs` lists runs"
            words = " ".join(map(repr, self.remaining)) or "nothing"
            raise ConfigError(f"expected {usage}, found {words}{hint}")
        return self.remaining

    def minutes(self) -> float | None:
        """--max-minutes; None where it is absent."""
        return self.number("--max-minutes", 0.0, MOST_MINUTES) if "--max-minutes" in self.values else None

    def limits(self) -> Limits:
        """--jobs, --max-minutes and --cluster of a command that trains several runs."""
        from rematch.sweeps.plan import MOST_RUNS
        from rematch.sweeps.run_place import Limits

        jobs = self.integer("--jobs", 1, 1, MOST_RUNS) if "--jobs" in self.values else None
        return Limits(jobs, self.minutes(), self.cluster_address())

    def cluster_address(self) -> str | None:
        """--cluster; None where it is absent."""
        if "--cluster" not in self.values:
            return None
        from rematch.cluster.connection import check_address

        return check_address(self.values["--cluster"])

    def cluster(self) -> ClusterRequest | None:
        """--cluster with --actors; None where it is absent."""
        if "--cluster" not in self.values:
            if "--actors" in self.values:
                raise ConfigError("--actors has no effect without --cluster")
            return None
        from rematch.cluster.request import ClusterRequest

        address = self.cluster_address() or ""
        actors = self.integer("--actors", 1, 1, MOST_ACTORS) if "--actors" in self.values else 0
        return ClusterRequest(address, actors)

    def number(self, name: str, above: float, most: float) -> float:
        """The value of an option as a number above `above`, at most `most`."""
        try:
            value = float(config_values.convert(float, self.values[name], text=True))
        except ValueError:
            value = math.nan
        if not above < value <= most:
            raise ConfigError(
                f"{name} = {self.values[name]!r}: expected a number above {above:g}, at most {most:g}")
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """The value of an option as a whole number from `low` to `high`; 1e3 is accepted."""
        try:
            value = config_values.convert(int, self.values.get(name, default), text=True)
        except (ValueError, OverflowError):
            value = low - 1
        if not low <= value <= high:
            raise ConfigError(f"{name} = {self.values[name]!r}: expected a whole number from {low} to {high}")
        return int(value)
