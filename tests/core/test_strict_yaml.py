"""Strict YAML: libyaml and the Python reader agree; deep nesting is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rematch import api
from rematch.core import config as rematch_config
from rematch.core.settings import strict_yaml

compiled = pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML without libyaml")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@compiled
def test_libyaml_is_used_where_it_is_installed() -> None:
    assert strict_yaml._Reader is not strict_yaml._PythonReader and strict_yaml._Dumper is not yaml.SafeDumper


@settings(max_examples=150)
@given(values)
def test_dumped_value_is_read_back_by_both_readers(value: Any) -> None:
    text = strict_yaml.dump(value)
    assert strict_yaml.load(text) == value
    assert strict_yaml._PythonReader(text).get_single_data() == value
    assert yaml.safe_load(text) == value


@settings(max_examples=150)
@given(st.text("ab:-[]{},#&*!|>?%'\"\n\r\t\x85\u2028 01.~", max_size=30))
def test_libyaml_agrees_with_the_python_reader(text: str) -> None:
    """And what both refuse is refused in Python's words. libyaml lets some slips pass: `>#`."""
    try:
        wanted = strict_yaml._PythonReader(text).get_single_data()
    except strict_yaml.YAML_ERRORS as error:
        try:
            strict_yaml.load(text)
        except strict_yaml.YAML_ERRORS as other:
            assert str(other) == str(error)
    else:
        assert repr(strict_yaml.load(text)) == repr(wanted)  # 1 equals True


def test_dump_writes_the_same_text_as_pyyaml() -> None:
    """A run's identity is the SHA-256 of its settings: another writer must not change a letter."""
    assert strict_yaml.load(strict_yaml.dump({"a": "r\udcff.gb"})) == {"a": "r\udcff.gb"}
    for name in ("quick", "tiny", "beasty"):
        tree = rematch_config.tree(api.configure(name))
        assert strict_yaml.dump(tree) == yaml.safe_dump(tree, sort_keys=False)


@pytest.mark.parametrize("text", ["[" * 16000 + "]" * 16000, "[" * 32000, "{a: " * 8000, "- " * 16000])
def test_deeply_nested_text_raises_recursion_error(text: str) -> None:
    with pytest.raises(RecursionError):
        strict_yaml.load(text)


@pytest.mark.parametrize(("text", "message"), [
    ("a: &x 1", "no anchor"), ("a: *x", "no anchor or alias"), ("a: !!python/object:os.system 1", "no tags"),
    ("a: 1\na: 2", "given twice"), ("<<: {a: 1}\na: 2", "no <<"), (f"{'k' * 900!r}: 1\n" * 2, "^.{,99}$"),
    ("a: [", "expected the node content"),
])  # fmt: skip
def test_text_that_is_not_plain_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as caught:
        strict_yaml.load(text)
    assert re.search(message, caught.value.problem or "")


def test_number_with_two_underscores_is_refused() -> None:
    assert strict_yaml.load("a: 1_000") == {"a": 1000}
    for text in ("a: 1__0", "a: 1__0.5"):
        with pytest.raises(yaml.YAMLError, match="not a number"):
            strict_yaml.load(text)
    assert strict_yaml.load("a: x__y") == {"a": "x__y"}
