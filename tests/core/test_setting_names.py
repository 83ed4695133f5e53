"""Old names of settings and their values are accepted with a note; words of other libraries are suggested."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rematch import api
from rematch.core import config
from rematch.core.config import knob, part
from rematch.core.errors import ConfigError
from rematch.core.settings import setting_names
from rematch.storage.run_folder import Run
from rematch.worlds import registry


@dataclass(frozen=True, kw_only=True)
class Savestates:
    explorers: int = knob(0, "games that explore")
    demonstrations: bool = knob(False, "episodes with forced actions")
    columns: tuple[str, ...] = knob((), "columns that make a cell", choices=("map", "x", "y"))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    kind: str = knob("simultaneous", "roles that learn", choices=("simultaneous", "alternating"))


@dataclass(frozen=True, kw_only=True)
class Learner:
    lr: float = knob(0.001, "learning rate")
    minibatch_size: int = knob(64, "decisions per gradient step", unit="decisions")


@dataclass(frozen=True, kw_only=True)
class Settings:
    games: int = knob(8, "games that step together")
    ppo: Learner = part(Learner)
    dqn: Learner = part(Learner)
    savestates: Savestates = part(Savestates)
    schedule: Schedule = part(Schedule)


pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # single tests expect them

RENAMED, RENAMED_VALUES = dict(config.RENAMED), dict(config.RENAMED_VALUES)  # without those of the tests


@pytest.fixture(autouse=True)
def renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, a key that moved to another part, a whole part and two values have new names."""
    for old, new in {"bands.scouts": "savestates.explorers", "practice": "savestates.demonstrations",
                     "swarm": "savestates", "savestates.scouts": "savestates.explorers"}.items():
        monkeypatch.setitem(config.RENAMED, old, new)
    monkeypatch.setitem(config.RENAMED_VALUES, ("schedule.kind", "together"), "simultaneous")
    monkeypatch.setitem(config.RENAMED_VALUES, ("savestates.columns", "place"), "map")
    monkeypatch.setattr(setting_names, "_noted", set())


def read_flags(*argv: str) -> Settings:
    values = config.read_flags(argv, Settings())
    return config.apply(Settings(), values, "command line", text=True)


def notes_of(read: Callable[[], object]) -> list[str]:
    """The notes that are given while `read` runs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("name", "value"), [
    ("bands.scouts", 3), ("swarm.explorers", 3), ("Bands.Scouts", 3),
])  # fmt: skip
def test_old_key_is_accepted_from_every_source(name: str, value: int) -> None:
    with pytest.warns(FutureWarning, match="explorers"):
        assert read_flags(f"--{name}", str(value)).savestates.explorers == value
    changes = config.read_yaml(f"{name}: {value}", "recipe")
    assert config.apply(Settings(), changes, "recipe").savestates.explorers == value
    assert config.apply(Settings(), {name: value}, "changes").savestates.explorers == value


def test_old_part_is_accepted_as_nested_yaml() -> None:
    text = "swarm:\n  explorers: 3\n  columns: [x, y]\n"
    made = config.apply(Settings(), config.read_yaml(text, "recipe"), "recipe", notes=False)
    assert made.savestates == Savestates(explorers=3, columns=("x", "y"))


def test_old_switch_is_set_and_unset() -> None:
    assert notes_of(lambda: config.read_flags(["--practice"], Settings())) == [
        "practice is now savestates.demonstrations"]
    assert read_flags("--practice").savestates.demonstrations
    assert config.read_flags(["--no-practice"], Settings()) == {"savestates.demonstrations": "false"}
    flags = config.read_flags(["--swarm.no-demonstrations"], Settings())
    assert flags == {"savestates.demonstrations": "false"}


def test_note_is_given_once_per_key() -> None:
    old, note = {"bands.scouts": 3}, "bands.scouts is now savestates.explorers"
    assert notes_of(lambda: config.apply(Settings(), old, "a")) == [note]
    assert notes_of(lambda: config.apply(Settings(), old, "b")) == []
    assert notes_of(lambda: read_flags("--bands.scouts=3")) == []
    assert notes_of(lambda: read_flags("--practice")) == ["practice is now savestates.demonstrations"]


def test_note_is_not_given_for_stored_files_and_present_names() -> None:
    old = {"bands.scouts": 3, "schedule.kind": "together"}
    assert notes_of(lambda: config.apply(Settings(), old, "run/config.yaml", notes=False)) == []
    assert notes_of(lambda: read_flags("--savestates.explorers", "3", "--PPO.lr=0.1")) == []


@pytest.mark.parametrize("argv", [
    ("--bands.scouts", "3", "--savestates.explorers", "4"),
    ("--savestates.explorers=4", "--bands.scouts=3"),
])
def test_old_and_present_flag_together_are_refused(argv: tuple[str, ...]) -> None:
    message = ("command line: --bands.scouts and --savestates.explorers are the same setting: "
               "expected --savestates.explorers alone")
    with pytest.raises(ConfigError, match=f"^{message}$"):
        config.read_flags(argv, Settings())


def test_old_and_present_key_together_are_refused() -> None:
    old_first = {"bands.scouts": 3, "savestates.explorers": 3}
    for changes in (old_first, dict(reversed(old_first.items()))):
        with pytest.raises(ConfigError, match=r"^file: bands.scouts and savestates.explorers are the same"):
            config.apply(Settings(), changes, "file", notes=False)


def test_two_old_names_of_one_setting_are_given_twice() -> None:
    with pytest.raises(ConfigError, match=r"savestates.explorers = 4 is given twice"):
        config.apply(Settings(), {"bands.scouts": 3, "swarm.explorers": 4}, "file", notes=False)


def test_flag_overrides_an_old_key_of_a_recipe() -> None:
    made = config.apply(Settings(), {"bands.scouts": 3}, "recipe", notes=False)
    made = config.apply(made, {"savestates.explorers": "5"}, "command line", text=True)
    assert made.savestates.explorers == 5


@pytest.mark.parametrize("value", ["together", "Together", "simultaneous", "SIMULTANEOUS"])
def test_old_value_and_any_case_are_accepted(value: str) -> None:
    for read in (lambda: read_flags("--schedule.kind", value),
                 lambda: config.apply(Settings(), {"schedule.kind": value}, "file")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert read().schedule.kind == "simultaneous"


def test_old_value_is_noted_and_replaced_in_lists() -> None:
    assert notes_of(lambda: read_flags("--schedule.kind", "together")) == [
        "schedule.kind = together is now simultaneous"]
    with pytest.warns(FutureWarning, match=r"savestates.columns = place is now map"):
        assert read_flags("--savestates.columns", "place,X").savestates.columns == ("map", "x")


def test_part_of_a_config_knows_old_names_by_its_prefix() -> None:
    with pytest.warns(FutureWarning, match="scouts is now explorers"):
        flags = config.read_flags(["--scouts", "3"], Savestates(), prefix="savestates.")
    assert flags == {"explorers": "3"}
    made = config.apply(Savestates(), {"scouts": 3}, "policy.json", prefix="savestates.", notes=False)
    assert made.explorers == 3
    with pytest.raises(ConfigError, match="unknown setting scouts = 3"):
        config.apply(Savestates(), {"scouts": 3}, "policy.json")


@pytest.mark.parametrize(("word", "near"), [
    ("learning_rate", "ppo.lr"), ("ppo.learning_rate", "ppo.lr"), ("dqn.learning_rate", "dqn.lr"),
    ("dqn.batch_size", "dqn.minibatch_size"), ("num_envs", "games"), ("learning-rate", "ppo.lr"),
    ("ppo.learning_rte", "ppo.lr"), ("scouts", "savestates.explorers"),
    ("bands.scuots", "savestates.explorers"), ("bands.practise", "savestates.demonstrations"),
    ("swarm.explorer", "savestates.explorers"),
])
def test_unknown_name_suggests_the_key_of_its_synonym_or_old_name(word: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.read_flags([f"--{word}", "1"], Settings())
    assert str(caught.value) == f"command line: unknown setting --{word} = '1'; nearest: --{near}"


# --- through the API ----------------------------------------------------------------------------------


def test_configure_accepts_old_names_from_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(config.RENAMED, "ppo.clip_range", "ppo.clip")
    (tmp_path / "more.yaml").write_text("ppo: {clip_range: 0.3}\n")
    (tmp_path / "recipe.yaml").write_text("game: pursuit\nppo.clip_range: 0.3\n")
    for read in (
        lambda: api.configure("pursuit", flags=["--ppo.clip-range", "0.3"]),
        lambda: api.configure("pursuit", changes={"ppo.clip_range": 0.3}),
        lambda: api.configure("pursuit", file=tmp_path / "more.yaml"),
        lambda: api.configure(str(tmp_path / "recipe.yaml")),
    ):
        setting_names._noted.clear()
        assert notes_of(read) == ["ppo.clip_range is now ppo.clip"]
        assert read().ppo.clip == 0.3


def test_setting_without_effect_is_refused_under_its_present_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(config.RENAMED, "ppo.end_lr", "ppo.lr_final")
    changes = {"ppo.end_lr": 0.1, "ppo.anneal": "none"}
    with pytest.warns(FutureWarning), pytest.raises(ConfigError, match=r"ppo.lr_final = 0.1 has no effect"):
        api.configure("pursuit", changes=changes)


def test_stored_config_with_old_names_is_read_without_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(config.RENAMED, "ppo.clip_range", "ppo.clip")
    with Run.create(tmp_path / "run", "game: pursuit\nppo: {clip_range: 0.3}\n") as run:
        assert notes_of(lambda: api.stored_config(run)) == []
        assert api.stored_config(run).ppo.clip == 0.3


# --- the tables themselves --------------------------------------------------------------------------


def all_keys() -> set[str]:
    """Keys of every game's settings."""
    return {key for name in registry.names() for key, _, _ in config.leaves(api.default(name))}


def test_present_names_exist_and_old_ones_do_not() -> None:
    keys = all_keys()
    for old, new in RENAMED.items():
        assert any(key == new or key.startswith(new + ".") for key in keys), f"{old} -> {new}"
        assert not any(key == old or key.startswith(old + ".") for key in keys), f"{old} is a present name"
        assert setting_names.present_key(new) == new, f"{old} -> {new} -> {setting_names.present_key(new)}"


def test_present_values_exist_and_old_ones_do_not() -> None:
    for (key, old), new in RENAMED_VALUES.items():
        choices = next(field.metadata["choices"] for name in registry.names()
                       for leaf_key, field, _ in config.leaves(api.default(name)) if leaf_key == key)
        assert not choices or (new in choices and old not in choices), f"{key} = {old} -> {new}"


def test_synonyms_mean_a_key_and_are_none() -> None:
    keys = all_keys()
    leaves = {key.rpartition(".")[2] for key in keys if not key.startswith("world.")}
    of_worlds = {key.rpartition(".")[2] for key in keys if key.startswith("world.")}
    for word, target in config.SYNONYMS.items():
        assert target in leaves | keys | of_worlds, f"{word} -> {target}"
        assert word not in leaves | keys, f"{word} is a setting"


def test_unit_is_shown_after_the_value() -> None:
    lines = {flag: value for flag, value, _ in config.help_lines(Settings())}
    assert lines["--ppo.minibatch_size"] == "64 decisions" and lines["--ppo.lr"] == "0.001"


@pytest.mark.parametrize(("recipe", "key"), [("quick", "ppo.lr"), ("small", "dqn.lr")])
def test_suggestion_prefers_a_setting_with_an_effect(recipe: str, key: str) -> None:
    from rematch.training.recipes import configure

    with pytest.raises(ConfigError, match=f"nearest: --{key}$"):
        configure(recipe, flags=["--learning_rate", "0.1"])
