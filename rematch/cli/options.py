"""A command's own options, read strictly: none unknown, none twice, every number within its bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rematch.cli.command import Command
from rematch.core.config import nearest
from rematch.core.errors import ConfigError
from rematch.verbs.arguments import folder_of, new_folder

__all__ = ["Options", "folder_of", "new_folder"]

MOST_MINUTES = 1e7  # 19 years


class Options:
    """A command's own options, taken out of its words; the rest are names and settings of a run."""

    def __init__(
        self, words: Sequence[str], values: Sequence[str] = (), switches: Sequence[str] = (),
        several: Sequence[str] = (),
    ) -> None:
        self.given: dict[str, str] = {}
        self.many: dict[str, list[str]] = {name: [] for name in several}  # may be given more than once
        self.rest: list[str] = []
        self.known = [*values, *several, *switches]
        todo = list(words)
        while todo:
            word = todo.pop(0)
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name in values or name in several:
                if not equals and not todo:
                    raise ConfigError(f"{name} needs a value")
                self._take(name, value if equals else todo.pop(0))
            elif name in switches and not equals:
                self.given[name] = "yes"
            else:
                self.rest.append(word)

    def _take(self, name: str, value: str) -> None:
        """Store the value of an option: none twice, none empty."""
        if not value and name != "--name":  # its own message says more
            raise ConfigError(f"{name} needs a value")
        if name in self.many:
            self.many[name].append(value)
        elif name in self.given:
            raise ConfigError(f"{name} is given twice: {self.given[name]!r} and {value!r}")
        else:
            self.given[name] = value

    @classmethod
    def of(cls, command: Command, words: Sequence[str]) -> Options:
        """The options of a command, as its description lists them."""
        single = [option for option in command.options if option.value and not option.repeated]
        return cls(words, [option.name for option in single],
                   [option.name for option in command.options if not option.value],
                   [option.name for option in command.options if option.repeated])

    def only(self, positional: int, usage: str) -> list[str]:
        """The positional words, exactly that many; anything else is an error."""
        for word in self.rest:
            if word.startswith("-"):
                near = nearest(word.partition("=")[0], self.known)
                raise ConfigError(f"unknown option {word!r}"
                                  + (f"; nearest: {near}" if near else f"; usage: {usage}"))
        if len(self.rest) != positional or "" in self.rest:
            hint = "" if self.rest or " RUN" not in usage else "; `rematch runs` lists runs"
            words = " ".join(map(repr, self.rest)) or "nothing"
            raise ConfigError(f"expected {usage}, found {words}{hint}")
        return self.rest

    def minutes(self) -> float | None:
        """--max-minutes, None where it is not given."""
        return self.number("--max-minutes", 0.0, MOST_MINUTES) if "--max-minutes" in self.given else None

    def number(self, name: str, above: float, most: float) -> float:
        try:
            value = float(self.given[name])
        except ValueError:
            value = math.nan
        if not above < value <= most:
            raise ConfigError(
                f"{name} = {self.given[name]!r}: expected a number above {above:g}, at most {most:g}")
        return value

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number; 1e3 is one."""
        try:
            value = float(self.given.get(name, default))
        except ValueError:
            value = math.nan
        if not low <= value <= high or value != int(value):
            raise ConfigError(f"{name} = {self.given[name]!r}: expected a whole number from {low} to {high}")
        return int(value)
