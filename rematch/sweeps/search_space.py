"""The settings that a search varies: ranges and lists of values, as --over gives them.

    ppo.lr=1e-4..1e-2:log       a range, sampled on a logarithmic scale
    ppo.epochs=1..8             whole numbers, because the setting is one
    ppo.minibatch_size=512,2048 a list of values; a value that is a list stands in brackets
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.core.settings import config_values

EXPECTED = "expected KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A,B,C"
NUMBER = r"[+-]?[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One varied setting: a range of numbers, or a list of texts as on a command line."""

    key: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[str, ...] = ()

    def suggest(self, trial: Any) -> str:
        """The value that Optuna suggests, as a text for a flag."""
        if self.choices:
            return str(trial.suggest_categorical(self.key, list(self.choices)))
        if self.whole:
            return str(trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log))
        return repr(float(trial.suggest_float(self.key, self.low, self.high, log=self.log)))

    def ends(self) -> list[str]:
        """Values that must be valid: both ends of a range, all values of a list."""
        if self.choices:
            return list(self.choices)
        kind = int if self.whole else float
        return [str(kind(self.low)), str(kind(self.high))]


def read_space(texts: Sequence[str], config: Config) -> list[Parameter]:
    """The varied settings of --over; ConfigError for an unknown key, a wrong range, a repetition."""
    if not texts:
        raise ConfigError(f"--over is missing: {EXPECTED}")
    parameters = [_read(text, config) for text in texts]
    keys = [parameter.key for parameter in parameters]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice:
        raise ConfigError(f"--over {twice} is given twice; expected each setting once")
    return parameters


def _read(text: str, config: Config) -> Parameter:
    name, equals, value = text.partition("=")
    key = name.strip().removeprefix("--").replace("-", "_")
    if not equals or not key or not value.strip():
        raise ConfigError(f"--over = {text!r}: {EXPECTED}")
    if key == "seed":
        raise ConfigError(f"--over = {text!r}: a seed is not searched; expected --seeds and another key")
    known = {each: current for each, _, current in settings.leaves(config)}
    if key not in known:
        near = settings.nearest(key, list(known))
        hint = f"; nearest: {near}" if near else ""
        raise ConfigError(f"--over = {text!r}: unknown setting {key}{hint}")
    match = RANGE.fullmatch(value.strip())
    if not match:
        if ".." in value:
            raise ConfigError(f"--over = {text!r}: {EXPECTED}")
        choices = tuple(choice.strip() for choice in re.split(r",(?![^\[]*\])", value))
        if len(choices) < 2 or not all(choices) or len(set(choices)) < len(choices):
            raise ConfigError(f"--over = {text!r}: expected two or more different values")
        return Parameter(key=key, choices=choices)
    return _range(text, key, match, known[key])


def _range(text: str, key: str, match: re.Match[str], current: Any) -> Parameter:
    if isinstance(current, bool) or not isinstance(current, int | float):
        raise ConfigError(f"--over = {text!r}: {key} is not a number; expected a list of values")
    whole = isinstance(current, int)
    try:
        low, high = (float(config_values.convert(type(current), match[i], text=True)) for i in (1, 2))
    except (ValueError, OverflowError):
        raise ConfigError(f"--over = {text!r}: {key} is a whole number") from None
    if not low < high or (match[3] and low <= 0):
        kind = "0 < LOW < HIGH" if match[3] else "LOW < HIGH"
        raise ConfigError(f"--over = {text!r}: expected {kind}")
    return Parameter(key=key, low=low, high=high, log=bool(match[3]), whole=whole)


def flags(values: Mapping[str, str]) -> list[str]:
    return [f"--{key}={value}" for key, value in values.items()]
