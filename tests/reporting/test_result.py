"""Results: the same values as lines, as a notebook's HTML and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from rematch.reporting.result import Block, Lines, Printable, Result, Table


class Score(Result):
    def blocks(self) -> Iterator[Block]:
        yield "Scores <of> the match"
        yield Table([("player", "score", "note"), ("a<b>", "0.5", self["note"]), ("long name", "12", "")],
                    right=(1,))
        yield ""
        yield Lines(["x   y", "1 & 2"])


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags = list[str]()
        self.texts = list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_result_prints_as_a_table() -> None:
    assert repr(Score({"note": "fine"})).splitlines() == [
        "Scores <of> the match", "player     score  note", "a<b>         0.5  fine", "long name     12", "",
        "x   y", "1 & 2"]


def test_result_wraps_its_last_column() -> None:
    lines = Score({"note": "a remark of some length that does not fit in the line"}).lines(46)
    assert lines[2:5] == ["a<b>         0.5  a remark of some length that",
                          "                  does not fit in the line", "long name     12"]
    assert max(map(len, lines)) <= 46
    assert len(Score({"note": "word " * 30}).lines(30)) == 7  # too narrow for columns: not wrapped


def test_result_is_escaped_in_html() -> None:
    parsed = Tags(Score({"note": "<script>alert(1)</script>\x1b"})._repr_html_())
    assert parsed.tags[:4] == ["p", "table", "thead", "tr"] and "script" not in parsed.tags
    texts = {"a<b>", "Scores <of> the match", "<script>alert(1)</script> ", "x   y\n1 & 2"}
    assert texts <= set(parsed.texts)
    assert parsed.tags.count("tr") == 3 and parsed.tags.count("td") == 6 and "pre" in parsed.tags


def test_result_is_a_mapping_and_its_dict_is_a_copy() -> None:
    result = Score({"note": "n", "table": [{"score": 1}]})
    assert result["note"] == "n" and set(result) == {"note", "table"} and len(result) == 2
    copied = result.to_dict()
    copied["table"][0]["score"] = 2
    assert result["table"] == [{"score": 1}] and json.loads(json.dumps(result.to_dict())) == result
    with pytest.raises(TypeError):
        result["note"] = "m"  # type: ignore[index]


def test_printable_needs_blocks() -> None:
    with pytest.raises(NotImplementedError):
        repr(Printable())
