"""Settings: every source is read strictly; every error is one line with the expected value."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematch import api
from rematch.core import config
from rematch.core.config import knob, part
from rematch.core.errors import ConfigError
from rematch.worlds import registry


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A part with every kind of knob."""

    power: float = knob(1.5, "how strong", low=0.0, high=100.0)
    fuel: str = knob("coal", "what it burns", choices=("coal", "oil", "wind"))
    oil_price: float = knob(2.0, "per barrel", needs="fuel=oil")
    turbo: bool = knob(False, "faster")
    boost: int = knob(3, "how much faster", low=1, high=9, needs="turbo")
    sizes: tuple[int, ...] = knob((4, 8), "of pistons", low=1, high=64)
    names: tuple[str, ...] = knob((), "of the crew")
    tunes: tuple[str, ...] = knob(("low",), "it can whistle", choices=("low", "high"))

    def check(self) -> None:
        if len(self.sizes) > 8:
            raise ConfigError(f"sizes = {list(self.sizes)}: expected at most 8")


@dataclass(frozen=True, kw_only=True)
class Train:
    title: str = knob("local", "its name")
    wheels: int = knob(8, "on the rails", low=2)
    express: bool = knob(True, "stops rarely")
    engine: Engine = part(Engine)
    spare: Engine = part(Engine)


def texts() -> st.SearchStrategy[str]:
    plain = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
    return plain | st.sampled_from(
        ["true", "null", "1", "1e3", "- a", "a: b", "", " ", "~", "0x1", "'", "2001-01-01"]
    )


ENGINES = st.builds(
    Engine,
    power=st.floats(0, 100),
    fuel=st.sampled_from(("coal", "oil", "wind")),
    oil_price=st.floats(allow_nan=False, allow_infinity=False),
    turbo=st.booleans(),
    boost=st.integers(1, 9),
    sizes=st.lists(st.integers(1, 64), max_size=8).map(tuple),
    names=st.lists(texts(), max_size=4).map(tuple),
    tunes=st.lists(st.sampled_from(("low", "high")), max_size=3).map(tuple),
)
TRAINS = st.builds(
    Train,
    title=texts(),
    wheels=st.integers(2, 2**63 - 1),
    express=st.booleans(),
    engine=ENGINES,
    spare=ENGINES,
)


def refused(changes: dict[str, Any], text: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        config.apply(Train(), changes, "file", text)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


# --- round trips ----------------------------------------------------------------------------------


@given(TRAINS)
@settings(max_examples=100, deadline=None)
def test_yaml_is_read_back(train: Train) -> None:
    config.validate(train)
    assert config.apply(Train(), config.read_yaml(config.to_yaml(train), "file"), "file") == train


@given(TRAINS, st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_flags_are_read_back(train: Train, kebab: bool, equals: bool) -> None:
    argv: list[str] = []
    for key, _, value in config.leaves(train):
        if isinstance(value, tuple) and any(
            set(v) & set("[],") or v != v.strip() or not v for v in map(str, value)
        ):
            continue  # names with commas in them are for files
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        flag = "--" + (key.replace("_", "-") if kebab else key)
        if equals or shown.startswith("--"):
            argv.append(f"{flag}={shown}")
        else:
            argv += [flag, shown]
    read = config.apply(Train(), config.read_flags(argv, Train()), "command line", text=True)
    for key, _, value in config.leaves(read):
        assert value == config.get(train, key) or not any(key in word.replace("-", "_") for word in argv)


def test_default_config_of_every_game_is_read_back_from_yaml() -> None:
    for name in registry.names():
        default = api.default(name)
        assert config.apply(default, config.read_yaml(config.to_yaml(default), "file"), "file") == default


def test_replace_and_get_use_dotted_keys() -> None:
    changed = config.replace(Train(), {"engine.power": 2.0, "spare.sizes": (1,), "wheels": 4})
    assert (changed.engine.power, changed.spare.sizes, changed.wheels) == (2.0, (1,), 4)
    assert config.get(changed, "spare.sizes") == (1,)
    assert [key for key, _, value in config.leaves(changed) if value != config.get(Train(), key)] == [
        "wheels",
        "engine.power",
        "spare.sizes",
    ]
    with pytest.raises(ConfigError, match="wheels = 1: expected a whole number of at least 2"):
        config.replace(Train(), {"wheels": 1})


# --- errors ------------------------------------------------------------------------------------------

WRONG: list[tuple[str, Any, str]] = [
    ("wheels", 1, "expected a whole number of at least 2"),
    ("wheels", 2.5, "expected a whole number"),
    ("wheels", True, "expected a whole number"),
    ("wheels", None, "expected a whole number"),
    ("wheels", "eight", "expected a whole number"),
    ("wheels", [8], "expected a whole number"),
    ("wheels", "1__0", "expected a whole number"),
    ("wheels", "\u0661\u0660", "expected a whole number"),
    ("engine.power", "1__0", "expected a number"),
    ("engine.power", "_1", "expected a number"),
    ("wheels", math.inf, "expected a whole number"),
    ("wheels", math.nan, "expected a whole number"),
    ("wheels", 2**63, "expected a whole number"),
    ("wheels", 10**400, "expected a whole number"),
    ("engine.power", math.inf, "expected a number from 0.0 to 100.0"),
    ("engine.power", math.nan, "expected a number"),
    ("engine.power", "nan", "expected a number"),
    ("engine.power", 10**400, "expected a number"),
    ("engine.power", -0.1, "expected a number from 0.0 to 100.0"),
    ("engine.power", False, "expected a number"),
    ("engine.fuel", "cola", "expected one of coal, oil, wind; nearest: coal"),
    ("engine.fuel", 3, "expected one of coal, oil, wind"),
    ("engine.turbo", 1, "expected true or false"),
    ("engine.turbo", "true", "expected true or false"),
    ("engine.sizes", 4, "expected a list, each a whole number from 1 to 64"),
    ("engine.sizes", [4, 65], "expected a list, each a whole number from 1 to 64"),
    ("engine.sizes", [4, [4]], "expected a list"),
    ("engine.names", "ann", "expected a list, each text"),
    ("engine.tunes", ["high", "flat"], "expected a list: one of low, high"),
    ("title", 3, "expected text"),
    ("title", None, "expected text"),
]


@pytest.mark.parametrize(("key", "value", "expected"), WRONG)
def test_wrong_value_is_one_line_with_key_value_and_expected(key: str, value: Any, expected: str) -> None:
    message = refused({key: value})
    assert message.startswith(f"file: {key} = ") and expected in message
    assert repr(value)[:40] in message and len(message) < 200


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("wheels", "", "expected a whole number"),
        ("wheels", "0x10", "expected a whole number"),
        ("wheels", "9" * 5000, "expected a whole number"),
        ("wheels", "1e999", "expected a whole number"),
        ("engine.power", "inf", "expected a number"),
        ("engine.turbo", "maybe", "expected true or false"),
        ("engine.sizes", "4,x", "expected a list"),
        ("engine.fuel", "cola", "nearest: coal"),
        ("wheels", "1__0", "expected a whole number"),
        ("wheels", "\u0661\u0662", "expected a whole number"),
        ("engine.power", "\u0661", "expected a number"),
    ],
)
def test_wrong_flag_value_is_one_line(key: str, value: str, expected: str) -> None:
    assert expected in refused({key: value}, text=True)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("wheel", "wheels"),
        ("engine.powr", "engine.power"),
        ("power", "engine.power"),
        ("sizes", "engine.sizes"),
        ("engine", "engine.power"),
        ("engine.oil-prize", "engine.oil_price"),
    ],
)
def test_unknown_key_names_the_nearest(key: str, near: str) -> None:
    message = refused({key: 1})
    assert message.startswith(f"file: unknown setting {key} = 1")
    assert message.endswith(f"; nearest: {near}") or key == "engine"
    with pytest.raises(ConfigError, match=f"unknown setting --{key} = '1'") as caught:
        config.read_flags([f"--{key}", "1"], Train())
    assert str(caught.value).endswith(f"; nearest: --{near}") or key == "engine"


@given(st.text(max_size=100), st.text(max_size=100))
@settings(max_examples=200, deadline=None)
def test_error_is_one_line_for_any_key_and_value(key: str, value: str) -> None:
    for attempt in (
        lambda: config.apply(Train(), {"x" + key: value}, "file"),
        lambda: config.apply(Train(), {"wheels": "x" + value}, "file"),
        lambda: config.apply(Train(), {"wheels": "x" + value}, "command line", text=True),
        lambda: config.read_flags(["--x" + key, value], Train()),
        lambda: config.read_flags([value.lstrip("-") + key.lstrip("-")], Train()),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 300


def test_last_part_of_a_key_suggests_the_whole_key() -> None:
    default = api.default("pursuit")
    keys = [key for key, _, _ in config.leaves(default)]
    for key in keys:
        leaf = key.rpartition(".")[2]
        assert config.nearest(leaf, keys).rpartition(".")[2] == leaf
        if leaf not in keys:
            with pytest.raises(ConfigError) as caught:
                config.read_flags([f"--{leaf}", "1"], default)
            assert str(caught.value).rpartition(".")[2] == leaf


# --- flags -----------------------------------------------------------------------------------------


def read(*argv: str) -> dict[str, str]:
    return config.read_flags(argv, Train())


def test_flags_with_dashes_or_underscores_and_with_or_without_equals() -> None:
    assert read("--engine.oil-price", "3") == read("--engine.oil_price=3") == {"engine.oil_price": "3"}
    assert read("--engine.oil-price=-3") == {"engine.oil_price": "-3"}
    assert read("--engine.oil-price", "-3") == {"engine.oil_price": "-3"}
    assert read("--title=a=b") == {"title": "a=b"}
    assert read("--title=") == {"title": ""}


def test_switches_are_set_and_unset() -> None:
    assert read("--express") == {"express": "true"}
    assert read("--no-express") == read("--no_express") == {"express": "false"}
    assert read("--engine.no-turbo") == {"engine.turbo": "false"}
    assert read("--express", "--wheels", "4") == {"express": "true", "wheels": "4"}
    for word, value in (("yes", True), ("OFF", False), ("0", False), ("True", True)):
        got = config.apply(Train(), read("--express", word), "command line", text=True)
        assert got.express is value


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--wheel", "4"], "unknown setting --wheel"),  # no prefix matching
        (["--engine.pow=4"], "unknown setting --engine.pow"),
        (["--no-wheels"], "unknown setting --no-wheels"),  # only switches can be switched off
        (["--no-express=true"], "unknown setting --no-express"),
        (["--wheels"], "--wheels needs a value"),
        (["--wheels", "--express"], "--wheels needs a value"),
        (["--wheels", "4", "--wheels=6"], "--wheels is given twice"),
        (["--engine.oil-price", "1", "--engine.oil_price", "2"], "is given twice"),
        (["--express", "--no-express"], "is given twice"),
        (["wheels", "4"], "expected a flag, found 'wheels'"),
        (["-wheels", "4"], "expected a flag"),
        (["--"], "expected a flag"),
    ],
)
def test_bad_flag_is_refused(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        config.read_flags(argv, Train())
    assert str(caught.value).startswith("command line: ")


# --- YAML ------------------------------------------------------------------------------------------

LAUGHS = "a0: &a0 {x: 1, y: 1}\n" + "".join(
    f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}\n" for i in range(1, 60)
)


# fmt: off
HOSTILE = [
    LAUGHS, "a: &a [*a]", "wheels: &w 4\nspare.boost: *w", "a: !!python/object/apply:os.system [ls]",
    "a: !!python/name:os.system", "a: !mine 3", "!!map {a: 1}", "wheels: !!int '4'", "wheels: 4\nwheels: 6",
    "engine: {power: 1, power: 2}", "engine.power: 1\nengine: {power: 2}",
    "engine: {turbo: true}\nengine: {power: 3}", "wheels: " + "9" * 5000, "title: 2001-13-45", "wheels: 0b_",
    "[" * 5000, "{a: " * 2000, "- 1", "just words", "3", "1: 2",
    "engine: {1: 2}", "? [a]\n: 1", "{[]: 1}", "a: b: c", "\ta: 1", "'", "a: \x00",
    "a: 1\n---\nb: 2", "%YAML 9.9\n---\na: 1", "a: [1, 2", "\ufeff\ufeff: 1", "a: '\ud800'", "x" * 40_000,
]
# fmt: on


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_yaml_is_one_line(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        config.apply(Train(), config.read_yaml(text, "file"), "file")
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 300
    assert str(caught.value).startswith("file:")
    assert time.process_time() - began < 2


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_yaml_text_is_settings_or_one_line(text: str) -> None:
    try:
        config.apply(Train(), config.read_yaml(text, "file"), "file")
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1


def test_longest_settings_file_is_read_in_about_a_second() -> None:
    began = time.process_time()
    with pytest.raises(ConfigError, match="unknown setting a ="):
        text = f"a: [{'1,' * (config.MAX_CHARACTERS // 2 - 4)}]"
        config.apply(Train(), config.read_yaml(text, "file"), "file")
    assert time.process_time() - began < 4


def test_yaml_numbers_keep_their_type() -> None:
    got = config.apply(
        Train(), config.read_yaml("wheels: 1e6\nengine: {power: 3, oil-price: 1e-3}", "file"), "file"
    )
    assert got.wheels == 1_000_000 and isinstance(got.wheels, int)
    assert got.engine.power == 3.0 and isinstance(got.engine.power, float) and got.engine.oil_price == 1e-3
    large = config.apply(Train(), {"wheels": 2**53 + 1}, "file")
    assert large.wheels == 2**53 + 1  # not converted to a float
    assert config.read_yaml("", "file") == config.read_yaml("# nothing", "file") == {}


def test_key_in_two_spellings_is_given_twice() -> None:
    assert "engine.oil_price = 2 is given twice" in refused({"engine.oil-price": 1, "engine.oil_price": 2})


# --- judging the whole -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"engine": Engine(power=math.nan)},
        {"wheels": 8.0},
        {"wheels": True},
        {"title": 3},
        {"express": 1},
        {"engine": Engine(sizes=[4])},
        {"engine": Engine(sizes=(4.0,))},
        {"engine": Engine(fuel="tea")},  # type: ignore[arg-type]
        {"spare": Engine(power="strong")},
        {"engine": Engine(sizes=(1,) * 9)},  # type: ignore[arg-type]
    ],
)
def test_validate_refuses_wrong_values_from_python(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=": expected ") as caught:
        config.validate(Train(**bad))
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).startswith(next(iter(bad)))


def test_whole_number_is_accepted_as_a_number() -> None:
    config.validate(Train(engine=Engine(power=3)))


def test_setting_without_effect_names_what_it_needs() -> None:
    assert config.has_effect(Train(), "wheels") == ""
    assert config.has_effect(Train(), "engine.oil_price") == "engine.fuel is 'coal' (it needs oil)"
    assert config.has_effect(Train(engine=Engine(fuel="oil")), "engine.oil_price") == ""
    assert config.has_effect(Train(engine=Engine(fuel="oil")), "spare.oil_price") != ""
    assert config.has_effect(Train(), "engine.boost") == "engine.turbo is False (it needs true)"
    with pytest.raises(ConfigError, match=r"^file: engine.boost = 3 has no effect: engine.turbo is False"):
        config.refuse_inert(Train(), ["wheels", "engine.boost"], "file")
    config.refuse_inert(Train(engine=Engine(turbo=True)), ["engine.boost"], "file")


def test_needs_are_followed_to_their_root() -> None:
    default = api.default("pursuit")
    lone = config.replace(default, {"league.opponent_share": 0.0, "league.matchmaking": "pfsp"})
    assert "league.opponent_share" in config.has_effect(lone, "league.pfsp_power")


def test_needs_name_a_sibling_and_its_possible_values() -> None:
    for name in registry.names():
        default = api.default(name)
        for key, field, _ in config.leaves(default):
            needs, equals, wanted = field.metadata.get("needs", "").partition("=")
            if needs:
                head = key.rpartition(".")[0]
                siblings = {
                    f.name: f for f in dataclasses.fields(config.get(default, head) if head else default)
                }
                assert needs in siblings, f"{key} needs {needs}"
                choices = siblings[needs].metadata.get("choices") or wanted.split("|")
                assert not equals or set(wanted.split("|")) <= set(choices), key


def test_help_has_a_line_for_every_setting() -> None:
    lines = list(config.help_lines(api.default("pursuit")))
    assert len(lines) == len(list(config.leaves(api.default("pursuit"))))
    assert all(flag.startswith("--") and text for flag, _, text in lines)


# --- tracking --------------------------------------------------------------------------------------


def test_track_records_the_settings_that_are_read() -> None:
    seen: set[str] = set()
    tracked = config.track(Train(), seen)
    assert seen == set()
    assert tracked.wheels == 8 and tracked.spare.power == 1.5
    assert seen - {"spare"} == {"wheels", "spare.power"}
    assert isinstance(tracked, Train) and config.tree(tracked) == config.tree(Train())
    with pytest.raises(dataclasses.FrozenInstanceError):
        tracked.wheels = 3  # type: ignore[misc]


def test_track_ignores_validating_and_writing() -> None:
    seen: set[str] = set()
    tracked = config.track(Train(), seen)
    config.validate(tracked)
    config.to_yaml(tracked)
    list(config.leaves(tracked))
    assert "wheels" not in seen and "engine.power" not in seen


def test_track_records_the_settings_that_properties_read() -> None:
    seen: set[str] = set()
    assert config.track(api.default("pursuit"), seen).iterations > 0
    lengths = {"total_steps", "games", "steps"}
    assert lengths <= seen
    assert {key for key in seen - lengths if not key.startswith("schedule")} <= {"game", "world"}
