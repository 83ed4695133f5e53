"""Settings: frozen dataclasses in, flags, YAML and errors out. Imports nothing of ours but plain_yaml.

A knob is one field, declared beside the code that reads it:

    @dataclass(frozen=True, kw_only=True)
    class PpoConfig:
        clip: float = knob(0.2, "how far the ratio may move before its gradient stops", low=0.0)

Flag, help text, YAML key, range check and the knob tests all derive from that line. Recipes,
`--config` files and flags go through one strict reader, `apply`, so each source gives the same error.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rematch.core import strict_yaml
from rematch.core.errors import ConfigError, NotInstalled

C = TypeVar("C")
MAX_CHARACTERS = 1 << 15  # characters of a settings file: reading YAML takes up to a second for these


def knob(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    needs: str = "",
) -> Any:
    """A field of a config: its default, its help text, its range, and what must hold for it to matter.

    `needs` names a sibling and, after "=", the values (split by "|") that give this knob an effect;
    without "=" the sibling must be non-zero.
    """
    return dataclasses.field(
        default=default,
        metadata={"help": help, "low": low, "high": high, "choices": choices, "needs": needs},
    )


def part(kind: type[Any], needs: str = "") -> Any:
    """A field that holds another config; `needs` as of a knob, for all that is in it."""
    return dataclasses.field(default_factory=kind, metadata={"needs": needs})


# --- walking a config ---------------------------------------------------------------------------


def leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Every (dotted key, field, value) of a config, depth first, in declaration order."""
    config = untracked(config)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        key = prefix + field.name
        if dataclasses.is_dataclass(value):
            yield from leaves(value, key + ".")
        else:
            yield key, field, value


def get(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config


def replace(config: C, changes: Mapping[str, Any]) -> C:
    """The same config with some dotted keys changed; values are taken as they are, then validated."""
    changed = _replace(config, changes)
    validate(changed)
    return changed


def _replace(config: C, changes: Mapping[str, Any]) -> C:
    here: dict[str, Any] = {}
    below: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        if rest:
            below.setdefault(head, {})[rest] = value
        else:
            here[head] = value
    for head, inner in below.items():
        here[head] = _replace(getattr(config, head), inner)
    return dataclasses.replace(config, **here)  # type: ignore[type-var]


def tree(config: Any) -> dict[str, Any]:
    """The config as nested plain values, ready for YAML or JSON."""
    config = untracked(config)
    out: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            out[field.name] = tree(value)
        else:
            out[field.name] = list(value) if isinstance(value, tuple) else value
    return out


def to_yaml(config: Any) -> str:
    return strict_yaml.dump(tree(config))


# --- reading values -----------------------------------------------------------------------------


@functools.cache  # resolving hints costs more than a whole evaluation's worth of games
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _type_of(owner: Any, field: dataclasses.Field[Any]) -> Any:
    kind: Any = type(untracked(owner))
    return _hints(kind)[field.name]


def _expected_value(kind: Any, field: dataclasses.Field[Any]) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if field.metadata.get("choices"):
        word = "one of " + ", ".join(field.metadata["choices"])
        return f"a list: {word}" if origin is tuple else word
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    text = f"a list, each {names[args[0]]}" if origin is tuple else names[kind]
    low, high = field.metadata.get("low"), field.metadata.get("high")
    if low is not None and high is not None:
        text += f" from {low} to {high}"
    elif low is not None:
        text += f" of at least {low}"
    elif high is not None:
        text += f" of at most {high}"
    return text


def _convert(kind: Any, value: Any, text: bool) -> Any:
    """`value` as `kind`, or ValueError. With `text` it came from a command line, as a string."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if text:
            value = [v for v in value.replace("[", "").replace("]", "").split(",") if v.strip()]
            value = [v.strip() for v in value]
        if not isinstance(value, list | tuple):
            raise ValueError
        return tuple(_convert(args[0], v, text) for v in value)
    if kind is bool:
        if text:
            words = {"true": True, "yes": True, "1": True, "on": True}
            words |= {"false": False, "no": False, "0": False, "off": False}
            if value.lower() not in words:
                raise ValueError
            return words[value.lower()]
        if not isinstance(value, bool):
            raise ValueError
        return value
    if kind is str:
        if not isinstance(value, str):
            raise ValueError
        return value
    if isinstance(value, bool):
        raise ValueError
    if kind is int:
        if isinstance(value, str):  # from a command line; and YAML reads 1e6 as text
            value = value.replace("_", "")
            value = float(value) if any(c in value for c in ".eE") else int(value)
        if int(value) != value or abs(value) >= 2**63:
            raise ValueError
        return int(value)
    if kind is float:
        value = float(value)
        if not math.isfinite(value):
            raise ValueError
        return value
    raise TypeError(f"no reader for settings of type {kind}")


def _in_range(value: Any, field: dataclasses.Field[Any]) -> bool:
    low, high = field.metadata.get("low"), field.metadata.get("high")
    values = value if isinstance(value, tuple) else (value,)
    for v in values:
        if field.metadata.get("choices") and v not in field.metadata["choices"]:
            return False
        if isinstance(v, float) and not math.isfinite(v):
            return False
        if isinstance(v, int | float) and not isinstance(v, bool):
            if (low is not None and v < low) or (high is not None and v > high):
                return False
    return True


def _is_kind(kind: Any, value: Any) -> bool:
    """Whether a value given from Python has its field's type; a whole number may stand for a number."""
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is_kind(typing.get_args(kind)[0], v) for v in value)
    if isinstance(value, bool):
        return kind not in (int, float, str)
    return kind not in (int, float, bool, str) or isinstance(value, int | float if kind is float else kind)


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(word: str, among: Sequence[str]) -> str:
    """The name most like `word`: by its last part first, then as a whole."""
    leaf = word.rpartition(".")[2]
    same = [k for k in among if k.rpartition(".")[2] == leaf]
    if same:
        return same[0]
    by_leaf = {k.rpartition(".")[2]: k for k in reversed(among)}
    close = difflib.get_close_matches(word, among, n=1, cutoff=0.6)
    close_leaf = difflib.get_close_matches(leaf, list(by_leaf), n=1, cutoff=0.5)
    if close:
        return close[0]
    return by_leaf[close_leaf[0]] if close_leaf else ""


def _unknown(key: str, value: Any, keys: Sequence[str], source: str, dashes: str = "") -> ConfigError:
    near = nearest(key.replace("-", "_"), keys)
    hint = f"; nearest: {dashes}{near}" if near else ""
    name = dashes + key if key.isprintable() and len(key) <= 60 else _short_repr(dashes + key)
    return ConfigError(f"{source}: unknown setting {name} = {_short_repr(value)}{hint}")


def apply(config: C, changes: Mapping[str, Any], source: str, text: bool = False) -> C:
    """`config` with `changes` (dotted keys) read strictly: unknown key, wrong type, out of range.

    The whole is not validated here, so that several sources can be laid over one another first.
    """
    fields = {
        key: (field, get(config, key.rpartition(".")[0]) if "." in key else config)
        for key, field, _ in leaves(config)
    }
    read: dict[str, Any] = {}
    for raw, value in changes.items():
        key = raw.replace("-", "_")
        if key not in fields:
            raise _unknown(raw, value, list(fields), source)
        if key in read:
            raise ConfigError(f"{source}: {key} = {_short_repr(value)} is given twice; expected it once")
        field, owner = fields[key]
        kind = _type_of(owner, field)
        try:
            read[key] = _convert(kind, value, text)
            fits = _in_range(read[key], field)
        except (ValueError, OverflowError, TypeError):
            fits = False
        if not fits:
            want = _expected_value(kind, field)
            near = ""
            if field.metadata.get("choices") and isinstance(value, str):
                close = nearest(value, field.metadata["choices"])
                near = f"; nearest: {close}" if close else ""
            raise ConfigError(f"{source}: {key} = {_short_repr(value)}: expected {want}{near}")
    return _replace(config, read)


def flatten(data: Any, source: str, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys."""
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: expected settings as 'key: value' lines, found {_short_repr(data)}")
    out: dict[str, Any] = {}
    for key, value in data.items():
        if not isinstance(key, str):
            raise ConfigError(f"{source}: expected a name as key, found {_short_repr(key)}")
        name = prefix + key
        below = flatten(value, source, name + ".") if isinstance(value, dict) else {name: value}
        for name, inner in below.items():
            if name in out:
                raise ConfigError(f"{source}: {name} = {_short_repr(inner)} is given twice; expected it once")
            out[name] = inner
    return out


def read_yaml(text: str, source: str) -> dict[str, Any]:
    """Settings of a YAML text as dotted keys. Safe loader: no tags, no objects."""
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"{source}: {len(text)} characters: expected settings, at most {MAX_CHARACTERS}")
    try:
        data = strict_yaml.load(text)
    except strict_yaml.YAML_ERRORS as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        why = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise ConfigError(f"{source}:{where} not plain YAML: {why}") from None
    return {} if data is None else flatten(data, source)


def read_flags(argv: Sequence[str], config: Any) -> dict[str, str]:
    """`--a.b value`, `--a.b=value`, `--switch`, `--no-switch` as dotted keys and texts; whole names only."""
    keys = {key: field for key, field, _ in leaves(config)}
    out: dict[str, str] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise ConfigError(f"command line: expected a flag, found {_short_repr(word)}")
        name, equals, value = word[2:].partition("=")
        key = name.replace("-", "_")
        switch = key in keys and isinstance(get(config, key), bool)
        if key in keys and not equals:
            if switch and (not words or words[0].startswith("--")):
                value = "true"
            elif words and (not words[0].startswith("--")):
                value = words.pop(0)
            else:
                raise ConfigError(f"command line: --{name} needs a value")
        elif key not in keys:
            head, dot, leaf = key.rpartition(".")
            plain = head + dot + leaf.removeprefix("no_")
            if (
                leaf.startswith("no_")
                and isinstance(keys.get(plain), dataclasses.Field)
                and not equals
                and isinstance(get(config, plain), bool)
            ):
                key, value = plain, "false"
            else:
                shown = value if equals else (words[0] if words else "")
                raise _unknown(name, shown, list(keys), "command line", "--")
        if key in out:
            raise ConfigError(f"command line: --{name} is given twice")
        out[key] = value
    return out


# --- judging the whole ----------------------------------------------------------------------------


def validate(config: Any, prefix: str = "") -> None:
    """Ranges of every field, then each part's own `check()` (which raises ConfigError)."""
    config = untracked(config)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            validate(value, prefix + field.name + ".")
        elif not (_is_kind(kind := _type_of(config, field), value) and _in_range(value, field)):
            want = _expected_value(kind, field)
            raise ConfigError(f"{prefix}{field.name} = {_short_repr(value)}: expected {want}")
    check = getattr(config, "check", None)
    if check is not None:
        try:
            check()
        except ConfigError as error:
            raise (error if isinstance(error, NotInstalled) else ConfigError(f"{prefix}{error}")) from None


def has_effect(config: Any, key: str) -> str:
    """Empty if setting `key` matters under `config`, else what it would need."""
    head, _, leaf = key.rpartition(".")
    owner = get(config, head) if head else config
    field = next(f for f in dataclasses.fields(owner) if f.name == leaf)
    needs = field.metadata.get("needs", "")
    if not needs:
        return has_effect(config, head) if head else ""
    name, equals, wanted = needs.partition("=")
    value = getattr(owner, name)
    fine = str(value) in wanted.split("|") if equals else bool(value)
    prefix = head + "." if head else ""
    root = has_effect(config, prefix + name)  # what it needs may need something itself: that comes first
    if fine or root:
        return root
    want = " or ".join(wanted.split("|")) if equals else "to be set"
    return f"{prefix}{name} is {_short_repr(value)} (it would need {want})"


def refuse_inert(config: Any, keys: Sequence[str], source: str) -> None:
    """A key the user set that nothing would read is an error, not a shrug."""
    for key in keys:
        why = has_effect(config, key)
        if why:
            raise ConfigError(f"{source}: {key} = {_short_repr(get(config, key))} has no effect: {why}")


# --- help and tracking ------------------------------------------------------------------------------


def help_lines(config: Any) -> Iterator[tuple[str, str, str]]:
    """(flag, default, help) for every leaf."""
    for key, field, value in leaves(config):
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        text = field.metadata.get("help", "")
        if field.metadata.get("choices"):
            text += f" ({' | '.join(field.metadata['choices'])})"
        yield f"--{key}", shown, text


def track(config: C, seen: set[str], prefix: str = "") -> C:
    """An equal config that notes in `seen` each dotted key that is read. For rehearsals.

    Judging, listing and writing down a config is not reading it: a knob that is only checked is dead.
    """
    names = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    kind = type(config)

    def note(self: Any, name: str) -> Any:
        if name in names:
            seen.add(prefix + name)
        return object.__getattribute__(self, name)

    tracked = types.new_class(kind.__name__, (kind,), {}, lambda ns: ns.update(__getattribute__=note))
    tracked.__module__ = kind.__module__
    copy: Any = object.__new__(tracked)
    object.__setattr__(copy, "_untracked", config)
    for name in names:
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            value = track(value, seen, prefix + name + ".")
        object.__setattr__(copy, name, value)
    return typing.cast(C, copy)


def untracked(config: C) -> C:
    """The config that a tracked one stands for; any other is itself."""
    return typing.cast(C, getattr(config, "_untracked", config))
