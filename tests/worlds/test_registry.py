"""Games are found by name, and a spec is known without a world."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from support import conformance_subjects, toys

from rematch import api
from rematch.core.errors import ConfigError
from rematch.core.settings import setting_names
from rematch.worlds import registry
from rematch.worlds.game import Game
from rematch.worlds.native_world import NativeWorld
from rematch.worlds.numpy_world import NumpyWorld


def settings_of(name: str) -> tuple[Game, Any]:
    game: Game = conformance_subjects.game(name)
    return game, game.Config(**conformance_subjects.SETTINGS.get(name, {}))


@pytest.mark.parametrize("name", registry.names())
def test_games_have_the_name_of_their_folder_and_a_summary(name: str) -> None:
    game = registry.find(name)
    assert isinstance(game, Game) and game.name == name and registry.find(name) is game
    assert len(game.summary) > 20 and "\n" not in game.summary


@pytest.mark.parametrize("name", registry.names())
def test_spec_is_that_of_a_world(name: str) -> None:
    game, config = settings_of(name)
    spec = game.spec(config)
    assert spec == game.make(config, 1).spec and spec.world == name
    assert set(game.bots) == set(spec.roles)


@pytest.mark.parametrize("name", registry.names())
def test_spec_builds_no_world(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a world was built")

    monkeypatch.setattr(NativeWorld, "__init__", refuse)
    monkeypatch.setattr(NumpyWorld, "__init__", refuse)
    game, config = settings_of(name)
    assert game.spec(config).roles
    with pytest.raises(AssertionError, match="a world was built"):
        game.make(config, 1)


@pytest.mark.parametrize("name", registry.names())
def test_unknown_bots_and_roles_are_refused(name: str) -> None:
    game = registry.find(name)
    role = next(iter(game.bots))
    with pytest.raises(ConfigError, match=f"{role} = randon: expected one of .*; nearest: random"):
        game.bot("randon", role)
    if len(game.bots) == 1 and "nobody" in game.bots:
        return  # the roles depend on the settings (pettingzoo), and each has the same bots
    with pytest.raises(ConfigError, match="role = nobody: expected one of "):
        game.bot("random", "nobody")


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown world 'latice': expected one of .*; nearest: lattice"):
        registry.find("latice")


def entry(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint(name="outside", value=value, group=registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])


def test_entry_points_name_games(monkeypatch: pytest.MonkeyPatch) -> None:
    entry(monkeypatch, "support.toys:sticks")
    assert "outside" in registry.names() and registry.find("outside") is toys.sticks


def test_entry_points_of_modules_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    entry(monkeypatch, "support.toys")
    with pytest.raises(ConfigError) as caught:
        registry.find("outside")
    assert str(caught.value) == ("world 'outside': its entry point 'support.toys' names a module; expected a "
                                 "Game, such as package.module:GAME")


# --- old names --------------------------------------------------------------------------------------


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """No note was printed yet."""
    monkeypatch.setattr(setting_names, "_noted", noted := set[str]())
    return noted


def test_old_name_is_an_alias(notes: set[str]) -> None:
    assert registry.find("gym") is registry.find("gymnasium") and "gym" not in registry.names()
    with pytest.warns(FutureWarning, match="world gym is now gymnasium"):
        registry.note_old_name("gym")
    registry.note_old_name("gym")  # a warning here would fail: each name is noted once
    registry.note_old_name("pursuit")
    assert notes == {"world gym is now gymnasium"}


@pytest.mark.usefixtures("notes")
def test_old_name_of_a_recipe_is_noted_and_resolved() -> None:
    pytest.importorskip("gymnasium")
    with pytest.warns(FutureWarning, match="world gym is now gymnasium"):
        config = api.configure("gym")
    assert config == api.configure("gymnasium") and config.game == "gymnasium"


@pytest.mark.usefixtures("notes")
def test_recipe_of_the_earlier_project_has_its_old_name_too(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match="recipe documents is now ams_drl"):
        assert api.configure("documents") == api.configure("ams_drl")
    (tmp_path / "mine.yaml").write_text("like: documents\nseed: 3\n")
    assert api.configure(str(tmp_path / "mine.yaml")).seed == 3


@pytest.mark.usefixtures("notes")
def test_old_name_in_a_recipe_file_is_noted_and_resolved(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    file = tmp_path / "mine.yaml"
    file.write_text("game: gym\nworld:\n  id: Acrobot-v1\n")
    with pytest.warns(FutureWarning, match="world gym is now gymnasium"):
        config = api.configure(str(file))
    assert config.game == "gymnasium" and config.world.id == "Acrobot-v1"
