"""Recipes and stored settings: every source of a run's settings, read by one strict reader."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rematch.core import config as settings
from rematch.core.config import known_name
from rematch.core.errors import CodeNotAllowed, ConfigError
from rematch.core.run_config import Config
from rematch.core.settings.setting_names import note_renamed
from rematch.core.system import user_code
from rematch.curriculum.levels import default_games
from rematch.recipes import OLD_NAMES, recipe_texts
from rematch.storage.run_folder import Run
from rematch.training.config import default, no_effect, unused_code
from rematch.training.device import check_device, chosen_devices
from rematch.training.setup import RunSetup
from rematch.worlds import registry


def recipes() -> dict[str, str]:
    """Name -> text of every recipe of the package."""
    return dict(recipe_texts())


def configure(
    recipe: str, file: Path | None = None, flags: Sequence[str] = (), changes: Mapping[str, Any] | None = None
) -> Config:
    """The settings of a run. Later sources win: code defaults, recipe, file, flags (or `changes` in Python).

    `recipe` is the name of a recipe, the path of a YAML file, or the name of a world or the path of a Python
    file with a game, for its default settings.
    """
    config, set_keys = read_settings(recipe, file, flags, changes)
    if why := unused_code(config, RunSetup(config), set_keys):
        raise ConfigError(why)
    return with_full_paths(config)


def read_settings(
    recipe: str, file: Path | None = None, flags: Sequence[str] = (), changes: Mapping[str, Any] | None = None
) -> tuple[Config, set[str]]:
    """As `configure`, also with a component of the user that is off, for its help; and the keys that are set.
    """
    layers = [(source, layer, False) for source, layer in layers_of(recipe)]
    files = {recipe} if recipe.endswith((".yaml", ".yml")) else set()
    if file is not None:
        layers.append((str(file), _read(file), True))
        files.add(str(file))
    if changes:
        layers.append(("changes", dict(changes), True))
    for _, layer, _ in layers:
        if isinstance(layer.get("game"), str):
            registry.note_old_name(layer["game"])
            layer["game"] = registry.present_name(layer["game"])
    game = next((layer["game"] for _, layer, _ in reversed(layers) if "game" in layer), "pursuit")
    if not isinstance(game, str):
        raise ConfigError(f"game = {game!r}: expected a world's name")
    if any(word == "--game" or word.startswith("--game=") for word in flags):
        raise ConfigError(
            "command line: --game cannot change a recipe's world; name the world instead of the recipe"
        )
    recipe_games = [layer["game"] for _, layer, from_user in layers if "game" in layer and not from_user]
    for source, layer, from_user in layers:
        if from_user and recipe_games and layer.get("game", recipe_games[-1]) != recipe_games[-1]:
            raise ConfigError(f"{source}: game = {layer['game']!r} cannot change the world of {recipe}; name "
                              "the world instead of the recipe")
    flags = ["--network.module" if word == "--network" else word for word in flags]
    registry.typed_name(recipe)
    allow_typed_code(flags, changes or {})
    config = default(game, *(named_code(key, layers, flags) for key in CODE_SETTINGS[:2]))
    layers = [(source, settings.present_names(config, layer, source), from_user)
              for source, layer, from_user in layers]
    for source, layer, _ in layers:
        config = settings.apply(config, layer, source)
    without_flags, flag_layer = config, settings.read_flags(flags, config)
    config = settings.apply(config, flag_layer, "command line", text=True)
    if not any("evaluation.games" in layer for layer in [flag_layer, *(layer for _, layer, _ in layers)]):
        games = default_games(config.curriculum, config.evaluation.games)
        config = settings.apply(config, {"evaluation.games": games}, "default")
    settings.validate(config)
    setup = RunSetup(config)
    check_device(setup)
    all_keys = {key for key, _, _ in settings.leaves(config)}
    for source, layer in [*((source, layer) for source, layer, _ in layers), ("command line", flag_layer)]:
        # A file is checked without the flags, which may switch off what it sets. A file with nearly all
        # settings, such as the config.yaml of a run, is not checked: it sets none of them on purpose.
        if source in files and not is_complete(layer, all_keys):
            refuse_unused(without_flags, layer, source, setup)
        elif source in ("changes", "command line"):
            refuse_unused(config, layer, source, setup)
    if chosen := chosen_devices(setup):
        config = settings.apply(config, chosen, "device auto")
    set_keys = {key for layer in [flag_layer, *(layer for _, layer, _ in layers)] for key in layer}
    return config, set_keys


def with_full_paths(config: Config) -> Config:
    """The same settings with full paths of the user's files: commands in other folders find them too."""
    changes: dict[str, Any] = {key: tuple(map(user_code.absolute, settings.get(config, key)))
                               for key in CODE_SETTINGS[:2]}
    changes["network.module"] = user_code.absolute(config.network.module)
    return settings.replace(config, changes) if any(changes.values()) else config


COMPLETE = 0.8  # fraction of the settings of its sections from which a file counts as a complete list
CODE_SETTINGS = ("components", "reward_terms", "network.module")  # settings that name Python code


def is_complete(layer: Mapping[str, Any], all_keys: set[str]) -> bool:
    """Whether a file sets nearly all settings of its sections. An earlier version wrote fewer sections."""
    sections = {section_of(key) for key in layer} | {""}
    listed = {key for key in all_keys if section_of(key) in sections}
    return len(listed & set(layer)) >= COMPLETE * len(listed)


def section_of(key: str) -> str:
    return key.rpartition(".")[0]


def flag_values(key: str, flags: Sequence[str]) -> list[str]:
    """The values of a setting in the flags, read before all settings are known."""
    name: str = f"--{key}"
    values: list[str] = []
    for word, after in zip(flags, [*flags[1:], ""]):
        if word == name:
            values = after.split(",")
        elif word.startswith(f"{name}="):
            values = word.partition("=")[2].split(",")
    return [value.strip() for value in values if value.strip()]


def named_code(
    key: str, layers: Sequence[tuple[str, dict[str, Any], bool]], flags: Sequence[str]
) -> list[str]:
    """The classes that the last source of the setting `key` names."""
    names: Any = flag_values(key, flags)
    for _, layer, _ in reversed(layers):
        names = names or layer.get(key, [])
    return [names] if isinstance(names, str) else list(names)


def allow_typed_code(flags: Sequence[str], changes: Mapping[str, Any]) -> None:
    """Code that the user names on the command line or in Python is trusted; code that a file names is not."""
    for key in CODE_SETTINGS:
        names = changes.get(key, ())
        user_code.allow([*flag_values(key, flags), *([names] if isinstance(names, str) else names)])


def refuse_unused(config: Config, layer: Mapping[str, Any], source: str, setup: RunSetup) -> None:
    """ConfigError for a setting of the user that has no effect with these settings or in this world."""
    keys = [key.replace("-", "_") for key in layer]
    settings.refuse_inert(config, keys, source)
    for key in keys:
        if why := no_effect(config, key, setup):
            raise ConfigError(f"{source}: {key} = {settings.get(config, key)} has no effect: {why}")


def layers_of(recipe: str, below: tuple[str, ...] = ()) -> list[tuple[str, dict[str, Any]]]:
    """(source, settings) of a recipe, after those of the recipe that its `like` names, and so on."""
    known = recipes()
    if recipe in OLD_NAMES:
        note_renamed(f"recipe {recipe}", OLD_NAMES[recipe])
        recipe = OLD_NAMES[recipe]
    if recipe not in known and not registry.is_file(recipe):
        registry.note_old_name(recipe)
        recipe = registry.present_name(recipe)
    recipe = known_name(recipe, list(dict.fromkeys([*known, *registry.names()])))
    if recipe in known:
        source = f"recipe {recipe}"
        layer = settings.read_yaml(known[recipe], source)
    elif recipe.endswith((".yaml", ".yml")) and not below:
        source, layer = recipe, _read(Path(recipe))
    elif registry.is_file(recipe) and not below:
        return [(f"world {recipe}", {"game": registry.file_reference(recipe)})]
    elif recipe in registry.names():
        return [(f"world {recipe}", {"game": recipe})]
    else:
        names = list(dict.fromkeys([*known, *registry.names()]))
        near = settings.nearest(recipe, names)
        near = f"./{recipe}.py" if Path(f"{recipe}.py").is_file() and not below else near
        hint = f"; nearest: {near}" if near else ""
        files = "" if below else ", a .yaml file with settings, or a .py file with a game"
        problem = f"{below[-1]}: like = {recipe!r}" if below else f"unknown recipe {recipe!r}"
        raise ConfigError(f"{problem}: expected one of {', '.join(names)}{files}{hint}")
    if "like" not in layer:
        return [(source, layer)]
    if source in below:
        raise ConfigError(f"{source}: like = {layer['like']!r}: the recipe includes itself")
    return [*layers_of(str(layer.pop("like")), (*below, source)), (source, layer)]


@functools.cache
def recipe_layers() -> dict[str, dict[str, Any]]:
    """Name -> what each recipe of the package sets, with what it inherits."""
    out = {}
    for name in recipes():
        layers = [layer for _, layer in layers_of(name)]
        out[name] = {key: value for layer in layers for key, value in layer.items()}
    return out


def nearest_recipe(values: Mapping[str, Any]) -> str:
    """The recipe of the same world with the most settings equal to these, less twice those that differ.

    `values` are all settings of a run, which do not name its recipe. Empty where no recipe agrees.
    """
    scores: dict[str, int] = {}
    for name, layer in recipe_layers().items():
        if layer.get("game", "pursuit") != values.get("game"):
            continue
        keys = [key for key in layer if key not in ("game", "like", "seed", "threads") and key in values]
        equal = sum(layer[key] == values[key] for key in keys)
        scores[name] = 3 * equal - 2 * len(keys)
    best = max(scores, key=lambda name: scores[name], default="")
    return best if scores.get(best, 0) > 0 else ""


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(4 * settings.MAX_CHARACTERS + 1)  # bounded: the path may be /dev/zero
        layer = settings.read_yaml(data.decode(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not text'}"
        ) from None
    if not layer:
        raise ConfigError(f"{path}: no settings; expected lines such as 'game: pursuit' and 'games: 512'")
    return layer


def stored_config(run: Run) -> Config:
    """The settings in a run's config.yaml, read as strictly as any other file."""
    return config_of_text(run.config_text, str(run.folder / "config.yaml"))


def config_of_text(text: str, source: str) -> Config:
    """The settings that `to_yaml` wrote; `source` names them in errors."""
    layer = settings.read_yaml(text, source)
    game = layer.get("game")
    if not isinstance(game, str):
        raise ConfigError(f"{source}: game = {game!r}: expected a world's name")
    layer["game"] = registry.present_name(game)
    try:
        basis = default(game, *(named_code(key, [("", layer, False)], ()) for key in CODE_SETTINGS[:2]))
    except CodeNotAllowed as error:
        raise CodeNotAllowed(f"{source}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    config = settings.apply(basis, layer, source, notes=False)
    try:
        settings.validate(config)
    except ConfigError as error:
        kind = CodeNotAllowed if isinstance(error, CodeNotAllowed) else ConfigError
        raise kind(f"{source}: {error}") from None
    return config


def code_flag(config: Config) -> str:
    """" --allow-code" where these settings name code of the user's own: commands about the run need it."""
    names_code = registry.is_file(config.game) or any(settings.get(config, key) for key in CODE_SETTINGS)
    return f" {user_code.FLAG}" if names_code else ""
