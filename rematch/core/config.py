"""Settings: frozen dataclasses in; flags, YAML, help texts and error messages out.

A knob is one field, declared beside the code that reads it:

    @dataclass(frozen=True, kw_only=True)
    class PpoConfig:
        clip: float = knob(0.2, "distance of the ratio from 1 at which its gradient stops", low=0.0)

Flag, help text, YAML key, range check and the knob tests are derived from that line. Recipes, `--config`
files, flags, Python changes and stored runs pass one strict reader, `apply`, and get the same errors.
Values: config_values.py. Old names of settings: setting_names.py.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.settings import config_values, setting_names, strict_yaml
from rematch.core.settings.config_values import expected_value, has_type, in_range, short_repr
from rematch.core.settings.setting_names import RENAMED as RENAMED
from rematch.core.settings.setting_names import RENAMED_VALUES as RENAMED_VALUES
from rematch.core.settings.setting_names import SYNONYMS as SYNONYMS
from rematch.core.settings.setting_names import known_name as known_name
from rematch.core.settings.setting_names import nearest as nearest

C = TypeVar("C")
MAX_CHARACTERS = 1 << 15  # of a settings file: reading this much YAML takes up to a second


def knob(
    default: Any,
    help: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    needs: str = "",
) -> Any:
    """A field of a config: default, help text, unit, range, and the condition under which it has an effect.

    `unit` is shown after the value in help texts. `needs` names a sibling and, after "=", the values
    (separated by "|") under which this knob has an effect; without "=" the sibling must be non-zero.
    """
    metadata = {"help": help, "unit": unit, "low": low, "high": high, "choices": choices, "needs": needs}
    return dataclasses.field(default=default, metadata=metadata)


def part(kind: type[Any], needs: str = "") -> Any:
    """A field that holds another config; `needs` as in `knob`, for every knob in it."""
    return dataclasses.field(default_factory=kind, metadata={"needs": needs})


# --- walking through a config -------------------------------------------------------------------


def leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Every (dotted key, field, value) of a config, depth first, in declaration order."""
    config = untracked(config)
    for field in fields_of(config):
        value = getattr(config, field.name)
        key = prefix + field.name
        if is_config(value):
            yield from leaves(value, key + ".")
        else:
            yield key, field, value


def fields_of(config: Any) -> tuple[dataclasses.Field[Any], ...]:
    kind: Any = type(config)
    return _fields(kind)


@functools.cache  # a run reads the fields of its settings thousands of times
def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


def is_config(value: Any) -> bool:
    """Whether a value holds settings: as dataclasses.is_dataclass, for a value that is no class."""
    return hasattr(value, "__dataclass_fields__")


def get(config: Any, key: str) -> Any:
    """The value of a dotted key."""
    for name in key.split("."):
        config = getattr(config, name)
    return config


def class_problem(kind: Any) -> str:
    """Why a class of the user cannot hold settings; empty if it can."""
    is_dataclass = dataclasses.is_dataclass(kind)
    if not (is_dataclass and vars(kind)["__dataclass_params__"].frozen):
        return "Config is not a frozen dataclass; expected @dataclass(frozen=True, kw_only=True)"
    try:
        types = _hints(kind)
    except NameError as error:
        return f"a type of Config is not known: {error}"
    for field in dataclasses.fields(kind):
        if not config_values.is_setting_type(types[field.name]):
            return (f"the type of Config.{field.name} is {field.type}; expected int, float, bool, str or a "
                    "tuple such as tuple[int, ...]")
        if field.default is dataclasses.MISSING:
            return f"Config.{field.name} has no default; expected {field.name} = knob(VALUE, HELP)"
    return ""


def replace(config: C, changes: Mapping[str, Any]) -> C:
    """The config with some dotted keys changed; values must have their final type and are validated."""
    changed = _replace(config, changes)
    validate(changed)
    return changed


def _replace(config: C, changes: Mapping[str, Any]) -> C:
    fields: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        name, _, inner_key = key.partition(".")
        if inner_key:
            nested.setdefault(name, {})[inner_key] = value
        else:
            fields[name] = value
    for name, inner in nested.items():
        fields[name] = _replace(getattr(config, name), inner)
    return dataclasses.replace(config, **fields)  # type: ignore[type-var]


def tree(config: Any) -> dict[str, Any]:
    """The config as nested plain values, ready for YAML or JSON."""
    config = untracked(config)
    values: dict[str, Any] = {}
    for field in fields_of(config):
        value = getattr(config, field.name)
        if is_config(value):
            values[field.name] = tree(value)
        else:
            values[field.name] = list(value) if isinstance(value, tuple) else value
    return values


def to_yaml(config: Any) -> str:
    return strict_yaml.dump(tree(config))


@functools.cache  # resolving the hints costs more time than the games of a whole evaluation
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _type_of(owner: Any, field: dataclasses.Field[Any]) -> Any:
    kind: Any = type(untracked(owner))
    return _hints(kind)[field.name]


# --- reading ------------------------------------------------------------------------------------


def apply(
    config: C, changes: Mapping[str, Any], source: str, text: bool = False, prefix: str = "",
    notes: bool = True,
) -> C:  # fmt: skip
    """`config` with `changes` (dotted keys), read strictly: unknown key, wrong type, out of range.

    `source` begins every error message. With `text` the values are strings of a command line. `prefix` is the
    key of `config` in a run's settings ("world."): old names are looked up with it. Without `notes` old names
    are accepted without a warning, as in files that the program wrote. This function does not validate the
    config as a whole, so that several sources can be applied one after another.
    """
    fields = {key: field for key, field, _ in leaves(config)}
    values: dict[str, Any] = {}
    for key, value in present_names(config, changes, source, prefix, notes).items():
        if key not in fields:
            raise _unknown(key, value, _effective_first(config), source, prefix=prefix)
        owner = get(config, key.rpartition(".")[0]) if "." in key else config
        kind, metadata = _type_of(owner, fields[key]), fields[key].metadata
        choices = metadata.get("choices", ())
        try:
            converted = config_values.convert(kind, value, text)
            converted = _present_value(prefix + key, converted, notes)
            converted = config_values.match_choices(converted, choices)
            valid = in_range(converted, metadata)
        except (ValueError, OverflowError, TypeError):
            valid = False
        if not valid:
            near = nearest(value, choices) if choices and isinstance(value, str) else ""
            hint = f"; nearest: {near}" if near else ""
            expected = expected_value(kind, metadata)
            raise ConfigError(f"{source}: {key} = {short_repr(value)}: expected {expected}{hint}")
        values[key] = converted
    return _replace(config, values)


def present_names(
    config: Any, changes: Mapping[str, Any], source: str, prefix: str = "", notes: bool = True
) -> dict[str, Any]:
    """`changes` under the present keys of `config`; unknown names stay as they are. Arguments as in `apply`.

    A dash counts as an underscore, upper case as lower case. ConfigError where both an old name and its
    present name occur.
    """
    keys = {key: field for key, field, _ in leaves(config)}
    values: dict[str, Any] = {}
    names: dict[str, str] = {}  # present key -> the name that was given
    for name, value in changes.items():
        key = _present_key(name, keys, prefix)
        if key in values and _is_old(name, key) != _is_old(names[key], key):
            raise _same_setting(key, name, names[key], source)
        if key in values:
            raise ConfigError(f"{source}: {key} = {short_repr(value)} is given twice; expected it once")
        if notes and key in keys and _is_old(name, key):
            setting_names.note_renamed(_spelled(name), key)
        values[key], names[key] = value, name
    return values


def _present_key(name: str, keys: Collection[str], prefix: str) -> str:
    """The key among `keys` that `name` means, also by an old name or another spelling; else `name` itself."""
    for spelling in (name.replace("-", "_"), _spelled(name)):
        if spelling in keys:
            return spelling
        present = setting_names.present_key(prefix + spelling)
        if present.startswith(prefix) and present.removeprefix(prefix) in keys:
            return present.removeprefix(prefix)
    return name


def _spelled(name: str) -> str:
    """`name` as keys are spelled: with underscores and in lower case."""
    return name.replace("-", "_").lower()


def _is_old(name: str, key: str) -> bool:
    return _spelled(name) != key


def _same_setting(key: str, name: str, other: str, source: str, dashes: str = "") -> ConfigError:
    old = name if _is_old(name, key) else other
    return ConfigError(f"{source}: {dashes}{old} and {dashes}{key} are the same setting: "
                       f"expected {dashes}{key} alone")


def _present_value(key: str, value: Any, notes: bool) -> Any:
    """`value` of the setting `key`, with old names of values replaced."""

    def replace_old(word: str) -> str:
        present = setting_names.present_value(key, word)
        if notes and present != word:
            setting_names.note_renamed(f"{key} = {word}", present)
        return present

    return config_values.map_texts(value, replace_old)


def _unknown(
    name: str, value: Any, keys: Sequence[str], source: str, dashes: str = "", prefix: str = ""
) -> ConfigError:
    near = setting_names.nearest_setting(name.replace("-", "_"), keys, prefix)
    hint = f"; nearest: {dashes}{near}" if near else ""
    shown = dashes + name if name.isprintable() and len(name) <= 60 else short_repr(dashes + name)
    return ConfigError(f"{source}: unknown setting {shown} = {short_repr(value)}{hint}")


def _effective_first(config: Any) -> list[str]:
    """All keys; those with an effect under `config` first, so that they are suggested first."""
    keys = [key for key, _, _ in leaves(config)]
    try:
        return sorted(keys, key=lambda key: bool(has_effect(config, key)))
    except AttributeError:  # `config` is a part of a run's settings and its `needs` name other parts
        return keys


def flatten(data: Any, source: str, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys."""
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: expected settings as 'key: value' lines, found {short_repr(data)}")
    values: dict[str, Any] = {}
    for key, value in data.items():
        if not isinstance(key, str):
            raise ConfigError(f"{source}: expected a name as key, found {short_repr(key)}")
        name = prefix + key
        inner = flatten(value, source, name + ".") if isinstance(value, dict) else {name: value}
        for name, inner_value in inner.items():
            if name in values:
                value_text = short_repr(inner_value)
                raise ConfigError(f"{source}: {name} = {value_text} is given twice; expected it once")
            values[name] = inner_value
    return values


def read_yaml(text: str, source: str) -> dict[str, Any]:
    """Settings of a YAML text as dotted keys. Safe loader: no tags, no objects."""
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"{source}: {len(text)} characters: expected settings, at most {MAX_CHARACTERS}")
    try:
        data = strict_yaml.load(text)
    except strict_yaml.YAML_ERRORS as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise ConfigError(f"{source}:{line} not plain YAML: {problem}") from None
    return {} if data is None else flatten(data, source)


def read_flags(argv: Sequence[str], config: Any, prefix: str = "") -> dict[str, str]:
    """`--a.b value`, `--a.b=value`, `--switch`, `--no-switch` as keys and texts; only whole names count."""
    keys = {key: field for key, field, _ in leaves(config)}
    values: dict[str, str] = {}
    names: dict[str, str] = {}  # present key -> the name that was given
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise ConfigError(f"command line: expected a flag, found {short_repr(word)}")
        name, equals, value = word[2:].partition("=")
        key = _present_key(name, keys, prefix)
        if key in keys and not equals:
            value = _flag_value(name, isinstance(get(config, key), bool), words)
        elif key not in keys:
            positive = _without_no(name)
            key = _present_key(positive, keys, prefix)
            if equals or positive == name or key not in keys or not isinstance(get(config, key), bool):
                shown = value if equals else (words[0] if words else "")
                raise _unknown(name, shown, _effective_first(config), "command line", "--", prefix)
            name, value = positive, "false"
        if key in values and _is_old(name, key) != _is_old(names[key], key):
            raise _same_setting(key, name, names[key], "command line", "--")
        if key in values:
            raise ConfigError(f"command line: {word.partition('=')[0]} is given twice")
        if _is_old(name, key):
            setting_names.note_renamed(_spelled(name), key)
        values[key], names[key] = value, name
    return values


def _flag_value(name: str, switch: bool, words: list[str]) -> str:
    """The value of the flag `name`, taken from the `words` after it; a switch needs none."""
    if words and not words[0].startswith("--"):
        return words.pop(0)
    if switch:
        return "true"
    raise ConfigError(f"command line: --{name} needs a value")


def _without_no(name: str) -> str:
    """The switch that --no-NAME or --PART.no-NAME unsets; `name` itself in any other form."""
    part, dot, leaf = name.replace("-", "_").rpartition(".")
    return part + dot + leaf.removeprefix("no_") if leaf.startswith("no_") else name


# --- checking a whole config ------------------------------------------------------------------------


def validate(config: Any, prefix: str = "") -> None:
    """Check the range of every field, then call the `check()` of each part, which raises ConfigError."""
    config = untracked(config)
    for field in fields_of(config):
        value = getattr(config, field.name)
        if is_config(value):
            validate(value, prefix + field.name + ".")
        elif not (has_type(kind := _type_of(config, field), value) and in_range(value, field.metadata)):
            expected = expected_value(kind, field.metadata)
            raise ConfigError(f"{prefix}{field.name} = {short_repr(value)}: expected {expected}")
    check = getattr(config, "check", None)
    if check is not None:
        try:
            check()
        except ConfigError as error:
            raise (error if isinstance(error, NotInstalled) else ConfigError(f"{prefix}{error}")) from None


def has_effect(config: Any, key: str) -> str:
    """Empty if the setting `key` has an effect under `config`, else the reason why it has none."""
    part_key, _, leaf = key.rpartition(".")
    owner = get(config, part_key) if part_key else config
    field = next(f for f in dataclasses.fields(owner) if f.name == leaf)
    needs = field.metadata.get("needs", "")
    if not needs:
        return has_effect(config, part_key) if part_key else ""
    name, equals, needed = needs.partition("=")
    is_full_key = "." in name  # otherwise it names a sibling
    value = get(config, name) if is_full_key else getattr(owner, name)
    satisfied = str(value) in needed.split("|") if equals else bool(value)
    sibling = f"{part_key}.{name}" if part_key and not is_full_key else name
    missing = has_effect(config, sibling)  # the sibling may need another setting, which is named first
    if satisfied or missing:
        return missing
    unset = "true" if value is False else "another value"
    words = " or ".join(needed.split("|")) if equals else unset
    return f"{sibling} is {short_repr(value)} (it needs {words})"


def refuse_inert(config: Any, keys: Sequence[str], source: str) -> None:
    """ConfigError for the first of `keys`, which a user set, that has no effect under `config`."""
    for key in keys:
        reason = has_effect(config, key)
        if reason:
            raise ConfigError(f"{source}: {key} = {short_repr(get(config, key))} has no effect: {reason}")


# --- help and tracking ------------------------------------------------------------------------------


def help_lines(config: Any) -> Iterator[tuple[str, str, str]]:
    """(flag, value with its unit, help) for every setting."""
    for key, field, value in leaves(config):
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        text = field.metadata.get("help", "")
        if field.metadata.get("choices"):
            text += f" ({' | '.join(field.metadata['choices'])})"
        yield f"--{key}", f"{shown} {field.metadata.get('unit', '')}".rstrip(), text


def track(config: C, read_keys: set[str], prefix: str = "") -> C:
    """An equal config that adds to `read_keys` each dotted key that is read; `rematch check` uses it.

    Validating, listing and writing a config does not count as reading: a knob that is only validated has no
    effect.
    """
    names = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    kind = type(config)

    def record(self: Any, name: str) -> Any:
        if name in names:
            read_keys.add(prefix + name)
        return object.__getattribute__(self, name)

    tracked = types.new_class(kind.__name__, (kind,), {}, lambda ns: ns.update(__getattribute__=record))
    tracked.__module__ = kind.__module__
    copy: Any = object.__new__(tracked)
    object.__setattr__(copy, "_untracked", config)
    for name in names:
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            value = track(value, read_keys, prefix + name + ".")
        object.__setattr__(copy, name, value)
    return typing.cast(C, copy)


def untracked(config: C) -> C:
    """The config from which `track` made this one; a config that is not tracked itself."""
    return typing.cast(C, getattr(config, "_untracked", config))
