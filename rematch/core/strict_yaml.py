"""YAML of plain values: no tags, no repeated keys, no aliases (a few lines of which mean gigabytes).

libyaml reads and writes where PyYAML was built with it: fifteen times as fast, and every command reads a
recipe. Of its reader we take the events alone: what it nests itself, it nests without bound, and a file of
brackets would end the process. Python nests here, and stops. libyaml lets some slips pass that Python's
reader refuses (a tab after a colon); what one of them reads is taken.
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

MERGE = "tag:yaml.org,2002:merge"  # << would bring keys that stand elsewhere, and hide repeated ones


class _Plain(Composer, SafeConstructor, Resolver):
    """What events mean; composed here, before any reader's own composing."""

    def begin(self) -> None:
        for part in (Composer, SafeConstructor, Resolver):
            part.__init__(self)

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[attr-defined]
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise yaml.MarkedYAMLError(problem="expected no anchor or alias", problem_mark=event.start_mark)
        if event.tag is not None:
            raise yaml.MarkedYAMLError(problem="expected no tags", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.tag == MERGE:
                    raise yaml.MarkedYAMLError(problem="expected no <<", problem_mark=key.start_mark)
                if key.value in names:
                    why = f"{key.value[:60]!r} is given twice; expected it once"
                    raise yaml.MarkedYAMLError(problem=why, problem_mark=key.start_mark)
                names.add(key.value)
        return super().construct_mapping(node, deep)


class _Python(_Plain, Reader, Scanner, Parser):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        self.begin()


_Fast: Any = _Python
_Dumper: Any = yaml.SafeDumper
with contextlib.suppress(ImportError):
    from yaml._yaml import CParser
    from yaml.cyaml import CSafeDumper

    class _Compiled(_Plain, CParser):
        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            self.begin()

    _Fast, _Dumper = _Compiled, CSafeDumper


# What reading may raise: ValueError of the 45th of a month, OverflowError of a number in sixties.
REFUSED = (yaml.YAMLError, ValueError, OverflowError, RecursionError)


def load(text: str) -> Any:
    """What the text says; raises one of REFUSED where it is not plain YAML."""
    try:
        return _Fast(text).get_single_data()
    except yaml.YAMLError:
        return _Python(text).get_single_data()  # says better what is wrong, and where


def dump(values: Any) -> str:
    """Letters beyond ASCII are escaped: all of them come back."""
    text: str
    try:
        text = yaml.dump(values, Dumper=_Dumper, sort_keys=False)
    except UnicodeEncodeError:  # half a letter, as file names may have: libyaml has no way to write it
        text = yaml.dump(values, Dumper=yaml.SafeDumper, sort_keys=False)
    return text
