"""Values of settings: conversion from text and YAML, type and range checks, the expected value in words."""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rematch.core.settings.setting_names import known_name

TRUE_WORDS, FALSE_WORDS = ("true", "yes", "1", "on"), ("false", "no", "0", "off")
# digits of ASCII, with an underscore between two of them at most
NUMBER = re.compile(r"\s*[+-]?(\d+_)*\d*\.?(\d+_)*\d*([eE][+-]?\d+)?\s*", re.ASCII)
SETTING_TYPES = (int, float, bool, str)  # and tuples of one of them
Metadata = Mapping[str, Any]  # of a dataclass field that `knob` made


def convert(kind: Any, value: Any, text: bool) -> Any:
    """`value` as a setting of type `kind`, or ValueError. With `text` it is a string of a command line."""
    if typing.get_origin(kind) is tuple:
        item_kind = typing.get_args(kind)[0]
        return tuple(convert(item_kind, item, text) for item in _items(value, text))
    if kind is bool:
        return _convert_bool(value, text)
    if kind is str:
        if not isinstance(value, str):
            raise ValueError
        return value
    if isinstance(value, bool) or (isinstance(value, str) and not NUMBER.fullmatch(value)):
        raise ValueError
    if kind is int:
        return _convert_int(value)
    if kind is float:
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
        return number
    raise TypeError(f"no reader for settings of type {kind}")


def _items(value: Any, text: bool) -> list[Any]:
    """The items of a list; on a command line they are separated by commas, with or without brackets."""
    if text:
        words = value.replace("[", "").replace("]", "").split(",")
        return [word.strip() for word in words if word.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError
    return list(value)


def _convert_bool(value: Any, text: bool) -> bool:
    if text and value.lower() in TRUE_WORDS + FALSE_WORDS:
        return value.lower() in TRUE_WORDS
    if text or not isinstance(value, bool):
        raise ValueError
    return value


def _convert_int(value: Any) -> int:
    if isinstance(value, str):  # from a command line; and YAML reads 1e6 as text
        value = float(value) if any(c in value for c in ".eE") else int(value)
    if int(value) != value or abs(value) >= 2**63 or (value == 0 and math.copysign(1, value) < 0):
        raise ValueError
    return int(value)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """`value` with `change` applied to it, or to each of its items, where it is text."""
    if isinstance(value, tuple):
        return tuple(map_texts(item, change) for item in value)
    return change(value) if isinstance(value, str) else value


def match_choices(value: Any, choices: Sequence[str]) -> Any:
    """`value`, with each text spelled as the choice that differs from it in upper and lower case only."""
    return map_texts(value, lambda word: known_name(word, choices))


def has_type(kind: Any, value: Any) -> bool:
    """Whether a value from Python code has its field's type; an int is accepted as a float."""
    if typing.get_origin(kind) is tuple:
        item_kind = typing.get_args(kind)[0]
        return isinstance(value, tuple) and all(has_type(item_kind, item) for item in value)
    if isinstance(value, bool):
        return kind not in (int, float, str)
    return kind not in (int, float, bool, str) or isinstance(value, int | float if kind is float else kind)


def is_setting_type(kind: Any) -> bool:
    """Whether a field of this type can be read from a flag and from YAML."""
    if typing.get_origin(kind) is tuple:
        items = typing.get_args(kind)
        return len(items) == 2 and items[1] is ... and items[0] in SETTING_TYPES
    return kind in SETTING_TYPES


def in_range(value: Any, metadata: Metadata) -> bool:
    """Whether each number is finite and within `low` and `high`, and each text one of `choices`."""
    low, high, choices = metadata.get("low"), metadata.get("high"), metadata.get("choices")
    for item in value if isinstance(value, tuple) else (value,):
        if choices and item not in choices:
            return False
        if isinstance(item, float) and not math.isfinite(item):
            return False
        if isinstance(item, int | float) and not isinstance(item, bool):
            if (low is not None and item < low) or (high is not None and item > high):
                return False
    return True


def expected_value(kind: Any, metadata: Metadata) -> str:
    """The values that a setting accepts, in words: "a whole number of at least 2"."""
    is_list, item_kinds = typing.get_origin(kind) is tuple, typing.get_args(kind)
    if metadata.get("choices"):
        text = "one of " + ", ".join(metadata["choices"])
        return f"a list: {text}" if is_list else text
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    text = f"a list, each {names[item_kinds[0]]}" if is_list else names[kind]
    low, high = metadata.get("low"), metadata.get("high")
    if low is not None and high is not None:
        return f"{text} from {low} to {high}"
    if low is not None:
        return f"{text} of at least {low}"
    return text if high is None else f"{text} of at most {high}"


def short_repr(value: Any) -> str:
    """`repr` in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
