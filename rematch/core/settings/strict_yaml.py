"""YAML of plain values: no tags, no repeated keys, no aliases (a few lines of them expand to gigabytes).

Where PyYAML was built with libyaml, libyaml reads and writes: fifteen times as fast, and every command reads
a recipe. Only the events of its parser are used: libyaml's composer nests without limit, so a file of many
brackets would crash the process. This module's composer is Python, which raises RecursionError. libyaml
accepts a few errors that Python's parser refuses (a tab after a colon); it is enough if one of the two
accepts a text.
"""

from __future__ import annotations

import contextlib
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import Resolver
from yaml.scanner import Scanner

NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
MERGE_TAG = "tag:yaml.org,2002:merge"  # << would add keys of another mapping and hide repeated keys


class _PlainValues(Composer, SafeConstructor, Resolver):
    """Turns parser events into plain values; as the first base class it replaces the parser's composer."""

    def initialise(self) -> None:
        for part in (Composer, SafeConstructor, Resolver):
            part.__init__(self)

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[attr-defined]
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise yaml.MarkedYAMLError(problem="expected no anchor or alias", problem_mark=event.start_mark)
        if event.tag is not None:
            raise yaml.MarkedYAMLError(problem="expected no tags", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_scalar(self, node: Any) -> Any:
        if "__" in node.value and node.tag in NUMBER_TAGS:
            problem = f"{node.value[:60]!r} is not a number; expected single underscores"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return super().construct_scalar(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.tag == MERGE_TAG:
                    raise yaml.MarkedYAMLError(problem="expected no <<", problem_mark=key.start_mark)
                if key.value in names:
                    problem = f"{key.value[:60]!r} is given twice; expected it once"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                names.add(key.value)
        return super().construct_mapping(node, deep)


class _PythonReader(_PlainValues, Reader, Scanner, Parser):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        self.initialise()


_Reader: Any = _PythonReader
_Dumper: Any = yaml.SafeDumper
with contextlib.suppress(ImportError):
    from yaml._yaml import CParser
    from yaml.cyaml import CSafeDumper

    class _LibyamlReader(_PlainValues, CParser):
        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            self.initialise()

    _Reader, _Dumper = _LibyamlReader, CSafeDumper


# Exceptions of `load`: ValueError for the 45th of a month, OverflowError for a number in base 60.
YAML_ERRORS = (yaml.YAMLError, ValueError, OverflowError, RecursionError)


def load(text: str) -> Any:
    """The value of a YAML text; raises one of YAML_ERRORS where it is not plain YAML."""
    try:
        return _Reader(text).get_single_data()
    except yaml.YAMLError:
        return _PythonReader(text).get_single_data()  # its error message is clearer


def dump(values: Any) -> str:
    """YAML of plain values; characters beyond ASCII are escaped, so that `load` returns them unchanged."""
    text: str
    try:
        text = yaml.dump(values, Dumper=_Dumper, sort_keys=False)
    except UnicodeEncodeError:  # a lone surrogate, as file names may hold: libyaml cannot write it
        text = yaml.dump(values, Dumper=yaml.SafeDumper, sort_keys=False)
    return text
