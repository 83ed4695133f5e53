"""Describe the settings of a run: those of the recipe, the others with an effect, and why some have none."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.core.config import known_name
from rematch.core.errors import ConfigError
from rematch.reporting.result import Block, Printable, Table
from rematch.training.config import defaults_of, no_effect
from rematch.training.recipes import layers_of, read_settings
from rematch.training.setup import RunSetup

RUN = "run"  # section of the settings that belong to no component
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class SettingInfo:
    """One setting: its value under the recipe, its default, and what it means."""

    key: str
    section: str
    value: str
    default: str
    help: str
    accepts: str
    unit: str = ""  # unit of the value, such as "steps"; empty for a text or a number without a unit
    source: str = ""  # recipe, file or command line that sets it, "recipe ra1"; empty for the default
    idle: str = ""  # why it has no effect under these settings; empty if it has one

    @property
    def choices(self) -> list[str]:
        """The values of a setting that accepts a few words; empty for numbers and texts."""
        return self.accepts.removeprefix("list, each ").split(" | ") if " | " in self.accepts else []

    @property
    def meaning(self) -> str:
        """The help text with unit and accepted values, and why it has no effect."""
        accepted = ", ".join(filter(None, (self.unit, self.accepts)))
        text = f"{self.help} ({accepted})" if accepted else self.help
        return f"{text}; no effect: {self.idle}" if self.idle else text


@dataclass(frozen=True, repr=False)
class SettingsTable(Printable):
    """The settings of a run in sections."""

    title: str
    settings: tuple[SettingInfo, ...]
    sections: Mapping[str, str]  # name -> subject of its settings
    sources: tuple[str, ...] = ()  # recipes, files and flags that set values; later ones override earlier

    def __iter__(self) -> Iterator[SettingInfo]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def changed(self) -> list[SettingInfo]:
        """The settings that the recipe, a file or the command line sets."""
        return [setting for setting in self.settings if setting.source]

    def section(self, name: str) -> SettingsTable:
        """The settings of one section, or the one setting of that name."""
        if name == ALL:
            return self
        name = known_name(name.removeprefix("--").replace("-", "_"), self.sections)
        chosen = [setting for setting in self.settings if name in (setting.section, setting.key)]
        if not chosen:
            near = settings.nearest(name, [*self.sections, *(setting.key for setting in self.settings)])
            raise ConfigError(f"unknown section {name!r}: expected one of {', '.join(self.sections)}, {ALL}"
                              + (f"; nearest: {near}" if near else ""))
        return dataclasses.replace(self, settings=tuple(chosen))

    def blocks(self) -> Iterator[Block]:
        yield self.title
        for name, meaning in self.sections.items():
            rows = [(setting.key, setting.value, setting.meaning) for setting in self.settings
                    if setting.section == name]
            if rows:
                yield f"{name}: {meaning}"
                yield Table([("setting", "value", "meaning"), *rows])

    def to_dict(self) -> dict[str, Any]:
        return {"title": self.title, "settings": [asdict(setting) for setting in self.settings]}


def describe_settings(
    recipe: str, changes: Mapping[str, Any] | None = None, *, file: Path | None = None,
    flags: Sequence[str] = (),
) -> SettingsTable:
    """Every setting of a recipe with its value; `changes`, `file` and `flags` as in training."""
    config, _ = read_settings(recipe, file, flags, changes)
    layers = layers_of(recipe)
    if file is not None:
        layers.append((str(file), settings.read_yaml(file.read_text(), str(file))))
    if changes:
        layers.append(("changes", dict(changes)))
    layers.append(("command line", dict(settings.read_flags(flags, config))))
    sources: dict[str, str] = {}
    for source, layer in layers:
        sources |= dict.fromkeys(settings.present_names(config, layer, source, notes=False), source)
    setup, default = RunSetup(config), defaults_of(config)
    rows = settings_table(f"Settings of {recipe}", config, default, sources)
    idle = {key: settings.has_effect(config, key) or no_effect(config, key, setup)
            for key, _, _ in settings.leaves(config)}
    infos = [dataclasses.replace(row, idle=idle[row.key]) for row in rows.settings]
    return dataclasses.replace(rows, settings=tuple(infos), sources=tuple(source for source, _ in layers))


def settings_table(title: str, config: Any, default: Any, sources: Mapping[str, str]) -> SettingsTable:
    """The settings of any config beside their defaults; `sources`: key -> recipe or file that sets it."""
    keys = [key for key, _, _ in settings.leaves(config)]
    # config.yaml of a run sets every key: then only values that differ from the default count as set
    complete = set(keys) <= set(sources)
    rows = []
    for key, field, value in settings.leaves(config):
        default_value = settings.get(default, key)
        rows.append(SettingInfo(
            key=key, section=key.partition(".")[0] if "." in key else RUN, value=value_text(value),
            default=value_text(default_value), help=field.metadata.get("help", ""),
            accepts=accepts(config, key), unit=field.metadata.get("unit", ""),
            source="" if complete and value == default_value else sources.get(key, ""),
        ))
    return SettingsTable(title, tuple(rows), sections_of(config))


def sections_of(config: Any) -> dict[str, str]:
    """Section -> the first sentence of its dataclass's docstring."""
    out = {RUN: "the run as a whole"}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            out[field.name] = first_line(value)
    return out


def first_line(config: Any) -> str:
    return (type(config).__doc__ or "").strip().partition("\n")[0]


def accepts(config: Any, key: str) -> str:
    """The values that a setting accepts, in short: "1 to 64", "at least 0", "tanh | relu"; "": any text."""
    head, _, leaf = key.rpartition(".")
    owner = settings.get(config, head) if head else config
    field = next(field for field in dataclasses.fields(owner) if field.name == leaf)
    kind = typing.get_type_hints(type(owner))[leaf]
    low, high = field.metadata.get("low"), field.metadata.get("high")
    names = {int: "whole number", float: "number", bool: "true | false", str: ""}
    listed = typing.get_origin(kind) is tuple
    text = names[typing.get_args(kind)[0] if listed else kind]
    if field.metadata.get("choices"):
        text = " | ".join(field.metadata["choices"])
    elif low is not None:
        text = f"{low} to {high}" if high is not None else f"at least {low}"
    elif high is not None:
        text = f"at most {high}"
    return f"list, each {text or 'text'}" if listed else text


def value_text(value: Any) -> str:
    """A value as it is written after a flag."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
